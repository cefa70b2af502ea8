"""Transposed convolutions: convolutions that compute a block of outputs at each position.

With a stride of s, an output at q * s + r comes from the inputs up to q with every s-th tap, those
from r on: a convolution of stride 1 with the taps dealt out to s * s times as many channels, which
are then interleaved in space. Kernels that their stride does not divide are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.convolution import contents, convolved, widened_weights
from dvm_graph.decompose.operands import operand, required, shape_of, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.windows import channels_first, channels_last
from dvm_graph.ir import Dim, Node, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.builder_methods import Window
from dvm_graph.symbolic.dims import add, ceildiv, mul


@dataclass(frozen=True, slots=True)
class _Axis:
    """A transposed convolution along one axis."""

    stride: int
    dilation: int
    taps: int
    """Of each output, zeros included."""
    pad: int
    """Before the image, for the convolution."""
    crop: int
    """Outputs to drop at the front."""
    size: Dim

    @property
    def positions(self) -> Dim:
        """Of the convolution."""
        return ceildiv(add(self.size, self.crop), self.stride)


@decomposition("ConvTranspose")
def transposed_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    """With constant weights, and pads that say what the size of the result is."""
    x, bias = required(node, operands, 0), operand(operands, 2)
    weights = contents(widened_weights(builder, required(node, operands, 1)))
    if weights is None or not x.dtype.is_float or x.rank not in (3, 4) or weights.ndim != x.rank:
        return None
    groups = int(node.attrs.get("group", 1))
    axes = _axes(node, shape_of(x)[2:], weights.shape[2:])
    if axes is None:
        return None
    image = channels_last(builder, widened(builder, x))
    if x.rank == 3:
        weights = weights[:, :, None]
    y = _interleaved(builder, image, weights, axes, groups)
    if bias is not None:
        y = builder.add(y, widened(builder, bias))
    return [channels_first(builder, builder.cast(y, x.dtype), x.rank)]


_FLAT = _Axis(stride=1, dilation=1, taps=1, pad=0, crop=0, size=1)


def _axes(node: Node, spatial: Sequence[Dim], kernel: Sequence[int]) -> tuple[_Axis, _Axis] | None:
    given = text(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
    if not given or node.attrs.get("output_shape"):
        return None
    axes = [_axis(node, i, spatial[i], kernel[i], len(kernel)) for i in range(len(kernel))]
    if any(axis.pad < 0 for axis in axes):
        return None
    return (_FLAT, axes[0]) if len(axes) == 1 else (axes[0], axes[1])


def _axis(node: Node, index: int, extent: Dim, kernel: int, rank: int) -> _Axis:
    def attribute(name: str, default: int, at: int = index) -> int:
        listed = node.attrs.get(name, ())
        return int(listed[at]) if listed else default

    stride, dilation = attribute("strides", 1), attribute("dilations", 1)
    begin, end = attribute("pads", 0), attribute("pads", 0, index + rank)
    reach = dilation * (kernel - 1) + 1
    taps = -(-reach // stride)
    more = reach + attribute("output_padding", 0) - begin - end
    size = add(mul(add(extent, -1), stride), more)
    first, crop = divmod(begin, stride)
    return _Axis(stride, dilation, taps, taps - 1 - first, crop, size)


def _interleaved(
    builder: Builder,
    image: Value,
    weights: NDArray[Any],
    axes: tuple[_Axis, _Axis],
    groups: int,
) -> Value:
    """`image` [batch, height, width, channels] by `weights` [channels, outputs, kernel...]."""
    rows, columns = axes
    outputs = weights.shape[1]
    y = convolved(
        builder,
        image,
        builder.constant(_dealt(weights, axes, groups)),
        Window(
            kernel=(rows.taps, columns.taps),
            strides=(1, 1),
            dilations=(1, 1),
            pads=(rows.pad, columns.pad),
            size=(rows.positions, columns.positions),
        ),
        groups,
    )
    batch = shape_of(image)[0]
    high, wide = rows.positions, columns.positions
    y = builder.reshape(y, (batch, high, wide, groups, rows.stride, columns.stride, outputs))
    y = builder.transpose(y, (0, 1, 4, 2, 5, 3, 6))
    whole = (mul(high, rows.stride), mul(wide, columns.stride))
    channels = groups * outputs
    y = builder.reshape(y, (batch, *whole, channels))
    sizes = (batch, rows.size, columns.size, channels)
    if shape_of(y) == sizes:
        return y
    return builder.slice(y, (0, rows.crop, columns.crop, 0), sizes)


def _dealt(weights: NDArray[Any], axes: tuple[_Axis, _Axis], groups: int) -> NDArray[Any]:
    """Weights of the convolution, [groups * strides... * outputs, channels of a group, taps...]."""
    channels, outputs, *kernel = weights.shape
    rows, columns = axes
    full = np.zeros(
        (channels, outputs, rows.taps * rows.stride, columns.taps * columns.stride), weights.dtype
    )
    reach = [axis.dilation * (taps - 1) + 1 for axis, taps in zip(axes, kernel, strict=True)]
    full[:, :, : reach[0] : rows.dilation, : reach[1] : columns.dilation] = weights
    inputs = channels // groups
    dealt = full.reshape(
        groups, inputs, outputs, rows.taps, rows.stride, columns.taps, columns.stride
    )
    # A window meets the last of the inputs that an output comes from with its first tap.
    dealt = dealt[:, :, :, ::-1, :, ::-1, :].transpose(0, 4, 6, 2, 1, 3, 5)
    return np.ascontiguousarray(dealt).reshape(-1, inputs, rows.taps, columns.taps)
