"""DeformConv: a convolution whose windows are displaced tap by tap."""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.arithmetic import positions, widened, with_axis
from dvm_graph.decompose.convolution import arranged, widened_weights
from dvm_graph.decompose.image_points import Tap, linear, read_points, rows_of, tap_at
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.windows import WindowAxis, channels_first, spatial_axes
from dvm_graph.ir import Dim, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import mul, neg, product


@decomposition("DeformConv")
def deformable_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    """The product of weights and of what each tap of each window reads, displaced by its offset.

    Channels are divided into groups that share offsets, and into those of the product, which need not be the same.
    """
    x, weights, offset = (required(node, operands, index) for index in range(3))
    bias, mask = operand(operands, 3), operand(operands, 4)
    if x.rank != 4 or weights.rank != 4 or not x.dtype.is_float:
        return None
    axes = spatial_axes(node, shape_of(x)[2:], shape_of(weights)[2:])
    groups, shared = int(node.attrs.get("group", 1)), int(node.attrs.get("offset_group", 1))
    results, channels, *kernel = shape_of(weights)
    if axes is None or not isinstance(results, int) or not isinstance(channels, int):
        return None
    images, taps, points = shape_of(x)[0], product(kernel), product([axis.size for axis in axes])
    every = channels * groups
    if every % shared != 0 or results % groups != 0:
        return None
    order = (images, shared, points, taps)
    read = _displaced(builder, widened(builder, offset), axes, order)
    start = builder.add(
        builder.iota((images, 1, 1, 1), 0, 0, product((*shape_of(x)[2:], shared))),
        builder.iota((1, shared, 1, 1), 1, 0, 1),
    )
    y = read_points(builder, rows_of(builder, x, shared), start, read, builder.add)
    if mask is not None:
        factors = builder.reshape(widened(builder, mask), (images, shared, taps, points))
        factors = builder.transpose(factors, (0, 1, 3, 2))
        y = builder.mul(y, with_axis(builder, factors, factors.rank))
    y = builder.reshape(builder.transpose(y, (0, 2, 3, 1, 4)), (mul(images, points), taps, every))
    y = _weighted(builder, y, widened_weights(builder, weights), groups)
    y = builder.reshape(y, (images, *(axis.size for axis in axes), results))
    if bias is not None:
        y = builder.add(y, widened(builder, bias))
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


def _weighted(builder: Builder, y: Value, weights: Value, groups: int) -> Value:
    """[points, taps, channels] by weights, group by group, to [points, results]."""
    points, taps = shape_of(y)[0], int(shape_of(y)[1])
    results, channels = (int(extent) for extent in shape_of(weights)[:2])
    each, rows = results // groups, taps * channels
    y = builder.reshape(y, (points, taps, groups, channels))
    left = builder.reshape(builder.transpose(y, (2, 0, 1, 3)), (groups, points, rows))
    split = builder.reshape(weights, (groups, each, channels, taps))
    columns = arranged(builder, split, (0, 1, 3, 2), (groups, each, rows))
    y = builder.matmul(left, builder.transpose(columns, (0, 2, 1)))
    return builder.reshape(builder.transpose(y, (1, 0, 2)), (points, results))


def _displaced(
    builder: Builder, offset: Value, axes: Sequence[WindowAxis], order: tuple[Dim, ...]
) -> list[list[Tap]]:
    """What taps of windows read, as [images, groups, points, taps]; axis by axis."""
    images, shared, points, taps = order
    kernel, size = [axis.kernel for axis in axes], [axis.size for axis in axes]
    pairs = builder.reshape(offset, (images, shared, taps, len(axes), points))
    read = []
    for at, axis in enumerate(axes):
        own = builder.reshape(part(builder, pairs, 3, at, 1), (images, shared, taps, points))
        first = positions(builder, axis.size, at, 4, neg(axis.pads[0]), axis.stride)
        tap = positions(builder, axis.kernel, 2 + at, 4, 0, axis.dilation)
        places = builder.broadcast_to(builder.add(first, tap), (*size, *kernel))
        places = builder.cast(builder.reshape(places, (points, taps)), offset.dtype)
        place = builder.add(places, builder.transpose(own, (0, 1, 3, 2)))
        outside = builder.scalar(-2, place.dtype)  # both neighbours: where offsets are no numbers
        place = builder.select(builder.isfinite(place), place, outside)
        read.append(
            [
                tap_at(builder, position, share, axis.extent, zeros=True)
                for position, share in linear(builder, place)
            ]
        )
    return read
