"""What a simulation is written as: text, CSV, traces and pictures."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

import dvm_graph
from dvm_graph.cli.group import main
from dvm_graph.errors import InputError
from dvm_graph.simulation import Simulation

BERT = Path(__file__).parents[2] / "models" / "tiny" / "bert.onnx"


@pytest.fixture(scope="module")
def found() -> Simulation:
    return dvm_graph.optimize(BERT).simulate({"batch": 2, "seq": 33}, trace=300)


def test_text_names_what_a_reader_asks_for(found: Simulation) -> None:
    text = str(found)
    for word in ("ascend910b2", "TFLOP/s", "GB/s", "decode", "What units wait for"):
        assert word in text


def test_products_that_the_cube_unit_lacks_are_named() -> None:
    path = Path(__file__).parents[2] / "models" / "tiny" / "squeezenet.onnx"
    found = dvm_graph.optimize(path).simulate({"batch": 1, "height": 32, "width": 32})
    lacking = [stage for stage in found.stages if stage.lacking]
    reasons = {reason for stage in lacking for reason in stage.lacking.values()}
    assert reasons == {"patches of an image"}
    assert f"lacks patches of an image: {len(lacking)} stages" in str(found)
    assert all(stage.kind != "vector" for stage in lacking)
    report = dvm_graph.optimize(path, device="ascend910b2").report()
    named = {line.split(": ")[0] for line in report.lacking}
    assert {kernel for stage in lacking for kernel in stage.lacking} <= named
    assert "patches of an image" in str(report)
    assert not dvm_graph.optimize(path).report().lacking
    assert not dvm_graph.optimize(BERT, device="ascend910b2").report().lacking


def test_csv_has_the_profilers_columns(found: Simulation, tmp_path: Path) -> None:
    found.write_csv(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    stages = list(found.stages)
    assert len(rows) == len(stages)
    for row, stage in zip(rows, stages, strict=True):
        assert row["Op Name"] == stage.name
        assert float(row["Task Duration(us)"]) == pytest.approx(stage.seconds * 1e6, abs=1e-3)
        if stage.kind == "vector":
            assert row["Task Type"] == "AI_VECTOR_CORE" and row["aic_time(us)"] == ""
            assert float(row["aiv_vec_ratio"]) == pytest.approx(
                stage.units["vector"].busy, abs=1e-4
            )
        else:
            assert float(row["aic_total_cycles"]) > 0
    assert "aiv_gm_to_ub_bw(GB/s)" in rows[0] and "aiv_mte2_ratio" in rows[0]


def test_traces_keep_to_the_format(found: Simulation, tmp_path: Path) -> None:
    found.write_trace(tmp_path / "t.json")
    document = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    events = document["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert len({tid for _, tid in lanes}) == len(lanes)
    assert {"host", "compiler", "device"} <= set(lanes.values())
    assert any(name.startswith("core 0 ") for name in lanes.values())
    last: dict[tuple[int, int], float] = {}
    for event in (e for e in events if e["ph"] == "X"):
        lane = event["pid"], event["tid"]
        assert lane in lanes and event["dur"] >= 0
        assert event["ts"] >= last.get(lane, 0.0) - 1e-6, "spans of a lane overlap"
        last[lane] = event["ts"] + event["dur"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts and starts.keys() == ends.keys()
    assert all(starts[i]["ts"] <= ends[i]["ts"] + 1e-9 for i in starts)
    assert all((e["pid"], e["tid"]) in lanes for e in (*starts.values(), *ends.values()))


def test_pictures_are_whole(found: Simulation, tmp_path: Path) -> None:
    found.draw(tmp_path / "p.svg")
    root = ET.parse(tmp_path / "p.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}circle")) == len(list(found.stages))
    width = float(root.attrib["width"])
    for box in root.iter(f"{space}rect"):
        assert float(box.attrib.get("x", 0)) >= 0
        assert float(box.attrib.get("x", 0)) + float(box.attrib["width"]) <= width + 1
    with pytest.raises(InputError, match=r"suffix has to be \.svg"):
        found.draw(tmp_path / "p.bmp")


def test_the_command(tmp_path: Path) -> None:
    arguments = ["simulate", str(BERT), "--dim", "batch=1", "--dim", "seq=8"]
    files = [tmp_path / name for name in ("a.csv", "a.json", "a.svg")]
    options = zip(("--csv", "--trace", "--picture"), map(str, files), strict=True)
    result = CliRunner().invoke(main, [*arguments, *(word for pair in options for word in pair)])
    assert result.exit_code == 0, result.output
    assert "ascend910b2" in result.output and all(file.stat().st_size for file in files)
    result = CliRunner().invoke(main, [*arguments, "--json", "--npu", "ascend910b3"])
    assert json.loads(result.output)["part"] == "ascend910b3"
    result = CliRunner().invoke(main, [*arguments, "--npu", "abacus"])
    assert result.exit_code == 2 and "has to be a spec file" in result.output
