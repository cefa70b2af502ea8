"""Simulates a program on a part, and lays host and device beside each other.

In: a `Program`, dims, a `Spec`, a `Plan`. Out: a `Simulation`. The core compiles the program's kernels for
the part, as it does for any device, and says what each stage takes (`runtime/simulation.h`); here launches
are put in order. The host compiles the kernels that a launch meets first, hands the launch over and goes on
with the next, while the device works at it: the paper's pipelining.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dvm_graph import _core
from dvm_graph.npu.spec import Spec
from dvm_graph.runtime import Program
from dvm_graph.runtime.program import named_extents
from dvm_graph.simulation.record import CoreTiles, Flag, Host, Launch, Simulation, Span, Stage, Unit


@dataclass(frozen=True, slots=True)
class Plan:
    """How a model is run and looked at; the defaults are how the paper does it."""

    cold_cache: bool = True
    """The run begins with nothing in the shared cache; False: with what a run before it left."""
    compile: bool = True
    """At a shape not seen before: kernels are compiled. False: programs of the run before serve."""
    measured: int = 0
    """Take the time that this machine takes to compile each kernel, the least of so many; 0: the part's."""
    overlap: bool = True
    """The host goes on while the device works."""
    temporal_stacking: bool = True
    """Stages of one launch are one program with barriers; False: a launch each."""
    spatial_stacking: bool = True
    """Kernels of a stage run side by side; False: a launch each."""
    trace: int = 0
    """Spans to keep of each stage, at most; 0: none."""


def simulate_program(
    program: Program, dims: Mapping[str, int], spec: Spec, plan: Plan | None = None
) -> Simulation:
    """The program's kernels on a part, at named dims.

    Raises:
        InputError: a dim is not given, negative, or unknown.
        CompileError: a kernel fits the part in no way.
    """
    chosen = plan or Plan()
    found = program.core.simulate(
        named_extents(dims),
        spec.target,
        spec.part,
        cold_cache=chosen.cold_cache,
        side_by_side=chosen.spatial_stacking,
        stacked=chosen.temporal_stacking,
        launch_kernels=round(spec["host.launch_kernels"]) if chosen.compile else 0,
        most_spans=chosen.trace,
        compile_repeats=chosen.measured,
    )
    launches = tuple(_launches(found.launches, spec, chosen))
    return Simulation(spec, dict(dims), launches, tuple(found.vendor_calls))


def _launches(found: Iterable[_core.SimulatedLaunch], spec: Spec, plan: Plan) -> Iterator[Launch]:
    host, device = 0.0, 0.0
    for launch in found:
        group = launch.stages
        if not plan.overlap:
            host = max(host, device)
        kernels = sum(stage.compiled for stage in group) if plan.compile else 0
        seconds = 0.0
        if plan.compile:
            seconds = sum(stage.compile_seconds for stage in group) + launch.stack_seconds
        if not plan.measured:
            seconds = spec["host.compile"] * kernels
        work = Host(host, kernels, seconds, spec["host.launch"])
        host = work.end
        cube = any(kind != "vector" for stage in group for kind in stage.kinds)
        startup = spec["startup.matrix_kernel" if cube else "startup.vector_kernel"]
        start = max(host, device)
        device, made = start + startup, []
        for number, stage in enumerate(group):
            device += spec["startup.barrier"] if number else 0.0
            made.append(_stage(stage, device, spec))
            device += made[-1].seconds
        barriers = spec["startup.barrier"] * (len(group) - 1)
        yield Launch(
            work, start, startup + barriers, launch.words * 8, launch.programs, tuple(made)
        )


def _stage(stage: _core.SimulatedStage, start: float, spec: Spec) -> Stage:
    timing = stage.timing
    second = 1 / spec["cores.frequency"]
    names = _core.pipe_names()
    of_cores = timing.cycles * timing.cores or 1.0
    of_lanes = timing.cycles * timing.lanes or 1.0
    return Stage(
        tuple(stage.kernels),
        "+".join(dict.fromkeys(stage.kinds)),
        tuple(stage.origins),
        {
            kernel: lacks
            for kernel, lacks in zip(stage.kernels, stage.lacking, strict=True)
            if lacks
        },
        stage.fallback,
        start,
        timing.cycles * second,
        timing.cores,
        tuple(stage.tiles),
        _units(timing.units, of_cores, names),
        timing.decoding / of_cores,
        stage.flops,
        stage.vector_flops,
        stage.bytes,
        timing.read,
        timing.written,
        timing.memory_read + timing.memory_written,
        round(timing.instructions),
        timing.simulated,
        _units(timing.lane_units, of_lanes, names),
        dict(timing.traced_cores),
        tuple(_core_tiles(stage)),
        tuple(_spans(timing, start, second, names)),
        tuple(_flags(timing, start, second, names)),
    )


def _units(
    units: Sequence[_core.UnitTiming], cycles: float, names: Sequence[str]
) -> dict[str, Unit]:
    """Those that had instructions, of so many cycles of all cores together."""
    return {
        names[queue]: _unit(unit, cycles, names)
        for queue, unit in enumerate(units)
        if unit.instructions
    }


def _spans(
    timing: _core.StageTiming, start: float, second: float, names: Sequence[str]
) -> Iterator[Span]:
    """`second`: of a cycle."""
    for core, queue, instruction, begin, end, tile in timing.spans:
        name = names[queue] if queue < len(names) else "scalar"
        yield Span(core, name, instruction, start + begin * second, start + end * second, tile)


def _flags(
    timing: _core.StageTiming, start: float, second: float, names: Sequence[str]
) -> Iterator[Flag]:
    for core, from_core, source, target, at, taken in timing.flags:
        set_at, taken_at = start + at * second, start + taken * second
        yield Flag(core, from_core, names[source], names[target], set_at, taken_at)


def _core_tiles(stage: _core.SimulatedStage) -> Iterator[CoreTiles]:
    for core in stage.cores:
        parts = tuple((stage.kernels[p.program], p.begin, p.end) for p in core.parts)
        yield CoreTiles("cube" if core.cube else "vector", core.number, parts)


def _unit(unit: _core.UnitTiming, of_cores: float, names: Sequence[str]) -> Unit:
    return Unit(
        unit.busy / of_cores,
        unit.for_decode / of_cores,
        {name: time / of_cores for name, time in zip(names, unit.for_flag, strict=True) if time},
        unit.for_others / of_cores,
        round(unit.instructions),
    )
