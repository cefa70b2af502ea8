"""Names for long dims: short texts that mean what the dims mean."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import dvm_graph
from dvm_graph.symbolic import Dim, Symbols, dims
from dvm_graph.symbolic.aliases import LONGEST, Aliases
from models import tiny_path

SYMBOLS = Symbols()
H, D0 = SYMBOLS.get("height"), SYMBOLS.get("d0")
LONG = SYMBOLS.get("a.name.that.an.exporter.made.up")
NESTED = dims.maximum(
    dims.floordiv(dims.add(LONG, 15), 48), dims.minimum(1, dims.floordiv(dims.add(H, 15), 16))
)


def test_short_dims_stay() -> None:
    aliases = Aliases(())
    assert aliases.extent(7) == 7
    assert aliases.extent(dims.floordiv(dims.add(H, 1), 2)) == "(height + 1)//2"
    assert aliases.extent(dims.mul(2, dims.floordiv(H, 2))) == "2*(height//2)"
    assert aliases.meanings == {}


def test_no_name_is_taken_twice() -> None:
    aliases = Aliases(("height", "d0"))
    assert aliases.extent(D0) == "d0"
    assert aliases.extent(LONG) == "d1"
    assert aliases.extent(LONG) == "d1"


def test_sums_are_not_mistaken_for_parts_of_others() -> None:
    aliases = Aliases(())
    aliases.extent(dims.add(LONG, 1))
    assert aliases.extent(dims.add(dims.mul(3, LONG), 1)) == "3*d0 + 1"


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_legends_give_back_the_dim_and_have_short_lines(depth: int) -> None:
    dim: Dim = NESTED
    for step in range(depth):
        dim = dims.minimum(dims.add(dim, step), dims.floordiv(dims.mul(dim, H), 7 + step))
    aliases = Aliases(("height",))
    text = str(aliases.extent(dim))
    assert len(text) <= LONGEST
    lines = dict(aliases.meanings)
    assert max(map(len, lines.values())) <= 4 * LONGEST
    for name in reversed(lines):  # each builds on those before it
        text = re.sub(rf"\b{name}\b", lambda _, name=name: f"({lines[name]})", text)
    meant = text.replace(str(LONG), "long")
    for height, long in ((0, 0), (1, 0), (5, 90), (1000, 777)):
        functions = {"Max": max, "Min": min, "height": height, "long": long}
        assert eval(meant, {}, functions) == dims.substitute(dim, {H: height, LONG: long})


def test_reports_say_what_names_stand_for() -> None:
    report = dvm_graph.optimize(tiny_path("unet")).report()
    shown = {
        str(dim)
        for subgraph in report.subgraphs
        for tensor in (*subgraph.inputs, *subgraph.outputs)
        for dim in tensor.shape or ()
    }
    assert report.aliases
    assert max(map(len, shown)) <= LONGEST
    text = str(report)
    for name, meaning in report.aliases:
        assert f"{name} = {meaning}" in text
        assert f"{name} = {meaning}" in report._repr_html_()
    assert report.to_dict()["aliases"] == [list(pair) for pair in report.aliases]


def test_pictures_have_a_legend_of_names(tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path("unet"))
    model.visualize(tmp_path / "unet.svg")
    picture = "".join(ElementTree.parse(tmp_path / "unet.svg").getroot().itertext())
    for name, meaning in model.report().aliases:
        assert f"{name} = {meaning}" in picture
