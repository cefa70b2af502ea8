"""What values a dim can take, and when one is provably not negative.

Purpose: bounds of dims from bounds of their symbols. All answers are conservative: an interval
holds every value the dim can take (and maybe more), `nonnegative` says True only where it is
certain.

Inputs: a dim or polynomial, and the intervals of symbols that have better ones than those of extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from dvm_graph.symbolic.expressions import (
    BroadcastDim,
    Equal,
    FloorDiv,
    Less,
    Max,
    Min,
    Mod,
    Opaque,
    Select,
    Symbol,
)
from dvm_graph.symbolic.polynomial import (
    UNIT,
    Atom,
    Dim,
    Monomial,
    Polynomial,
    plus,
    polynomial,
)

Interval: TypeAlias = tuple[float, float]
"""Lowest and highest value: ints, or infinite."""
Ranges: TypeAlias = Mapping[Any, Interval]
_End: TypeAlias = "float | Fraction"
_Terms: TypeAlias = frozenset[tuple[Monomial, Any]]
"""Of a polynomial."""

LARGEST_EXTENT = 2**48
"""No symbol is taken to be larger: no tensor is, and the ends of slices (2**63 - 1) lie beyond."""
_FARTHEST = 2**512
NONNEGATIVE: Interval = (0, LARGEST_EXTENT)
EVERYTHING: Interval = (-math.inf, math.inf)
NO_RANGES: Ranges = {}

_RELAXATION_DEPTH = 4
_MAX_RELAXATIONS = 100
_MAX_TERMS = 40
"""Larger polynomials are not relaxed: nothing worth proving has more."""


def bounds(dim: Dim, ranges: Ranges = NO_RANGES) -> Interval:
    """Bounds of a dim, given those of symbols (and of other atoms, where known)."""
    if isinstance(dim, int):
        return _saturated(dim, dim)
    if not ranges:
        return _default_bounds(dim)
    return polynomial_bounds(polynomial(dim), ranges)


@lru_cache(maxsize=1 << 14)
def _default_bounds(dim: Dim) -> Interval:
    return polynomial_bounds(polynomial(dim), NO_RANGES)


def polynomial_bounds(poly: Polynomial, ranges: Ranges) -> Interval:
    low: float = 0
    high: float = 0
    for monomial, coefficient in poly.items():
        scale = _saturated(coefficient, coefficient)
        first, last = _times(scale, _monomial_bounds(monomial, ranges))
        low += first
        high += last
    return _saturated(low, high)


def _saturated(low: float, high: float) -> Interval:
    """The interval, and beyond `_FARTHEST` everything.

    Every number, product and sum goes through here, so that extents multiplied time and again become
    no numbers of millions of digits, and what is multiplied by an infinite end fits into a float.
    """
    return (
        -math.inf if low < -_FARTHEST else min(low, _FARTHEST),
        math.inf if high > _FARTHEST else max(high, -_FARTHEST),
    )


def _monomial_bounds(monomial: Monomial, ranges: Ranges) -> Interval:
    result: Interval | None = None
    for atom, power in monomial:
        factor = _power(_atom_bounds(atom, ranges), power)
        result = factor if result is None else _times(result, factor)
    return (1, 1) if result is None else result


def nonnegative(poly: Polynomial, ranges: Ranges = NO_RANGES) -> bool:
    """Whether a polynomial is certainly >= 0.

    Where plain bounds do not say so, one atom at a time is replaced by something it is known to lie
    above or below (`s // 2 <= s / 2`, `min(a, b) <= a`), so that terms may cancel: a search, which
    ends after `_MAX_RELAXATIONS`.
    """
    if polynomial_bounds(poly, ranges)[0] >= 0:
        return True
    return _searched(tuple(poly.items()), _told_of(poly, ranges) if ranges else ())


def _told_of(poly: Polynomial, ranges: Ranges) -> tuple[tuple[Any, Interval], ...]:
    """The ranges that may have a say: branches of what is known differ in others, mostly."""
    symbols: set[Any] = set()
    for monomial in poly:
        for atom, _ in monomial:
            symbols |= atom.symbols
    return tuple(
        (atom, interval)
        for atom, interval in ranges.items()
        if not isinstance(atom, Symbol) or atom in symbols
    )


@lru_cache(maxsize=1 << 14)
def _searched(
    terms: tuple[tuple[Monomial, Any], ...], ranges: tuple[tuple[Any, Interval], ...]
) -> bool:
    return _Relaxation(dict(ranges)).proves(dict(terms), _RELAXATION_DEPTH)


class _Relaxation:
    """A search for one proof. The same polynomial comes by several ways, one for each order of what was replaced."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._tried = 0
        self._proved: set[_Terms] = set()
        self._failed: dict[_Terms, int] = {}
        """And the depth left to those that did."""

    def proves(self, poly: Polynomial, depth: int) -> bool:
        key = frozenset(poly.items())
        if key in self._proved:
            return True
        if depth <= self._failed.get(key, -1):
            return False
        if polynomial_bounds(poly, self._ranges)[0] >= 0 or self._relaxed(poly, depth):
            self._proved.add(key)
            return True
        self._failed[key] = depth
        return False

    def _relaxed(self, poly: Polynomial, depth: int) -> bool:
        if depth == 0 or len(poly) > _MAX_TERMS:
            return False
        for monomial, coefficient in poly.items():
            if len(monomial) != 1:
                continue
            ((atom, power),) = monomial
            relax = _RELAXATIONS.get(type(atom))
            if power != 1 or relax is None:
                continue
            if self._tried > _MAX_RELAXATIONS:
                return False
            self._tried += 1
            rest = {m: c for m, c in poly.items() if m != monomial}
            choices, demand = relax(atom, coefficient, rest, self._ranges)
            if choices and demand(self.proves(choice, depth - 1) for choice in choices):
                return True
        return False


_Relaxed: TypeAlias = tuple[list[Polynomial], Callable[..., bool]]
"""Polynomials, all or any of which must be non-negative for the original to be."""
_NOTHING: _Relaxed = ([], any)


def _relax_floordiv(atom: Atom, scale: Any, rest: Polynomial, ranges: Ranges) -> _Relaxed:
    top, divisor = atom.args
    if not isinstance(divisor, int) or divisor <= 0:
        return _NOTHING
    # divisor * (top // divisor) lies in [top - divisor + 1, top]
    nearest = polynomial(top)
    if scale > 0:
        nearest = plus(nearest, {UNIT: 1 - divisor})
    scaled = {m: c * divisor for m, c in rest.items()}
    return [plus(scaled, nearest, scale)], any


def _relax_mod(atom: Atom, scale: Any, rest: Polynomial, ranges: Ranges) -> _Relaxed:
    top, _ = atom.args
    if scale > 0 or bounds(top, ranges)[0] < 0:
        return _NOTHING
    # for top >= 0 the remainder is at most top: of a negative divisor it is not above 0
    return [plus(rest, polynomial(top), scale)], any


def _relax_choice(atom: Atom, scale: Any, rest: Polynomial, ranges: Ranges) -> _Relaxed:
    """An atom that is one of its operands; whichever it is, a maximum is no less than any, and a minimum no more."""
    operands = atom.args[1:] if isinstance(atom, Select) else atom.args
    choices = [plus(rest, polynomial(operand), scale) for operand in operands]
    return choices, any if isinstance(atom, Max if scale > 0 else Min) else all


_RELAXATIONS: dict[type, Callable[[Atom, Any, Polynomial, Ranges], _Relaxed]] = {
    FloorDiv: _relax_floordiv,
    Mod: _relax_mod,
    **dict.fromkeys((Min, Max, Select, BroadcastDim), _relax_choice),
}


def _atom_bounds(atom: Atom, ranges: Ranges) -> Interval:
    known = ranges.get(atom)
    if known is not None:
        return known
    if isinstance(atom, Symbol):
        return NONNEGATIVE
    if isinstance(atom, Opaque):
        return atom.bounds
    return _ATOM_BOUNDS[type(atom)](*(bounds(arg, ranges) for arg in atom.args))


def _floordiv_bounds(top: Interval, divisor: Interval) -> Interval:
    if divisor[0] < 0:
        return EVERYTHING
    # a divisor of 0 is an error, or 0 // 0, which is 0 as 0 // 1 is
    ends = (max(divisor[0], 1), max(divisor[1], 1))
    quotients = [_floor(a, b) for a in top for b in ends]
    return min(quotients), max(quotients)


def _mod_bounds(top: Interval, divisor: Interval) -> Interval:
    if divisor[0] < 0:
        return EVERYTHING
    high = max(divisor[1] - 1, 0)
    return (0, min(high, top[1])) if top[0] >= 0 else (0, high)


def _min_bounds(*args: Interval) -> Interval:
    return (min(low for low, _ in args), min(high for _, high in args))


def _max_bounds(*args: Interval) -> Interval:
    return (max(low for low, _ in args), max(high for _, high in args))


def _union(*args: Interval) -> Interval:
    return (min(low for low, _ in args), max(high for _, high in args))


def _truth(*_args: Interval) -> Interval:
    return (0, 1)


_ATOM_BOUNDS: dict[type, Callable[..., Interval]] = {
    FloorDiv: _floordiv_bounds,
    Mod: _mod_bounds,
    Min: _min_bounds,
    Max: _max_bounds,
    Select: lambda _condition, then, other: _union(then, other),
    BroadcastDim: _union,
    Equal: _truth,
    Less: _truth,
}


def _floor(top: float, divisor: float) -> float:
    if math.isinf(top):
        # inf // inf lies anywhere between 0 and inf; the other ends of the divisor supply inf
        return 0 if math.isinf(divisor) else top
    if math.isinf(divisor):
        return 0 if top >= 0 else -1
    return top // divisor


def _times(left: Interval, right: tuple[_End, _End]) -> Interval:
    products: list[Any] = [0 if 0 in (a, b) else a * b for a in left for b in right]
    return _saturated(min(products), max(products))


def _power(base: Interval, power: int) -> Interval:
    result = base
    for _ in range(power - 1):
        result = _times(result, base)
    if power % 2 == 0 and result[0] < 0:
        return (0, result[1])
    return result
