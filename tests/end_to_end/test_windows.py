"""Convolutions and pools as kernels: drawn configurations and awkward ones against onnxruntime."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session

DRAWN = 60


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


@pytest.mark.parametrize("seed", range(DRAWN))
def test_drawn_convolutions(seed: int) -> None:
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    rank = draw.choice((3, 4, 4, 4, 5))
    extents = (1, 3, 7) if rank == 5 else (1, 3, 7, 16, 33)
    sizes = [tuple(draw.choice(extents) for _ in range(rank - 2)) for _ in range(2)]
    axes = [drawn_axis(draw, along) for along in zip(*sizes, strict=True)]
    groups = draw.choice((1, 1, 2, 3, 17))
    depthwise = draw.random() < 0.4
    inputs = 1 if depthwise else draw.choice((1, 2, 3, 4, 8))
    outputs = 1 if depthwise else draw.choice((1, 2, 4, 5, 8, 33))
    kernel = [axis["kernel"] for axis in axes]
    weights = [weights_of(generator, groups * outputs, inputs, *kernel)]
    if draw.random() < 0.5:
        weights.append(weights_of(generator, groups * outputs))
    attrs = attributes(axes) | {"group": groups}
    model = one_node("Conv", rank, groups * inputs, attrs, weights)
    shapes = [(batch, groups * inputs, *size) for batch, size in zip((1, 3), sizes, strict=True)]
    check(model, shapes, terms=inputs * int(np.prod(kernel)))


@pytest.mark.parametrize(
    ("outputs", "kernel", "attrs", "size"),
    [
        pytest.param(16, (3, 3), {"pads": [1, 1, 1, 1]}, (24, 56), id="padded"),
        pytest.param(16, (3, 3), {"pads": [0, 2, 1, 0]}, (27, 60), id="unevenly padded"),
        pytest.param(5, (5, 3), {"strides": [2, 1]}, (61, 70), id="strided rows"),
        pytest.param(
            24, (3, 5), {"strides": [1, 2], "pads": [1, 2, 1, 2]}, (32, 113), id="columns"
        ),
        pytest.param(
            16, (3, 3), {"dilations": [2, 1], "pads": [2, 1, 2, 1]}, (24, 56), id="far rows"
        ),
        pytest.param(
            8, (2, 3), {"dilations": [1, 3], "pads": [0, 3, 1, 3]}, (24, 64), id="far taps"
        ),
        pytest.param(3, (9, 9), {"pads": [4, 4, 4, 4]}, (20, 64), id="dot products"),
        pytest.param(16, (1, 7), {"pads": [0, 3, 0, 3]}, (1, 300), id="one row"),
        pytest.param(
            24, (3, 3), {"dilations": [18, 18], "pads": [18] * 4}, (28, 26), id="few taps inside"
        ),
        pytest.param(12, (3, 3), {"group": 2, "pads": [1, 1, 1, 1]}, (16, 30), id="groups"),
        pytest.param(16, (3, 3, 3), {"pads": [1] * 6}, (4, 12, 30), id="volumes"),
        pytest.param(
            16,
            (3, 2, 3),
            {"strides": [2, 1, 1], "dilations": [1, 1, 2], "pads": [0, 1, 2, 1, 0, 2]},
            (5, 9, 28),
            id="strided slices",
        ),
        pytest.param(2, (2, 3, 3), {"pads": [1] * 6}, (3, 8, 20), id="dot products of volumes"),
    ],
)
def test_windows_are_read_where_they_lie(
    outputs: int, kernel: tuple[int, ...], attrs: dict[str, Any], size: tuple[int, ...]
) -> None:
    """Tiles of whole output rows, without patches."""
    generator = np.random.default_rng(outputs)
    inputs = 72  # taps that are no neighbours are runs of k of their own: long enough
    each = inputs // attrs.get("group", 1)
    weights = [weights_of(generator, outputs, each, *kernel), weights_of(generator, outputs)]
    model = one_node("Conv", 2 + len(size), inputs, attrs, weights)
    check(model, [(2, inputs, *size), (1, inputs, *size)], each * int(np.prod(kernel)))
    dims = {"batch": 2, **dict(zip(("depth", "height", "width")[-len(size) :], size, strict=True))}
    listings = "".join(map(str, dvm_graph.optimize(model).listings(dims)))
    assert "m_matmul_windows_f32" in listings


@pytest.mark.parametrize("pads", [[0, 0, 1, 2], [1, 0, 0, 0], [0, 2, 0, 0]])
def test_pads_around_single_taps(pads: list[int]) -> None:
    weights = weights_of(np.random.default_rng(0), 5, 3, 1, 1)
    check(one_node("Conv", 4, 3, {"pads": pads}, [weights]), [(2, 3, 5, 4)], terms=3)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("seed", range(DRAWN))
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


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [0, 0]},
        {"strides": [2]},
        {"dilations": [0, 1]},
        {"pads": [1, 1]},
        {"group": 0},
        {"group": -1},
        {"group": 4},
    ],
    ids=str,
)
def test_malformed_attributes(op: str, attrs: dict[str, Any]) -> None:
    weights = weights_of(np.random.default_rng(0), 3, 3, 2, 2)
    with pytest.raises(dvm_graph.DvmError):
        model = dvm_graph.optimize(one_node(op, 4, 3, attrs, [weights]))
        model.run({"x": np.ones((1, 3, 5, 5), np.float32)})


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("seed", range(DRAWN // 2))
def test_drawn_pools(op: str, seed: int) -> None:
    draw = random.Random(seed)
    rank = draw.choice((3, 4, 4, 4))
    sizes = [tuple(draw.choice((1, 3, 7, 16, 33)) for _ in range(rank - 2)) for _ in range(2)]
    axes = [drawn_axis(draw, extents) for extents in zip(*sizes, strict=True)]
    attrs = attributes(axes)
    if op == "AveragePool":
        attrs["count_include_pad"] = draw.randint(0, 1)
    channels = draw.choice((1, 2, 3, 5, 17, 64))
    model = one_node(op, rank, channels, attrs)
    shapes = [(batch, channels, *size) for batch, size in zip((1, 2), sizes, strict=True)]
    check(model, shapes, terms=64)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.uint8])
@pytest.mark.parametrize("seed", range(DRAWN // 3))
def test_drawn_indices_of_maxima(dtype: type[np.generic], seed: int) -> None:
    """Of few different numbers: the first of equal ones counts."""
    draw = random.Random(seed)
    rank = draw.choice((3, 4, 4, 5))
    sizes = [tuple(draw.choice((1, 2, 3, 7, 16)) for _ in range(rank - 2)) for _ in range(2)]
    axes = [drawn_axis(draw, extents) for extents in zip(*sizes, strict=True)]
    for axis in axes:
        if axis["dilation"] > 1:  # a window may have no tap
            axis["begin"] = axis["end"] = 0
        if any(extents[0] < axis["dilation"] * (axis["kernel"] - 1) + 1 for extents in sizes):
            axis |= {"dilation": 1, "kernel": 1, "begin": 0, "end": 0}
    attrs = attributes(axes) | {
        "ceil_mode": draw.randint(0, 1),
        "storage_order": draw.randint(0, 1),
    }
    model = with_indices(one_node("MaxPool", rank, 3, attrs, (), dtype))
    shapes = [(batch, 3, *size) for batch, size in zip((1, 2), sizes, strict=True)]
    check(model, [*shapes, (0, *shapes[0][1:])], check=seed % 5 == 0)


def with_indices(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[0].output.append("indices")
    model.graph.output.append(
        helper.make_tensor_value_info("indices", onnx.TensorProto.INT64, None)
    )
    return model


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_indices_of_maxima_under_automatic_pads(automatic: str) -> None:
    attrs = {"auto_pad": automatic, "kernel_shape": [4, 3], "strides": [3, 2]}
    model = with_indices(one_node("MaxPool", 4, 2, attrs))
    check(model, [(1, 2, size, size + 1) for size in (5, 6, 7, 12, 13)])


def test_the_first_of_infinities_and_of_nan_is_the_greatest() -> None:
    """Padding is none of them."""
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    model = with_indices(one_node("MaxPool", 4, 1, attrs))
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 1, 1] = x[0, 0, 1, 2] = np.nan
    y, indices = dvm_graph.optimize(model, strict=True).run({"x": x})
    expected = np.array([[0, 1, 3], [4, 5, 7], [12, 13, 15]])
    np.testing.assert_array_equal(indices[0, 0], expected)
    np.testing.assert_array_equal(np.isnan(y[0, 0]), expected == 5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("kernel", "stride", "pads"),
    [(3, 2, (0, 0)), (2, 2, (0, 0)), (3, 2, (1, 1)), (2, 3, (0, 0)), (3, 3, (1, 0))],
)
def test_ceiling_of_sizes(op: str, kernel: int, stride: int, pads: tuple[int, int]) -> None:
    attrs = {
        "kernel_shape": [kernel, kernel],
        "strides": [stride, stride],
        "pads": [pads[0], pads[0], pads[1], pads[1]],
        "ceil_mode": 1,
    }
    model = one_node(op, 4, 5, attrs)
    check(model, [(2, 5, size, size + 3) for size in (3, 4, 5, 6, 7, 8, 9, 10)], terms=9)


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 2), (2, 3)])
def test_automatic_pads(automatic: str, kernel: int, stride: int) -> None:
    attrs = {
        "auto_pad": automatic,
        "kernel_shape": [kernel, kernel],
        "strides": [stride, stride],
    }
    weights = weights_of(np.random.default_rng(0), 7, 3, kernel, kernel)
    shapes = [(1, 3, size, size + 1) for size in (5, 6, 7, 8, 12, 13)]
    check(one_node("Conv", 4, 3, attrs, [weights]), shapes, terms=75)
    if stride <= kernel:  # onnxruntime refuses others
        check(one_node("MaxPool", 4, 3, attrs), shapes)


def test_half_floats() -> None:
    dtype = np.float16
    generator = np.random.default_rng(0)
    weights = [
        weights_of(generator, 6, 2, 3, 3).astype(dtype),
        weights_of(generator, 6).astype(dtype),
    ]
    attrs = {"group": 2, "pads": [1, 1, 1, 1]}
    check(one_node("Conv", 4, 4, attrs, weights, dtype), [(2, 4, 9, 5)], terms=18)
    check(one_node("MaxPool", 4, 4, {"kernel_shape": [2, 2]}, (), dtype), [(2, 4, 9, 5)])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_greatest_of_integers(dtype: type[np.generic]) -> None:
    attrs = {"kernel_shape": [3, 2], "pads": [1, 1, 1, 0], "strides": [2, 1]}
    check(one_node("MaxPool", 4, 3, attrs, (), dtype), [(2, 3, 7, 5), (1, 3, 1, 1)])


def test_greatest_keeps_nan() -> None:
    model = dvm_graph.optimize(one_node("MaxPool", 4, 1, {"kernel_shape": [1, 2]}), strict=True)
    x = np.array([1, np.nan, 2, -np.inf, -np.inf], np.float32).reshape(1, 1, 1, 5)
    (y,) = model.run({"x": x})
    np.testing.assert_array_equal(y.reshape(-1), np.array([np.nan, np.nan, 2, -np.inf]))


@pytest.mark.parametrize("channels", [1, 16, 19])
@pytest.mark.parametrize("kernel", [2, 3])
def test_nan_anywhere_in_a_window_is_its_greatest(kernel: int, channels: int) -> None:
    """As numpy has it; onnxruntime's answer depends on where in the window the NaN is."""
    attrs = {"kernel_shape": [kernel, kernel]}
    model = dvm_graph.optimize(one_node("MaxPool", 4, channels, attrs), strict=True)
    taps = kernel * kernel
    x = np.arange(taps * taps * channels, dtype=np.float32).reshape(taps, channels, taps)
    x[np.arange(taps), :, np.arange(taps)] = np.nan
    (y,) = model.run({"x": x.reshape(taps, channels, kernel, kernel)})
    assert np.isnan(y).all()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, channels, 9, 7)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = np.nan
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    (y,) = model.run({"x": x})
    np.testing.assert_array_equal(y, windows.max(axis=(-1, -2)))


def test_double_floats() -> None:
    """Which onnxruntime has no convolution for."""
    generator = np.random.default_rng(0)
    weights = generator.uniform(-1, 1, (6, 2, 3, 3))
    attrs = {"group": 2, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    model = one_node("Conv", 4, 4, attrs, [weights], np.float64)
    feeds = {"x": generator.uniform(-1, 1, (2, 4, 9, 5))}
    actual = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(actual, ReferenceEvaluator(model).run(None, feeds), reduction_length=18)


def test_empty_batches() -> None:
    weights = weights_of(np.random.default_rng(0), 4, 3, 3, 3)
    for model in (
        one_node("Conv", 4, 3, {"pads": [1, 1, 1, 1]}, [weights]),
        one_node("MaxPool", 4, 3, {"kernel_shape": [2, 2]}),
    ):
        (y,) = dvm_graph.optimize(model, strict=True).run({"x": np.zeros((0, 3, 8, 8), np.float32)})
        assert y.shape[:1] == (0,) and y.size == 0


def test_weights_that_are_not_constant() -> None:
    """Also through a view of the weights."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 4, h, w] x, float[6, 2, 3, 3] k, float[4, 1, 3, 3] d) => (float[n, c, i, j] y) {
        p = Conv<group = 4, pads = [1, 1, 1, 1]>(x, d)
        q = Relu(p)
        y = Conv<group = 2, strides = [2, 1]>(q, k)
    }"""
    proto = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    feeds = {
        "x": weights_of(generator, 2, 4, 11, 9),
        "k": weights_of(generator, 6, 2, 3, 3),
        "d": weights_of(generator, 4, 1, 3, 3),
    }
    model = dvm_graph.optimize(proto, strict=True)
    assert_all_close(model.run(feeds), session(proto).run(None, feeds), reduction_length=64)


BLOCK = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n, 8, h, w] x, float[8, 8, 3, 3] k, float[8] b, float[8] deviation, float[24, 8, 1, 1] up,
   float[24, 1, 3, 3] d, float[2, 24, 1, 1] s, float[24, 2, 1, 1] t, float[8, 24, 1, 1] down)
=> (float[n, c, i, j] y) <float six = {6.0}, float none = {0.0}> {
    a0 = Conv<pads = [1, 1, 1, 1]>(x, k, b)
    a1 = BatchNormalization(a0, b, b, b, deviation)
    a2 = Relu(a1)
    b0 = Conv(a2, up)
    b1 = HardSwish(b0)
    b2 = Conv<group = 24, pads = [1, 1, 1, 1]>(b1, d)
    b3 = Clip(b2, none, six)
    s0 = GlobalAveragePool(b3)
    s1 = Conv(s0, s)
    s2 = Relu(s1)
    s3 = Conv(s2, t)
    s4 = HardSigmoid(s3)
    b4 = Mul(b3, s4)
    b5 = Conv(b4, down)
    c0 = Add(b5, a2)
    c1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c0)
    c2 = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(c0)
    y = Concat<axis = 1>(c1, c2)
}"""


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


@pytest.mark.parametrize("fuse", [True, False])
def test_a_block_stays_channels_last(fuse: bool) -> None:
    """Batch normalisation, activations, squeeze and excite, residual, pools and concat between."""
    proto = with_weights(BLOCK)
    model = dvm_graph.optimize(proto, strict=True, fuse=fuse)
    reference = session(proto)
    generator = np.random.default_rng(3)
    for shape in ((1, 8, 12, 12), (3, 8, 7, 21), (2, 8, 2, 2)):
        feeds = {"x": weights_of(generator, *shape)}
        assert_all_close(model.run(feeds), reference.run(None, feeds), reduction_length=512)
    computing = ("v_", "m_matmul", "d_pool", "d_depthwise")
    listed = model.listings({"n": 1, "h": 12, "w": 12})
    copies = [kernel for kernel in listed if not any(word in kernel.text for word in computing)]
    if fuse:
        assert len(copies) == 1, "only the input is transposed, by a kernel of its own"


def test_one_core_equals_two() -> None:
    proto = with_weights(BLOCK)
    feeds = {"x": weights_of(np.random.default_rng(5), 2, 8, 31, 17)}
    one, two = (dvm_graph.optimize(proto, cores=cores).run(feeds) for cores in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "window",
    [
        "Conv<group = 5, pads = [1, 1, 1, 1]>(x, k)",
        "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
    ],
)
def test_a_long_reduction_of_windows(window: str) -> None:
    """Done in pieces, for there are fewer channels than points that would keep the cores busy."""
    proto = with_weights(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 5, h, w] x, float[5, 1, 3, 3] k) => (float[n, 5, h, w] r, float[n, 5, 1, 1] s) {{
        y = {window}
        r = Tanh(y)
        s = GlobalAveragePool(r)
    }}""")
    model = dvm_graph.optimize(proto, strict=True)
    feeds = {"x": weights_of(np.random.default_rng(7), 1, 5, 131, 127)}
    listed = model.listings({"n": 1, "h": 131, "w": 127})
    windows = [kernel.text for kernel in listed if re.search("d_pool|d_depthwise", kernel.text)]
    assert any("workspace" in text for text in windows)
    assert_all_close(model.run(feeds), session(proto).run(None, feeds), reduction_length=131 * 127)


def test_sizes_of_pools_read_as_arithmetic() -> None:
    model = one_node("MaxPool", 4, 3, {"kernel_shape": [2, 3], "strides": [2, 3]})
    (_, height), (_, width) = dvm_graph.optimize(model).report().aliases
    assert height == "Max((height//2), Min(1, height))"
    assert width == "Max((width//3), Min(1, width))"


def test_norms_over_images_pass_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a channel lie across a channels-last image: separate kernels pass over it instead of one that gathers."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")  # elsewhere another size may be the one from which on
    generator = np.random.default_rng(3)
    first, last = weights_of(generator, 24, 3, 1, 1), weights_of(generator, 24, 24, 1, 1)
    scale, shift = weights_of(generator, 24), weights_of(generator, 24)
    constants = {"w": first, "scale": scale, "shift": shift, "v": last}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node("InstanceNormalization", ["a", "scale", "shift"], ["b"], name="norm"),
            helper.make_node("Relu", ["b"], ["c"]),
            helper.make_node("Conv", ["c", "v"], ["y"]),
        ],
        "g",
        [
            helper.make_tensor_value_info(
                "x", onnx.TensorProto.FLOAT, ["batch", 3, "height", "width"]
            )
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 22)])
    check(model, [(2, 3, 90, 110), (1, 3, 130, 90), (3, 3, 4, 5)], 90 * 110)
    compiled = dvm_graph.optimize(model)
    large, small = (
        "".join(map(str, compiled.listings({"batch": 1, "height": extent, "width": extent})))
        for extent in (100, 4)
    )
    assert "in place of" in large and "in place of" not in small


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pools_over_images_without_rows(op: str, stride: int) -> None:
    """Of an empty batch, where onnxruntime has no objection: as many windows as its division gives."""
    for kernel, before, after, ceil in itertools.product((1, 2, 3), (0, 1), (0, 1), (0, 1)):
        if max(before, after) >= kernel:
            continue
        model = onnx.parser.parse_model(
            f"""<ir_version: 10, opset_import: ["": 20]>
            g (float[batch, channels, width] x) => (float[?, ?, ?] y) {{
                y = {op} <kernel_shape = [{kernel}], strides = [{stride}], pads = [{before}, {after}],
                    ceil_mode = {ceil}> (x)
            }}"""
        )
        x = np.ones((0, 2, 0), np.float32)
        try:
            (expected,) = session(model).run(None, {"x": x})
        except Exception:  # of a size below 0
            continue
        (result,) = dvm_graph.optimize(model).run({"x": x})
        assert result.shape == expected.shape
