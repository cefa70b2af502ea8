"""The report as plain text: a summary, then one block for each fused subgraph, then the refusals."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator

from dvm_graph.report.report import Report, Subgraph, Tensor, describe
from dvm_graph.rules.verdicts import Verdict

_WIDTH = 100
_FUSED = (Verdict.PATTERN, Verdict.SPECULATE)


def format_report(report: Report) -> str:
    return "\n".join([*_summary(report), "", *_subgraphs(report), *_refusals(report)])


def format_bytes(count: int) -> str:
    """A size with a unit: 512 B, 3.4 MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def count_operators(names: tuple[str, ...]) -> list[str]:
    """Operator names in order of first appearance, with counts: ["mul x3", "add"]."""
    return [f"{name} x{n}" if n > 1 else name for name, n in Counter(names).items()]


def _summary(report: Report) -> Iterator[str]:
    for note in report.rescued:
        yield from _wrapped("NOT COMPILED: ", note)
    kinds = Counter(s.kind.value for s in report.subgraphs if s.is_kernel)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    yield (
        f"{report.basic_operators} basic operators -> {report.kernels} kernels"
        f"{f' ({by_kind})' if by_kind else ''} in {report.launches} launches, "
        f"{len(report.vendor_operators)} vendor operators"
    )
    yield f"inputs     {_tensors(report.inputs)}"
    yield f"outputs    {_tensors(report.outputs)}"
    yield f"dims       {', '.join(report.symbols) or 'all static'}"
    yield f"constants  {format_bytes(report.constant_bytes)}"
    if report.vendor_operators:
        yield from _wrapped("vendor     ", ", ".join(count_operators(report.vendor_operators)))
    if report.vendor_casts:
        yield from _wrapped("cast for   ", ", ".join(report.vendor_casts))


def _subgraphs(report: Report) -> Iterator[str]:
    launch = -1
    for subgraph in report.subgraphs:
        if subgraph.launch != launch and subgraph.is_kernel:
            launch = subgraph.launch
            yield f"launch {launch}"
        yield from _block(subgraph)


def _block(subgraph: Subgraph) -> Iterator[str]:
    stage = f"stage {subgraph.stage}, " if subgraph.is_kernel else ""
    yield f"  {subgraph.name} ({stage}{subgraph.kind.value})"
    yield from _wrapped("      operators  ", " ".join(_operators(subgraph)))
    if subgraph.inputs:
        yield from _wrapped("      reads      ", _tensors(subgraph.inputs))
    yield from _wrapped("      writes     ", _tensors(subgraph.outputs))
    if subgraph.onnx_nodes:
        yield from _wrapped("      from       ", ", ".join(subgraph.onnx_nodes))
    if subgraph.verdict is not None:
        text = f"{subgraph.verdict.value}: {subgraph.reason}"
        yield from _wrapped("      verdict    ", text)
    if subgraph.fallback:
        yield from _wrapped("      else       ", " ".join(subgraph.fallback))


def _operators(subgraph: Subgraph) -> list[str]:
    computing = [operator.op for operator in subgraph.operators if not operator.is_view]
    return computing or [operator.op for operator in subgraph.operators]


def _refusals(report: Report) -> Iterator[str]:
    refused = [d for d in report.decisions if d.verdict not in _FUSED]
    if not refused:
        return
    yield ""
    yield f"not fused ({len(refused)} decisions)"
    for decision in refused:
        yield from _wrapped("  ", describe(decision))


def _tensors(tensors: tuple[Tensor, ...]) -> str:
    return ", ".join(f"{tensor.name} {tensor}" for tensor in tensors)


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    )
