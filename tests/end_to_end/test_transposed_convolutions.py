"""Transposed convolutions against onnxruntime."""

from __future__ import annotations

import random
import re

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from tests.end_to_end.reference import assert_all_close, session
from tests.end_to_end.windows import (
    attributes,
    check,
    one_node,
    weights_of,
)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_drawn_transposed_convolutions(seed: int, computed: bool) -> None:
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    rank = draw.choice((3, 4, 4, 5))
    sizes = [tuple(draw.choice((1, 2, 3, 7)) for _ in range(rank - 2)) for _ in range(2)]
    axes = [drawn_transposed_axis(draw, min(extents)) for extents in zip(*sizes, strict=True)]
    groups, outputs, inputs = (
        draw.choice((1, 1, 2, 3)),
        draw.choice((1, 2, 17)),
        draw.choice((1, 5)),
    )
    kernel = [axis["kernel"] for axis in axes]
    weights = [weights_of(generator, groups * inputs, outputs, *kernel)]
    if draw.random() < 0.5:
        weights.append(weights_of(generator, groups * outputs))
    attrs = attributes(axes) | {"group": groups}
    if any(axis["more"] for axis in axes):
        attrs["output_padding"] = [axis["more"] for axis in axes]
    model = one_node("ConvTranspose", rank, groups * inputs, attrs, weights)
    shapes = [(batch, groups * inputs, *size) for batch, size in zip((1, 3), sizes, strict=True)]
    terms = inputs * int(np.prod(kernel))
    if computed:
        model = with_inputs(model)
    check(model, [*shapes, (0, *shapes[0][1:])], terms, check=seed % 6 == 0)


def with_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with weights that feeds give."""
    graph = model.graph
    for tensor in graph.initializer:
        graph.input.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    del graph.initializer[:]
    return model


def drawn_transposed_axis(draw: random.Random, extent: int) -> dict[str, int]:
    """Such that something is left of the result behind the pads, and onnxruntime takes it."""
    while True:
        axis = {
            "kernel": draw.choice((1, 2, 3, 4, 5, 6)),
            "stride": draw.choice((1, 2, 2, 3, 4)),
            "dilation": draw.choice((1, 1, 1, 2, 3)),
        }
        axis["begin"], axis["end"] = (draw.randint(0, axis["kernel"]) for _ in range(2))
        axis["more"] = draw.randint(0, axis["stride"] - 1)
        reach = axis["dilation"] * (axis["kernel"] - 1) + 1 + axis["more"]
        if (extent - 1) * axis["stride"] + reach > axis["begin"] + axis["end"]:
            return axis


@pytest.mark.parametrize("automatic", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    "axis",
    [
        {"strides": [2], "kernel_shape": [3]},
        {"strides": [3], "kernel_shape": [2]},
        {"strides": [2], "kernel_shape": [4], "dilations": [2]},
        {"strides": [1], "kernel_shape": [6]},
    ],
    ids=str,
)
def test_sizes_of_transposed_convolutions_say_the_pads(
    axis: dict[str, list[int]], automatic: str
) -> None:
    """Also where the size is asked for, and pads follow from the extent of the run."""
    weights = weights_of(np.random.default_rng(0), 3, 4, 1, *axis["kernel_shape"])
    attrs = {name: [1, *numbers] for name, numbers in axis.items()}
    model = one_node("ConvTranspose", 4, 3, attrs | {"auto_pad": automatic}, [weights])
    check(model, [(1, 3, 2, 5), (2, 3, 1, 1), (1, 3, 1, 8)], terms=18)
    reach = axis.get("dilations", [1])[0] * (axis["kernel_shape"][0] - 1)
    natural = 4 * axis["strides"][0] + reach + 1
    for size in (natural, natural - 1, natural - 2):
        attrs |= {"output_shape": [2, size], "auto_pad": automatic}
        check(one_node("ConvTranspose", 4, 3, attrs, [weights]), [(1, 3, 2, 5)], terms=18)


def test_transposed_convolution_of_what_is_not_finite() -> None:
    """Only where a tap reaches it."""
    weights = weights_of(np.random.default_rng(0), 2, 3, 4, 4)
    model = one_node("ConvTranspose", 4, 2, {"strides": [2, 2], "pads": [1, 1, 1, 1]}, [weights])
    x = np.ones((1, 2, 5, 5), np.float32)
    x[0, 1, 2, 3] = np.inf
    feeds = {"x": x}
    actual = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(actual, session(model).run(None, feeds), reduction_length=8)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("seed", range(30))
def test_few_outputs_of_many_channels(seed: int, dtype: type) -> None:
    """Inputs are multiplied by all taps at once, and no windows packed."""
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    axis = drawn_transposed_axis(draw, 1)
    while axis["dilation"] > 1:
        axis = drawn_transposed_axis(draw, 1)
    outputs = draw.choice((1, 1, 2, 3))
    inputs = outputs * axis["kernel"] + draw.choice((0, 1, 40))
    weights = [weights_of(generator, inputs, outputs, axis["kernel"]).astype(dtype)]
    if draw.random() < 0.5:
        weights.append(weights_of(generator, outputs).astype(dtype))
    attrs = attributes([axis]) | {"output_padding": [axis["more"]]}
    model = one_node("ConvTranspose", 3, inputs, attrs, weights, dtype)
    shapes = [(batch, inputs, size) for batch, size in ((2, 7), (1, 1), (3, 40), (0, 5))]
    check(model, shapes, terms=inputs * axis["kernel"])
    listings = dvm_graph.optimize(model).listings({"batch": 1, "width": 40})
    assert not re.search("pack_patches|matmul_windows", "".join(map(str, listings)))


def test_few_outputs_of_what_is_not_finite() -> None:
    """Only where a tap reaches it: the last row of taps is short."""
    weights = weights_of(np.random.default_rng(0), 24, 1, 7)
    model = one_node("ConvTranspose", 3, 24, {"strides": [3], "pads": [1, 1]}, [weights])
    x = np.ones((1, 24, 9), np.float32)
    x[0, 3, 2], x[0, 5, 8] = np.inf, np.nan
    feeds = {"x": x}
    actual = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(actual, session(model).run(None, feeds), reduction_length=24 * 7)
