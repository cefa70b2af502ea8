"""The numpy definition of the basic operators is whole."""

from __future__ import annotations

import numpy as np

from dvm_graph.ir import OPERATORS
from dvm_graph.ir.numeric import DEFINED, apply


def test_every_basic_operator_is_defined() -> None:
    assert set(OPERATORS) - {"vendor", "control", "host"} == DEFINED


def test_integers_divide_towards_zero_and_by_zero_to_zero() -> None:
    a, b = np.array([7, -7, 7, -7, 5], np.int8), np.array([2, 2, -2, -2, 0], np.int8)
    np.testing.assert_array_equal(apply("div", {}, [a, b]), np.array([3, -3, -3, 3, 0], np.int8))
    np.testing.assert_array_equal(apply("mod", {}, [a, b]), np.array([1, 1, -1, -1, 0], np.int8))
    np.testing.assert_array_equal(apply("fmod", {}, [a, b]), np.array([1, -1, 1, -1, 0], np.int8))


def test_integer_powers_wrap_in_every_type() -> None:
    base, exponent = np.array([3, -1, 2, -2], np.int8), np.array([5, -3, -1, 7], np.int8)
    wanted = np.array([243 - 256, -1, 0, -128], np.int8)
    np.testing.assert_array_equal(apply("pow", {}, [base, exponent]), wanted)


def test_extremes_of_nothing_are_those_of_the_type() -> None:
    nothing = np.zeros((2, 0), np.int16)
    assert apply("reduce_max", {"axes": (1,)}, [nothing]).tolist() == [[-(2**15)]] * 2
    assert (
        apply("reduce_min", {"axes": (1,)}, [nothing.astype(np.float32)]).tolist() == [[np.inf]] * 2
    )
