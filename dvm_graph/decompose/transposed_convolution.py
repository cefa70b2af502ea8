"""Transposed convolutions: convolutions that compute a block of outputs at each position.

With a stride of s, an output at q * s + r comes from the inputs up to q with every s-th tap, those
from r on: a convolution of stride 1 with the taps dealt out to s * s times as many channels, which
are then interleaved in space. The stride has to divide the kernel: else some of the channels would
have taps of 0, which cost time and make NaN of what is not finite.
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
from dvm_graph.decompose.windows import channels_first, channels_last, per_axis
from dvm_graph.ir import Dim, Node, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.builder_methods import Window
from dvm_graph.symbolic.dims import add, ceildiv, mul


@dataclass(frozen=True, slots=True)
class _Axis:
    """A transposed convolution along one axis."""

    stride: int
    taps: int
    """Of each output."""
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
    """With constant weights, strides that divide the kernel, and pads that say what the size is."""
    x, bias = required(node, operands, 0), operand(operands, 2)
    weights = contents(widened_weights(builder, required(node, operands, 1)))
    groups = int(node.attrs.get("group", 1))
    if weights is None or not x.dtype.is_float or x.rank not in (3, 4) or weights.ndim != x.rank:
        return None
    if not np.isfinite(weights).all():  # the zeros around the image make NaN of them
        return None
    if groups < 1 or len(weights) % groups != 0:
        return None
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


_FLAT = _Axis(stride=1, taps=1, pad=0, crop=0, size=1)


def _axes(node: Node, spatial: Sequence[Dim], kernel: Sequence[int]) -> tuple[_Axis, _Axis] | None:
    count = len(kernel)
    strides, dilations = per_axis(node, "strides", count), per_axis(node, "dilations", count)
    more, pads = per_axis(node, "output_padding", count, 0), per_axis(node, "pads", 2 * count, 0)
    if strides is None or dilations is None or more is None or pads is None:
        return None
    given = text(node, "auto_pad", "NOTSET") in ("NOTSET", "VALID")
    divided = all(taps % stride == 0 for taps, stride in zip(kernel, strides, strict=True))
    if not given or node.attrs.get("output_shape") or not divided or set(dilations) != {1}:
        return None
    axes = []
    for extent, taps, stride, begin, end, extra in zip(
        spatial, kernel, strides, pads[:count], pads[count:], more, strict=True
    ):
        size = add(mul(add(extent, -1), stride), taps + extra - begin - end)
        first, crop = divmod(begin, stride)
        axes.append(_Axis(stride, taps // stride, taps // stride - 1 - first, crop, size))
    if any(axis.pad < 0 for axis in axes):
        return None
    return (_FLAT, axes[0]) if count == 1 else (axes[0], axes[1])


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
    channels, outputs = weights.shape[:2]
    rows, columns = axes
    inputs = channels // groups
    dealt = weights.reshape(
        groups, inputs, outputs, rows.taps, rows.stride, columns.taps, columns.stride
    )
    # A window meets the last of the inputs that an output comes from with its first tap.
    dealt = dealt[:, :, :, ::-1, :, ::-1, :].transpose(0, 4, 6, 2, 1, 3, 5)
    return np.ascontiguousarray(dealt).reshape(-1, inputs, rows.taps, columns.taps)
