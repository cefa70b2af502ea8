"""An `If` between element-wise operators, whose branches no choice between their results can stand for.

In: a seed and a count. Out: `Workload`s of random shapes and conditions, the same for the same seed. Extents are drawn
evenly by their logarithm, so that a third of the tensors is tiny.

    branch_product   a matrix product in one branch, a softmax in the other
    branch_long      more than 16 operators in each
    branch_reads     branches that read different values: a product by `w`, or a chain over `y`
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.graphs import write_graph
from benchmarks.workload import Dims, Feeds, Point, Source, Workload, random_array

COUNT = 60
"""Shapes and conditions of a dataset."""
ENGINES = (
    *("dvm_graph", "onnxruntime", "torch", "inductor_dynamic"),
    "inductor_branches",
)
"""Those that take part where none are named."""
DATASETS = ("branch_product", "branch_long", "branch_reads")
_HELD = 3
_MOST_ROWS, _MOST_COLUMNS = 2048, 512


def _extent(generator: np.random.Generator, most: int) -> int:
    return int(np.exp(generator.uniform(0.0, np.log(most + 1))))


def sample(name: str, seed: int, count: int = COUNT) -> list[Dims]:
    """`count` shapes, with the branch to take; a longer sample starts with the shorter one."""
    generator = np.random.default_rng([seed, DATASETS.index(name)])
    return [
        {
            "m": _extent(generator, _MOST_ROWS),
            "k": _extent(generator, _MOST_COLUMNS),
            "taken": int(generator.integers(2)),
        }
        for _ in range(count)
    ]


def workload(name: str, seed: int, count: int, folder: Path) -> Workload:
    points = tuple(_point(name, dims, seed, i) for i, dims in enumerate(sample(name, seed, count)))
    source = Source(str(write_graph(name, folder)), operator=name)
    return Workload("branches", name, source, points, _HELD, True)


def _point(name: str, dims: Dims, seed: int, index: int) -> Point:
    m, k = dims["m"], dims["k"]
    product = name != "branch_long" and bool(dims["taken"])

    def feeds() -> Feeds:
        generator = np.random.default_rng([seed, index])
        x, y = (random_array(generator, m, k) for _ in range(2))
        found = {"c": np.asarray(bool(dims["taken"])), "x": x, "y": y}
        if name != "branch_long":
            found["w"] = random_array(generator, k, k) / np.float32(k**0.5)
        return found

    return Point(dims, feeds, 2 * m * k * k if product else 0, 4 * 3 * m * k)
