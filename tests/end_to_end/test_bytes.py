"""Integers of 8 bits: what is computed of them wraps, in bytes where those are enough. Against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import parser

import dvm_graph
from dvm_graph import _core

Array = np.ndarray[Any, Any]
Operation = Callable[[Array, Array], Array]

SHAPES = ((1, 1), (2, 3), (7, 17), (5, 64), (3, 129), (0, 5), (33, 257))
LEVELS = _core.simd_levels()

CHAINS: dict[str, tuple[str, str, Operation]] = {
    "add": ("T", "y = Add(x, z)", lambda x, z: x + z),
    "sub": ("T", "y = Sub(x, z)", lambda x, z: x - z),
    "sub_from": ("T", "y = Sub(five, x)", lambda x, z: 5 - x),
    "mul": ("T", "y = Mul(x, z)", lambda x, z: x * z),
    "square": ("T", "y = Mul(x, x)", lambda x, z: x * x),
    "chain": (
        "T",
        "a = Mul(x, z) b = Sub(a, x) c = Add(b, five) d = Sub(z, c) y = Mul(d, c)",
        lambda x, z: (z - (x * z - x + 5)) * (x * z - x + 5),
    ),
    "wrapped_then_bounded": (
        "T",
        "a = Add(x, z) b = Max(a, five) y = Min(b, x)",
        lambda x, z: np.minimum(np.maximum(x + z, 5), x),
    ),
    "wrapped_then_float": (
        "float",
        "a = Sub(x, z) y = Cast<to = 1>(a)",
        lambda x, z: (x - z).astype(np.float32),
    ),
    "wrapped_then_compared": ("bool", "a = Add(x, z) y = Less(a, x)", lambda x, z: x + z < x),
    "clip": ("T", "y = Clip(x, five, ninety)", lambda x, z: np.clip(x, 5, 90)),
    "eq": ("bool", "y = Equal(x, z)", lambda x, z: x == z),
    "lt": ("bool", "y = Less(x, z)", lambda x, z: x < z),
    "le": ("bool", "y = LessOrEqual(x, z)", lambda x, z: x <= z),
    "gt_number": ("bool", "y = Greater(x, ninety)", lambda x, z: x > 90),
    "ge_number": ("bool", "y = GreaterOrEqual(five, x)", lambda x, z: x <= 5),
    "truth": ("bool", "y = Cast<to = 9>(x)", lambda x, z: x != 0),
    "truth_as_number": (
        "T",
        "a = Cast<to = 9>(x) y = CastLike(a, x)",
        lambda x, z: (x != 0).astype(x.dtype),
    ),
    "truth_as_float": (
        "float",
        "a = Cast<to = 9>(x) y = Cast<to = 1>(a)",
        lambda x, z: (x != 0).astype(np.float32),
    ),
    "mask": ("T", "a = Greater(x, z) y = CastLike(a, x)", lambda x, z: (x > z).astype(x.dtype)),
    "scaled_mask": (
        "T",
        "a = Greater(x, z) b = CastLike(a, x) y = Mul(b, ninety)",
        lambda x, z: (x > z).astype(x.dtype) * 90,
    ),
    "where": (
        "T",
        "a = Equal(x, z) y = Where(a, five, x)",
        lambda x, z: np.where(x == z, x.dtype.type(5), x),
    ),
    "where_and_number": (
        "T",
        "a = Less(x, z) b = Where(a, z, x) y = Add(b, x)",
        lambda x, z: np.where(x < z, z, x) + x,
    ),
    "bits": (
        "T",
        "a = BitwiseAnd(x, z) b = BitwiseOr(a, five) y = BitwiseXor(b, x)",
        lambda x, z: ((x & z) | 5) ^ x,
    ),
    "least": ("T", "y = Min(x, z, ninety)", lambda x, z: np.minimum(np.minimum(x, z), 90)),
    "greatest": ("T", "y = Max(x, z)", np.maximum),
    "magnitude": ("T", "y = Abs(x)", lambda x, z: np.abs(x)),
    "magnitude_of_sum": (
        "T",
        "a = Add(x, z) b = Abs(a) c = Max(b, z) y = Sub(c, x)",
        lambda x, z: np.maximum(np.abs(x + z), z) - x,
    ),
    "sign": ("T", "y = Sign(x)", lambda x, z: np.sign(x)),
    "sign_of_difference": (
        "T",
        "a = Sub(x, z) b = Sign(a) y = Mul(b, z)",
        lambda x, z: np.sign(x - z) * z,
    ),
    "inverted": ("T", "a = BitwiseNot(x) y = Max(a, z)", lambda x, z: np.maximum(~x, z)),
    "bits_of_sums": (
        "T",
        "a = Add(x, z) b = Mul(x, z) c = BitwiseXor(a, b) d = Min(c, x) y = BitwiseNot(d)",
        lambda x, z: ~np.minimum((x + z) ^ (x * z), x),
    ),
    "other_sign": (
        "bool",
        "a = Cast<to = 3>(x) b = Cast<to = 2>(a) c = Cast<to = 3>(z) d = Less(a, c) "
        "e = CastLike(d, b) f = Greater(b, e) y = And(d, f)",
        lambda x, z: (
            (x.view(np.int8) < z.view(np.int8))
            & (x.view(np.uint8) > (x.view(np.int8) < z.view(np.int8)))
        ),
    ),
    "chosen_from_sums": (
        "T",
        "a = Add(x, z) b = Sub(x, z) c = Less(x, z) d = Where(c, a, b) y = Max(d, five)",
        lambda x, z: np.maximum(np.where(x < z, x + z, x - z), 5),
    ),
    "greatest_of_rows": (
        "T",
        "y = ReduceMax<keepdims = 1>(x, last)",
        lambda x, z: x.max(1, keepdims=True, initial=np.iinfo(x.dtype).min),
    ),
    "least_of_columns_of_sums": (
        "T",
        "a = Add(x, z) y = ReduceMin<keepdims = 1>(a, first)",
        lambda x, z: (x + z).min(0, keepdims=True, initial=np.iinfo(x.dtype).max),
    ),
    "less_than_the_greatest": (
        "bool",
        "a = ReduceMax<keepdims = 1>(x, last) y = Less(z, a)",
        lambda x, z: z < x.max(1, keepdims=True, initial=np.iinfo(x.dtype).min),
    ),
    "turned": (
        "bool",
        "a = Transpose(x) b = Transpose(z) c = Less(a, b) y = Transpose(c)",
        lambda x, z: x < z,
    ),
    "taken": ("T", "a = Concat<axis = 0>(x, z) y = Gather(a, rows)", lambda x, z: x[:1][[0] * 2]),
    "wide": (
        "int32",
        "a = Less(x, z) b = Where(a, z, x) y = Cast<to = 6>(b)",
        lambda x, z: np.where(x < z, z, x).astype(np.int32),
    ),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", CHAINS)
def test_equals_numpy(name: str, dtype: str) -> None:
    kind, body, meaning = CHAINS[name]
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g ({dtype}[r, c] x, {dtype}[r, c] z) => ({kind.replace("T", dtype)}[q, s] y)
        <{dtype} five = {{5}}, {dtype} ninety = {{90}}, int64[2] rows = {{0, 0}}, int64[1] first = {{0}}, int64[1] last = {{1}}> {{ {body} }}""")
    compiled = [dvm_graph.optimize(model, strict=True, simd=level) for level in LEVELS]
    generator = np.random.default_rng(1)
    info = np.iinfo(dtype)
    for shape in SHAPES:
        if shape[0] == 0 and name in ("taken", "least_of_columns_of_sums"):
            continue
        x = generator.integers(info.min, info.max, shape, dtype, endpoint=True)
        z = np.where(generator.random(shape) < 0.3, x, np.flip(x)).astype(dtype)
        for mine in compiled:
            y = mine.run({"x": x, "z": z})[0]
            wanted = meaning(x, z)
            assert y.dtype == wanted.dtype
            assert y.dtype == wanted.dtype
            np.testing.assert_array_equal(y.view(f"V{y.itemsize}"), wanted.view(f"V{y.itemsize}"))


def test_only_what_is_computed_of_is_widened() -> None:
    """By the instructions that comparisons, sums and quotients read their operands with."""
    for op, widens in (("Less", False), ("Add", False), ("Max", False), ("Div", True)):
        kind = "bool" if op == "Less" else "uint8"
        model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
            g (uint8[n] x, uint8[n] z) => ({kind}[n] y) {{ y = {op}(x, z) }}""")
        x = np.zeros(1000, np.uint8)
        code = dvm_graph.optimize(model, strict=True).disassemble({"x": x, "z": x})
        assert ("d_load_u8" in code) == widens
