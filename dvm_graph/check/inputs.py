"""Numbers to check with, drawn at random.

Styles: "mixed", floats of both signs; "positive", floats around 1, so that roots and logarithms are
numbers. Integers stay within what indices may be where something is looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from dvm_graph.check.extents import Extents
from dvm_graph.ir import DType, Node

Array: TypeAlias = np.ndarray[Any, Any]

STYLES = ("mixed", "positive")


def draw(
    generator: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    style: str,
    low: int = -9,
    high: int = 10,
) -> Array:
    """An array of a type; integers in [low, high), of unsigned types in [0, high)."""
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        least = 0 if dtype.value.startswith("u") else low
        return generator.integers(least, max(high, least + 1), shape).astype(dtype.numpy)
    numbers = generator.standard_normal(shape)
    if style == "positive":
        numbers = 0.5 + generator.random(shape)
    result: Array = np.asarray(numbers).astype(dtype.numpy)
    return result


def index_range(nodes: Iterable[Node], extents: Extents) -> tuple[int, int]:
    """Integers that every operator takes: valid indices, shifts of less than a byte, powers."""
    limits = []
    bits = False
    for node in nodes:
        if node.op == "check_index":
            limits.append(extents.dim(node.attrs["limit"]))
        elif node.op == "gather":
            limits.append(extents.dim((node.required(0).shape or ())[node.attrs["axis"]]))
        bits |= node.op.startswith("shift_") or node.op == "pow"
    if limits:
        return -min(limits), min(limits)
    return (0, 8) if bits else (-9, 10)
