"""The folder that a run writes: CSV files, and Markdown tables and plots made of them.

`sections` are the tables by name; docs/performance.md takes them in where it says `<!-- results: NAME on CPU -->`.
Invariant: a folder holds results of one CPU family, and a page keeps a region for each: no run overwrites another CPU's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import plots, tables
from benchmarks.paired import workloads
from benchmarks.rows import Row, read_rows
from benchmarks.stream import StreamMemory, StreamRow

PARTS = ("operators", "memory-bound", "branches", "models", "zoo")
_REGION = re.compile(r"<!-- results: ([a-z-]+) on ([a-z0-9-]+) -->\n.*?<!-- end -->\n", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Results:
    """What lies in the folder; a part that was not run is empty."""

    parts: Mapping[str, Sequence[Row]]
    again: Sequence[Row]
    """Of points of any part."""
    stream: Sequence[StreamRow]
    memories: Sequence[StreamMemory]
    cpu: str
    """The family that all was measured on; empty in an empty folder."""
    environment: str
    commands: Sequence[str]
    """That the parts were run with, each once."""


def read_results(folder: Path) -> Results:
    parts = {
        part: read_rows(Row, folder / f"{part}.csv")
        for part in PARTS
        if (folder / f"{part}.csv").exists()
    }
    again = folder / "again.csv"
    stream, memories = folder / "stream.csv", folder / "stream_memory.csv"
    environment, cpu = folder / "environment.md", folder / "cpu"
    return Results(
        parts,
        read_rows(Row, again) if again.exists() else (),
        read_rows(StreamRow, stream) if stream.exists() else (),
        read_rows(StreamMemory, memories) if memories.exists() else (),
        cpu.read_text(encoding="utf-8").strip() if cpu.exists() else "",
        environment.read_text(encoding="utf-8") if environment.exists() else "",
        sorted({path.read_text(encoding="utf-8") for path in folder.glob("*.command")}),
    )


_PART_TABLES: Mapping[str, Callable[[Sequence[Row]], tables.Table]] = {
    "speedups": tables.speedup_table,
    "losses": tables.losses_table,
    "noise": tables.noise_table,
    "compile": tables.compile_table,
    "kernels": tables.kernels_table,
    "resources": tables.resource_table,
    "points": tables.points_table,
    "ceilings": tables.ceilings_table,
}


def sections(results: Results) -> dict[str, str]:
    """Markdown by name, for the parts that were run: `<part>-<table>`, `again`, `stream`, `environment`."""
    found = {
        f"{part}-{name}": make(rows).markdown()
        for part, rows in results.parts.items()
        for name, make in _PART_TABLES.items()
    }
    if results.again:
        before = [row for rows in results.parts.values() for row in rows]
        found["again"] = tables.again_table(before, results.again).markdown()
    if results.stream:
        found["stream"] = tables.stream_table(results.stream, results.memories).markdown()
    if results.environment:
        commands = (f"* `{command}`" for command in results.commands)
        found["environment"] = "\n".join((*commands, results.environment.rstrip()))
    return found


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


def fill_regions(text: str, found: Mapping[str, str], cpu: str) -> str:
    """The page with the regions of `cpu` replaced; where it has those of others only, one more stands behind them."""
    for name, content in found.items():
        regions = [match for match in _REGION.finditer(text) if match[1] == name]
        own = [match for match in regions if match[2] == cpu]
        region = f"<!-- results: {name} on {cpu} -->\n\n{content}\n\n<!-- end -->\n"
        if own:
            text = text[: own[0].start()] + region + text[own[0].end() :]
        elif regions:
            end = regions[-1].end()
            text = f"{text[:end]}\nOn {cpu}:\n\n{region}{text[end:]}"
    return text
