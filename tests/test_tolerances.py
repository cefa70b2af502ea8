from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.tolerances import assert_close, tolerance


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_bound_is_a_few_units_in_the_last_place(dtype: type) -> None:
    unit = float(ml_dtypes.finfo(dtype).eps)
    assert unit < tolerance(dtype).relative < 32 * unit


def test_bound_grows_with_the_root_of_the_reduction_length() -> None:
    assert tolerance(np.float32, 400).absolute == pytest.approx(20 * tolerance(np.float32).absolute)
    assert tolerance(np.float32, 0) == tolerance(np.float32, 1)


def test_integers_and_booleans_match_exactly() -> None:
    assert_close(np.arange(3), np.arange(3), reduction_length=1000)
    with pytest.raises(AssertionError):
        assert_close(np.array([10**9]), np.array([10**9 + 1]), reduction_length=1000)
    with pytest.raises(AssertionError):
        assert_close(np.array([True]), np.array([False]))


def test_shape_and_dtype_are_part_of_the_answer() -> None:
    value = np.zeros((1, 3), np.float32)
    with pytest.raises(AssertionError, match="shape"):
        assert_close(value, value[0])
    with pytest.raises(AssertionError, match="dtype"):
        assert_close(value, value.astype(np.float64))


def test_special_values() -> None:
    value = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert_close(value, value.copy())
    with pytest.raises(AssertionError):
        assert_close(value, -value)


def test_least_precise_type_on_the_way_decides() -> None:
    actual, expected = np.float32([1.001]), np.float32([1.0])
    assert_close(actual, expected, np.float16)
    with pytest.raises(AssertionError):
        assert_close(actual, expected)
