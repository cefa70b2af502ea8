"""Col2Im: what blocks give to the places of an image that they lie over, added up.

The blocks are the windows of a convolution over that image, and nothing is scattered: as in a transposed convolution
(`transposed_convolution`), places of one phase are under the same elements of so many neighbouring blocks. Blocks that lie side
by side without overlapping are the image but for the order of its axes.

Left to the vendor library: blocks of images of which many parts would be read one by one, to be added.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce

from dvm_graph.decompose.arithmetic import filled, widened
from dvm_graph.decompose.operands import elements, integers, required
from dvm_graph.decompose.registry import Operands, Results, decomposition, unless
from dvm_graph.decompose.slicing import padded, part
from dvm_graph.decompose.transposed_convolution import (
    Phases,
    SpreadAxis,
    interleaved,
    spread_axis,
)
from dvm_graph.decompose.windows import per_axis, spatial_axes
from dvm_graph.ir import Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import floordiv, maximum, mul, product

_MANY = 8
"""Parts of the blocks that are added, from which on onnxruntime, which goes over the blocks once, is faster: blocks of 3 x 3 have
nine, those of 16 x 16 at every eighth place four.
"""
_MOST = 256
"""Parts that become operators, of images of other axes and under `strict`."""


def _are_many_of_planes(node: Node, operands: Operands) -> bool:
    """What onnxruntime gives for blocks of other than two axes is no sum of them, if they have pads or dilations."""
    kernel = integers(elements(operands, 2)) or ()
    count = len(kernel)
    strides, dilations = per_axis(node, "strides", count), per_axis(node, "dilations", count)
    if count != 2 or strides is None or dilations is None or min(kernel) < 1:
        return False
    moves = zip(kernel, strides, dilations, strict=True)
    return _parts([spread_axis(1, *move, 0, 1, apart=False) for move in moves]) > _MANY


@decomposition("Col2Im")
@unless(_are_many_of_planes)
def overlapping_blocks(builder: Builder, node: Node, operands: Operands) -> Results:
    """[batch, channels * elements of a block, blocks] to [batch, channels, image...]."""
    x, image = required(node, operands, 0), elements(operands, 1)
    kernel = integers(elements(operands, 2))
    if not x.dtype.is_float or x.rank != 3 or image is None or not kernel:
        return None
    windows = spatial_axes(node, image, kernel) if len(image) == len(kernel) else None
    if windows is None:
        return None
    axes = [
        spread_axis(w.size, w.kernel, w.stride, w.dilation, w.pads[0], w.extent, apart=False)
        for w in windows
    ]
    if _parts(axes) > _MOST:
        return None
    batch, rows, blocks = shape_of(x)
    places = [window.size for window in windows]
    channels = floordiv(rows, math.prod(kernel))
    reason = f"{node.op} {node.name!r} has so many blocks of so many elements"
    builder.facts.assume_equal(rows, mul(channels, math.prod(kernel)), reason)
    builder.facts.assume_equal(blocks, product(places), reason)
    planes = mul(batch, channels)
    given = builder.reshape(widened(builder, x), (planes, *kernel, *places))
    zero = builder.scalar(0, given.dtype)
    before = [max(axis.window(phase).pads[0] for phase in axis.phases) for axis in axes]
    for at, axis in enumerate(axes):
        after = reduce(maximum, [axis.window(phase).pads[1] for phase in axis.phases])
        given = padded(builder, given, 1 + len(axes) + at, before[at], after, zero)

    def block(phases: Sequence[Phases]) -> Value:
        return _block(builder, given, before, axes, phases)

    y = interleaved(builder, axes, (planes, 1), block)
    return [builder.cast(builder.reshape(y, (batch, channels, *image)), x.dtype)]


def _parts(axes: Sequence[SpreadAxis]) -> int:
    """That are read and added, for the places of all phases."""
    return math.prod(sum(len(phase.taps[0]) for phase in axis.phases) for axis in axes)


def _block(
    builder: Builder,
    given: Value,
    before: Sequence[int],
    axes: Sequence[SpreadAxis],
    phases: Sequence[Phases],
) -> Value:
    """The sums [planes, positions, phases, ..., 1] of elements [planes, taps..., blocks...], positions and phases of each axis.

    `before`: how many zeros lie before the blocks along each axis.
    """
    count, planes = len(axes), shape_of(given)[0]
    numbers = [(axis.positions, len(phase.taps)) for axis, phase in zip(axes, phases, strict=True)]
    shape = (planes, *itertools.chain(*numbers), 1)
    taps = [len(phase.taps[0]) for phase in phases]
    if 0 in taps:
        return filled(builder, 0, given.dtype, shape)
    parts = []
    for each in itertools.product(*map(range, taps)):
        found = given
        for at, (tap, axis, phase) in enumerate(zip(each, axes, phases, strict=True)):
            first, *more = (row[tap] for row in phase.taps)
            step = more[0] - first if more else 1
            found = part(builder, found, 1 + at, first, len(phase.taps), step)
            window = axis.window(phase)
            begin = before[at] - window.pads[0] + tap * window.dilation
            found = part(builder, found, 1 + count + at, begin, window.size)
        parts.append(found)
    total = reduce(builder.add, parts)
    order = [axis for at in range(count) for axis in (1 + count + at, 1 + at)]
    return builder.reshape(builder.transpose(total, (0, *order)), shape)
