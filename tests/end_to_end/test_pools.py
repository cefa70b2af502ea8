"""Pools as kernels, and the places of their maxima, against onnxruntime."""

from __future__ import annotations

import itertools
import random

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from dvm_graph import _core
from dvm_graph.options import Options
from dvm_graph.pipeline import stage_text
from tests.end_to_end.reference import session
from tests.end_to_end.windows import (
    attributes,
    check,
    drawn_axis,
    one_node,
    with_weights,
)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("seed", range(30))
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
@pytest.mark.parametrize("seed", range(20))
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


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(5, 1, 1), (3, 2, 1), (3, 1, 4)])
def test_vectors_of_neighbouring_windows(
    op: str, channels: int, kernel: int, stride: int, dilation: int
) -> None:
    """Rows of some vectors, of which those at the ends lie at the borders, and of no whole vector."""
    pad = kernel // 2
    attrs = {
        "kernel_shape": [3, kernel],
        "strides": [1, stride],
        "dilations": [1, dilation],
        "pads": [1, pad, 1, pad],
    }
    widths = (9, 16, 33, 64, 100, 161, 300)
    check(one_node(op, 4, channels, attrs), [(2, channels, 4, width) for width in widths], terms=15)


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


def test_sizes_of_pools_read_as_arithmetic() -> None:
    model = one_node("MaxPool", 4, 3, {"kernel_shape": [2, 3], "strides": [2, 3]})
    (_, height), (_, width) = dvm_graph.optimize(model).report().aliases
    assert height == "Max((height//2), Min(1, height))"
    assert width == "Max((width//3), Min(1, width))"


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


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("channels", "stride"), [(3, 1), (8, 2)])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_planes_are_pooled_as_they_lie(op: str, channels: int, stride: int, rank: int) -> None:
    """Nothing is turned over where an image of few channels does not come from a convolution."""
    strides = [stride if rank > 3 else stride * stride] * (rank - 2)
    attrs = {"kernel_shape": [3] * (rank - 2), "strides": strides}
    model = one_node(op, rank, channels, attrs)
    assert "transpose" not in stage_text(model, Options(), "eliminate_dead")
    check(model, [(2, channels, *(7, 19, 33)[5 - rank :])], terms=27)


def test_images_of_convolutions_are_pooled_channels_last() -> None:
    """Nothing is turned over between the convolutions either."""
    model = with_weights(
        '<ir_version: 8, opset_import: ["" : 18]>'
        "g (float[n, 3, h, w] x, float[8, 3, 3, 3] a, float[8] b, float[4, 8, 1, 1] c) => (float[n, 4, p, q] y)"
        "{ t = Conv (x, a, b) u = Relu (t) v = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (u) y = Conv (v, c) }"
    )
    text = stage_text(model, Options(), "eliminate_dead")
    assert text.count(" transpose") <= 2  # the image, and the result
    check(model, [(1, 3, 12, 17)], terms=27)


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_the_greatest_of_planes_is_nan_where_any_is(kernel: int, stride: int, simd: str) -> None:
    """Rows of less than a vector, of a part more and of some, at whose ends NaN lies, too."""
    pad = kernel // 2
    attrs = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    model = dvm_graph.optimize(one_node("MaxPool", 4, 3, attrs), simd=simd)
    rng = np.random.default_rng(kernel)
    for height, width in ((5, 5), (19, 19), (9, 37), (6, 90)):
        for some in (0, 1, 6):
            x = rng.standard_normal((2, 3, height, width)).astype(np.float32)
            x.reshape(-1)[rng.integers(0, x.size, some)] = np.nan
            x[0, 0, 1, 0] = x[0, 1, 2, -1] = np.nan if some else -np.inf
            room = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
            windows = np.lib.stride_tricks.sliding_window_view(room, (kernel, kernel), (2, 3))
            expected = windows[:, :, ::stride, ::stride].max(axis=(4, 5))
            np.testing.assert_array_equal(model.run({"x": x})[0], expected)
