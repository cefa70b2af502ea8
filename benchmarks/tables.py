"""Markdown tables and what they say, as functions of the rows alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.engines import ENGINES
from benchmarks.paired import (
    best_peer,
    engines,
    geometric_mean,
    lowest,
    of_workload,
    pairs,
    percentile,
    workloads,
)
from benchmarks.rows import Row, median
from benchmarks.stream import StreamMemory, StreamRow
from benchmarks.turns import REFERENCE, SUBJECT

ENGINE_TITLES: Mapping[str, str] = {
    "inductor_dynamic": "Inductor dynamic",
    "inductor_static": "Inductor static",
    "inductor_branches": "Inductor per branch",
    "torch": "torch eager",
    "mindspore": "MindSpore O0",
    "openvino": "OpenVINO",
}

LONG_COMPILE_US = 50
"""No kernel should take longer to compile."""


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
        "compile us",
        "cold us",
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
    control = by_engine.get(REFERENCE, subject)
    yield number(subject.achieved)
    yield number(subject.first_over_repeat, 3)
    yield number(median(subject.compile_us), 1)
    yield number(median(subject.settling_us), 1)
    yield number(control.noise, 3)
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
    """The points where another engine is ahead that rounds no operands, the worst first."""
    losses = sorted(
        (
            (pair.speedup, pair.subject, pair.peer)
            for name in engines(rows)
            if name != SUBJECT and not ENGINES[name].rounds
            for pair in pairs(rows, name)
            if pair.speedup < below
        ),
        key=lambda loss: loss[0],
    )
    lines = [
        (subject.workload, subject.point, title(peer.engine), number(speedup, 3))
        for speedup, subject, peer in losses[:most]
    ]
    return Table(
        "Where dvm_graph is slower", ("workload", "point", "against", "speed-up"), tuple(lines)
    )


def again_table(before: Sequence[Row], again: Sequence[Row]) -> Table:
    """What a first run said of the points that were measured again: noise goes away, losses stay."""
    columns = ("workload", "point", "speed-up", "against", "again", "against", "rounds again")
    earlier = lowest(before)
    found = sorted(lowest(again).items(), key=lambda entry: entry[1].speedup)
    lines = []
    for (workload, point), pair in found:
        if (workload, point) in earlier:
            both = (earlier[workload, point], pair)
            cells = (
                cell for one in both for cell in (number(one.speedup, 3), title(one.peer.engine))
            )
            rounds = f"{min(pair.speedups):.2f} - {max(pair.speedups):.2f}"
            lines.append((workload, point, *cells, rounds))
    return Table("Lowest speed-up over any engine", columns, tuple(lines))


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


def kernels_table(rows: Sequence[Row]) -> Table:
    """What the subject's run-time compiler costs, in a process in service and in one that was stopped before."""
    columns = (
        *("workload", "points", "kernels", "RT ms"),
        *("CT ms", "CT/RT", "mean us", "longest us", "longest of all us"),
        *("cold CT/RT", "cold mean us", "cold longest us", "cold longest of all us"),
    )
    lines = []
    for workload, name, shown, _ in _by_engine(rows):
        compiled = [row for row in shown if row.kernels]
        if name != SUBJECT or not compiled:
            continue
        kernels = sum(row.kernels for row in compiled)
        total = sum(median(row.compile_us) for row in compiled)
        running = sum(row.run_ms for row in shown)
        service = _compile_cells(total, kernels, running, [row.longest_us for row in compiled])
        settling = [row for row in shown if row.settling_kernels]
        cold = _compile_cells(
            sum(median(row.settling_us) for row in settling),
            sum(row.settling_kernels for row in settling),
            sum(row.run_ms for row in settling),
            [row.settling_longest_us for row in settling],
        )
        cells = (str(len(shown)), str(kernels), number(running, 1), number(total / 1e3, 3))
        lines.append((workload, *cells, *service, *cold))
    return Table("Compile time per kernel", columns, tuple(lines))


def _compile_cells(
    total_us: float, kernels: int, running_ms: float, longest: Sequence[Sequence[float]]
) -> Iterator[str]:
    """Share of running time, mean per kernel, and the longest: of medians over rounds, and of all rounds."""
    if not kernels:
        yield from [""] * 4
        return
    yield f"{total_us / running_ms / 10:.2f} %"
    yield number(total_us / kernels, 1)
    yield number(max(map(median, longest)), 1)
    yield number(max(map(max, longest)), 1)


def resource_table(rows: Sequence[Row]) -> Table:
    """Loading and memory of each engine's process, and what it reached of the ceilings."""
    columns = ("workload", "engine", "load s", "resident MB", "peak MB", "of ceiling")
    lines = []
    for workload, name, shown, status in _by_engine(rows):
        if not shown:
            lines.append((workload, title(name), "", "", "", status))
            continue
        last = shown[-1]
        cells = (
            number(last.load_s),
            number(last.resident_mb, 0),
            number(last.peak_mb, 0),
            number(geometric_mean(row.achieved for row in shown)),
        )
        lines.append((workload, title(name), *cells))
    return Table("Loading, memory, share of the ceiling", columns, tuple(lines))


def noise_table(rows: Sequence[Row]) -> Table:
    """The control engine against itself: how far a ratio may be off that means nothing."""
    columns = ("workload", "points", "geometric mean", "median deviation from 1", "beyond 5 %")
    lines = []
    for workload in workloads(rows):
        noises = [row.noise for row in of_workload(rows, workload) if row.ok and row.controls_ms]
        if not noises:
            continue
        deviations = [abs(noise - 1) for noise in noises]
        beyond = sum(deviation > 0.05 for deviation in deviations) / len(noises)
        cells = (number(geometric_mean(noises), 3), number(median(deviations), 3))
        lines.append((workload, str(len(noises)), *cells, f"{100 * beyond:.0f} %"))
    return Table("Noise", columns, tuple(lines))


def ceilings_table(rows: Sequence[Row]) -> Table:
    """Median and range over all rounds at all points."""
    columns = ("workload", "FMA GFLOP/s", "copy GB/s", "read GB/s")
    lines = []
    for workload in workloads(rows):
        points = _points(of_workload(rows, workload))
        cells = []
        for kind in ("fma_gflops", "copy_gbs", "read_gbs"):
            seen = [rate for point in points for rate in getattr(point[0], kind)]
            known = [rate for rate in seen if not math.isnan(rate)]
            span = f" ({min(known):.1f} - {max(known):.1f})" if known else ""
            cells.append(number(median(known), 1) + span)
        lines.append((workload, *cells))
    return Table("Ceilings", columns, tuple(lines))


def stream_table(rows: Sequence[StreamRow], memories: Sequence[StreamMemory]) -> Table:
    """Percentiles of normalised time, first-seen shapes against repeats, memory."""
    columns = (
        "engine",
        "shapes",
        "dvm_graph's speed-up",
        "p50 of FLOP ceiling",
        "p99/p50 by FLOPs",
        "p99/p50 by floor",
        "first/repeat",
        "slowest ms",
        "cold ms",
        "compile mean us",
        "compile max us",
        "over 50 us",
        "control max us",
        "control over 50 us",
        "cold mean us",
        "cold max us",
        "CT/RT",
        "resident MB",
        "largest alone MB",
        "ratio",
        "max error",
    )
    lines = []
    subject = {row.index: row.first_ms for row in rows if row.engine == SUBJECT}
    for memory in memories:
        seen = [row for row in rows if row.engine == memory.engine]
        if memory.status != "ok" or not seen:
            lines.append((title(memory.engine), memory.status, *[""] * (len(columns) - 2)))
            continue
        speedup = geometric_mean(
            row.first_ms / subject[row.index] for row in seen if row.index in subject
        )
        cells = (str(len(seen)), number(speedup, 3), *_stream_cells(seen, memory))
        lines.append((title(memory.engine), *cells))
    return Table("Speed-up, times and memory", columns, tuple(lines))


def _stream_cells(seen: Sequence[StreamRow], memory: StreamMemory) -> Iterable[str]:
    by_flops = normalised(seen, lambda row: float(row.flops))
    by_floor = normalised(seen, floor_ms)
    of_ceiling = [row.flops / row.fma_gflops / 1e6 / row.first_ms for row in seen]
    yield number(percentile(of_ceiling, 50))
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
    for longest in ("compile_max_us", "control_max_us"):
        times = [getattr(row, longest) for row in compiled]
        yield number(max(times)) if compiled else ""
        yield str(sum(time > LONG_COMPILE_US for time in times)) if compiled else ""
    yield number(memory.settling_mean_us) if compiled else ""
    yield number(memory.settling_max_us) if compiled else ""
    yield number(total / 1e3 / sum(row.first_ms for row in seen), 4) if compiled else ""
    yield number(memory.resident_mb, 0)
    yield number(memory.largest_alone_mb, 0)
    yield number(memory.resident_mb / memory.largest_alone_mb)
    yield number(memory.error)


def normalised(rows: Sequence[StreamRow], floor: Callable[[StreamRow], float]) -> list[float]:
    return [row.first_ms / floor(row) for row in rows]


def floor_ms(row: StreamRow) -> float:
    """The longer of doing the FLOPs and reading the weights once, at the ceilings of the turn."""
    return max(row.flops / row.fma_gflops, row.weight_bytes / row.read_gbs) / 1e6
