"""Transposed convolutions: a convolution of stride 1 for each phase of the outputs, interleaved in space.

Along an axis of stride s and dilation d, tap t of input i adds to output i * s + t * d, pads aside. So an output at
q * s + r, of phase r, has every (s / g)-th tap from the first one with t * d = r modulo s, g being what s and d have
in common; these meet the inputs up to q, d / g apart: a window of stride 1, with its taps in reverse. A phase that no
tap reaches, as there are where strides are longer than kernels, is 0.

Neighbouring phases whose windows lie alike are one convolution with so many times the outputs: all of them, where the
stride divides the kernel. No tap is there twice, and none is 0 to fill a window.

Where all taps of all outputs together are few beside the channels, as those of decoders of sound are, a window would be many
times what it gives. There each input is multiplied by all taps at once, and what they give to one output is added.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dvm_graph.decompose.arithmetic import filled, widened
from dvm_graph.decompose.convolution import arranged, convolved, widened_weights
from dvm_graph.decompose.operands import operand, required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import padded, part
from dvm_graph.decompose.windows import WindowAxis, channels_first, channels_last, per_axis
from dvm_graph.ir import Dim, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, ceildiv, floordiv, maximum, mul, sub
from dvm_graph.symbolic.folding import contents

_FEW_OUTPUTS = 32
"""Of one position: no more than a panel of a matrix product has columns, most of which would be padding (`benchmarks.units.alone`,
decoders of sound).
"""


@dataclass(frozen=True, slots=True)
class Phases:
    """Neighbouring phases of the outputs whose windows meet the same inputs."""

    taps: tuple[tuple[int, ...], ...]
    """Of each phase, from the first input of its window to the last."""
    back: int
    """How far the first input of a window lies before the position."""
    dilation: int


@dataclass(frozen=True, slots=True)
class SpreadAxis:
    """A transposed convolution along one axis."""

    extent: Dim
    stride: int
    phases: tuple[Phases, ...]
    first: int
    """Position of the first output that is computed."""
    crop: Dim
    """Outputs to drop at the front."""
    size: Dim
    dilation: int = 1

    @property
    def positions(self) -> Dim:
        return ceildiv(add(self.size, self.crop), self.stride)

    def window(self, phases: Phases) -> WindowAxis:
        taps = len(phases.taps[0])
        before = phases.back - self.first
        reach = phases.dilation * (taps - 1)
        after = sub(add(self.positions, reach - before), self.extent)
        pads = (before, maximum(0, after))
        return WindowAxis(self.extent, taps, 1, phases.dilation, pads, self.positions)


@decomposition("ConvTranspose")
def transposed_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    x, bias = required(node, operands, 0), operand(operands, 2)
    weights = widened_weights(builder, required(node, operands, 1))
    if not x.dtype.is_float or x.rank not in (3, 4, 5) or weights.rank != x.rank:
        return None
    known = contents(weights)
    if known is not None and not np.isfinite(known).all():
        return None  # the zeros around the image make NaN of them
    groups = int(node.attrs.get("group", 1))
    shape = [dim for dim in shape_of(weights) if isinstance(dim, int)]
    if len(shape) != x.rank or 0 in shape or groups < 1 or shape[0] % groups != 0:
        return None
    meet_one = tuple(shape[2:]) == per_axis(node, "strides", x.rank - 2)  # outputs one input each
    apart = groups == shape[0] and shape[1] == 1  # channels by themselves, as far as phases are
    apart = apart and (groups > 1 or not meet_one)
    axes = _axes(node, shape_of(x)[2:], shape[2:], apart)
    if axes is None:
        return None
    y = spread(builder, channels_last(builder, widened(builder, x)), weights, axes, groups)
    if bias is not None:
        y = builder.add(y, widened(builder, bias))
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


_FLAT = SpreadAxis(1, 1, (Phases(((0,),), 0, 1),), 0, 0, 1)
"""The height of images that have none."""


def _axes(
    node: Node, spatial: Sequence[Dim], kernel: Sequence[int], apart: bool
) -> list[SpreadAxis] | None:
    """None: attributes are malformed."""
    count = len(kernel)
    strides, dilations = per_axis(node, "strides", count), per_axis(node, "dilations", count)
    more, pads = per_axis(node, "output_padding", count, 0), per_axis(node, "pads", 2 * count, 0)
    if strides is None or dilations is None or more is None or pads is None:
        return None
    given = tuple(int(size) for size in node.attrs.get("output_shape") or ())
    if len(given) not in (0, count, count + 2) or any(size < 0 for size in given):
        return None
    sizes = given[-count:] if given else (None,) * count
    automatic = text(node, "auto_pad", "NOTSET")
    axes = []
    for at, (extent, taps, stride, dilation) in enumerate(
        zip(spatial, kernel, strides, dilations, strict=True)
    ):
        reach = dilation * (taps - 1)
        whole = add(mul(add(extent, -1), stride), reach + 1 + more[at])
        size: Dim | None = sizes[at]
        begin: Dim = pads[at]
        if size is None and automatic.startswith("SAME"):
            size = mul(extent, stride)
        if size is None:
            size = sub(whole, pads[at] + pads[count + at])
        elif sizes[at] is not None or automatic.startswith("SAME"):
            total = maximum(0, sub(whole, size))
            smaller = floordiv(total, 2)
            begin = smaller if automatic == "SAME_UPPER" else sub(total, smaller)
            size = sub(whole, total) if sizes[at] is None else size
        axes.append(spread_axis(extent, taps, stride, dilation, begin, size, apart))
    return axes


def spread_axis(
    extent: Dim, kernel: int, stride: int, dilation: int, begin: Dim, size: Dim, apart: bool
) -> SpreadAxis:
    """`size` outputs from `begin` on; `apart`: channels are by themselves."""
    phases = _phases(kernel, stride, dilation, apart)
    nearest = min((phase.back for phase in phases if phase.taps[0]), default=0)
    first = min(begin // stride, nearest) if isinstance(begin, int) else 0
    return SpreadAxis(extent, stride, phases, first, sub(begin, first * stride), size, dilation)


def _phases(kernel: int, stride: int, dilation: int, apart: bool) -> tuple[Phases, ...]:
    """All phases, in order; `apart`: each for itself."""
    common = math.gcd(stride, dilation)
    found: list[Phases] = []
    for phase in range(stride):
        reaching = range(kernel) if dilation % stride == 0 else range(min(kernel, stride))
        start = next((tap for tap in reaching if tap * dilation % stride == phase), kernel)
        taps = tuple(range(start, kernel, stride // common))[::-1]
        back = (taps[0] * dilation - phase) // stride if taps else 0
        last = found[-1] if found else None
        if last and not apart and last.back == back and _go_on(last.taps, taps):
            found[-1] = Phases((*last.taps, taps), back, last.dilation)
        else:
            found.append(Phases((taps,), back, dilation // common))
    return tuple(found)


def _go_on(phases: Sequence[Sequence[int]], taps: Sequence[int]) -> bool:
    """Whether the taps of a further phase are as many, and as far from those of the last one as these are from the one before."""
    if len(phases[-1]) != len(taps):
        return False
    near = phases[-2:]
    return not taps or len(near) == 1 or taps[0] - near[1][0] == near[1][0] - near[0][0]


def spread(
    builder: Builder, image: Value, weights: Value, axes: Sequence[SpreadAxis], groups: int
) -> Value:
    """`image` channels-last by `weights` [channels, outputs, kernel...]; the result is channels-last, too."""
    if len(axes) == 1:
        y = _scattered(builder, image, weights, axes[0], groups)
        if y is not None:
            return y
        axes = [_FLAT, *axes]
        weights = builder.reshape(weights, (*shape_of(weights)[:2], 1, *shape_of(weights)[2:]))
    outputs = groups * int(shape_of(weights)[1])

    def block(phases: Sequence[Phases]) -> Value:
        return _block(builder, image, weights, axes, phases, groups)

    return interleaved(builder, axes, (shape_of(image)[0], outputs), block)


def _scattered(
    builder: Builder, image: Value, weights: Value, axis: SpreadAxis, groups: int
) -> Value | None:
    """What the inputs [batch, 1, positions, channels] give to the outputs at their taps, added up: [batch, 1, size, outputs].

    Taps make up rows of as many as a stride: the j-th row of an input belongs to the outputs j positions behind. None: windows
    are better, or weights are not known, or taps are apart.
    """
    data = contents(weights)
    if data is None or groups > 1 or axis.dilation > 1:
        return None
    channels, outputs, kernel = data.shape
    stride, width = axis.stride, axis.stride * outputs
    if width > _FEW_OUTPUTS or outputs * kernel > channels:
        return None
    begin = add(axis.crop, axis.first * stride)
    last = mul(sub(axis.extent, 1), stride)  # of the outputs, where the last input begins
    reach = builder.facts.canonical(sub(add(axis.size, begin), last))
    if not isinstance(reach, int):
        return None
    taken = -(-kernel // stride)
    rows = max(taken, -(-reach // stride))
    taps = np.ascontiguousarray(data.transpose(2, 1, 0)).reshape(kernel * outputs, channels)
    columns = builder.transpose(image, (0, 1, 3, 2))
    given = builder.matmul(builder.constant(taps), columns)  # [batch, 1, taps * outputs, positions]
    zero = builder.scalar(0, image.dtype)

    def row(at: int) -> Value:
        count = min(width, kernel * outputs - at * width)
        found = part(builder, given, 2, at * width, count)
        found = padded(builder, found, 2, 0, width - count, zero)
        return padded(builder, found, 3, at, rows - 1 - at, zero)

    y = reduce(builder.add, map(row, range(taken)))
    batch = shape_of(image)[0]
    room = mul(add(axis.extent, rows - 1), stride)
    y = builder.reshape(builder.transpose(y, (0, 1, 3, 2)), (batch, 1, room, outputs))
    return builder.slice(y, (0, 0, begin, 0), (batch, 1, axis.size, outputs))


def interleaved(
    builder: Builder,
    axes: Sequence[SpreadAxis],
    around: tuple[Dim, Dim],
    block: Callable[[Sequence[Phases]], Value],
) -> Value:
    """[batch, places..., channels] of blocks [batch, positions, phases, ..., channels] for neighbouring phases of each
    axis; `around`: batch and channels.
    """
    batch, outputs = around
    blocks = [block(phases) for phases in itertools.product(*(axis.phases for axis in axes))]
    for at in reversed(range(len(axes))):  # the last axis changes first
        several = len(axes[at].phases)
        rows = [blocks[start : start + several] for start in range(0, len(blocks), several)]
        blocks = [builder.concat(row, 2 + 2 * at) if several > 1 else row[0] for row in rows]
    (y,) = blocks
    whole = [mul(axis.positions, axis.stride) for axis in axes]
    y = builder.reshape(y, (batch, *whole, outputs))
    sizes = (batch, *(axis.size for axis in axes), outputs)
    if shape_of(y) == sizes:
        return y
    return builder.slice(y, (0, *(axis.crop for axis in axes), 0), sizes)


def _block(
    builder: Builder,
    image: Value,
    weights: Value,
    axes: Sequence[SpreadAxis],
    phases: Sequence[Phases],
    groups: int,
) -> Value:
    """[batch, positions, phases, ..., channels], positions and phases of each axis."""
    channels, outputs = (int(extent) for extent in shape_of(weights)[:2])
    batch, count = shape_of(image)[0], len(axes)
    numbers = [len(phase.taps) for phase in phases]
    positions = [axis.positions for axis in axes]
    taps = [len(phase.taps[0]) for phase in phases]
    places = [dim for pair in zip(positions, numbers, strict=True) for dim in pair]
    if 0 in taps:
        return filled(builder, 0, image.dtype, (batch, *places, groups * outputs))
    kernel = shape_of(weights)[2:]
    dealt = builder.reshape(weights, (groups, channels // groups, outputs, *kernel))
    dealt = _picked(builder, dealt, [phase.taps for phase in phases])
    order = (0, *range(3, 3 + 2 * count, 2), 2, 1, *range(4, 4 + 2 * count, 2))
    shape = (groups * math.prod(numbers) * outputs, channels // groups, *taps)
    dealt = arranged(builder, dealt, order, shape)
    windows = [axis.window(phase) for axis, phase in zip(axes, phases, strict=True)]
    y = convolved(builder, image, dealt, windows, groups)
    if math.prod(numbers) == 1:
        return builder.reshape(y, (batch, *places, groups * outputs))
    y = builder.reshape(y, (batch, *positions, groups, *numbers, outputs))
    pairs = [axis for at in range(count) for axis in (1 + at, 2 + count + at)]
    y = builder.transpose(y, (0, *pairs, 1 + count, 2 + 2 * count))
    return builder.reshape(y, (batch, *places, groups * outputs))


def _picked(builder: Builder, weights: Value, taps: Sequence[Sequence[Sequence[int]]]) -> Value:
    """Taps of phases, as two axes in place of each of the last ones; of constants at once."""
    shape = [int(extent) for extent in shape_of(weights)]
    rest = len(shape) - len(taps)
    data = contents(weights)
    if data is not None:
        for at, numbers in enumerate(taps):
            data = np.take(data, np.array(numbers, np.int64), rest + 2 * at)
        return builder.constant(data)
    steps = [math.prod(shape[1 + axis :]) for axis in range(len(shape))]
    sizes, strides, offset = shape[:rest], steps[:rest], 0
    for numbers, step in zip(taps, steps[rest:], strict=True):
        offset += numbers[0][0] * step
        for several in ([phase[0] for phase in numbers], numbers[0]):
            sizes.append(len(several))
            strides.append((several[1] - several[0]) * step if len(several) > 1 else 0)
    return builder.op("view", weights, shape=tuple(sizes), strides=tuple(strides), offset=offset)
