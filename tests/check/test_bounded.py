"""Bounds hold for what float32 and half types really compute, and are not so wide that they say nothing."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dvm_graph.check.bounded import Bounded, compute, differs
from dvm_graph.ir import OPERATORS, DType, Kind
from dvm_graph.ir.numeric import MAPS, apply

F32 = DType.FLOAT32
GENERATOR = np.random.default_rng(0)


def of(array: Any, error: float | None = None) -> Bounded:
    values = np.asarray(array)
    return Bounded(values, None if error is None else np.full(values.shape, error))


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return GENERATOR.standard_normal(shape).astype(dtype)


UNARY = (
    "exp",
    "log",
    "sin",
    "tanh",
    "erf",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "atan",
    "floor",
)


@pytest.mark.parametrize("op", UNARY)
def test_what_float32_computes_is_within(op: str) -> None:
    x = floats(4000) * 3
    bound = compute(op, {}, [of(x)], F32)
    got = np.asarray(apply(op, {}, [x])).astype(np.float32)
    assert not differs(got, bound).any()
    moved = np.where(np.isfinite(got), got + np.abs(got) * 1e-5 + 1e-30, got).astype(np.float32)
    assert differs(moved, bound)[np.isfinite(got) & (got != 0)].mean() > 0.9 or op == "floor"


@pytest.mark.parametrize(
    "op", ["exp", "log", "mul", "div", "sub", "tanh", "fmod", "mod", "pow", "max"]
)
def test_errors_of_operands_travel(op: str) -> None:
    """Operands anywhere within their errors give a result within the bound."""
    a, b = 0.5 + np.abs(floats(4000)), 0.5 + np.abs(floats(4000))
    operands = [a, b] if op in ("mul", "div", "sub", "fmod", "mod", "pow", "max") else [a]
    wide = [of(x.astype(np.float64), 1e-3) for x in operands]
    bound = compute(op, {}, wide, F32)
    for _ in range(5):
        drawn = (x + GENERATOR.uniform(-0.999e-3, 0.999e-3, x.shape) for x in operands)
        moved = [x.astype(np.float32).astype(np.float64) for x in drawn]  # float32, as operands are
        got = np.asarray(apply(op, {}, moved))
        assert not differs(got.astype(np.float32), bound).any()


FLOAT_MAPS = sorted(
    op
    for op in MAPS
    if OPERATORS[op].kind is Kind.MAP and F32 in OPERATORS[op].takes and op != "select"
)


@pytest.mark.parametrize("op", FLOAT_MAPS)
def test_errors_travel_past_poles_edges_and_steps(op: str) -> None:
    """Whatever lies within the operands' intervals, wide ones and those around 0 too, gives what the bound allows."""
    shape = (3000,)
    operands = []
    for _ in range(OPERATORS[op].arity):
        values = GENERATOR.standard_normal(shape) * GENERATOR.choice([0.1, 1, 30], shape)
        values = np.where(GENERATOR.random(shape) < 0.2, np.rint(values), values)
        operands.append(Bounded(values, GENERATOR.choice([0, 1e-3, 0.5, 4], shape)))
    bound = compute(op, {}, operands, F32)
    for _ in range(40):
        part = [x.value + GENERATOR.uniform(-1, 1, shape) * x.errors for x in operands]
        with np.errstate(all="ignore"):
            got = np.asarray(apply(op, {}, part))
            beyond = np.isfinite(got) & (np.abs(got) > np.finfo(np.float32).max)
            got = np.where(beyond, np.copysign(np.inf, got), got) if got.dtype != bool else got
        assert not differs(got, bound).any()


@pytest.mark.parametrize("op", FLOAT_MAPS)
@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_open_stays_open(op: str, number: float) -> None:
    """Whatever comes of an overflow that nobody promises: the remainder of infinity is no number."""
    generator = np.random.default_rng(0)
    values = [generator.standard_normal(50) for _ in range(OPERATORS[op].arity)]
    for at in range(len(values)):
        errors = [np.full(50, np.inf if place == at else 0.0) for place in range(len(values))]
        bound = compute(op, {}, list(map(Bounded, values, errors)), F32)
        given = [np.full(50, number) if place == at else x for place, x in enumerate(values)]
        with np.errstate(all="ignore"):
            assert not differs(np.asarray(apply(op, {}, given)), bound).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("length", [1, 7, 300])
def test_sums_in_any_order_are_within(dtype: Any, length: int) -> None:
    a, b = floats(5, length, dtype=dtype), floats(length, 3, dtype=dtype)
    bound = compute("matmul", {}, [of(a), of(b)], DType(np.dtype(dtype).name))
    for order in (np.arange(length), np.arange(length)[::-1], GENERATOR.permutation(length)):
        total = np.zeros((5, 3), np.float32)  # half types add up in it
        for k in order:
            total = total + a[:, k : k + 1].astype(np.float32) * b[k : k + 1].astype(np.float32)
        assert not differs(total.astype(dtype), bound).any()
    wrong = (a[:, ::-1].astype(np.float32) @ b.astype(np.float32)).astype(dtype)
    assert length == 1 or differs(wrong, bound).any()


@pytest.mark.parametrize("rows", [0, 50])
def test_errors_move_levels_of_bytes(rows: int) -> None:
    """Operands anywhere within their errors, rounded, give a result within the bound."""
    a, b, attrs = floats(rows, 70), floats(70, 6), {"rounded_blocks": 32}
    bound = compute("matmul", attrs, [of(a, 1e-2), of(b)], F32)
    moved = a + GENERATOR.uniform(-1e-2, 1e-2, a.shape).astype(np.float32)
    assert not differs(apply("matmul", attrs, [moved, b]), bound).any()
    assert differs(apply("matmul", {}, [a + 1, b]), bound).any() == (rows > 0)


def test_large_products_are_bounded_by_norms() -> None:
    # In order: the sum of products is greatest, and that of the reversed ones least, whatever was drawn.
    a, b = np.sort(floats(3, 600), axis=1), np.sort(floats(600, 200), axis=0)
    bound = compute("matmul", {}, [of(a), of(b)], F32)
    assert not differs(a @ b, bound).any()
    assert differs(a[:, ::-1] @ b, bound).all()


def test_what_is_too_close_to_call_is_open() -> None:
    a, b = of([1.0, 1.0, 2.0], 1e-6), of([1.0, 1.1, 1.0])
    less = compute("lt", {}, [a, b], DType.BOOL)
    assert less.error is not None
    assert np.isinf(less.error).tolist() == [True, False, False]
    chosen = compute("select", {}, [less, of([5.0, 5.0, 5.0]), of([6.0, 6.0, 6.0])], F32)
    assert not differs(np.array([5, 5, 6], np.float32), chosen).any()
    assert not differs(np.array([6, 5, 6], np.float32), chosen).any()
    assert differs(np.array([6, 6, 5], np.float32), chosen).tolist() == [False, True, True]


def test_nan_and_infinities_are_where_they_are() -> None:
    x = of(np.array([np.nan, np.inf, -np.inf, 1.0], np.float32))
    double = compute("add", {}, [x, x], F32)
    assert not differs(np.array([np.nan, np.inf, -np.inf, 2.0], np.float32), double).any()
    assert differs(np.array([0.0, np.nan, np.inf, np.nan], np.float32), double).all()


def test_overflow_is_certain_in_float32_and_open_in_halves() -> None:
    large = of(np.array([60000.0], np.float16))
    assert not differs(
        np.array([np.inf], np.float16), compute("add", {}, [large] * 2, DType.FLOAT16)
    ).any()
    single = compute("exp", {}, [of(np.array([100.0], np.float32))], F32)
    assert differs(np.array([3e38], np.float32), single).all()
    assert not differs(np.array([np.inf], np.float32), single).any()


def test_integers_are_exact() -> None:
    x = of(np.array([100, -128], np.int8))
    wrapped = compute("add", {}, [x, x], DType.INT8)
    assert not differs(np.array([-56, 0], np.int8), wrapped).any()
    assert differs(np.array([-55, 1], np.int8), wrapped).all()


def test_products_that_hang_on_their_order_are_open() -> None:
    """In some orders a part overflows or vanishes in float32, which the rest would have brought back."""
    for numbers, is_open in (
        ([1e-30, 1e-30, np.inf], True),
        ([1e30, 1e30, 1e-30], True),
        ([1e-30, 1e-30, 1e30], True),
        ([1e30, 1e30, 2.0], False),
        ([1e-30, 1e-30, 0.5], False),
        ([3.0, -2.0, 0.5], False),
    ):
        operand = Bounded(np.array(numbers))
        result = compute("reduce_prod", {"axes": (0,)}, [operand], DType.FLOAT32)
        assert np.isinf(result.errors).all() == is_open, numbers


@pytest.mark.parametrize("op", ["reduce_sum", "matmul"])
def test_the_sign_of_a_sum_of_zeros_is_open(op: str) -> None:
    zeros = np.full((3, 2), -0.0, np.float32)
    operands = [of(zeros)] if op == "reduce_sum" else [of(zeros), of(np.ones((2, 1), np.float32))]
    attrs = {"axes": (1,), "keepdims": True} if op == "reduce_sum" else {}
    total = compute(op, attrs, operands, F32)
    inverse = compute("reciprocal", {}, [total], F32)
    for sign in (-1, 1):
        assert not differs(np.full((3, 1), sign * np.inf, np.float32), inverse).any()
    assert differs(np.full((3, 1), 1e-30, np.float32), total).all()


def test_a_pad_in_front_of_an_infinite_weight_is_0_or_left_out() -> None:
    """Nothing else is open: a pixel of 0 there is no number, and pads in front of finite weights are nothing."""
    attrs = {
        **{
            "kernel": (1, 2),
            "strides": (1, 1),
            "dilations": (1, 1),
            "pads": (0, 1),
            "size": (1, 3),
        },
        "groups": 1,
    }
    image = Bounded(np.array([[[[0.0], [2.0], [3.0]]]], np.float32))
    patches = compute("patches", attrs, [image], DType.FLOAT32)
    np.testing.assert_array_equal(patches.value.reshape(-1, 2), [[0, 0], [0, 2], [2, 3]])
    weights = Bounded(np.array([[-np.inf, 1.0], [1.0, 1.0]], np.float32))
    product = compute("matmul", {}, [patches, weights], DType.FLOAT32)
    right = np.array([[0, 0], [np.nan, 2], [-np.inf, 5]], np.float32).reshape(product.value.shape)
    assert not differs(right, product).any()
    for at, wrong in (((1, 0), 7.0), ((2, 0), 7.0), ((0, 1), 1e-30), ((1, 1), 2.5), ((2, 1), 4.0)):
        found = right.reshape(3, 2).copy()
        found[at] = wrong
        mine = differs(found.reshape(right.shape), product).reshape(3, 2)
        assert mine[at] and mine.sum() == 1, at


@pytest.mark.parametrize("exponent", [-330, -60, 0, 60, 300])
def test_what_is_kept_narrow_admits_no_less(exponent: int) -> None:
    """Errors are rounded up, and numbers that float32 does not hold stay."""
    held = GENERATOR.standard_normal(1 << 16).astype(np.float32).astype(np.float64)
    errors = np.abs(GENERATOR.standard_normal(1 << 16)) * 10.0**exponent
    errors[:3] = 0, np.inf, np.nextafter(0, 1)
    narrow = Bounded(held, errors).narrow()
    assert narrow.value.dtype == np.float32
    np.testing.assert_array_equal(narrow.wide().value, held)
    assert (narrow.wide().errors >= errors).all()
    np.testing.assert_array_equal(narrow.errors == 0, errors == 0)
    assert Bounded(held + 2.0**-40, errors).narrow().value.dtype == np.float64
