"""What is run: a model, the dims to run it at, and where each kind of engine finds it.

Nothing here imports an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Dims = Mapping[str, int]
Feeds = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """The same model for every engine."""

    path: str
    """The ONNX file."""
    family: str = ""
    """Name in `models.registry`, for a model whose torch module the file was exported from."""
    operator: str = ""
    """Name of a function in `benchmarks.torch_operators`, for an operator or subgraph."""


@dataclass(frozen=True, slots=True)
class Point:
    """One shape (and, for a branch, one condition)."""

    dims: Dims
    feeds: Callable[[], Feeds]
    flops: int = 0
    """Of the dense operators; 0 where the bytes count."""
    bytes: int = 0
    """That have to cross the memory bus: weights where they dominate, else inputs and outputs."""

    @property
    def label(self) -> str:
        return " ".join(f"{name}={extent}" for name, extent in self.dims.items())


@dataclass(frozen=True, slots=True)
class Workload:
    """A model or a dataset."""

    part: str
    """`operators`, `memory-bound`, `branches`, `models` or `zoo`."""
    name: str
    source: Source
    points: tuple[Point, ...]
    held: int
    """Points whose feeds an engine holds at once, or a few more; rounds go over so many of them in turn."""
    keeps_memory: bool
    """The allocator keeps freed blocks: outputs of operators would else be fresh pages at every run."""
    tolerance: float = 0.0
    """How far results may be apart, where engines round on the way: in steps of quantised values, say."""
    shown: Mapping[str, int] = field(default_factory=dict)
    """How many of the points, evenly spread, an engine is shown; all of them where it is not here."""

    def shown_to(self, engine: str) -> frozenset[int]:
        """Indices of points."""
        count = len(self.points)
        return spread(self.shown.get(engine, count), count)


def narrowed(workload: Workload, labels: Collection[str], least: int = 3) -> Workload:
    """With the points of these labels, and others so that there are `least`; `KeyError` names an unknown label."""
    chosen = set(labels)
    if unknown := chosen - {point.label for point in workload.points}:
        raise KeyError(min(unknown))
    for point in workload.points:
        if len(chosen) < least:
            chosen.add(point.label)
    points = tuple(point for point in workload.points if point.label in chosen)
    return replace(workload, points=points)


def random_array(generator: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return generator.standard_normal(shape, dtype=np.float32)


def spread(count: int, of: int) -> frozenset[int]:
    """`count` indices out of `of`, evenly spread; all of them where there are no more."""
    if count >= of:
        return frozenset(range(of))
    return frozenset(index * of // count for index in range(count))
