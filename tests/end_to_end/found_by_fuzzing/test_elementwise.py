"""Small models that random graphs once broke: operators element by element at zeros, infinities and numbers that a type does not hold."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    assert_same_bits,
    model_from_text,
    session,
)
from tests.end_to_end.test_special_values import node_model


def test_zeros_of_both_signs_are_not_one_number() -> None:
    """A constant of 0 and -0 was taken for 0 throughout, and 1 over it for plus infinity."""
    model = model_from_text(
        "signs (float[n, 2] x) => (float[n, 2] y) <float[2] zeros = {0, -0.0}> { y = Div(x, zeros) }"
    )
    x = np.ones((3, 2), np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, np.broadcast_to([np.inf, -np.inf], (3, 2)))


@pytest.mark.parametrize("alpha", [0.0, -0.0, -1.0])
def test_a_slope_that_nothing_can_be_divided_by(alpha: float) -> None:
    """`1 / alpha` was computed in Python, which raises where floating-point arithmetic goes on."""
    model = model_from_text(
        f"slope (float[n] x) => (float[n] y) {{ y = Celu<alpha = {alpha}>(x) }}"
    )
    x = np.array([-2, -1, 0, 1, 2, np.inf, np.nan], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert_all_close([y], session(model).run(None, {"x": x}))


@pytest.mark.parametrize(("opset", "kind"), [(9, "float16"), (10, "bool"), (13, "bool")])
def test_the_mask_of_an_old_dropout_is_zero_and_of_the_type_of_its_operand(
    opset: int, kind: str
) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : {opset}]>
        drop (float16[n] x) => (float16[n] y, {kind}[n] mask) {{ y, mask = Dropout(x) }}"""
    )
    feeds = {"x": np.ones(3, np.float16)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("dtype", ["uint16", "int64", "float"])
def test_shrinking_by_numbers_that_the_type_does_not_hold(dtype: str) -> None:
    """The negative bound wrapped around in unsigned types, and half of a bias was cut away."""
    model = model_from_text(
        f"less ({dtype}[n] x) => ({dtype}[n] y) {{ y = Shrink<lambd = 1.0, bias = 0.5>(x) }}"
    )
    x = np.array([3, 0, 1, 2, 5]).astype("f4" if dtype == "float" else dtype)
    assert_same_bits(dvm_graph.optimize(model).run({"x": x}), session(model).run(None, {"x": x}))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [-1, 0, 0.5, 1, 1.5, 2, 3])
def test_powers_of_what_is_infinite_or_a_negative_zero(dtype: str, exponent: float) -> None:
    """A root gives -0 of -0, and no number of -infinity."""
    x = np.array([-np.inf, np.inf, -0.0, 0, -1, np.nan, 4, -4, 1], dtype)
    model = node_model("Pow", {"x": x}, {}, {"e": np.array(exponent, dtype)})
    (mine,) = dvm_graph.optimize(model).run({"x": x})
    (theirs,) = session(model).run(None, {"x": x})
    np.testing.assert_array_equal(mine, theirs)
    known = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.signbit(mine[known]), np.signbit(theirs[known]))
