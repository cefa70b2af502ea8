"""Extents to check at: small numbers for the symbols of a model under which its assumptions hold.

In: the facts that the compiler gathered. Out: a handful of assignments, deterministic for a seed: 0, 1, 2,
primes, and numbers that are equal by coincidence; and larger ones, at which kernels go through several tiles on
every core. What follows from others (`t == 2*s + 1`) is computed,
what an assumption refuses is drawn again, from larger numbers where small ones do not do.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dvm_graph.errors import InputError, ShapeError
from dvm_graph.ir import Dim, Node
from dvm_graph.symbolic import (
    Check,
    DimTable,
    Facts,
    Relation,
    evaluate,
    substitute,
    symbols_of,
)
from dvm_graph.symbolic.expressions import BroadcastDim, Expression

_PRIMES = (2, 3, 5, 7, 11, 13)
_SMALL = (0, 1, 1, 2, 2, 3, 4, 5, 7, 11)
_LARGER = (*_SMALL, 8, 16, 17, 24, 32, 48, 64, 65, 96, 128, 224)
_DESCENDING = (4093, 2039, 1021, 509, 257, 131, 67, 37, 19, 7, 3)
_TRIES = 400
_MANY = 1 << 22
"""Elements: numbers are drawn for more of them in no less than tens of milliseconds."""


_MOST = 1 << 26
"""Elements: half a gibibyte in float64, in which several such are held at a time."""


class Extents:
    """Numbers for symbols, and what dims are then."""

    def __init__(self, symbols: Mapping[Any, int]) -> None:
        self.symbols = dict(symbols)
        self._known: dict[Any, int] = {}

    def __str__(self) -> str:
        return ", ".join(f"{name}={extent}" for name, extent in sorted(self.by_name().items()))

    def by_name(self) -> dict[str, int]:
        return {str(symbol): extent for symbol, extent in self.symbols.items()}

    def bind(self, symbol: Any, extent: int) -> None:
        """Gives a symbol without a number one."""
        if symbol not in self.symbols:
            self.symbols[symbol] = extent

    def dim(self, dim: Dim) -> int:
        if isinstance(dim, int):
            return dim
        known = self._known.get(dim)
        if known is None:
            result = substitute(dim, self.symbols)
            if not isinstance(result, int):
                raise InputError(f"{dim} has symbols without an extent")
            known = self._known[dim] = result
        return known

    def dims(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        return tuple(self.dim(dim) for dim in dims)

    def slots(self, table: DimTable) -> list[int]:
        """The value of every slot.

        Raises:
            ShapeError: one divides by 0.
        """
        return evaluate(table, [self.symbols[symbol] for symbol in table.symbols])

    def attrs(self, node: Node) -> dict[str, Any]:
        """The attributes of a basic operator as numbers."""
        return {name: self._number(attr) for name, attr in node.attrs.items()}

    def _number(self, attr: Any) -> Any:
        if isinstance(attr, tuple | list):
            return tuple(self._number(item) for item in attr)
        return self.dim(attr) if isinstance(attr, Expression) else attr


def choose_extents(
    facts: Facts,
    symbols: Sequence[Any],
    count: int,
    seed: int,
    shapes: Sequence[Sequence[Dim]] = (),
    table: DimTable | None = None,
) -> list[Extents]:
    """Up to `count` assignments; none: no small numbers satisfy what the model assumes.

    Dims of `shapes` have to have a value, too, and none below 0; those of a `table` any value. Extents at which a shape has many elements
    are taken only where there are no others, and then the least of them, unless memory is not to be had for that.
    """
    chosen: list[Extents] = []
    spare: tuple[int, Extents] | None = None
    keys = set()
    conditions = _Conditions(facts, symbols, [dim for shape in shapes for dim in shape], table)
    for draw in _draws(len(conditions.free), seed):
        extents = conditions.complete(draw)
        if extents is None or tuple(extents.symbols.values()) in keys:
            continue
        keys.add(tuple(extents.symbols.values()))
        elements = max((math.prod(extents.dims(shape)) for shape in shapes), default=0)
        if elements <= _MANY:
            chosen.append(extents)
        elif elements <= _MOST and (spare is None or elements < spare[0]):
            spare = elements, extents
        if len(chosen) == count or not conditions.free:
            break
    return chosen or ([spare[1]] if spare else [])


def larger_extents(
    facts: Facts,
    symbols: Sequence[Any],
    shapes: Sequence[Sequence[Dim]] = (),
    table: DimTable | None = None,
) -> list[Extents]:
    """Assignments from large to small, each symbol in turn the largest; none of small extents are among them."""
    conditions = _Conditions(facts, symbols, [dim for shape in shapes for dim in shape], table)
    chosen = []
    free = len(conditions.free)
    for at, extent in enumerate(_DESCENDING[:-3]):
        for other in (_DESCENDING[at + 3], _DESCENDING[-1]) if free > 1 else (0,):
            for largest in range(free):
                draw = [extent if i == largest else other for i in range(free)]
                extents = conditions.complete(draw)
                if extents is not None:
                    chosen.append(extents)
    return chosen


def _draws(free: int, seed: int) -> Iterator[tuple[int, ...]]:
    """Primes, ones, numbers equal by coincidence, each in turn 0 or 1, then random ones."""
    generator = random.Random(seed)
    primes = [_PRIMES[index % len(_PRIMES)] for index in range(free)]
    yield tuple(primes)
    yield (1,) * free
    yield (3,) * free
    first = generator.randrange(free) if free else 0
    for index in range(min(free, 4)):
        at = (first + index) % free
        yield tuple(index % 2 if i == at else extent for i, extent in enumerate(primes))
    for pool in (_SMALL, _LARGER):
        for _ in range(_TRIES):
            yield tuple(generator.choice(pool) for _ in range(free))


def _broadcasts(dims: Iterable[Dim]) -> Iterator[Check]:
    """That extents which broadcast in these dims do: in a body of control flow it is the body that says so."""
    pending = [dim for dim in dims if not isinstance(dim, int)]
    while pending:
        dim = pending.pop()
        parts = dim.args
        if isinstance(dim, BroadcastDim):
            for left, right in itertools.combinations(parts, 2):
                yield Check(left, Relation.BROADCASTS, right, "operands broadcast")
        pending += [part for part in parts if not isinstance(part, int)]


def satisfied(facts: Facts, extents: Extents, dims: Sequence[Dim]) -> bool:
    """Whether what the model assumes holds, as far as the extents tell, and no dim is below 0."""
    table = DimTable()
    slots = [table.slot(dim) for dim in dims if symbols_of(dim) <= extents.symbols.keys()]
    conditions = []
    for check in (*facts.conditions(), *_broadcasts(dims)):
        sides = symbols_of(check.left) | symbols_of(check.right)
        if sides <= extents.symbols.keys():
            conditions.append(table.condition(check))
    try:
        values = evaluate(table, [extents.symbols[symbol] for symbol in table.symbols])
    except ShapeError:
        return False
    return all(values[slot] >= 0 for slot in slots) and all(values[slot] for slot in conditions)


class _Conditions:
    """What an assignment has to satisfy."""

    def __init__(
        self,
        facts: Facts,
        symbols: Sequence[Any],
        dims: Sequence[Dim],
        known: DimTable | None = None,
    ) -> None:
        self._symbols = list(dict.fromkeys(symbols))
        derived = {s: facts.canonical(s) for s in self._symbols}
        used = [other for dim in derived.values() for other in symbols_of(dim)]
        for check in facts.conditions():
            used += [s for side in (check.left, check.right) for s in symbols_of(side)]
        self._symbols = list(dict.fromkeys([*self._symbols, *sorted(used, key=str)]))
        derived = {s: facts.canonical(s) for s in self._symbols}
        self.free = [s for s, dim in derived.items() if dim is s or s in symbols_of(dim)]
        self._ranges = [facts.bounds(s) for s in self._symbols]
        self._table = DimTable()
        self._slots = [self._table.slot(derived[s]) for s in self._symbols]
        checks = (*facts.conditions(), *_broadcasts(dims))
        self._checks = [self._table.condition(check) for check in checks]
        self._dims = [self._table.slot(dim) for dim in dims]
        self._known = known

    def complete(self, draw: Sequence[int]) -> Extents | None:
        """The extents that follow from those of the free symbols; None: they contradict something."""
        given = dict(zip(self.free, draw, strict=True))
        try:
            first = evaluate(self._table, [given.get(s, 0) for s in self._table.symbols])
            extents = dict(zip(self._symbols, (first[slot] for slot in self._slots), strict=True))
            values = evaluate(self._table, [extents[s] for s in self._table.symbols])
        except (ShapeError, KeyError):
            return None
        for (low, high), extent in zip(self._ranges, extents.values(), strict=True):
            if not max(low, 0) <= extent <= high:
                return None
        if any(values[slot] < 0 for slot in self._dims):
            return None
        if not all(values[slot] for slot in self._checks):
            return None
        result = Extents(extents)
        return result if self._known is None or _has_values(result, self._known) else None


def _has_values(extents: Extents, table: DimTable) -> bool:
    try:
        extents.slots(table)
    except ShapeError:
        return False
    return True
