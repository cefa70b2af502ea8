"""What sequences and optional values hold, joined: where a sequence grows, branches meet, and turns follow each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dvm_graph.ir import Dim, Holding, Shape, Value
from dvm_graph.symbolic.facts import Facts


def joined(a: Holding | None, b: Holding | None, facts: Facts) -> Holding | None:
    """What holds of both; None: they are not alike. What is there is an optional value, too."""
    if a is None or b is None or (a.dtype, a.sequence) != (b.dtype, b.sequence):
        return None
    shape = a.shape if b.empty else b.shape if a.empty else common(a.shape, b.shape, facts)
    optional = a.optional or b.optional
    return Holding(a.dtype, shape, a.sequence, optional, a.empty and b.empty)


def as_optional_as(holding: Holding | None, other: Holding | None) -> Holding | None:
    """What is known of a value, which is an optional one where the other is."""
    if holding is None or other is None:
        return holding
    return replace(holding, optional=other.optional)


def common(a: Shape | None, b: Shape | None, facts: Facts) -> Shape | None:
    """What two shapes have in common, as `Holding` say it."""
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if _same(x, y, facts) else None for x, y in zip(a, b, strict=True))


def _same(x: Dim, y: Dim, facts: Facts) -> bool:
    return x is not None and y is not None and facts.same(x, y)


def in_terms_of(holding: Holding | None, known: Callable[[Dim], bool]) -> Holding | None:
    """Without the dims that are not known."""
    if holding is None or holding.shape is None:
        return holding
    shape = tuple(dim if dim is not None and known(dim) else None for dim in holding.shape)
    return Holding(holding.dtype, shape, holding.sequence, holding.optional, holding.empty)


def holding(values: tuple[Value, ...], facts: Facts) -> Holding | None:
    """Of a sequence of these tensors, at least one."""
    first, *others = values
    held: Holding | None = Holding(first.dtype, first.shape)
    for value in others:
        held = joined(held, Holding(value.dtype, value.shape), facts)
    return held
