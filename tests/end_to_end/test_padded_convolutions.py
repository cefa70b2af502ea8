"""Convolutions of images that operators put zeros around: the zeros are pads of the window."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import assert_all_close, session

RANDOM = np.random.default_rng(0)


def model(
    around: list[int],
    *,
    value: float = 0,
    rank: int = 4,
    groups: int = 1,
    dtype: type[np.floating[Any]] = np.float32,
    **attrs: Any,
) -> onnx.ModelProto:
    """Pad, and a convolution of 4 channels with a kernel of 3 along each axis."""
    spatial = rank - 2
    weights = RANDOM.standard_normal((8, 4 // groups, *[3] * spatial)).astype(dtype)
    onnx_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    dims = ["n", 4, *"dhw"[3 - spatial :]]
    graph = helper.make_graph(
        [
            helper.make_node("Pad", ["x", "pads", "value"], ["p"]),
            helper.make_node("Conv", ["p", "w"], ["y"], group=groups, **attrs),
        ],
        "g",
        [helper.make_tensor_value_info("x", onnx_type, dims)],
        [helper.make_tensor_value_info("y", onnx_type, None)],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array(around), "pads"),
            numpy_helper.from_array(np.array(value, dtype), "value"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(proto: onnx.ModelProto, rank: int = 4, dtype: type[Any] = np.float32) -> list[str]:
    """Holds the model to onnxruntime at several extents; the basic operators that it became."""
    compiled, reference = dvm_graph.optimize(proto, strict=True), session(proto)
    for number, extents in enumerate(((1, 9, 7, 8), (2, 5, 12, 4), (3, 8, 5, 16))):
        x = np.random.default_rng(number).standard_normal((extents[0], 4, *extents[1 : rank - 1]))
        feeds = {"x": x.astype(dtype)}
        assert_all_close(compiled.run(feeds), reference.run(None, feeds), 4 * 3 ** (rank - 2))
    stages = dvm_graph.pipeline.stage_text(proto, dvm_graph.Options(), "eliminate_dead")
    return [
        line.split(" = ")[1].split("(")[0].split("[")[0]
        for line in stages.splitlines()
        if " = " in line
    ]


AXES = {
    "both": [0, 0, 1, 1, 0, 0, 1, 1], "end": [0, 0, 0, 0, 0, 0, 1, 1], "rows": [0, 0, 2, 0, 0, 0, 1, 0],
    "wide": [0, 0, 5, 0, 0, 0, 0, 4], "nothing": [0] * 8,
}  # fmt: skip
WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {}, "pads": {"pads": [1, 0, 2, 1]}, "strides": {"strides": [2, 2]}, "valid": {"auto_pad": "VALID"},
    "dilations": {"dilations": [2, 1]}, "lanes": {"groups": 4}, "groups": {"groups": 2, "strides": [2, 1]},
}  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("axes", AXES)
def test_zeros_are_pads(axes: str, window: str) -> None:
    operators = check(model(AXES[axes], **WINDOWS[window]))
    assert "concat" not in operators


@pytest.mark.parametrize("rank", [3, 5])
def test_rows_and_volumes(rank: int) -> None:
    spatial = rank - 2
    operators = check(model([0, 0, *[1] * spatial, 0, 0, *[2] * spatial], rank=rank), rank)
    assert "concat" not in operators


def test_half_floats() -> None:
    assert "concat" not in check(model(AXES["both"], dtype=np.float16), 4, np.float16)


@pytest.mark.parametrize(
    "more",
    [{"value": 0.5}, {"auto_pad": "SAME_UPPER"}],  # no zeros; pads by the size of what is there
)
def test_what_is_no_pad_of_a_window(more: dict[str, Any]) -> None:
    assert "concat" in check(model(AXES["both"], **more))


@pytest.mark.parametrize("fed", [False, True])
def test_zeros_times_what_is_not_finite(fed: bool) -> None:
    """They are NaN, where pads would be nothing."""
    proto = model(AXES["both"])
    weights = numpy_helper.to_array(proto.graph.initializer[0]).copy()
    weights[0, 0, 0, 0] = np.inf
    del proto.graph.initializer[0]
    feeds = {"x": RANDOM.standard_normal((1, 4, 5, 6)).astype(np.float32)}
    if fed:
        shape = list(weights.shape)
        info = helper.make_tensor_value_info("w", TensorProto.FLOAT, shape)
        proto.graph.input.append(info)
        feeds["w"] = weights
    else:
        proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    (mine,) = dvm_graph.optimize(proto).run(feeds)
    (theirs,) = session(proto).run(None, feeds)
    assert np.isnan(theirs).any()
    np.testing.assert_array_equal(np.isnan(mine), np.isnan(theirs))


def test_what_is_cut_off() -> None:
    assert "concat" not in check(model([0, 0, -1, 2, 0, 0, 0, -1]))


def test_other_readers_get_the_larger_image() -> None:
    proto = model(AXES["both"])
    proto.graph.node.append(helper.make_node("Relu", ["p"], ["r"]))
    proto.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))
    assert "concat" in check(proto)


def test_zeros_of_a_concat() -> None:
    proto = model(AXES["nothing"])
    zeros = np.zeros((1, 4, 1, 8), np.float32)
    proto.graph.initializer.append(numpy_helper.from_array(zeros, "zeros"))
    proto.graph.node[0].CopyFrom(
        helper.make_node("Concat", ["zeros", "x", "zeros", "zeros"], ["p"], axis=2)
    )
    compiled, reference = dvm_graph.optimize(proto), session(proto)
    feeds = {"x": RANDOM.standard_normal((1, 4, 5, 8)).astype(np.float32)}
    assert_all_close(compiled.run(feeds), reference.run(None, feeds), 36)
