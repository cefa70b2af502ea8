"""Resizing of images: reading the nearest element, or between the two or four nearest ones, axis by axis.

Positions are computed in float32 as the vendor library computes them, since what is nearest may
hang on the last bit. An axis that grows by a whole number, or shrinks by a power of two, is a view where the
nearest of its elements are meant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce

import numpy as np

from dvm_graph.decompose.arithmetic import (
    along_axis,
    dim_value,
    positions,
    scalar_of,
    shifted,
    widened,
)
from dvm_graph.decompose.cropping import Crop, beyond, crops, fill_beyond
from dvm_graph.decompose.extents import (
    assume_count,
    bound_extents,
    contents_of,
    known,
    shape_operand,
)
from dvm_graph.decompose.nearest import NEAREST, NEAREST_NUMBER
from dvm_graph.decompose.operands import elements, normalize_axis, operand, required, text
from dvm_graph.decompose.pooling import by_planes, from_images, images, pooled
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.windows import (
    WindowAxis,
    channels_first,
    channels_last,
    comes_channels_last,
)
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, floordiv, mul

_LARGEST_SCALE, _LARGEST_DENOMINATOR = 4096, 64
_SURE_SCALE = Fraction(3, 2)
"""From which on every extent grows, but for that of a single element, which does from 2 on."""
_CHANNELS_OF_A_PIXEL = 8
"""From which on a pixel is read at once about as fast as what is beside it."""
_CHANNELS_OF_A_VECTOR = 16
"""Up to which sums of elements in planes are computed as fast as those of whole pixels, and nothing is turned over."""
_BY_SCALE = "by scale"
"""Of nearest elements: those before, or behind, where axes shrink."""
_FROM_MIDDLES = "tf_half_pixel_for_nn"
"""Of nearest elements, and of opset 11 alone, but onnxruntime has it in later ones, too, and tf2onnx writes it there."""
_CROP = "tf_crop_and_resize"
_HALF_PIXELS = frozenset({"half_pixel", "pytorch_half_pixel"})


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Where results lie among the elements, and what they are read as there."""

    mode: str
    transform: str
    nearest: str
    slope: float
    """Of cubic interpolation: at the neighbours of the nearest elements."""
    exclude_outside: bool
    """Of cubic interpolation: elements outside have no share, rather than that of the last one."""
    beyond: float
    """What there is where a part reaches beyond the whole."""


@dataclass(frozen=True, slots=True)
class _Axis:
    extent: Dim
    size: Dim
    scale: Fraction | Value | None
    """A value: which the run tells, of rank 0. None: size over extent."""
    stays: Value | None = None
    """Whether the run has it as long as it is, and all others, too: it is scaled by 1 then."""
    crop: Crop | None = None
    """The part that is resized; None: all of it."""


@decomposition("Resize", "Upsample")
def resize(builder: Builder, node: Node, operands: Operands) -> Results:
    """Of spatial axes, by nearest elements, linearly or by cubic polynomials, to sizes or by scales; of any others, those of
    images whose channels come last among them, by the first two ways.

    Cubic ones of one axis or three, which onnxruntime refuses, are as onnx defines them. Shares are float32 for all types.
    """
    if _is_old(node):
        node = replace(node, op="Resize")
        operands = (required(node, operands, 0), None, required(node, operands, 1))
    x, sampling = required(node, operands, 0), _sampling(node)
    if sampling is None or (sampling.mode != "nearest" and not x.dtype.is_float):
        return None
    axes = _axes(builder, node, operands, x, sampling)
    if axes is None:
        return None
    if sampling.nearest == _BY_SCALE and any(isinstance(a.scale, Value) for a in axes.values()):
        return None
    spatial = x.rank in (3, 4, 5) and all(axis >= 2 for axis in axes)
    if sampling.mode == "cubic" and not spatial:
        return None
    if sampling.mode == "cubic" and axes:
        axes = _all_spatial(x) | axes
    halves = all(_start_of_pairs(sampling, axis) == 0 for axis in axes.values())
    if sampling.mode == "linear" and halves and spatial and len(axes) > 1:
        return [_mean_of_neighbours(builder, x, axes)]
    y = x if sampling.mode == "nearest" else widened(builder, x)
    stays = not spatial or _is_read_better_by_rows(sampling, x, axes)
    y = y if stays else channels_last(builder, y)
    for axis in _in_order(builder, axes) if stays else axes:
        resized, at = axes[axis], axis if stays or x.rank == 3 else axis - 1
        if sampling.mode == "linear":
            y = _linear(builder, sampling, y, at, resized)
        elif sampling.mode == "cubic":
            y = _cubic(builder, sampling, y, at, resized)
        elif _repeats(sampling, resized):
            y = _repeated(builder, y, at, resized)
        elif (start := _start_of_steps(sampling, resized)) is not None:
            assert isinstance(resized.scale, Fraction)
            y = part(builder, y, at, start, resized.size, resized.scale.denominator)
        else:
            y = builder.gather(y, _nearest(builder, sampling, resized), at)
    outside = {
        at if stays or x.rank == 3 else at - 1: _beyond(builder, sampling, axis)
        for at, axis in axes.items()
        if axis.crop is not None
    }
    y = builder.cast(fill_beyond(builder, y, outside, sampling.beyond), x.dtype)
    return [y if stays else channels_first(builder, y, x.rank)]


def _is_read_better_by_rows(sampling: _Sampling, x: Value, axes: Mapping[int, _Axis]) -> bool:
    """Whether an image is better left in planes: that is how it lies, or its channels are so few that reading them pixel by
    pixel moves less at a time than a row of the image does.
    """
    if all(_is_view(sampling, axis) for axis in axes.values()):
        return False
    channels = shape_of(x)[1]
    most = channels if isinstance(channels, int) else math.inf
    if most < _CHANNELS_OF_A_PIXEL:
        return True
    if comes_channels_last(x):
        return False
    if sampling.mode == "nearest" or most <= _CHANNELS_OF_A_VECTOR:
        return True
    halves = all(_start_of_pairs(sampling, axis) is not None for axis in axes.values())
    return sampling.mode == "linear" and halves


def _in_order(builder: Builder, axes: Mapping[int, _Axis]) -> list[int]:
    """Those that shrink first, then those that grow, each where the others leave it little to do.

    Along the innermost one elements are read one by one, along others in rows: it is the last to shrink and the first to grow.
    """
    growing = [axis for axis in sorted(axes) if _grows(builder, axes[axis])]
    return [axis for axis in sorted(axes) if axis not in growing] + growing[::-1]


def _grows(builder: Builder, axis: _Axis) -> bool:
    """As far as is known; images of any size shrink where they all become of the same one, else they grow."""
    if isinstance(axis.scale, Fraction):
        return axis.scale > 1
    if isinstance(axis.size, int):
        return isinstance(axis.extent, int) and axis.size > axis.extent
    return not builder.facts.prove_less_equal(axis.size, axis.extent).yes


def _all_spatial(x: Value) -> dict[int, _Axis]:
    """As they are. Cubic interpolation samples those that stay, too: an infinite neighbour has a share of 0, which is NaN."""
    return {at: _Axis(extent, extent, None) for at, extent in enumerate(shape_of(x)) if at > 1}


def _is_old(node: Node) -> bool:
    """Of a form with nothing but a mode and scales, that nearest elements lie before where an axis grows, else behind: all of
    Upsample's.
    """
    return node.version < 11


def _sampling(node: Node) -> _Sampling | None:
    """None: nothing here computes what is asked for."""
    mode = text(node, "mode", "nearest")
    if _is_old(node):
        known = mode in ("nearest", "linear")
        return _Sampling(mode, "asymmetric", _BY_SCALE, 0.0, False, 0.0) if known else None
    transform = text(node, "coordinate_transformation_mode", "half_pixel")
    nearest = text(node, "nearest_mode", "round_prefer_floor")
    known = (
        mode in ("nearest", "linear", "cubic")
        and transform in _TRANSFORMS
        and (transform != _FROM_MIDDLES or mode == "nearest")
        and nearest in NEAREST
        and text(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
        and not node.attrs.get("antialias", 0)
    )
    if not known:
        return None
    slope = float(node.attrs.get("cubic_coeff_a", -0.75))
    outside = bool(node.attrs.get("exclude_outside", 0))
    beyond = float(node.attrs.get("extrapolation_value", 0.0))
    return _Sampling(mode, transform, nearest, slope, outside, beyond)


def _axes(
    builder: Builder, node: Node, operands: Operands, x: Value, sampling: _Sampling
) -> dict[int, _Axis] | None:
    """The axes that change; None: nothing here computes what they become."""
    listed = node.attrs.get("axes") or range(x.rank)
    order = [normalize_axis(node, int(axis), x.rank) for axis in listed]
    found = (
        _scaled(builder, node, operands, x, order)
        or _sized(operands, x, order)
        or _bound(builder, node, operands, x, order)
    )
    if found is None:
        return None
    facts = builder.facts
    if all(facts.same(resized.size, resized.extent) for resized in found.values()):
        return {}  # a copy, whatever the scales and parts
    changed = {
        axis: resized
        for axis, resized in found.items()
        if resized.scale != 1
        and not (resized.scale is None and facts.same(resized.size, resized.extent))
    }
    if sampling.transform == _CROP:
        return _cropped(builder, node, operands, order, changed)
    return changed if _never_stay(builder, changed.values()) else _staying(builder, changed)


def _cropped(
    builder: Builder,
    node: Node,
    operands: Operands,
    order: Sequence[int],
    axes: Mapping[int, _Axis],
) -> dict[int, _Axis] | None:
    """The same with the parts that they are resized of. As in onnxruntime, one that is scaled by 1 has all of it."""
    roi = operand(operands, 1)
    assume_count(builder, node, roi, 2 * len(order))
    if roi is None or not _are(builder, roi, 2 * len(order)):
        return None
    parts = crops(builder, roi, order)
    found = _staying(builder, axes)
    for at, axis in found.items():
        stays = axis.stays
        if axis.scale is None:
            stays = builder.eq(*(dim_value(builder, dim) for dim in (axis.size, axis.extent)))
        elif isinstance(axis.scale, Value):
            one = builder.eq(axis.scale, builder.scalar(1, DType.FLOAT32))
            stays = one if stays is None else builder.bitwise_or(one, stays)
        found[at] = replace(axis, stays=stays, crop=parts[at])
    return found


def _never_stay(builder: Builder, axes: Collection[_Axis]) -> bool:
    """Whether at no run all axes stay as long as they are, unless they then are what they were."""
    if any(_differs(axis, from_two=False) for axis in axes):
        return True
    several = any(builder.facts.bounds(axis.extent)[0] > 1 and _differs(axis) for axis in axes)
    return several or all(map(_differs, axes))


def _differs(axis: _Axis, from_two: bool = True) -> bool:
    """Whether its length is another than before, unless it has a single element, or then, too. By sizes, all stays where it is not."""
    if axis.scale is None:
        return True
    if isinstance(axis.extent, int) and isinstance(axis.size, int):
        return axis.size != axis.extent or (from_two and axis.extent == 1)
    if isinstance(axis.scale, Value):
        return False
    return axis.scale <= 1 or axis.scale >= (_SURE_SCALE if from_two else 2)


def _staying(builder: Builder, axes: Mapping[int, _Axis]) -> dict[int, _Axis]:
    """The same, but where all stay as long. onnxruntime copies then, whatever the scales: 5 by 1.125 is 5."""
    pairs = ((dim_value(builder, a.size), dim_value(builder, a.extent)) for a in axes.values())
    stay = reduce(builder.bitwise_and, (builder.eq(*pair) for pair in pairs))
    return {at: replace(axis, stays=stay) for at, axis in axes.items()}


def _scaled(
    builder: Builder, node: Node, operands: Operands, x: Value, order: list[int]
) -> dict[int, _Axis] | None:
    """By constant scales. Sizes are products in float32, which only a run tells of extents and scales that no dim gives exactly."""
    scales = operand(operands, 2)
    if scales is None or scales.data is None or scales.data.size != len(order):
        return None
    numbers: list[float] = scales.data.reshape(-1).tolist()
    if not all(0 < number <= _LARGEST_SCALE for number in numbers):
        return None
    extents = [shape_of(x)[axis] for axis in order]
    sizes = [_scaled_extent(*pair) for pair in zip(extents, numbers, strict=True)]
    if None in sizes:
        given = (shape_operand(builder, x), scales, None)
        sizes = list(bound_extents(builder, node, given, sizes, order))
    return {
        axis: _Axis(extent, size, Fraction(number))
        for axis, extent, size, number in zip(order, extents, sizes, numbers, strict=True)
    }


def _scaled_extent(extent: Dim, scale: float) -> Dim | None:
    if isinstance(extent, int):
        return int(np.float32(extent) * np.float32(scale))
    exact = Fraction(scale)
    if exact.denominator > _LARGEST_DENOMINATOR:
        return None
    return floordiv(mul(extent, exact.numerator), exact.denominator)


def _sized(operands: Operands, x: Value, order: list[int]) -> dict[int, _Axis] | None:
    sizes = elements(operands, 3)
    if sizes is None or len(sizes) != len(order):
        return None
    return {
        axis: _Axis(shape_of(x)[axis], size, None) for axis, size in zip(order, sizes, strict=True)
    }


def _bound(
    builder: Builder, node: Node, operands: Operands, x: Value, order: list[int]
) -> dict[int, _Axis] | None:
    """By sizes or scales that only the run tells."""
    scales, sizes = operand(operands, 2), operand(operands, 3)
    if sizes is None:  # else scales may be given without elements
        assume_count(builder, node, scales, len(order))
    dims: list[Dim | None] = [None] * len(order)
    by: list[Value | None] = [None] * len(order)
    if sizes is not None and sizes.shape != (0,):
        contents, scales = contents_of(builder, sizes), None
        if contents is None or len(contents) != len(order):
            return None
        dims = [known(content) for content in contents]
    elif scales is None or scales.data is not None or not _are(builder, scales, len(order)):
        return None
    if any(axis < 2 and dim is None for axis, dim in zip(order, dims, strict=True)):
        return None
    given = (shape_operand(builder, x), scales, None if scales is not None else sizes)
    found = bound_extents(builder, node, given, dims, order)
    if scales is not None:
        each = (part(builder, scales, 0, at, 1) for at in range(len(order)))
        by = [scalar_of(builder, scale, DType.FLOAT32) for scale in each]
    return {
        axis: _Axis(shape_of(x)[axis], size, scale)
        for axis, size, scale in zip(order, found, by, strict=True)
    }


def _are(builder: Builder, values: Value, count: int) -> bool:
    return values.rank == 1 and builder.facts.prove_equal(shape_of(values)[0], count).yes


def _is_view(sampling: _Sampling, axis: _Axis) -> bool:
    if sampling.mode != "nearest":
        return False
    return _repeats(sampling, axis) or _start_of_steps(sampling, axis) is not None


def _repeats(sampling: _Sampling, axis: _Axis) -> bool:
    """Whether each element is the nearest one of as many results."""
    if not isinstance(axis.scale, Fraction) or axis.scale.denominator != 1:
        return False
    if sampling.transform in ("asymmetric", _FROM_MIDDLES):
        return _rounding(sampling, axis) == "floor"
    rounds = sampling.nearest in ("round_prefer_floor", "round_prefer_ceil")
    return rounds and sampling.transform in _HALF_PIXELS


def _repeated(builder: Builder, x: Value, at: int, axis: _Axis) -> Value:
    assert isinstance(axis.scale, Fraction)
    shape = shape_of(x)
    y = builder.reshape(x, (*shape[: at + 1], 1, *shape[at + 1 :]))
    y = builder.broadcast_to(y, (*shape[: at + 1], axis.scale.numerator, *shape[at + 1 :]))
    return builder.reshape(y, (*shape[:at], axis.size, *shape[at + 1 :]))


def _start_of_steps(sampling: _Sampling, axis: _Axis) -> int | None:
    """The first element that is read, where an axis shrinks to one of so many that positions are exact; else None."""
    scale = axis.scale
    if not isinstance(scale, Fraction) or scale.numerator != 1:
        return None
    if scale.denominator.bit_count() != 1 or scale == 1:
        return None
    half = Fraction(1, 2)
    if sampling.transform == "asymmetric":
        first = Fraction(0)
    elif sampling.transform == "half_pixel":
        first = half / scale - half
    elif sampling.transform == _FROM_MIDDLES:
        first = half / scale
    else:
        return None
    return NEAREST_NUMBER[_rounding(sampling, axis)](first)


def _start_of_pairs(sampling: _Sampling, axis: _Axis) -> int | None:
    """The first element that is read, where results lie halfway between two; else None."""
    scale = axis.scale
    if not isinstance(scale, Fraction) or scale.numerator != 1 or scale == 1:
        return None
    if scale.denominator.bit_count() != 1 or sampling.transform != "half_pixel":
        return None
    return scale.denominator // 2 - 1


def _nearest(builder: Builder, sampling: _Sampling, axis: _Axis) -> Value:
    index = NEAREST[_rounding(sampling, axis)](builder, _positions(builder, sampling, axis))
    return _number_of(builder, _inside(builder, index, axis), axis)


def _rounding(sampling: _Sampling, axis: _Axis) -> str:
    if sampling.nearest != _BY_SCALE:
        return sampling.nearest
    assert isinstance(axis.scale, Fraction)
    return "floor" if axis.scale >= 1 else "ceil"


def _linear(builder: Builder, sampling: _Sampling, x: Value, at: int, axis: _Axis) -> Value:
    """Between the two nearest elements, by how near they are."""
    if (start := _start_of_pairs(sampling, axis)) is not None:
        assert isinstance(axis.scale, Fraction)
        step, half = axis.scale.denominator, builder.scalar(0.5, x.dtype)
        low, high = (part(builder, x, at, start + next_, axis.size, step) for next_ in (0, 1))
        return builder.add(builder.mul(low, half), builder.mul(high, half))
    position = _inside(builder, _positions(builder, sampling, axis), axis)
    below = builder.floor(position)
    above = builder.min(shifted(builder, below, 1.0), _last(builder, axis))
    half = builder.scalar(0.5, DType.FLOAT32)  # of the last one, which may be infinite: not 0
    share = builder.select(builder.eq(below, above), half, builder.sub(position, below))
    share = builder.cast(share, x.dtype)
    share = along_axis(builder, share, at, x.rank)
    low, high = (
        builder.gather(x, _number_of(builder, index, axis), at) for index in (below, above)
    )
    rest = builder.sub(builder.scalar(1, x.dtype), share)
    return builder.add(builder.mul(low, rest), builder.mul(high, share))


def _mean_of_neighbours(builder: Builder, x: Value, axes: Mapping[int, _Axis]) -> Value:
    """Of several axes that halve: pixels lie amid as many, which are read in one pass."""
    windows = []
    for at, extent in enumerate(shape_of(x)[2:], 2):
        step, size = (2, axes[at].size) if at in axes else (1, extent)
        windows.append(WindowAxis(extent, step, step, 1, (0, 0), size))
    planes = by_planes(x)
    total = pooled(builder, builder.pool_sum, images(builder, widened(builder, x), planes), windows)
    mean = builder.mul(total, builder.scalar(0.5 ** len(axes), total.dtype))
    return from_images(builder, builder.cast(mean, x.dtype), x, planes)


def _cubic(builder: Builder, sampling: _Sampling, x: Value, at: int, axis: _Axis) -> Value:
    """Among the four nearest elements, by cubic polynomials of how far they are."""
    position = _positions(builder, sampling, axis)
    below = builder.floor(position)
    past = builder.sub(position, below)
    taps = [shifted(builder, below, float(step)) for step in (-1, 0, 1, 2)]
    shares = cubic_shares(builder, past, sampling.slope)
    if sampling.exclude_outside:
        zero = builder.scalar(0, DType.FLOAT32)
        shares = [
            builder.select(builder.eq(tap, _inside(builder, tap, axis)), share, zero)
            for tap, share in zip(taps, shares, strict=True)
        ]
        whole = reduce(builder.add, shares)
        shares = [builder.div(share, whole) for share in shares]
    parts = []
    for tap, share in zip(taps, shares, strict=True):
        index = _number_of(builder, _inside(builder, tap, axis), axis)
        along = along_axis(builder, builder.cast(share, x.dtype), at, x.rank)
        parts.append(builder.mul(builder.gather(x, index, at), along))
    return reduce(builder.add, parts)


def cubic_shares(builder: Builder, past: Value, slope: float) -> list[Value]:
    """Of the elements from the one before the nearest below on, which the position is `past` by a part of 1."""

    def polynomial(x: Value, *factors: float) -> Value:
        """By Horner's rule, the highest power first."""
        first, *others = (builder.scalar(factor, past.dtype) for factor in factors)
        return reduce(lambda sum_, factor: builder.add(builder.mul(sum_, x), factor), others, first)

    a = slope
    rest = builder.sub(builder.scalar(1, past.dtype), past)
    near = (a + 2, -(a + 3), 0.0, 1.0)
    far = (a, -5 * a, 8 * a, -4 * a)
    return [
        polynomial(shifted(builder, past, 1.0), *far),
        polynomial(past, *near),
        polynomial(rest, *near),
        polynomial(shifted(builder, rest, 1.0), *far),
    ]


def _inside(builder: Builder, position: Value, axis: _Axis) -> Value:
    not_before = builder.max(position, builder.scalar(0, DType.FLOAT32))
    return builder.min(not_before, _last(builder, axis))


def _number_of(builder: Builder, inside: Value, axis: _Axis) -> Value:
    """The number of an element; of a part that a run says to lie at NaN, the first one."""
    index = builder.cast(inside, DType.INT64)
    return index if axis.crop is None else builder.max(index, builder.scalar(0, DType.INT64))


def _last(builder: Builder, axis: _Axis) -> Value:
    return dim_value(builder, add(axis.extent, -1), DType.FLOAT32)


def _positions(builder: Builder, sampling: _Sampling, axis: _Axis) -> Value:
    """Where along the axis each of the results lies, as float32."""
    index = builder.cast(positions(builder, axis.size, 0, 1), DType.FLOAT32)
    return _TRANSFORMS[sampling.transform](builder, index, axis)


def _beyond(builder: Builder, sampling: _Sampling, axis: _Axis) -> Value:
    return beyond(builder, _positions(builder, sampling, axis), axis.extent)


def _scale(builder: Builder, axis: _Axis) -> Value:
    scale = axis.scale
    if scale is None:
        size, extent = (dim_value(builder, dim, DType.FLOAT32) for dim in (axis.size, axis.extent))
        return builder.div(size, extent)
    if isinstance(scale, Fraction):
        scale = builder.scalar(float(scale), DType.FLOAT32)
    if axis.stays is None:
        return scale
    return builder.select(axis.stays, builder.scalar(1, DType.FLOAT32), scale)


def _asymmetric(builder: Builder, index: Value, axis: _Axis) -> Value:
    return builder.div(index, _scale(builder, axis))


def _middle(builder: Builder, index: Value, axis: _Axis) -> Value:
    return _asymmetric(builder, shifted(builder, index, 0.5), axis)


def _from_middles(builder: Builder, index: Value, axis: _Axis) -> Value:
    """Where the middle of a result lies, as the nearest element is the one that it is in; the elements themselves along an axis
    that is scaled by 1.
    """
    same = builder.eq(_scale(builder, axis), builder.scalar(1, DType.FLOAT32))
    return builder.select(same, index, _middle(builder, index, axis))


def _half_pixel(builder: Builder, index: Value, axis: _Axis) -> Value:
    return shifted(builder, _middle(builder, index, axis), -0.5)


def _single(builder: Builder, axis: _Axis) -> Value:
    one = builder.scalar(1, DType.INT64)
    return builder.eq(dim_value(builder, axis.size), one)


def _pytorch_half_pixel(builder: Builder, index: Value, axis: _Axis) -> Value:
    zero = builder.scalar(0, DType.FLOAT32)
    return builder.select(_single(builder, axis), zero, _half_pixel(builder, index, axis))


def _align_corners(builder: Builder, index: Value, axis: _Axis) -> Value:
    last, end = (
        dim_value(builder, add(dim, -1), DType.FLOAT32) for dim in (axis.extent, axis.size)
    )
    zero = builder.scalar(0, DType.FLOAT32)
    # The quotient of a single one is 0 / 0.
    return builder.select(_single(builder, axis), zero, builder.div(builder.mul(index, last), end))


def _crop(builder: Builder, index: Value, axis: _Axis) -> Value:
    if axis.crop is None:
        return index
    position = axis.crop.position(builder, index, axis.extent, axis.size)
    return position if axis.stays is None else builder.select(axis.stays, index, position)


_TRANSFORMS: Mapping[str, Callable[[Builder, Value, _Axis], Value]] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    _FROM_MIDDLES: _from_middles,
    _CROP: _crop,
}
