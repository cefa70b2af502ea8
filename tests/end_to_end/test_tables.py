"""Functions of bytes, which are looked up, between all that may stand around them: onnxruntime's results, byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

import dvm_graph
from dvm_graph import _core
from dvm_graph.errors import MiscompileError
from dvm_graph.ir import DType, Value
from dvm_graph.symbolic.builder import Builder

Array = np.ndarray[Any, Any]

LEVELS = _core.simd_levels()
BYTES = {"uint8": np.uint8, "int8": np.int8}
EXACT = {
    "relu": "g = Relu(d)",
    "leaky": "g = LeakyRelu<alpha = 0.125>(d)",
    "hard_swish": "g = HardSwish(d)",
    "hard_sigmoid": "g = HardSigmoid<alpha = 0.25, beta = 0.5>(d)",
    "square": "g = Mul(d, d)",
    "reciprocal": "g = Reciprocal(d)",  # infinite for one byte
    "root": "a = Abs(d) g = Sqrt(a)",
    "clip": "g = Clip(d, low, high)",
    "half": "a = Abs(d) h = Cast<to = 10>(a) r = Sqrt(h) g = Cast<to = 1>(r)",  # rounded once
}
"""Each of them is arithmetic that has one right result."""
ROUNDED = {
    "sigmoid": "g = Sigmoid(d)",
    "silu": "s = Sigmoid(d) g = Mul(d, s)",
    "tanh": "g = Tanh(d)",
}


def _model(body: str, source: str, target: str, shape: str = "a, b") -> onnx.ModelProto:
    text = f"""<ir_version: 9, opset_import: ["" : 17]>
        agraph ({source}[{shape}] x) => ({target}[*] y) <
            float scale = {{0.0625}}, float other = {{0.03125}}, float low = {{-1.5}}, float high = {{2.25}}
        > {{ {body} }}"""
    model = parser.parse_model(text.replace("[*]", ""))
    zeros = {"zero": np.asarray(5, BYTES[source]), "last": np.asarray(-3 % 128, BYTES[target])}
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in zeros.items())
    return model


def _expected(model: onnx.ModelProto, x: Array) -> Array:
    """Operator by operator."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options)
    result: Array = session.run(None, {"x": x})[0]
    return result


def _bytes(shape: tuple[int, ...], dtype: str) -> Array:
    """All there are, over and over."""
    return np.resize(np.arange(256, dtype=np.uint8), shape).view(BYTES[dtype])


@pytest.mark.parametrize("simd", LEVELS)
@pytest.mark.parametrize("target", BYTES)
@pytest.mark.parametrize("source", BYTES)
@pytest.mark.parametrize("name", [*EXACT, *ROUNDED])
def test_activations(name: str, source: str, target: str, simd: str) -> None:
    body = {**EXACT, **ROUNDED}[name]
    model = _model(
        f"d = DequantizeLinear(x, scale, zero) {body} y = QuantizeLinear(g, other, last)",
        source,
        target,
    )
    compiled = dvm_graph.optimize(model, simd=simd)
    assert "d_lookup" in compiled.disassemble({"x": _bytes((3, 100), source)})
    for shape in ((1, 256), (3, 97), (0, 4), (5, 1), (2, 4099)):
        x = _bytes(shape, source)
        actual, expected = compiled.run({"x": x})[0], _expected(model, x)
        assert actual.dtype == expected.dtype and actual.shape == expected.shape
        apart = np.abs(actual.astype(int) - expected.astype(int))
        assert apart.max(initial=0) <= (0 if name in EXACT else 1)


_FUNCTION = (
    "d = DequantizeLinear({0}, scale, zero) g = HardSwish(d) {1} = QuantizeLinear(g, scale, zero)"
)
AROUND = {
    "transposed": ("t = Transpose<perm = [1, 0]>(x)", "t", ""),
    "transposed_behind": ("", "x", "y = Transpose<perm = [1, 0]>(q)"),
    "every_other": ("t = Slice(x, one, most, one, two)", "t", ""),
    "backwards": ("t = Slice(x, minus, least, one, minus)", "t", ""),
    "joined": ("", "x", "y = Concat<axis = 0>(q, x)"),
    "wrapping_sum": ("", "x", "y = Add(q, x)"),
    "compared": ("", "x", "c = Greater(q, x) y = CastLike(c, x)"),
    "chosen": ("c = Greater(x, zero)", "x", "y = Where(c, q, x)"),
    "gathered": ("t = Gather<axis = 1>(x, one)", "t", ""),
    "greatest": ("", "x", "y = ReduceMax<axes = [1]>(q)"),
    "widened": (
        "",
        "x",
        "w = DequantizeLinear(q, other, zero) v = Exp(w) y = QuantizeLinear(v, high, zero)",
    ),
    "of_one": ("t = Slice(x, nil, one, one)", "t", ""),
}


@pytest.mark.parametrize("fallbacks", ["if_needed", "operators"])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around(name: str, dtype: str, fallbacks: str) -> None:
    before, read, behind = AROUND[name]
    model = _model(
        f"{before} {_FUNCTION.format(read, 'q' if behind else 'y')} {behind}", dtype, dtype
    )
    least = np.iinfo(np.int64).min + 1
    numbers = {"nil": 0, "one": 1, "two": 2, "minus": -1, "most": 1 << 40, "least": least}
    constants = (numpy_helper.from_array(np.array([n]), name) for name, n in numbers.items())
    model.graph.initializer.extend(constants)
    compiled = dvm_graph.optimize(model, fallbacks=fallbacks)
    for shape in ((3, 97), (256, 2), (2, 2), (64, 129)):
        x = _bytes(shape, dtype)
        np.testing.assert_array_equal(compiled.run({"x": x})[0], _expected(model, x))


@pytest.mark.parametrize("dtype", BYTES)
def test_between_products(dtype: str) -> None:
    """Levels of sums, which the cube unit makes, are looked up, and multiplied again."""
    weights = np.random.default_rng(0).integers(-128, 128, (67, 67)).astype(np.int8)
    product = "{1} = QLinearMatMul({0}, scale, zero, w, tiny, none, wide, last)"
    function = (
        "d = DequantizeLinear(q, scale, last) g = HardSwish(d) t = QuantizeLinear(g, scale, zero)"
    )
    body = f"{product.format('x', 'q')} {function} {product.format('t', 'y')}"
    model = _model(body, dtype, dtype, "a, 67")
    constants = {
        "w": weights,
        "none": np.int8(0),
        "tiny": np.float32(0.01),
        "wide": np.float32(0.5),
    }
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()
    )
    compiled = dvm_graph.optimize(model)
    for rows in (1, 3, 64, 131, 0):
        x = _bytes((rows, 67), dtype)
        np.testing.assert_array_equal(compiled.run({"x": x})[0], _expected(model, x))


@pytest.mark.parametrize("scale", [0.0, np.nan, np.inf, -0.5])
def test_strange_scales(scale: float) -> None:
    body = "d = DequantizeLinear(x, strange, zero) g = Abs(d) y = QuantizeLinear(g, other, last)"
    model = _model(body, "uint8", "uint8")
    model.graph.initializer.append(numpy_helper.from_array(np.float32(scale), "strange"))
    x = _bytes((2, 256), "uint8")
    np.testing.assert_array_equal(dvm_graph.optimize(model).run({"x": x})[0], _expected(model, x))


def _next_to_halves() -> onnx.ModelProto:
    """Of what is a half in float32, and next to one in float64."""
    body = "d = DequantizeLinear(x, tenth, one) y = QuantizeLinear(d, whole, one)"
    model = _model(body, "int8", "int8")
    numbers = {"tenth": np.float32(0.1), "whole": np.float32(1), "one": np.int8(1)}
    constants = (numpy_helper.from_array(np.asarray(n), name) for name, n in numbers.items())
    model.graph.initializer.extend(constants)
    return model


def test_checks_know_that_entries_are_rounded() -> None:
    x = _bytes((2, 128), "int8")
    compiled = dvm_graph.optimize(_next_to_halves(), check=True)
    np.testing.assert_array_equal(compiled.run({"x": x})[0], _expected(_next_to_halves(), x))


def test_checks_find_wrong_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Builder.lookup

    def wrong(builder: Builder, x: Value, table: Sequence[int], dtype: DType) -> Value:
        return right(builder, x, [-entry for entry in table], dtype)

    monkeypatch.setattr(Builder, "lookup", wrong)
    with pytest.raises(MiscompileError, match="tabulate"):
        dvm_graph.optimize(_next_to_halves(), check=True)
