"""An engine process from start to end, with the engines that are always installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import operators
from benchmarks.ceilings import Ceilings
from benchmarks.measure import run_workload
from benchmarks.process import EngineError, Setting, Worker, missing
from benchmarks.workload import Source

SETTING = Setting(threads=1)


def test_a_workload_gives_a_right_row_for_each_engine_and_point(tmp_path: Path) -> None:
    workload = operators.workload("addmm", seed=0, count=3, static_points=0, folder=tmp_path)
    seen: list[str] = []
    engines = ["dvm_graph", "onnxruntime", "inductor_static"]
    rows = run_workload(workload, engines, 1, SETTING, Ceilings(), seen.append)
    assert [(row.engine, row.index) for row in rows] == [
        (engine, index) for engine in ("dvm_graph", "onnxruntime") for index in range(3)
    ]
    assert all(row.ok and 0 <= row.error < 1e-5 and row.run_ms > 0 for row in rows)
    assert all(row.kernels >= 1 for row in rows if row.engine == "dvm_graph")
    assert len(seen) == 3


def test_an_engine_that_cannot_load_says_so_in_its_rows(tmp_path: Path) -> None:
    workload = operators.workload("matmul", seed=0, count=1, static_points=0, folder=tmp_path)
    Path(workload.source.path).write_bytes(b"no model")
    rows = run_workload(workload, ["onnxruntime"], 1, SETTING, Ceilings(), lambda what: None)
    assert len(rows) == 1 and "InvalidProtobuf" in rows[0].status


def test_errors_of_an_engine_reach_the_driver() -> None:
    with Worker("onnxruntime", SETTING) as worker, pytest.raises(EngineError):
        worker.load(Source("nowhere.onnx"))


def test_an_engine_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing("onnxruntime", SETTING) == ""
    monkeypatch.setattr("benchmarks.process.find_spec", lambda name: None)
    assert missing("openvino", SETTING) == "not installed: openvino"
    assert "--mindspore-python" in missing("mindspore", SETTING)
    assert missing("mindspore", Setting(1, "/usr/bin/python3")) == ""
