"""The labels of the picture: one box for each fused subgraph, as graphviz's HTML-like text.

A box says what a reader asks first: name and kind, the operators that compute, where they come from
in the model, and the verdict with its reason. All else is in the details of the page.
"""

from __future__ import annotations

import re
import textwrap
from html import escape

from dvm_graph.report.palette import INK, KINDS, MUTED
from dvm_graph.report.report import Subgraph, Tensor
from dvm_graph.report.text import count_operators, format_bytes

_TIMES = "\N{MULTIPLICATION SIGN}"
_WIDTH = 34
_OPERATOR_LINES = 4
_ORIGIN_LINES = 2
_REASON_LINES = 2
_EXPORTER_PREFIX = re.compile(r"^node_")


def box_label(subgraph: Subgraph, body: str = "", time: str = "") -> str:
    """An HTML-like label; `body` is the colour of the box, its kind's if empty, `time` what it takes."""
    colours = KINDS[subgraph.kind]
    muted, accent = (INK, INK) if body else (MUTED, colours.header)
    rows = [
        f'<TR><TD BGCOLOR="{colours.header}" ALIGN="LEFT" CELLPADDING="4">'
        f'<FONT COLOR="#ffffff" POINT-SIZE="11"><B>{escape(_clip(subgraph.name, 30))}</B></FONT>'
        f'<FONT COLOR="#ffffff" POINT-SIZE="9">   {subgraph.kind.value}</FONT></TD></TR>',
        _row(_lines(_operators(subgraph), _OPERATOR_LINES), INK, 10),
    ]
    if time:
        rows.insert(1, _row([time], INK, 10))
    origin = ", ".join(_short_names(subgraph))
    if origin:
        rows.append(_row(_lines(origin, _ORIGIN_LINES), muted, 8))
    rows.append(_row(_lines(_verdict(subgraph), _REASON_LINES), accent, 8))
    if subgraph.constant_bytes:
        size = format_bytes(subgraph.constant_bytes)
        count = len(subgraph.constants)
        rows.append(_row([f"{count} constant{'s' if count > 1 else ''}, {size}"], muted, 7))
    table = (
        f'<TABLE BORDER="1" COLOR="{colours.header}" CELLBORDER="0" CELLSPACING="0" '
        f'CELLPADDING="2" BGCOLOR="{body or colours.body}">{"".join(rows)}</TABLE>'
    )
    return f"<{table}>"


def shape_label(tensors: list[Tensor]) -> str:
    """What an edge says: the type and symbolic shape of the values it carries.

    The blanks leave room for fonts that stand in for Helvetica and are wider.
    """
    lines = [f"  {tensor}  " for tensor in tensors[:2]]
    if len(tensors) > 2:
        lines.append(f"and {len(tensors) - 2} more")
    return "\n".join(lines)


def _row(lines: list[str], colour: str, size: int) -> str:
    text = "".join(f'{escape(line)}<BR ALIGN="LEFT"/>' for line in lines)
    return (
        f'<TR><TD ALIGN="LEFT" BALIGN="LEFT"><FONT COLOR="{colour}" POINT-SIZE="{size}">'
        f"{text}</FONT></TD></TR>"
    )


def _operators(subgraph: Subgraph) -> str:
    computing = tuple(operator.op for operator in subgraph.operators if not operator.is_view)
    views = tuple(operator.op for operator in subgraph.operators if operator.is_view)
    text = ", ".join(count_operators(computing))
    if views:
        text += f"{'; ' if text else ''}views: {', '.join(count_operators(views))}"
    return text.replace(" x", _TIMES)


def _short_names(subgraph: Subgraph) -> list[str]:
    return [_EXPORTER_PREFIX.sub("", name).rsplit("/", 1)[-1] for name in subgraph.onnx_nodes]


def _verdict(subgraph: Subgraph) -> str:
    verdict = f"{subgraph.verdict.value}: " if subgraph.verdict else ""
    return verdict + subgraph.reason


def _lines(text: str, limit: int) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, break_on_hyphens=False) or [""]
    if len(lines) > limit:
        lines = [*lines[: limit - 1], _clip(" ".join(lines[limit - 1 :]), _WIDTH)]
    return lines


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
