"""Profiles a program: runs it and turns what the core recorded into a `Profile`.

In: a `Program` and feeds. Out: a `Profile`. The first run compiles everything anew; the others use its
programs, and the one of median duration stands for them, whole, so that its parts add up. Timing every
instruction costs a few percent where instructions are short: compare kernels with each other, and times
with those of runs that are not profiled.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping

from numpy.typing import ArrayLike

from dvm_graph.errors import InputError
from dvm_graph.profile.profile import (
    Instruction,
    Kernel,
    Profile,
    Span,
    Timeline,
    covered,
    merge_instructions,
)
from dvm_graph.runtime import KernelProfile, Program, RunProfile

_NANO = 1e-9


def profile_program(
    program: Program,
    feeds: Mapping[str, ArrayLike],
    repeats: int,
    onnx_operators: Mapping[str, str],
) -> Profile:
    """Runs `program` once afresh and `repeats` times more.

    `onnx_operators` are those of the ONNX nodes that kernels came from, by name.

    Raises:
        InputError: fewer than one repeat, or what `Program.run` raises.
    """
    if repeats < 1:
        raise InputError(f"repeats is {repeats}, but has to be 1 or more")
    program.forget()
    first = _profiled_run(program, feeds)
    runs = [_profiled_run(program, feeds) for _ in range(repeats)]
    median = statistics.median_low(run.run_ns for run in runs)
    typical = next(run for run in runs if run.run_ns == median)
    ceilings = program.ceilings()
    return Profile(
        program.cores,
        program.simd,
        ceilings.flops,
        ceilings.copy_bytes,
        ceilings.read_bytes,
        tuple(run.run_ns * _NANO for run in runs),
        _timeline(first, program.cores),
        _timeline(typical, program.cores),
        tuple(_kernels(first, typical, onnx_operators)),
    )


def _profiled_run(program: Program, feeds: Mapping[str, ArrayLike]) -> RunProfile:
    program.run(feeds, profile=True)
    profile = program.statistics.profile
    assert profile is not None
    return profile


def _timeline(run: RunProfile, cores: int) -> Timeline:
    lanes: list[list[Span]] = [[] for _ in range(cores)]
    kernels = [(kernel.name, kernel.kind) for kernel in run.kernels]
    for span in run.spans:
        name, kind = kernels[span.kernel]
        lanes[span.core].append(_span(name, kind, span.start_ns, span.end_ns, span.tiles))
    compiler = [
        _span(k.name, "compile", k.compile_start_ns, k.compile_start_ns + k.compile_ns)
        for k in run.kernels
        if k.compile_ns > 0
    ]
    return Timeline(
        run.run_ns * _NANO,
        tuple(map(tuple, lanes)),
        tuple(_span(span.name, span.category, span.start_ns, span.end_ns) for span in run.host),
        tuple(sorted(compiler, key=lambda span: span.start)),
    )


def _span(name: str, category: str, start_ns: int, end_ns: int, tiles: int = 0) -> Span:
    return Span(name, category, start_ns * _NANO, (end_ns - start_ns) * _NANO, tiles)


def _kernels(
    first: RunProfile, typical: RunProfile, onnx_operators: Mapping[str, str]
) -> Iterable[Kernel]:
    compile_ns: dict[str, int] = {}
    for kernel in first.kernels:
        compile_ns[kernel.name] = compile_ns.get(kernel.name, 0) + kernel.compile_ns
    launches: dict[str, list[int]] = {}
    for index, kernel in enumerate(typical.kernels):
        launches.setdefault(kernel.name, []).append(index)
    for name, indices in launches.items():
        spans = [span for span in typical.spans if span.kernel in indices]
        yield _kernel(
            [typical.kernels[index] for index in indices],
            [_span(name, "", span.start_ns, span.end_ns) for span in spans],
            compile_ns.get(name, 0) * _NANO,
            onnx_operators,
        )


def _kernel(
    launches: list[KernelProfile],
    spans: list[Span],
    compile_seconds: float,
    onnx_operators: Mapping[str, str],
) -> Kernel:
    origin = tuple(dict.fromkeys(node for launch in launches for node in launch.origin))
    return Kernel(
        launches[0].name,
        launches[0].kind,
        origin,
        tuple(dict.fromkeys(onnx_operators[node] for node in origin if node in onnx_operators)),
        launches[0].fallback,
        len(launches),
        sum(launch.programs for launch in launches),
        sum(launch.tiles for launch in launches),
        sum(span.seconds for span in spans),
        covered(spans),
        compile_seconds,
        sum(launch.matmul_flops for launch in launches),
        sum(launch.vector_flops for launch in launches),
        sum(launch.read_bytes for launch in launches),
        sum(launch.written_bytes for launch in launches),
        merge_instructions(
            Instruction(entry.family, entry.unit, entry.count, entry.ns * _NANO)
            for launch in launches
            for entry in launch.instructions
        ),
    )
