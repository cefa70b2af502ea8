"""Pictures: every kernel is drawn where its column is, in every format, fast, and safely."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.feeds import random_feeds
from dvm_graph.report import FORMATS, SubgraphKind, draw_report
from dvm_graph.report.composition import make_picture
from dvm_graph.report.fonts import quiet_fonts
from dvm_graph.report.scopes import arrange, layer_of, scope_of
from dvm_graph.report.times import HEAT, Times
from models import tiny_path
from tests.report.samples import transformer

SVG = "{http://www.w3.org/2000/svg}"
MAGIC = {".html": b"<!DOCTYPE html>", ".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF", ".dot": b"digraph"}  # fmt: skip


@pytest.mark.parametrize("suffix", FORMATS)
def test_formats(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"bert{suffix}"
    dvm_graph.optimize(tiny_path("bert")).visualize(path)
    assert path.read_bytes().startswith(MAGIC[suffix])


def test_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(dvm_graph.InputError, match=r"\.html"):
        draw_report(transformer(1), tmp_path / "picture.docx", "m")


def test_every_kernel_is_drawn_once(tmp_path: Path) -> None:
    report = transformer(3)
    draw_report(report, tmp_path / "p.svg", "m")
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    boxes = [g for g in root.iter(f"{SVG}g") if g.get("class", "").split()[:1] == ["node"]]
    kernels = [box for box in boxes if "kernel" in box.get("class", "")]
    assert {box.get("id") for box in kernels} == {f"k{i}" for i in range(len(report.subgraphs))}
    assert len(kernels) == len(report.subgraphs)
    for box in kernels:
        name = report.subgraphs[int(box.get("id", "")[1:])].name
        assert name in "".join(box.itertext())


def test_columns_do_not_overlap() -> None:
    picture = make_picture(transformer(12), "m")
    boxes = []
    for frame in picture.subgraphs():
        boxes.append([float(x) for x in frame.graph_attr["bb"].split(",")])
    assert len(boxes) == 14
    for i, (left, bottom, right, top) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = right < other[0] or other[2] < left or top < other[1] or other[3] < bottom
            assert apart


def test_stacked_kernels_are_framed(tmp_path: Path) -> None:
    draw_report(transformer(1), tmp_path / "p.svg", "m")
    text = (tmp_path / "p.svg").read_text()
    assert "launch 0, stages" in text
    assert "3 kernels in parallel" in text


def test_edges_carry_symbolic_shapes(tmp_path: Path) -> None:
    draw_report(transformer(1), tmp_path / "p.svg", "m")
    assert "f32[batch, 12, seq, seq]" in (tmp_path / "p.svg").read_text()


def test_page_loads_nothing_and_escapes_names(tmp_path: Path) -> None:
    report = transformer(1)
    evil = '</script><img src=x onerror="alert(1)">'
    first = replace(report.subgraphs[0], name=evil)
    draw_report(
        replace(report, subgraphs=(first, *report.subgraphs[1:])), tmp_path / "p.html", evil
    )
    page = (tmp_path / "p.html").read_text()
    assert "<img" not in page
    assert not re.findall(r'(?:src|href)\s*=\s*"(?:https?:)?//', page)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert data is not None
    assert json.loads(data[1])["subgraphs"]["k0"]["name"] == evil


def test_names_that_look_like_markup(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = "<x>"
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n] x) => (float[n] y) { y = Exp(x) }'
    )
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    dvm_graph.optimize(model).visualize(tmp_path / "p.svg")
    texts = [text.text for text in ElementTree.parse(tmp_path / "p.svg").iter(f"{SVG}text")]
    assert name in texts
    assert "HTML" not in capfd.readouterr().err  # graphviz found none to complain about


def test_layers_become_columns_in_running_order() -> None:
    titles = [column.title for column in arrange(transformer(3).subgraphs)]
    assert titles == ["embeddings", *(f"encoder.layer.{i}" for i in range(3)), "pooler"]


def test_scopes() -> None:
    torch = {"pkg.torch.onnx.name_scopes": "['', 'encoder', 'encoder.layer.0', 'add']"}
    assert scope_of(torch, ["node_add"]) == "encoder.layer.0"
    assert scope_of({}, ["/encoder/layer.0/MatMul"]) == "encoder.layer.0"
    assert scope_of({"pkg.torch.onnx.name_scopes": "not a list"}, ["x"]) == ""
    assert layer_of("encoder.layer.11.output") == "encoder.layer.11"
    assert layer_of("embeddings") is None


def test_fonts_are_no_matter_for_stderr(tmp_path: Path) -> None:
    code = (
        "import os, sys; from dvm_graph.report import draw_report\n"
        "from tests.report.samples import transformer\n"
        "for name in 'ab': draw_report(transformer(1), os.path.join(sys.argv[1], name + '.png'), 'm')\n"
        "os.write(2, b'heard')"
    )
    nowhere = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env=os.environ | nowhere | {"FONTCONFIG_FILE": str(tmp_path / "missing.conf")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "heard"
    assert (tmp_path / "b.png").read_bytes().startswith(MAGIC[".png"])


def test_other_words_on_stderr_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), quiet_fonts():
        os.write(2, b"one\nFontconfig error: no writable cache\ntwo\n")
        raise ZeroDivisionError
    assert capfd.readouterr().err == "one\ntwo\n"


def bounds_of(picture: Any) -> list[list[float]]:
    return [[float(x) for x in frame.graph_attr["bb"].split(",")] for frame in picture.subgraphs()]


@pytest.mark.parametrize("layers", [1, 4, 12, 40])
def test_columns_fill_rows_that_fit_a_screen(layers: int) -> None:
    boxes = bounds_of(make_picture(transformer(layers), "m"))
    width, top = max(box[2] for box in boxes), max(box[3] for box in boxes)
    rows: dict[float, list[list[float]]] = {}
    for box in boxes:
        rows.setdefault(box[3], []).append(box)
    assert [box for _, row in sorted(rows.items(), reverse=True) for box in row] == boxes
    if len(rows) > 1:
        one_row = sum(box[2] - box[0] for box in boxes)
        assert width < one_row / 2 + max(box[2] - box[0] for box in boxes)
        assert 0.5 < width / top < 4


def test_boxes_have_colours_of_time(tmp_path: Path) -> None:
    report = transformer(2)
    names = [subgraph.name for subgraph in report.subgraphs]
    shares = {names[3]: 0.5, names[4]: 0.125, "a fallback": 0.25}
    timed = [replace(s, timed_as=(s.name, *["a fallback"] * (s.name == names[5]))) for s in report.subgraphs]  # fmt: skip
    report = replace(report, subgraphs=tuple(timed))
    times = Times(report, 0.004, shares)
    draw_report(report, tmp_path / "p.svg", "m", times)
    root = ElementTree.parse(tmp_path / "p.svg").getroot()
    boxes = {g.get("id"): g for g in root.iter(f"{SVG}g") if "kernel" in g.get("class", "")}

    def colours(name: str) -> set[str | None]:
        return {polygon.get("fill") for polygon in boxes[name].iter(f"{SVG}polygon")}

    assert HEAT[4] in colours("k3") and "50.0 %, 2.000 ms" in "".join(boxes["k3"].itertext())
    assert HEAT[1] in colours("k4") and HEAT[2] in colours("k5")
    assert "25.0 %, 1.000 ms" in "".join(boxes["k5"].itertext())
    assert {HEAT[0], "white"} & colours("k6")
    text = "".join(root.itertext())
    assert "to 10.0 %" in text and "to 50.0 %" in text and "4.000 ms" in text
    assert sum(times.share(index) for index in range(len(names))) == pytest.approx(0.875)


def test_vendor_calls_have_a_colour_too() -> None:
    model = dvm_graph.optimize(tiny_path("nonzero"), vendor_nodes={"node_NonZero_1"})
    report = model.report()
    x = np.ones((3, 5), np.float32)
    profile = model.profile({"x": x}, repeats=1)
    times = Times(report, profile.typical.seconds, profile.shares())
    (vendor,) = [i for i, s in enumerate(report.subgraphs) if s.kind is SubgraphKind.VENDOR]
    assert times.share(vendor) == pytest.approx(profile.typical.vendor / profile.typical.seconds)
    total = sum(times.share(index) for index in range(len(report.subgraphs)))
    assert total == pytest.approx(sum(profile.shares().values())) and total <= 1


@pytest.mark.parametrize("options", [{}, {"fallbacks": "always"}, {"fuse": False}])
@pytest.mark.parametrize("name", ["gpt2", "nonzero", "if_else_add"])
def test_boxes_add_up_to_the_profile(name: str, options: dict[str, Any]) -> None:
    model = dvm_graph.optimize(tiny_path(name), **options)
    profile = model.profile(random_feeds(model, {}, 0), repeats=1)
    report = model.report()
    times = Times(report, profile.typical.seconds, profile.shares())
    total = sum(times.share(index) for index in range(len(report.subgraphs)))
    assert total == pytest.approx(sum(profile.shares().values()))


def test_profiles_of_something_else_are_refused(tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path("nonzero"))
    other = dvm_graph.optimize(tiny_path("mmoe"))
    strange: list[Any] = [other.profile(random_feeds(other, {}, 0), repeats=1), "a profile", 3]
    for profile in strange:
        with pytest.raises(dvm_graph.InputError, match="profile"):
            model.visualize(tmp_path / "p.svg", profile=profile)


def test_pages_fold_layers_that_are_alike(tmp_path: Path) -> None:
    report = transformer(3)
    draw_report(report, tmp_path / "p.html", "m", Times(report, 1.0, {}))
    page = (tmp_path / "p.html").read_text()
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    likes = [(block["title"], block["like"]) for block in data["blocks"]]
    layers = [f"encoder.layer.{i}" for i in range(3)]
    assert likes[1:4] == [(layers[0], ""), (layers[1], layers[0]), (layers[2], layers[0])]
    assert sum(block["kernels"] for block in data["blocks"]) == len(report.subgraphs)
    for number, block in enumerate(data["blocks"]):
        assert block["class"] == f"at{number}"
        marked = re.findall(rf'<g id="(k\d+)" class="[^"]*\bat{number}\b', page)
        assert len(marked) == block["kernels"]
