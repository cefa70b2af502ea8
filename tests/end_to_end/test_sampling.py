"""Images read at points of the run as kernels, without the vendor library, against onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session

MODES = {16: ("nearest", "bilinear", "bicubic"), 20: ("nearest", "linear", "cubic")}
PADDINGS = ("zeros", "border", "reflection")
SHAPES = (
    ((2, 3, 5, 7), (4, 6)),
    ((1, 40, 16, 4), (1, 50)),
    ((3, 1, 9, 33), (33, 1)),
    ((1, 3, 1, 8), (3, 3)),
    ((1, 3, 1, 1), (4, 4)),
    ((0, 3, 4, 4), (2, 2)),
    ((2, 3, 4, 4), (2, 0)),
    ((2, 0, 4, 4), (2, 3)),
)
"""Of images, and of their points."""


def model_of(
    operator: str,
    inputs: dict[str, list[int | str]],
    opset: int,
    dtype: type[np.generic] = np.float32,
    domain: str = "",
    **attrs: Any,
) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kinds = {name: onnx.TensorProto.INT64 if name == "batch" else element for name in inputs}
    values = [
        helper.make_tensor_value_info(name, kinds[name], dims) for name, dims in inputs.items()
    ]
    node = helper.make_node(operator, list(inputs), ["y"], domain=domain, **attrs)
    outputs = [helper.make_tensor_value_info("y", element, None)]
    graph = helper.make_graph([node], "g", values, outputs)
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def grid_sample(opset: int = 20, channels: int | str = "channels", **attrs: Any) -> onnx.ModelProto:
    inputs: dict[str, list[int | str]] = {
        "x": ["batch", channels, "height", "width"],
        "grid": ["batch", "rows", "columns", 2],
    }
    return model_of("GridSample", inputs, opset, **attrs)


def volume_sample(**attrs: Any) -> onnx.ModelProto:
    inputs: dict[str, list[int | str]] = {
        "x": ["batch", 3, "depth", "height", "width"],
        "grid": ["batch", "slices", "rows", "columns", 3],
    }
    return model_of("GridSample", inputs, 20, **attrs)


def images(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def points(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    """Some far outside, others on borders and half-way between elements."""
    random = np.random.default_rng(2)
    found = random.uniform(-2.5, 2.5, shape)
    return np.where(random.random(shape) < 0.5, found, np.round(found * 4) / 4).astype(dtype)


def check(model: onnx.ModelProto, *runs: dict[str, Array], reduction_length: int = 16) -> None:
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for feeds in runs:
        expected = reference.run(None, feeds)
        assert_all_close(mine.run(feeds), expected, reduction_length=reduction_length)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(
    ("opset", "mode"), [(opset, mode) for opset, modes in MODES.items() for mode in modes]
)
def test_grid_sample(opset: int, mode: str, padding: str, corners: int) -> None:
    model = grid_sample(opset, mode=mode, padding_mode=padding, align_corners=corners)
    feeds = [
        {"x": images(shape), "grid": points((shape[0], *places, 2))} for shape, places in SHAPES
    ]
    check(model, *feeds)


@pytest.mark.parametrize("channels", [1, 3, 32])
@pytest.mark.parametrize("mode", MODES[20])
def test_known_channels(channels: int, mode: str) -> None:
    """By their number, elements or rows of them are read."""
    model = grid_sample(channels=channels, mode=mode)
    feeds = {"x": images((2, channels, 12, 9)), "grid": points((2, 20, 30, 2))}
    check(model, feeds)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_volumes(mode: str, padding: str, corners: int, dtype: type[np.generic]) -> None:
    model = volume_sample(dtype=dtype, mode=mode, padding_mode=padding, align_corners=corners)
    feeds = {"x": images((2, 3, 4, 5, 6), dtype), "grid": points((2, 3, 4, 2, 3), dtype)}
    check(model, feeds)


@pytest.mark.parametrize("mode", MODES[20])
def test_of_doubles(mode: str) -> None:
    model = grid_sample(dtype=np.float64, mode=mode)
    check(model, {"x": images((2, 3, 5, 7), np.float64), "grid": points((2, 4, 6, 2), np.float64)})


def test_of_halves() -> None:
    """Which onnxruntime doesn't have: images and points are those of the float32 that they are."""
    x, grid = images((2, 3, 5, 7), np.float16), points((2, 4, 6, 2), np.float16)
    wide = {"x": x.astype(np.float32), "grid": grid.astype(np.float32)}
    expected = session(grid_sample()).run(None, wide)
    model = dvm_graph.optimize(grid_sample(dtype=np.float16), strict=True)
    assert_all_close(model.run({"x": x, "grid": grid}), [expected[0].astype(np.float16)])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_grid_sample_of_onnxruntime(mode: str) -> None:
    model = grid_sample(domain="com.microsoft", mode=mode)
    check(model, {"x": images((2, 3, 5, 7)), "grid": points((2, 4, 6, 2))})


FAR = (np.nan, np.inf, -np.inf, 1e30, -1e30, 4e18, -4e18, 1e18, 1e10, -1e10, 1e5, -1e5, 0.3)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", MODES[20])
def test_points_that_are_far_or_nowhere(mode: str, padding: str, corners: int) -> None:
    model = grid_sample(mode=mode, padding_mode=padding, align_corners=corners)
    pairs = list(itertools.product(FAR, FAR))
    grid = np.array(pairs, np.float32).reshape(1, len(FAR), len(FAR), 2)
    check(model, {"x": images((1, 3, 4, 5)), "grid": grid})


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("mode", MODES[20])
def test_images_that_are_not_finite(mode: str, padding: str) -> None:
    """What lies outside is 0 whatever its neighbours are, and a share of 0 of infinity is NaN."""
    model = grid_sample(mode=mode, padding_mode=padding)
    x = images((1, 3, 4, 5))
    x[0, 0, 0, 0], x[0, 1, 2, 2], x[0, 2, 3, 4] = np.inf, np.nan, -np.inf
    check(model, {"x": x, "grid": points((1, 12, 12, 2))})


def test_other_points_than_images() -> None:
    model = dvm_graph.optimize(grid_sample(), strict=True)
    with pytest.raises(dvm_graph.DvmError):
        model.run({"x": images((2, 3, 4, 4)), "grid": points((3, 2, 2, 2))})


@pytest.mark.parametrize("padding", PADDINGS)
def test_images_without_elements(padding: str) -> None:
    """There is nothing to read, as in onnxruntime."""
    model = dvm_graph.optimize(grid_sample(padding_mode=padding), strict=True)
    with pytest.raises(dvm_graph.DvmError, match="out of range"):
        model.run({"x": images((1, 3, 0, 4)), "grid": points((1, 2, 2, 2))})


def test_copied_once() -> None:
    """Images whose channels go last are stored so for all that is read of them together."""
    report = dvm_graph.optimize(grid_sample(channels=32), strict=True).report()
    # The images, the row of zeros behind them, and the points.
    assert str(report).count("(stage 0, vector)") == 3


# -- points that matrices make


def affine_grid(
    size: list[int], corners: int, dtype: type[np.generic] = np.float32
) -> onnx.ModelProto:
    count = len(size) - 2
    inputs: dict[str, list[int | str]] = {"theta": ["batch", count, count + 1]}
    model = model_of("AffineGrid", inputs, 20, dtype, align_corners=corners)
    model.graph.node[0].input.append("size")
    model.graph.initializer.append(numpy_helper.from_array(np.array(size), "size"))
    return model


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize(
    "size", [[2, 3, 4, 5], [1, 1, 1, 3], [1, 1, 2, 1], [1, 3, 4, 5, 6], [2, 1, 1, 1, 1]]
)
def test_affine_grid(size: list[int], corners: int) -> None:
    count = len(size) - 2
    check(affine_grid(size, corners), {"theta": images((size[0], count, count + 1))})


@pytest.mark.parametrize("corners", [0, 1])
def test_affine_grid_of_doubles(corners: int) -> None:
    """Which onnxruntime spreads in float32."""
    size = [2, 3, 4, 5]
    theta = images((2, 2, 3), np.float64)
    ends = [1 if corners else 1 - 1 / extent for extent in size[2:]]
    rows, columns = (np.linspace(-end, end, n) for end, n in zip(ends, size[2:], strict=True))
    y, x = np.meshgrid(rows, columns, indexing="ij")
    places = np.stack((x, y, np.ones_like(x)), axis=-1)
    expected = np.einsum("njk,hwk->nhwj", theta, places)
    mine = dvm_graph.optimize(affine_grid(size, corners, np.float64), strict=True)
    assert_all_close(mine.run({"theta": theta}), [expected], reduction_length=4)


@pytest.mark.parametrize("size", [[2, 3, 4, 5], [1, 3, 4, 5, 6]])
def test_affine_grid_of_matrices_of_any_shape(size: list[int]) -> None:
    """What their extents have to be only the operator says."""
    count, model = len(size) - 2, affine_grid(size, 0)
    for at, dim in enumerate(model.graph.input[0].type.tensor_type.shape.dim):
        dim.dim_param = f"d{at}"
    check(model, {"theta": images((size[0], count, count + 1))})


def test_affine_grid_of_dims() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        g (float[n, c, h, w] x, float[n, 2, 3] theta) => (float[n, c, h, w] y)
        { size = Shape(x) grid = AffineGrid(theta, size) y = GridSample(x, grid) }"""
    )
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for shape in ((2, 3, 5, 7), (1, 20, 8, 8), (3, 1, 1, 1)):
        feeds = {"x": images(shape), "theta": points((shape[0], 2, 3)) / 4}
        expected = reference.run(None, feeds)
        # A place is off by units in the last place of the extent.
        assert_all_close(mine.run(feeds), expected, reduction_length=shape[2] * shape[3])


# -- regions


def roi_align(
    opset: int,
    dtype: type[np.generic] = np.float32,
    corners: int | str = 4,
    count: str = "count",
    **attrs: Any,
) -> onnx.ModelProto:
    inputs: dict[str, list[int | str]] = {
        "x": ["images", "channels", "height", "width"],
        "regions": ["count", corners],
        "batch": [count],
    }
    sizes = {"output_height": 3, "output_width": 5}
    return model_of("RoiAlign", inputs, opset, dtype, **{**sizes, **attrs})


def regions(
    shape: tuple[int, ...], count: int, scale: float, dtype: type[np.generic] = np.float32
) -> dict[str, Array]:
    """Regions inside and outside of images, some of them turned inside out."""
    random = np.random.default_rng(3)
    first = random.uniform(-3, shape[3] + 1, (count, 2))
    last = first + random.uniform(-1, shape[3], (count, 2))
    boxes = (np.concatenate([first, last], 1) / scale).astype(dtype)
    return {
        "x": images(shape, dtype),
        "regions": boxes,
        "batch": random.integers(0, max(shape[0], 1), count),
    }


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [1, 2, 3])
@pytest.mark.parametrize(
    ("opset", "attrs"),
    [
        (10, {}),
        (16, {}),
        (16, {"coordinate_transformation_mode": "output_half_pixel"}),
    ],
    ids=str,
)
def test_roi_align(
    opset: int, attrs: dict[str, Any], ratio: int, mode: str, dtype: type[np.generic]
) -> None:
    scale = 0.25
    model = roi_align(opset, dtype, mode=mode, sampling_ratio=ratio, spatial_scale=scale, **attrs)
    runs = [
        regions(shape, count, scale, dtype)
        for shape, count in (((2, 3, 9, 7), 11), ((1, 40, 16, 16), 3), ((3, 2, 1, 1), 2))
    ]
    check(model, *runs, regions((2, 3, 9, 7), 0, scale, dtype))


@pytest.mark.parametrize("channels", [16, 256])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_is_one_pass(mode: str, channels: int) -> None:
    """What points read is joined where it is read: nothing as large as all samples is in memory."""
    model = roi_align(16, np.float32, mode=mode, sampling_ratio=2, spatial_scale=0.5)
    feeds = regions((2, channels, 20, 20), 40, 0.5)
    check(model, feeds)
    listing = dvm_graph.optimize(model).disassemble(feeds)
    assert "operator by operator" not in listing
    assert listing.count("d_gather") == 4


def test_regions_of_which_the_model_says_little() -> None:
    model = roi_align(16, corners="corners", count="numbers", sampling_ratio=2)
    check(model, regions((2, 3, 9, 7), 4, 1.0))


@pytest.mark.parametrize("opset", [10, 16])
def test_regions_of_images_that_are_not_finite(opset: int) -> None:
    """What lies too far outside has a share of 0 of the first element, which is NaN of an infinite one."""
    model = roi_align(opset, sampling_ratio=2, spatial_scale=0.25)
    feeds = regions((2, 3, 9, 7), 40, 0.25)
    x = feeds["x"]
    x[0, 0, 0, 0], x[0, 1, 0, 3], x[1, 2, 8, 6], x[1, 0, 4, 0] = np.inf, np.nan, -np.inf, np.inf
    check(model, feeds)


@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf])
def test_regions_that_are_not_finite(corner: float) -> None:
    """Which onnxruntime refuses: they lie outside."""
    feeds = regions((2, 3, 9, 7), 4, 1.0)
    feeds["regions"][1] = corner
    model = roi_align(16, sampling_ratio=2)
    (y,) = dvm_graph.optimize(model, strict=True).run(feeds)
    np.testing.assert_array_equal(y[1], 0)
    feeds["regions"][1] = 0
    (expected,) = session(model).run(None, feeds)
    assert_all_close([y[[0, 2, 3]]], [expected[[0, 2, 3]]], reduction_length=16)


@pytest.mark.parametrize("number", [-1, 2])
def test_regions_of_no_image(number: int) -> None:
    model = dvm_graph.optimize(roi_align(16, sampling_ratio=2), strict=True)
    feeds = regions((2, 3, 9, 7), 4, 1.0)
    feeds["batch"][2] = number
    with pytest.raises(dvm_graph.DvmError, match="out of range"):
        model.run(feeds)


def test_samples_by_the_size_of_regions() -> None:
    """The vendor library has as many as it takes."""
    model = roi_align(16, sampling_ratio=0)
    with pytest.raises(dvm_graph.StrictError):
        dvm_graph.optimize(model, strict=True)
    feeds = regions((2, 3, 9, 7), 4, 1.0)
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, reduction_length=64)
