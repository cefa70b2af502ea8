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
    first = program.profile(feeds)
    runs = [program.profile(feeds) for _ in range(repeats)]
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


def _timeline(run: RunProfile, cores: int) -> Timeline:
    lanes: list[list[Span]] = [[] for _ in range(cores)]
    kernels = [(kernel.name, kernel.kind) for kernel in run.kernels]
    for span in run.spans:
        name, kind = kernels[span.kernel]
        lanes[span.core].append(_span(name, kind, span.start_ns, span.end_ns, span.tiles))
    compiler = [
        _span(kernels[span.kernel][0], "compile", span.start_ns, span.end_ns)
        for span in run.compilations
    ]
    host = (_span(span.name, span.category, span.start_ns, span.end_ns) for span in run.host)
    return Timeline(
        run.run_ns * _NANO, tuple(map(_in_order, lanes)), _in_order(host), _in_order(compiler)
    )


def _in_order(spans: Iterable[Span]) -> tuple[Span, ...]:
    """By time; what holds others stands before them."""
    return tuple(sorted(spans, key=lambda span: (span.start, -span.seconds)))


def _span(name: str, category: str, start_ns: int, end_ns: int, tiles: int = 0) -> Span:
    return Span(name, category, start_ns * _NANO, (end_ns - start_ns) * _NANO, tiles)


def _kernels(
    first: RunProfile, typical: RunProfile, onnx_operators: Mapping[str, str]
) -> Iterable[Kernel]:
    compile_ns: dict[str, int] = {}
    for compilation in first.compilations:
        name = first.kernels[compilation.kernel].name
        compile_ns.setdefault(name, 0)
        compile_ns[name] += compilation.end_ns - compilation.start_ns
    spans: dict[str, list[Span]] = {kernel.name: [] for kernel in typical.kernels}
    for span in typical.spans:
        name = typical.kernels[span.kernel].name
        spans[name].append(_span(name, "", span.start_ns, span.end_ns))
    calls: dict[str, list[KernelProfile]] = {name: [] for name in spans}
    for kernel in typical.kernels:
        calls[kernel.name].append(kernel)
    for name in calls:
        yield _kernel(calls[name], spans[name], compile_ns.get(name, 0) * _NANO, onnx_operators)


def _kernel(
    calls: list[KernelProfile],
    spans: list[Span],
    compile_seconds: float,
    onnx_operators: Mapping[str, str],
) -> Kernel:
    origin = tuple(dict.fromkeys(node for call in calls for node in call.origin))
    return Kernel(
        calls[0].name,
        calls[0].kind,
        origin,
        tuple(dict.fromkeys(onnx_operators[node] for node in origin if node in onnx_operators)),
        calls[0].fallback,
        sum(call.launches for call in calls),
        sum(call.programs for call in calls),
        sum(call.tiles for call in calls),
        sum(span.seconds for span in spans),
        covered(spans),
        compile_seconds,
        sum(call.matmul_flops for call in calls),
        sum(call.vector_flops for call in calls),
        sum(call.read_bytes for call in calls),
        sum(call.written_bytes for call in calls),
        merge_instructions(
            Instruction(entry.family, entry.unit, entry.count, entry.ns * _NANO)
            for call in calls
            for entry in call.instructions
        ),
    )
