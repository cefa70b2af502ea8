"""The page of one family of CPUs: a chapter for each part, with what it was run with, its plots and its tables.

In: results. Out: `<cpu>.md` in a folder, and its plots in `<cpu>/` there. Chapters that the results have are written anew, and
all else on the page stays as it is: parts are run at different times, and a page may hold notes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import plots, tables
from benchmarks.first import First, first_table
from benchmarks.paired import workloads
from benchmarks.results import Results
from benchmarks.rows import Row

CHAPTERS: Mapping[str, str] = {
    "models": "Models",
    "zoo": "The zoo",
    "operators": "Operators and subgraphs",
    "memory-bound": "Memory-bound operators",
    "branches": "Branches",
    "stream": "A stream of shapes",
    "again": "Points measured again",
}
"""Titles by part, in the order of the page."""

_PART_TABLES: Sequence[Callable[[Sequence[Row]], tables.Table]] = (
    tables.speedup_table,
    tables.losses_table,
    tables.noise_table,
    tables.kernels_table,
    tables.compile_table,
    tables.resource_table,
    tables.ceilings_table,
    tables.points_table,
)


def chapters(
    results: Results, first: Sequence[First] = (), drawn: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Markdown by part, of those that were run. `first`: what the zoo was like when it was first measured; `drawn`: links to plots."""
    found = {}
    for part in CHAPTERS:
        sections = [
            f"### {table.title}\n\n{table.markdown()}" for table in _tables(results, first, part)
        ]
        if sections:
            above = (results.runs.get(part, "").rstrip(), (drawn or {}).get(part, ""))
            found[part] = "\n\n".join((*filter(None, above), *sections))
    return found


def _tables(results: Results, first: Sequence[First], part: str) -> Iterator[tables.Table]:
    rows = results.parts.get(part, ())
    if rows:
        if part == "zoo" and first:
            yield first_table(first, rows)
        yield from (make(rows) for make in _PART_TABLES)
    if part == "stream" and results.stream:
        yield tables.stream_table(results.stream, results.memories)
    if part == "again" and results.again:
        before = [row for rows in results.parts.values() for row in rows]
        yield tables.again_table(before, results.again)


def write_plots(results: Results, folder: Path) -> dict[str, list[Path]]:
    """SVG files by part: one for each operator dataset, one for every other part."""
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[Path]] = {}
    for part, rows in results.parts.items():
        if part == "operators":
            base = "torch" if any(row.engine == "torch" for row in rows) else "onnxruntime"
            written[part] = [folder / f"{name}.svg" for name in workloads(rows)]
            for path in written[part]:
                plots.plot_dataset(rows, path.stem, base, path)
        else:
            written[part] = [folder / f"{part}.svg"]
            plots.plot_models(rows, written[part][0])
    if results.stream:
        written["stream"] = [folder / "stream.svg"]
        plots.plot_stream(results.stream, results.memories, written["stream"][0])
    return written


def write_page(results: Results, folder: Path, first: Sequence[First] = ()) -> Path:
    """The page of the results' CPU in `folder`, with their chapters; a CPU that has none gets one."""
    path = folder / f"{results.cpu}.md"
    drawn = {
        part: "\n".join(f"![{plot.stem}]({results.cpu}/{plot.name})" for plot in written)
        for part, written in write_plots(results, folder / results.cpu).items()
    }
    before = path.read_text(encoding="utf-8") if path.exists() else _new(results.cpu)
    path.write_text(renewed(before, chapters(results, first, drawn)), encoding="utf-8")
    return path


def _new(cpu: str) -> str:
    return (
        f"# Performance on {cpu}\n\n"
        "Tables and plots of `python -m benchmarks`; `docs/performance/method.md` says what is compared, and how.\n"
    )


def renewed(page: str, found: Mapping[str, str]) -> str:
    """The page with those chapters: in their order, ahead of those that are no part's."""
    head, *rest = re.split(r"^## (.+)\n", page, flags=re.MULTILINE)
    there = dict(zip(rest[::2], rest[1::2], strict=True))
    there |= {CHAPTERS[part]: text for part, text in found.items()}
    titles = [title for title in dict.fromkeys((*CHAPTERS.values(), *there)) if title in there]
    parts = (head, *(f"## {title}\n\n{there[title].strip()}" for title in titles))
    return "\n\n".join(part.strip() for part in parts) + "\n"
