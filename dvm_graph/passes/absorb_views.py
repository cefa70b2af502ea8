"""Composes chains of views that end in a slice into one strided view of the buffer below.

    Requires: basic operators with shapes. Ensures: no `slice` operator is left, and no `view` reads
    another view where strides can say both.

    y = slice(transpose(x: [4, 6]), starts=(1, 0), sizes=(2, 4), steps=(1, 1))
    =>  y = view(x, shape=(2, 4), strides=(1, 6), offset=1)

Transposes, reshapes and broadcasts without a slice stay: clustering turns them into axes of kernels.
Strides are symbolic. A reshape is composed where each group of axes it merges is contiguous by proof;
otherwise the chain is cut there, and what lies below is stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dvm_graph.ir import RELAYOUTS, STRIDED, Dim, Graph, Node, Value, shape_of
from dvm_graph.records import record
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import add, equal, mul, product, select
from dvm_graph.symbolic.shape_functions import row_major

_VIEWS = RELAYOUTS | STRIDED


@record(frozen=True, slots=True)
class _Strided:
    """A strided view of the contiguous buffer of `base`."""

    base: Value
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    offset: Dim
    sliced: bool


class StridedViews:
    """Views that are asked about behind those that they read."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[Value, _Strided] = {}

    def of(self, node: Node) -> _Strided | None:
        """A view as one of a buffer; None: it cannot be said with strides."""
        strided = _compose(node, self._known, self._facts) if node.op in _VIEWS else None
        if strided is not None:
            self._known[node.output] = strided
        return strided


def absorb_views(graph: Graph, facts: Facts) -> bool:
    """True if some view was composed."""
    views, nodes = StridedViews(facts), graph.sorted_nodes()
    if STRIDED.isdisjoint([node.op for node in nodes]):
        return False
    changed = False
    for node in nodes:
        strided = views.of(node)
        if strided is not None and strided.sliced:
            changed |= _become_view(graph, node, strided)
    return changed


def _become_view(graph: Graph, node: Node, strided: _Strided) -> bool:
    if node.op == "view" and node.inputs == (strided.base,):
        return False
    node.op = "view"
    node.attrs = {"shape": strided.shape, "strides": strided.strides, "offset": strided.offset}
    graph.set_inputs(node, (strided.base,))
    return True


def _compose(node: Node, known: dict[Value, _Strided], facts: Facts) -> _Strided | None:
    """The view as one of a buffer; None: it cannot be said with strides."""
    operand, shape = node.required(0), shape_of(node.output)
    below = known.get(operand)
    if below is None:
        whole = shape_of(operand)
        below = _Strided(operand, whole, row_major(whole), 0, False)
    match node.op:
        case "transpose":
            return _permuted(below, node.attrs["perm"])
        case "broadcast_to":
            return _broadcast(below, shape, facts)
        case "slice":
            return _sliced(below, node)
        case "view":
            return _of_view(below, node)
    return _reshaped(below, shape, facts)


def _permuted(below: _Strided, perm: Sequence[int]) -> _Strided:
    return _Strided(
        below.base,
        tuple(below.shape[axis] for axis in perm),
        tuple(below.strides[axis] for axis in perm),
        below.offset,
        below.sliced,
    )


def _broadcast(below: _Strided, shape: tuple[Dim, ...], facts: Facts) -> _Strided:
    skip = len(shape) - len(below.shape)
    strides: list[Dim] = [0] * skip
    for extent, stride, whole in zip(below.shape, below.strides, shape[skip:], strict=True):
        if facts.same(extent, whole):
            strides.append(stride)
        else:
            strides.append(select(equal(extent, 1), 0, stride))
    return _Strided(below.base, shape, tuple(strides), below.offset, below.sliced)


def _sliced(below: _Strided, node: Node) -> _Strided:
    offset = below.offset
    strides = []
    for start, step, stride in zip(
        node.attrs["starts"], node.attrs["steps"], below.strides, strict=True
    ):
        offset = add(offset, mul(start, stride))
        strides.append(mul(stride, step))
    return _Strided(below.base, shape_of(node.output), tuple(strides), offset, True)


def _of_view(below: _Strided, node: Node) -> _Strided | None:
    if below.strides != row_major(below.shape):
        return None
    offset = add(below.offset, node.attrs["offset"])
    return _Strided(below.base, node.attrs["shape"], node.attrs["strides"], offset, True)


def _reshaped(below: _Strided, shape: tuple[Dim, ...], facts: Facts) -> _Strided | None:
    """Matches groups of axes with equal products, innermost first, as numpy does; what is left of one of the shapes is ones."""
    strides: list[Dim] = [0] * len(shape)
    inner, outer = len(below.shape), len(shape)
    while inner and outer:
        group = _next_group(below.shape[:inner], shape[:outer], facts)
        if group is None:
            return None
        old, new = group
        step = _merged_stride(below, old, inner, facts)
        if step is None:
            return None
        for axis in reversed(range(new, outer)):
            strides[axis] = step
            step = mul(step, shape[axis])
        inner, outer = old, new
    return _Strided(below.base, shape, tuple(strides), below.offset, below.sliced)


def _next_group(old: Sequence[Dim], new: Sequence[Dim], facts: Facts) -> tuple[int, int] | None:
    """Where the innermost groups of equal size start, in the old and in the new shape."""
    i, j = max(len(old) - 1, 0), max(len(new) - 1, 0)
    while True:
        if facts.same(product(old[i:]), product(new[j:])):
            return i, j
        if i and (not j or facts.divides(product(old[i:]), product(new[j:]))):
            i -= 1
        elif j:
            j -= 1
        else:
            return None


def _merged_stride(below: _Strided, start: int, stop: int, facts: Facts) -> Dim | None:
    """Stride of the axes [start, stop) as one axis; None: they are not one."""
    axes = [a for a in range(start, stop) if not facts.same(below.shape[a], 1)]
    for outer, inner in itertools.pairwise(axes):
        whole = mul(below.shape[inner], below.strides[inner])
        if not facts.same(below.strides[outer], whole):
            return None
    return below.strides[axes[-1]] if axes else 1
