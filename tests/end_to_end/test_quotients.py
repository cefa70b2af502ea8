"""Quotients that are rounded to levels are those of a division, also where they are next to a half."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import Array

SCALES = [
    *np.random.default_rng(3).uniform(1e-3, 3, 12), 0.1, 1 / 3, 1, 0.25, 1e-30, 3e25, 2.0**-61, 2.0**61, 1e-39,
]  # fmt: skip


def near_halves(scale: np.float32, low: int, high: int) -> Array:
    """What ends as a level and a half, the numbers around it, and what is beyond all levels."""
    halves = np.arange(low - 3, high + 3, max(1, (high - low) // 1000)) + np.float32(0.5)
    middle = halves.astype(np.float32) * scale
    steps = [middle]
    for toward in (np.float32(-np.inf), np.float32(np.inf)):
        beside = middle
        for _ in range(3):
            beside = np.nextafter(beside, toward)
            steps.append(beside)
    far = np.array([0.0, -0.0, 1e38, -1e38, np.inf, -np.inf, 1e-45, 7e-39], np.float32)
    return np.concatenate([*steps, far])


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize(
    ("kind", "zero"), [("uint8", 0), ("uint8", 130), ("int8", -7), ("uint16", 40000), ("int16", 0)]
)
def test_levels_are_those_of_a_division(kind: str, zero: int, simd: str) -> None:
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    for number in SCALES:
        scale = np.float32(number)
        text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n] x) => ({kind}[n] y) <float s = {{{float(scale)!r}}}, {kind} z = {{{zero}}}> {{
            y = QuantizeLinear(x, s, z)
        }}"""
        model = dvm_graph.optimize(onnx.parser.parse_model(text), strict=True, simd=simd)
        with np.errstate(over="ignore"):
            x = near_halves(scale, low - zero, high - zero)
            wanted = np.clip(np.rint(x / scale).astype(np.float64) + zero, low, high).astype(kind)
        for count in (x.size, 130, 1):
            np.testing.assert_array_equal(model.run({"x": x[:count]})[0], wanted[:count])


@pytest.mark.parametrize("simd", _core.simd_levels())
def test_nan_is_the_lowest_level_wherever_it_lies(simd: str) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[n] x) => (uint8[n] y) <float s = {0.1}, uint8 z = {7}> { y = QuantizeLinear(x, s, z) }"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text), strict=True, simd=simd)
    x = np.ones(1000, np.float32)
    for at in (0, 17, 517, 999):
        x[at] = np.nan
    (y,) = model.run({"x": x})
    np.testing.assert_array_equal(y, np.where(np.isnan(x), 0, 17))
