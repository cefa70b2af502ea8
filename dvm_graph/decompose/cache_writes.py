"""TensorScatter: rows that are written into caches of a fixed size, of each batch from where it says.

In: a cache [batch, ..., room, ...] and an update that is as large but for the room. Out: a `host` operator that scatters rows
(`host`), in place where the cache dies with it.
"""

from __future__ import annotations

from dvm_graph.decompose.arithmetic import dim_value, positions, spread
from dvm_graph.decompose.host import add_host
from dvm_graph.decompose.indexing import linear_index, unsigned_index
from dvm_graph.decompose.operands import normalize_axis, operand, required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.ir import DType, Node, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, product, sub
from dvm_graph.symbolic.facts import Relation

_NO_REDUCTION = 0
_FARTHEST = 2**31 - 1
"""From where a ring is written that has no such place: places are counted around it."""


@decomposition("TensorScatter")
def tensor_scatter(builder: Builder, node: Node, operands: Operands) -> Results:
    cache, update = required(node, operands, 0), required(node, operands, 1)
    axis = normalize_axis(node, node.attrs.get("axis", -2), cache.rank)
    if update.rank != cache.rank or axis == 0:
        return None
    facts, shape, new = builder.facts, shape_of(cache), shape_of(update)
    reason = f"{node.op} {node.name!r} writes parts of its cache"
    for at, (extent, own) in enumerate(zip(shape, new, strict=True)):
        if at != axis:
            facts.assume_equal(own, extent, reason)
    room, length = shape[axis], new[axis]
    facts.expect(length, Relation.LESS_EQUAL, room, lambda: reason)
    rows, points = shape[: axis + 1], new[: axis + 1]
    coordinates = [positions(builder, extent, at, axis + 1) for at, extent in enumerate(points)]
    begin = operand(operands, 2)
    if begin is not None:
        facts.assume_equal(shape_of(begin)[0], shape[0], reason)
        begin = builder.reshape(begin, (shape[0], *(1,) * axis))
        ring = text(node, "mode", "linear") == "circular"
        limit = _FARTHEST if ring else add(sub(room, length), 1)
        place = builder.add(coordinates[axis], unsigned_index(builder, begin, limit))
        coordinates[axis] = builder.mod(place, dim_value(builder, room)) if ring else place
    places = spread(builder, linear_index(builder, coordinates, rows), points)
    width = product(shape[axis + 1 :])
    flat = [
        builder.reshape(cache, (product(rows), width)),
        builder.reshape(builder.cast(places, DType.INT64), (product(points), 1)),
        builder.reshape(update, (product(points), width)),
    ]
    result = [(cache.dtype, shape_of(flat[0]))]
    (y,) = add_host(builder, node, flat, (_NO_REDUCTION,), result, "ScatterND")
    return [builder.reshape(y, shape)]
