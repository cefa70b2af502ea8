"""How closely a result has to match its reference: one table keyed by dtype, widened with the reduction length.

Invariants: integers and booleans match exactly; a floating-point bound grows with the square root of the number of
terms that were summed, as rounding errors of independent terms do. Tests pass their longest reduction; they do not
bring tolerances of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """`|actual - expected| <= absolute + relative * |expected|`."""

    relative: float
    absolute: float

    def scaled(self, factor: float) -> Tolerance:
        return Tolerance(self.relative * factor, self.absolute * factor)


# Sixteen units in the last place where arithmetic is done in the type itself, two where the type
# only stores what was computed in float32. The row of bfloat16 holds for f32 sums over operands rounded to
# it, too: a product is off by 2^-8 of itself at most, the sum of k of them by the root of k times that where
# terms have the size of 1.
_SINGLE_TERM: dict[np.dtype[Any], Tolerance] = {
    np.dtype(np.float64): Tolerance(4e-15, 4e-15),
    np.dtype(np.float32): Tolerance(2e-6, 2e-6),
    np.dtype(np.float16): Tolerance(2e-3, 2e-3),
    np.dtype(ml_dtypes.bfloat16): Tolerance(1.6e-2, 1.6e-2),
}

_EXACT = Tolerance(0.0, 0.0)


def tolerance(dtype: np.dtype[Any] | type, reduction_length: int = 1) -> Tolerance:
    """The bound for `dtype` after sums of `reduction_length` terms; exact for integers and booleans."""
    key = np.dtype(dtype)
    if key.kind in "iub":
        return _EXACT
    return _SINGLE_TERM[key].scaled(math.sqrt(max(1, reduction_length)))


def assert_close(
    actual: Array,
    expected: Array,
    dtype: np.dtype[Any] | type | None = None,
    reduction_length: int = 1,
) -> None:
    """Shapes and dtypes equal, values within the table's bound; NaN matches NaN, infinities match by sign.

    `dtype` (default: the result's) is the least precise type on the way to the result.
    """
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    bound = tolerance(actual.dtype if dtype is None else dtype, reduction_length)
    if bound == _EXACT:
        np.testing.assert_array_equal(actual, expected)
        return
    np.testing.assert_allclose(
        actual.astype(np.float64),
        expected.astype(np.float64),
        rtol=bound.relative,
        atol=bound.absolute,
        equal_nan=True,
    )


QUANTIZATION_STEPS = 1
"""How far quantised results may be apart: float32 decides how a quotient half-way between two numbers
is rounded, and the order of operations decides which side of the middle it comes out on."""


def assert_within_steps(
    actual: Array, expected: Array, reduction_length: int = 1, step: float = 0.0
) -> None:
    """As `assert_close`, but that integers may be `QUANTIZATION_STEPS` apart, and floats as many of the
    `step` between two numbers that they were dequantised to."""
    if actual.dtype.kind not in "iu" and step == 0:
        assert_close(actual, expected, reduction_length=reduction_length)
        return
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    apart = np.abs(actual.astype(np.float64) - expected.astype(np.float64)) / (step or 1)
    assert np.max(np.round(apart, 3), initial=0) <= QUANTIZATION_STEPS, f"{actual}, not {expected}"
