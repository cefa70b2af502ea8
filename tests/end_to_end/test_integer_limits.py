"""Integers at the ends of their types, and conversions to them, against onnxruntime; what onnxruntime
refuses or leaves open, against what docs/edge_values.md says of it."""

from __future__ import annotations

import itertools
import math
import platform
from typing import Any

import numpy as np
import pytest
from onnx import helper

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import Array, session
from tests.end_to_end.test_control_flow import agrees, parse
from tests.end_to_end.test_special_values import node_model

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
LEVELS = _core.simd_levels()
BINARY: list[tuple[str, dict[str, Any]]] = [
    *(
        (op, {})
        for op in ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less", "Greater")
    ),
    *(
        (op, {})
        for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor", "LessOrEqual", "GreaterOrEqual")
    ),
    ("Mod", {"fmod": 1}),
    ("BitShift", {"direction": "LEFT"}),
    ("BitShift", {"direction": "RIGHT"}),
]


def ends(dtype: str) -> Array:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    numbers = {0, 1, 2, 3, 7, 8, 31, 32, 63, 64, high // 2 + 1, high - 1, high, low, low + 1}
    numbers |= {-n for n in numbers if low < 0}
    return np.array(sorted(n for n in numbers if low <= n <= high), dtype)


def pairs(dtype: str) -> tuple[Array, Array]:
    a, b = (grid.reshape(-1).copy() for grid in np.meshgrid(ends(dtype), ends(dtype)))
    return a, b


def traps(a: Array, b: Array) -> Array:
    """What C leaves undefined: a division by 0, and of the least number by -1."""
    overflows = (a == np.iinfo(a.dtype).min) & (b == -1) if a.dtype.kind == "i" else b == 0
    return (b == 0) | overflows


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED])
@pytest.mark.parametrize("op, attrs", BINARY, ids=str)
def test_binary(op: str, attrs: dict[str, Any], dtype: str) -> None:
    if op == "BitShift" and dtype in SIGNED:
        return  # not of the operator's types
    a, b = pairs(dtype)
    if op in ("Div", "Mod"):
        kept = ~traps(a, b)
        a, b = a[kept], b[kept]
    feeds = {"a": a, "b": b}
    model = node_model(op, feeds, attrs, opset=18)
    if op in ("Max", "Min") and dtype in ("int16", "uint16"):  # onnxruntime has none
        expected = (np.maximum if op == "Max" else np.minimum)(a, b)
    else:
        (expected,) = session(model).run(None, feeds)
    for simd in LEVELS:
        (y,) = dvm_graph.optimize(model, simd=simd).run(feeds)
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("dtype", [*SIGNED, *UNSIGNED[:3]])
@pytest.mark.parametrize("op, fmod", [("Div", 0), ("Mod", 0), ("Mod", 1)])
def test_divisions_that_trap_elsewhere(op: str, fmod: int, dtype: str) -> None:
    """By 0 they give 0, and the least number by -1 wraps: in kernels as in constants."""
    a, b = pairs(dtype)
    kept = traps(a, b)
    a, b = a[kept], b[kept]
    attrs = {"fmod": fmod} if fmod else {}
    with np.errstate(over="ignore"):
        expected = np.where((b == 0) | (op == "Mod"), 0, np.negative(a)).astype(dtype)
    for simd in LEVELS:
        compiled = dvm_graph.optimize(node_model(op, {"a": a, "b": b}, attrs), simd=simd)
        np.testing.assert_array_equal(compiled.run({"a": a, "b": b})[0], expected)
    folded = node_model(op, {}, attrs, {"a": a, "b": b})
    np.testing.assert_array_equal(dvm_graph.optimize(folded).run({})[0], expected)


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("op", ["Abs", "Neg", "Sign"])
def test_unary(op: str, dtype: str) -> None:
    feeds = {"x": ends(dtype)}
    model = node_model(op, feeds)
    (expected,) = session(model).run(None, feeds)
    np.testing.assert_array_equal(dvm_graph.optimize(model).run(feeds)[0], expected)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_powers_wrap(dtype: str) -> None:
    """As numpy's do; onnxruntime computes them in float64. 1 over what is neither 1 nor -1 is 0."""
    a, b = pairs(dtype)
    bits = 8 * np.dtype(dtype).itemsize

    def power(x: int, y: int) -> int:
        number = pow(x, y, 1 << bits) if y >= 0 else int(x == 1) or (x == -1) * (1 - 2 * (y % 2))
        return number - (1 << bits) if number >= 1 << (bits - 1) else number

    expected = np.array([power(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], dtype)
    (y,) = dvm_graph.optimize(node_model("Pow", {"a": a, "b": b})).run({"a": a, "b": b})
    np.testing.assert_array_equal(y, expected)
    (y,) = dvm_graph.optimize(node_model("Pow", {}, {}, {"a": a, "b": b})).run({})
    np.testing.assert_array_equal(y, expected)
    small = (a > -8) & (a < 8) & (b >= 0) & (b < 8)
    feeds = {"a": a[small], "b": b[small]}
    (reference,) = session(node_model("Pow", feeds)).run(None, feeds)
    np.testing.assert_array_equal(expected[small], reference)


@pytest.mark.parametrize(
    "source, target", list(itertools.product((*SIGNED, *UNSIGNED, "bool"), repeat=2))
)
def test_casts_between_integers_wrap(source: str, target: str) -> None:
    x = np.array([False, True]) if source == "bool" else ends(source)
    to = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))}
    model = node_model("Cast", {"x": x}, to)
    np.testing.assert_array_equal(dvm_graph.optimize(model).run({"x": x})[0], x.astype(target))
    np.testing.assert_array_equal(session(model).run(None, {"x": x})[0], x.astype(target))


REALS = [
    *(0.0, 0.5, 1.5, 127, 128, 129, 255, 256, 257, 32767, 32768, 65535, 65536, 2.0**31 - 128, 2.0**31),
    *(2.0**32 - 256, 2.0**32, 2.0**53, 2.0**62, 2.0**63, 2.0**63 + 2048, 2.0**64, 1e20, 3e38, 1e-40),
    math.inf,
]  # fmt: skip


def integers_of(x: Array, target: str) -> Array:
    """As docs/edge_values.md says it of what does not fit; onnxruntime's differ from CPU to CPU."""
    if target == "bool":
        return x != 0
    if target in ("uint32", "uint64"):
        return np.array([int(number) for number in x.tolist()], target)
    info = np.iinfo(np.int64 if target == "int64" else np.int32)
    whole = [int(number) if math.isfinite(number) else info.min for number in x.tolist()]
    fits = [number if info.min <= number <= info.max else info.min for number in whole]
    return np.array(fits, info.dtype).astype(target)


@pytest.mark.parametrize("source", ["float32", "float64", "float16"])
@pytest.mark.parametrize("target", [*SIGNED, *UNSIGNED, "bool"])
def test_casts_of_floats(source: str, target: str) -> None:
    """To unsigned types of 32 bits and more only of what they hold: the rest is open."""
    with np.errstate(over="ignore"):
        x = np.array([*REALS, *(-r for r in REALS), math.nan]).astype(source)
    if target in ("uint32", "uint64"):
        x = x[(x > -1) & (x.astype(np.float64) < 2.0 ** int(target[4:]))]
    to = {"to": helper.np_dtype_to_tensor_dtype(np.dtype(target))}
    model = node_model("Cast", {"x": x}, to)
    expected = integers_of(x, target)
    if platform.machine() in ("x86_64", "AMD64"):
        np.testing.assert_array_equal(session(model).run(None, {"x": x})[0], expected)
    for simd in LEVELS:
        (y,) = dvm_graph.optimize(model, simd=simd).run({"x": x})
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "target", ["float32", "float64", "float16", "int64", "int8", "uint32", "bool"]
)
def test_kernels_cast_uint64(target: str) -> None:
    """Also of the half that int64 does not hold, halfway between floats and next to that, and in turns of a loop."""
    steps = [1 << bit for bit in range(64)]
    near = [2**63 + step + more for step in steps[:-1] for more in (-1, 0, 1)]
    x = np.array([*steps, *near, 0, 2**64 - 1, 2**64 - 2**39, 2**64 - 2**39 - 1], np.uint64)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    model = node_model("Cast", {"x": x}, {"to": to})
    (expected,) = session(model).run(None, {"x": x})
    for simd in LEVELS:
        (y,) = dvm_graph.optimize(model, strict=True, simd=simd).run({"x": x})
        np.testing.assert_array_equal(y, expected)
    kind = helper.tensor_dtype_to_string(to).split(".")[1].lower()
    looped = parse(f"""g (int64 n, uint64[k] x) => (uint64[k] y, {kind}[n, k] z) {{
      y, z = Loop(n, "", x) <body = turn (int64 i, bool go, uint64[k] h) => (bool on, uint64[k] g, {kind}[k] r) {{
        on = Identity(go)
        r = Cast<to = {to}>(h)
        back = Cast<to = 13>(r)
        g = BitwiseXor(back, h)
      }}>
    }}""")
    agrees(looped, *({"n": np.array(n), "x": x >> np.uint64(49)} for n in (2, 1)))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_ranges_to_the_ends(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for start, limit, delta in (
        (high - 3, high, 1),
        (low, low + 5, 2),
        (high, high - 4, -3),
        (3, 3, 1),
    ):
        numbers = dict(zip(("start", "limit", "delta"), (start, limit, delta), strict=True))
        constants = {name: np.array(value, dtype) for name, value in numbers.items()}
        model = node_model("Range", {}, {}, constants)
        expected = np.arange(start, limit, delta, dtype=object).astype(dtype)
        np.testing.assert_array_equal(dvm_graph.optimize(model).run({})[0], expected)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_clip(dtype: str) -> None:
    """The upper bound wins over the lower one."""
    x = np.array([-9, -1, 0, 1, 9], dtype)
    if dtype == "float32":
        x = np.append(x, np.array([math.nan, math.inf, -math.inf, -0.0], dtype))
    for low, high in ((-1, 1), (3, -3), (0, 0), (-(2**31), 2**31 - 129)):
        bounds = {"low": np.array(low, dtype), "high": np.array(high, dtype)}
        model = node_model("Clip", {"x": x}, {}, bounds)
        (expected,) = session(model).run(None, {"x": x})
        np.testing.assert_array_equal(dvm_graph.optimize(model).run({"x": x})[0], expected)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_means_next_to_the_ends(dtype: str) -> None:
    """float64, in which int64 is averaged, rounds the greatest number up beyond the type."""
    model = node_model("ReduceMean", {"x": np.zeros(1, dtype)}, {"keepdims": 0}, opset=18)
    mine, low, high = dvm_graph.optimize(model), np.iinfo(dtype).min, np.iinfo(dtype).max
    for numbers in ([high], [high, high], [high, high - 1], [low, low], [low, high], [low]):
        feeds = {"x": np.array(numbers, dtype)}
        np.testing.assert_array_equal(mine.run(feeds)[0], session(model).run(None, feeds)[0])
