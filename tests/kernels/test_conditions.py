"""Models that tell apart what conditions of lowering hold apart, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import dvm_graph
from tests.end_to_end.reference import Feeds, assert_agrees

BOUNDED: dict[str, tuple[str, Feeds]] = {
    "integers that wrap to bytes": (
        """g (int32[n] x) => (float[n] y) <int32 most = {100}, uint8 least = {3}> {
            a = Min (x, most)
            b = Cast <to = 2> (a)
            c = Max (b, least)
            d = Cast <to = 3> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, -300], np.int32)},
    ),
    "integers that wrap to others as wide as registers": (
        """g (int64[n] x) => (float[n] y) <int64 most = {100}, int32 least = {-3}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 3> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, -(2**31) - 1], np.int64)},
    ),
    "floats that end as bytes": (
        """g (float[n] x) => (float[n] y) <float most = {100.0}, int32 least = {3}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, -3e9, -np.inf, np.inf, np.nan], np.float32)},
    ),
    "a bound of the one kind only": (
        """g (float[n] x) => (float[n] y) <int32 least = {3}> {
            b = Cast <to = 6> (x)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 200, 300], np.float32)},
    ),
    "bounds of another type": (
        """g (float[n] x) => (float[n] y) <float most = {200.0}, int32 least = {-100}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 3> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 4, 1, 300, 130, -300], np.float32)},
    ),
    "bounds for each element": (
        """g (float[3] x) => (float[n] y) <float[3] most = {100.0, 300.0, 100.0}, int32 least = {3}> {
            a = Min (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 290, 300], np.float32)},
    ),
    "a number that is no bound": (
        """g (float[n] x) => (float[m] y) <float most = {5.0}, int32 least = {3}> {
            a = Add (x, most)
            b = Cast <to = 6> (a)
            c = Max (b, least)
            d = Cast <to = 2> (c)
            y = Cast <to = 1> (d)
        }""",
        {"x": np.array([-5, 290, 300], np.float32)},
    ),
    "bytes of the other sign": (
        """g (int8[n] x, uint8[n] z) => (float[m] y, float[k] w) {
            a = Cast <to = 2> (x)
            b = Cast <to = 3> (z)
            y = Cast <to = 1> (a)
            w = Cast <to = 1> (b)
        }""",
        {"x": np.array([-1, 0, 127], np.int8), "z": np.array([255, 128, 127], np.uint8)},
    ),
    "floats that are rounded on their way": (
        """g (float[n] x) => (float[m] y) {
            a = Cast <to = 10> (x)
            b = Cast <to = 1> (a)
            y = Sub (b, x)
        }""",
        {"x": np.array([0.1, 1000.7, -3.3], np.float32)},
    ),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_spare_wrapping_where_they_hold(name: str) -> None:
    text, feeds = BOUNDED[name]
    assert_agrees(text, feeds)


LEAVING: dict[str, tuple[str, str, list[int], list[int], list[int]]] = {
    "int8 Add": ("int8", "Add (x, z)", [127, -128, 3], [1, -1, 4], [-128, 127, 7]),
    "int8 Sub": ("int8", "Sub (x, z)", [127, -128, 3], [-1, 1, 4], [-128, 127, -1]),
    "int8 Mul": ("int8", "Mul (x, z)", [127, -128, 3], [2, -1, 4], [-2, -128, 12]),
    "int8 Div": ("int8", "Div (x, z)", [127, -128, 9], [2, -1, 4], [63, -128, 2]),
    "int8 Neg": ("int8", "Neg (x)", [127, -128, 3], [0, 0, 0], [-127, -128, -3]),
    "int8 Abs": ("int8", "Abs (x)", [-127, -128, 3], [0, 0, 0], [127, -128, 3]),
    "int8 of int16": ("int16", "Cast <to = 3> (x)", [128, -129, 3], [0, 0, 0], [-128, 127, 3]),
    "int8 of uint8": ("uint8", "Cast <to = 3> (x)", [128, 255, 3], [0, 0, 0], [-128, -1, 3]),
    "uint8 Add": ("uint8", "Add (x, z)", [255, 128, 3], [1, 128, 4], [0, 0, 7]),
    "uint8 Sub": ("uint8", "Sub (x, z)", [0, 128, 9], [1, 129, 4], [255, 255, 5]),
    "uint8 BitwiseNot": ("uint8", "BitwiseNot (x)", [0, 255, 9], [0, 0, 0], [255, 0, 246]),
    "uint8 BitShift": (
        "uint8",
        'BitShift <direction = "LEFT"> (x, z)',
        [128, 255, 9],
        [1, 4, 1],
        [0, 240, 18],
    ),
    "uint8 of int8": ("int8", "Cast <to = 2> (x)", [-1, -128, 9], [0, 0, 0], [255, 128, 9]),
    "int16 Add": ("int16", "Add (x, z)", [32767, -32768, 3], [1, -1, 4], [-32768, 32767, 7]),
    "uint16 Mul": ("uint16", "Mul (x, z)", [65535, 256, 3], [2, 256, 4], [65534, 0, 12]),
    "uint16 of int32": ("int32", "Cast <to = 4> (x)", [-1, 65536, 3], [0, 0, 0], [65535, 0, 3]),
    "uint32 Sub": (
        "uint32",
        "Sub (x, z)",
        [0, 7, 2**31],
        [1, 8, 4],
        [2**32 - 1, 2**32 - 1, 2**31 - 4],
    ),
    "uint32 BitwiseNot": (
        "uint32",
        "BitwiseNot (x)",
        [0, 2**32 - 1, 9],
        [0, 0, 0],
        [2**32 - 1, 0, 2**32 - 10],
    ),
    "uint32 of int32": ("int32", "Cast <to = 12> (x)", [-1, 0, 3], [0, 0, 0], [2**32 - 1, 0, 3]),
    "uint32 ReduceSum": (
        "uint32",
        "ReduceSum <keepdims = 0> (r, last)",
        [2**32 - 1, 2, 3],
        [0, 0, 0],
        [4],
    ),
    "uint32 ReduceProd": (
        "uint32",
        "ReduceProd <keepdims = 0> (r, last)",
        [2**31, 2, 3],
        [0, 0, 0],
        [0],
    ),
}
"""Operators of integers that kernels hold in wider registers: operands, and what there is in their type. onnxruntime has few."""


@pytest.mark.parametrize("name", LEAVING)
def test_what_leaves_a_narrow_type_wraps_before_it_is_read(name: str) -> None:
    """It is compared with what it is: stored, it would wrap in any case."""
    dtype, operator, x, z, expected = LEAVING[name]
    result = name.split()[0]
    text = f"""g ({dtype}[n] x, {dtype}[n] z, {result}[{len(expected)}] e) => (bool[m] y)
    <int64[2] row = {{1, -1}}, int64[1] last = {{-1}}> {{
        r = Reshape (x, row)
        a = {operator}
        y = Equal (a, e)
    }}"""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    feeds = {"x": np.array(x, dtype), "z": np.array(z, dtype), "e": np.array(expected, result)}
    (y,) = dvm_graph.optimize(model, strict=True).run(feeds)
    assert y.all()


OPERANDS: dict[str, tuple[str, Feeds]] = {
    "one number, repeated to a matrix": (
        """g (float[m, k] x, int64[2] extents) => (float[m, n] y) <float three = {3.0}> {
            w = Expand (three, extents)
            y = MatMul (x, w)
        }""",
        {"x": (70, 5), "extents": np.array([5, 6])},
    ),
    "a constant on the left": (
        """g (float[4, 6] x) => (float[2, 6] y)
        <float[2, 4] w = {1.0, -2.0, 3.0, 0.5, 4.0, 0.25, -1.0, 2.0}> { y = MatMul (w, x) }""",
        {"x": (4, 6)},
    ),
    "the half of unsigned integers": (
        "g (uint64[n] x) => (uint64[n] y) <uint64 half = {9223372036854775808}> { y = BitwiseAnd (x, half) }",
        {"x": np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)},
    ),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_are_read_as_what_they_are(name: str) -> None:
    text, feeds = OPERANDS[name]
    assert_agrees(text, feeds, strict=True)
