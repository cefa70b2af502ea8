"""What the driver and its workers say to each other, apart from arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines import CompileCost


@dataclass(frozen=True, slots=True)
class Visit:
    """One turn of an engine: the run after another shape or engine, then runs at the same shape. Seconds."""

    first: float
    repeats: tuple[float, ...]
    cost: CompileCost
    """Of the first run."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the process, in bytes."""

    resident: int
    peak: int


def feed_file(folder: Path, position: int, name: str) -> Path:
    """Where the feed at this position of the graph's inputs lies."""
    return folder / f"{position}-{name}.npy"
