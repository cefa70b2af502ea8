"""Numbers to check with, drawn at random.

Styles: "mixed", floats of both signs; "positive", floats around 1, so that roots and logarithms are
numbers; "special", "mixed" with NaN, infinities, zeros of both signs, denormals and the ends of the type among them,
for operators that add nothing up; "rare", a few of them, but no ends, so that some sums stay numbers. Integers stay
within what indices may be where something is looked up.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dvm_graph.check.extents import Extents
from dvm_graph.ir import Array, DType, Node

FREE = (-9, 10)
"""Bounds of integers that may be anything else as well."""
STYLES = ("mixed", "positive")
_ENDS = {
    DType.FLOAT64: (2.0**-1074, 2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
    DType.FLOAT32: (2.0**-149, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
    DType.FLOAT16: (2.0**-24, 2.0**-14, 65504.0),
    DType.BFLOAT16: (2.0**-133, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
}
"""The least number above 0, the least that is normal, and the greatest."""
_SHARE = {"special": 0.4, "rare": 0.03}
"""Of the elements that are special, about."""


def draw(
    generator: np.random.Generator,
    dtype: DType,
    shape: tuple[int, ...],
    style: str,
    low: int = FREE[0],
    high: int = FREE[1],
) -> Array:
    """An array of a type; integers in [low, high), of unsigned types in [0, high)."""
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        least = 0 if dtype.value.startswith("u") else low
        integers = generator.integers(least, max(high, least + 1), shape).astype(dtype.numpy)
        return _mixed_in(generator, integers, dtype, style) if (low, high) == FREE else integers
    numbers = generator.standard_normal(shape)
    if style == "positive":
        numbers = 0.5 + generator.random(shape)
    return _mixed_in(generator, np.asarray(numbers).astype(dtype.numpy), dtype, style)


def _mixed_in(generator: np.random.Generator, array: Array, dtype: DType, style: str) -> Array:
    """Special values in the place of some."""
    if style not in _SHARE:
        return array
    values = _special(dtype, ends=style == "special")
    chosen = generator.random(array.shape) < _SHARE[style]
    return np.where(chosen, values[generator.integers(0, len(values), array.shape)], array)


def _special(dtype: DType, ends: bool) -> Array:
    if dtype.is_integer:
        integers = np.iinfo(dtype.numpy)
        return np.array([integers.min, integers.max, integers.max - 1, 0, 1], dtype.numpy)
    small, normal, most = _ENDS[dtype]
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, small, -small, 0.75 * normal]
    if ends:
        values += [most, -most, 0.5, 1.0, -1.0, 2.0**24]
    with np.errstate(over="ignore"):
        return np.array(values).astype(dtype.numpy)


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
    return (0, 8) if bits else FREE
