"""Reductions of different kinds over the same rows, which are read once, against numpy; and NaN wherever it lies."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import Array

KINDS = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min}
LENGTHS = (1, 3, 17, 64, 65, 255, 1025, 1091, 5000, 70001)


def compiled(first: str, second: str, axes: str, simd: str) -> dvm_graph.Model:
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[m, n] x) => (float[m2, n2] a, float[m2, n2] b, float[m2, n2] c) <int64[k] axes = {{{axes}}}> {{
        a = {first}(x, axes)
        b = {second}(x, axes)
        c = Sub(a, b)
    }}"""
    text = text.replace("int64[k]", f"int64[{len(axes.split(','))}]")
    return dvm_graph.optimize(onnx.parser.parse_model(text), strict=True, simd=simd)


def check(model: dvm_graph.Model, kinds: tuple[str, str], x: Array, axes: tuple[int, ...]) -> None:
    for kind, y in zip(kinds, model.run({"x": x})[:2], strict=True):
        wanted = KINDS[kind](x.astype(np.float64), axis=axes, keepdims=True)
        if kind == "ReduceSum":
            size = np.sum(np.abs(x.astype(np.float64)), axis=axes, keepdims=True)
            finite = np.isfinite(wanted)
            assert np.all(np.abs(y[finite] - wanted[finite]) <= 1e-6 * size[finite])
            np.testing.assert_array_equal(y[~finite], wanted[~finite])
        else:
            np.testing.assert_array_equal(y, wanted.astype(np.float32))


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("kinds", list(itertools.permutations(KINDS, 2)), ids="-".join)
@pytest.mark.parametrize("axes", ["0,1", "1"])
def test_two_of_the_same_rows(kinds: tuple[str, str], axes: str, simd: str) -> None:
    random = np.random.default_rng(5)
    model = compiled(*kinds, axes, simd)
    over = tuple(int(axis) for axis in axes.split(","))
    for rows, length in itertools.product((1, 3), LENGTHS):
        x = random.standard_normal((rows, length), dtype=np.float32)
        check(model, kinds, x, over)
        check(model, kinds, np.full_like(x, np.inf), over)
        check(model, kinds, np.full_like(x, -np.inf), over)
        for _ in range(2):
            for value in (np.nan, np.inf):
                spoilt = x.copy()
                spoilt[random.integers(rows), random.integers(length)] = value
                check(model, kinds, spoilt, over)


def test_rows_are_read_once() -> None:
    model = compiled("ReduceMin", "ReduceMax", "0,1", _core.simd_levels()[-1])
    for shape in ((1, 5000), (700, 800)):
        listing = str(model.disassemble({"x": np.zeros(shape, np.float32)}))
        (fold,) = (
            line for line in listing.splitlines() if "v_reduce_min" in line and "<- x" in line
        )
        assert "joined" in fold


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_nan_wherever_it_lies(kind: str, dtype: str, simd: str) -> None:
    """Alone, and behind what is computed."""
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    g ({dtype}[m, n] x) => ({dtype}[m2, n2] a, {dtype}[m2, n2] b) <int64[1] axes = {{1}}> {{
        a = {kind}(x, axes)
        y = Neg(x)
        b = {kind}(y, axes)
    }}"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text), strict=True, simd=simd)
    numpy_type = np.float32 if dtype == "float" else np.float64
    fold = np.max if kind == "ReduceMax" else np.min
    for length in (1, 5, 16, 31, 64, 127, 128, 129, 200, 512, 700, 2049):
        x = np.random.default_rng(length).standard_normal((length, length)).astype(numpy_type)
        np.fill_diagonal(x, np.nan)
        x[::3] = np.abs(np.nan_to_num(x[::3]))
        a, b = model.run({"x": x})
        np.testing.assert_array_equal(a, fold(x, axis=1, keepdims=True))
        np.testing.assert_array_equal(b, fold(-x, axis=1, keepdims=True))
