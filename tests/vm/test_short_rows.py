"""Positions of extremes of short rows, which are turned: results, and that they are."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import dvm_graph
from dvm_graph import _core

_CLASSES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 21, 32, 33, 63, 64, 65, 150)
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
