"""Statistics over rows: speed-ups in pairs, geometric means, percentiles. NaN is what was not measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.engines import ENGINES
from benchmarks.rows import Row, median, ratios
from benchmarks.turns import SUBJECT


def geometric_mean(values: Iterable[float]) -> float:
    """NaN for no values."""
    known = [value for value in values if value > 0]
    return statistics.geometric_mean(known) if known else math.nan


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of those that were measured do not exceed; NaN for none."""
    known = sorted(value for value in values if not math.isnan(value))
    rank = max(1, math.ceil(percent / 100 * len(known)))
    return known[rank - 1] if known else math.nan


@dataclass(frozen=True, slots=True)
class Pair:
    """The subject and a peer at the same point, both right."""

    subject: Row
    peer: Row

    @property
    def speedups(self) -> list[float]:
        """Of each round."""
        return ratios(self.peer.runs_ms, self.subject.runs_ms)

    @property
    def speedup(self) -> float:
        return median(self.speedups)


def pairs(rows: Iterable[Row], peer: str, subject: str = SUBJECT) -> list[Pair]:
    """Points that both engines ran, in the order of the workload's points."""
    at = {(row.workload, row.index, row.engine): row for row in rows if row.ok}
    return [
        Pair(row, at[workload, index, peer])
        for (workload, index, engine), row in at.items()
        if engine == subject and (workload, index, peer) in at
    ]


def lowest(rows: Sequence[Row]) -> dict[tuple[str, str], Pair]:
    """By names of workload and point: the peer that the subject does worst against, none that rounds operands."""
    found: dict[tuple[str, str], Pair] = {}
    for engine in engines(rows):
        if engine == SUBJECT or ENGINES[engine].rounds:
            continue
        for pair in pairs(rows, engine):
            key = (pair.subject.workload, pair.subject.point)
            if key not in found or pair.speedup < found[key].speedup:
                found[key] = pair
    return found


def workloads(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.workload for row in rows))


def engines(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.engine for row in rows))


def of_workload(rows: Iterable[Row], name: str) -> list[Row]:
    return [row for row in rows if row.workload == name]


def best_peer(rows: Sequence[Row], subject: str = SUBJECT) -> str:
    """The peer with the lowest geometric mean of speed-ups over all points of a workload; "" without one.

    A peer that is shown only some of the points is no candidate, nor is one that rounds operands.
    """
    points = {row.index for row in rows if row.engine == subject and row.ok}
    means = {}
    for engine in engines(rows):
        found = pairs(rows, engine, subject)
        if engine != subject and not ENGINES[engine].rounds and len(found) == len(points) > 0:
            means[engine] = geometric_mean(pair.speedup for pair in found)
    return min(means, key=means.__getitem__, default="")
