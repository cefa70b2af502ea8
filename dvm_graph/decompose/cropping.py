"""Parts of images that a Resize scales, `tf_crop_and_resize`: where they lie, and what reaches beyond the image.

Positions are computed in float32 in the order in which onnxruntime computes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from dvm_graph.decompose.arithmetic import along_axis, dim_value, scalar_of
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, DType, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add


@dataclass(frozen=True, slots=True)
class Crop:
    """Where a part begins and ends along an axis, whose first element is at 0 and last one at 1; float32, of rank 0."""

    start: Value
    end: Value

    def position(self, builder: Builder, index: Value, extent: Dim, size: Dim) -> Value:
        """Where along the axis results lie, given their numbers; a single one in the middle."""
        last, end = (dim_value(builder, add(dim, -1), DType.FLOAT32) for dim in (extent, size))
        way = builder.mul(builder.mul(index, builder.sub(self.end, self.start)), last)
        several = builder.add(builder.mul(self.start, last), builder.div(way, end))
        half = builder.scalar(0.5, DType.FLOAT32)
        middle = builder.mul(builder.mul(half, builder.add(self.start, self.end)), last)
        one = builder.eq(dim_value(builder, size), builder.scalar(1, DType.INT64))
        return builder.select(one, middle, several)


def crops(builder: Builder, roi: Value, order: Sequence[int]) -> dict[int, Crop]:
    """By axis: `roi` has where they all begin, and then where they end."""
    ends = [
        scalar_of(builder, part(builder, roi, 0, at, 1), DType.FLOAT32)
        for at in range(2 * len(order))
    ]
    pairs = zip(ends, ends[len(order) :], strict=False)
    return {axis: Crop(*pair) for axis, pair in zip(order, pairs, strict=True)}


def beyond(builder: Builder, position: Value, extent: Dim) -> Value:
    """Whether positions lie before the first element or behind the last one."""
    before = builder.lt(position, builder.scalar(0, DType.FLOAT32))
    last = dim_value(builder, add(extent, -1), DType.FLOAT32)
    return builder.bitwise_or(before, builder.lt(last, position))


def fill_beyond(builder: Builder, y: Value, outside: Mapping[int, Value], number: float) -> Value:
    """`y` with a number wherever a position is outside along some axis."""
    if not outside:
        return y
    masks = (along_axis(builder, mask, axis, y.rank) for axis, mask in outside.items())
    return builder.select(reduce(builder.bitwise_or, masks), builder.scalar(number, y.dtype), y)
