"""Operators over images: convolutions, pools, resizing, sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.operands import INT8S, along, groups, maybe, places_of, scales
from tests.fuzz.registry import WINDOW, recipe, types


def image(g: Growth, op: str, low: int = 3, high: int = 5, channels: bool = False) -> Value:
    x = g.ranked(types(op, g.opset), low, g.choose((4, 4, 4, high)))
    if channels and not x.fixed(1):
        raise RefusedError
    return x


def window(g: Growth, x: Value, dilate: bool = True, kernel: int = 3) -> dict[str, Any]:
    """Attributes of a window over the spatial axes of `x`."""
    n = x.rank - 2
    attributes: dict[str, Any] = {"kernel_shape": [g.rng.randint(1, kernel) for _ in range(n)]}
    if g.chance(0.4):
        attributes["strides"] = [g.choose((1, 1, 2, 2, 3, 5)) for _ in range(n)]
    if dilate and g.chance(0.25):
        attributes["dilations"] = [g.choose((1, 2)) for _ in range(n)]
    way = g.rng.random()
    if way < 0.45:
        attributes["pads"] = [
            g.rng.randint(0, max(0, k - 1)) for k in attributes["kernel_shape"] * 2
        ]
    elif way < 0.65:
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return attributes


@recipe("Conv", kind=WINDOW, weight=5)
def conv(g: Growth, op: str = "Conv") -> Value:
    x = image(g, op, channels=True)
    channels = x.at(1)[0]
    group = g.choose([f for f in range(1, channels + 1) if channels % f == 0] or [1])
    group = g.choose((1, group, channels or 1))
    out = group * g.choose((1, 2, 3, channels // group or 1))
    attributes = window(g, x)
    kernel = attributes["kernel_shape"]
    if g.chance(0.3):
        del attributes["kernel_shape"]
    w = g.fresh(x.dtype, [(out, channels // group, *kernel)] * g.breadth)
    b = maybe(g, lambda: g.fresh(x.dtype, [(out,)] * g.breadth))
    return g.emit(op, [x, w, b], {**attributes, "group": group})


@recipe("ConvTranspose", kind=WINDOW, weight=2)
def conv_transpose(g: Growth) -> Value:
    x = image(g, "ConvTranspose", channels=True)
    channels = x.at(1)[0]
    group = g.choose((1, 1, channels or 1))
    out = g.choose((1, 2, 3))
    attributes = window(g, x, kernel=5)
    n = x.rank - 2
    if g.chance(0.2):
        attributes["output_padding"] = [g.choose((0, 1)) for _ in range(n)]
    if g.chance(0.2) and all(x.fixed(axis) for axis in range(2, x.rank)):
        attributes["output_shape"] = [
            max(1, stride * (x.at(2 + axis)[0] - 1) + g.choose((1, 2, 3)))
            for axis, stride in enumerate(attributes.get("strides", [1] * n))
        ]
    w = g.fresh(x.dtype, [(channels, out, *attributes["kernel_shape"])] * g.breadth)
    b = maybe(g, lambda: g.fresh(x.dtype, [(out * group,)] * g.breadth))
    return g.emit("ConvTranspose", [x, w, b], {**attributes, "group": group})


@recipe("ConvInteger", kind=WINDOW)
def conv_integer(g: Growth) -> Value:
    x = image(g, "ConvInteger", 4, 4, channels=True)
    attributes = window(g, x)
    group, channels = groups(g, x.at(1)[0])
    w = g.fresh(g.choose(INT8S), [(2 * group, channels, *attributes["kernel_shape"])] * g.breadth)
    zero = maybe(g, lambda: g.fresh(x.dtype, [()] * g.breadth))
    other = maybe(g, lambda: g.fresh(w.dtype, [()] * g.breadth), 0.3)
    return g.emit("ConvInteger", [x, w, zero, other], {**attributes, "group": group})


@recipe("AveragePool", "MaxPool", "LpPool", kind=WINDOW, weight=3)
def pool(g: Growth, op: str) -> Value:
    x = image(g, op)
    attributes = window(g, x)
    attributes |= {
        "ceil_mode": g.choose((None, None, 0, 1)),
        "count_include_pad": g.choose((None, 0, 1)),
        "p": g.choose((None, 1, 2, 3)),
        "storage_order": g.choose((None, 0, 1)) if g.chance(0.2) else None,
    }
    outputs = 2 if op == "MaxPool" and g.chance(0.2) else 1
    return g.emit(op, [x], attributes, outputs=outputs)


@recipe("MaxUnpool", kind=WINDOW, weight=0.7)
def max_unpool(g: Growth) -> Value:
    x = g.ranked((1,), 3, g.choose((4, 4, 5)))
    n = x.rank - 2
    if not x.known or any(0 in shape for shape in x.shapes):
        raise RefusedError  # there is no place for an index
    attributes = {"kernel_shape": [g.choose((2, 3))] * n, "strides": [g.choose((1, 2))] * n}
    ends = tuple(math.prod(shape) for shape in x.shapes)  # results are no smaller
    where = Contents(low=(0,) * g.breadth, high=ends)
    index = g.fresh(7, x.shapes, where)
    if g.chance(0.2) and len(set(x.shapes)) == 1:
        size = [
            *x.shapes[0][:2],
            *(
                attributes["strides"][0] * (d - 1) + attributes["kernel_shape"][0] + 1
                for d in x.shapes[0][2:]
            ),
        ]
        return g.emit("MaxUnpool", [x, index, g.integers(size)], attributes)
    if attributes["kernel_shape"][0] == 3 and attributes["strides"][0] == 2 and g.chance(0.3):
        attributes["pads"] = g.choose(([1] * n + [0] * n, [0] * n + [1] * n))
    return g.emit("MaxUnpool", [x, index], attributes)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", kind=WINDOW)
def global_pool(g: Growth, op: str) -> Value:
    return g.emit(op, [image(g, op)], {"p": g.choose((None, 1, 2, 3))})


@recipe("LRN", kind=WINDOW)
def lrn(g: Growth) -> Value:
    return g.emit(
        "LRN",
        [image(g, "LRN", 4, 4)],
        {
            "size": g.choose((1, 3, 5)),
            "bias": g.choose((None, 2.0)),
            "alpha": g.choose((None, 0.1)),
            "beta": g.choose((None, 0.5)),
        },
    )


@recipe("Resize", "Upsample", kind=WINDOW, weight=2)
def resize(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 2, 4)
    modes = (
        ("nearest", "linear", "cubic")
        if op == "Resize" and g.opset >= 11
        else ("nearest", "linear")
    )
    mode = g.choose(modes)
    scales = [1.0] * max(0, x.rank - 2) + [g.choose((1.0, 2.0, 0.5, 1.5, 3.0)) for _ in range(2)]
    values = g.constant(np.array(scales[: x.rank], np.float32))
    if op == "Upsample":
        if g.opset < 9:
            return g.emit("Upsample", [x], {"mode": mode, "scales": scales})
        return g.emit("Upsample", [x, values], {"mode": mode})
    if g.opset == 10:
        return g.emit("Resize", [x, values], {"mode": mode})
    if g.opset >= 11 and g.chance(0.25):
        return _cropped(g, x, mode)
    if g.opset >= 18 and g.chance(0.3):
        return _along_axes(g, x, mode)
    roi = g.constant(np.zeros(0, np.float32)) if g.opset < 13 else None
    ways = (
        "half_pixel",
        "align_corners",
        "asymmetric",
        "pytorch_half_pixel",
        "half_pixel_symmetric",
    )
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": g.choose(ways[: 4 if g.opset < 19 else 5]),
        "nearest_mode": g.choose(
            (None, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        ),
        "exclude_outside": 1 if mode == "cubic" and g.chance(0.2) else None,
        "cubic_coeff_a": g.choose((None, -0.5)) if mode == "cubic" else None,
        "antialias": 1 if g.opset >= 18 and mode != "nearest" and g.chance(0.15) else None,
    }
    if g.chance(0.3) and all(x.fixed(a) for a in range(x.rank - 2)):
        sizes = [x.at(a)[0] for a in range(x.rank - 2)] + [g.choose((1, 3, 4, 8)) for _ in range(2)]
        empty = g.constant(np.zeros(0, np.float32)) if g.opset < 13 else None
        return g.emit("Resize", [x, roi, empty, g.integers(sizes[: x.rank])], attributes)
    return g.emit("Resize", [x, roi, values], attributes)


def _cropped(g: Growth, x: Value, mode: str) -> Value:
    """Resized parts of images, which may reach beyond them."""
    starts = [0.0] * max(0, x.rank - 2) + [g.choose((0.0, 0.25, -0.25)) for _ in range(2)]
    ends = [1.0] * max(0, x.rank - 2) + [g.choose((1.0, 0.75, 1.25)) for _ in range(2)]
    roi = g.constant(np.array([*starts[: x.rank], *ends[: x.rank]], np.float32))
    scales = [1.0] * max(0, x.rank - 2) + [g.choose((1.0, 2.0, 0.5)) for _ in range(2)]
    values = g.constant(np.array(scales[: x.rank], np.float32))
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": g.choose((None, 2.0)),
        "nearest_mode": g.choose((None, "floor")),
    }
    return g.emit("Resize", [x, roi, values], attributes)


def _along_axes(g: Growth, x: Value, mode: str) -> Value:
    """Resized along some axes, by scales, to sizes, or to the largest or least that fits within sizes."""
    axes = [x.rank - 2, x.rank - 1] if g.chance(0.5) else [g.rng.randrange(x.rank)]
    if g.chance(0.3):
        axes = axes[::-1]
    attributes = {
        "mode": mode,
        "axes": [a - x.rank if g.chance(0.2) else a for a in axes],
        "coordinate_transformation_mode": g.choose((None, "align_corners", "asymmetric")),
    }
    if g.chance(0.4):
        scales = np.array([g.choose((1.0, 2.0, 0.5)) for _ in axes], np.float32)
        return g.emit("Resize", [x, None, g.constant(scales)], attributes)
    policies = (None, "stretch", "not_larger", "not_smaller")
    attributes["keep_aspect_ratio_policy"] = g.choose(policies)
    sizes = g.integers([g.choose((1, 3, 4, 8)) for _ in axes])
    return g.emit("Resize", [x, None, None, sizes], attributes)


@recipe("GridSample", kind=WINDOW)
def grid_sample(g: Growth) -> Value:
    x = g.ranked(types("GridSample", g.opset), 4, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError  # onnxruntime reads what is not there
    grid = g.fresh(g.choose(types("GridSample", g.opset, 1)), along(x, (0,), 3, 4, 2))
    modes = ("bilinear", "nearest", "bicubic") if g.opset < 20 else ("linear", "nearest", "cubic")
    attributes = {
        "mode": g.choose(modes),
        "padding_mode": g.choose(("zeros", "border", "reflection")),
        "align_corners": g.choose((0, 1)),
    }
    return g.emit("GridSample", [x, grid], attributes)


@recipe("Col2Im", kind=WINDOW)
def col2im(g: Growth) -> Value:
    rank = g.choose((1, 2, 2))
    image, block = ([g.choose(of) for _ in range(rank)] for of in ((4, 5, 6), (1, 2, 3)))
    strides, dilations = ([g.choose((1, 1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [g.choose((0, 0, 1)) for _ in range(2 * rank)]
    places = places_of(image, block, strides, dilations, pads)
    batch = g.dim()[1]
    shapes = [(n, g.choose((1, 3)) * math.prod(block), math.prod(places)) for n in batch]
    shapes = [(s[0], *shapes[0][1:]) for s in shapes]
    x = g.fresh(1, shapes)
    attributes = {"strides": strides, "dilations": dilations, "pads": pads}
    kept = {
        name: given
        for name, given in attributes.items()
        if len(set(given)) > 1 or given[0] != int(name != "pads") or g.chance(0.5)
    }
    return g.emit("Col2Im", [x, g.integers(image), g.integers(block)], kept)


@recipe("RoiAlign", kind=WINDOW)
def roi_align(g: Growth) -> Value:
    x = g.ranked(types("RoiAlign", g.opset), 4, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError  # onnxruntime reads what is not there
    rois = g.fresh(x.dtype, [(2, 4)] * g.breadth, Contents(positive=g.chance(0.7)))
    index = g.fresh(7, [(2,)] * g.breadth, Contents(low=(0,) * g.breadth, high=x.at(0)))
    attributes = {
        "output_height": g.choose((None, 2)),
        "output_width": g.choose((None, 3)),
        "sampling_ratio": g.choose((None, 0, 1, 2, 2)),
        "mode": g.choose((None, "avg", "max")),
        "spatial_scale": g.choose((None, 0.5, 2.0)),
        "coordinate_transformation_mode": g.choose((None, "half_pixel", "output_half_pixel")),
    }
    return g.emit("RoiAlign", [x, rois, index], attributes)


@recipe("MaxRoiPool", kind=WINDOW, weight=0.5)
def max_roi_pool(g: Growth) -> Value:
    x = g.ranked((1,), 4, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    rng = np.random.default_rng(g.numpy_seed())
    corners = np.sort(rng.integers(0, 4, (2, 2, 2)), axis=1).reshape(2, 4)
    rois = g.constant(np.concatenate([np.zeros((2, 1)), corners], axis=1).astype(np.float32))
    attributes = {"pooled_shape": [2, g.choose((1, 3))], "spatial_scale": g.choose((None, 0.5))}
    return g.emit("MaxRoiPool", [x, rois], attributes)


@recipe("QLinearConv", kind=WINDOW, weight=0.7)
def qlinear_conv(g: Growth) -> Value:
    x = g.ranked(INT8S, 3, g.choose((4, 4, 5)))
    if not x.fixed(1) or 0 in x.at(1):
        raise RefusedError  # onnxruntime leaves the sum of nothing as it finds it
    attributes = window(g, x)
    group, channels = groups(g, x.at(1)[0])
    w = g.fresh(x.dtype, [(3 * group, channels, *attributes["kernel_shape"])] * g.breadth)
    bias = maybe(g, lambda: g.fresh(6, [(3 * group,)] * g.breadth))
    operands = [x, *scales(g, x), w, *scales(g, w), *scales(g, x), bias]
    return g.emit("QLinearConv", operands, {**attributes, "group": group})


@recipe("DeformConv", kind=WINDOW)
def deform_conv(g: Growth) -> Value:
    x = g.ranked(types("DeformConv", g.opset), 4, 4)
    if not x.fixed(1) or any(0 in s for s in x.shapes):
        raise RefusedError
    group, channels = groups(g, x.at(1)[0])
    offsets = g.choose([n for n in range(1, x.at(1)[0] + 1) if x.at(1)[0] % n == 0])
    kernel = [g.choose((1, 2, 3)) for _ in range(2)]
    strides, dilations = ([g.choose((1, 1, 2)) for _ in range(2)] for _ in range(2))
    pads = [g.choose((0, 0, 1)) for _ in range(4)]
    places = [places_of(s[2:], kernel, strides, dilations, pads) for s in x.shapes]
    taps = kernel[0] * kernel[1]

    def at_taps(each: int) -> list[Shape]:
        return [(s[0], offsets * taps * each, *p) for s, p in zip(x.shapes, places, strict=True)]

    w = g.fresh(x.dtype, [(2 * group, channels, *kernel)] * g.breadth)
    bias = maybe(g, lambda: g.fresh(x.dtype, [(2 * group,)] * g.breadth))
    mask = maybe(g, lambda: g.fresh(x.dtype, at_taps(1)))
    attributes = {
        "kernel_shape": kernel if g.chance(0.5) else None,
        "group": group,
        "offset_group": offsets,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
    }
    return g.emit("DeformConv", [x, w, g.fresh(x.dtype, at_taps(2)), bias, mask], attributes)
