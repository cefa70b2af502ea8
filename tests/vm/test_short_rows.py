"""Positions of extremes of short rows, softmax over them and norms, which are turned: results, and that they are."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper, parser

import dvm_graph
from dvm_graph import _core

_CLASSES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 21, 31, 32, 33, 63, 64, 65, 150)
_ROWS = (1, 5, 63, 64, 65, 113, 400)
_TYPES = ("float32", "float64", "int64", "int32", "int8", "uint8")


def _model(op: str, dtype: str, axis: int, last: bool) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], axis=axis, keepdims=0, select_last_index=int(last))],
        "positions",
        [helper.make_tensor_value_info("x", kind, ["a", "b", "c"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _expected(x: NDArray[np.generic], op: str, axis: int, last: bool) -> NDArray[np.int64]:
    """Element after element: one that compares as better wins, so that a NaN wins only as the first."""
    rows = np.moveaxis(x, axis, -1)
    found = np.zeros(rows.shape[:-1], np.int64)
    best = rows[..., 0]
    for position in range(1, rows.shape[-1]):
        row = rows[..., position]
        wins = row > best if op == "ArgMax" else row < best
        wins |= last & (row == best)
        found, best = np.where(wins, position, found), np.where(wins, row, best)
    return found


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions(op: str, dtype: str, simd: str) -> None:
    draw, numbers = random.Random(len(simd)), np.random.default_rng(0)
    for axis in (2, 1):
        last = draw.random() < 0.5
        model = dvm_graph.optimize(_model(op, dtype, axis, last), simd=simd, cores=2)
        for classes in _CLASSES:
            shape = (draw.choice((1, 2, 3)), draw.choice(_ROWS), classes)
            x = numbers.integers(0, 9, shape).astype(dtype)
            if x.dtype.kind == "f":
                x[numbers.random(shape) < 0.1] = np.nan
            if axis == 1:
                x = x.transpose(0, 2, 1).copy()
            np.testing.assert_array_equal(model.run({"x": x})[0], _expected(x, op, axis, last))


@pytest.mark.parametrize("classes", [4, 21, 150])
def test_short_rows_are_turned(classes: int) -> None:
    """Then all of a tile is loaded, rather than just the first element of each row."""
    model = dvm_graph.optimize(_model("ArgMax", "float32", 2, False))
    code = model.disassemble({"x": np.zeros((1, 4000, classes), np.float32)})
    assert code.count("d_load_view_f32") == (1 if classes == 150 else 2)


def _folded(op: str, channels_last: bool) -> onnx.ModelProto:
    """Over a few classes, which lie side by side, or one plane behind the other as they are read."""
    nodes = [] if channels_last else [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1])]
    rows = "x" if channels_last else "t"
    if op == "Softmax":
        nodes.append(helper.make_node(op, [rows], ["y"], axis=-1))
    else:
        nodes.append(helper.make_node(op, [rows, "weights"], ["y"], axis=-1))
    inputs = {"x": ["a", "b", "c"]} | ({"weights": ["w"]} if op != "Softmax" else {})
    graph = helper.make_graph(
        nodes,
        "folded",
        [helper.make_tensor_value_info(k, onnx.TensorProto.FLOAT, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize("op", ["Softmax", "LayerNormalization"])
def test_folded_rows(op: str, channels_last: bool, simd: str) -> None:
    numbers = np.random.default_rng(0)
    model = dvm_graph.optimize(_folded(op, channels_last), simd=simd, cores=2)
    for classes in _CLASSES[1:]:
        for rows in (1, 63, 64, 113, 1001):
            x = numbers.standard_normal((2, rows, classes), np.float32)
            x[0, 0] *= 80  # far apart
            weights = numbers.standard_normal(classes, np.float32)
            wide = x.astype(np.float64)
            if op == "Softmax":
                shares = np.exp(wide - wide.max(-1, keepdims=True))
                expected = shares / shares.sum(-1, keepdims=True)
            else:
                apart = wide - wide.mean(-1, keepdims=True)
                variance = (apart**2).mean(-1, keepdims=True)
                expected = apart / np.sqrt(variance + 1e-5) * weights
            feeds = {"x": x if channels_last else x.transpose(0, 2, 1).copy()}
            (y,) = model.run(feeds if op == "Softmax" else feeds | {"weights": weights})
            np.testing.assert_allclose(y, expected, rtol=2e-4, atol=2e-5)


_LANES = {"x86-64-v4-amx": 16, "x86-64-v4": 16, "x86-64-v3": 8}


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("channels_last", [True, False])
def test_folded_rows_are_turned(channels_last: bool, simd: str) -> None:
    """Then shares are taken of whole vectors of rows, and turned as they are stored: those of fewer than two vectors."""
    model = dvm_graph.optimize(_folded("Softmax", channels_last), simd=simd)
    for classes in (4, 2 * _LANES.get(simd, 4) - 1):
        _assert_turned(model, channels_last, classes)


def _assert_turned(model: dvm_graph.Model, channels_last: bool, classes: int) -> None:
    shape = (1, 4000, classes) if channels_last else (1, classes, 4000)
    code = model.disassemble({"x": np.zeros(shape, np.float32)})
    assert "d_store_view_f32" in code
    assert code.count("d_load_view_f32") == int(channels_last)


def _grown(channels: int) -> onnx.ModelProto:
    """An image that grows linearly along its columns, softmax over its channels, which gathers read side by side."""
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[b,{channels},h,w] x) => (float[b,{channels},h,d] y)
        <float[4] scales = {{1, 1, 1, 2}}> {{ r = Resize<mode = "linear">(x, , scales) y = Softmax<axis = 1>(r) }}"""
    )


@pytest.mark.parametrize("simd", _core.simd_levels())
def test_gathered_rows(simd: str) -> None:
    numbers = np.random.default_rng(0)
    for channels in (3, 7, 12, 24, 31):
        model = _grown(channels)
        reference = onnxruntime.InferenceSession(model.SerializeToString())
        optimized = dvm_graph.optimize(model, simd=simd, cores=2)
        for height, width in ((5, 100), (3, 33), (1, 1)):
            feeds = {"x": numbers.standard_normal((2, channels, height, width), np.float32)}
            (expected,) = reference.run(None, feeds)
            np.testing.assert_allclose(optimized.run(feeds)[0], expected, rtol=1e-4, atol=1e-6)


def test_gathered_rows_are_turned() -> None:
    """Then they are stored as they lie, channel by channel."""
    code = dvm_graph.optimize(_grown(7), simd=_core.simd_levels()[0]).disassemble(
        {"x": np.zeros((1, 7, 8, 200), np.float32)}
    )
    assert "d_gather_f32" in code
    assert "d_store_view_f32" not in code.split("d_gather_f32")[-1]
