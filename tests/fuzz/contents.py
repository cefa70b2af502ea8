"""What the tensors of random graphs hold, as a pure function of a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from onnx import helper

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """How elements are drawn."""

    low: tuple[int, ...] | None = None
    """Integers from `low` (one per environment) to below `high`: indices, lengths."""
    high: tuple[int, ...] | None = None
    nonzero: bool = False
    positive: bool = False
    special: bool = False
    increasing: bool = False
    distinct: bool = False

    @property
    def same(self) -> bool:
        """Whether they are drawn alike in every environment."""
        return len(set(self.low or ())) <= 1 and len(set(self.high or ())) <= 1


# None so large that the order of a sum decides whether it overflows.
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0)


WORDS = ("1", "-2", "3.5", "0", "17", "1e3", "007")
"""Strings are numbers, which may be cast."""


def draw(
    seed: int, dtype: int, shape: Sequence[Any], contents: Contents, environment: int
) -> Array:
    generator = np.random.default_rng((seed, environment))
    kind = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
    shape = tuple(shape)
    if contents.low is not None and contents.high is not None:
        low, high = contents.low[environment], contents.high[environment]
        if contents.distinct:
            numbers = np.arange(low, max(high, low + int(np.prod(shape))))
            return generator.permutation(numbers)[: int(np.prod(shape))].reshape(shape).astype(kind)
        return generator.integers(low, max(high, low + 1), shape).astype(kind)
    if kind.kind == "O":
        return np.asarray(generator.choice(np.array(WORDS, object), shape), object)
    if kind.kind == "b":
        return np.asarray(generator.random(shape) < 0.5)
    if kind.kind in "iu":
        return _integers(generator, kind, shape, contents)
    return _floats(generator, kind, shape, contents)


def _integers(generator: np.random.Generator, kind: Any, shape: Any, contents: Contents) -> Array:
    low = 1 if contents.positive or contents.nonzero else (0 if kind.kind == "u" else -5)
    numbers = generator.integers(low, 6, shape)
    if contents.nonzero and kind.kind == "i":
        numbers = numbers * generator.choice([-1, 1], shape)
    result = numbers.astype(kind)
    if contents.special and not contents.positive:
        ends = np.iinfo(kind)
        choices = np.array([ends.min or 1, ends.max, ends.max - 1], kind)
        result = np.where(generator.random(shape) < 0.15, generator.choice(choices, shape), result)
    return np.asarray(result, kind)


def _floats(generator: np.random.Generator, kind: Any, shape: Any, contents: Contents) -> Array:
    if generator.random() < 0.5:
        numbers = generator.integers(-3, 4, shape).astype(np.float64)
    else:
        numbers = generator.uniform(-2, 2, shape)
    if contents.positive:
        numbers = np.abs(numbers) + 0.25
    elif contents.nonzero:
        numbers = np.where(np.abs(numbers) < 0.25, 0.5, numbers)
    result = np.asarray(numbers).astype(kind)
    if contents.special and not contents.positive:
        tiny = float(ml_dtypes.finfo(kind).tiny)
        choices = np.array([*SPECIAL, tiny, -tiny / 2], np.float64)
        chosen = generator.choice(choices, shape).astype(kind)
        result = np.where(generator.random(shape) < 0.2, chosen, result)
    return np.asarray(result, kind)
