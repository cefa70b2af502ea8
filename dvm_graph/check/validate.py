"""The whole validation of a model, and its entry for `optimize(check=True)`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from dvm_graph.check.findings import CheckReport
from dvm_graph.check.graphs import GraphCheck
from dvm_graph.check.kernels import check_kernels
from dvm_graph.check.whole import check_whole
from dvm_graph.ir import Array
from dvm_graph.options import DEFAULTS, Options
from dvm_graph.pipeline import Compiled, Source, compile_model


def validate(
    source: Source,
    options: Options | None = None,
    seed: int = 0,
    *,
    feeds: Mapping[str, Array] | None = None,
    larger: bool = True,
    **overrides: Any,
) -> CheckReport:
    """Compiles a model and checks every pass and every kernel.

    Args:
        source: path, bytes, or onnx.ModelProto.
        options: see `Options`.
        **overrides: single fields of it.
        seed: of the extents and numbers that are drawn.
        feeds: arrays to run the whole model with besides those: for models that want indices,
            shapes or strings as inputs, which no random number is.
        larger: also run kernels at extents that take them through several tiles, which is most of the time of
            a small model's check.

    Raises:
        DvmError: the model does not compile.
    """
    return _validate(source, (options or DEFAULTS).changed(overrides), seed, feeds, larger)[1]


def checked_compile(source: Source, options: Options) -> Compiled:
    """As `compile_model`.

    Raises:
        MiscompileError: something does not compute what it should.
    """
    compiled, report = _validate(source, options)
    report.raise_findings()
    return compiled


def _programs(compiled: Compiled) -> Iterator[Compiled]:
    """The model, and each body of control flow in it."""
    yield compiled
    for body in compiled.bodies.values():
        yield from _programs(body)


def _validate(
    source: Source,
    options: Options,
    seed: int = 0,
    feeds: Mapping[str, Array] | None = None,
    larger: bool = True,
) -> tuple[Compiled, CheckReport]:
    begin = time.perf_counter()
    report = CheckReport()
    stages = GraphCheck(report, seed, feeds)
    compiled = compile_model(source, options, stages)
    runs = stages.feeds()
    del stages  # and with it the values of the graph
    for part in _programs(compiled):
        check_kernels(part, options, report, seed, larger)
    if report.passed:  # else what is wrong would be found again
        check_whole(compiled, options, report, runs)
    report.seconds = time.perf_counter() - begin
    return compiled, report
