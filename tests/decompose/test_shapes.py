"""Views, slices, paddings, indexing and tensors made of nothing, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from dvm_graph.errors import ModelError, ShapeError
from tests.decompose.evaluate import evaluate
from tests.decompose.reference import Case, Tensor, calls, check, decomposed, vendor_operators

X = Tensor(("n", "m"))
CUBE = Tensor(("n", "m", "k"))
LAST = 2**63 - 1


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


VIEWS = [
    Case("ExpandDims", [X, np.array(1, np.int32)], domain="com.microsoft"),
    Case("ExpandDims", [X, np.array(-1, np.int32)], domain="com.microsoft"),
    Case("Reshape", [CUBE, ints(0, -1)], empty=False),
    Case("Reshape", [Tensor(("n", 6)), ints(0, 2, -1)], empty=False),
    Case("Reshape", [Tensor(("n", 6)), ints(-1, 3)], empty=False),
    Case("Reshape", [Tensor((0, "n")), ints(3, 0)], {"allowzero": 1}, empty=False),
    Case("Flatten", [CUBE], {"axis": 2}),
    Case("Flatten", [CUBE], {"axis": -1}),
    Case("Flatten", [CUBE], {"axis": 0}),
    Case("Squeeze", [Tensor(("n", 1, "m", 1)), ints(1, -1)]),
    Case("Squeeze", [Tensor((3, 1, 1))]),
    Case("Squeeze", [Tensor((1, "n"))], {"axes": [0]}, opset=11),
    Case("Unsqueeze", [X, ints(0, -1)]),
    Case("Unsqueeze", [X], {"axes": [1]}, opset=11),
    Case("Transpose", [CUBE]),
    Case("Transpose", [CUBE], {"perm": [1, 2, 0]}),
    Case("Expand", [Tensor(("n", 1)), ints(2, 1, 3)]),
    Case("Expand", [Tensor((3, 1)), ints(4)]),
    Case("Tile", [X, ints(2, 3)]),
    Case("Tile", [CUBE, ints(1, 2, 1)]),
    Case("DepthToSpace", [Tensor(("n", 8, "h", "w"))], {"blocksize": 2}),
    Case("DepthToSpace", [Tensor(("n", 8, "h", "w"))], {"blocksize": 2, "mode": "CRD"}),
    Case("SpaceToDepth", [Tensor(("n", 2, 4, 6))], {"blocksize": 2}),
    Case("Shape", [CUBE]),
    Case("Shape", [CUBE], {"start": -2, "end": 3}),
    Case("Size", [CUBE]),
    Case("Dropout", [X], outputs=2),
    Case("Dropout", [X, np.array(0.5, np.float32), np.array(False)]),
]
SLICES = [
    Case("Slice", [CUBE, ints(1), ints(LAST), ints(1)]),
    Case("Slice", [CUBE, ints(-2), ints(-1), ints(-1)]),
    Case("Slice", [CUBE, ints(LAST), ints(-LAST), ints(0), ints(-1)]),
    Case("Slice", [CUBE, ints(0, 1), ints(9, 3), ints(0, 1), ints(2, 1)]),
    Case("Slice", [X, ints(-1, 5), ints(-9, 0), ints(0, 1), ints(-2, -1)]),
    Case("Slice", [X, ints(3, 0), ints(1, 2)]),
    Case("Slice", [X], {"starts": [1], "ends": [2], "axes": [1]}, opset=9),
    Case("Split", [Tensor(("n", 7)), ints(3, 4)], {"axis": 1}, outputs=2),
    Case("Split", [Tensor(("n", 7))], {"axis": 1, "num_outputs": 3}, outputs=3),
    Case("Split", [Tensor((6, "n"))], outputs=2, opset=13),
    Case("Concat", [X, Tensor(("n", 3)), X], {"axis": 1}),
    Case("Concat", [X], {"axis": -1}),
]
PADS = [
    Case("Pad", [X, ints(1, 0, 2, 3)]),
    Case("Pad", [X, ints(0, 2), np.array(7, np.float32), ints(-1)]),
    Case("Pad", [Tensor(("n", 5)), ints(0, -1, 1, -2)]),
    Case("Pad", [Tensor(("n", 4)), ints(1, 2, 0, 3)], {"mode": "edge"}, empty=False),
    Case("Pad", [Tensor(("n", 4)), ints(0, 2, 0, 3)], {"mode": "reflect"}),
    Case("Pad", [Tensor(("n", 4)), ints(0, 2, 0, 3)], {"mode": "wrap"}, empty=False),
    Case(
        "Pad", [Tensor((2, 3, "n", 4)), ints(0, 1, 2, 3, 1, 2, 1, 2)], {"mode": "edge"}, empty=False
    ),
    Case(
        "Pad",
        [Tensor(("n", 2, 3, 4)), ints(0, 0, 2, 1, 0, 0, 1, 3)],
        {"mode": "reflect"},
        empty=False,
    ),
    Case("Pad", [Tensor((2, "n", 5)), ints(0, 2, 2, 0, 1, 3)], {"mode": "wrap"}, empty=False),
    Case(
        "Pad",
        [Tensor((5, 7, "n")), ints(-1, 2, 0, 2, -1, 0)],
        {"mode": "wrap"},
        opset=19,
        empty=False,
    ),
    Case("CenterCropPad", [Tensor((7, 4)), ints(4, 9)]),
    Case("CenterCropPad", [Tensor((6, 3, "n")), ints(9, 2)], {"axes": [0, 1]}),
    Case("Pad", [Tensor(("n", 4))], {"pads": [0, 1, 0, 1], "value": 2.0}, opset=7),
]
INDICES = Tensor(("n", "j"), "int64", -3, 3)
INDEXING = [
    Case("Gather", [Tensor((5, "m")), Tensor(("a", "b"), "int64", -5, 5)]),
    Case("Gather", [Tensor(("m", 5)), Tensor(("a",), "int32", 0, 5)], {"axis": 1}),
    Case("Gather", [Tensor((3, "m")), np.array(1, np.int64)]),
    Case("Gather", [Tensor(("m", 3)), ints(-1)], {"axis": 1}),
    Case("GatherElements", [Tensor(("n", 3)), INDICES], {"axis": 1}),
    Case("GatherElements", [Tensor((3, "n")), Tensor(("a", "n"), "int32", -3, 3)]),
    Case("GatherND", [Tensor((4, 4, "m")), Tensor(("a", 2), "int64", -4, 4)]),
    Case("GatherND", [Tensor((4, 4)), Tensor(("a", "b", 1), "int64", 0, 4)]),
    Case("GatherND", [Tensor(("n", 4, 3)), Tensor(("n", "a", 1), "int64", 0, 4)],
         {"batch_dims": 1}),
    Case("OneHot", [Tensor(("n",), "int64", -7, 7), ints(4), np.float32([0.5, 2])]),
    Case("OneHot", [Tensor(("n", "m"), "int64", 0, 4), np.array(4, np.int64), ints(0, 1)],
         {"axis": 1}),
    Case("Trilu", [CUBE]),
    Case("Trilu", [CUBE, np.array(1, np.int64)], {"upper": 0}),
    Case("Trilu", [X, np.array(-1, np.int64)]),
    Case("Trilu", [CUBE, np.array(1, np.int64)], domain="com.microsoft"),
    Case("GatherND", [Tensor((4, 4)), Tensor(("a", "b", 1), "int32", -4, 4)], domain="com.microsoft"),
    *(Case("ReverseSequence", [Tensor(("a", "b", "c"), dtype), lengths],
           {"time_axis": time, "batch_axis": 1 - time})
      for time, lengths, dtype in (
          (0, Tensor(("b",), "int64", 0, 1), "float32"), (1, Tensor(("a",), "int64", 0, 1), "bool"),
      )),
    *(Case("ReverseSequence", [Tensor((5, 3, "c"), dtype), ints(0, 5, 3)])
      for dtype in ("float16", "float64", "uint8", "int64")),
    Case("ReverseSequence", [Tensor((3, 4)), ints(4, 1, 2)], {"time_axis": 1, "batch_axis": 0}),
    Case("Pad", [X, ints(1, 0, 2, 3)], domain="com.microsoft"),
]  # fmt: skip
SOURCES = [
    Case("Range", [*(np.array(v, np.int64) for v in (2, 11, 3))]),
    Case("Range", [*(np.array(v, np.int32) for v in (9, -2, -4))]),
    Case("Range", [*(np.array(v, np.int64) for v in (3, 1, 1))]),
    Case("Range", [*(np.array(v, np.float32) for v in (0.5, 3, 0.7))]),
    Case("ConstantOfShape", [ints(2, 0, 3)]),
    Case("ConstantOfShape", [ints(2, 3)],
         {"value": helper.make_tensor("v", TensorProto.INT32, [1], [7])}),
    Case("Range", [*(np.array(v, np.float32) for v in (0.5, 3, 0.7))], domain="com.microsoft"),
    Case("EyeLike", [X], {"k": 1}),
    Case("EyeLike", [Tensor(("n", "n"), "int32", 0, 9)], {"dtype": TensorProto.FLOAT}),
]  # fmt: skip


@pytest.mark.parametrize("case", VIEWS + SLICES + PADS + INDEXING + SOURCES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check(case)


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]> {text}')


def test_shape_chains_leave_nothing_behind() -> None:
    graph = decomposed(
        model(
            """
            agraph (float[b, s, 12] x) => (float[b, d, s, e] y)
            <int64 two = {2}, int64[1] axes = {0}, int64[1] heads = {3}, int64[1] minus = {-1}> {
                shape = Shape(x)
                zero = Constant<value_int = 0>()
                batch = Gather(shape, zero)
                batch1 = Unsqueeze(batch, axes)
                last = Gather(shape, two)
                size = Div(last, three)
                three = Constant<value_int = 3>()
                size1 = Unsqueeze(size, axes)
                target = Concat<axis = 0>(batch1, minus, heads, size1)
                split = Reshape(x, target)
                y = Transpose<perm = [0, 2, 1, 3]>(split)
            }
            """
        )
    )
    assert [node.op for node in graph.needed_nodes()] == ["reshape", "transpose"]
    x = np.arange(2 * 5 * 12, dtype=np.float32).reshape(2, 5, 12)
    (y,) = evaluate(graph, {"x": x})
    np.testing.assert_array_equal(y, x.reshape(2, 5, 3, 4).transpose(0, 2, 1, 3))


@pytest.mark.parametrize("extent", [0, 1, 4])
def test_slice_by_symbolic_bounds(extent: int) -> None:
    graph = decomposed(
        model(
            """
            agraph (float[s] x, float[9] table) => (float[t] y)
            <int64[1] zero = {0}> {
                length = Shape(x)
                y = Slice(table, zero, length)
            }
            """
        )
    )
    assert [node.op for node in graph.needed_nodes()] == ["slice"]
    table = np.arange(9, dtype=np.float32)
    (y,) = evaluate(graph, {"x": np.zeros(extent, np.float32), "table": table})
    np.testing.assert_array_equal(y, table[:extent])


def test_extents_that_are_values_are_bound_by_the_host() -> None:
    graph = decomposed(
        model(
            """
            agraph (float[n] x, int64[2] shape) => (float[a, b] y) {
                wide = Expand(x, shape)
                y = Neg(wide)
            }
            """
        )
    )
    assert [node.op for node in graph.nodes] == ["dims", "host", "broadcast_to", "neg"]
    (y,) = evaluate(graph, {"x": np.ones(3, np.float32), "shape": ints(2, 3)})
    np.testing.assert_array_equal(y, -np.ones((2, 3), np.float32))


def test_ranks_that_are_values_are_left_to_the_vendor() -> None:
    graph = decomposed(
        model(
            """
            agraph (float[n] x, int64[r] shape) => (float[a, b] y) {
                wide = Expand(x, shape)
                y = Neg(wide)
            }
            """
        )
    )
    assert vendor_operators(graph) == ["Expand", "Neg"]
    (y,) = evaluate(graph, {"x": np.ones(3, np.float32), "shape": ints(2, 3)})
    np.testing.assert_array_equal(y, -np.ones((2, 3), np.float32))


def test_outputs_keep_their_order_when_inputs_and_constants_pass_through() -> None:
    graph = decomposed(
        model(
            """
            agraph (float[n] x) => (float[n] a, float[n] b, float[n] c) {
                a = Identity(x)
                b = Neg(x)
                c = Identity(b)
            }
            """
        )
    )
    assert graph.output_names == ("a", "b", "c")
    first, second, third = evaluate(graph, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal([first, second, third], [[1, 1], [-1, -1], [-1, -1]])


@pytest.mark.parametrize(
    "op, inputs, attrs, error",
    [
        ("Transpose", [X], {"perm": [0, 5]}, ModelError),
        ("Softmax", [X], {"axis": 4}, ModelError),
        ("Reshape", [Tensor((2, 3)), ints(4, 2)], {}, ShapeError),
        ("Reshape", [Tensor((2, 3)), ints(-1, -1)], {}, ShapeError),
        ("Reshape", [Tensor((2,)), ints(1, 0)], {}, ShapeError),
        ("Add", [Tensor((2, 3)), Tensor((2, 4))], {}, ShapeError),
    ],
)
def test_wrong_models_are_refused(op: str, inputs: Any, attrs: Any, error: type[Exception]) -> None:
    case = Case(op, inputs, attrs)
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(op, names, ["y"], **attrs)
    graph_inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        for name, value in zip(names, case.operands, strict=True)
        if isinstance(value, Tensor)
    ]
    constants = [
        onnx.numpy_helper.from_array(value, name)
        for name, value in zip(names, case.operands, strict=True)
        if isinstance(value, np.ndarray)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "wrong", graph_inputs, [output], constants)
    opset = helper.make_opsetid("", 21)
    with pytest.raises(error):
        decomposed(helper.make_model(graph, opset_imports=[opset], ir_version=10))


def test_sizes_of_more_parts_than_shapes_have_axes() -> None:
    sizes = [1, 2, 0] * 50
    names = [f"y{index}" for index in range(len(sizes))]
    node = helper.make_node("Split", ["x", "sizes"], names, axis=1)
    graph = helper.make_graph(
        [node],
        "parts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
        [numpy_helper.from_array(ints(*sizes), "sizes")],
    )
    imports = [helper.make_opsetid("", 18)]
    result = decomposed(helper.make_model(graph, opset_imports=imports, ir_version=9))
    assert calls(result) == []
    x = np.arange(3 * sum(sizes), dtype=np.float32).reshape(3, -1)
    parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
    for mine, part in zip(evaluate(result, {"x": x}), parts, strict=True):
        np.testing.assert_array_equal(mine, part)
