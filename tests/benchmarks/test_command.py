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
    monkeypatch.setattr("benchmarks.page.write_plots", lambda results, folder: {})
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
    (page,) = tmp_path.glob("*.md")
    assert page.stem == (tmp_path / "cpu").read_text().strip()
    assert (
        page.read_text().count(
            "## Memory-bound operators\n\n* `python -m benchmarks memory-bound --quick "
        )
        == 1
    )
    assert "--output PATH`\n* machine: " in page.read_text()
    assert "\n| broadcast | onnxruntime (best peer) | 3 |" in page.read_text()
    options = arguments[4:]
    result = CliRunner().invoke(main, ["again", "--below", "0", *options], catch_exceptions=False)
    assert result.exit_code == 0 and not (tmp_path / "again.csv").exists()
    result = CliRunner().invoke(main, ["again", "--below", "1e9", *options], catch_exceptions=False)
    assert result.exit_code == 0
    again = read_rows(Row, tmp_path / "again.csv")
    assert {(row.point, row.engine) for row in again} == {(row.point, row.engine) for row in rows}
    assert all(row.ok and len(row.runs_ms) == 1 for row in again)
    _, _, measured_again = page.read_text().partition("## Points measured again\n")
    assert measured_again.count("\n| broadcast | ") == 3
    assert "## Memory-bound operators\n" in page.read_text()
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


def test_document_needs_results_and_keeps_what_was_first_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.page.write_plots", lambda results, folder: {})
    monkeypatch.setattr("benchmarks.__main__._PAGES", tmp_path / "pages")
    results, page = tmp_path / "results", tmp_path / "pages" / "abacus.md"
    document = ["document", "--output", str(results)]
    assert "run again" in CliRunner().invoke(main, document).output
    for speedup in (2.0, 3.0):
        rows = [
            Row("zoo", "yolo", 0, "batch=1", engine, "ok", runs_ms=(ms,))
            for engine, ms in (("dvm_graph", 1.0), ("onnxruntime", speedup))
        ]
        write_rows(Row, rows, results / "zoo.csv")
        (results / "cpu").write_text("abacus\n", encoding="utf-8")
        CliRunner().invoke(main, document, catch_exceptions=False)
        assert f"\n| yolo | onnxruntime | 2.00 | {speedup:.2f} |\n" in page.read_text()
