"""Drives the engines through a workload, turn by turn.

In: a `Workload`, the engines, the number of rounds. Out: a `Row` for each engine at each point. In a round every
engine visits every point held; the order of the engines rotates. A visit is a run at a shape that the engine has just
left for another one (`first_ms`), then runs at the same shape (`run_ms`). Round 0 is where engines compile and pages are
touched: it gives `cold_ms` and nothing else. An engine that fails is out for the rest of the workload, and its rows say why.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.ceilings import Ceilings
from benchmarks.engines import ENGINES, REFERENCE, CompileCost
from benchmarks.messages import Memory, Visit
from benchmarks.process import Setting, Worker, noting, shared_folder, write_feeds
from benchmarks.rows import Row
from benchmarks.workload import Workload

_SHORT_SECONDS = 4e-3
_MOST_REPEATS = 16

Advance = Callable[[str], None]


@dataclass(slots=True)
class _Record:
    """What was seen of one engine at one point."""

    visits: list[Visit] = field(default_factory=list)
    error: float = math.nan


@dataclass(slots=True)
class _Party:
    """An engine taking part."""

    worker: Worker
    points: frozenset[int]
    """Indices of the points that it is shown."""
    load_s: float = math.nan
    memory: Memory | None = None


def run_workload(
    workload: Workload,
    engines: Sequence[str],
    rounds: int,
    setting: Setting,
    ceilings: Ceilings,
    advance: Advance,
) -> list[Row]:
    """`advance` is told after every point what has been done."""
    with contextlib.ExitStack() as stack:
        run = _Run(workload, rounds)
        for name in engines:
            if workload.shown_to(name):
                run.join(stack.enter_context(_worker(name, workload, setting)))
        for chunk in _chunks(range(len(workload.points)), workload.held):
            run.measure(chunk)
            for index in chunk:
                advance(f"{workload.name} {workload.points[index].label}")
        run.weigh()
    return run.rows(ceilings)


def _worker(name: str, workload: Workload, setting: Setting) -> Worker:
    return Worker(name, setting, keeps_memory=workload.keeps_memory)


def _chunks(indices: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(indices), size):
        yield indices[start : start + size]


class _Run:
    """One workload under way."""

    def __init__(self, workload: Workload, rounds: int) -> None:
        self._workload = workload
        self._rounds = rounds
        self._parties: dict[str, _Party] = {}
        self._failures: dict[str, str] = {}
        self._records: dict[tuple[str, int], _Record] = defaultdict(_Record)

    def join(self, worker: Worker) -> None:
        party = _Party(worker, self._workload.shown_to(worker.name))
        self._parties[worker.name] = party
        with noting(self._failures, worker.name):
            party.load_s = worker.load(self._workload.source)

    def measure(self, chunk: Sequence[int]) -> None:
        for index in chunk:
            self._hold(index)
        repeats = dict.fromkeys(chunk, 1)
        for number in range(self._rounds + 1):
            for index in chunk:
                for name, party in self._present(index, number):
                    with noting(self._failures, name):
                        visit = party.worker.visit(index, repeats[index])
                        self._records[name, index].visits.append(visit)
            if number == 0:
                repeats = {index: self._repeats(index) for index in chunk}
        for index in chunk:
            self._check(index)
        for name, party in self._parties.items():
            with noting(self._failures, name):
                party.worker.drop()

    def weigh(self) -> None:
        for name, party in self._parties.items():
            with noting(self._failures, name):
                party.memory = party.worker.memory()

    def rows(self, ceilings: Ceilings) -> list[Row]:
        return [
            self._row(name, party, index, ceilings)
            for name, party in self._parties.items()
            for index in sorted(party.points)
        ]

    def _present(self, index: int, turned: int = 0) -> list[tuple[str, _Party]]:
        """Those that are shown the point and have not failed, in an order that rotates."""
        present = [
            (name, party)
            for name, party in self._parties.items()
            if name not in self._failures and index in party.points
        ]
        turned %= max(1, len(present))
        return present[turned:] + present[:turned]

    def _hold(self, index: int) -> None:
        with shared_folder() as folder:
            write_feeds(self._workload.points[index].feeds(), folder)
            for name, party in self._present(index):
                with noting(self._failures, name):
                    party.worker.hold(index, folder)

    def _repeats(self, index: int) -> int:
        """As many repeats for every engine as the fastest needs to fill a few milliseconds."""
        seconds = [
            record.visits[0].repeats[0]
            for (_, at), record in self._records.items()
            if at == index and record.visits
        ]
        fastest = min(seconds, default=_SHORT_SECONDS)
        return min(_MOST_REPEATS, max(1, math.ceil(_SHORT_SECONDS / fastest)))

    def _check(self, index: int) -> None:
        present = dict(self._present(index))
        if REFERENCE not in present:
            return
        with shared_folder() as folder, noting(self._failures, REFERENCE):
            present[REFERENCE].worker.save_outputs(index, folder)
            for name, party in present.items():
                with noting(self._failures, name):
                    self._records[name, index].error = party.worker.error(index, folder)

    def _row(self, name: str, party: _Party, index: int, ceilings: Ceilings) -> Row:
        point = self._workload.points[index]
        memory = party.memory
        row = Row(
            part=self._workload.part,
            workload=self._workload.name,
            index=index,
            point=point.label,
            engine=name,
            status=self._failures.get(name, "not measured"),
            load_s=party.load_s,
            resident_mb=memory.resident / 1e6 if memory else math.nan,
            peak_mb=memory.peak / 1e6 if memory else math.nan,
            flops=point.flops,
            bytes=point.bytes,
            fma_gflops=ceilings.fma_gflops,
            copy_gbs=ceilings.copy_gbs,
            read_gbs=ceilings.read_gbs,
        )
        record = self._records.get((name, index))
        complete = record is not None and len(record.visits) == self._rounds + 1
        return _with_times(row, record) if record is not None and complete else row


def _with_times(row: Row, record: _Record) -> Row:
    cold, *visits = record.visits
    runs = [statistics.median(visit.repeats) for visit in visits]
    cost = _median_cost([visit.cost for visit in record.visits])
    right = math.isnan(record.error) or record.error <= ENGINES[row.engine].tolerance
    return replace(
        row,
        status="ok" if right else "wrong",
        run_ms=statistics.median(runs) * 1e3,
        first_ms=statistics.median(visit.first for visit in visits) * 1e3,
        cold_ms=cold.first * 1e3,
        spread=spread_of(runs),
        error=record.error,
        kernels=cost.kernels,
        compile_mean_us=cost.mean_us,
        compile_max_us=cost.max_us,
        compile_total_us=cost.total_us,
    )


def _median_cost(costs: Sequence[CompileCost]) -> CompileCost:
    """Over the runs that compiled."""
    costs = [cost for cost in costs if cost.kernels]
    if not costs:
        return CompileCost()
    return CompileCost(
        costs[0].kernels,
        statistics.median(cost.mean_us for cost in costs),
        statistics.median(cost.max_us for cost in costs),
        statistics.median(cost.total_us for cost in costs),
    )


def spread_of(runs: Sequence[float]) -> float:
    """Median of the odd ones over the median of the even ones; NaN for a single one."""
    if len(runs) < 2:
        return math.nan
    return statistics.median(runs[1::2]) / statistics.median(runs[::2])
