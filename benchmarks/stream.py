"""A stream of random (batch, seq) shapes on an encoder: the spread of normalised times, first-seen shapes, memory.

In: a model's ONNX file, a seed, the number of shapes. Out: a `StreamRow` for each engine and shape, and what each
engine's process holds at the end next to a fresh process that ran the largest shape alone. Engines take turns by runs
of shapes, in an order drawn anew, with the machine's ceilings measured next to the subject's; a turn begins with a
shape that does not count, then every shape is run once when it comes, and in every tenth turn once more.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.engines import CompileCost
from benchmarks.flops import Work, count_work
from benchmarks.messages import Ceilings, Visit
from benchmarks.process import EngineError, Setting, Worker, noting, shared_folder, write_feeds
from benchmarks.rows import TOLERANCE, median
from benchmarks.turns import CEILINGS, REFERENCE, draw_turns
from benchmarks.workload import Dims, Feeds, Source
from models import base_path, random_feeds

MAX_BATCH = 2
SEQUENCES = (32, 128)
"""Under about 32 tokens an encoder's time is that of reading its weights, whatever the FLOPs."""
TURN = 20
"""Shapes that an engine runs in one turn."""
TWICE_EVERY = 10
"""Of so many turns, one runs every shape once more."""
ENGINES = ("dvm_graph", "onnxruntime", "inductor_dynamic")

Advance = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StreamRow:
    """One shape seen by one engine."""

    engine: str
    index: int
    batch: int
    seq: int
    flops: int
    weight_bytes: int
    first_ms: float
    repeat_ms: float
    """NaN where the shape was run only once."""
    kernels: int
    compile_max_us: float
    compile_total_us: float
    control_max_us: float
    """The longest of fixed sums timed for as long as the kernels took to compile, see `benchmarks.control`."""
    fma_gflops: float
    """Ceilings measured in the same turn."""
    read_gbs: float


@dataclass(frozen=True, slots=True)
class StreamMemory:
    """An engine's process after the stream."""

    engine: str
    status: str
    cold_ms: float
    """The first run of all, with whatever the engine compiles then."""
    error: float
    resident_mb: float
    peak_mb: float
    largest_alone_mb: float
    """Resident in a fresh process that ran the largest shape only."""
    settling_mean_us: float
    """Compiling a kernel in the runs that begin a turn, when the caches hold what other engines left."""
    settling_max_us: float


def sample(
    seed: int, count: int, batch: int = MAX_BATCH, seq: tuple[int, int] = SEQUENCES
) -> list[Dims]:
    """Uniform over 1 to `batch` and `seq`, ends included; a longer stream starts with the shorter one."""
    generator = np.random.default_rng(seed)
    return [
        {
            "batch": int(generator.integers(1, batch + 1)),
            "seq": int(generator.integers(seq[0], seq[1] + 1)),
        }
        for _ in range(count)
    ]


def work_of_encoder(path: Path) -> Callable[[Dims], Work]:
    """Counts an encoder at three shapes; in between, FLOPs are batch * (a + b seq + c seq^2) exactly."""
    lengths = np.array([1, 2, 4])
    counted = [count_work(path, {"batch": 1, "seq": int(seq)}) for seq in lengths]
    powers = np.vander(lengths, 3, increasing=True).astype(np.float64)
    factors = [round(x) for x in np.linalg.solve(powers, [float(work.flops) for work in counted])]

    def work(dims: Dims) -> Work:
        terms = (factor * dims["seq"] ** power for power, factor in enumerate(factors))
        return Work(dims["batch"] * sum(terms), counted[0].weight_bytes)

    return work


def run_stream(
    model: str,
    shapes: Sequence[Dims],
    engines: Sequence[str],
    setting: Setting,
    seed: int,
    advance: Advance,
) -> tuple[list[StreamRow], list[StreamMemory]]:
    """`advance` is told after every turn."""
    path = base_path(model)
    source = Source(str(path), family=model)
    work = work_of_encoder(path)
    largest = max(shapes, key=lambda dims: work(dims).flops)
    rows: list[StreamRow] = []
    failures: dict[str, str] = {}
    errors = dict.fromkeys(engines, math.nan)
    cold, resident, peak = (dict.fromkeys(engines, math.nan) for _ in range(3))
    settling: dict[str, list[CompileCost]] = {name: [] for name in engines}
    generator = random.Random(seed)
    with contextlib.ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(name, setting)) for name in engines}
        meter = stack.enter_context(Worker(CEILINGS, setting))
        warm_up = random_feeds(path, {"batch": 2, "seq": 17}, seed)
        for name, worker in workers.items():
            with noting(failures, name):
                worker.load(source)
                cold[name] = worker.stream([warm_up], 1)[0].first * 1e3
        for number, start in enumerate(range(0, len(shapes), TURN)):
            turn = shapes[start : start + TURN]
            feeds = [random_feeds(path, dims, seed) for dims in turn]
            repeats = 1 if number % TWICE_EVERY == 0 else 0
            seen: dict[str, list[Visit]] = {}
            ceilings = Ceilings()
            for name in draw_turns(engines, generator, control=False):
                with noting(failures, name):
                    if name == CEILINGS:
                        ceilings = meter.ceilings()
                        continue
                    seen[name] = workers[name].stream(feeds, repeats, warm_up)
                    settling[name].append(seen[name][0].settling)
            rows += [
                _row(name, start + i, dims, visits[i], work(dims), ceilings)
                for name, visits in seen.items()
                for i, dims in enumerate(turn)
            ]
            advance(f"{start + len(turn)} shapes")
        for name, worker in workers.items():
            with noting(failures, name):
                memory = worker.memory()
                resident[name], peak[name] = memory.resident / 1e6, memory.peak / 1e6
        errors |= _errors(workers, random_feeds(path, largest, seed, padded=True), failures)
    alone = {
        name: _alone(name, source, random_feeds(path, largest, seed), setting) for name in engines
    }
    summary = [
        StreamMemory(
            name,
            _status(failures.get(name, ""), errors[name]),
            cold[name],
            errors[name],
            resident[name],
            peak[name],
            alone[name],
            median([cost.total_us / cost.kernels for cost in settling[name] if cost.kernels]),
            max((cost.max_us for cost in settling[name]), default=math.nan),
        )
        for name in engines
    ]
    return rows, summary


def _status(failure: str, error: float) -> str:
    if failure:
        return failure
    return "ok" if math.isnan(error) or error <= TOLERANCE else "wrong"


def _row(
    name: str, index: int, dims: Dims, visit: Visit, work: Work, ceilings: Ceilings
) -> StreamRow:
    return StreamRow(
        name,
        index,
        dims["batch"],
        dims["seq"],
        work.flops,
        work.weight_bytes,
        visit.first * 1e3,
        visit.repeats[0] * 1e3 if visit.repeats else math.nan,
        visit.cost.kernels,
        visit.cost.max_us,
        visit.cost.total_us,
        visit.control_us,
        ceilings.fma_gflops,
        ceilings.read_gbs,
    )


def _errors(
    workers: Mapping[str, Worker], feeds: Feeds, failures: dict[str, str]
) -> dict[str, float]:
    """Of every engine at the largest shape, against the reference."""
    errors: dict[str, float] = {}
    if REFERENCE not in workers or REFERENCE in failures:
        return errors
    with shared_folder() as folder, shared_folder() as expected, noting(failures, REFERENCE):
        write_feeds(feeds, folder)
        for worker in workers.values():
            with noting(failures, worker.name):
                worker.hold(0, folder)
        workers[REFERENCE].save_outputs(0, expected)
        for name, worker in workers.items():
            with noting(failures, name):
                errors[name] = worker.error(0, expected)
    return errors


def _alone(name: str, source: Source, feeds: Feeds, setting: Setting) -> float:
    """Resident megabytes of a fresh process after the largest shape; NaN if it fails."""
    with Worker(name, setting) as worker:
        try:
            worker.load(source)
            worker.stream([feeds], 1)
            return worker.memory().resident / 1e6
        except EngineError:
            return math.nan
