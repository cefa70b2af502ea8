"""Draws the fused subgraphs of a model into a file; the suffix picks the format.

.dot .svg .png .pdf are rendered by graphviz (pygraphviz brings it along); .html is a page that holds
the SVG, can be moved, zoomed and searched, and needs no network.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from dvm_graph.errors import InputError, output_path, writing
from dvm_graph.report.composition import make_picture
from dvm_graph.report.fonts import quiet_fonts
from dvm_graph.report.page import make_page
from dvm_graph.report.report import Report
from dvm_graph.report.times import Times

FORMATS = (".html", ".svg", ".png", ".pdf", ".dot")


def picture_path(path: str | PathLike[str]) -> Path:
    """Where a picture is to be written: looked at before the work that it shows.

    Raises:
        InputError: the suffix is of no known format, or the folder is missing.
    """
    target = output_path(path)
    if target.suffix.lower() not in FORMATS:
        raise InputError(
            f"cannot draw to {target.name!r}: the suffix has to be one of {', '.join(FORMATS)}"
        )
    return target


def draw_report(
    report: Report, path: str | PathLike[str], title: str, times: Times | None = None
) -> None:
    """Draws a report; `title` is what the picture is called, `times` colour it.

    Raises:
        InputError: the suffix is of no known format, or the folder is missing.
    """
    target = picture_path(path)
    suffix = target.suffix.lower()
    with quiet_fonts():
        picture = make_picture(report, title, times)
        if suffix == ".html":
            svg = picture.draw(format="svg", prog="nop2").decode()
            content = make_page(report, svg, title, times).encode()
        else:
            picture.graph_attr["bgcolor"] = "white"
            content = picture.draw(format=suffix[1:], prog="nop2")
    with writing(target):
        target.write_bytes(content)
