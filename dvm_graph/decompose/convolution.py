"""Convolutions: matrix products of patches of channels-last images with the weights.

A convolution whose kernel is one element is a matrix product of the image itself; one of groups with few channels and
results each is an operator of its own. The result is transposed back to the order of ONNX;
simplification moves such transposes on until they meet and vanish. With three spatial axes, of such groups, what each slice
that a window reaches gives is added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.dequantized_constants import folded_weights
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import Operands, Results
from dvm_graph.decompose.slicing import padded, part
from dvm_graph.decompose.windows import (
    WindowAxis,
    channels_first,
    channels_last,
    over_padded,
    planar,
    window_over,
)
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.process import drop_pages
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.builder_methods import Window
from dvm_graph.symbolic.dims import mul
from dvm_graph.symbolic.folding import contents
from dvm_graph.symbolic.transforms import transformed_slices

MOST_LANES = 16
"""Results of a group up to which they are lanes of vectors. More are columns of a matrix product, which fill its panels. Measured
with vectors of 16 and of 8 (docs/performance/notes.md, architectures of timm). So are as many where their products may take transforms.
"""
_MOST_OF_VOLUMES = 8
"""The same of volumes, whose slices are passed over and added one by one."""


def convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    x, weights = required(node, operands, 0), required(node, operands, 1)
    bias = operand(operands, 2)
    if not x.dtype.is_float or x.rank not in (3, 4, 5) or weights.rank != x.rank:
        return None
    x, axes = over_padded(node, x, weights)
    groups = int(node.attrs.get("group", 1))
    outputs, inputs = shape_of(weights)[:2]
    if axes is None or not isinstance(outputs, int) or not isinstance(inputs, int):
        return None
    if groups < 1 or outputs % groups != 0:
        return None
    image = channels_last(builder, widened(builder, x))
    weights = widened_weights(builder, weights)
    if weights.rank == 3:
        weights = builder.reshape(weights, (outputs, inputs, 1, shape_of(weights)[2]))
    y = convolved(builder, image, weights, axes, groups)
    if bias is not None:
        y = builder.add(y, widened(builder, bias))
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


def convolved(
    builder: Builder,
    image: Value,
    weights: Value,
    axes: Sequence[WindowAxis],
    groups: int,
    outside: int = 0,
) -> Value:
    """`image` [batch, (depth,) height, width, channels] by `weights` [outputs, inputs, kernel...].

    Inputs are those of a group; one axis is that of columns. The result is channels-last, too. What lies around the image
    is 0 or, where channels are convolved by themselves, other bytes.
    """
    outputs, inputs = (int(extent) for extent in shape_of(weights)[:2])
    if len(axes) < 3:
        return _over_image(builder, image, weights, window_over(planar(axes)), groups, outside)
    results = outputs // groups
    if results > _MOST_OF_VOLUMES or not _by_lanes(image, groups, inputs, results):
        return _over_image(builder, image, weights, window_over(axes), groups)
    depth, *planes = axes
    deep = int(shape_of(weights)[2])
    slices = _slices(builder, image, depth, outside)
    kernels = (_slice_of(builder, weights, tap) for tap in range(deep))
    window = window_over(planes)
    parts = (
        _over_image(builder, below, kernel, window, groups, outside)
        for below, kernel in zip(slices, kernels, strict=True)
    )
    y = reduce(builder.add, parts)
    return builder.reshape(y, (shape_of(image)[0], depth.size, *window.size, outputs))


def _slices(builder: Builder, volume: Value, depth: WindowAxis, outside: int) -> list[Value]:
    """Those that windows of a volume meet first, and so on, all as images: [batch * positions, height, width, channels]."""
    batch, extent, *plane = shape_of(volume)
    flat = (mul(batch, depth.size), *plane)
    if depth.kernel == 1 and depth.stride == 1 and depth.pads == (0, 0) and depth.size == extent:
        return [builder.reshape(volume, flat)]
    room = padded(builder, volume, 1, *depth.pads, builder.scalar(outside, volume.dtype))
    parts = (
        part(builder, room, 1, tap * depth.dilation, depth.size, depth.stride)
        for tap in range(depth.kernel)
    )
    return [builder.reshape(found, flat) for found in parts]


def _slice_of(builder: Builder, weights: Value, at: int) -> Value:
    """[outputs, inputs, height, width] of the weights of volumes; constants at once."""
    outputs, inputs, _, *kernel = shape_of(weights)
    data = contents(weights)
    if data is not None:
        return builder.constant(np.ascontiguousarray(data[:, :, at]))
    return builder.reshape(part(builder, weights, 2, at, 1), (outputs, inputs, *kernel))


def widened_weights(builder: Builder, weights: Value) -> Value:
    """Half floats as float32; constants at once, and what is made of constants alone, so that they can be packed."""
    weights = folded_weights(builder, weights)
    wide = widened(builder, weights)
    if wide is weights or weights.data is None:
        return wide
    return builder.constant(np.asarray(weights.data).astype(np.float32))


def _over_image(
    builder: Builder, image: Value, weights: Value, window: Window, groups: int, outside: int = 0
) -> Value:
    """`image` [batch, (depth,) height, width, channels] by `weights` [outputs, inputs, kernel...]."""
    outputs, inputs = (int(extent) for extent in shape_of(weights)[:2])
    spatial = len(window.kernel)
    taps = math.prod(window.kernel)
    builder.facts.assume_equal(
        shape_of(image)[-1], inputs * groups, "a convolution has weights for each channel"
    )
    still = not any(window.pads) and set(window.strides) == {1}
    if groups == 1 and taps == 1 and still and window.size == shape_of(image)[1:-1]:
        flat = builder.reshape(weights, (outputs, inputs))
        return builder.matmul(image, builder.transpose(flat, (1, 0)))
    results = outputs // groups
    by_lanes = spatial == 2 and _by_lanes(image, groups, inputs, results)
    if by_lanes and not _transformed(builder, image, window, groups, taps * inputs, results):
        per_channel = arranged(builder, weights, (2, 3, 1, 0), (taps * inputs, outputs))
        return builder.depthwise(image, per_channel, window, groups, outside)
    if groups == 1:
        matrix = _matrix(builder, weights, (), taps * inputs)
        return builder.matmul(builder.patches(image, window), matrix)
    split = builder.reshape(weights, (groups, results, inputs, *window.kernel))
    matrix = _matrix(builder, split, (groups, *[1] * spatial), taps * inputs)
    y = builder.matmul(builder.patches(image, window, groups), matrix)
    y = builder.transpose(y, (*range(1, spatial + 2), 0, spatial + 2))
    return builder.reshape(y, (shape_of(image)[0], *window.size, outputs))


def _transformed(
    builder: Builder, image: Value, window: Window, groups: int, k: int, results: int
) -> bool:
    """Whether products of the patches, by weights [groups, k, results], may take transforms."""
    if not builder.options.transforms or image.dtype is not DType.FLOAT32:
        return False
    return transformed_slices(window.attrs, groups, k, results, builder.facts) > 0


def _matrix(builder: Builder, weights: Value, batch: tuple[int, ...], count: int) -> Value:
    """[batch..., elements of a window, outputs] of weights [outputs, inputs, kernel...], those of groups behind the groups.

    What is no constant is transposed once in each run, not by every tile: it is read in place then, or packed row by row.
    """
    outer = range(1 if batch else 0)
    rows = len(outer)  # the axis of outputs
    outputs, kernel = int(shape_of(weights)[rows]), range(rows + 2, weights.rank)
    if contents(weights) is None:
        order = (*outer, *kernel, rows + 1, rows)
        return arranged(builder, weights, order, (*batch, count, outputs))
    order = (*outer, rows, *kernel, rows + 1)
    columns = arranged(builder, weights, order, (*batch, outputs, count))
    last = len(batch)
    return builder.transpose(columns, (*range(last), last + 1, last))


def _by_lanes(image: Value, groups: int, channels: int, results: int) -> bool:
    """Whether results of groups side by side are the lanes of vectors.

    So they are where none of the vectors reads more than a vector of channels: each group has one, or no more than
    results, whose number divides vectors.
    """
    if not image.dtype.is_float:
        return groups > 1 and channels == results == 1
    if results > MOST_LANES:
        return False
    if groups == 1 or channels == 1:
        return channels == 1 and (groups > 1 or results == 1)
    return 1 < channels <= results and results & (results - 1) == 0


def arranged(
    builder: Builder, weights: Value, perm: Sequence[int], shape: tuple[int, ...]
) -> Value:
    """Weights transposed, then reshaped; constants at once, since no stride says what they become."""
    data = contents(weights)
    if data is None:
        return builder.reshape(builder.transpose(weights, perm), shape)
    moved = np.ascontiguousarray(data.transpose(perm)).reshape(shape)
    drop_pages(data)  # else weights of large models are in memory twice until panels are packed
    return builder.constant(moved)
