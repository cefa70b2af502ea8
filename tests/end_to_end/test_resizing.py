"""Resized images as kernels, without the vendor library, against onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import Array, assert_all_close, session

TRANSFORMS = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
OF_NEAREST = (*TRANSFORMS, "tf_half_pixel_for_nn")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SCALES = ((2.0, 2.0), (3.0, 1.0), (0.5, 0.25), (1.75, 2.5), (4.0, 0.625))
SHAPES = ((2, 3, 5, 7), (1, 3, 16, 4), (3, 3, 8, 33))


FEW_AND_MANY = (3, 9, 17)
"""Channels: images of few are read by rows, others pixel by pixel, those between as they lie."""


def model_of(
    scales: tuple[float, ...] | None,
    dtype: type[np.generic] = np.float32,
    channels: int = 3,
    **attrs: Any,
) -> onnx.ModelProto:
    """Resizes rows and columns by constant scales, or to those of another input."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info("x", element, ["batch", channels, "height", "width"])]
    nodes, initializers = [], []
    if scales is None:
        like = helper.make_tensor_value_info(
            "like", element, ["batch", channels, "rows", "columns"]
        )
        inputs.append(like)
        nodes.append(helper.make_node("Shape", ["like"], ["sizes"]))
        operands = ["x", "", "", "sizes"]
    else:
        factors = np.array((1, 1, *scales), np.float32)
        initializers.append(numpy_helper.from_array(factors, "scales"))
        operands = ["x", "", "scales"]
    nodes.append(helper.make_node("Resize", operands, ["y"], name="resize", **attrs))
    outputs = [helper.make_tensor_value_info("y", element, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 19)])


def images(shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> Array:
    return (np.random.default_rng(1).integers(-99, 99, shape) / 8).astype(dtype)


def check(model: onnx.ModelProto, sizes: tuple[tuple[int, int], ...] = ()) -> None:
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    kind = model.graph.input[0].type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type).type
    for (batch, _, *spatial), size in itertools.zip_longest(SHAPES, sizes):
        shape = (batch, kind.shape.dim[1].dim_value, *spatial)
        feeds = {"x": images(shape, dtype)}
        if size is not None:
            feeds["like"] = images((*shape[:2], *size), dtype)
        assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=4)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("channels", FEW_AND_MANY)
def test_linear(transform: str, scales: tuple[float, ...], channels: int) -> None:
    check(
        model_of(scales, channels=channels, mode="linear", coordinate_transformation_mode=transform)
    )


@pytest.mark.parametrize("transform", OF_NEAREST)
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("channels", FEW_AND_MANY)
def test_nearest(transform: str, rounding: str, scales: tuple[float, ...], channels: int) -> None:
    attrs = {"coordinate_transformation_mode": transform, "nearest_mode": rounding}
    check(model_of(scales, channels=channels, **attrs))


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("attrs", [{}, {"exclude_outside": 1, "cubic_coeff_a": -0.5}], ids=str)
def test_cubic(transform: str, scales: tuple[float, ...], attrs: dict[str, Any]) -> None:
    check(model_of(scales, mode="cubic", coordinate_transformation_mode=transform, **attrs))


@pytest.mark.parametrize(
    ("mode", "transform"),
    [
        *itertools.product(["nearest", "linear", "cubic"], TRANSFORMS),
        ("nearest", "tf_half_pixel_for_nn"),
    ],
)
@pytest.mark.parametrize("channels", FEW_AND_MANY)
def test_sizes_known_at_run_time(mode: str, transform: str, channels: int) -> None:
    attrs = {"mode": mode, "coordinate_transformation_mode": transform}
    check(model_of(None, channels=channels, **attrs), sizes=((10, 14), (16, 4), (1, 1)))


@pytest.mark.parametrize("transform", OF_NEAREST)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_axes_may_stay_as_long_at_sizes_of_a_run(transform: str, rounding: str) -> None:
    attrs = {"coordinate_transformation_mode": transform, "nearest_mode": rounding}
    check(model_of(None, **attrs), sizes=((5, 7), (16, 8), (9, 33)))


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.uint8])
def test_nearest_of_other_types(dtype: type[np.generic]) -> None:
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    for scales in ((2.0, 2.0), (1.5, 0.5)):
        check(model_of(scales, dtype, **attrs))


def test_listed_axes() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 19]>
        g (float[n, 3, h, w] x) => (float[n, 3, h2, w2] y) <float[2] s = {2.0, 3.0}>
        { y = Resize<axes = [3, -2], mode = "linear">(x, , s) }"""
    )
    check(model)


def test_rows() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 19]>
        g (float[n, 3, w] x) => (float[n, 3, w2] y) <float[3] s = {1.0, 1.0, 2.5}>
        { y = Resize<mode = "linear">(x, , s) }"""
    )
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for shape in ((2, 3, 7), (1, 3, 1), (4, 3, 64)):
        feeds = {"x": images(shape)}
        assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=2)


def test_infinite_ends() -> None:
    """Where there is nothing behind the last element, nothing is added to it."""
    model = model_of((2.0, 2.0), mode="linear")
    x = np.ones((1, 3, 4, 4), np.float32)
    x[..., 3, 3] = np.inf
    expected = session(model).run(None, {"x": x})
    assert_all_close(dvm_graph.optimize(model, strict=True).run({"x": x}), expected)


KEEPING = (
    *((1.125, 2.0), (1.125, 1.125), (1.125, 1.0), (1.25, 1.25), (1.5, 1.5), (0.75, 1.125)),
    *((1.125, 1.5), (1.1, 1.75)),
)
"""By some of these scales an axis, or both, of few elements is as long as before."""


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("scales", KEEPING)
@pytest.mark.parametrize("known", [False, True])
def test_axes_that_stay_as_long(mode: str, scales: tuple[float, ...], known: bool) -> None:
    """They are sampled by their scale all the same, but where all of them stay so."""
    for shape in ((2, 3, 5, 7), (2, 3, 1, 1), (2, 3, 9, 3), (1, 3, 2, 3), (2, 3, 5, 1)):
        model = model_of(scales, mode=mode)
        if known:
            dims = model.graph.input[0].type.tensor_type.shape.dim
            for dim, extent in zip(dims, shape, strict=True):
                dim.dim_value = extent
        x = images(shape)
        expected = session(model).run(None, {"x": x})
        assert_all_close(dvm_graph.optimize(model).run({"x": x}), expected, reduction_length=16)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(1.125, 1.125), (1.125, 1.5), (1.5, 1.125)])
@pytest.mark.parametrize("known", [2, 3])
def test_axes_of_which_one_is_known_to_stay_as_long(
    mode: str, scales: tuple[float, ...], known: int
) -> None:
    for shape in ((1, 3, 5, 7), (1, 3, 5, 1), (1, 3, 1, 5)):
        model = model_of(scales, mode=mode)
        model.graph.input[0].type.tensor_type.shape.dim[known].dim_value = shape[known]
        x = images(shape)
        expected = session(model).run(None, {"x": x})
        assert_all_close(dvm_graph.optimize(model, strict=True).run({"x": x}), expected, 16)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_axes_that_stay_as_long_by_scales_that_are_fed(mode: str, transform: str) -> None:
    model = resized(
        *("Resize", 18, (1, 2, "h", "w"), np.ones(2, np.float32)),
        **{"axes": [3, 2], "mode": mode, "coordinate_transformation_mode": transform},
    )
    del model.graph.initializer[:]
    info = helper.make_tensor_value_info("by", onnx.TensorProto.FLOAT, [2])
    model.graph.input.append(info)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for scales in ((1.125, 1.1), (1.125, 1.5), (1.0, 1.125)):
        for shape in ((1, 2, 5, 7), (1, 2, 1, 5), (1, 2, 9, 3)):
            feeds = {"x": images(shape), "by": np.array(scales, np.float32)}
            expected = reference.run(None, feeds)
            assert_all_close(mine.run(feeds), expected, reduction_length=4)


@pytest.mark.parametrize("scales", [(2.0, 3.0), (1.0, 3.0)])
@pytest.mark.parametrize("outside", [0, 1])
def test_cubic_neighbours_of_infinity(scales: tuple[float, ...], outside: int) -> None:
    """They have a share of 0 in elements of an axis that does not change."""
    model = model_of(scales, mode="cubic", exclude_outside=outside)
    x = images((2, 3, 11, 13))
    x[0, 0, 4, 5], x[1, 1, 0, 0], x[1, 2, 10, 12] = np.inf, np.nan, -np.inf
    expected = session(model).run(None, {"x": x})
    mine = dvm_graph.optimize(model, strict=True).run({"x": x})
    assert_all_close(mine, expected, reduction_length=16)


@pytest.mark.parametrize(
    "attrs",
    [
        {"mode": "cubic", "antialias": 1},
        {"mode": "linear", "antialias": 1},
        {"coordinate_transformation_mode": "half_pixel_symmetric"},
    ],
    ids=str,
)
def test_left_to_the_vendor_library(attrs: dict[str, Any]) -> None:
    model = model_of((0.5, 0.5), **attrs)
    with pytest.raises(dvm_graph.StrictError):
        dvm_graph.optimize(model, strict=True)
    feeds = {"x": images(SHAPES[0])}
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, reduction_length=64)


def old_model(
    operator: str, opset: int, scales: tuple[float, ...], dtype: type[np.generic], mode: str
) -> onnx.ModelProto:
    """Upsample, and the Resize of opset 10; scales are an attribute at first."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    factors = np.array((1, 1, *scales), np.float32)
    attrs: dict[str, Any] = {"scales": factors.tolist()} if opset < 9 else {}
    operands = ["x"] if attrs else ["x", "scales"]
    graph = helper.make_graph(
        [helper.make_node(operator, operands, ["y"], mode=mode, **attrs)],
        "g",
        [helper.make_tensor_value_info("x", element, ["batch", 3, "height", "width"])],
        [helper.make_tensor_value_info("y", element, None)],
        [] if attrs else [numpy_helper.from_array(factors, "scales")],
    )
    return helper.make_model(graph, ir_version=4, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize(("operator", "opset"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (3.0, 1.0), (1.5, 2.25), (1.0, 1.0)])
def test_old_forms(operator: str, opset: int, mode: str, scales: tuple[float, ...]) -> None:
    check(old_model(operator, opset, scales, np.float32, mode))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(0.5, 0.75), (0.5, 2.0), (0.3125, 0.625)])
def test_old_forms_that_shrink(mode: str, scales: tuple[float, ...]) -> None:
    """The nearest elements are those behind, then."""
    check(old_model("Resize", 10, scales, np.float32, mode))


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint8])
def test_old_forms_of_other_types(dtype: type[np.generic]) -> None:
    check(old_model("Upsample", 9, (2.0, 1.5), dtype, "nearest"))


def test_an_old_form_that_may_leave_axes_as_long() -> None:
    """Which scales do not tell."""
    check(old_model("Upsample", 7, (1.125, 1.0), np.float32, "nearest"))


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), 1e30, -1.0, 0.0])
def test_malformed_scales(scale: float) -> None:
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(model_of((scale, 1.0))).run({"x": images(SHAPES[0])})


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_halves_are_means_of_neighbours(dtype: type[np.generic], simd: str) -> None:
    """Whose last row and column are left out, where there is an odd number."""
    draw = np.random.default_rng(11)
    for channels, (h, w) in itertools.product((1, 3, 16, 40), ((2, 2), (9, 34), (17, 5), (40, 41))):
        proto = model_of((0.5, 0.5), dtype, channels, mode="linear")
        model = dvm_graph.optimize(proto, simd=simd)
        x = draw.normal(size=(2, channels, h, w)).astype(dtype)
        x[:, :, -1:, -1:] = np.nan
        whole = x[:, :, : h // 2 * 2, : w // 2 * 2].astype(np.float64)
        expected = whole.reshape(2, channels, h // 2, 2, w // 2, 2).mean((3, 5))
        assert_all_close(model.run({"x": x}), [expected.astype(dtype)], reduction_length=4)
        assert "pool_sum" in model.disassemble({"x": x})


def resized(
    op: str,
    opset: int,
    shape: tuple[int | str, ...],
    scales: Array | None,
    sizes: tuple[int, ...] = (),
    **attrs: Any,
) -> onnx.ModelProto:
    """By constants."""
    operands = (
        ["x", "by"]
        if opset < 11
        else ["x", "", "by"]
        if scales is not None
        else ["x", "", "", "by"]
    )
    by = np.array(sizes, np.int64) if scales is None else scales
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(op, operands, ["y"], **attrs)],
        "g",
        [info("x", onnx.TensorProto.FLOAT, shape)],
        [info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(by, "by")],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize("op, opset", [("Upsample", 9), ("Resize", 10), ("Resize", 18)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("shape", [(1, 1, 5, 4), (1, 1, "h", "w")])
def test_sizes_are_products_in_float32(
    op: str, opset: int, mode: str, shape: tuple[int | str, ...]
) -> None:
    """5 by the number next to 1.8 is 9 in float32, and less than 9 otherwise."""
    for extents in ((9, 8), (7, 9), (8, 5)):
        scales = np.divide((1, 1, *extents), (1, 1, 5, 4), dtype=np.float32)
        model = resized(op, opset, shape, scales, mode=mode)
        feeds = {"x": images((1, 1, 5, 4))}
        got = dvm_graph.optimize(model, strict=True).run(feeds)
        assert_all_close(got, session(model).run(None, feeds), reduction_length=4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_sizes_of_images_that_onnxruntime_resizes(mode: str) -> None:
    """onnx's inference has 8 for 9."""
    scales = np.divide((1, 1, 9, 8), (1, 1, 5, 4), dtype=np.float32)
    model = resized("Resize", 18, (1, 1, 5, 4), scales, mode=mode, antialias=1)
    feeds = {"x": images((1, 1, 5, 4))}
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


OF_ANY_AXES = (
    ((3,), (7,)),
    ((4, 5), (3, 9)),
    ((6, 5, 3), (3, 10, 3)),
    ((2, 3, 4), (4, 6, 4)),
    ((2, 5, 6, 3), (2, 10, 9, 3)),
    ((2, 2, 3, 3), (4, 3, 6, 5)),
    ((2, 2, 2, 2, 2, 2), (2, 4, 2, 2, 3, 2)),
)


@pytest.mark.parametrize("shape, sizes", OF_ANY_AXES)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("by_scales", [False, True])
def test_nearest_along_any_axes(
    shape: tuple[int, ...], sizes: tuple[int, ...], transform: str, by_scales: bool
) -> None:
    scales = np.divide(sizes, shape, dtype=np.float32) if by_scales else None
    for rounding, first in itertools.product(ROUNDINGS, (shape[0], "batch")):
        attrs = {"coordinate_transformation_mode": transform, "nearest_mode": rounding}
        model = resized("Resize", 18, (first, *shape[1:]), scales, sizes, **attrs)
        feeds = {"x": images(shape)}
        got = dvm_graph.optimize(model, strict=True).run(feeds)
        assert_all_close(got, session(model).run(None, feeds))


@pytest.mark.parametrize("sizes", [(2, 10, 9, 5), (2, 3, 12, 5), (2, 5, 7, 5)])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_linear_of_channels_last(sizes: tuple[int, ...], transform: str) -> None:
    attrs = {"coordinate_transformation_mode": transform, "mode": "linear"}
    model = resized("Resize", 18, ("batch", 5, "w", 5), None, sizes, **attrs)
    feeds = {"x": images((2, 5, 6, 5))}
    got = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(got, session(model).run(None, feeds), reduction_length=4)


PARTS = (
    (0.0, 0.0, 1.0, 1.0),
    (0.25, -0.25, 0.75, 1.25),
    (0.9, 0.1, 0.1, 0.35),
    (0.5, 0.5, 0.5, 0.5),
)
"""Where rows and columns begin and end: all of an image, beyond it, backwards, and a point."""


def parts_model(mode: str, rounding: str, by: str, constant: bool) -> onnx.ModelProto:
    """Parts of images, which a run gives or the model has, by constant scales or to the extents of another input."""
    resized = model_of((1.5, 2.0) if by == "scales" else None, mode=mode, nearest_mode=rounding)
    (node,) = (node for node in resized.graph.node if node.op_type == "Resize")
    node.input[1] = "roi"
    more = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": -1.5}
    node.attribute.extend(helper.make_attribute(*pair) for pair in more.items())
    if constant:
        resized.graph.initializer.append(numpy_helper.from_array(roi(PARTS[1]), "roi"))
    else:
        count = 8 if by == "sizes" else "nobody says how many"
        given = helper.make_tensor_value_info("roi", onnx.TensorProto.FLOAT, [count])
        resized.graph.input.append(given)
    return resized


def roi(part: tuple[float, ...]) -> Array:
    return np.array((0, 0, *part[:2], 1, 1, *part[2:]), np.float32)


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize(
    ("mode", "rounding"),
    [("linear", "floor"), ("cubic", "floor"), *(("nearest", r) for r in ROUNDINGS)],
)
def test_parts_of_images(mode: str, rounding: str, by: str, constant: bool) -> None:
    """With sizes of axes that stay, of single elements, and of an image that stays as a whole."""
    model = parts_model(mode, rounding, by, constant)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for (batch, channels, *spatial), part in itertools.product(SHAPES, PARTS):
        x = images((batch, channels, *spatial))
        feeds = {"x": x} if constant else {"x": x, "roi": roi(part)}
        for size in ((1, 1), (3, 9), tuple(spatial), (spatial[0], 2)) if by == "sizes" else ((),):
            if size:
                feeds["like"] = images((batch, channels, *size))
            assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=4)


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
def test_parts_that_lie_nowhere(mode: str) -> None:
    """No element is read that is not there."""
    mine = dvm_graph.optimize(parts_model(mode, "floor", "scales", constant=False), strict=True)
    for number in (np.nan, np.inf, -np.inf, 3e38):
        (y,) = mine.run({"x": images((1, 3, 5, 7)), "roi": roi((number, 0.1, 1.0, number))})
        assert y.shape == (1, 3, 7, 14)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("steps", [-40, -6, -2, 0, 2, 4, 6, 40])
def test_positions_that_are_about_amid(rounding: str, steps: int) -> None:
    """Between two elements, but for what float32 cannot tell: onnxruntime takes less than a millionth for nothing."""
    scale = np.float32(2 / 3)
    for _ in range(abs(steps)):
        scale = np.nextafter(scale, np.float32(np.sign(steps)))
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rounding}
    check(model_of((float(scale), 2.0), **attrs))
