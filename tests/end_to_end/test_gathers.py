"""Reading by index, element by element and in rows, against numpy: odd extents, all types, and indices that leave the axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

import dvm_graph
from dvm_graph.errors import ShapeError
from tests.end_to_end.reference import session

TYPES = [np.float32, np.float64, np.float16, np.int64, np.int8, np.bool_]
COUNTS = (1, 7, 8, 255, 256, 257, 1000)
"""Of indices: parts of a vector, vectors, and what is looked at at a time."""


def model_of(op: str, axis: int, dtype: type, index_rank: int) -> dvm_graph.Model:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    indices = [f"i{at}" for at in range(index_rank)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "index"], ["y"], name="read", axis=axis)],
        "g",
        [
            helper.make_tensor_value_info("x", element, ["a", "b", "c"]),
            helper.make_tensor_value_info("index", onnx.TensorProto.INT64, indices),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    return dvm_graph.optimize(proto, strict=True)


def drawn(dtype: type, *shape: int) -> NDArray[Any]:
    return (
        np.random.default_rng(5).integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_entries_of_an_axis(axis: int, dtype: type) -> None:
    model = model_of("Gather", axis, dtype, 1)
    for count in COUNTS:
        x = drawn(dtype, 5, 13, 37)
        extent = x.shape[axis]
        index = np.random.default_rng(count).integers(-extent, extent, count)
        np.testing.assert_array_equal(model.run({"x": x, "index": index})[0], x.take(index, axis))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_elements_along_an_axis(axis: int, dtype: type) -> None:
    model = model_of("GatherElements", axis, dtype, 3)
    for count in COUNTS:
        x = drawn(dtype, 3, 4, 300)
        shape = [3, 4, 300]
        shape[axis] = count
        index = np.random.default_rng(count).integers(-x.shape[axis], x.shape[axis], shape)
        expected = np.take_along_axis(x, index, axis)
        np.testing.assert_array_equal(model.run({"x": x, "index": index})[0], expected)


@pytest.mark.parametrize("op", ["Gather", "GatherElements"])
@pytest.mark.parametrize("at", [0, 255, 256, 299])
@pytest.mark.parametrize("wrong", [37, -38, 2**62, -(2**63)])
def test_an_index_that_leaves_the_axis(op: str, at: int, wrong: int) -> None:
    """Wherever it is among the others, which it does not harm."""
    model = model_of(op, 2, np.float32, 1 if op == "Gather" else 3)
    x = drawn(np.float32, 2, 3, 37)
    shape = (300,) if op == "Gather" else (2, 3, 300)
    index = np.random.default_rng(at).integers(-37, 37, shape)
    expected = x.take(index, 2) if op == "Gather" else np.take_along_axis(x, index, 2)
    broken = index.copy()
    broken[..., at] = wrong
    with pytest.raises(dvm_graph.DvmError, match="out of range"):
        model.run({"x": x, "index": broken})
    np.testing.assert_array_equal(model.run({"x": x, "index": index})[0], expected)


@pytest.mark.parametrize("before", TYPES)
@pytest.mark.parametrize("after", TYPES)
def test_casts_of_odd_counts(before: type, after: type) -> None:
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (before, after)]
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=kinds[1])],
        "g",
        [helper.make_tensor_value_info("x", kinds[0], ["n"])],
        [helper.make_empty_tensor_value_info("y")],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    model = dvm_graph.optimize(proto, strict=True)
    for count in (1, 3, 4, 7, 15, 16, 63, 64, 1001):
        x = drawn(before, count)
        np.testing.assert_array_equal(model.run({"x": x})[0], x.astype(after))


def test_values_of_one_hot_whose_number_a_run_tells() -> None:
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (int64[a] index, float[v] values, float[a, d] x) => (float[a, d] y) <int64 depth = {5}> {
      hot = OneHot(index, depth, values) y = Add(hot, x)
    }""")
    model = dvm_graph.optimize(proto, strict=True)
    index, x = np.array([4, -5, 7]), drawn(np.float32, 3, 5)
    (y,) = model.run({"index": index, "values": np.float32([2, 3]), "x": x})
    np.testing.assert_array_equal(y, x + 2 + (np.arange(5) == [[4], [0], [7]]))
    for number in (1, 3):
        with pytest.raises(ShapeError, match="OneHot has two values"):
            model.run({"index": index, "values": np.zeros(number, np.float32), "x": x})


@pytest.mark.parametrize("index", [-(2**63), -(2**63) + 1, -(2**62), 2**62, 2**63 - 1])
def test_one_hot_of_what_is_as_far_away_as_integers_go(index: int) -> None:
    """Counted from the end of an axis whose extent the run tells."""
    texts = ("hot = OneHot(far, d, values)", "i = Mul(far, one) hot = OneHot(i, d, values)")
    for text in (*texts, "i = Sub(far, d) hot = OneHot(i, d, values)"):
        proto = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[n] x) => (float[1, n] y) <int64[1] far = {{{index}}}, float[2] values = {{2, 3}}> {{
            d = Shape(x) one = Div(d, d) {text} y = Add(hot, x) }}""")
        model = dvm_graph.optimize(proto, strict=True)
        for count in (1, 2, 100):
            x = drawn(np.float32, count)
            expected = session(proto).run(None, {"x": x})[0]
            np.testing.assert_array_equal(model.run({"x": x})[0], expected)


def test_the_least_of_rows_of_which_there_are_none() -> None:
    """The first element of a row, which the result begins with, need not be there."""
    proto = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float16[a, b] x) => (int64[a, c] y) { y = ArgMin<axis = -1>(x) }""")
    model = dvm_graph.optimize(proto, strict=True)
    (y,) = model.run({"x": np.zeros((0, 0), np.float16)})
    assert y.shape == (0, 1)
    (y,) = model.run({"x": np.float16([[2, 1, 3]])})
    assert y == 1
