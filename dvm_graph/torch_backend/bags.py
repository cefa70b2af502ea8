"""Bags: sums, means or greatest elements of rows of a table, those of so many indices at a time as offsets say.

Bags of one size, which torch makes of a matrix of indices, are an axis that is reduced; what others hold is added up by index.
What the backward pass needs is in `bag_gradients.py`.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim, add, mul
from dvm_graph.torch_backend.bag_gradients import MAX, MEAN, SUM
from dvm_graph.torch_backend.scattering import written
from dvm_graph.torch_backend.translation import Translation, entry

aten = torch.ops.aten


class _Bags:
    """Reductions of what there is for each index, [indices, ...], to what there is for each bag, [bags, ...]."""

    def __init__(self, t: Translation, count: Dim, offsets: Value, last: bool) -> None:
        """`last`: the last offset is where the last bag ends."""
        self._t = t
        self._count = count
        self._slots = shape_of(offsets)[0]
        self._bags = t.shape[0]
        self._size = None if last else self._common_size(offsets)
        if self._size is None:
            self.number = self._numbers(offsets)
            """Of the bag of each index."""

    def _common_size(self, offsets: Value) -> Dim | None:
        """Of bags that follow each other; None: nothing tells that they have one."""
        cast = offsets.made_by("cast")
        counted = (offsets if cast is None else cast.required(0)).made_by("iota")
        if counted is None or counted.attrs["start"] != 0:
            return None
        size: Dim = counted.attrs["step"]
        whole = self._t.builder.facts.same(mul(self._bags, size), self._count)
        return size if whole else None

    def _numbers(self, offsets: Value) -> Value:
        b = self._t.builder
        begun = b.broadcast_to(b.scalar(0, DType.INT64), (add(self._count, 1),))
        begun = written(self._t, begun, 0, b.cast(offsets, DType.INT64), 1, "add")
        begun = b.slice(begun, [0], [self._count])
        begun = self._t.onnx("CumSum", begun, b.scalar(0, DType.INT64))
        return b.sub(begun, b.scalar(1, DType.INT64))

    def reduced(self, x: Value, reduction: str, neutral: float) -> Value:
        """By `add`, `max` or `min`, the neutral element of which is what empty bags have."""
        b = self._t.builder
        shape = shape_of(x)
        if self._size is not None:
            reduce = {"add": b.reduce_sum, "max": b.reduce_max, "min": b.reduce_min}[reduction]
            total = reduce(b.reshape(x, (self._bags, self._size, *shape[1:])), (1,))
            return b.reshape(total, (self._bags, *shape[1:]))
        start = b.broadcast_to(b.scalar(neutral, x.dtype), (self._slots, *shape[1:]))
        places = b.reshape(self.number, (self._count, 1))
        total = self._t.onnx("ScatterND", start, places, x, reduction=reduction)
        return b.slice(total, [0] * len(shape), (self._bags, *shape[1:]))

    def spread(self, x: Value) -> Value:
        """What bags have, for each of their indices."""
        b = self._t.builder
        shape = shape_of(x)[1:]
        if self._size is None:
            return b.gather(x, self.number, 0)
        x = b.reshape(x, (self._bags, 1, *shape))
        return b.reshape(b.broadcast_to(x, (self._bags, self._size, *shape)), (self._count, *shape))


@entry(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    t: Translation,
    table: Value,
    indices: Value,
    offsets: Value,
    _by_frequency: bool = False,
    mode: int = SUM,
    _sparse: bool = False,
    weights: Value | None = None,
    last: bool = False,
    padding: int = -1,
) -> list[Value | None]:
    """What is in the bags, how many indices each of them has, and of its greatest elements the rows. Which bag an index is of
    nobody asks for.
    """
    b, dtype = t.builder, table.dtype.register
    places = b.check_index(b.cast(indices, DType.INT64), shape_of(table)[0])
    rows = b.cast(b.gather(table, places, 0), dtype)
    if weights is not None:
        rows = b.mul(rows, b.reshape(b.cast(weights, dtype), (*shape_of(weights), 1)))
    bags = _Bags(t, shape_of(indices)[0], offsets, last)
    counted = b.ne(places, b.scalar(padding, DType.INT64))
    counts = bags.reduced(b.cast(counted, DType.INT64), "add", 0)
    if padding >= 0:
        absent = b.scalar(-math.inf if mode == MAX else 0, dtype)
        rows = b.select(b.reshape(counted, (*shape_of(indices), 1)), rows, absent)
    if mode == MAX:
        found, greatest = _greatest(t, bags, rows, places, counted, counts)
    else:
        found, greatest = bags.reduced(rows, "add", 0), None
    if mode == MEAN:
        some = b.max(counts, b.scalar(1, counts.dtype))
        found = b.div(found, b.reshape(b.cast(some, dtype), (*shape_of(counts), 1)))
    return [
        b.cast(found, table.dtype),
        None,
        b.cast(counts, offsets.dtype),
        b.cast(counts if greatest is None else greatest, offsets.dtype),
    ]


def _greatest(
    t: Translation, bags: _Bags, rows: Value, places: Value, counted: Value, counts: Value
) -> tuple[Value, Value]:
    """The greatest elements of bags, 0 in those without any, and the places in the table of the first of equal ones. As in torch,
    NaN is one where it is a bag's first, and else is passed over.
    """
    b = t.builder
    (count,) = shape_of(places)
    most = int(np.iinfo(np.int64).max)
    last, nothing = b.scalar(most, DType.INT64), b.scalar(0, DType.INT64)
    begin = bags.reduced(b.select(counted, b.iota((count,)), last), "min", most)
    numbers = b.iota((count, 1))
    leads = b.eq(b.reshape(bags.spread(begin), (count, 1)), numbers)
    low, high = b.scalar(-math.inf, rows.dtype), b.scalar(math.inf, rows.dtype)
    ordered = b.select(b.isnan(rows), b.select(leads, high, low), rows)
    greatest = bags.reduced(ordered, "max", -math.inf)
    numbers = b.broadcast_to(numbers, shape_of(rows))
    found = b.eq(ordered, bags.spread(greatest))
    found = b.bitwise_and(found, b.reshape(counted, (count, 1)))  # padding may be as great
    first = bags.reduced(b.select(found, numbers, last), "min", most)
    if b.facts.bounds(count)[0] < 1:  # there has to be something to read
        places = b.concat([places, b.broadcast_to(nothing, (1,))], 0)
        filler = b.broadcast_to(b.scalar(0, rows.dtype), (1, *shape_of(rows)[1:]))
        rows = b.concat([rows, filler], 0)
    empty = b.eq(counts, b.scalar(0, counts.dtype))
    leading = b.gather(rows, b.select(empty, nothing, begin), 0)
    greatest = b.select(b.isnan(leading), leading, greatest)
    empty = b.reshape(empty, (*shape_of(counts), 1))
    first = b.select(b.bitwise_or(empty, b.eq(first, last)), nothing, first)
    return (
        b.select(empty, b.scalar(0, greatest.dtype), greatest),
        b.gather(places, first, 0),
    )
