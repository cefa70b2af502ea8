"""What the driver and its workers say to each other, apart from arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines import CompileCost


@dataclass(frozen=True, slots=True)
class Visit:
    """One turn of an engine: a run at another shape, the first run at the shape, then runs at the same. Seconds."""

    first: float
    repeats: tuple[float, ...]
    cost: CompileCost
    """Of the first run."""
    settling: CompileCost
    """Of the run at another shape, in a process that has just been continued."""
    control_us: float = 0.0
    """The longest of the sums of `benchmarks.control` behind the runs, for as long as the first one compiled."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the machine can do at most over all threads, at the moment; NaN where it was not measured."""

    fma_gflops: float = math.nan
    copy_gbs: float = math.nan
    """Read plus written."""
    read_gbs: float = math.nan


@dataclass(frozen=True, slots=True)
class Memory:
    """Of the process, in bytes."""

    resident: int
    peak: int


def feed_file(folder: Path, position: int, name: str) -> Path:
    """Where the feed at this position of the graph's inputs lies."""
    return folder / f"{position}-{name}.npy"
