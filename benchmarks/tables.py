"""Markdown tables and what they say, as functions of the rows alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.paired import (
    SUBJECT,
    achieved,
    best_peer,
    engines,
    geometric_mean,
    of_workload,
    pairs,
    percentile,
    workloads,
)
from benchmarks.rows import Row
from benchmarks.stream import StreamMemory, StreamRow

ENGINE_TITLES: Mapping[str, str] = {
    "inductor_dynamic": "Inductor dynamic",
    "inductor_static": "Inductor static",
    "torch": "torch eager",
    "mindspore": "MindSpore O0",
    "openvino": "OpenVINO",
}


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
        )


def title(engine: str) -> str:
    return ENGINE_TITLES.get(engine, engine)


def number(value: float, digits: int = 2) -> str:
    """Fixed digits; scientific where they would hide the number; empty for NaN."""
    if math.isnan(value):
        return ""
    if value and not 10**-digits <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.{digits}f}"


def points_table(rows: Sequence[Row]) -> Table:
    """Every point: times of all engines, and what the subject reaches of the ceiling that binds."""
    names = engines(rows)
    columns = (
        "workload",
        "point",
        *(f"{title(name)} ms" for name in names),
        "of ceiling",
        "first/repeat",
        "compile mean us",
        "compile max us",
        "noise",
        "max error",
    )
    lines = []
    for workload in workloads(rows):
        for point in _points(of_workload(rows, workload)):
            lines.append((workload, point[0].point, *_point_cells(point, names)))
    return Table("Running time per shape", columns, tuple(lines))


def _points(rows: Sequence[Row]) -> list[list[Row]]:
    indices = dict.fromkeys(row.index for row in rows)
    return [[row for row in rows if row.index == index] for index in indices]


def _point_cells(point: Sequence[Row], names: Sequence[str]) -> Iterable[str]:
    by_engine = {row.engine: row for row in point}
    for name in names:
        row = by_engine.get(name)
        yield "" if row is None else number(row.run_ms) if row.ok else row.status[:40]
    subject = by_engine.get(SUBJECT)
    if subject is None or not subject.ok:
        yield from [""] * 6
        return
    control = by_engine.get("onnxruntime", subject)
    yield number(achieved(subject))
    yield number(subject.first_ms / subject.run_ms, 3)
    yield number(subject.compile_mean_us)
    yield number(subject.compile_max_us)
    yield number(control.spread, 3)
    yield number(max((row.error for row in point if row.error >= 0), default=math.nan))


def speedup_table(rows: Sequence[Row]) -> Table:
    """As the paper's table of speed-ups: the subject against each engine on each workload."""
    columns = ("workload", "against", "points", "geometric mean", "range", "share above 1")
    lines = []
    for workload in workloads(rows):
        chosen = of_workload(rows, workload)
        best = best_peer(chosen)
        for name in engines(chosen):
            found = [pair.speedup for pair in pairs(chosen, name)]
            if name == SUBJECT or not found:
                continue
            mark = " (best peer)" if name == best else ""
            lines.append(
                (
                    workload,
                    title(name) + mark,
                    str(len(found)),
                    number(geometric_mean(found), 3),
                    f"{min(found):.2f} - {max(found):.2f}",
                    f"{100 * sum(x > 1 for x in found) / len(found):.0f} %",
                )
            )
    return Table("Speed-up of dvm_graph", columns, tuple(lines))


def losses_table(rows: Sequence[Row], below: float = 0.95, most: int = 20) -> Table:
    """The points where another engine is ahead, the worst first."""
    losses = sorted(
        (
            (pair.speedup, pair.subject, pair.peer)
            for name in engines(rows)
            if name != SUBJECT
            for pair in pairs(rows, name)
            if pair.speedup < below
        ),
        key=lambda loss: loss[0],
    )
    lines = [
        (subject.workload, subject.point, title(peer.engine), number(speedup, 3))
        for speedup, subject, peer in losses[:most]
    ]
    return Table("Losses", ("workload", "point", "against", "speed-up"), tuple(lines))


def _by_engine(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row], str]]:
    """Of every engine at every workload: both names, the points where it worked, its first status."""
    for workload in workloads(rows):
        chosen = of_workload(rows, workload)
        for name in engines(chosen):
            seen = [row for row in chosen if row.engine == name]
            yield workload, name, [row for row in seen if row.ok], seen[0].status


def compile_table(rows: Sequence[Row]) -> Table:
    """As the paper's table of compile times: CT and RT over the points an engine was shown."""
    columns = ("workload", "engine", "points", "max CT ms", "total CT ms", "total RT ms", "CT/RT")
    lines = []
    for workload, name, shown, _ in _by_engine(rows):
        if shown:
            compiling = sum(row.compile_ms for row in shown)
            running = sum(row.run_ms for row in shown)
            largest = max(row.compile_max_ms for row in shown)
            cells = (number(largest, 3), number(compiling, 3), number(running, 1))
            ratio = number(compiling / running, 4)
            lines.append((workload, title(name), str(len(shown)), *cells, ratio))
    return Table("Compile time", columns, tuple(lines))


def resource_table(rows: Sequence[Row]) -> Table:
    """Loading and memory of each engine's process, and what it reached of the ceilings."""
    columns = ("workload", "engine", "load s", "resident MB", "peak MB", "of ceiling", "noise")
    lines = []
    for workload, name, shown, status in _by_engine(rows):
        if not shown:
            lines.append((workload, title(name), "", "", "", "", status))
            continue
        last = shown[-1]
        cells = (
            number(last.load_s),
            number(last.resident_mb, 0),
            number(last.peak_mb, 0),
            number(geometric_mean(achieved(row) for row in shown)),
            number(_noise(shown), 3),
        )
        lines.append((workload, title(name), *cells))
    return Table("Loading, memory, share of the ceiling", columns, tuple(lines))


def _noise(rows: Sequence[Row]) -> float:
    """Geometric mean of how far an engine is from itself."""
    return geometric_mean(max(row.spread, 1 / row.spread) for row in rows if row.spread > 0)


def ceilings_table(rows: Sequence[Row]) -> Table:
    """The ceilings as they were before each workload."""
    columns = ("workload", "FMA GFLOP/s", "copy GB/s", "read GB/s")
    lines = []
    for workload in workloads(rows):
        row = of_workload(rows, workload)[0]
        ceilings = (row.fma_gflops, row.copy_gbs, row.read_gbs)
        lines.append((workload, *(number(value, 1) for value in ceilings)))
    return Table("Ceilings", columns, tuple(lines))


def stream_table(rows: Sequence[StreamRow], memories: Sequence[StreamMemory]) -> Table:
    """Percentiles of normalised time, first-seen shapes against repeats, memory."""
    columns = (
        "engine",
        "shapes",
        "p50 of FLOP ceiling",
        "p99/p50 by FLOPs",
        "p99/p50 by floor",
        "first/repeat",
        "slowest ms",
        "cold ms",
        "compile mean us",
        "compile max us",
        "CT/RT",
        "resident MB",
        "largest alone MB",
        "ratio",
        "max error",
    )
    lines = []
    for memory in memories:
        seen = [row for row in rows if row.engine == memory.engine]
        if memory.status != "ok" or not seen:
            lines.append((title(memory.engine), memory.status, *[""] * (len(columns) - 2)))
            continue
        lines.append((title(memory.engine), str(len(seen)), *_stream_cells(seen, memory)))
    return Table("Stream", columns, tuple(lines))


def _stream_cells(seen: Sequence[StreamRow], memory: StreamMemory) -> Iterable[str]:
    by_flops = normalised(seen, lambda row: row.flops / memory.fma_gflops / 1e6)
    by_floor = normalised(seen, lambda row: floor_ms(row, memory))
    yield number(1 / percentile(by_flops, 50))
    yield number(percentile(by_flops, 99) / percentile(by_flops, 50))
    yield number(percentile(by_floor, 99) / percentile(by_floor, 50))
    twice = [row for row in seen if row.repeat_ms > 0]
    yield number(geometric_mean(row.first_ms / row.repeat_ms for row in twice), 3)
    yield number(max(row.first_ms for row in seen), 1)
    yield number(memory.cold_ms, 0)
    compiled = [row for row in seen if row.kernels]
    kernels = sum(row.kernels for row in compiled)
    total = sum(row.compile_total_us for row in compiled)
    yield number(total / kernels) if kernels else ""
    yield number(max(row.compile_max_us for row in compiled)) if compiled else ""
    yield number(total / 1e3 / sum(row.first_ms for row in seen), 4) if compiled else ""
    yield number(memory.resident_mb, 0)
    yield number(memory.largest_alone_mb, 0)
    yield number(memory.resident_mb / memory.largest_alone_mb)
    yield number(memory.error)


def normalised(rows: Sequence[StreamRow], floor: Callable[[StreamRow], float]) -> list[float]:
    return [row.first_ms / floor(row) for row in rows]


def floor_ms(row: StreamRow, memory: StreamMemory) -> float:
    """The longer of doing the FLOPs and reading the weights once, at the ceilings."""
    return max(row.flops / memory.fma_gflops, row.weight_bytes / memory.read_gbs) / 1e6
