"""Old forms become the newest one, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from dvm_graph.import_.normalize_opset import CHANGES
from dvm_graph.ir import Node, Value
from tests.import_.models import load

FORMS: list[tuple[str, int, dict[str, Any], list[list[Any] | None]]] = [
    # operator, opset, attributes, contents of the appended operands
    ("Squeeze", 7, {"axes": [0]}, [[0]]),
    ("Squeeze", 11, {}, []),
    ("Unsqueeze", 9, {"axes": [0, 2]}, [[0, 2]]),
    ("ReduceSum", 11, {"axes": [1], "keepdims": 0}, [[1]]),
    ("ReduceSum", 11, {}, []),
    ("ReduceMean", 13, {"axes": [-1]}, [[-1]]),
    ("ReduceMax", 12, {"axes": [0, 1]}, [[0, 1]]),
    ("ReduceL2", 13, {"axes": [1]}, [[1]]),
    ("Slice", 9, {"starts": [0, 1], "ends": [1, 3]}, [[0, 1], [1, 3]]),
    ("Slice", 7, {"starts": [1], "ends": [3], "axes": [1]}, [[1], [3], [1]]),
    ("Clip", 9, {"min": -0.5, "max": 0.5}, [-0.5, 0.5]),
    ("Pad", 9, {"pads": [0, 1, 0, 2], "value": 3.0}, [[0, 1, 0, 2], 3.0]),
    ("Split", 11, {"split": [1, 3], "axis": 1}, [[1, 3]]),
    ("TopK", 9, {"k": 2, "axis": 1}, [[2]]),
    ("Dropout", 9, {"ratio": 0.25}, [0.25]),
]
OUTPUTS = {"Split": 2, "TopK": 2}


def old_model(op: str, opset: int, attributes: dict[str, Any]) -> onnx.ModelProto:
    results = [f"y{i}" for i in range(OUTPUTS.get(op, 1))]
    node = helper.make_node(op, ["x"], results, name="node", **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name=r) for r in results])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize(
    ("op", "opset", "attributes", "appended"), FORMS, ids=[f"{f[0]}-{f[1]}" for f in FORMS]
)
def test_moved_attributes(
    op: str, opset: int, attributes: dict[str, Any], appended: list[Any]
) -> None:
    model = old_model(op, opset, attributes)
    (node,) = load(model).nodes
    contents = [None if v is None or v.data is None else v.data.tolist() for v in node.inputs[1:]]
    assert contents == appended
    assert not set(node.attrs) & {moved.attribute for moved in CHANGES[op].moved}
    assert node.version == opset
    assert onnx.NodeProto.FromString(node.source) == model.graph.node[0]
    x = np.array([[0.5, -2.0, 3.0, 0.25]], np.float32)
    for old, new in zip(run(model, {"x": x}), run(new_model(node), {"x": x}), strict=True):
        np.testing.assert_array_equal(old, new)


def new_model(node: Node) -> onnx.ModelProto:
    """A model of a node as it stands after import, at an opset where its form is current."""
    names = ["" if value is None else value.name for value in node.inputs]
    results = [value.name for value in node.outputs]
    attributes = {name: value for name, value in node.attrs.items() if name != "spatial"}
    graph = helper.make_graph(
        [helper.make_node(node.op, names, results, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 4])],
        [onnx.ValueInfoProto(name=name) for name in results],
        [initializer(value) for value in node.inputs[1:] if value is not None],
    )
    opset = max(CHANGES[node.op].since, 13)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return onnx.shape_inference.infer_shapes(model)


def initializer(value: Value) -> onnx.TensorProto:
    assert value.data is not None
    return onnx.numpy_helper.from_array(value.data, value.name)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return list(session.run(None, feeds))


def test_table_names_every_attribute_that_became_an_operand() -> None:
    """Against onnx's own schemas: a form that changes and is not in the table is a surprise."""
    elsewhere = {"Scan", "DFT", "BatchNormalization"}  # see the module's docstring
    schemas: dict[str, dict[int, Any]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            schemas.setdefault(schema.name, {})[schema.since_version] = schema
    for name, versions in schemas.items():
        newest = versions[max(versions)]
        oldest = versions[max((v for v in versions if v <= 7), default=min(versions))]
        gone = set(oldest.attributes) - set(newest.attributes)
        if gone and name not in elsewhere:
            moved = {change.attribute for change in CHANGES[name].moved}
            assert gone <= moved, name
