"""What kernels compute in one order and keep in another: few columns beside many, transposes of results, and pixels that
become several.
"""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph import _core

_EPSILON = 1e-6


def _model(nodes: list[onnx.NodeProto], inputs: dict[str, list[str]], outputs: list[str]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "kept",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v) for k, v in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [
            numpy_helper.from_array(np.array([1], np.int64), "channels"),
            numpy_helper.from_array(np.array(_EPSILON, np.float32), "epsilon"),
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def _normalized_pixels(block: int) -> bytes:
    """Channels become pixels, to which an image is added; each pixel is normalized over its channels."""
    nodes = [
        helper.make_node("DepthToSpace", ["x"], ["up"], blocksize=block, mode="CRD"),
        helper.make_node("Add", ["up", "skip"], ["sum"]),
        helper.make_node("ReduceMean", ["sum", "channels"], ["mean"]),
        helper.make_node("Sub", ["sum", "mean"], ["apart"]),
        helper.make_node("Mul", ["apart", "apart"], ["squares"]),
        helper.make_node("ReduceMean", ["squares", "channels"], ["variance"]),
        helper.make_node("Add", ["variance", "epsilon"], ["positive"]),
        helper.make_node("Sqrt", ["positive"], ["deviation"]),
        helper.make_node("Div", ["apart", "deviation"], ["y"]),
    ]
    wide = ["n", "c", f"{block}*h", f"{block}*w"]
    return _model(nodes, {"x": ["n", f"{block * block}*c", "h", "w"], "skip": wide}, ["y", "sum"])


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("block", [2, 3, 4])
def test_pixels_of_channels(block: int, simd: str) -> None:
    model = dvm_graph.optimize(_normalized_pixels(block), simd=simd, cores=2)
    numbers = np.random.default_rng(block)
    for n, c, h, w in [(2, 24, 9, 33), (1, 3, 1, 1), (1, 1, 4, 64), (3, 17, 5, 7), (1, 40, 2, 130)]:
        x = numbers.standard_normal((n, block * block * c, h, w), np.float32)
        skip = numbers.standard_normal((n, c, block * h, block * w), np.float32)
        apart = x.reshape(n, c, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
        total = apart.reshape(skip.shape) + skip
        centred = total - total.mean(1, keepdims=True, dtype=np.float64)
        y = centred / np.sqrt((centred**2).mean(1, keepdims=True) + _EPSILON)
        found, kept = model.run({"x": x, "skip": skip})
        np.testing.assert_allclose(kept, total, rtol=1e-6)
        np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-4)


def test_pixels_of_channels_are_folded_by_rows() -> None:
    """Sums over channels go over all columns of a tile at once, though a column was `block` of them."""
    model = dvm_graph.optimize(_normalized_pixels(2))
    x, skip = np.zeros((1, 96, 24, 64), np.float32), np.zeros((1, 24, 48, 128), np.float32)
    sums = re.findall(r"v_reduce_sum_f32 \[(\w+),", model.disassemble({"x": x, "skip": skip}))
    assert sums
    assert set(sums) == {"1"}


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("order", [(0, 2, 1), (2, 0, 1), (1, 0, 2)])
def test_results_in_two_orders(order: tuple[int, ...], simd: str) -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["y"]),
        helper.make_node("Transpose", ["y"], ["z"], perm=order),
    ]
    model = dvm_graph.optimize(_model(nodes, {"x": ["a", "b", "c"]}, ["y", "z"]), simd=simd)
    for shape in [(2, 33, 24), (1, 1, 5), (3, 140, 7), (5, 4, 3), (1, 65, 129)]:
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        y, z = model.run({"x": x})
        np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)
        np.testing.assert_array_equal(z, y.transpose(order))


def test_results_in_two_orders_are_turned() -> None:
    """By a memory instruction, which knows transposes, and not element by element."""
    nodes = [
        helper.make_node("Exp", ["x"], ["y"]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[0, 2, 1]),
    ]
    model = dvm_graph.optimize(_model(nodes, {"x": ["a", "b", "c"]}, ["y", "z"]))
    code = model.disassemble({"x": np.zeros((2, 512, 24), np.float32)})
    assert "d_store_view_f32" in code
    assert "v_copy" not in code


def _grown(scale: int, element: int) -> bytes:
    """Each pixel becomes a square of them, and what is computed of it, too."""
    nodes = [
        helper.make_node("Resize", ["x", "", "scales"], ["up"], mode="nearest"),
        helper.make_node("Neg", ["up"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "grown",
        [helper.make_tensor_value_info("x", element, ["n", "c", "h", "w"])],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales")],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize("scale", [2, 3, 4, 5])
def test_pixels_that_grow(scale: int, dtype: str, simd: str) -> None:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = dvm_graph.optimize(_grown(scale, element), simd=simd, cores=2)
    numbers = np.random.default_rng(scale)
    for shape in [(2, 3, 9, 33), (1, 1, 1, 1), (1, 5, 4, 64), (3, 2, 31, 17), (1, 2, 3, 15)]:
        x = (8 * numbers.standard_normal(shape)).astype(dtype)
        (y,) = model.run({"x": x})
        np.testing.assert_array_equal(y, -x.repeat(scale, 2).repeat(scale, 3))


def test_tiles_hold_several_rows_of_pixels_that_grow() -> None:
    """Rows of an image and the two that each of them becomes are a loop too many, but a short one."""
    model = dvm_graph.optimize(_grown(2, TensorProto.FLOAT), cores=1)
    code = model.disassemble({"x": np.zeros((1, 16, 48, 64), np.float32)})
    tiles = re.search(r"^  tiles (\d+) ", code, re.MULTILINE)
    assert tiles is not None
    assert int(tiles[1]) <= 16 * 48 // 8
