"""Memory-bound operators at extents that are awkward for tiles: primes, semiprimes, 1, and a vocabulary of 32,001.

Out: a `Workload` for each graph; the points are fixed, only their values come from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.graphs import write_graph
from benchmarks.workload import Dims, Feeds, Point, Source, Workload, random_array


@dataclass(frozen=True, slots=True)
class Entry:
    """Inputs by the names of their dims ("" is no dim: extent 1), the output's dims, and the points."""

    inputs: Mapping[str, tuple[str, ...]]
    output: tuple[str, ...]
    points: Sequence[Dims]

    def bytes(self, dims: Dims) -> int:
        """f32 inputs read and output written once."""
        tensors = [*self.inputs.values(), self.output]
        return 4 * sum(prod(dims.get(name, 1) for name in tensor) for tensor in tensors)


_ROWS = ({"r": 1, "c": 3072}, {"r": 77, "c": 3072}, {"r": 509, "c": 3072}, {"r": 2039, "c": 4099})
_BLOCKS = (
    {"b": 1, "s": 1, "h": 768},
    {"b": 3, "s": 77, "h": 768},
    {"b": 4, "s": 512, "h": 1021},
    {"b": 8, "s": 1021, "h": 2048},
)
_X = ("b", "s", "h")

OPERATORS: Mapping[str, Entry] = {
    "softmax": Entry(
        {"x": ("r", "c")}, ("r", "c"), [{"r": r, "c": 32001} for r in (1, 7, 128, 613)]
    ),
    "rms_norm": Entry({"x": _X, "scale": ("h",)}, _X, _BLOCKS),
    "gelu_erf": Entry({"x": ("r", "c"), "bias": ("c",)}, ("r", "c"), _ROWS),
    "gelu_tanh": Entry({"x": ("r", "c"), "bias": ("c",)}, ("r", "c"), _ROWS),
    "residual_layer_norm": Entry({"x": _X, "y": _X, "scale": ("h",), "bias": ("h",)}, _X, _BLOCKS),
    "broadcast": Entry(
        {"x": ("a", "", "c"), "y": ("", "b", ""), "z": ("a", "b", "c")},
        ("a", "b", "c"),
        ({"a": 7, "b": 11, "c": 13}, {"a": 7, "b": 641, "c": 333}, {"a": 101, "b": 1009, "c": 97}),
    ),
    "semiprime": Entry(
        {"x": ("n",), "y": ("n",)},
        ("n",),
        [{"n": n} for n in (101 * 103, 1009 * 1013, 4999 * 5003)],
    ),
    "transpose": Entry(
        {"x": ("a", "b", "c"), "y": ("c", "a", "b")},
        ("c", "a", "b"),
        (
            {"a": 12, "b": 64, "c": 77},
            {"a": 31, "b": 333, "c": 509},
            {"a": 16, "b": 1021, "c": 1021},
        ),
    ),
    "outer_sum": Entry(
        {"x": ("r", "c")},
        ("c",),
        (
            {"r": 31, "c": 37},
            {"r": 4096, "c": 1000},
            {"r": 500_009, "c": 37},
            {"r": 31, "c": 1_000_003},
        ),
    ),
}


def workload(name: str, seed: int, quick: bool, folder: Path) -> Workload:
    """`quick` leaves three points."""
    entry = OPERATORS[name]
    chosen = entry.points[:3] if quick else entry.points
    points = tuple(_point(entry, dims, seed) for dims in chosen)
    source = Source(str(write_graph(name, folder)), operator=name)
    return Workload("memory-bound", name, source, points, len(points), True)


def _point(entry: Entry, dims: Dims, seed: int) -> Point:
    def feeds() -> Feeds:
        generator = np.random.default_rng([seed, *dims.values()])
        return {
            name: random_array(generator, *(dims.get(dim, 1) for dim in tensor))
            for name, tensor in entry.inputs.items()
        }

    return Point(dims, feeds, bytes=entry.bytes(dims))
