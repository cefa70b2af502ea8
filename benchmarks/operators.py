"""The DVM paper's four operator and subgraph datasets, scaled to a machine with two cores.

In: a seed and a count. Out: `Workload`s of random shapes, the same for the same seed. The ranges are the paper's
(its table of dynamic shape ranges) with these scalings, chosen so that tensors reach from the second-level cache to
over 100 MB and one pass over a dataset takes a second or two:

    matmul, addmm    m in [1, 8192] and (n, k) in D      all divided by 8
    LayerNorm        [b, 8192, h], b in [1, 60]          8192 and h divided by 8
    if-else-add      b <= 256, s <= 512, f <= 8192       divided by 4, 2 and 2.67: the largest tensor is 201 MB
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.graphs import write_graph
from benchmarks.workload import Dims, Feeds, Point, Source, Workload, random_array

COUNT = 60
"""Shapes of a dataset, as in the paper."""

HELD = 3
"""Points held at once: enough for a visit to begin at one that the engine did not run last (`measure`)."""

LLM_WEIGHTS = (
    (4096, 4096),
    (11008, 4096),
    (4096, 11008),
    (5120, 5120),
    (13696, 5120),
    (5120, 13696),
    (8192, 8192),
    (28672, 8192),
    (8192, 28672),
)
"""(n, k) of common LLMs: the paper's D."""
_SCALE = 8
MAX_M = 8192 // _SCALE
WEIGHTS = tuple((n // _SCALE, k // _SCALE) for n, k in LLM_WEIGHTS)
MAX_B, SEQUENCE = 60, 8192 // _SCALE
WIDTHS = tuple(h // _SCALE for h in (1024, 2048, 3072, 4096))
BRANCH_LIMITS = {"b": 256 // 4, "s": 512 // 2, "f": 3072}


def _matrix_dims(generator: np.random.Generator) -> Dims:
    n, k = WEIGHTS[generator.integers(len(WEIGHTS))]
    return {"m": int(generator.integers(1, MAX_M + 1)), "n": n, "k": k}


def _norm_dims(generator: np.random.Generator) -> Dims:
    width = WIDTHS[generator.integers(len(WIDTHS))]
    return {"b": int(generator.integers(1, MAX_B + 1)), "s": SEQUENCE, "h": width}


def _branch_dims(generator: np.random.Generator) -> Dims:
    dims = {name: int(generator.integers(1, limit + 1)) for name, limit in BRANCH_LIMITS.items()}
    return {**dims, "taken": int(generator.integers(2))}


def _matrices(generator: np.random.Generator, dims: Dims) -> Feeds:
    m, n, k = dims["m"], dims["n"], dims["k"]
    return {"a": random_array(generator, m, k), "b": random_array(generator, k, n)}


def _addmm(generator: np.random.Generator, dims: Dims) -> Feeds:
    bias = random_array(generator, dims["m"], dims["n"])
    return {**_matrices(generator, dims), "c": bias}


def _norm(generator: np.random.Generator, dims: Dims) -> Feeds:
    x = random_array(generator, dims["b"], dims["s"], dims["h"])
    scale, bias = (random_array(generator, dims["h"]) for _ in range(2))
    return {"x": x, "scale": scale, "bias": bias}


def _branch(generator: np.random.Generator, dims: Dims) -> Feeds:
    x, y = (random_array(generator, dims["b"], dims["s"], dims["f"]) for _ in range(2))
    condition = np.float32(dims["taken"])
    return {"a": np.asarray(condition), "b": np.asarray(np.float32(0.5)), "x": x, "y": y}


def _matrix_flops(dims: Dims) -> int:
    return 2 * dims["m"] * dims["n"] * dims["k"]


def _no_flops(dims: Dims) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Dataset:
    """How to draw a shape, the feeds at a shape, and what the shape costs."""

    draw: Callable[[np.random.Generator], Dims]
    feeds: Callable[[np.random.Generator, Dims], Feeds]
    flops: Callable[[Dims], int]
    bytes: Callable[[Dims], int]


def _matmul_bytes(dims: Dims) -> int:
    m, n, k = dims["m"], dims["n"], dims["k"]
    return 4 * (m * k + k * n + m * n)


DATASETS: Mapping[str, Dataset] = {
    "matmul": Dataset(_matrix_dims, _matrices, _matrix_flops, _matmul_bytes),
    "layer_norm": Dataset(
        _norm_dims, _norm, _no_flops, lambda dims: 4 * 2 * dims["b"] * dims["s"] * dims["h"]
    ),
    "addmm": Dataset(
        _matrix_dims,
        _addmm,
        _matrix_flops,
        lambda dims: _matmul_bytes(dims) + 4 * dims["m"] * dims["n"],
    ),
    "if_else_add": Dataset(
        _branch_dims, _branch, _no_flops, lambda dims: 4 * 3 * dims["b"] * dims["s"] * dims["f"]
    ),
}


def sample(name: str, seed: int, count: int = COUNT) -> list[Dims]:
    """`count` shapes of a dataset; a longer sample starts with the shorter one."""
    generator = np.random.default_rng([seed, sorted(DATASETS).index(name)])
    return [DATASETS[name].draw(generator) for _ in range(count)]


def workload(name: str, seed: int, count: int, folder: Path) -> Workload:
    dataset = DATASETS[name]
    points = tuple(
        _point(dataset, dims, seed, index) for index, dims in enumerate(sample(name, seed, count))
    )
    source = Source(str(write_graph(name, folder)), operator=name)
    return Workload("operators", name, source, points, HELD, True)


def _point(dataset: Dataset, dims: Dims, seed: int, index: int) -> Point:
    def feeds() -> Feeds:
        return dataset.feeds(np.random.default_rng([seed, index]), dims)

    return Point(dims, feeds, dataset.flops(dims), dataset.bytes(dims))


def constant_weight_workload(seed: int, folder: Path) -> Workload:
    """Matmul with B a constant of the model, as in a linear layer: for information, not one of the paper's."""
    n, k = WEIGHTS[3]
    generator = np.random.default_rng(seed)
    weight = random_array(generator, k, n)
    path = write_graph("matmul_constant", folder, {"b": weight})
    points = []
    for m in (1, 2, 4, 7, 16, 33, 64, 128, 257, 512, 1024):
        dims = {"m": m, "n": n, "k": k}

        def feeds(m: int = m) -> Feeds:
            return {"a": random_array(np.random.default_rng([seed, m]), m, k)}

        points.append(Point(dims, feeds, _matrix_flops(dims), _matmul_bytes(dims)))
    source = Source(str(path), operator="matmul")  # B is bound to it
    return Workload("operators", "matmul_constant", source, tuple(points), HELD, True)
