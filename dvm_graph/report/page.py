"""The page: one HTML file with the picture, the report as data, and the script that joins them.

Nothing is loaded from elsewhere, so the page works offline and can be mailed. Text of the model
(names of nodes and dims) is untrusted: it reaches the page only as escaped SVG text and as JSON, which
the script puts into text nodes, never into markup.
"""

from __future__ import annotations

import json
import re
from html import escape
from importlib import resources
from typing import Any

from dvm_graph.report.columns import kernel_node
from dvm_graph.report.composition import GUTTER, ROW_GAP, block_class
from dvm_graph.report.report import Report, Subgraph, Tensor
from dvm_graph.report.scopes import arrange
from dvm_graph.report.text import format_bytes
from dvm_graph.report.times import Times


def make_page(report: Report, svg: str, title: str, times: Times | None = None) -> str:
    """The text of the page; `svg` is the picture as graphviz wrote it."""
    parts = {
        "title": escape(title),
        "style": _resource("page.css"),
        "picture": _inline(svg),
        "data": _json(_data(report, times)),
        "script": _resource("page.js"),
    }
    # One pass, so that text put in for one mark is not searched for another.
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], _resource("page.html"))


def _resource(name: str) -> str:
    return (
        resources.files("dvm_graph.report")
        .joinpath("viewer")
        .joinpath(name)
        .read_text(encoding="utf-8")
    )


def _inline(svg: str) -> str:
    """The <svg> element alone: XML declaration and doctype have no place in HTML."""
    return svg[svg.index("<svg") :]


def _json(data: Any) -> str:
    """JSON that cannot end the <script> element around it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _data(report: Report, times: Times | None) -> dict[str, Any]:
    return {
        "blocks": _blocks(report, times),
        "gaps": [GUTTER, ROW_GAP],
        "subgraphs": {
            kernel_node(index): _details(report, subgraph)
            | {"time": times.text([index]) if times else ""}
            for index, subgraph in enumerate(report.subgraphs)
        },
        "producers": {
            tensor.name: kernel_node(index)
            for index, subgraph in enumerate(report.subgraphs)
            for tensor in subgraph.outputs
        },
        "decisions": [str(decision) for decision in report.decisions],
        "summary": _summary(report),
    }


def _blocks(report: Report, times: Times | None) -> list[dict[str, Any]]:
    """What a column that is folded shows; `like` is the first of those that hold the same operators."""
    first: dict[tuple[Any, ...], str] = {}
    blocks = []
    for number, column in enumerate(arrange(report.subgraphs)):
        members = [report.subgraphs[index] for index in column.subgraphs]
        form = tuple((s.kind, *(operator.op for operator in s.operators)) for s in members)
        title = column.title or "(begin)"
        blocks.append(
            {
                "class": block_class(number),
                "title": title,
                "kernels": len(members),
                "like": first.get(form, ""),
                "time": times.text(column.subgraphs) if times else "",
            }
        )
        first.setdefault(form, title)
    return blocks


def _summary(report: Report) -> list[tuple[str, str]]:
    return [
        ("basic operators", str(report.basic_operators)),
        ("kernels", str(report.kernels)),
        ("launches", str(report.launches)),
        ("vendor operators", ", ".join(report.vendor_operators) or "none"),
        ("inputs", ", ".join(f"{tensor.name} {tensor}" for tensor in report.inputs)),
        ("outputs", ", ".join(f"{tensor.name} {tensor}" for tensor in report.outputs)),
        ("dims", ", ".join(report.symbols) or "all static"),
        *((f"where {name} is", meaning) for name, meaning in report.aliases),
        ("constants", format_bytes(report.constant_bytes)),
    ]


def _details(report: Report, subgraph: Subgraph) -> dict[str, Any]:
    return {
        "name": subgraph.name,
        "kind": subgraph.kind.value,
        "scope": subgraph.scope,
        "place": f"launch {subgraph.launch}, stage {subgraph.stage}" if subgraph.is_kernel else "",
        "verdict": subgraph.verdict.value if subgraph.verdict else "",
        "reason": subgraph.reason,
        "fallback": list(subgraph.fallback),
        "symbols": list(subgraph.symbols),
        "operators": [[o.op, o.name, list(o.onnx_nodes)] for o in subgraph.operators],
        "inputs": _tensors(subgraph.inputs),
        "outputs": _tensors(subgraph.outputs),
        "constants": _tensors(subgraph.constants),
        "constantSize": format_bytes(subgraph.constant_bytes),
        "onnx": list(subgraph.onnx_nodes),
        "decisions": [str(d) for d in report.decisions_about(subgraph)],
    }


def _tensors(tensors: tuple[Tensor, ...]) -> list[tuple[str, str]]:
    return [(tensor.name, str(tensor)) for tensor in tensors]
