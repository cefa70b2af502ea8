"""Normalisations: statistics in at least float32, then scale and shift in the operand's type."""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.arithmetic import along_axis, mean, scaled, shifted, spread, widened
from dvm_graph.decompose.operands import integers, normalize_axes, normalize_axis, operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.windows import WindowAxis, planar, window_over
from dvm_graph.import_ import dtype_of
from dvm_graph.ir import Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import floordiv, product

FLOAT = 1  # as onnx numbers types


def standardized(
    builder: Builder, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value, Value]:
    """(x - mean) / sqrt(variance + epsilon), the mean, and the inverse standard deviation."""
    average, centred, variance = _moments(builder, x, axes)
    inverse = builder.rsqrt(shifted(builder, variance, epsilon))
    return builder.mul(centred, inverse), average, inverse


def _moments(builder: Builder, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """The mean, what is left without it, and the population variance."""
    average = mean(builder, x, axes)
    centred = builder.sub(x, average)
    return average, centred, mean(builder, builder.mul(centred, centred), axes)


def scaled_and_shifted(
    builder: Builder, x: Value, scale: Value | None, shift: Value | None
) -> Value:
    """The result has the type of the scale."""
    if scale is not None:
        x = builder.mul(builder.cast(x, scale.dtype), spread(builder, scale, shape_of(x)))
    if shift is not None:
        x = builder.add(builder.cast(x, shift.dtype), spread(builder, shift, shape_of(x)))
    return x


@decomposition("LayerNormalization")
def layer_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axis = normalize_axis(node, node.attrs.get("axis", -1), x.rank)
    axes = tuple(range(axis, x.rank))
    y, average, inverse = standardized(
        builder, widened(builder, x), axes, node.attrs.get("epsilon", 1e-5)
    )
    y = scaled_and_shifted(
        builder, builder.cast(y, x.dtype), operand(operands, 1), operand(operands, 2)
    )
    stash = dtype_of(node.attrs.get("stash_type", FLOAT))
    return [y, *(builder.cast(statistic, stash) for statistic in (average, inverse))]


@decomposition("RMSNormalization")
def rms_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    x, scale = required(node, operands, 0), required(node, operands, 1)
    y, _ = normalized_by_mean_square(builder, node, widened(builder, x))
    return [scaled_and_shifted(builder, y, scale, None)]


def normalized_by_mean_square(builder: Builder, node: Node, x: Value) -> tuple[Value, Value]:
    """`over_root_mean_square` over the axes from the node's `axis` on."""
    axes = tuple(range(normalize_axis(node, node.attrs.get("axis", -1), x.rank), x.rank))
    return over_root_mean_square(builder, x, axes, node.attrs.get("epsilon", 1e-5))


def over_root_mean_square(
    builder: Builder, x: Value, axes: Sequence[int], epsilon: float
) -> tuple[Value, Value]:
    """`x / sqrt(mean square + epsilon)`, and the inverse root."""
    square = mean(builder, builder.mul(x, x), axes)
    inverse = builder.rsqrt(shifted(builder, square, epsilon))
    return builder.mul(x, inverse), inverse


@decomposition("GroupNormalization")
def group_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    """Scale and shift are per channel since opset 21, per group before."""
    x = required(node, operands, 0)
    scale, shift = required(node, operands, 1), required(node, operands, 2)
    shape, groups = shape_of(x), int(node.attrs["num_groups"])
    grouped_shape = (shape[0], groups, floordiv(shape[1], groups), *shape[2:])
    rank = x.rank + 1
    grouped = builder.reshape(widened(builder, x), grouped_shape)
    epsilon = node.attrs.get("epsilon", 1e-5)
    y, _, _ = standardized(builder, grouped, tuple(range(2, rank)), epsilon)
    y = builder.cast(y, x.dtype)
    per_group = node.version < 21
    if per_group:
        scale, shift = (along_axis(builder, p, 1, rank) for p in (scale, shift))
        return [builder.reshape(scaled_and_shifted(builder, y, scale, shift), shape)]
    scale, shift = (along_axis(builder, p, 1, x.rank) for p in (scale, shift))
    return [scaled_and_shifted(builder, builder.reshape(y, shape), scale, shift)]


@decomposition("InstanceNormalization")
def instance_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    _have_channels(builder, node, x, operands[1:3])
    whole = _as_groups(builder, x)
    scale, shift = (
        along_axis(builder, required(node, operands, index), 1, whole.rank) for index in (1, 2)
    )
    epsilon = node.attrs.get("epsilon", 1e-5)
    y, _, _ = standardized(builder, widened(builder, whole), tuple(range(2, whole.rank)), epsilon)
    y = scaled_and_shifted(builder, builder.cast(y, x.dtype), scale, shift)
    return [y if whole is x else builder.reshape(y, shape_of(x))]


def _as_groups(builder: Builder, x: Value) -> Value:
    """[batch, groups, elements] that a reshape made of an image, as exporters write norms of groups, with the channels of
    a group and the places apart, whatever the order they lie in: [batch, groups, channels, places...].
    """
    joined = x.made_by("reshape")
    if joined is None or x.rank != 3:
        return x
    image, (batch, groups, _) = joined.required(0), shape_of(x)
    if image.rank < 4 or not builder.facts.same(shape_of(image)[0], batch):
        return x
    known = integers((shape_of(image)[1], groups))
    if known is None or 0 in known or known[0] % known[1] != 0:
        return x
    channels = known[0] // known[1]
    return builder.reshape(image, (batch, groups, channels, *shape_of(image)[2:]))


@decomposition("BatchNormalization")
def batch_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    """With known statistics; in training (opset 14 on) with those of the batch."""
    x = required(node, operands, 0)
    scale, shift, average, variance = (required(node, operands, index) for index in range(1, 5))
    epsilon = node.attrs.get("epsilon", 1e-5)
    running: list[Value] = []
    if (node.version < 14 and len(node.outputs) > 1) or not node.attrs.get("spatial", 1):
        return None
    _have_channels(builder, node, x, operands[1:5])
    if node.attrs.get("training_mode", 0):
        momentum = node.attrs.get("momentum", 0.9)
        batch = _batch_statistics(builder, widened(builder, x))
        current = [
            builder.cast(p, q.dtype) for p, q in zip(batch, (average, variance), strict=True)
        ]
        running = [
            builder.add(scaled(builder, old, momentum), scaled(builder, new, 1 - momentum))
            for old, new in zip((average, variance), current, strict=True)
        ]
        average, variance = current
    # One multiplier per channel, which constant folding computes where the statistics are constant.
    inverse = builder.rsqrt(shifted(builder, variance, epsilon))
    factor = builder.mul(builder.cast(scale, inverse.dtype), inverse)
    average, factor, shift = (along_axis(builder, p, 1, x.rank) for p in (average, factor, shift))
    y = builder.mul(builder.sub(builder.cast(x, factor.dtype), average), factor)
    y = builder.add(y, builder.cast(shift, y.dtype))
    return [builder.cast(y, x.dtype), *running]


def _have_channels(builder: Builder, node: Node, x: Value, parameters: Operands) -> None:
    """Parameters do not broadcast: each has a number for each channel."""
    for parameter in parameters:
        if parameter is not None and x.rank > 1:
            (extent,) = shape_of(parameter)
            reason = f"{node.name} has parameters for each channel"
            builder.facts.assume_equal(extent, shape_of(x)[1], reason)


def _batch_statistics(builder: Builder, x: Value) -> tuple[Value, Value]:
    """Mean and population variance of every channel, of shape [channels]."""
    average, _, variance = _moments(builder, x, (0, *range(2, x.rank)))
    channels = (shape_of(x)[1],)
    return builder.reshape(average, channels), builder.reshape(variance, channels)


@decomposition("LpNormalization")
def lp_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    """`x / norm(x)`, and 0 where the norm is 0."""
    x = required(node, operands, 0)
    axes = (normalize_axis(node, node.attrs.get("axis", -1), x.rank),)
    if node.attrs.get("p", 2) == 1:
        norm = builder.reduce_sum(builder.abs(x), axes)
    else:
        norm = builder.sqrt(builder.reduce_sum(builder.mul(x, x), axes))
    zero = builder.scalar(0, x.dtype)
    return [builder.select(builder.eq(norm, zero), zero, builder.div(x, norm))]


@decomposition("LRN")
def local_response_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    """Over the power of means of squares, which are those of neighbouring channels: columns of an image of one row."""
    x, size = required(node, operands, 0), int(node.attrs["size"])
    if size < 1 or x.rank < 2 or not x.dtype.is_float:
        return None
    wide = widened(builder, x)
    images, channels, *spatial = shape_of(x)
    before = (size - 1) // 2
    window = WindowAxis(channels, size, 1, 1, (before, size - 1 - before), channels)
    row = builder.reshape(builder.mul(wide, wide), (images, 1, channels, product(spatial)))
    sums = builder.reshape(builder.pool_sum(row, window_over(planar((window,)))), shape_of(x))
    factor = float(node.attrs.get("alpha", 1e-4)) / size
    base = shifted(builder, scaled(builder, sums, factor), float(node.attrs.get("bias", 1.0)))
    exponent = builder.scalar(-float(node.attrs.get("beta", 0.75)), base.dtype)
    return [builder.cast(builder.mul(wide, builder.pow(base, exponent)), x.dtype)]


@decomposition("MeanVarianceNormalization")
def mean_variance_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axes = node.attrs.get("axes", (0, 2, 3))
    # Of images by default; of axes that a tensor has not, onnxruntime takes the others.
    axes = normalize_axes(node, [axis for axis in axes if axis < x.rank] or axes, x.rank)
    _, centred, variance = _moments(builder, widened(builder, x), axes)
    deviation = shifted(builder, builder.sqrt(variance), 1e-9)
    return [builder.cast(builder.div(centred, deviation), x.dtype)]
