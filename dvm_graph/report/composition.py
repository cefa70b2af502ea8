"""The whole picture: columns side by side, lines between neighbours, a title and a legend.

The columns come laid out; here they only move. The result holds all positions, so graphviz's `nop2`
renders it as it is, in every format, and a written .dot file can be rendered again with `neato -n2`.

Units are points; graphviz's y axis points up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import pygraphviz as pgv

from dvm_graph.report.columns import (
    EDGE_STYLE,
    GRAPH_STYLE,
    Drawing,
    entries,
    entry_node,
    kernel_node,
    make_column,
)
from dvm_graph.report.palette import FONT, INK, KINDS, MUTED
from dvm_graph.report.report import Report
from dvm_graph.report.scopes import Column, arrange

_GUTTER = 70.0
_ROW_GAP = 60.0
_WANTED_ASPECT = 2.2
_LEGEND_WIDTH = 160
_POINTS_PER_INCH = 72.0
_NODE_KEYS = (
    "id", "class", "label", "shape", "style", "fillcolor", "color", "fontcolor", "fontname",
    "fontsize", "margin", "width", "height",
)  # fmt: skip
_FRAME_KEYS = (
    "label", "labeljust", "fontname", "fontcolor", "fontsize", "color", "style", "penwidth",
    "class", "lwidth", "lheight",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Placed:
    """A column and where its lower left corner goes."""

    column: Column
    drawing: Drawing
    x: float
    y: float


def make_picture(report: Report, title: str) -> Drawing:
    """The drawing of a report, with all positions."""
    columns = arrange(report.subgraphs)
    drawings = [make_column(report, column, number) for number, column in enumerate(columns)]
    placed, top = _place(columns, drawings)
    picture = pgv.AGraph(directed=True, strict=False, name="dvm_graph")
    picture.graph_attr.update(GRAPH_STYLE)
    picture.edge_attr.update(EDGE_STYLE)
    for item in placed:
        _copy(item, picture)
    _connect(report, placed, picture)
    _add_heading(report, picture, title, top)
    return picture


def _place(columns: Sequence[Column], drawings: Sequence[Drawing]) -> tuple[list[_Placed], float]:
    """Positions of the columns, in rows of about equal width, and the height of all."""
    sizes = [_size(drawing) for drawing in drawings]
    rows = _rows(sizes)
    placed = []
    y = 0.0
    for row in reversed(rows):
        x = 0.0
        height = max(sizes[index][1] for index in row)
        for index in row:
            width, own = sizes[index]
            placed.append(_Placed(columns[index], drawings[index], x, y + height - own))
            x += width + _GUTTER
        y += height + _ROW_GAP
    placed.sort(key=lambda item: item.column.subgraphs)
    return placed, y


def _rows(sizes: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Splits the columns into rows so that the picture is about as wide as a screen."""
    width = sum(w + _GUTTER for w, _ in sizes)
    height = max((h for _, h in sizes), default=1.0)
    count = max(1, round(math.sqrt(width / (height * _WANTED_ASPECT))))
    per_row = max(1, math.ceil(len(sizes) / count))
    indices = list(range(len(sizes)))
    return [indices[start : start + per_row] for start in range(0, len(sizes), per_row)]


def _size(drawing: Drawing) -> tuple[float, float]:
    left, bottom, right, top = _numbers(drawing.graph_attr["bb"])
    return right - left, top - bottom


def _copy(item: _Placed, picture: Drawing) -> None:
    for node in item.drawing.nodes():
        attributes = {key: node.attr[key] for key in _NODE_KEYS if node.attr[key]}
        # An HTML-like label that is read back has lost its outer brackets.
        if attributes["label"].startswith("<TABLE"):
            attributes["label"] = f"<{attributes['label']}>"
        picture.add_node(node, pos=_moved(node.attr["pos"], item), **attributes)
    for edge in item.drawing.edges():
        attributes = {"label": edge.attr["label"]} if edge.attr["label"] else {}
        if edge.attr["lp"]:
            attributes["lp"] = _moved(edge.attr["lp"], item)
        picture.add_edge(*edge, pos=_moved(edge.attr["pos"], item), **attributes)
    _copy_frames(item, item.drawing, picture)


def _copy_frames(item: _Placed, source: Drawing, target: Drawing) -> None:
    for frame in source.subgraphs():
        attributes = {key: frame.graph_attr[key] for key in _FRAME_KEYS if frame.graph_attr[key]}
        left, bottom, right, top = _numbers(frame.graph_attr["bb"])
        corners = (left + item.x, bottom + item.y, right + item.x, top + item.y)
        copy = target.add_subgraph(
            list(frame.nodes()),
            name=frame.get_name(),
            bb=",".join(f"{corner:.2f}" for corner in corners),
            lp=_moved(frame.graph_attr["lp"], item),
            **attributes,
        )
        _copy_frames(item, frame, copy)


def _moved(positions: str, item: _Placed) -> str:
    """A `pos` or `lp` attribute, shifted: points `x,y`, splines `e,x,y x,y ...`."""
    words = []
    for word in positions.replace("\\\n", "").split():
        head, _, rest = word.rpartition(",")
        mark, comma, x = head.rpartition(",")
        words.append(f"{mark}{comma}{float(x) + item.x:.2f},{float(rest) + item.y:.2f}")
    return " ".join(words)


def _connect(report: Report, placed: Sequence[_Placed], picture: Drawing) -> None:
    """Lines from a column to the next one; what comes from further away is named by its pill."""
    for number, (left, right) in enumerate(pairwise(placed), 1):
        if left.y > right.y + _size(right.drawing)[1]:
            continue  # the next row
        members = {report.subgraphs[index].name: index for index in left.column.subgraphs}
        for tensor in entries(report, right.column):
            maker = report.producer.get(tensor.name)
            if maker is None or maker.name not in members:
                continue
            source = kernel_node(members[maker.name])
            target = entry_node(number, tensor)
            gutter = left.x + _size(left.drawing)[0] + _GUTTER / 2
            path = _path(picture.get_node(source).attr, picture.get_node(target).attr, gutter)
            picture.add_edge(source, target, pos=path, **{"class": "flow between"})


def _path(source: Mapping[str, str], target: Mapping[str, str], gutter: float) -> str:
    """A spline out of the right side of a box, up or down the gutter, into the left of another."""
    x0, y0 = _numbers(source["pos"])
    x0 += float(source["width"]) * _POINTS_PER_INCH / 2
    x3, y3 = _numbers(target["pos"])
    x3 -= float(target["width"]) * _POINTS_PER_INCH / 2
    middle = (y0 + y3) / 2
    head = x3 - 6
    points = [
        (x0, y0), (gutter, y0), (gutter, y0), (gutter, middle),
        (gutter, y3), (gutter, y3), (head, y3),
    ]  # fmt: skip
    return f"e,{x3:.2f},{y3:.2f} " + " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def _add_heading(report: Report, picture: Drawing, title: str, top: float) -> None:
    vendor = len(report.vendor_operators)
    summary = (
        f"{report.basic_operators} basic operators, {report.kernels} kernels, "
        f"{report.launches} launches, {vendor} vendor operator{'' if vendor == 1 else 's'}"
    )
    used = dict.fromkeys(subgraph.kind for subgraph in report.subgraphs)
    legend = "".join(
        f'<TD BGCOLOR="{KINDS[kind].header}"><FONT COLOR="#ffffff">{KINDS[kind].label}</FONT></TD>'
        for kind in KINDS
        if kind in used
    )
    legend += "<TD>dashed pill: made elsewhere</TD>"
    names = _names(report)
    label = (
        '<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="6"><TR><TD ALIGN="LEFT" COLSPAN="7">'
        f'<FONT POINT-SIZE="20" COLOR="{INK}"><B>{escape(title)}</B></FONT>   '
        f'<FONT COLOR="{MUTED}">{summary}</FONT></TD></TR>'
        f"<TR>{legend}<TD></TD></TR>"
        + (f'<TR><TD ALIGN="LEFT" BALIGN="LEFT" COLSPAN="7">{names}</TD></TR>' if names else "")
        + "</TABLE>>"
    )
    heading = pgv.AGraph(directed=True)
    looks = {"shape": "plain", "label": label, "fontname": FONT, "fontsize": "10"}
    heading.add_node("heading", **looks)
    heading.layout(prog="dot")
    width, height = _size(heading)
    picture.add_node(
        "heading",
        **looks,
        pos=f"{width / 2:.2f},{top + height / 2:.2f}",
        **{"class": "heading"},
    )


def _names(report: Report) -> str:
    """What the names of long dims stand for, as many to a line as fit."""
    lines: list[str] = []
    for name, meaning in report.aliases:
        entry = f"{name} = {meaning}"
        if lines and len(lines[-1]) + len(entry) < _LEGEND_WIDTH:
            lines[-1] += f";   {entry}"
        else:
            lines.append(entry)
    return '<BR ALIGN="LEFT"/>'.join(map(escape, lines))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.rstrip("!").split(","))
