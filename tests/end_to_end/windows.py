"""Models of convolutions and pools for tests, and what they give beside onnxruntime."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session


def one_node(
    op: str,
    rank: int,
    channels: int | str,
    attrs: Mapping[str, Any],
    weights: Sequence[Array] = (),
    dtype: type[np.generic] = np.float32,
) -> onnx.ModelProto:
    """A model of one operator on images whose batch and spatial dims are dynamic."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    spatial = ["depth", "height", "width"][5 - rank :]
    shape = ["batch", channels, *spatial]
    names = [f"w{index}" for index in range(len(weights))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], name="window", **attrs)],
        "g",
        [helper.make_tensor_value_info("x", element, shape)],
        [helper.make_tensor_value_info("y", element, None)],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, names, strict=True)],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 22)])


def check(
    model: onnx.ModelProto, shapes: Sequence[tuple[int, ...]], terms: int = 1, **options: Any
) -> None:
    """The model without vendor operators gives what onnxruntime gives, or both refuse."""
    mine = dvm_graph.optimize(model, strict=True, **options)
    reference = session(model)
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    generator = np.random.default_rng(1)
    for shape in shapes:
        x = generator.integers(-9, 9, shape).astype(dtype) / (8 if dtype.kind == "f" else 1)
        feeds = {"x": x.astype(dtype)}
        for weights in model.graph.input[1:]:
            dims = [dim.dim_value for dim in weights.type.tensor_type.shape.dim]
            feeds[weights.name] = weights_of(generator, *dims)
        results = zip(mine.run(feeds), reference.run(None, feeds), strict=True)
        given = [
            (got, want) for got, want in results if want is not None
        ]  # none: indices of float16, on ARM
        assert given
        assert_all_close(*zip(*given, strict=True), reduction_length=terms)


def weights_of(generator: np.random.Generator, *shape: int) -> Array:
    return generator.uniform(-1, 1, shape).astype(np.float32)


def with_weights(text: str) -> onnx.ModelProto:
    """The model with drawn, positive constants for all its inputs but the first."""
    generator = np.random.default_rng(0)
    graph = (proto := onnx.parser.parse_model(text)).graph
    for info in graph.input[1:]:
        extents = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
        array = generator.uniform(0.1, 1, extents).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(array, info.name))
    del graph.input[1:]
    return proto


def drawn_axis(draw: random.Random, extents: Sequence[int]) -> dict[str, int]:
    """Kernel, stride, dilation and pads under which all the extents have windows."""
    while True:
        axis = {
            "kernel": draw.choice((1, 1, 2, 3, 3, 5, 7)),
            "stride": draw.choice((1, 1, 2, 3, 4)),
            "dilation": draw.choice((1, 1, 1, 2, 3)),
        }
        axis["begin"] = draw.randint(0, axis["kernel"] - 1)
        axis["end"] = draw.randint(0, axis["kernel"] - 1)
        reach = axis["dilation"] * (axis["kernel"] - 1) + 1
        if all(extent + axis["begin"] + axis["end"] >= reach for extent in extents):
            return axis


def attributes(axes: Sequence[Mapping[str, int]], kernel: bool = True) -> dict[str, Any]:
    pads = [axis["begin"] for axis in axes] + [axis["end"] for axis in axes]
    attrs = {
        "strides": [axis["stride"] for axis in axes],
        "dilations": [axis["dilation"] for axis in axes],
        "pads": pads,
    }
    return attrs | ({"kernel_shape": [axis["kernel"] for axis in axes]} if kernel else {})
