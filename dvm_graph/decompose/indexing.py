"""Reading by index and by position: Gather and its kin, ReverseSequence, OneHot, Trilu.

GatherND and GatherElements become a gather from the flat operand by a linear index, built of
coordinates and of indices checked against their own axes. Indices that merely count (`counting`)
make views instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.arithmetic import dim_value, positions, scalar_of, shifted, with_axis
from dvm_graph.decompose.counting import as_count, stays_inside, view_of_points
from dvm_graph.decompose.extents import bound_extents
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.operands import constant_scalar, normalize_axis, operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, neg, product
from dvm_graph.symbolic.facts import Relation


@decomposition("Gather")
def gather(builder: Builder, node: Node, operands: Operands) -> Results:
    x, index = required(node, operands, 0), required(node, operands, 1)
    axis = normalize_axis(node, node.attrs.get("axis", 0), x.rank)
    known = _known_position(builder, node, shape_of(x)[axis], index)
    if known is not None:
        shape = shape_of(x)
        cut = part(builder, x, axis, known, 1)
        return [builder.reshape(cut, (*shape[:axis], *shape_of(index), *shape[axis + 1 :]))]
    return [taken(builder, x, index, axis)]


def taken(builder: Builder, x: Value, index: Value, axis: int = 0) -> Value:
    """The entries of an axis at indices, which take the place of that axis."""
    index = builder.cast(index, DType.INT64)
    counted = _counted(builder, x, index, axis)
    return builder.gather(x, index, axis) if counted is None else counted


def _counted(builder: Builder, x: Value, index: Value, axis: int) -> Value | None:
    """The gather as a view, if the index counts along one of its axes."""
    count = as_count(index, builder.facts)
    shape, points = shape_of(x), shape_of(index)
    if count is None or not stays_inside(count, shape[axis], builder.facts):
        return None
    y = part(builder, x, axis, count.start, count.size, count.step)
    spread = tuple(dim if i == count.axis else 1 for i, dim in enumerate(points))
    y = builder.reshape(y, (*shape[:axis], *spread, *shape[axis + 1 :]))
    return builder.broadcast_to(y, (*shape[:axis], *points, *shape[axis + 1 :]))


def _known_position(builder: Builder, node: Node, extent: Dim, index: Value) -> Dim | None:
    """The one position that is read, where it is known: then a view will do. Runs confirm that it exists."""
    if index.elements is None or len(index.elements) != 1:
        return None
    position = index.elements[0]
    if not isinstance(position, int):
        return None
    least = position + 1 if position >= 0 else -position
    exists = builder.facts.prove_less_equal(least, extent)
    if exists.no:
        return None
    if exists.unknown:
        reason = f"{node.op} {node.name!r} reads at {position}"
        builder.facts.assume_range(extent, least, None, reason)
    return position if position >= 0 else add(extent, position)


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
    reason = f"the indices of {node.op} {node.name!r} reach over more than there is beside the axis"
    for at, (dim, extent) in enumerate(zip(shape_of(index), shape_of(x), strict=True)):
        if at != axis and not builder.facts.prove_less_equal(dim, extent).yes:
            builder.facts.expect(dim, Relation.LESS_EQUAL, extent, lambda: reason)
    coordinates = [
        index if i == axis else positions(builder, shape_of(index)[i], i, rank) for i in range(rank)
    ]
    return [_read_points(builder, x, coordinates, shape_of(index), {axis})]


@decomposition("GatherND")
@decomposition("GatherND", domain=MICROSOFT)
def gather_nd(builder: Builder, node: Node, operands: Operands) -> Results:
    """Index tuples along the last axis of the indices; `batch_dims` leading axes go in step."""
    x = required(node, operands, 0)
    indices = builder.cast(required(node, operands, 1), DType.INT64)
    batch_axes = int(node.attrs.get("batch_dims", 0))
    points, depth = shape_of(indices)[:-1], shape_of(indices)[-1]
    if not isinstance(depth, int) or batch_axes < 0:
        return None
    reason = f"the batches of {node.op} {node.name!r} are not those of its indices"
    for own, dim in zip(shape_of(x)[:batch_axes], points, strict=False):
        if not builder.facts.same(own, dim):
            builder.facts.expect(own, Relation.EQUAL, dim, lambda: reason)
    coordinates = [positions(builder, points[i], i, len(points)) for i in range(batch_axes)]
    coordinates += _columns(builder, indices, depth)
    given = set(range(batch_axes, len(coordinates)))
    return [_read_points(builder, x, coordinates, points, given)]


@decomposition("ReverseSequence")
def reverse_sequence(builder: Builder, node: Node, operands: Operands) -> Results:
    """The first elements of each sequence, as many as it has, in reverse; those behind stay."""
    x = required(node, operands, 0)
    lengths = builder.cast(required(node, operands, 1), DType.INT64)
    axes = {node.attrs.get("batch_axis", 1): "batch", node.attrs.get("time_axis", 0): "time"}
    if set(axes) != {0, 1}:
        return None
    time = 0 if axes[0] == "time" else 1
    points = shape_of(x)[:2]
    reason = f"{node.name} has the length of each sequence"
    builder.facts.assume_equal(points[1 - time], shape_of(lengths)[0], reason)
    lengths = with_axis(builder, unsigned_index(builder, lengths, add(points[time], 1)), time)
    place = positions(builder, points[time], time, 2)
    reversed_ = builder.sub(shifted(builder, lengths, -1), place)
    index = builder.select(builder.lt(place, lengths), reversed_, place)
    coordinates = [index, positions(builder, points[1 - time], 1 - time, 2)]
    if time == 1:
        coordinates.reverse()
    return [_read_points(builder, x, coordinates, points, set())]


def unsigned_index(builder: Builder, index: Value, limit: Dim) -> Value:
    """Checked, and none counts from the end."""
    negative = builder.lt(index, builder.scalar(0, DType.INT64))
    index = builder.select(negative, dim_value(builder, limit), index)
    return builder.check_index(index, limit)


def _read_points(
    builder: Builder,
    x: Value,
    coordinates: Sequence[Value],
    points: Sequence[Dim],
    given: set[int],
) -> Value:
    """`x[coordinate 0, coordinate 1, ...]`, of shape `points`.

    Coordinates in `given` come from the model: they are checked, and negative ones count from the
    end. The others are counted here.
    """
    counts = [as_count(coordinate, builder.facts) for coordinate in coordinates]
    certain = [count for count in counts if count is not None]
    if len(certain) == len(counts):
        view = view_of_points(builder, x, certain, points)
        if view is not None:
            return view
    shape = shape_of(x)
    indices = [
        builder.check_index(coordinate, shape[axis]) if axis in given else coordinate
        for axis, coordinate in enumerate(coordinates)
    ]
    linear = linear_index(builder, indices, shape[: len(indices)])
    return builder.gather(_flat(builder, x, len(indices)), linear, 0)


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
        number = builder.cast(depth_value, DType.INT64)
        (depth,) = bound_extents(builder, node, (number,), [None])
    axis = normalize_axis(node, node.attrs.get("axis", -1), indices.rank + 1)
    indices = with_axis(builder, builder.cast(indices, DType.INT64), axis)
    depth_tensor = dim_value(builder, depth)
    negative = builder.lt(indices, builder.scalar(0, DType.INT64))
    indices = builder.select(negative, builder.add(indices, depth_tensor), indices)
    classes = positions(builder, depth, axis, indices.rank)
    builder.facts.assume_equal(shape_of(values)[0], 2, "OneHot has two values")
    off, on = (builder.reshape(part(builder, values, 0, i, 1), ()) for i in (0, 1))
    return [builder.select(builder.eq(classes, indices), on, off)]


def _one_dim(value: Value) -> Dim | None:
    """The number in a tensor of one element, of whatever type."""
    if value.elements is not None and len(value.elements) == 1:
        return value.elements[0]
    number = constant_scalar(value)
    return None if number is None else int(number)


@decomposition("Trilu")
@decomposition("Trilu", domain=MICROSOFT)
def trilu(builder: Builder, node: Node, operands: Operands) -> Results:
    x, diagonal = required(node, operands, 0), operand(operands, 1)
    shape, rank = shape_of(x), x.rank
    row = positions(builder, shape[-2], rank - 2, rank)
    column = positions(builder, shape[-1], rank - 1, rank)
    if diagonal is not None:
        row = builder.add(row, _diagonal(builder, diagonal, shape[-2], shape[-1]))
    keeps = builder.ge(column, row) if node.attrs.get("upper", 1) else builder.le(column, row)
    return [builder.select(keeps, x, builder.scalar(0, x.dtype))]


def _diagonal(builder: Builder, given: Value, rows: Dim, columns: Dim) -> Value:
    """As far as there are elements: from much further away, positions would wrap."""
    number, known = scalar_of(builder, given, DType.INT64), constant_scalar(given)
    if known is not None and abs(known) < _FAR:
        return number
    number = builder.max(number, dim_value(builder, neg(rows)))
    return builder.min(number, dim_value(builder, columns))


_FAR = 2**31
