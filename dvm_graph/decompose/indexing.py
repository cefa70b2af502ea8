"""Reading by index and by position: Gather and its kin, OneHot, Trilu.

GatherND and GatherElements become a gather from the flat operand by a linear index, built of
coordinates and of indices checked against their own axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.arithmetic import dim_value, positions, with_axis
from dvm_graph.decompose.operands import (
    constant_scalar,
    normalize_axis,
    operand,
    required,
    shape_of,
)
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, DType, Node, Value
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product


@decomposition("Gather")
def gather(builder: Builder, node: Node, operands: Operands) -> Results:
    x, index = required(node, operands, 0), required(node, operands, 1)
    axis = normalize_axis(node, node.attrs.get("axis", 0), x.rank)
    static = _static_position(x, index, axis)
    if static is not None:
        shape = shape_of(x)
        cut = part(builder, x, axis, static, 1)
        return [builder.reshape(cut, (*shape[:axis], *shape_of(index), *shape[axis + 1 :]))]
    return [builder.gather(x, builder.cast(index, DType.INT64), axis)]


def _static_position(x: Value, index: Value, axis: int) -> int | None:
    """The one known position that is read, where it certainly exists: then a view will do."""
    extent = shape_of(x)[axis]
    if index.elements is None or len(index.elements) != 1 or not isinstance(extent, int):
        return None
    position = index.elements[0]
    if not isinstance(position, int) or not -extent <= position < extent:
        return None
    return position + extent if position < 0 else position


def linear_index(builder: Builder, indices: Sequence[Value], shape: Sequence[Dim]) -> Value:
    """Row-major position in a tensor of `shape` of the point with these coordinates."""
    total = indices[0]
    for index, extent in zip(indices[1:], shape[1:], strict=True):
        total = builder.add(builder.mul(total, dim_value(builder, extent)), index)
    return total


def _flat(builder: Builder, x: Value, kept: int) -> Value:
    """`x` with its first `kept` axes as one."""
    shape = shape_of(x)
    return builder.reshape(x, (product(shape[:kept]), *shape[kept:]))


@decomposition("GatherElements")
def gather_elements(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    index = builder.cast(required(node, operands, 1), DType.INT64)
    rank = x.rank
    axis = normalize_axis(node, node.attrs.get("axis", 0), rank)
    checked = builder.check_index(index, shape_of(x)[axis])
    coordinates = [
        checked if i == axis else positions(builder, shape_of(index)[i], i, rank)
        for i in range(rank)
    ]
    linear = linear_index(builder, coordinates, shape_of(x))
    return [builder.gather(_flat(builder, x, rank), linear, 0)]


@decomposition("GatherND")
def gather_nd(builder: Builder, node: Node, operands: Operands) -> Results:
    """Index tuples along the last axis of the indices; `batch_dims` leading axes go in step."""
    x = required(node, operands, 0)
    indices = builder.cast(required(node, operands, 1), DType.INT64)
    batch_axes = int(node.attrs.get("batch_dims", 0))
    depth = shape_of(indices)[-1]
    if not isinstance(depth, int):
        return None
    shape, rank = shape_of(x), indices.rank - 1
    coordinates = [
        positions(builder, shape_of(indices)[axis], axis, rank) for axis in range(batch_axes)
    ]
    for column, index in enumerate(_columns(builder, indices, depth)):
        coordinates.append(builder.check_index(index, shape[batch_axes + column]))
    indexed = batch_axes + depth
    linear = linear_index(builder, coordinates, shape[:indexed])
    return [builder.gather(_flat(builder, x, indexed), linear, 0)]


def _columns(builder: Builder, indices: Value, depth: int) -> list[Value]:
    """The index tensors that lie side by side in the last axis.

    Exporters put them there with Concat; then they are its operands, and nothing is copied.
    """
    node = indices.producer
    axis = indices.rank - 1
    lead = shape_of(indices)[:-1]
    if node is not None and node.op == "concat" and node.attrs["axis"] == axis:
        pieces = [value for value in node.inputs if value is not None]
        if all(shape_of(piece)[-1] == 1 for piece in pieces):
            return [builder.reshape(piece, lead) for piece in pieces]
    return [
        builder.reshape(part(builder, indices, axis, column, 1), lead) for column in range(depth)
    ]


@decomposition("OneHot")
def one_hot(builder: Builder, node: Node, operands: Operands) -> Results:
    indices, depth_value, values = (required(node, operands, index) for index in range(3))
    depth = _one_dim(depth_value)
    if depth is None:
        return None
    axis = normalize_axis(node, node.attrs.get("axis", -1), indices.rank + 1)
    indices = with_axis(builder, builder.cast(indices, DType.INT64), axis)
    depth_tensor = dim_value(builder, depth)
    negative = builder.lt(indices, builder.scalar(0, DType.INT64))
    indices = builder.select(negative, builder.add(indices, depth_tensor), indices)
    classes = positions(builder, depth, axis, indices.rank)
    off, on = (builder.reshape(part(builder, values, 0, i, 1), ()) for i in (0, 1))
    return [builder.select(builder.eq(classes, indices), on, off)]


def _one_dim(value: Value) -> Dim | None:
    """The number in a tensor of one element, of whatever type."""
    if value.elements is not None and len(value.elements) == 1:
        return value.elements[0]
    number = constant_scalar(value)
    return None if number is None else int(number)


@decomposition("Trilu")
def trilu(builder: Builder, node: Node, operands: Operands) -> Results:
    x, diagonal = required(node, operands, 0), operand(operands, 1)
    shape, rank = shape_of(x), x.rank
    row = positions(builder, shape[-2], rank - 2, rank)
    column = positions(builder, shape[-1], rank - 1, rank)
    if diagonal is not None:
        row = builder.add(row, builder.reshape(builder.cast(diagonal, DType.INT64), ()))
    keeps = builder.ge(column, row) if node.attrs.get("upper", 1) else builder.le(column, row)
    return [builder.select(keeps, x, builder.scalar(0, x.dtype))]
