"""Drives the engines through a workload, turn by turn.

In: a `Workload`, the engines, the number of rounds. Out: a `Row` for each engine at each point. In a round every
engine visits every point held, in an order drawn anew; the machine's ceilings are measured next to the subject's turn,
and the reference takes a second turn as the control. A visit is a run at another shape, which brings the process back
into the state of one in service, then the first run at the shape, then runs at the same shape. Round 0 is where engines
compile and pages are touched: it gives `cold_ms` and nothing else. An engine that fails is out for the rest of the
workload, and its rows say why.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.engines import ENGINES, CompileCost
from benchmarks.messages import Ceilings, Memory, Visit
from benchmarks.process import Setting, Worker, noting, shared_folder, write_feeds
from benchmarks.rows import Row
from benchmarks.turns import CEILINGS, CONTROL, REFERENCE, draw_turns
from benchmarks.workload import Workload

_SHORT_SECONDS = 8e-3
_MOST_REPEATS = 64
_WARMING_REPEATS = 5
"""Until an allocator that keeps memory has found places for all of it, runs touch fresh pages."""

Advance = Callable[[str], None]


@dataclass(slots=True)
class _Record:
    """What was seen of one engine at one point."""

    cold: Visit | None = None
    visits: list[Visit] = field(default_factory=list)
    controls: list[Visit] = field(default_factory=list)
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
    seed: int,
    advance: Advance,
) -> list[Row]:
    """`seed` is that of the order of turns; `advance` is told after every point what has been done."""
    with contextlib.ExitStack() as stack:
        meter = stack.enter_context(Worker(CEILINGS, setting))
        run = _Run(workload, rounds, meter, random.Random(f"{seed} {workload.name}"))
        for name in engines:
            if workload.shown_to(name):
                worker = Worker(name, setting, keeps_memory=workload.keeps_memory)
                run.join(stack.enter_context(worker))
        for chunk in chunks(len(workload.points), workload.held):
            run.measure(chunk)
            for index in chunk:
                advance(f"{workload.name} {workload.points[index].label}")
        run.weigh()
    return run.rows()


def chunks(count: int, size: int) -> Iterator[range]:
    """Indices in runs of nearly equal length, of `size` or a few more; in one where there are fewer."""
    parts = max(1, count // size)
    for part in range(parts):
        yield range(part * count // parts, (part + 1) * count // parts)


def settling_point(index: int, chunk: Sequence[int], shown: Collection[int]) -> int | None:
    """The next point held that the engine is shown; None if there is no other.

    The engine ran the previous one last: where there are three, the run at the next one compiles, and the compiler's
    code is back in the caches too.
    """
    place = chunk.index(index)
    others = (*chunk[place + 1 :], *chunk[:place])
    return next((other for other in others if other in shown), None)


class _Run:
    """One workload under way."""

    def __init__(
        self, workload: Workload, rounds: int, meter: Worker, generator: random.Random
    ) -> None:
        self._workload = workload
        self._rounds = rounds
        self._meter = meter
        self._generator = generator
        self._parties: dict[str, _Party] = {}
        self._failures: dict[str, str] = {}
        self._records: dict[tuple[str, int], _Record] = defaultdict(_Record)
        self._ceilings: dict[int, list[Ceilings]] = defaultdict(list)

    def join(self, worker: Worker) -> None:
        party = _Party(worker, self._workload.shown_to(worker.name))
        self._parties[worker.name] = party
        with noting(self._failures, worker.name):
            party.load_s = worker.load(self._workload.source)

    def measure(self, chunk: Sequence[int]) -> None:
        for index in chunk:
            self._hold(index)
        warming = _WARMING_REPEATS if self._workload.keeps_memory else 1
        for index in chunk:
            for name, party in self._present(index).items():
                with noting(self._failures, name):
                    self._records[name, index].cold = party.worker.visit(index, warming, None)
        repeats = {index: self._repeats(index) for index in chunk}
        for _ in range(self._rounds):
            for index in chunk:
                self._round(index, chunk, repeats[index])
        for index in chunk:
            self._check(index)
        for name, party in self._parties.items():
            with noting(self._failures, name):
                party.worker.drop()

    def weigh(self) -> None:
        for name, party in self._parties.items():
            with noting(self._failures, name):
                party.memory = party.worker.memory()

    def rows(self) -> list[Row]:
        return [
            self._row(name, party, index)
            for name, party in self._parties.items()
            for index in sorted(party.points)
        ]

    def _present(self, index: int) -> dict[str, _Party]:
        """Those that are shown the point and have not failed."""
        return {
            name: party
            for name, party in self._parties.items()
            if name not in self._failures and index in party.points
        }

    def _hold(self, index: int) -> None:
        with shared_folder() as folder:
            write_feeds(self._workload.points[index].feeds(), folder)
            for name, party in self._present(index).items():
                with noting(self._failures, name):
                    party.worker.hold(index, folder)

    def _round(self, index: int, chunk: Sequence[int], repeats: int) -> None:
        """Every turn at one point."""
        for turn in draw_turns(self._present(index), self._generator):
            if turn == CEILINGS:
                found = Ceilings()
                with noting(self._failures, CEILINGS):
                    found = self._meter.ceilings()
                self._ceilings[index].append(found)
                continue
            name = REFERENCE if turn == CONTROL else turn
            if name in self._failures:
                continue
            party, record = self._parties[name], self._records[name, index]
            settling = settling_point(index, chunk, party.points)
            with noting(self._failures, name):
                visit = party.worker.visit(index, repeats, settling)
                (record.controls if turn == CONTROL else record.visits).append(visit)

    def _repeats(self, index: int) -> int:
        """As many repeats for every engine as the fastest needs to fill a few milliseconds."""
        seconds = [
            min(record.cold.repeats)
            for (_, at), record in self._records.items()
            if at == index and record.cold
        ]
        fastest = min(seconds, default=_SHORT_SECONDS)
        return min(_MOST_REPEATS, max(1, math.ceil(_SHORT_SECONDS / fastest)))

    def _check(self, index: int) -> None:
        present = self._present(index)
        if REFERENCE not in present:
            return
        with shared_folder() as folder, noting(self._failures, REFERENCE):
            present[REFERENCE].worker.save_outputs(index, folder)
            for name, party in present.items():
                record = self._records[name, index]
                record.error = math.inf  # and so it stays where there is nothing to compare
                with noting(self._failures, name):
                    record.error = party.worker.error(index, folder)

    def _row(self, name: str, party: _Party, index: int) -> Row:
        point = self._workload.points[index]
        memory = party.memory
        ceilings = self._ceilings[index]
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
            fma_gflops=tuple(found.fma_gflops for found in ceilings),
            copy_gbs=tuple(found.copy_gbs for found in ceilings),
            read_gbs=tuple(found.read_gbs for found in ceilings),
        )
        record = self._records[name, index]
        if record.cold is None or len(record.visits) < self._rounds:
            return row
        return _with_times(row, record, record.cold, self._workload.tolerance)


def _with_times(row: Row, record: _Record, cold: Visit, tolerance: float) -> Row:
    bound = max(tolerance, ENGINES[row.engine].tolerance)
    right = math.isnan(record.error) or record.error <= bound
    visits = record.visits
    controls = record.controls if len(record.controls) == len(visits) else []
    costs = [visit.cost for visit in visits if visit.cost.kernels]
    settling = [visit.settling for visit in visits if visit.settling.kernels]
    return replace(
        row,
        status="ok" if right else "wrong",
        runs_ms=_runs_ms(visits),
        firsts_ms=tuple(visit.first * 1e3 for visit in visits),
        controls_ms=_runs_ms(controls),
        cold_ms=cold.first * 1e3,
        error=record.error,
        kernels=_kernels(costs),
        compile_us=tuple(cost.total_us for cost in costs),
        longest_us=tuple(cost.max_us for cost in costs),
        settling_kernels=_kernels(settling),
        settling_us=tuple(cost.total_us for cost in settling),
        settling_longest_us=tuple(cost.max_us for cost in settling),
    )


def _runs_ms(visits: Sequence[Visit]) -> tuple[float, ...]:
    return tuple(statistics.median(visit.repeats) * 1e3 for visit in visits)


def _kernels(costs: Sequence[CompileCost]) -> int:
    return costs[0].kernels if costs else 0
