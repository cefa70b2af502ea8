"""The command line, on real models: answers, exit codes, and errors without tracebacks."""

from __future__ import annotations

import importlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import dvm_graph
from dvm_graph.cli import main
from dvm_graph.cli.arrays import load_arrays, save_arrays
from dvm_graph.pipeline import STAGES
from models import tiny_path

BERT = str(tiny_path("bert"))
COMMANDS = ("run", "compare", "check", "bench", "report", "visualize", "dump", "disasm", "save")


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*arguments: str) -> Any:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_run_prints_and_saves_what_onnxruntime_gives(tmp_path: Path) -> None:
    feeds, out = tmp_path / "feeds.npz", tmp_path / "out.npz"
    arrays = {name: np.ones((3, 7), np.int64) for name in ("input_ids", "attention_mask")}
    np.savez(feeds, **arrays)
    data = answer("run", BERT, "--feeds", str(feeds), "--output", str(out), "--json")
    names = ["last_hidden_state", "pooler_output"]
    assert [output["name"] for output in data["outputs"]] == names
    assert data["statistics"]["kernels_compiled"] > 0
    session = onnxruntime.InferenceSession(BERT)
    with np.load(out) as saved:
        for name, expected in zip(names, session.run(None, arrays), strict=True):
            np.testing.assert_allclose(saved[name], expected, rtol=1e-3, atol=1e-4)


def test_labels_and_maps_are_printed_and_labels_saved(tmp_path: Path) -> None:
    path, out = tmp_path / "labels.onnx", tmp_path / "out.npz"
    proto = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
        g (float[n, 2] x) => (string[n] label, seq(map(string, float)) maps)
        {
            label, scores = ai.onnx.ml.LinearClassifier<coefficients: floats = [1.0, 2.0, -1.0, 0.5],
                intercepts: floats = [0.5, 0.25], classlabels_strings: strings = ["a", "long"]>(x)
            maps = ai.onnx.ml.ZipMap<classlabels_strings: strings = ["a", "long"]>(scores)
        }"""
    )
    onnx.save(proto, path)
    found = answer("run", str(path), "--dim", "n=3", "--json")["outputs"]
    assert [(output["dtype"], output["shape"]) for output in found] == [
        ("object", [3]),
        ("list", [3]),
    ]
    refused = call("run", str(path), "--output", str(out))
    assert refused.exit_code == 2
    assert "'maps' is no array" in refused.stderr
    assert not out.exists()
    del proto.graph.output[1]
    onnx.save(proto, path)
    assert call("run", str(path), "--output", str(out)).exit_code == 0
    assert set(load_arrays(out)["label"]) <= {"a", "long"}


@pytest.mark.parametrize("name", ["file", "allow_pickle", "a/b"])
def test_results_of_any_name_are_saved(name: str, tmp_path: Path) -> None:
    save_arrays(tmp_path / "out.npz", {name: np.arange(3)})
    np.testing.assert_array_equal(load_arrays(tmp_path / "out.npz")[name], np.arange(3))


def test_run_with_random_inputs() -> None:
    result = call("run", BERT, "--dim", "batch=3", "--dim", "seq=5")
    assert result.exit_code == 0
    assert "[3, 5, 64]" in result.stdout
    assert result.stderr == ""


def test_dims_not_given_are_2_and_noted() -> None:
    result = call("run", BERT, "--dim", "seq=5")
    assert "[2, 5, 64]" in result.stdout
    assert "no --dim for batch; taking batch=2" in result.stderr


def test_compare_sweeps_all_combinations() -> None:
    points = answer("compare", BERT, "--dim", "batch=1,3", "--dim", "seq=1:8:x2", "--json")
    seen = [(point["dims"]["batch"], point["dims"]["seq"]) for point in points]
    assert seen == [(b, s) for b in (1, 3) for s in (1, 2, 4, 8)]
    assert all(point["passed"] for point in points)


def test_bench_times_every_shape_and_profiles(tmp_path: Path) -> None:
    arguments = ("bench", BERT, "--dim", "batch=1,3", "--dim", "seq=5", "--repeats", "2", "--json")
    points = answer(*arguments, "--against-onnxruntime", "--profile")
    assert [point["dims"] for point in points] == [{"batch": b, "seq": 5} for b in (1, 3)]
    for point in points:
        assert 0 < point["fastest_seconds"] <= point["seconds"] <= point["slowest_seconds"]
        assert point["onnxruntime_seconds"] > 0
        assert len(point["profile"]["run_seconds"]) == 2
        assert point["profile"]["kernels"]


def test_bench_prints_tables_and_writes_a_trace(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    arguments = ("bench", BERT, "--dim", "batch=1", "--repeats", "1", "--trace", str(trace))
    result = call(*arguments, "--dim", "seq=3", "--profile")
    assert result.exit_code == 0, result.output
    assert all(text in result.stdout for text in ("first run", "m_matmul", "GFLOP/s", "share"))
    assert json.loads(trace.read_text())["traceEvents"]
    result = call(*arguments, "--dim", "seq=3,4")
    assert result.exit_code == 2 and "--trace takes one shape, but there are 2" in result.stderr


def test_compare_exits_with_1_on_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    run = dvm_graph.Model.run
    monkeypatch.setattr(dvm_graph.Model, "run", lambda *args, **more: [x + 1 for x in run(*args)])
    result = call("compare", BERT, "--dim", "batch=1", "--dim", "seq=3")
    assert result.exit_code == 1
    assert "NO" in result.stdout
    assert "1 different" in result.stdout


def test_report_as_text_json_and_answer() -> None:
    assert "basic operators" in call("report", BERT).stdout
    assert answer("report", BERT, "--json")["vendor_operators"] == []
    assert "are fused" in call("report", BERT, "--why", "node_linear_4", "node_gelu").stdout


def test_visualize(tmp_path: Path) -> None:
    path = tmp_path / "bert.svg"
    data = answer("visualize", BERT, "-o", str(path), "--json")
    assert data == {"output": str(path), "bytes": path.stat().st_size}


def test_visualize_with_times(tmp_path: Path) -> None:
    path = tmp_path / "bert.svg"
    result = call("visualize", BERT, "-o", str(path), "--profile", "--dim", "batch=1", "--dim", "seq=9")  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "the time of all its cores" in path.read_text()


def test_disasm_picks_kernels() -> None:
    listings = answer("disasm", BERT, "--dim", "seq=9", "--dim", "batch=1", "--kernel", "erf", "--json")  # fmt: skip
    assert len(listings) == 2
    assert all("erf" in listing["name"] for listing in listings)
    assert all("v_erf_f32" in listing["text"] for listing in listings)


def test_disasm_shows_the_tiles_of_cores() -> None:
    command = ("disasm", BERT, "--dim", "seq=9", "--dim", "batch=1", "--kernel", "erf", "--tiles")
    text = call(*command, "--npu", "ascend910b2").stdout
    launch, _, table = text.partition("\nlaunch ")[2].partition("\n")
    assert re.fullmatch(r"of one program of [\d,]+ bytes, \d+ in it", launch)
    stage = table[table.index("  stage ") :].splitlines()
    assert re.fullmatch(r"    (cube|vector) core 0: \w+ 0\.\.\d+", stage[1])
    found = answer(*command, "--npu", "ascend910b2", "--json")["launches"]
    kinds = {core["kind"] for stage in found[0]["stages"] for core in stage["cores"]}
    assert "cube" in kinds and found[0]["programs"] > 0


def test_disasm_shows_the_programs_of_a_part(tmp_path: Path) -> None:
    command = ("disasm", BERT, "--dim", "seq=9", "--dim", "batch=1", "--kernel", "erf")
    here = call(*command).stdout
    part = answer(*command, "--npu", "ascend910b2", "--json")
    text = "".join(listing["text"] for listing in part)
    for instruction in ("d_load_l1", "m_mmad", "s_set_flag", "s_wait_flag"):
        assert instruction in text and instruction not in here
    spec = tmp_path / "mine.toml"  # of one place: nothing is in two
    spec.write_text(
        'name = "mine"\nbase = "ascend910b2"\n[sources]\nM = "a test"\n'
        '[target]\nplaces = { value = 1, unit = "places", source = ["M"], confidence = "low" }\n'
    )
    mine = call(*command, "--npu", str(spec))
    assert mine.exit_code == 0, mine.output
    assert (
        "d_load_l1" in mine.stdout and mine.stdout != call(*command, "--npu", "ascend910b2").stdout
    )


def test_dump_stops_where_it_is_told() -> None:
    simplified = call("dump", BERT, "--stop-after", "simplify").stdout
    assert simplified.startswith("graph ")
    assert "transpose(" in simplified
    plan = answer("dump", BERT, "--json")
    assert plan["stage"] == "lower_kernels"
    assert "mix kernel" in plan["text"]


def test_dump_runs_no_stage_after_the_one_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("dvm_graph.pipeline")
    monkeypatch.setattr(module, "simplify", lambda graph, facts: pytest.fail("simplify ran"))
    assert call("dump", BERT, "--stop-after", "fold_constants").exit_code == 0


def test_a_dump_folder_gets_every_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVM_DUMP", str(tmp_path / "stages"))
    asked = call("dump", BERT, "--stop-after", "decompose").stdout
    names = sorted(path.name for path in (tmp_path / "stages").iterdir())
    assert names == ["00-import_onnx.txt", "01-decompose.txt"]
    assert (tmp_path / "stages" / names[1]).read_text() == asked


def test_stages_are_documented() -> None:
    for page in ("docs/cli.md", "ARCHITECTURE.md"):
        text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8")
        assert [stage for stage in STAGES if f"`{stage}`" not in text] == [], page


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broken_model_is_one_message(command: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(Path(BERT).read_bytes()[:5000])
    result = CliRunner().invoke(main, [command, str(path)])
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "/no/such/model.onnx"), "does not exist"),
        (("run", BERT, "--dim", "banana=3"), "its dims are batch, seq"),
        (("run", BERT, "--dim", "batch=1,2"), "one extent"),
        (("run", BERT, "--dim", "batch=-1"), "is not like"),
        (("run", BERT, "--dim", "batch=x"), "is not like"),
        (("run", BERT, "--dim", "batch=1:9:x1"), "is not like"),
        (("run", BERT, "--dim", "batch=0:99999999999"), "more than"),
        (("run", BERT, "--dim", "batch=1", "--dim", "batch=2"), "given twice"),
        (("run", BERT, "--dim", "batch=1000000000000000"), "no memory for input"),
        (("run", BERT, "--dim", "batch=100000000000000000000000"), "no memory for input"),
        (("run", BERT, "--seed", "-1"), "seed"),
        (("run", BERT, "--cores", "0"), "cores"),
        (("run", BERT, "--feeds", BERT), "no .npz file"),
        (("report", BERT, "--why", "node_gelu", "nothing"), "no kernel holds"),
        (("visualize", BERT, "-o", "picture.docx"), "suffix"),
        (("visualize", BERT, "-o", "/no/such/folder/picture.svg"), "no folder"),
        (("visualize", BERT, "--dim", "batch=3"), "--profile"),
        (("disasm", BERT, "--kernel", "banana"), "no kernel has"),
        (("disasm", BERT, "--npu", "banana"), "npu is 'banana'"),
        (("disasm", BERT, "--tiles"), "--tiles is of a part"),
        (("simulate", BERT, "--npu", "banana"), "npu is 'banana'"),
    ],
)
def test_bad_requests_exit_with_2(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert message in result.stderr


def test_refusals_of_strict_exit_with_2(tmp_path: Path) -> None:
    path = tmp_path / "det.onnx"
    header = '<ir_version: 8, opset_import: ["" : 18]> '
    onnx.save(
        onnx.parser.parse_model(header + "g (float[n, m, m] x) => (float[n] y) { y = Det(x) }"),
        path,
    )
    result = CliRunner().invoke(main, ["run", str(path), "--strict"])
    assert result.exit_code == 2 and "strict=True" in result.output


@pytest.mark.parametrize(
    "command", ["run -o", "bench --trace", "visualize -o", "dump -o", "disasm -o"]
)
@pytest.mark.parametrize("reason", ["there is no folder", "read-only"])
def test_output_paths_are_looked_at_before_the_work(
    command: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "missing" / "out.svg" if reason == "there is no folder" else tmp_path / "x"
    if reason == "read-only":  # for root, too, who may write anywhere else
        monkeypatch.setattr("dvm_graph.errors.os.access", lambda *_: False)
    module = importlib.import_module("dvm_graph.cli.request")
    monkeypatch.setattr(module, "open_model", lambda *_: pytest.fail("it was at work"))
    monkeypatch.setattr("dvm_graph.cli.dump.stage_text", lambda *_: pytest.fail("it was at work"))
    name, option = command.split()
    result = call(name, BERT, option, str(place))
    assert result.exit_code == 2, result.output
    assert f"cannot write '{place}'" in result.stderr and reason in result.stderr


@pytest.mark.parametrize("command", ["bench --repeats 1", "compare"])
@pytest.mark.parametrize("seq", ["5", "5,6"])
@pytest.mark.parametrize("on_terminal", [True, False])
def test_progress_is_for_terminals(
    command: str, seq: str, on_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=on_terminal, width=80)
    module = importlib.import_module("dvm_graph.cli.request")
    monkeypatch.setattr(module, "errors", lambda: console)
    result = call(*command.split(), BERT, "--dim", "batch=1", "--dim", f"seq={seq}")
    assert result.exit_code == 0 and result.stderr == ""
    text = {"bench": "timing", "compare": "comparing"}[command.split()[0]]
    assert (text in shown.getvalue()) == on_terminal
    assert text not in result.stdout


def test_missing_feed_names_the_inputs(tmp_path: Path) -> None:
    path = tmp_path / "feeds.npz"
    np.savez(path, input_ids=np.ones((1, 2), np.int64))
    result = call("run", BERT, "--feeds", str(path))
    assert result.exit_code == 2
    assert "missing input 'attention_mask'" in result.stderr


def test_saved_models_run_as_the_model_does(tmp_path: Path) -> None:
    saved, out = str(tmp_path / "bert.dvm"), str(tmp_path / "out.npz")
    assert answer("save", BERT, "-o", saved, "--json")["bytes"] == Path(saved).stat().st_size
    dims = ("--dim", "batch=2", "--dim", "seq=3")
    outputs = answer("run", BERT, *dims, "--json")["outputs"]
    assert answer("run", saved, *dims, "-o", out, "--json")["outputs"] == outputs
    assert answer("report", saved, "--json") == answer("report", BERT, "--json")
    assert len(answer("bench", saved, *dims, "--repeats", "1", "--json")) == 1
    for command in ("compare", "check", "dump", "save"):
        result = CliRunner().invoke(main, [command, saved])
        assert result.exit_code == 2
        assert "is a saved model: this takes the ONNX model" in result.stderr
    result = CliRunner().invoke(main, ["run", saved, "--strict"])
    assert "strict was settled when the model was compiled" in result.stderr


def test_a_command_with_a_typing_error() -> None:
    result = call("benc", "model.onnx")
    assert result.exit_code == 2
    assert "Did you mean 'bench'?" in result.output
