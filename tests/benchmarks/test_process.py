"""An engine process from start to end, with the engines that are always installed."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import operators, stream
from benchmarks.measure import run_workload
from benchmarks.process import EngineError, Setting, Worker, missing
from benchmarks.workload import Source

SETTING = Setting(threads=1)


def test_a_workload_gives_a_right_row_for_each_engine_and_point(tmp_path: Path) -> None:
    workload = operators.workload("addmm", seed=0, count=3, folder=tmp_path)
    workload = replace(workload, shown={"inductor_static": 0, "onnxruntime": 2})
    seen: list[str] = []
    engines = ["dvm_graph", "onnxruntime", "inductor_static"]
    rows = run_workload(workload, engines, 2, SETTING, 0, seen.append)
    assert [(row.engine, row.index) for row in rows] == [
        *(("dvm_graph", index) for index in (0, 1, 2)),
        *(("onnxruntime", index) for index in (0, 1)),
    ]
    assert all(row.ok and row.run_ms > 0 for row in rows)
    assert all(0 <= row.error < 1e-5 for row in rows if row.index < 2)  # there is a reference
    for row in rows:
        parts = [row.runs_ms, row.firsts_ms, row.fma_gflops, row.copy_gbs, row.read_gbs]
        assert [len(rounds) for rounds in parts] == [2] * 5 and row.cold_ms > 0
        assert all(value > 0 for rounds in parts for value in rounds)
        assert len(row.controls_ms) == (2 if row.engine == "onnxruntime" else 0)
        if row.engine == "dvm_graph":  # three shapes are held: both runs of a visit compile
            assert row.kernels >= 1 and len(row.compile_us) == len(row.longest_us) == 2
            assert row.settling_kernels >= 1 and len(row.settling_us) == 2
    assert len(seen) == 3


def test_an_engine_that_cannot_load_says_so_in_its_rows(tmp_path: Path) -> None:
    workload = operators.workload("matmul", seed=0, count=1, folder=tmp_path)
    Path(workload.source.path).write_bytes(b"no model")
    rows = run_workload(workload, ["onnxruntime"], 1, SETTING, 0, lambda what: None)
    assert len(rows) == 1 and "InvalidProtobuf" in rows[0].status


def test_errors_of_an_engine_reach_the_driver() -> None:
    with Worker("onnxruntime", SETTING) as worker, pytest.raises(EngineError):
        worker.load(Source("nowhere.onnx"))


def test_a_result_that_cannot_be_compared_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Worker.error

    def error(worker: Worker, key: int, folder: Path) -> float:
        if worker.name == "dvm_graph":
            raise EngineError("no arrays")
        return real(worker, key, folder)

    monkeypatch.setattr(Worker, "error", error)
    workload = operators.workload("addmm", seed=0, count=1, folder=tmp_path)
    rows = run_workload(workload, ["dvm_graph", "onnxruntime"], 1, SETTING, 0, lambda what: None)
    assert [row.status for row in rows] == ["wrong", "ok"]


def test_a_reference_that_fails_after_a_stream_loses_nothing() -> None:
    class Failing:
        name = "onnxruntime"

        def hold(self, key: int, folder: Path) -> None: ...

        def save_outputs(self, key: int, folder: Path) -> None:
            raise EngineError("gone")

    failures: dict[str, str] = {}
    workers = {"onnxruntime": cast(Any, Failing())}
    assert stream._errors(workers, {}, failures) == {}
    assert failures == {"onnxruntime": "gone"}


def test_an_engine_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing("onnxruntime", SETTING) == ""
    monkeypatch.setattr("benchmarks.process.find_spec", lambda name: None)
    assert missing("openvino", SETTING) == "not installed: openvino"
    assert "--python mindspore=PATH" in missing("mindspore", SETTING)
    assert missing("mindspore", Setting(1, {"mindspore": "/usr/bin/python3"})) == ""
    assert "--python" in missing("dvm_graph_earlier", SETTING)


@pytest.mark.skipif(sys.platform != "linux", reason="relies on Linux's parent-death signal")
def test_a_killed_driver_takes_its_stopped_workers_along() -> None:
    script = (
        "import os, signal\n"
        "from benchmarks.process import Setting, Worker\n"
        "worker = Worker('onnxruntime', Setting(1))\n"
        "worker.drop()\n"
        "print(worker._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    driver = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    status = Path(f"/proc/{int(driver.stdout)}/status")
    for _ in range(200):
        if not status.exists() or "State:\tZ" in status.read_text():
            return
        time.sleep(0.05)
    pytest.fail(f"the worker is still there: {status.read_text()}")
