"""Windows over images, as convolutions and pools move them: sizes, pads, and the channels-last form.

Basic operators read images as [batch, height, width, channels]. Images of rank 3 get a height of 1; volumes, of rank 5,
are [batch, depth, height, width, channels], of which patches are read, and become such images slice by slice for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from dvm_graph.decompose.operands import constant_scalar, integers, text
from dvm_graph.ir import OPERATORS, Dim, Kind, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.builder_methods import Window
from dvm_graph.symbolic.dims import add, ceildiv, floordiv, less_equal, maximum, minimum, mul, sub
from dvm_graph.symbolic.folding import contents


@dataclass(frozen=True, slots=True)
class WindowAxis:
    """How a window moves along one axis of an image."""

    extent: Dim
    kernel: int
    stride: int
    dilation: int
    pads: tuple[Dim, Dim]
    size: Dim
    """Positions of the window."""

    @property
    def reach(self) -> Dim:
        """Elements of the padded axis that windows lie over."""
        return add(mul(sub(self.size, 1), self.stride), self.dilation * (self.kernel - 1) + 1)

    @property
    def lacking(self) -> Dim:
        """Elements behind the image that windows lie over."""
        return maximum(0, sub(self.reach, add(self.extent, self.pads[0])))


_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
FLAT = WindowAxis(1, 1, 1, 1, (0, 0), 1)
"""The height of images that have none."""


_MOST = 2**31 - 1
"""Of the sizes of a window, in kernels."""


def channels_last(builder: Builder, x: Value) -> Value:
    """[batch, channels, ((depth,) height,) width] as [batch, (depth,) height, width, channels]."""
    if x.rank == 3:
        batch, channels, width = shape_of(x)
        x = builder.reshape(x, (batch, channels, 1, width))
    return builder.transpose(x, (0, *range(2, x.rank), 1))


def channels_first(builder: Builder, y: Value, rank: int) -> Value:
    """The way back to rank 3, 4 or 5."""
    y = builder.transpose(y, (0, y.rank - 1, *range(1, y.rank - 1)))
    if rank >= 4:
        return y
    batch, channels, _, width = shape_of(y)
    return builder.reshape(y, (batch, channels, width))


_CARRIES_ORDER = frozenset({"concat", "reshape", "slice", "gather", "broadcast_to", "transpose"})
"""Operators that transposes move behind, besides element-wise ones and reductions (`passes/sink_transposes.py`)."""


def comes_channels_last(x: Value) -> bool:
    """Whether [batch, channels, ...] is computed, as far back as to products, from what channels-last images or rows of tokens
    were turned to.
    """
    waiting, seen = [x], {x}
    while waiting:
        node = waiting.pop().producer
        if node is None:
            continue
        if node.op == "transpose":
            perm = tuple(node.attrs["perm"])
            if len(perm) >= 3 and perm == (0, len(perm) - 1, *range(1, len(perm) - 1)):
                return True
        if node.op in _CARRIES_ORDER or OPERATORS[node.op].kind in (Kind.MAP, Kind.REDUCE):
            new = {value for value in node.inputs if value is not None} - seen
            seen |= new
            waiting += new
    return False


def per_axis(node: Node, name: str, count: int, default: int = 1) -> tuple[int, ...] | None:
    """An attribute with a number for each spatial axis, or two for pads; None: it is malformed,
    or larger than kernels count.
    """
    listed = tuple(int(number) for number in node.attrs.get(name, ())) or (default,) * count
    within = all(default <= number <= _MOST for number in listed)
    return listed if len(listed) == count and within else None


def planar(axes: Sequence[WindowAxis]) -> tuple[WindowAxis, WindowAxis]:
    """One or two axes as rows and columns."""
    return (FLAT, axes[0]) if len(axes) == 1 else (axes[0], axes[1])


def spatial_axes(
    node: Node, spatial: Sequence[Dim], kernel: Sequence[Dim] | None
) -> list[WindowAxis] | None:
    """How a window moves along each axis; None: its kernel is not known, there are more than three
    spatial axes, or attributes are malformed.
    """
    known = integers(kernel)
    if known is None or len(known) not in (1, 2, 3) or len(known) != len(spatial):
        return None
    count = len(known)
    strides, dilations = per_axis(node, "strides", count), per_axis(node, "dilations", count)
    pads = per_axis(node, "pads", 2 * count, 0)
    if (
        strides is None
        or dilations is None
        or pads is None
        or not all(1 <= size <= _MOST for size in known)
    ):
        return None
    return [
        _axis(node, *axis)
        for axis in zip(spatial, known, strides, dilations, pads[:count], pads[count:], strict=True)
    ]


def over_padded(node: Node, image: Value, weights: Value) -> tuple[Value, list[WindowAxis] | None]:
    """What the windows of a convolution move over: zeros that operators put around an image [batch, channels, ...] are pads as
    well, so that no pass makes a larger image of it. The axes are as from `spatial_axes`.

    Not where pads follow from the extent of the image, nor where weights may not be finite: those give NaN with zeros, and
    nothing with pads.
    """
    axes = spatial_axes(node, shape_of(image)[2:], shape_of(weights)[2:])
    if text(node, "auto_pad", "NOTSET") not in ("NOTSET", "VALID") or _bordered(image) is None:
        return image, axes
    data = contents(weights)
    if data is None or not np.isfinite(data).all():
        return image, axes
    while axes is not None:
        found = _bordered(image)
        if found is None:
            break
        image, axis, before, after = found
        old = axes[axis - 2]
        pads = add(old.pads[0], before), add(old.pads[1], after)
        axes[axis - 2] = replace(old, extent=shape_of(image)[axis], pads=pads)
    return image, axes


def _bordered(image: Value) -> tuple[Value, int, Dim, Dim] | None:
    """An image within zeros, the axis along which they lie, and how many there are on each side."""
    node = image.made_by("concat")
    if node is None or node.attrs["axis"] < 2:
        return None
    axis, pieces = node.attrs["axis"], [piece for piece in node.inputs if piece is not None]
    inner = [at for at, piece in enumerate(pieces) if not _is_zeros(piece)]
    if len(inner) != 1:
        return None
    extents = [shape_of(piece)[axis] for piece in pieces]
    before, after = reduce(add, extents[: inner[0]], 0), reduce(add, extents[inner[0] + 1 :], 0)
    return pieces[inner[0]], axis, before, after


def _is_zeros(value: Value) -> bool:
    while (spread := value.made_by("broadcast_to")) is not None:
        value = spread.required(0)
    return constant_scalar(value) == 0


def window_over(axes: Sequence[WindowAxis]) -> Window:
    return Window(
        kernel=tuple(axis.kernel for axis in axes),
        strides=tuple(axis.stride for axis in axes),
        dilations=tuple(axis.dilation for axis in axes),
        pads=tuple(axis.pads[0] for axis in axes),
        size=tuple(axis.size for axis in axes),
    )


def _axis(
    node: Node, extent: Dim, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> WindowAxis:
    reach = dilation * (kernel - 1)
    automatic = text(node, "auto_pad", "NOTSET")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        size = ceildiv(extent, stride)
        total = maximum(0, add(mul(sub(size, 1), stride), sub(reach + 1, extent)))
        smaller = floordiv(total, 2)
        larger = sub(total, smaller)
        pads = (smaller, larger) if automatic == "SAME_UPPER" else (larger, smaller)
        if stride > reach + 2:
            # What lies behind the last window is shared out as pads are, with the signs of C's division: onnxruntime's
            # first window is the middle of a stride.
            left = sub(extent, add(mul(sub(size, 1), stride), reach + 2))
            skipped = floordiv(maximum(0, left if automatic == "SAME_UPPER" else sub(left, 1)), 2)
            pads = sub(pads[0], skipped), pads[1]
        return WindowAxis(extent, kernel, stride, dilation, pads, size)
    if automatic == "VALID":
        begin = end = 0
    room = add(extent, begin + end - reach - 1)
    size = add(floordiv(room, stride), 1)
    if node.attrs.get("ceil_mode", 0):
        size = add(ceildiv(room, stride), 1)
        if stride + end >= reach + 2:  # or the last one starts at most `stride - 1` behind `room`
            # No window starts behind the image and the pad before it.
            beyond = less_equal(add(extent, begin), mul(sub(size, 1), stride))
            size = sub(size, beyond)
    elif node.op in _POOLS and stride > 1 and begin + end <= reach:
        # onnxruntime divides as C does, so that a window that is larger than the image by less than
        # a stride is one that is cut off.
        size = maximum(size, minimum(1, maximum(0, sub(extent, reach + 1 - begin - end - stride))))
    return WindowAxis(extent, kernel, stride, dilation, (begin, end), size)
