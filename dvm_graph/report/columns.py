"""One column of the picture: the kernels of a layer as a small graph, laid out by dot.

A column stands for itself: what it reads from elsewhere enters through a pill at its top. So columns
are laid out one by one, which keeps the time linear in the size of the model, and repeated layers
look alike. `composition` puts them side by side and draws the lines between neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

import pygraphviz as pgv

from dvm_graph.report.boxes import box_label, shape_label
from dvm_graph.report.palette import EDGE, FONT, FRAME, INK, MUTED, PANEL
from dvm_graph.report.report import Report, Subgraph, Tensor
from dvm_graph.report.scopes import Column
from dvm_graph.report.times import Times

Drawing: TypeAlias = pgv.AGraph

GRAPH_STYLE: Mapping[str, str] = {
    "fontname": FONT,
    "fontsize": "10",
    "bgcolor": "transparent",
    "outputorder": "edgesfirst",
    "pad": "0.3",
}
EDGE_STYLE: Mapping[str, str] = {
    "fontname": FONT,
    "fontsize": "8",
    "fontcolor": MUTED,
    "color": EDGE,
    "arrowsize": "0.6",
    "class": "flow",
}


def kernel_node(index: int) -> str:
    """Name of the box of a subgraph, its id in SVG too."""
    return f"k{index}"


def entry_node(column: int, tensor: Tensor) -> str:
    """Name of the pill through which a value enters a column."""
    return f"in{column}:{tensor.name}"


def make_column(report: Report, column: Column, number: int, times: Times | None) -> Drawing:
    """The drawing of one column, laid out."""
    drawing = pgv.AGraph(directed=True, strict=False, name=f"column{number}")
    drawing.graph_attr.update(
        GRAPH_STYLE, rankdir="TB", nodesep="0.25", ranksep="0.3", compound="true"
    )
    drawing.edge_attr.update(EDGE_STYLE)
    members = dict.fromkeys(column.subgraphs)
    for index in members:
        subgraph = report.subgraphs[index]
        drawing.add_node(
            kernel_node(index),
            id=kernel_node(index),
            shape="plain",
            fontname=FONT,
            label=box_label(subgraph, times.colour(index), times.text([index]))
            if times
            else box_label(subgraph),
            **{"class": f"kernel {subgraph.kind.value}"},
        )
    _add_reads(drawing, report, members, number)
    _add_outputs(drawing, report, members)
    _add_frames(drawing, report, column, number, times)
    drawing.layout(prog="dot")
    return drawing


def entries(report: Report, column: Column) -> list[Tensor]:
    """Values that enter a column from outside, model inputs included, each once."""
    inside = {report.subgraphs[index].name for index in column.subgraphs}
    found: dict[str, Tensor] = {}
    for index in column.subgraphs:
        for tensor in report.subgraphs[index].inputs:
            maker = report.producer.get(tensor.name)
            if maker is None or maker.name not in inside:
                found[tensor.name] = tensor
    return list(found.values())


def _add_reads(drawing: Drawing, report: Report, members: Mapping[int, None], number: int) -> None:
    index_of = {report.subgraphs[index].name: index for index in members}
    for index in members:
        by_source: dict[str, list[Tensor]] = {}
        for tensor in report.subgraphs[index].inputs:
            maker = report.producer.get(tensor.name)
            if maker is not None and maker.name in index_of:
                source = kernel_node(index_of[maker.name])
            else:
                source = entry_node(number, tensor)
                _add_entry(drawing, report, source, tensor, maker)
            by_source.setdefault(source, []).append(tensor)
        for source, tensors in by_source.items():
            # A pill tells its shape itself.
            text = shape_label(tensors) if source.startswith("k") else ""
            drawing.add_edge(source, kernel_node(index), label=text)


def _add_entry(
    drawing: Drawing, report: Report, name: str, tensor: Tensor, maker: Subgraph | None
) -> None:
    if drawing.has_node(name):
        return
    if maker is None:
        label, style, kind = f"{tensor.name}\n{tensor}", "rounded,filled", "input"
    else:
        label, style, kind = f"from {maker.name}\n{tensor}", "rounded,dashed,filled", "entry"
    _add_pill(drawing, name, label, style, kind)


def _add_outputs(drawing: Drawing, report: Report, members: Mapping[int, None]) -> None:
    for tensor in report.outputs:
        maker = report.producer.get(tensor.name)
        if maker is None:
            continue
        index = report.subgraphs.index(maker)
        if index in members:
            name = f"out:{tensor.name}"
            _add_pill(drawing, name, f"{tensor.name}\n{tensor}", "rounded,filled", "output")
            drawing.add_edge(kernel_node(index), name)


def _add_pill(drawing: Drawing, name: str, label: str, style: str, kind: str) -> None:
    drawing.add_node(
        name,
        label=label,
        shape="box",
        style=style,
        fillcolor=PANEL if kind == "entry" else "#e7f6ec",
        color=FRAME if kind == "entry" else "#2f855a",
        fontcolor=MUTED if kind == "entry" else INK,
        fontname=FONT,
        fontsize="8",
        height="0.1",
        margin="0.16,0.04",
        **{"class": kind},
    )


def _add_frames(
    drawing: Drawing, report: Report, column: Column, number: int, times: Times | None
) -> None:
    """The frame of the column, in it those of stacked launches, in these those of parallel stages."""
    everything = [str(node) for node in drawing.nodes()]
    outer = drawing
    if column.title:
        title = f"{column.title}    {times.text(column.subgraphs)}" if times else column.title
        outer = _frame(drawing, everything, f"cluster_column{number}", title, "column")
    stacked = [i for i in column.subgraphs if _is_stacked(report, report.subgraphs[i])]
    for launch, group in groupby(stacked, key=lambda i: report.subgraphs[i].launch):
        members = list(group)
        stages = sorted({report.subgraphs[i].stage for i in members})
        label = f"launch {launch}, stage{_span(stages)}"
        name = f"cluster_launch{number}_{launch}_{members[0]}"
        inner = _frame(outer, [kernel_node(i) for i in members], name, label, "launch")
        _add_stages(inner, report, members, name)


def _add_stages(frame: Drawing, report: Report, members: Sequence[int], stem: str) -> None:
    for stage, group in groupby(members, key=lambda i: report.subgraphs[i].stage):
        side_by_side = [kernel_node(index) for index in group]
        if len(side_by_side) > 1:
            label = f"stage {stage}: {len(side_by_side)} kernels in parallel"
            _frame(frame, side_by_side, f"{stem}_{stage}", label, "stage")


def _is_stacked(report: Report, subgraph: Subgraph) -> bool:
    return subgraph.is_kernel and report.launch_sizes[subgraph.launch] > 1


def _span(stages: Sequence[int]) -> str:
    return f" {stages[0]}" if len(stages) == 1 else f"s {stages[0]} to {stages[-1]}"


_FRAME_LOOKS: Mapping[str, Mapping[str, str]] = {
    "column": {"style": "rounded", "fontsize": "13", "penwidth": "1.2"},
    "launch": {"style": "rounded,dashed", "fontsize": "8", "penwidth": "0.8"},
    "stage": {"style": "rounded,dotted", "fontsize": "8", "penwidth": "0.8"},
}


def _frame(parent: Drawing, nodes: Sequence[str], name: str, label: str, look: str) -> Drawing:
    return parent.add_subgraph(
        nodes,
        name=name,
        label=label,
        labeljust="l",
        fontname=FONT,
        fontcolor=MUTED,
        color=FRAME,
        margin="10",
        **{"class": f"frame {look}"},
        **_FRAME_LOOKS[look],
    )
