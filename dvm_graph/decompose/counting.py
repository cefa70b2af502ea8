"""Index tensors that count: gathers through them are views.

Exporters index with positions they have counted out themselves (Range, Unsqueeze, Expand, a buffer
of position ids). Where an index is provably `start + step * coordinate` along one of its axes and
stays inside the axis that it reads, slicing, transposing and broadcasting replace the gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dvm_graph.ir import Dim, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, mul, sub
from dvm_graph.symbolic.facts import Facts

_LARGEST_CONSTANT = 1 << 16
"""Larger constants are not searched for a count."""


@dataclass(frozen=True, slots=True)
class Count:
    """The index `start + step * coordinate[axis]`, for `size` coordinates."""

    axis: int
    start: Dim
    step: int
    size: Dim


def as_count(value: Value, facts: Facts) -> Count | None:
    """How an index tensor counts along one of its axes, if that is certain."""
    if value.data is not None:
        return _constant_count(value.data)
    node = value.producer
    if node is None:
        return None
    if node.op == "iota":
        axis, step = node.attrs["axis"], node.attrs["step"]
        size = node.attrs["shape"][axis]
        return Count(axis, node.attrs["start"], step, size) if isinstance(step, int) else None
    if node.op not in ("reshape", "broadcast_to", "slice"):
        return None
    source = node.inputs[0]
    assert source is not None
    count = as_count(source, facts)
    if count is None:
        return None
    if node.op == "slice":
        return _sliced(node, count)
    if node.op == "reshape":
        return _reshaped(source, value, count)
    return _broadcast(source, value, count, facts)


def _constant_count(data: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> Count | None:
    axes = [axis for axis, extent in enumerate(data.shape) if extent != 1]
    if data.size > _LARGEST_CONSTANT or data.size == 0 or data.ndim == 0 or len(axes) > 1:
        return None
    numbers = data.reshape(-1).astype(np.int64)
    step = int(numbers[1] - numbers[0]) if numbers.size > 1 else 1
    if not np.array_equal(numbers, numbers[0] + step * np.arange(numbers.size)):
        return None
    axis = axes[0] if axes else 0
    return Count(axis, int(numbers[0]), step, data.shape[axis])


def _sliced(node: Node, count: Count) -> Count | None:
    start, step = node.attrs["starts"][count.axis], node.attrs["steps"][count.axis]
    if not isinstance(step, int):
        return None
    first = add(count.start, mul(start, count.step))
    return Count(count.axis, first, count.step * step, node.attrs["sizes"][count.axis])


def _reshaped(source: Value, result: Value, count: Count) -> Count | None:
    """Through a reshape that only moves axes of extent 1 about."""
    before = [axis for axis, dim in enumerate(shape_of(source)) if dim != 1]
    after = [axis for axis, dim in enumerate(shape_of(result)) if dim != 1]
    same = [shape_of(source)[axis] for axis in before] == [shape_of(result)[a] for a in after]
    if not same or count.axis not in before:
        return None
    return Count(after[before.index(count.axis)], count.start, count.step, count.size)


def _broadcast(source: Value, result: Value, count: Count, facts: Facts) -> Count | None:
    axis = count.axis + result.rank - source.rank
    if not facts.same(shape_of(result)[axis], count.size):
        return None
    return Count(axis, count.start, count.step, count.size)


def stays_inside(count: Count, extent: Dim, facts: Facts) -> bool:
    """Whether the count certainly reads only positions of an axis of this extent."""
    if not isinstance(count.start, int) or count.start < 0 or count.step < 1:
        return False
    end = add(count.start + 1, mul(sub(count.size, 1), count.step))
    return facts.prove_less_equal(end, extent).yes


def view_of_points(
    builder: Builder, x: Value, counts: Sequence[Count], shape: Sequence[Dim]
) -> Value | None:
    """`x[i0, i1, ...]` where index k is `counts[k]`, a tensor of `shape`; None: no view will do."""
    axes = [count.axis for count in counts]
    inside = zip(counts, shape_of(x), strict=False)
    if len(set(axes)) != len(axes) or not all(
        stays_inside(count, extent, builder.facts) for count, extent in inside
    ):
        return None
    rest = range(len(counts), x.rank)
    trailing = shape_of(x)[len(counts) :]
    starts = (*(count.start for count in counts), *(0 for _ in rest))
    sizes = (*(count.size for count in counts), *trailing)
    steps = (*(count.step for count in counts), *(1 for _ in rest))
    y = builder.slice(x, starts, sizes, steps)
    y = builder.transpose(y, (*sorted(range(len(axes)), key=axes.__getitem__), *rest))
    spread = [dim if axis in axes else 1 for axis, dim in enumerate(shape)]
    y = builder.reshape(y, (*spread, *trailing))
    return builder.broadcast_to(y, (*shape, *trailing))
