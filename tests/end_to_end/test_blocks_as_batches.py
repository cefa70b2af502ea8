"""Dilated convolutions as TensorFlow writes them: pixels of one phase are an image of their own, in the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session


def dilated(channels: int, block: int, groups: int) -> onnx.ModelProto:
    """Of images [batch, height, width, channels] of any size."""
    weights = np.random.default_rng(0).uniform(-1, 1, (channels, channels // groups, 3, 3))
    steps: list[tuple[str, dict[str, Any]]] = [
        ("Transpose", {"perm": [3, 0, 1, 2]}),
        ("SpaceToDepth", {"blocksize": block}),
        ("Transpose", {"perm": [1, 0, 2, 3]}),
        ("Conv", {"group": groups}),
        ("Transpose", {"perm": [1, 0, 2, 3]}),
        ("DepthToSpace", {"blocksize": block}),
        ("Transpose", {"perm": [1, 2, 3, 0]}),
    ]
    nodes = [
        helper.make_node(op, [f"t{at}", *(["w"] if op == "Conv" else [])], [f"t{at + 1}"], **attrs)
        for at, (op, attrs) in enumerate(steps)
    ]
    x = helper.make_tensor_value_info("t0", 1, ["batch", "height", "width", channels])
    y = helper.make_tensor_value_info(f"t{len(steps)}", 1, None)
    constants = [numpy_helper.from_array(weights.astype(np.float32), "w")]
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def image(*shape: int) -> dict[str, Array]:
    return {"t0": np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)}


@pytest.mark.parametrize("channels, block, groups", [(3, 2, 3), (16, 2, 16), (8, 3, 1), (6, 4, 2)])
def test_equals_onnxruntime(channels: int, block: int, groups: int) -> None:
    model = dilated(channels, block, groups)
    compiled, reference = dvm_graph.optimize(model, strict=True), session(model)
    for batch, rows, columns in ((1, 3, 3), (2, 5, 4), (3, 3, 7), (0, 3, 4)):
        feeds = image(batch, rows * block, columns * block, channels)
        actual, expected = compiled.run(feeds), reference.run(None, feeds)
        assert_all_close(actual, expected, reduction_length=9 * channels)


def test_pixels_are_copied_once() -> None:
    """Rows of an image whose size nobody knows are rows of blocks by what each run checks."""
    assert dvm_graph.optimize(dilated(16, 2, 16)).report().kernels == 2


@pytest.mark.parametrize("rows, columns", [(9, 8), (8, 9), (9, 9)])
def test_images_of_no_whole_blocks(rows: int, columns: int) -> None:
    compiled = dvm_graph.optimize(dilated(3, 2, 3))
    with pytest.raises(dvm_graph.DvmError, match="whole blocks"):
        compiled.run(image(1, rows, columns, 3))
