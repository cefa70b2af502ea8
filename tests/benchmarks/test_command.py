"""The command line: what it refuses, and what a run leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.rows import Row, read_rows, write_rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("operators", "--engines", "tvm"), "unknown engine 'tvm'"),
        (("operators", "--datasets", "conv"), "unknown name 'conv'"),
        (("models", "--models", "alexnet"), "unknown name 'alexnet'"),
        (("memory-bound", "--repeats", "0"), "--repeats is at least 1"),
        (("memory-bound", "--threads", "0"), "--threads is at least 1"),
    ],
)
def test_mistakes_are_named(arguments: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2 and message in result.output


def test_a_part_writes_rows_tables_and_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.__main__.write_plots", lambda results, folder: {})
    arguments = [
        "memory-bound",
        "--quick",
        "--datasets",
        "broadcast",
        "--threads",
        "1",
        "--repeats",
        "1",
    ]
    arguments += ["--engines", "dvm_graph,onnxruntime", "--output", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["benchmarks", *arguments])
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    rows = read_rows(Row, tmp_path / "memory-bound.csv")
    assert {row.engine for row in rows} == {"dvm_graph", "onnxruntime"}
    assert len(rows) == 6 and all(row.ok for row in rows)
    assert (tmp_path / "memory-bound-speedups.md").read_text().count("\n") == 3
    assert (tmp_path / "memory-bound.command").read_text().endswith("--output PATH")
    options = arguments[4:]
    result = CliRunner().invoke(main, ["again", "--below", "0", *options], catch_exceptions=False)
    assert result.exit_code == 0 and not (tmp_path / "again.csv").exists()
    result = CliRunner().invoke(main, ["again", "--below", "1e9", *options], catch_exceptions=False)
    assert result.exit_code == 0
    again = read_rows(Row, tmp_path / "again.csv")
    assert {(row.point, row.engine) for row in again} == {(row.point, row.engine) for row in rows}
    assert all(row.ok and len(row.runs_ms) == 1 for row in again)
    assert (tmp_path / "again.md").read_text().count("\n") == 5
    other = ["again", "--below", "1e9", "--output", str(tmp_path)]
    write_rows(Row, [replace(row, point="a=1") for row in rows], tmp_path / "memory-bound.csv")
    result = CliRunner().invoke(main, other)
    assert result.exit_code == 2 and "broadcast has no point 'a=1'" in result.output


def test_results_of_another_version_are_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "models.csv").write_text("workload,ms\nbert,1\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["memory-bound", "--quick", "--output", str(tmp_path)])
    assert result.exit_code == 2 and "another version" in result.output
    assert not (tmp_path / "memory-bound.csv").exists()


def test_results_of_another_cpu_are_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("abacus\n", encoding="utf-8")
    result = CliRunner().invoke(main, ["memory-bound", "--quick", "--output", str(tmp_path)])
    assert result.exit_code == 2 and "results of abacus" in result.output
    assert not (tmp_path / "memory-bound.csv").exists()
