"""Whole models against onnxruntime, over a grid of dims never seen before.

For each model: kernels before and after fusion, compile time per kernel, the first run at a new
shape against repeats, running time, load time and resident memory against onnxruntime.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.engines import Feeds, Worker
from models import base_path, random_feeds

Dims = Mapping[str, int]


def _grid(*points: tuple[int, int]) -> tuple[Dims, ...]:
    return tuple({"batch": batch, "seq": seq} for batch, seq in points)


GRIDS: Mapping[str, Sequence[Dims]] = {
    "bert": _grid((1, 32), (1, 128), (2, 128), (4, 128), (1, 512), (3, 77)),
    "gpt2": _grid((1, 32), (1, 128), (3, 77)),
    "vit": ({"batch": 1}, {"batch": 2}, {"batch": 3}),
    "llama": _grid((1, 32), (1, 128), (3, 77)),
    "qwen3": _grid((1, 32), (1, 128), (3, 77)),
    "mmoe": ({"batch": 1}, {"batch": 64}, {"batch": 333}),
}


@dataclass(frozen=True, slots=True)
class Point:
    """One shape. Times are medians over the repeats, in seconds."""

    dims: Dims
    first: float
    repeat: float
    onnxruntime: float
    noise: float
    """Spread of onnxruntime against itself: its odd turns over its even ones."""
    compile_mean_us: float
    compile_max_us: float
    max_error: float

    @property
    def speedup(self) -> float:
        return self.onnxruntime / self.repeat


@dataclass(frozen=True, slots=True)
class ModelResult:
    name: str
    points: tuple[Point, ...]
    basic_operators: int
    kernels: int
    load_ratio: float
    memory_ratio: float

    @property
    def speedup(self) -> float:
        return statistics.geometric_mean(point.speedup for point in self.points)

    @property
    def first_over_repeat(self) -> float:
        return statistics.geometric_mean(point.first / point.repeat for point in self.points)


def run_model(name: str, threads: int, repeats: int) -> ModelResult:
    path = base_path(name)
    ours, theirs = Worker("dvm_graph", path, threads), Worker("onnxruntime", path, threads)
    try:
        _warm_up(ours, theirs, path, GRIDS[name][0])
        points = tuple(_measure(ours, theirs, path, dims, repeats) for dims in GRIDS[name])
        memory = ours.resident_bytes() / theirs.resident_bytes()
    finally:
        ours.close()
        theirs.close()
    basic, kernels = _count_kernels(path)
    loads = _load_ratio(path, threads)
    return ModelResult(name, points, basic, kernels, loads, memory)


def _warm_up(ours: Worker, theirs: Worker, path: Path, dims: Dims) -> None:
    """Touches every weight once, at a shape next to those measured."""
    feeds = random_feeds(path, _neighbour(dims), 0)
    ours.turn(feeds)
    theirs.turn(feeds)


def _neighbour(dims: Dims) -> Dims:
    """Dims of about the same cost: the largest one is one smaller, or larger where all are 1."""
    name = max(dims, key=dims.__getitem__)
    return {**dims, name: dims[name] - 1 if dims[name] > 1 else 2}


def _measure(ours: Worker, theirs: Worker, path: Path, dims: Dims, repeats: int) -> Point:
    """First runs: the shape is left for another one in between, so that each is a new shape again."""
    feeds = random_feeds(path, dims, 1)
    other = random_feeds(path, _neighbour(dims), 2)
    first, repeat, reference, costs = [], [], [], []
    for _ in range(repeats):
        ours.turn(other)
        turn = ours.turn(feeds)
        first.append(turn.seconds)
        costs.append(turn.compile_cost)
        reference.append(theirs.turn(feeds).seconds)
        repeat.append(ours.turn(feeds).seconds)
        reference.append(theirs.turn(feeds).seconds)
    return Point(
        dims=dims,
        first=statistics.median(first),
        repeat=statistics.median(repeat),
        onnxruntime=statistics.median(reference),
        noise=statistics.median(reference[1::2]) / statistics.median(reference[::2]),
        compile_mean_us=statistics.median(cost.mean_us for cost in costs),
        compile_max_us=statistics.median(cost.max_us for cost in costs),
        max_error=_max_error(ours, theirs, feeds),
    )


def _max_error(ours: Worker, theirs: Worker, feeds: Feeds) -> float:
    """Largest absolute error over the largest magnitude of the output it is in."""
    errors = []
    for actual, expected in zip(ours.outputs(feeds), theirs.outputs(feeds), strict=True):
        difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
        errors.append(float(difference.max() / np.abs(expected).max()))
    return max(errors)


def _count_kernels(path: Path) -> tuple[int, int]:
    import dvm_graph

    report = dvm_graph.optimize(path).report()
    return report.basic_operators, report.kernels


def _load_ratio(path: Path, threads: int, rounds: int = 3) -> float:
    """Loading by us over loading by onnxruntime, median of interleaved rounds in fresh processes."""
    ratios = []
    for _ in range(rounds):
        seconds = []
        for engine in ("dvm_graph", "onnxruntime"):
            worker = Worker(engine, path, threads)
            seconds.append(worker.load_seconds)
            worker.close()
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios)
