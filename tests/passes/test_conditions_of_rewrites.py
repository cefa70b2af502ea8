"""Models that tell apart what conditions of exact rewrites hold apart, against onnxruntime."""

from __future__ import annotations

import re

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import Array, Feeds, assert_agrees, model_from_text

_NUMBERS = np.array([-9, -8, -1, 0, 1, 7, 8, 100], np.int32)
_BITS = np.array([True, False, True])
_ZEROS = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan, 1.5], np.float32)


def halves(*numbers: float) -> Array:
    return np.array(numbers, np.float16)


REWRITTEN: dict[str, tuple[str, Feeds]] = {
    "integers by powers of two": (
        "int32[n] x; int32[m] y; y = Div (x, eight)",
        {"x": _NUMBERS},
    ),
    "halves by powers of two without inverses": (
        "float16[n] x; float16[m] y; y = Div (x, least_half)",
        {"x": halves(2.0**-20, 3 * 2.0**-20, -0.0, 1.0)},
    ),
    "halves by the largest power of two": (
        "float16[n] x; float16[m] y; y = Div (x, most_half)",
        {"x": halves(65504, 1, 6e-8, -0.0, np.inf)},
    ),
    "by powers of two without inverses": (
        "float[n] x; float[m] y; y = Div (x, denormal)",
        {"x": np.array([2.0**-130, 1e-40, 0.0, 1.0], np.float32)},
    ),
    "by infinity and by zero": (
        "float[n] x; float[m] y, float[k] z; y = Div (x, infinite) z = Div (x, zero)",
        {"x": _ZEROS},
    ),
    "zeros of other signs": (
        "float[n] x; float[m] y, float[k] z, float[l] v, float[j] w; a = Add (x, zero) y = Div (one, a)"
        " b = Sub (x, minus_zero) z = Div (one, b) c = Add (x, minus_zero) v = Div (one, c) d = Sub (x, zero) w = Div (one, d)",
        {"x": _ZEROS},
    ),
    "zeros of integers": (
        "int32[n] x; int32[m] y, int32[k] z; y = Add (none, x) z = Sub (none, x)",
        {"x": _NUMBERS},
    ),
    "ones, and others": ("float[3] x; float[m] y; y = Mul (x, many)", {"x": (3,)}),
    "ones on the other side": (
        "float[n] x; float[m] y, float[k] z; y = Div (one, x) z = Pow (one, x)",
        {"x": (3,)},
    ),
    "powers": (
        "float[n] x; float[m] y, float[k] z, float[l] w; y = Pow (x, two) z = Pow (x, one) w = Pow (two, x)",
        {"x": _ZEROS},
    ),
    "powers of one more axis": ("float[n] x; float[m, k] y; y = Pow (x, wide_two)", {"x": (3,)}),
    "twice": (
        "float[n] x, bool[k] b; float[m] y, bool[l] z, float[j] w; a = Neg (x) y = Neg (a) c = Not (b) z = Not (c) d = Abs (x) w = Neg (d)",
        {"x": (3,), "b": _BITS},
    ),
    "a known choice": (
        "float[n] x, float[n] u; float[m] y, float[k] z; y = Where (yes, x, u) z = Where (no, x, u)",
        {"x": (3,), "u": (3,)},
    ),
    "a known choice of what is spread": (
        "float[1] x, float[n] u; float[m] y, float[k] z; y = Where (yes, x, u) z = Where (no, x, u)",
        {"x": (1,), "u": (3,)},
    ),
    "known choices that differ": (
        "float[3] x, float[3] u; float[m] y; y = Where (mixed, x, u)",
        {"x": (3,), "u": (3,)},
    ),
    "a choice of what was cast": (
        "bool[n] b, int8[n] i, uint8[n] j; float[m] y; c = Cast <to = 1> (i) d = Cast <to = 1> (j) y = Where (b, c, d)",
        {"b": _BITS, "i": np.array([-1, 2, -3], np.int8), "j": np.array([255, 2, 253], np.uint8)},
    ),
    "a choice of rows of products": (
        "bool[3, 1] b, float[3, 3] x, float[3, 4] u, float[3, 4] v; float[m, k] y; c = MatMul (x, u) d = MatMul (x, v) y = Where (b, c, d)",
        {"b": _BITS[:, None], "x": (3, 3), "u": (3, 4), "v": (3, 4)},
    ),
    "a choice of what was turned": (
        "bool[3, 3] b, float[3, 3] u, float[3, 3] v; float[m, k] y; c = Transpose (u) d = Transpose (v) y = Where (b, c, d)",
        {"b": np.tri(3, dtype=bool), "u": (3, 3), "v": (3, 3)},
    ),
    "a choice of sums": (
        "bool[3, 1] b, float[3, 4] u, float[3, 4] v; float[m, k] y; c = ReduceSum (u, last) d = ReduceSum (v, last) y = Where (b, c, d)",
        {"b": _BITS[:, None], "u": (3, 4), "v": (3, 4)},
    ),
    "a choice of operands that change sides": (
        "bool[n] b, float[n] u, float[n] v; float[m] y; c = Sub (u, v) d = Sub (v, u) y = Where (b, c, d)",
        {"b": _BITS, "u": (3,), "v": (3,)},
    ),
    "a choice of one of both": (
        "bool[k, n] b, float[n] u, float v; float[l, m] y; c = Sub (u, v) d = Sub (u, u) y = Where (b, c, d)",
        {"b": np.array([_BITS, ~_BITS]), "u": (3,), "v": np.array(2, np.float32)},
    ),
    "casts that lose": (
        "float[n] x; float[m] y, uint8[k] z, float[j] w; a = Cast <to = 6> (x) y = Cast <to = 1> (a) b = Cast <to = 3> (a)"
        " z = Cast <to = 2> (b) c = Cast <to = 10> (x) w = Cast <to = 1> (c)",
        {"x": np.array([-1.5, 2.25, 100.7, 1e-7], np.float32)},
    ),
    "casts that keep": (
        "int8[n] x; uint8[m] y, int8[k] z, bool[j] w; a = Cast <to = 1> (x) y = Cast <to = 2> (a) z = Cast <to = 3> (a) w = Cast <to = 9> (a)",
        {"x": np.array([1, 0, 127], np.int8)},
    ),
    "functions of bytes that wrap": (
        "uint8[n] x; uint8[m] y; a = Cast <to = 6> (x) b = Mul (a, seventy) c = Cast <to = 2> (b) d = Cast <to = 1> (c)"
        " e = Div (d, two) f = Sub (d, e) y = Cast <to = 2> (f)",
        {"x": np.arange(256, dtype=np.uint8)},
    ),
    "functions of bytes that are added as bytes": (
        "uint8[n] x; uint8[m] y; a = Add (x, many_bytes) b = Cast <to = 1> (a) c = Div (b, two) d = Sub (b, c) e = Sqrt (d)"
        " y = Cast <to = 2> (e)",
        {"x": np.arange(256, dtype=np.uint8)},
    ),
    "functions of bytes that are turned": (
        "uint8[n, n] x; uint8[m, k] y; a = Cast <to = 1> (x) b = Mul (a, a) c = Transpose (b) d = Add (c, b) e = Sqrt (d)"
        " y = Cast <to = 2> (e)",
        {"x": np.arange(25, dtype=np.uint8).reshape(5, 5)},
    ),
    "functions of bytes that are summed up": (
        "uint8[n] x; uint8[m] y; a = Cast <to = 1> (x) b = Mul (a, a) c = CumSum (b, first) d = Add (c, b) e = Sqrt (d)"
        " y = Cast <to = 2> (e)",
        {"x": np.arange(5, dtype=np.uint8)},
    ),
    "results that are equal": (
        "float[n] x; float[m] y, float[k] z, float[l] w; a = Exp (x) y = Exp (x) z = Exp (x) w = Neg (a)",
        {"x": (3,)},
    ),
    "functions of two bytes": (
        "uint8[n] x, uint8[n] z; uint8[m] y; a = Cast <to = 1> (x) b = Cast <to = 1> (z) c = Mul (a, b) d = Sqrt (c)"
        " e = Floor (d) y = Cast <to = 2> (e)",
        {"x": np.arange(256, dtype=np.uint8), "z": np.arange(256, dtype=np.uint8)[::-1].copy()},
    ),
    "two that are turned": (
        "float[3, 3] u, float[3, 3] v; float[m, k] y; c = Transpose (u) d = Transpose (v) y = Sub (c, d)",
        {"u": (3, 3), "v": (3, 3)},
    ),
    "one that is turned twice": (
        "float[3, 3] u; float[m, k] y; c = Transpose (u) y = Sub (c, c)",
        {"u": (3, 3)},
    ),
    "one that is turned beside itself": (
        "float[3, 3] u; float[m, k] y; c = Transpose (u) y = Sub (c, u)",
        {"u": (3, 3)},
    ),
    "one that is turned, by a number of more axes": (
        "float[3, 4] u; float[m, k, l] y; c = Transpose (u) y = Mul (c, deep_two)",
        {"u": (3, 4)},
    ),
    "one that is turned, by many numbers": (
        "float[3, 3] u; float[m, k] y; c = Transpose (u) y = Mul (c, many)",
        {"u": (3, 3)},
    ),
    "one that is turned, and read by others": (
        "float[3, 4] u; float[m, k] y, float[l, j] z; c = Transpose (u) y = Mul (c, two) z = Exp (c)",
        {"u": (3, 4)},
    ),
    "one that is spread, and nothing else is": (
        "float[1, 4] u, int64[2] s; float[m, k] y; c = Expand (u, s) d = Mul (c, u) y = Add (d, two)",
        {"u": (1, 4), "s": np.array([3, 1], np.int64)},
    ),
    "one that is spread more than another": (
        "float[n] u, float[k] v, int64[2] s; float[m, l] y; c = Expand (u, s) y = Mul (c, v)",
        {"u": (1,), "v": (4,), "s": np.array([3, 1], np.int64)},
    ),
}


@pytest.mark.parametrize("name", REWRITTEN)
def test_rewrites_keep_every_element(name: str) -> None:
    inputs, outputs, nodes = REWRITTEN[name][0].split(";")
    constants = {
        "eight": np.array(8, np.int32),
        "none": np.array(0, np.int32),
        "seventy": np.array(70, np.int32),
        "least_half": np.array(2.0**-20, np.float16),
        "most_half": np.array(2.0**15, np.float16),
        "denormal": np.array(2.0**-130, np.float32),
        "infinite": np.array(np.inf, np.float32),
        "zero": np.array(0, np.float32),
        "minus_zero": np.array(-0.0, np.float32),
        "one": np.array(1, np.float32),
        "two": np.array(2, np.float32),
        "wide_two": np.array([[2]], np.float32),
        "deep_two": np.array([[[2]]], np.float32),
        "many": np.array([1, 2, 3], np.float32),
        "yes": np.array([True]),
        "no": np.array(False),
        "mixed": np.array([True, False, True]),
        "last": np.array([1], np.int64),
        "first": np.array(0, np.int64),
        "many_bytes": np.array(200, np.uint8),
    }
    used = {key: data for key, data in constants.items() if re.search(rf"\b{key}\b", nodes)}
    assert_agrees(f"g ({inputs}) => ({outputs}) {{ {nodes} }}", REWRITTEN[name][1], constants=used)


@pytest.mark.parametrize("op", ["RandomUniformLike", "RandomNormalLike", "Bernoulli"])
def test_equal_samples_are_drawn_apart(op: str) -> None:
    model = model_from_text(
        f"g (float[n] x) => (float[m] y, float[k] z) {{ y = {op} (x) z = {op} (x) }}"
    )
    first, second = dvm_graph.optimize(model).run({"x": np.full(99, 0.5, np.float32)})
    assert (first != second).any()
