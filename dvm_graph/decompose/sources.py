"""Tensors made of nothing: Range, ConstantOfShape, EyeLike; Dropout's mask."""

from __future__ import annotations

import math

import numpy as np

from dvm_graph.decompose.arithmetic import filled, positions, scaled, shifted
from dvm_graph.decompose.extents import bound_extents, contents_of, known
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.operands import constant_scalar, operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import ceildiv, maximum, neg, sub


@decomposition("Range")
@decomposition("Range", domain=MICROSOFT)
def range_node(builder: Builder, node: Node, operands: Operands) -> Results:
    start, limit = required(node, operands, 0), required(node, operands, 1)
    delta = operand(operands, 2)
    if delta is None:  # onnxruntime's own may leave it out
        delta = builder.scalar(1, start.dtype)
    if not start.dtype.is_integer:
        return _float_range(builder, node, start, limit, delta)
    if start.elements is None or limit.elements is None or delta.elements is None:
        return _bound_range(builder, node, start, limit, delta)
    first, last, step = start.elements[0], limit.elements[0], delta.elements[0]
    if step == 0:
        return None
    if not isinstance(step, int):  # its sign may not be known, nor whether it is 0
        return _bound_range(builder, node, start, limit, delta)
    count = range_count(first, last, step)
    return [builder.cast(builder.iota((count,), 0, first, step), start.dtype)]


def range_count(start: Dim, limit: Dim, step: int) -> Dim:
    """Numbers from `start` towards `limit`, which is left out."""
    distance = sub(limit, start)
    if step < 0:
        distance, step = neg(distance), -step
    return maximum(0, ceildiv(distance, step))


def _bound_range(builder: Builder, node: Node, start: Value, limit: Value, delta: Value) -> Results:
    """Over values of the run: start + i * delta, as often as they say."""
    if start.dtype not in _COUNTED:
        return None
    (count,) = bound_extents(builder, node, (start, limit, delta), [None])
    steps = builder.cast(builder.iota((count,), 0, 0, 1), start.dtype)
    distances = builder.mul(steps, builder.reshape(delta, ()))
    return [builder.add(distances, builder.reshape(start, ()))]


_COUNTED = (DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32, DType.FLOAT64)


def _float_range(builder: Builder, node: Node, start: Value, limit: Value, delta: Value) -> Results:
    numbers = [constant_scalar(value) for value in (start, limit, delta)]
    if any(number is None for number in numbers):
        return _bound_range(builder, node, start, limit, delta)
    first, last, step = (float(number) for number in numbers if number is not None)
    if step == 0 or not all(map(math.isfinite, (first, last, step))):
        return None
    count = max(0, math.ceil((last - first) / step))
    wide = DType.FLOAT64 if start.dtype is DType.FLOAT64 else DType.FLOAT32
    y = builder.cast(positions(builder, count, 0, 1), wide)
    return [builder.cast(shifted(builder, scaled(builder, y, step), first), start.dtype)]


@decomposition("ConstantOfShape")
def constant_of_shape(builder: Builder, node: Node, operands: Operands) -> Results:
    extents, dtype = required(node, operands, 0), node.outputs[0].dtype
    if dtype is DType.OPAQUE:
        return None
    shape = extents.elements
    if shape is None:
        contents = contents_of(builder, extents)
        if contents is None:
            return None
        shape = bound_extents(builder, node, (extents,), [known(content) for content in contents])
    value = np.asarray(node.attrs.get("value", np.zeros(1, np.float32))).reshape(-1)
    return [filled(builder, value[0].item(), dtype, shape)]


@decomposition("EyeLike")
def eye_like(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    dtype = node.outputs[0].dtype if "dtype" in node.attrs else x.dtype
    rows, columns = shape_of(x)
    row = positions(builder, rows, 0, 2, int(node.attrs.get("k", 0)))
    column = positions(builder, columns, 1, 2)
    return [builder.cast(builder.eq(row, column), dtype)]


@decomposition("Dropout")
def dropout(builder: Builder, node: Node, operands: Operands) -> Results:
    """Inference only: the operand itself, and a mask that keeps everything.

    Before opset 10 the mask has the type of the operand. Before 12, no document says what it holds in
    inference: 0, as in onnxruntime.
    """
    x, training = required(node, operands, 0), operand(operands, 2)
    if training is not None and constant_scalar(training) is not False:
        return None
    if len(node.outputs) == 1:
        return [x]
    mask = filled(builder, node.version >= 12, DType.BOOL, shape_of(x))
    return [x, builder.cast(mask, node.outputs[1].dtype)]
