"""What products and convolutions of quantised operands have in common, whichever operators say that they are quantised."""

from __future__ import annotations

import math

import numpy as np

from dvm_graph.decompose.arithmetic import along_axis
from dvm_graph.decompose.convolution import convolution
from dvm_graph.decompose.integer_products import integer_convolution, is_bytes, weights_of
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder


def centred(builder: Builder, x: Value, zero_point: Value | None) -> Value:
    """`x - zero_point` as float32, exact for 8 and 16 bits. The zero point is of one element, or
    broadcasts.
    """
    x = builder.cast(x, DType.FLOAT32)
    if zero_point is None:
        return x
    return builder.sub(x, builder.cast(as_scalar(builder, zero_point), DType.FLOAT32))


def as_scalar(builder: Builder, parameter: Value) -> Value:
    """A parameter of one element without axes; others as they are."""
    return builder.reshape(parameter, ()) if parameter.shape == (1,) else parameter


def along_outputs(builder: Builder, parameter: Value, rank: int, axis: int) -> Value:
    """A parameter with one number, or one for each output channel on an axis."""
    parameter = as_scalar(builder, parameter)
    return along_axis(builder, parameter, axis, rank) if parameter.rank else parameter


def transposed(builder: Builder, b: Value) -> Value:
    """Constants at once, so that they stay such."""
    if b.data is None:
        return builder.transpose(b, (1, 0))
    return builder.constant(np.ascontiguousarray(np.asarray(b.data).T))


def quantized_windows(
    builder: Builder,
    node: Node,
    x: Value,
    x_zero: Value | None,
    w: Value,
    w_zero: Value | None,
    bias: Value | None,
) -> Value | None:
    """The sums of a convolution's products of differences, and a bias of their scale: int32, or float32 where they
    are no bytes by constants, or make several results of a channel by itself: those are exact, too, as there are few of them.
    """
    weights = weights_of(w, w_zero, 0) if is_bytes(x) else None
    if weights is not None:
        found = integer_convolution(builder, node, x, x_zero, weights, bias)
        if found is not None:
            return found
    if x_zero is not None:
        x_zero = builder.reshape(x_zero, ())
    if w_zero is not None:
        w_zero = along_outputs(builder, w_zero, w.rank, 0)
    call: list[Value | None] = [centred(builder, x, x_zero), centred(builder, w, w_zero)]
    if bias is not None:
        call.append(builder.cast(bias, DType.FLOAT32))
    results = convolution(builder, node, call)
    return None if results is None else results[0]


def is_exact(sums: Value, w: Value) -> bool:
    """Whether sums of products of differences of bytes are: in int32, or few of a channel by itself in float32. Those over
    channels may be computed by transforms, which round.
    """
    if sums.dtype is DType.INT32:
        return True
    inputs, *kernel = (dim if isinstance(dim, int) else 1 << 24 for dim in shape_of(w)[1:])
    return inputs == 1 and math.prod(kernel) * 255 * 255 <= 1 << 24
