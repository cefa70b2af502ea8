"""The report as plain text: a summary, then one block for each fused subgraph, then the refusals."""

from __future__ import annotations

import html
import textwrap
from collections import Counter
from collections.abc import Iterator

from dvm_graph.report.report import Report, Subgraph, Tensor
from dvm_graph.rules.verdicts import Verdict

_WIDTH = 100
_FUSED = (Verdict.PATTERN, Verdict.SPECULATE)


def format_report(report: Report) -> str:
    return "\n".join([*_summary(report), "", *_subgraphs(report), *_refusals(report)])


def headline(report: Report) -> str:
    """One line: how many operators, kernels and launches."""
    kinds = Counter(s.kind.value for s in report.subgraphs if s.is_kernel)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"{report.basic_operators} basic operators -> {report.kernels} kernels"
        f"{f' ({by_kind})' if by_kind else ''} in {report.launches} launches, "
        f"{len(report.vendor_operators)} vendor operators"
    )


def legend(report: Report) -> list[str]:
    """What the words for kinds and verdicts that the report uses mean."""
    used = {s.kind.value for s in report.subgraphs}
    used |= {s.verdict.value for s in report.subgraphs if s.verdict is not None}
    used |= {decision.verdict.value for decision in report.decisions}
    return [f"{word:<10} {meaning}" for word, meaning in _MEANINGS.items() if word in used]


def format_html(report: Report) -> str:
    """The summary and a row for each fused subgraph."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(subgraph)) + "</tr>"
        for subgraph in report.subgraphs
    )
    head = "".join(f"<th>{name}</th>" for name in _COLUMNS)
    summary = html.escape("\n".join(_summary(report)))
    return f"<pre>{summary}</pre><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


_COLUMNS = ("kernel", "kind", "operators", "writes", "verdict")


def _cells(subgraph: Subgraph) -> tuple[str, ...]:
    verdict = f"{subgraph.verdict.value}: {subgraph.reason}" if subgraph.verdict else ""
    operators = " ".join(count_operators(tuple(_operators(subgraph))))
    return subgraph.name, subgraph.kind.value, operators, _tensors(subgraph.outputs), verdict


_MEANINGS = {
    "cube": "a matrix product or convolution, alone in its kernel",
    "mix": "a matrix product with other operators that keep its rows in local memory",
    "vector": "element-wise operators, reductions, gathers and views",
    "host": "dims that the host writes into a tensor; no kernel",
    "vendor": "operators that onnxruntime runs",
    "control": "an If, Loop or Scan, whose bodies are programs of their own",
    "operator": "an operator carried out by the host: its sizes are known once it has run, or its numbers follow from each other",
    "pattern": "fused: a pattern allows it, and the shapes are proven to fit",
    "speculate": "fused where a condition on the dims of a run holds, else the fallback runs",
    "parallel": "not fused, but side by side on the cores",
    "sequence": "not fused: one behind the other, with a barrier between",
    "separate": "not fused: in launches of their own",
}
"""Of the words of reports, in the order of a legend."""


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
    if report.vendor_operators and not any(s.is_kernel or s.bodies for s in report.subgraphs):
        yield "NOTHING IS COMPILED: every operator runs on onnxruntime"
    for subgraph in report.subgraphs:
        if subgraph.is_constant:
            yield f"COMPUTED AT EVERY RUN, of constants alone: {subgraph.name}"
    yield headline(report)
    yield f"inputs     {_tensors(report.inputs)}"
    yield f"outputs    {_tensors(report.outputs)}"
    yield f"dims       {', '.join(report.symbols) or 'all static'}"
    for number, (name, meaning) in enumerate(report.aliases):
        yield f"{'' if number else 'where':<10} {name} = {meaning}"
    yield f"constants  {format_bytes(report.constant_bytes)}"
    if report.vendor_operators:
        yield from _wrapped("vendor     ", ", ".join(count_operators(report.vendor_operators)))
    if report.lacking:
        yield from _wrapped("lacking    ", ", ".join(report.lacking))
    if report.vendor_casts:
        yield from _wrapped("cast for   ", ", ".join(report.vendor_casts))


def _subgraphs(report: Report) -> Iterator[str]:
    launch = -1
    for subgraph in report.subgraphs:
        if subgraph.launch != launch and subgraph.is_kernel:
            launch = subgraph.launch
            yield f"launch {launch}"
        yield from _block(subgraph)
        for name, body in zip(subgraph.body_names, subgraph.bodies, strict=True):
            yield f"      {name}: {headline(body)}"
            yield from (f"        {line}" for line in _subgraphs(body))


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
        yield from _wrapped("  ", str(decision))


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
