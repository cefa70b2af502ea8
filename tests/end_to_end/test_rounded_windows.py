"""Channels of bytes that are convolved by themselves are rounded to levels at once, for products and as results."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import assert_same_bits
from tests.end_to_end.test_integer_products import (
    GENERATOR,
    begun_anew,  # noqa: F401 - a fixture
    check,
    integers,
    model_with,
    unoptimised,
    weights,
)


@pytest.mark.parametrize("simd", [None, *_core.simd_levels()])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize(("channels", "kernel"), [(32, 3), (6, 3), (96, 5), (70, 1), (129, 3)])
def test_levels_are_bundles_of_a_product(
    channels: int, kernel: int, kind: str, simd: str | None
) -> None:
    """A block of MobileNet: widened, by itself, narrowed; channels that are whole bundles or not."""
    inputs, outputs = 16, 24
    zero = np.array(120 if kind == "uint8" else -3, kind)
    constants = {
        "w1": weights(channels, inputs, 1, 1), "w2": weights(channels, 1, kernel, kernel),
        "w3": weights(outputs, channels, 1, 1), "s": np.float32(0.02), "none": np.int8(0), "z": zero,
        "t1": np.float32(1.5), "t2": np.float32(0.8 * kernel), "t3": np.float32(2.5),
        "s2": GENERATOR.uniform(0.01, 0.03, channels).astype(np.float32), "nones": np.zeros(channels, np.int8),
        "b2": integers("int16", channels).astype(np.int32),
    }  # fmt: skip
    text = f"""g ({kind}[n, {inputs}, h, k] x) => ({kind}[n, {outputs}, p, q] y) {{
        a = QLinearConv(x, s, z, w1, s, none, t1, z)
        b = QLinearConv<group = {channels}, pads = {[kernel // 2] * 4}>(a, s, z, w2, s2, nones, t2, z, b2)
        y = QLinearConv(b, s, z, w3, s, none, t3, z)
    }}"""
    model = model_with(text, constants)
    feeds = [{"x": integers(kind, n, inputs, h, w)} for n, h, w in ((1, 9, 12), (3, 7, 5))]
    check(model, *feeds, simd=simd, instruction="d_depthwise_quantize" if channels % 4 == 0 else "")


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 32, 80])
def test_levels_are_a_result(channels: int, kind: str) -> None:
    """In planes, where an image's channels lie side by side: turned around in tiles. Windows by two, one row, none."""
    zero = np.array(100 if kind == "uint8" else -3, kind)
    constants = {
        "w": weights(channels, 1, 3, 3), "s": np.float32(0.02), "none": np.int8(0), "t": np.float32(1.7), "z": zero,
    }  # fmt: skip
    text = f"""g ({kind}[n, {channels}, h, k] x) => ({kind}[n, {channels}, p, q] y) {{
        y = QLinearConv<group = {channels}, pads = [1, 1, 1, 1], strides = [2, 1]>(x, s, z, w, s, none, t, z)
    }}"""
    feeds = [
        {"x": integers(kind, n, channels, h, w)} for n, h, w in ((2, 11, 30), (1, 1, 1), (0, 4, 4))
    ]
    check(model_with(text, constants), *feeds)


@pytest.mark.parametrize(("most", "least"), [(255, 0), (300, 0), (255, -1), (127, -128), (100, 7)])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("operator", ["ConvInteger", "MatMulInteger"])
def test_what_is_no_byte_wraps(operator: str, kind: str, most: int, least: int) -> None:
    """Bounds may lie beyond what the sums are cast to in the end."""
    channels = 40
    if operator == "ConvInteger":
        left, call = "q", f"ConvInteger<group = {channels}, pads = [1, 1, 1, 1]>(q, w, z)"
        constants = {
            "w": weights(channels, 1, 3, 3),
            "f": GENERATOR.uniform(0.01, 0.1, (channels, 1, 1)),
        }
        shapes, sizes, result = (
            [(1, channels, 6, 7), (2, channels, 3, 3)],
            f"n, {channels}, h, k",
            "n, c, p, q",
        )
    else:
        left, call = "q", "MatMulInteger(q, w, z)"
        constants = {"w": weights(9, channels), "f": GENERATOR.uniform(0.01, 0.1, channels)}
        shapes, sizes, result = [(5, 9), (33, 9)], "n, 9", f"n, {channels}"
    constants["f"] = constants["f"].astype(np.float32)
    constants |= {"z": np.uint8(128), "most": np.float32(most), "least": np.int32(least)}
    to = {"uint8": 2, "int8": 3}[kind]
    text = f"""g (uint8[{sizes}] {left}) => ({kind}[{result}] y) {{
        a = {call}
        b = Cast<to = 1>(a)
        m = Mul(b, f)
        r = Round(m)
        i = Min(r, most)
        j = Cast<to = 6>(i)
        l = Max(j, least)
        y = Cast<to = {to}>(l)
    }}"""
    model = model_with(text, constants)
    compiled, reference = dvm_graph.optimize(model, strict=True, check=True), unoptimised(model)
    for shape in shapes:
        feed = {"q": integers("uint8", *shape)}
        assert_same_bits(compiled.run(feed), reference.run(None, feed))


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("zero", [16384, -16384, 32767, -32600, 40000, -70000])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_zero_points_that_sums_of_16_bits_do_not_hold(kind: str, zero: int, simd: str) -> None:
    """They move large levels to where bytes are, of a result and of the left operand of a product."""
    limits, drawn = np.iinfo(kind), np.random.default_rng(7)
    constants = {
        "w": drawn.integers(-64, 64, (9, 40), np.int8), "v": drawn.integers(-64, 64, (40, 24), np.int8), "none": np.uint8(128), "zero": np.float32(zero),
        "f": np.full(40, abs(zero) / 5000, np.float32), "most": np.float32(limits.max), "least": np.int32(limits.min),
    }  # fmt: skip
    text = f"""g (uint8[n, 9] x) => ({kind}[n, 40] y, int32[n, 24] z) {{
        a = MatMulInteger(x, w, none)
        b = Cast<to = 1>(a)
        m = Mul(b, f)
        r = Round(m)
        p = Add(r, zero)
        i = Min(p, most)
        j = Cast<to = 6>(i)
        l = Max(j, least)
        y = Cast<to = {2 if kind == "uint8" else 3}>(l)
        z = MatMulInteger(y, v)
    }}"""
    for results in (["y"], ["z"]):
        model = model_with(text, constants)
        kept = [output for output in model.graph.output if output.name in results]
        del model.graph.output[:]
        model.graph.output.extend(kept)
        feed = {"x": drawn.integers(0, 256, (33, 9), np.uint8)}
        compiled = dvm_graph.optimize(model, strict=True, simd=simd)
        assert_same_bits(compiled.run(feed), unoptimised(model).run(None, feed))
