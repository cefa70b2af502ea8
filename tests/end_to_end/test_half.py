"""Element-wise chains and reductions over float16 and bfloat16 tensors, at every instruction-set level.

Loads widen, arithmetic is f32 and stores round. An operation on two 16-bit numbers in f32, rounded to 16 bits, is
the exact result rounded once (24 bits are 2 p + 2 for p of 11 and 8), so the reference is numpy in float64 and the
bits have to be the same. Chains are held to half a unit in the last place and what f32 leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import dvm_graph
from dvm_graph import _core

Array = NDArray[Any]

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
NAMES = {BF16: "bfloat16", F16: "float16"}
HALF_ULP = {BF16: 2.0**-8, F16: 2.0**-11}
SUBNORMAL = {BF16: 2.0**-133, F16: 2.0**-24}

types = pytest.mark.parametrize("dtype", [F16, BF16], ids=["f16", "bf16"])
levels = pytest.mark.parametrize("simd", _core.simd_levels())
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}
UNARY: dict[str, Callable[[Array], Array]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
}
COLUMNS = (1, 2, 7, 15, 16, 17, 63, 64, 65, 127, 128, 129, 257, 1021)


@cache
def compiled(text: str, element: str, simd: str) -> dvm_graph.Model:
    typed = text.replace("T[", f"{element}[")
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\nagraph {typed}')
    return dvm_graph.optimize(proto, simd=simd)


def run(text: str, dtype: np.dtype[Any], simd: str, **feeds: Array) -> Array:
    return compiled(text, NAMES[dtype], simd).run(feeds)[0]


def every_pattern(dtype: np.dtype[Any]) -> Array:
    return np.arange(1 << 16, dtype=np.uint16).view(dtype)


def special(dtype: np.dtype[Any]) -> Array:
    """Zeros, denormals, the least and the largest numbers, infinities, NaN, and some between."""
    info = ml_dtypes.finfo(dtype)
    edges = [0.0, info.smallest_subnormal, info.tiny, info.eps, 1.0, 1.5, info.max, np.inf, np.nan]
    near = [3 * float(info.smallest_subnormal), float(info.tiny) * 0.75, float(info.max) / 2, 3.0]
    values = np.asarray([float(v) for v in [*edges, *near]])
    return np.concatenate([values, -values]).astype(dtype)


def assert_same(got: Array, expected: Array, dtype: np.dtype[Any]) -> None:
    """The same bits as the float64 result rounded; any NaN is NaN."""
    with np.errstate(over="ignore"):
        want = expected.astype(dtype)
    assert got.dtype == dtype
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


@types
@levels
@pytest.mark.parametrize("op", BINARY)
def test_operations_on_special_values(op: str, simd: str, dtype: np.dtype[Any]) -> None:
    values = special(dtype)
    x, y = (side.ravel() for side in np.meshgrid(values, values))
    got = run(f"(T[n] x, T[n] y) => (T[n] z) {{ z = {op}(x, y) }}", dtype, simd, x=x, y=y)
    with np.errstate(all="ignore"):
        assert_same(got, BINARY[op](x.astype(np.float64), y.astype(np.float64)), dtype)


@types
@levels
@pytest.mark.parametrize("op", UNARY)
def test_operations_on_every_number(op: str, simd: str, dtype: np.dtype[Any]) -> None:
    x = every_pattern(dtype)
    got = run(f"(T[n] x) => (T[n] y) {{ y = {op}(x) }}", dtype, simd, x=x)
    with np.errstate(all="ignore"):
        assert_same(got, UNARY[op](x.astype(np.float64)), dtype)


@types
@levels
@pytest.mark.parametrize("columns", COLUMNS)
def test_broadcasts(columns: int, simd: str, dtype: np.dtype[Any]) -> None:
    """A row for all rows, a value per row and a whole tensor, in three loops; also kept in f32."""
    random = np.random.default_rng(columns)
    shapes = {"x": (3, 5, columns), "row": (columns,), "value": (5, 1)}
    feeds = {k: random.standard_normal(s).astype(dtype) for k, s in shapes.items()}
    text = """(T[a, b, c] x, T[c] row, T[b, 1] value) => (T[a, b, c] y, T[a, b, c] z) {
        y = Add(x, row)
        z = Mul(x, value)
    }"""
    y, z = compiled(text, NAMES[dtype], simd).run(feeds)
    x, row, value = (feeds[name].astype(np.float64) for name in ("x", "row", "value"))
    assert_same(y, x + row, dtype)
    assert_same(z, x * value, dtype)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def silu_of_sum(x: Array, y: Array) -> Array:
    return (x + y) / (1 + np.exp(-(x + y)))


@types
@levels
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("rows", [1, 3, 37])
def test_chains(rows: int, columns: int, simd: str, dtype: np.dtype[Any]) -> None:
    random = np.random.default_rng([rows, columns])
    x, y = (random.uniform(-3, 3, (rows, columns)).astype(dtype) for _ in range(2))
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    text = "(T[r, c] x, T[r, c] y) => (T[r, c] z) { s = Add(x, y) g = Sigmoid(s) z = Mul(s, g) }"
    assert_near(run(text, dtype, simd, x=x, y=y), silu_of_sum(wide_x, wide_y), dtype)
    text = "(T[r, c] x) => (T[r, c] z) { z = Softmax<axis = -1>(x) }"
    assert_near(run(text, dtype, simd, x=x), softmax(wide_x), dtype)
    text = (
        "(T[r, c] x) => (T[r, 1] z) { a = Constant<value_ints = [-1]>() z = ReduceSumSquare(x, a) }"
    )
    assert_near(run(text, dtype, simd, x=x), (wide_x**2).sum(-1, keepdims=True), dtype)
    text = "(T[r, c] x) => (T[r, 1] z) { a = Constant<value_ints = [-1]>() z = ReduceMax(x, a) }"
    assert_same(run(text, dtype, simd, x=x), wide_x.max(-1, keepdims=True), dtype)


def assert_near(got: Array, expected: Array, dtype: np.dtype[Any]) -> None:
    """Within half a unit in the last place, and 2^-18 of the result: what f32 leaves of some roundings."""
    error = np.abs(got.astype(np.float64) - expected)
    bound = (HALF_ULP[dtype] + 2.0**-18) * np.abs(expected) + SUBNORMAL[dtype]
    assert got.shape == expected.shape
    assert (error <= bound).all()


@types
@levels
def test_large_results_around_the_caches(simd: str, dtype: np.dtype[Any]) -> None:
    """Too large to be read back from a cache, at starts of rows that no vector is aligned with."""
    x = np.resize(every_pattern(dtype), (4099, 2111))
    got = run("(T[r, c] x, T[c] y) => (T[r, c] z) { z = Add(x, y) }", dtype, simd, x=x, y=x[7])
    with np.errstate(all="ignore"):
        assert_same(got, x.astype(np.float64) + x[7].astype(np.float64), dtype)


LONG = 300_000
"""Of ones more than float16 can count, and a row that stays in no core's memory."""
BEYOND: dict[str, tuple[str, Array, float]] = {
    "sum of exponentials": ("y = Softmax<axis = -1>(x)", np.ones((1, LONG)), 1 / LONG),
    "its logarithm": ("y = LogSoftmax<axis = -1>(x)", np.ones((1, LONG)), -np.log(LONG)),
    "shared sum": (
        "s = Softmax<axis = -1>(x) l = LogSoftmax<axis = -1>(x) y = Mul(s, l)",
        np.ones((1, LONG)),
        -np.log(LONG) / LONG,
    ),
    "norm": ("y = LpNormalization<axis = -1>(x)", np.full((1, LONG), 300), LONG**-0.5),
    "squares": ("y = LpNormalization<axis = -1>(x)", np.full((2, 9), 300), 1 / 3),
    "small squares": ("y = LpNormalization<axis = -1>(x)", np.full((2, 9), 2.0**-14), 1 / 3),
    "sum": ("y = Mean(x, x, x)", np.full((2, 3), 40000), 40000),
    "sum of constants": ("z = Mean(c, c) y = Min(x, z)", np.full((2, 3), 50000), 40000),
    "product": ("y = Gemm<alpha = 0.5, transB = 1>(x, x)", np.full((3, 2), 200), 40000),
    "biased": ("y = Gemm<transB = 1>(x, x, d)", np.full((3, 2), 200), 40000),
}


@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"fallbacks": "always"}], ids=str)
@pytest.mark.parametrize("what", BEYOND)
def test_what_an_operator_computes_on_the_way_may_leave_the_range(
    what: str, options: dict[str, Any]
) -> None:
    body, x, expected = BEYOND[what]
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        agraph (float16[r, c] x) => (float16[r, d] y)
        <float most = {{40000}}> {{ c = Cast<to = 10>(most) d = Neg(c) {body} }}""")
    (got,) = dvm_graph.optimize(proto, **options).run({"x": x.astype(np.float16)})
    assert_near(got, np.full(got.shape, expected, np.float64), F16)


CHOSEN = {
    "ArgMax": ("y = ArgMax<axis = 1, keepdims = 0>(s)", lambda s: s.argmax(1)),
    "ArgMin": ("y = ArgMin<axis = 1, keepdims = 0>(s)", lambda s: s.argmin(1)),
    "Hardmax": ("h = Hardmax<axis = 1>(s) y = Cast<to = 7>(h)", lambda s: np.eye(9)[s.argmax(1)]),
    "MaxPool": (
        """u = Unsqueeze(s, one) v, i = MaxPool<kernel_shape = [9]>(u) y = Squeeze(i, ends)""",
        lambda s: s.argmax(1) + 9 * np.arange(len(s)),
    ),
}


@types
@pytest.mark.parametrize("options", [{}, {"fuse": False}, {"fallbacks": "always"}], ids=str)
@pytest.mark.parametrize("what", CHOSEN)
def test_what_is_chosen_is_found_in_memory(
    what: str, options: dict[str, Any], dtype: np.dtype[Any]
) -> None:
    """The greatest of numbers that were rounded is one of them as they were before: it is to be rounded, too."""
    body, choose = CHOSEN[what]
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        agraph ({NAMES[dtype]}[r, 9] x) => (int64[?] y, {NAMES[dtype]}[r, 9] s)
        <int64[1] one = {{1}}, int64[2] ends = {{1, 2}}> {{ s = Softsign(x) {body} }}""")
    x = np.random.default_rng(3).permuted(np.tile(np.linspace(-4, 4, 9), (50, 1)), axis=1)
    x = (x + 0.3).astype(dtype)
    got, _ = dvm_graph.optimize(proto, **options).run({"x": x})
    np.testing.assert_array_equal(got, choose(x.astype(np.float64)))


BEHIND = {
    "transposed": "t = Transpose<perm = [0, 2, 1]>(x) s = Sigmoid(t)",
    "then transposed": "t = Sigmoid(x) s = Transpose<perm = [0, 2, 1]>(t)",
}


@types
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("what", ["ArgMax", "ArgMin", "Hardmax"])
@pytest.mark.parametrize(
    "options",
    [{}, {"fallbacks": "always"}, {"disable_passes": frozenset(["absorb_views"])}],
    ids=["default", "fallbacks", "views"],
)
def test_what_is_chosen_across_rows_is_found_behind_views(
    options: dict[str, Any], what: str, behind: str, dtype: np.dtype[Any]
) -> None:
    """Numbers that a second kernel computes anew were not rounded, as the greatest was that it looks for."""
    body, choose = CHOSEN[what]
    body = body.replace("axis = 1", "axis = 0")
    proto = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        agraph ({NAMES[dtype]}[9, r, c] x) => (int64[?] y) {{ {BEHIND[behind]} {body} }}""")
    x = np.random.default_rng(3).permuted(np.tile(np.linspace(-4, 4, 9), (23, 8, 1)), axis=2)
    x = (x.transpose(2, 0, 1) + 0.3).astype(dtype)
    (got,) = dvm_graph.optimize(proto, **options).run({"x": x})
    rows = x.astype(np.float64).transpose(2, 1, 0).reshape(-1, 9)
    expected = choose(rows) if what != "Hardmax" else choose(rows).T
    np.testing.assert_array_equal(got.reshape(expected.shape), expected)
