"""The shape that Reshape gives, where a dim of the target is 0: that copies the operand's dim.

In: the operand's shape and the target, whose dims may be expressions, which may turn out to be 0 only
in a run. Out: the result's shape. Whether a dim is 0 then has to be chosen in the run as well; but a
chosen dim is equal to no other one, which would keep all that follows from fusing. So:

* Where dims of the target stand for dims of the operand in order (each merges some, or is split from
  one), they are taken as they are: a target of 0 elements reshapes 0 elements. The standard may give
  another shape without elements then, if two dims are 0: such a run is an error (a check of facts).
* Others are chosen: `select(dim == 0, the operand's dim, dim)`.

-1 takes what is left. A dim that may turn out to be -1 is chosen as well, unless there are provably as many elements as the target has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from dvm_graph.errors import ShapeError
from dvm_graph.ir import Dim, Node
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import (
    add,
    equal,
    floordiv,
    logical_and,
    mul,
    not_equal,
    product,
    select,
    symbols_of,
)
from dvm_graph.symbolic.facts import Relation

Dims: TypeAlias = Sequence[Dim]


def reshaped(
    node: Node, shape: Dims, wanted: Dims, facts: Facts, *, zero_copies: bool
) -> tuple[Dim, ...]:
    """The shape that Reshape gives: 0 copies a dim, -1 takes what is left.

    Raises:
        ShapeError: 0 beyond the operand's rank, more than one -1.
    """
    target = list(wanted)
    if zero_copies:
        for axis, dim in enumerate(target):
            if _is(dim, 0):
                target[axis] = _copied(node, shape, axis)
    open_axes = [axis for axis, dim in enumerate(target) if _is(dim, -1)]
    if len(open_axes) > 1:
        raise ShapeError(f"{node.op} {node.name!r}: more than one dim is -1")
    unsure = [
        axis for axis in range(len(target)) if zero_copies and _copies(shape, target, axis, facts)
    ]
    if unsure:
        _choose(node, shape, target, unsure, facts)
    if open_axes:
        others = [dim for axis, dim in enumerate(target) if axis != open_axes[0]]
        target[open_axes[0]] = remaining_dim(shape, others)
    elif not facts.same(product(target), product(shape)):
        target = [_taking_rest(shape, target, axis, facts) for axis in range(len(target))]
    return tuple(target)


def _taking_rest(shape: Dims, target: Dims, axis: int, facts: Facts) -> Dim:
    """A dim of the target; what is left, where it may turn out to be -1."""
    dim = target[axis]
    if facts.bounds(dim)[0] >= 0:
        return dim
    rest = remaining_dim(shape, [*target[:axis], *target[axis + 1 :]])
    return select(equal(dim, -1), rest, dim)


def remaining_dim(shape: Dims, others: Dims) -> Dim:
    """product(shape) // product(others).

    Dims on both sides are cancelled first, so that the answer holds where they are 0 as well.
    """
    left, right = list(shape), []
    for dim in others:
        if dim in left:
            left.remove(dim)
        else:
            right.append(dim)
    return floordiv(product(left), product(right))


def _is(dim: Dim, number: int) -> bool:
    return isinstance(dim, int) and dim == number


def _copied(node: Node, shape: Dims, axis: int) -> Dim:
    if axis >= len(shape):
        raise ShapeError(f"{node.op} {node.name!r}: dim {axis} copies one that is not there")
    return shape[axis]


def _copies(shape: Dims, target: Dims, axis: int, facts: Facts) -> bool:
    """Whether a dim of the target may be 0 where the operand's is not."""
    dim = target[axis]
    if isinstance(dim, int) or axis >= len(shape) or facts.bounds(dim)[0] > 0:
        return False
    source = shape[axis]
    if facts.same(dim, source):
        return False
    factor = 0 if source == 0 else floordiv(dim, source)
    return not (isinstance(factor, int) and factor > 0 and mul(factor, source) == dim)


def _choose(
    node: Node, shape: Dims, target: list[Dim], unsure: Sequence[int], facts: Facts
) -> None:
    """Replaces those dims that may copy, or has a run check that they do not."""
    chosen = list(target)
    for axis in unsure:
        chosen[axis] = select(equal(target[axis], 0), shape[axis], target[axis])
    in_order = _in_order(shape, target)
    copies: Dim = 0
    for axis in unsure:
        if axis in in_order:
            zero = logical_and(equal(target[axis], 0), not_equal(shape[axis], 0))
            copies = add(copies, zero)
        else:
            target[axis] = chosen[axis]
    known = product([dim for dim in chosen if not _is(dim, -1)])
    open_axis = any(_is(dim, -1) for dim in target)
    valid = not_equal(known, 0) if open_axis else equal(known, product(shape))
    wrong = mul(copies, valid)
    if facts.same(wrong, 0):
        return
    facts.expect(
        wrong,
        Relation.EQUAL,
        0,
        lambda: (
            f"no dim of 0 elements is to be copied in {node.op} {node.name}: two dims are empty"
        ),
    )


def _in_order(shape: Dims, target: Dims) -> set[int]:
    """Axes of the target that stand for axes of the operand in order, by their symbols."""
    open_axis = next((axis for axis, dim in enumerate(target) if _is(dim, -1)), len(target))
    axes, taken = _runs(shape, target[:open_axis])
    if open_axis == len(target):
        return axes
    behind = target[open_axis + 1 :]
    back, _ = _runs(tuple(reversed(shape[taken:])), tuple(reversed(behind)))
    return axes | {len(target) - 1 - axis for axis in back}


def _runs(shape: Dims, target: Dims) -> tuple[set[int], int]:
    """Axes of the target that merge or split the operand's axes, and how many of those they took.

    From the front, the shortest runs of both over the same symbols, as far as one has one dim only.
    """
    axes: set[int] = set()
    source = at = 0
    while at < len(target):
        if not symbols_of(target[at]):
            at += 1
            continue
        first, begin = source, at
        mine: set[Any] = set()
        theirs = set(symbols_of(target[at]))
        at += 1
        while mine != theirs:
            if not theirs <= mine and source < len(shape):
                mine |= symbols_of(shape[source])
                source += 1
            elif at < len(target):
                theirs |= symbols_of(target[at])
                at += 1
            else:
                return axes, first
        merged = sum(1 for dim in shape[first:source] if symbols_of(dim))
        split = sum(1 for dim in target[begin:at] if symbols_of(dim))
        if merged > 1 and split > 1:
            return axes, first
        axes.update(range(begin, at))
    return axes, source
