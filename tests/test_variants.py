"""Feeds in the place of initializers, as onnxruntime takes them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, session

W = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
B = np.array([1, 2, 3], np.float32)
X = np.linspace(-2, 2, 10, dtype=np.float32).reshape(2, 5)


def source(ir_version: int = 8) -> onnx.ModelProto:
    """y = x @ w + b, both of which have defaults; b may have another length."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5]),
            helper.make_tensor_value_info("w", TensorProto.FLOAT, [5, 3]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["k"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version
    )


@pytest.mark.parametrize(
    "more", [{}, {"w": -W}, {"b": B[:1]}, {"b": B * 2}, {"w": W * 3, "b": B[1:2]}]
)
def test_runs_are_fed_other_initializers(more: dict[str, Array]) -> None:
    model, reference = dvm_graph.optimize(source()), session(source())
    for _ in range(2):
        for feeds in ({"x": X, **more}, {"x": X[:1], **more}, {"x": X}):
            (result,), (expected,) = model.run(feeds), reference.run(None, feeds)
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_they_are_told_as_onnxruntime_tells_them() -> None:
    model, reference = dvm_graph.optimize(source()), session(source())
    assert [info.name for info in model.get_inputs()] == ["x"]
    mine, theirs = model.get_overridable_initializers(), reference.get_overridable_initializers()
    assert sorted((i.name, i.type) for i in mine) == sorted((i.name, i.type) for i in theirs)


def test_as_inputs_from_the_start() -> None:
    model = dvm_graph.optimize(source(), fed_initializers={"w"})
    assert [info.name for info in model.get_inputs()] == ["x", "w"]
    np.testing.assert_allclose(model.run({"x": X, "w": -W})[0], X @ -W + B, rtol=1e-5, atol=1e-6)
    with pytest.raises(dvm_graph.InputError, match="missing input 'w'"):
        model.run({"x": X})
    with pytest.raises(dvm_graph.InputError, match="'x', which is no input with a default"):
        dvm_graph.optimize(source(), fed_initializers={"x"})


def test_of_a_model_that_runs_on_onnxruntime_whole() -> None:
    model = source()
    del model.graph.node[1:], model.graph.input[2], model.graph.initializer[1]
    model.graph.node[0].output[0] = "product"
    model.graph.node.append(helper.make_node("Reshape", ["product"], ["y"], shape=[0, -1]))
    model.opset_import[0].version = 4  # whose Reshape is not compiled
    with pytest.warns(dvm_graph.RescueWarning, match="the whole model"):
        compiled = dvm_graph.optimize(model)
        assert [info.name for info in compiled.get_inputs()] == ["x"]
        assert [info.name for info in compiled.get_overridable_initializers()] == ["w"]
        for feeds, weights in (({"x": X}, W), ({"x": X, "w": -W}, -W), ({"x": X[:1]}, W)):
            (result,) = compiled.run(feeds)
            np.testing.assert_allclose(result, feeds["x"] @ weights, rtol=1e-5, atol=1e-6)


def test_old_models_have_constants_only() -> None:
    model = dvm_graph.optimize(source(ir_version=3))
    assert model.get_overridable_initializers() == []
    with pytest.raises(dvm_graph.InputError, match="unknown input 'w'"):
        model.run({"x": X, "w": W})


def test_bad_feeds_leave_the_model_usable() -> None:
    model = dvm_graph.optimize(source())
    with pytest.raises(dvm_graph.InputError, match="w is float64"):
        model.run({"x": X, "w": W.astype(np.float64)})
    np.testing.assert_allclose(model.run({"x": X})[0], X @ W + B, rtol=1e-5, atol=1e-6)
