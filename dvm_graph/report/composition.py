"""The whole picture: columns side by side, lines between neighbours, a title and a legend.

The columns come laid out; here they only move. The result holds all positions, so graphviz's `nop2`
renders it as it is, in every format, and a written .dot file can be rendered again with `neato -n2`.

Units are points; graphviz's y axis points up.
"""

from __future__ import annotations

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
from dvm_graph.report.times import Times

GUTTER = 70.0
"""Between columns of a row."""
ROW_GAP = 60.0
_WANTED_ASPECT = 1.8
_MOST_ROWS = 64
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


def make_picture(report: Report, title: str, times: Times | None = None) -> Drawing:
    """The drawing of a report, with all positions; coloured by time where there are times."""
    columns = arrange(report.subgraphs)
    drawings = [make_column(report, column, n, times) for n, column in enumerate(columns)]
    placed, top = _place(columns, drawings)
    picture = pgv.AGraph(directed=True, strict=False, name="dvm_graph")
    picture.graph_attr.update(GRAPH_STYLE)
    picture.edge_attr.update(EDGE_STYLE)
    for number, item in enumerate(placed):
        _copy(item, picture, block_class(number))
    _connect(report, placed, picture)
    _add_heading(report, picture, title, top, times)
    return picture


def _place(columns: Sequence[Column], drawings: Sequence[Drawing]) -> tuple[list[_Placed], float]:
    """Positions of the columns, row by row, and the height of all."""
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
            x += width + GUTTER
        y += height + ROW_GAP
    placed.sort(key=lambda item: item.column.subgraphs)
    return placed, y


def _rows(sizes: Sequence[tuple[float, float]]) -> list[list[int]]:
    """Splits the columns, in order, into rows of which the picture fits a screen best."""
    widths = [width + GUTTER for width, _ in sizes]

    def scale(rows: list[list[int]]) -> float:
        height = sum(max(sizes[index][1] for index in row) + ROW_GAP for row in rows)
        width = max(sum(widths[index] for index in row) for row in rows)
        return max(width / _WANTED_ASPECT, height)

    counts = range(1, min(len(widths), _MOST_ROWS) + 1)
    return min((_in_rows(widths, count) for count in counts), key=scale, default=[])


def _in_rows(widths: Sequence[float], count: int) -> list[list[int]]:
    """The columns in at most so many rows, the widest of which is as narrow as can be (to one part in
    a thousand).
    """
    low, high = max(widths), sum(widths)
    while high - low > high / 1000:
        middle = (low + high) / 2
        if len(_filled(widths, middle)) > count:
            low = middle
        else:
            high = middle
    return _filled(widths, high)


def _filled(widths: Sequence[float], limit: float) -> list[list[int]]:
    """Rows that hold as many columns as fit into the limit."""
    rows: list[list[int]] = []
    room = 0.0
    for index, width in enumerate(widths):
        if width > room:
            rows.append([])
            room = limit
        rows[-1].append(index)
        room -= width
    return rows


def _size(drawing: Drawing) -> tuple[float, float]:
    left, bottom, right, top = _numbers(drawing.graph_attr["bb"])
    return right - left, top - bottom


def block_class(number: int) -> str:
    """The class in SVG of everything that is in a column."""
    return f"at{number}"


def _copy(item: _Placed, picture: Drawing, block: str) -> None:
    """`block` is added to the classes of all."""
    for node in item.drawing.nodes():
        attributes = {key: node.attr[key] for key in _NODE_KEYS if node.attr[key]}
        attributes["class"] += f" {block}"
        # An HTML-like label that is read back has lost its outer brackets.
        if attributes["label"].startswith("<TABLE"):
            attributes["label"] = f"<{attributes['label']}>"
        picture.add_node(node, pos=_moved(node.attr["pos"], item), **attributes)
    for edge in item.drawing.edges():
        attributes = {"label": edge.attr["label"]} if edge.attr["label"] else {}
        if edge.attr["lp"]:
            attributes["lp"] = _moved(edge.attr["lp"], item)
        attributes["class"] = f"{EDGE_STYLE['class']} {block}"
        picture.add_edge(*edge, pos=_moved(edge.attr["pos"], item), **attributes)
    _copy_frames(item, item.drawing, picture, block)


def _copy_frames(item: _Placed, source: Drawing, target: Drawing, block: str) -> None:
    for frame in source.subgraphs():
        attributes = {key: frame.graph_attr[key] for key in _FRAME_KEYS if frame.graph_attr[key]}
        attributes["class"] += f" {block}"
        left, bottom, right, top = _numbers(frame.graph_attr["bb"])
        corners = (left + item.x, bottom + item.y, right + item.x, top + item.y)
        copy = target.add_subgraph(
            list(frame.nodes()),
            name=frame.get_name(),
            bb=",".join(f"{corner:.2f}" for corner in corners),
            lp=_moved(frame.graph_attr["lp"], item),
            **attributes,
        )
        _copy_frames(item, frame, copy, block)


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
            gutter = left.x + _size(left.drawing)[0] + GUTTER / 2
            path = _path(picture.get_node(source).attr, picture.get_node(target).attr, gutter)
            ends = f"from{number - 1} to{number}"
            picture.add_edge(source, target, pos=path, **{"class": f"flow between {ends}"})


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


def _add_heading(
    report: Report, picture: Drawing, title: str, top: float, times: Times | None
) -> None:
    vendor = len(report.vendor_operators)
    summary = (
        f"{report.basic_operators} basic operators, {report.kernels} kernels, "
        f"{report.launches} launches, {vendor} vendor operator{'' if vendor == 1 else 's'}"
    )
    used = dict.fromkeys(subgraph.kind for subgraph in report.subgraphs)
    kinds = "".join(
        f'<TD BGCOLOR="{KINDS[kind].header}"><FONT COLOR="#ffffff">{KINDS[kind].label}</FONT></TD>'
        for kind in KINDS
        if kind in used
    )
    lines = [
        f'<TD ALIGN="LEFT"><FONT POINT-SIZE="20"><B>{escape(title)}</B></FONT>   '
        f'<FONT COLOR="{MUTED}">{summary}</FONT></TD>',
        f'{kinds}<TD ALIGN="LEFT">dashed pill: made elsewhere</TD>',
        _heat(times) if times else "",
        f'<TD ALIGN="LEFT" BALIGN="LEFT">{names}</TD>' if (names := _names(report)) else "",
    ]
    tables = "".join(
        '<TR><TD ALIGN="LEFT"><TABLE BORDER="0" CELLBORDER="0" CELLSPACING="6">'
        f"<TR>{line}</TR></TABLE></TD></TR>"
        for line in lines
        if line
    )
    label = f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0">{tables}</TABLE>>'
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


def _heat(times: Times) -> str:
    """What the colours of boxes mean."""
    colours = "".join(
        f'<TD BGCOLOR="{colour}" BORDER="1"><FONT COLOR="{INK}">{text}</FONT></TD>'
        for colour, text in times.legend()
    )
    return f"{colours}<TD>of a run of {times.seconds * 1e3:.3f} ms, the time of all its cores</TD>"


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
