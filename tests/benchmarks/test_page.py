"""The page of a CPU: a chapter for each part that was measured, all others as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.first import First
from benchmarks.page import CHAPTERS, chapters, renewed, write_page
from benchmarks.results import PARTS, read_results
from benchmarks.rows import Row, write_rows
from benchmarks.stream import StreamMemory, StreamRow


def rows(part: str) -> list[Row]:
    times = {"dvm_graph": (1.0, 4.0), "onnxruntime": (2.0, 2.0)}
    return [
        Row(
            part,
            "matmul",
            index,
            f"m={index}",
            engine,
            "ok",
            runs_ms=(ms, ms),
            controls_ms=(ms, ms),
        )
        for engine, both in times.items()
        for index, ms in enumerate(both)
    ]


def folder_of(tmp_path: Path, *parts: str) -> Path:
    (tmp_path / "cpu").write_text("zen4\n")
    for part in parts:
        write_rows(Row, rows(part), tmp_path / f"{part}.csv")
        (tmp_path / f"{part}.run").write_text(f"* `python -m benchmarks {part}`\n* machine: abacus")
    return tmp_path


def test_every_part_has_a_chapter() -> None:
    assert set(CHAPTERS) == {*PARTS, "stream", "again"}


def test_a_chapter_says_what_was_run_and_has_every_table(tmp_path: Path) -> None:
    found = chapters(read_results(folder_of(tmp_path, "operators")))
    assert list(found) == ["operators"]
    text = found["operators"]
    assert text.startswith(
        "* `python -m benchmarks operators`\n* machine: abacus\n\n### Speed-up of"
    )
    assert "\n| matmul | onnxruntime (best peer) | 2 | 1.000 | 0.50 - 2.00 | 50 % |\n" in text
    assert "### Where dvm_graph is slower\n\n" in text
    assert "\n| matmul | m=1 | onnxruntime | 0.500 |\n" in text
    for heading in ("Noise", "Compile time", "Compile time per kernel", "Ceilings"):
        assert text.count(f"### {heading}\n\n| workload |") == 1
    assert "\n| matmul | m=1 | 4.00 | 2.00 |" in text


def test_the_zoo_has_what_it_was_like_at_first(tmp_path: Path) -> None:
    results = read_results(folder_of(tmp_path, "zoo"))
    assert "first measured" not in chapters(results)["zoo"]
    first = [First("matmul", "onnxruntime", 2, 0.75)]
    assert "| matmul | onnxruntime | 0.75 | 1.00 |" in chapters(results, first)["zoo"]


def test_the_stream_has_a_chapter(tmp_path: Path) -> None:
    stream = [
        StreamRow(
            "dvm_graph", i, 1, i + 1, 1000, 10, 2.0, 1.0 + i, 1, 4.0 + 30 * i, 3.0, 60.0, 1.0, 1.0
        )
        for i in range(3)
    ]
    write_rows(StreamRow, stream, tmp_path / "stream.csv")
    memory = StreamMemory("dvm_graph", "ok", 5.0, 0.0, 110.0, 120.0, 100.0, 9.0, 11.0)
    write_rows(StreamMemory, [memory], tmp_path / "stream_memory.csv")
    found = chapters(read_results(tmp_path))
    assert list(found) == ["stream"]
    assert "| 64.00 | 1 | 60.00 | 3 |" in found["stream"]  # longest and how many over 50 us
    assert "| 110 | 100 | 1.10 |" in found["stream"]


def test_a_cpu_without_a_page_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {"models": [tmp_path / "zen4" / "models.svg"]}
    monkeypatch.setattr("benchmarks.page.write_plots", lambda results, folder: drawn)
    page = write_page(read_results(folder_of(tmp_path, "models")), tmp_path)
    assert page == tmp_path / "zen4.md"
    text = page.read_text()
    assert text.startswith("# Performance on zen4\n") and "\n## Models\n\n* `python" in text
    assert "* machine: abacus\n\n![models](zen4/models.svg)\n\n### Speed-up" in text
    assert write_page(read_results(tmp_path), tmp_path).read_text() == text


PAGE = """# Performance on zen4

A note.

## Models

old

### A table

| a |

## Branches

kept

## Notes

by hand
"""


def test_chapters_are_replaced_and_all_else_is_kept() -> None:
    assert renewed(PAGE, {}) == PAGE
    new = renewed(PAGE, {"models": "new"})
    assert new == PAGE.replace("old\n\n### A table\n\n| a |\n", "new\n")


def test_a_new_chapter_stands_in_its_place() -> None:
    new = renewed(PAGE, {"operators": "\nnew\n", "again": "newer"})
    assert new == PAGE.replace(
        "## Branches\n\nkept\n",
        "## Operators and subgraphs\n\nnew\n\n## Branches\n\nkept\n\n## Points measured again\n\nnewer\n",
    )
