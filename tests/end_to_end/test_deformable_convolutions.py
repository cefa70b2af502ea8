"""DeformConv as kernels, without the vendor library, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session

CHANNELS = 8
WINDOWS = (
    {"kernel": (3, 3), "pads": [1, 1, 1, 1]},
    {"kernel": (3, 2), "strides": [2, 1], "pads": [0, 1, 2, 1], "dilations": [1, 2]},
    {"kernel": (1, 1)},
)


def drawn(shape: tuple[int, ...], dtype: type[np.generic], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def model_of(
    kernel: tuple[int, int],
    groups: int = 1,
    shared: int = 1,
    bias: bool = False,
    mask: bool = False,
    dtype: type[np.generic] = np.float32,
    opset: int = 19,
    **attrs: Any,
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    taps = kernel[0] * kernel[1]
    inputs = {
        "x": ["batch", CHANNELS, "height", "width"],
        "offset": ["batch", 2 * shared * taps, "rows", "columns"],
    }
    constants = {"w": drawn((CHANNELS, CHANNELS // groups, *kernel), dtype, 1)}
    operands = ["x", "w", "offset", "bias" if bias else ""]
    if bias:
        constants["bias"] = drawn((CHANNELS,), dtype, 2)
    if mask:
        inputs["mask"] = ["batch", shared * taps, "rows", "columns"]
        operands.append("mask")
    node = helper.make_node(
        "DeformConv", operands, ["y"], group=groups, offset_group=shared, **attrs
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, element, dims) for name, dims in inputs.items()],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


def feeds_of(
    model: onnx.ModelProto,
    shape: tuple[int, int, int],
    kernel: tuple[int, int],
    strides: tuple[int, ...] = (1, 1),
    pads: tuple[int, ...] = (0, 0, 0, 0),
    dilations: tuple[int, ...] = (1, 1),
) -> dict[str, Array]:
    """Offsets reach far outside of images, and some are whole numbers."""
    batch, *image = shape
    size = [
        (extent + before + after - dilation * (taps - 1) - 1) // stride + 1
        for extent, before, after, dilation, taps, stride in zip(
            image, pads[:2], pads[2:], dilations, kernel, strides, strict=True
        )
    ]
    feeds = {}
    for seed, value in enumerate(model.graph.input):
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).type
        spatial = image if value.name == "x" else size
        x = drawn((batch, kind.shape.dim[1].dim_value, *spatial), dtype, seed)
        if value.name == "offset":
            x = np.where(x > 0, np.round(x * 3), x * 3).astype(dtype)
        feeds[value.name] = x
    return feeds


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize(("groups", "shared"), [(1, 1), (2, 1), (1, 2), (2, 2), (4, 2), (2, 4)])
@pytest.mark.parametrize(("bias", "mask"), [(False, False), (True, True), (False, True)])
def test_equals_onnxruntime(
    window: dict[str, Any],
    groups: int,
    shared: int,
    bias: bool,
    mask: bool,
    dtype: type[np.generic],
) -> None:
    model = model_of(**window, groups=groups, shared=shared, bias=bias, mask=mask, dtype=dtype)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for shape in ((2, 6, 7), (1, 5, 5), (0, 5, 5)):
        feeds = feeds_of(model, shape, **window)
        assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=128)


def test_places_on_the_edges() -> None:
    """A place a whole element outside reads nothing; closer ones read the last element in part."""
    model = model_of((1, 1))
    feeds = feeds_of(model, (1, 4, 4), (1, 1))
    for far in (-1.0, -0.75, 0.75, 1.0, 4.0, 1e9):
        feeds["offset"][:] = far
        mine = dvm_graph.optimize(model, strict=True).run(feeds)
        assert_all_close(mine, session(model).run(None, feeds), reduction_length=16)


def test_offsets_that_are_no_numbers_lead_outside() -> None:
    model = model_of((1, 1))
    feeds = {
        "x": drawn((1, CHANNELS, 4, 5), np.float32, 3),
        "offset": np.zeros((1, 2, 4, 5), np.float32),
    }
    feeds["offset"][0, :, 0] = [[np.inf, 0, np.nan, -np.inf, 1e30], [0, np.inf, 0, np.nan, 0]]
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model, strict=True).run(feeds), expected, CHANNELS)


def test_weights_of_the_run() -> None:
    model = model_of((3, 3), groups=2, pads=[1, 1, 1, 1])
    weights = numpy_helper.to_array(model.graph.initializer[0])
    del model.graph.initializer[:]
    info = helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, weights.shape)
    model.graph.input.append(info)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    feeds = feeds_of(model_of((3, 3), pads=[1, 1, 1, 1]), (2, 6, 7), (3, 3), pads=(1, 1, 1, 1))
    feeds["w"] = weights
    assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=128)
