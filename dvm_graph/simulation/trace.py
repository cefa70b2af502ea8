"""A simulation as a Chrome trace, which Perfetto opens too.

Two processes: the launches, with lanes for host, compiler and device, and the cores, with a lane for each unit
of each core that was simulated (others do the same as one of them, which its name says). Arrows go from
the unit that set a flag to the one that waited for it. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike

from dvm_graph.profile import Event, complete_event, lane_events, name_event, write_events
from dvm_graph.simulation.record import Simulation, Stage

_LAUNCHES, _CORES = 1, 2
_THREADS = 100_000
_LANES = 16
"""Of a core, at most."""


def write_trace(simulation: Simulation, path: str | PathLike[str]) -> None:
    """Writes the trace to a file.

    Raises:
        InputError: it cannot be written.
    """
    write_events(
        path,
        trace_events(simulation),
        {
            "part": simulation.spec.name,
            "dims": " ".join(f"{name}={extent}" for name, extent in simulation.dims.items()),
        },
    )


def trace_events(simulation: Simulation) -> Iterator[Event]:
    """Names of processes and lanes, then complete events and arrows."""
    yield from _launches(simulation)
    yield from _cores(simulation)


def _launches(simulation: Simulation) -> Iterator[Event]:
    lanes = {
        name: _LAUNCHES * _THREADS + i for i, name in enumerate(("host", "compiler", "device"))
    }
    yield name_event(
        "process_name", _LAUNCHES, _LAUNCHES * _THREADS, f"launches on {simulation.spec.name}"
    )
    for order, (name, lane) in enumerate(lanes.items()):
        yield from lane_events(_LAUNCHES, lane, name, order)
    for launch in simulation.launches:
        host, name = launch.host, launch.stages[0].name
        if host.compile_seconds:
            yield complete_event(
                _LAUNCHES, lanes["compiler"], name, "compile", host.start, host.compile_seconds
            )
        at = host.start + host.compile_seconds
        yield complete_event(_LAUNCHES, lanes["host"], name, "launch", at, host.launch_seconds)
        for stage in launch.stages:
            yield complete_event(
                _LAUNCHES,
                lanes["device"],
                stage.name,
                stage.kind,
                stage.start,
                stage.seconds,
                _facts(stage),
            )


def _facts(stage: Stage) -> dict[str, object]:
    return {
        "onnx": " | ".join(stage.origin),
        "cores": stage.cores,
        "tiles": sum(stage.tiles),
        "TFLOP/s": stage.flops_per_second / 1e12,
        "GB/s of memory": stage.memory_bytes / stage.seconds / 1e9 if stage.seconds else 0.0,
        "decode shows": stage.decode_exposed,
        **{f"{name} busy": unit.busy for name, unit in stage.units.items()},
    }


def _cores(simulation: Simulation) -> Iterator[Event]:
    units = list(dict.fromkeys(span.unit for stage in simulation.stages for span in stage.spans))
    yield name_event("process_name", _CORES, _CORES * _THREADS, f"units of {simulation.spec.name}")
    lanes: dict[tuple[int, str], int] = {}
    for core in sorted({core for stage in simulation.stages for core in stage.alike}):
        for order, unit in enumerate(units):
            lane = _CORES * _THREADS + core * _LANES + order
            lanes[core, unit] = lane
            yield from lane_events(_CORES, lane, f"core {core} {unit}", core * _LANES + order)
    arrow = 0
    for stage in simulation.stages:
        for span in stage.spans:
            name = span.name or f"{span.tile} tiles alike"
            facts = {"tile": span.tile, "cores alike": stage.alike[span.core]}
            yield complete_event(
                _CORES,
                lanes[span.core, span.unit],
                name,
                span.unit,
                span.start,
                span.end - span.start,
                facts,
            )
        for flag in stage.flags:
            ends = (
                ("s", flag.from_core, flag.source, flag.set),
                ("f", flag.core, flag.target, flag.taken),
            )
            if any((core, unit) not in lanes for _, core, unit, _ in ends):
                continue
            arrow += 1
            for phase, core, unit, at in ends:
                event: Event = {
                    "ph": phase,
                    "name": "flag",
                    "cat": "flag",
                    "id": arrow,
                    "pid": _CORES,
                    "tid": lanes[core, unit],
                    "ts": at * 1e6,
                }
                yield event | ({"bp": "e"} if phase == "f" else {})
