"""Rows that have a value each from the other operand, of extents around a vector's, also of results that go around the caches."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, parser

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import assert_all_close, session

OPERATORS = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Div": np.divide,
}
TYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8)
ROWS = (2, 3, 17)
COLUMNS = (8, 15, 16, 17, 31, 63, 64, 65, 100, 127, 129, 250, 1021)
STREAMED = ((20011, 147), (1500, 2003))  # more than a third of a last-level cache of 32 MB


def _numbers(generator: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    return generator.integers(1, 100, shape).astype(dtype)


def _model(op: str, dtype: type) -> bytes:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [
        helper.make_tensor_value_info("x", element, ["a", "r", "c"]),
        helper.make_tensor_value_info("v", element, ["a", "r", 1]),
    ]
    nodes = [
        helper.make_node(op, ["x", "v"], ["left"]),
        helper.make_node(op, ["v", "x"], ["right"]),
    ]
    outputs = [helper.make_tensor_value_info(name, element, None) for name in ("left", "right")]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 18)]
    data: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return data


@pytest.mark.parametrize("dtype", TYPES, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("op", OPERATORS)
def test_equals_numpy(op: str, dtype: type) -> None:
    model = dvm_graph.optimize(_model(op, dtype), strict=True)
    generator = np.random.default_rng(0)
    for rows in ROWS:
        for columns in COLUMNS:
            for outer in (1, 3):
                x = _numbers(generator, dtype, outer, rows, columns)
                v = _numbers(generator, dtype, outer, rows, 1)
                left, right = model.run({"x": x, "v": v})
                function = np.floor_divide if op == "Div" and x.dtype.kind != "f" else OPERATORS[op]
                np.testing.assert_array_equal(left, function(x, v))
                np.testing.assert_array_equal(right, function(v, x))


@pytest.mark.parametrize("rows, columns", STREAMED)
def test_streamed(rows: int, columns: int) -> None:
    model = dvm_graph.optimize(_model("Sub", np.float32), strict=True)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((1, rows, columns), dtype=np.float32)
    v = generator.standard_normal((1, rows, 1), dtype=np.float32)
    left, right = model.run({"x": x, "v": v})
    np.testing.assert_array_equal(left, x - v)
    np.testing.assert_array_equal(right, v - x)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("rows, columns", STREAMED)
def test_streamed_softmax(op: str, rows: int, columns: int) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 20]> g (float[r, c] x) => (float[r, c] y) {{ y = {op} <axis = -1> (x) }}'
    model = parser.parse_model(text)
    feeds = {"x": np.random.default_rng(0).standard_normal((rows, columns), dtype=np.float32)}
    feeds["x"][7, columns - 1] = np.nan
    feeds["x"][9, 0] = np.inf
    mine = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(mine, session(model).run(None, feeds), reduction_length=columns)


@pytest.mark.parametrize("level", _core.simd_levels())
def test_every_level(level: str) -> None:
    text = '<ir_version: 10, opset_import: ["" : 20]> g (float[r, c] x) => (float[r, c] y) { y = Softmax <axis = -1> (x) }'
    softmax = parser.parse_model(text)
    mine, reference = dvm_graph.optimize(softmax, simd=level), session(softmax)
    model = dvm_graph.optimize(_model("Sub", np.float32), simd=level)
    generator = np.random.default_rng(0)
    for columns in (*COLUMNS, 40, 72, 88, 104, 150):
        x = generator.standard_normal((37, columns), dtype=np.float32)
        assert_all_close(mine.run({"x": x}), reference.run(None, {"x": x}), columns)
        v = generator.standard_normal((1, 37, 1), dtype=np.float32)
        left, right = model.run({"x": x[None], "v": v})
        np.testing.assert_array_equal(left, x[None] - v)
        np.testing.assert_array_equal(right, v - x[None])
