"""The folder that a run writes: CSV files, and what they were measured with.

Invariant: a folder holds results of one CPU family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import Row, read_rows
from benchmarks.stream import StreamMemory, StreamRow

PARTS = ("operators", "memory-bound", "branches", "models", "zoo")


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
    runs: Mapping[str, str]
    """By part: the command, the machine and the versions of the engines, as a list in Markdown."""


def read_results(folder: Path) -> Results:
    parts = {
        part: read_rows(Row, folder / f"{part}.csv")
        for part in PARTS
        if (folder / f"{part}.csv").exists()
    }
    again = folder / "again.csv"
    stream, memories = folder / "stream.csv", folder / "stream_memory.csv"
    cpu = folder / "cpu"
    return Results(
        parts,
        read_rows(Row, again) if again.exists() else (),
        read_rows(StreamRow, stream) if stream.exists() else (),
        read_rows(StreamMemory, memories) if memories.exists() else (),
        cpu.read_text(encoding="utf-8").strip() if cpu.exists() else "",
        {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.run")},
    )
