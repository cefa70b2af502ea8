"""Every element-wise function equals numpy's of the same name, on ordinary and special values of every dtype."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest

import dvm_graph.xp as xp
from dvm_graph.errors import InputError
from tests.tolerances import assert_close

UNARY = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_invert",
    "ceil",
    "conj",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "floor",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "negative",
    "positive",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]
BINARY = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "copysign",
    "divide",
    "equal",
    "floor_divide",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "not_equal",
    "pow",
    "remainder",
    "subtract",
]
DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
INFINITE_QUOTIENTS = (
    "floor_divide of infinities is the standard's, which numpy leaves to the machine"
)


def samples(dtype: str, count: int = 24, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if kind in "iu":
        info = np.iinfo(dtype)
        ends = [info.min, info.max, 0, 1, 2, 3]
        low = max(info.min, -100)
        return np.concatenate(
            [np.array(ends, dtype), rng.integers(low, 100, count - 6).astype(dtype)]
        )
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5]
    numbers = rng.normal(size=count - len(special)) * 3
    with np.errstate(all="ignore"):
        return np.concatenate([special, numbers]).astype(dtype)


def _expected(name: str, *arrays: Any) -> np.ndarray[Any, Any] | None:
    """What numpy says; None: it refuses."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.asarray(getattr(np, name)(*arrays))
        except (TypeError, ValueError):
            return None


def _same(actual: xp.Array, expected: np.ndarray[Any, Any]) -> None:
    if expected.dtype.kind == "c":  # numpy's own
        np.testing.assert_array_equal(np.asarray(actual), expected)
        return
    assert_close(np.asarray(actual), expected)
    if expected.dtype.kind == "f":
        zeros = expected == 0
        np.testing.assert_array_equal(
            np.signbit(np.asarray(actual))[zeros], np.signbit(expected)[zeros]
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    x = samples(dtype)
    expected = _expected(name, x)
    function = getattr(xp, name)
    if expected is None:
        with pytest.raises(InputError):
            function(xp.asarray(x))
        return
    if name == "reciprocal" and x.dtype.kind in "iu":
        return  # of floats in the standard
    if x.dtype.kind == "c" and name in ("expm1", "tanh"):
        x = x[np.isfinite(x)]  # of others they are the standard's
        expected = expected[np.isfinite(samples(dtype))]
    if np.dtype(dtype).kind == "b" and name in ("ceil", "floor", "round", "trunc"):
        return  # of numbers in the standard
    _same(function(xp.asarray(x)), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    a, b = samples(dtype), samples(dtype, seed=1)[::-1]
    if name in ("floor_divide", "remainder") and a.dtype.kind == "f":
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = a[finite], b[finite]
    if name.endswith("shift"):
        b = np.abs(b) % 70 if b.dtype.kind == "i" else b
    if name == "pow" and b.dtype.kind == "i":
        b = np.where(b < 0, 1, b).astype(b.dtype)
    expected = _expected(name, a, b)
    function = getattr(xp, name)
    if expected is None:
        with pytest.raises(InputError):
            function(xp.asarray(a), xp.asarray(b))
        return
    _same(function(xp.asarray(a), xp.asarray(b)), expected)


@pytest.mark.parametrize("name", ["atan2", "hypot", "logaddexp"])
def test_every_special_value_meets_every_other(name: str) -> None:
    a, b = (each.ravel() for each in np.meshgrid(*2 * [samples("float64", 9)]))
    expected = _expected(name, a, b)
    assert expected is not None
    _same(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), expected)


@pytest.mark.parametrize("name", ["atan2", "hypot", "logaddexp"])
def test_functions_of_floats_of_integers_of_several_types(name: str) -> None:
    function, of_numpy = getattr(xp, name), getattr(np, name)
    for a, b in itertools.product(map(np.dtype, DTYPES[:12]), repeat=2):
        x, y = np.arange(1, 4).astype(a), np.arange(2, 5).astype(b)
        for operands in ((x, y), (x, 3), (2.5, y)):
            lazy = [xp.asarray(o) if isinstance(o, np.ndarray) else o for o in operands]
            _same(function(*lazy), of_numpy(*operands))


@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_promotion(dtype: str, other: str) -> None:
    a, b = np.ones(3, dtype), np.ones(3, other)
    assert_same_dtype = np.result_type(a, b)
    assert (xp.asarray(a) * xp.asarray(b)).dtype == assert_same_dtype
    assert xp.result_type(xp.asarray(a), b.dtype) == assert_same_dtype


@pytest.mark.parametrize("number", [True, 3, -2, 2.5, float("inf"), 300, 2j])
@pytest.mark.parametrize("dtype", DTYPES)
def test_python_numbers(dtype: str, number: complex) -> None:
    x = np.ones((2, 3), dtype)
    for name in ("add", "multiply", "less", "equal"):
        for operands in ((x, number), (number, x)):
            try:
                with np.errstate(all="ignore"):
                    expected = np.asarray(getattr(np, name)(*operands))
            except (OverflowError, TypeError):
                expected = None
            lazy = [xp.asarray(o) if isinstance(o, np.ndarray) else o for o in operands]
            if expected is None:
                with pytest.raises(InputError):
                    getattr(xp, name)(*lazy)
                continue
            _same(getattr(xp, name)(*lazy), expected)


def test_formulas_keep_their_precision() -> None:
    tiny = np.array([1e-30, -1e-12, 1e-8, 1e-3, 0.5, 30, -30, 800], np.float64)
    with np.errstate(over="ignore"):
        _same(xp.expm1(xp.asarray(tiny)), np.expm1(tiny))
    _same(
        xp.hypot(xp.asarray(np.float32(3e38)), xp.asarray(np.float32(1e38))),
        np.hypot(np.float32(3e38), np.float32(1e38)),
    )
    _same(xp.logaddexp(xp.asarray(1000.0), xp.asarray(1001.0)), np.logaddexp(1000.0, 1001.0))


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("expm1", complex(-0.0, 0.0), complex(0, 0)),
        ("expm1", complex(0.0, -0.0), complex(0, -0.0)),
        ("expm1", complex(INF, 0.0), complex(INF, 0.0)),
        ("expm1", complex(INF, 2.0), complex(-INF, INF)),
        ("expm1", complex(-INF, 2.0), complex(-1, 0.0)),
        ("expm1", complex(-INF, INF), complex(-1, 0.0)),
        ("expm1", complex(INF, INF), complex(INF, NAN)),
        ("expm1", complex(-INF, NAN), complex(-1, 0.0)),
        ("expm1", complex(INF, NAN), complex(INF, NAN)),
        ("expm1", complex(NAN, 0.0), complex(NAN, 0.0)),
        ("expm1", complex(NAN, 1.0), complex(NAN, NAN)),
        ("expm1", complex(1.0, INF), complex(NAN, NAN)),
        ("tanh", complex(INF, 2.0), complex(1, 0.0)),
        ("tanh", complex(INF, 0.5), complex(1, 0.0)),
        ("tanh", complex(INF, -2.0), complex(1, -0.0)),
        ("tanh", complex(-INF, 2.0), complex(-1, 0.0)),
        ("tanh", complex(INF, NAN), complex(1, 0.0)),
        ("tanh", complex(1.0, INF), complex(NAN, NAN)),
        ("tanh", complex(0.0, -0.0), complex(0, -0.0)),
    ],
)
def test_complex_special_values_are_those_of_the_standard(
    name: str, x: complex, expected: complex, dtype: str
) -> None:
    """As C's Annex G has them. Where the imaginary part is not finite, signs are nobody's affair."""
    for shape in ((), (2, 1)):
        found = np.asarray(getattr(xp, name)(xp.asarray(np.full(shape, x, dtype))))
        assert found.shape == shape
        assert found.dtype == dtype
        for part, want in ((found.real, expected.real), (found.imag, expected.imag)):
            np.testing.assert_array_equal(part, np.full(shape, want))
            if math.isfinite(x.imag) and not math.isnan(want):
                np.testing.assert_array_equal(np.signbit(part), math.copysign(1, want) < 0)


def test_clip_and_where() -> None:
    x = np.linspace(-3, 3, 13, dtype=np.float32)
    lazy = xp.asarray(x)
    _same(xp.clip(lazy, -1, 2), np.clip(x, -1, 2))
    _same(xp.clip(lazy, min=xp.asarray(np.float32(0))), np.clip(x, np.float32(0), None))
    _same(xp.where(lazy > 0, lazy, 0), np.where(x > 0, x, np.float32(0)))
    _same(xp.where(lazy > 0, 1, 2), np.where(x > 0, 1, 2))
