"""What float values stand for that were made of integers, so that what reads them may compute on those.

A decomposition notes it (`Builder.meanings`) beside the floats, which are built all the same: where nobody needs
them in the end, they are left out as unused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dvm_graph.ir import DType, Value
from dvm_graph.symbolic.builder import Builder

_LARGEST = 2.0**90
"""Of what is moderate: an int32 times it is far from the largest float32, and its reciprocal from denormal ones."""


@dataclass(frozen=True, slots=True)
class Dequantized:
    """`(x - zero) * scale`: scale and zero are numbers, or vectors along an axis of x."""

    x: Value
    scale: Value
    zero: Value | None
    axis: int

    def per_tensor(self) -> bool:
        return all(parameter is None or _is_one(parameter) for parameter in (self.scale, self.zero))

    def along(self, axis: int) -> bool:
        """Whether no parameter varies along another axis than this one."""
        return self.per_tensor() or self.axis == axis % self.x.rank


@dataclass(frozen=True, slots=True)
class Scaled:
    """`numbers * factor`: whole numbers, and a moderate float32 constant above 0 that broadcasts against them."""

    numbers: Value
    factor: Value


def moderate(factors: ArrayLike) -> bool:
    """Whether whole numbers of 32 bits times any of these are as exact as float32 is, and no 0 but for that of 0.

    To compute on the numbers instead of the floats is right for moderate scales alone: what is infinite, NaN or 0 in
    float32 stands for no numbers, and what is denormal for fewer.
    """
    sizes = np.abs(np.asarray(factors, np.float64))
    return bool(np.all((sizes > 1 / _LARGEST) & (sizes < _LARGEST)))


def dequantized(builder: Builder, value: Value | None) -> Dequantized | None:
    meaning = None if value is None else builder.meanings.get(value)
    return meaning if isinstance(meaning, Dequantized) else None


def whole_numbers(builder: Builder, value: Value) -> Scaled | None:
    meaning = builder.meanings.get(value)
    return meaning if isinstance(meaning, Scaled) else None


def real(builder: Builder, numbers: Value, factor: Value) -> Value:
    """The float32 that whole numbers times a factor are, with a note of them where the factor is known and moderate."""
    y = builder.mul(builder.cast(numbers, DType.FLOAT32), factor)
    if factor.data is not None and moderate(factor.data) and np.all(np.asarray(factor.data) > 0):
        builder.meanings[y] = Scaled(numbers, factor)
    return y


def same(meaning: Dequantized, scale: Value, zero: Value | None) -> bool:
    """Whether constants are the scale, a moderate one, and the zero point of a whole tensor."""
    if not meaning.per_tensor() or not _is_one(scale) or not (zero is None or _is_one(zero)):
        return False
    if scale.data is None or not moderate(scale.data):
        return False
    found = [_number(value) for value in (meaning.scale, meaning.zero, scale, zero)]
    return None not in found and found[:2] == found[2:]


def _number(parameter: Value | None) -> float | None:
    if parameter is None:
        return 0.0
    return None if parameter.data is None else float(np.asarray(parameter.data).reshape(()))


def _is_one(parameter: Value) -> bool:
    return parameter.rank == 0 or parameter.shape == (1,)
