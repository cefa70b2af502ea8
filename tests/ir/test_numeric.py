"""The numpy definition of the basic operators is whole."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest

from dvm_graph.ir import OPERATORS
from dvm_graph.ir.numeric import DEFINED, apply, rounded_blocks


def test_every_basic_operator_is_defined() -> None:
    assert set(OPERATORS) - {"vendor", "control", "host"} == DEFINED


@pytest.mark.parametrize("shape", [(0, 70), (2, 0, 70), (3, 0)])
def test_there_may_be_nothing_to_round(shape: tuple[int, ...]) -> None:
    assert rounded_blocks(np.zeros(shape, np.float32), 32).shape == shape


def test_integers_divide_towards_zero_and_by_zero_to_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 5], np.int8), np.array([2, 2, -2, -2, 0], np.int8)
    np.testing.assert_array_equal(apply("div", {}, [a, b]), np.array([3, -3, -3, 3, 0], np.int8))
    np.testing.assert_array_equal(apply("mod", {}, [a, b]), np.array([1, 1, -1, -1, 0], np.int8))
    np.testing.assert_array_equal(apply("fmod", {}, [a, b]), np.array([1, -1, 1, -1, 0], np.int8))


def test_integer_powers_wrap_in_every_type() -> None:
    base, exponent = np.array([3, -1, 2, -2], np.int8), np.array([5, -3, -1, 7], np.int8)
    wanted = np.array([243 - 256, -1, 0, -128], np.int8)
    np.testing.assert_array_equal(apply("pow", {}, [base, exponent]), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
def test_integer_powers_are_python_s(dtype: str) -> None:
    random, limits = np.random.default_rng(0), np.iinfo(dtype)
    base = random.integers(limits.min, limits.max, (50, 1), dtype, endpoint=True)
    exponent = np.array([0, 1, 2, 7, 64, 100])
    found = apply("pow", {}, [base, exponent])
    assert found.dtype == dtype
    for at, power in np.ndenumerate(found):
        exact = int(base[at[0], 0]) ** int(exponent[at[1]])
        assert (int(power) - exact) % (limits.max - limits.min + 1) == 0
    alone = apply("pow", {}, [base[0].reshape(()), exponent[2].reshape(())])
    assert alone == found[0, 2]


def test_erf_takes_as_much_memory_as_numbers_do() -> None:
    """Constants of 16 Mi elements are folded."""
    x = np.random.default_rng(0).standard_normal((512, 512), np.float32)
    tracemalloc.start()
    found = apply("erf", {}, [x.T])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 40 * x.size
    np.testing.assert_array_equal(found, np.vectorize(math.erf, otypes="f")(x.T))


def test_extremes_of_nothing_are_those_of_the_type() -> None:
    nothing = np.zeros((2, 0), np.int16)
    assert apply("reduce_max", {"axes": (1,)}, [nothing]).tolist() == [[-(2**15)]] * 2
    assert (
        apply("reduce_min", {"axes": (1,)}, [nothing.astype(np.float32)]).tolist() == [[np.inf]] * 2
    )
