"""Dims and their arithmetic.

Purpose: build dim expressions, simplified as they are built. A dim is a Python int or an
expression over non-negative integer symbols (`expressions`); a result that is a number is always a Python int.
Nothing here knows more about a symbol than that it is a non-negative integer; see `facts`.

Invariants: every rewrite holds for all values of the symbols, 0 and 1 included, except that a
cancelled divisor is taken to be non-zero (`s*b // b` is `s`: where b is 0 the original is an error
or 0 // 0, for which any value will do).

Dims are small: operands that together weigh more than `MAX_WEIGHT`, or whose product would have more
than `MAX_TERMS` terms, go in as opaque leaves (`expressions.Opaque`). So one operation costs no more
than a constant, however a model nests, multiplies or repeats its dims; what is lost is proofs about
dims that nobody could read, and a run computes and checks those as others.

What it does not do: search for the shortest form, or evaluation of text (see `grammar`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

from dvm_graph.errors import ShapeError
from dvm_graph.symbolic import expressions as forms
from dvm_graph.symbolic.intervals import bounds, nonnegative
from dvm_graph.symbolic.polynomial import (
    Dim,
    Monomial,
    Polynomial,
    constant_of,
    content,
    difference,
    divide,
    divide_monomial,
    exact_quotient,
    plus,
    polynomial,
    to_dim,
)

MAX_WEIGHT = 160
"""Leaves and operators of the operands of one operation."""
MAX_TERMS = 64
"""Terms of a product of sums, and of a sum that is divided."""
_MAX_DEGREE = 32
_MAX_BITS = 63
"""Of the coefficients of two factors together."""
_MEMO = 1 << 14

symbols_of = forms.symbols_of


class Symbols:
    """The symbols of one model, by name, in order of appearance."""

    def __init__(self) -> None:
        self._symbols: dict[str, forms.Symbol] = {}
        self._places: dict[forms.Symbol, int] = {}
        self._given = 0

    @property
    def order(self) -> list[forms.Symbol]:
        return list(self._places)

    def place(self, symbol: forms.Symbol) -> int:
        """In the order of appearance; behind all others for one of another model."""
        return self._places.get(symbol, len(self._places))

    def end_of_inputs(self) -> None:
        """What has appeared so far, a run's inputs tell."""
        self._given = len(self._places)

    def lateness(self, dim: Dim) -> int:
        """When a run knows a dim: 0 with its inputs, else when the last of its symbols has appeared."""
        places = (self.place(symbol) for symbol in symbols_of(dim))
        return max((place for place in places if place >= self._given), default=0)

    def __contains__(self, name: str) -> bool:
        return name in self._symbols

    def get(self, name: str) -> forms.Symbol:
        """The symbol of a name, made at its first use."""
        symbol = self._symbols.get(name)
        if symbol is None:
            symbol = self._symbols[name] = forms.Symbol(name)
            self._places[symbol] = len(self._places)
        return symbol

    def fresh(self, stem: str) -> forms.Symbol:
        """A new symbol, named after `stem`."""
        name, count = stem, 0
        while name in self._symbols:
            count += 1
            name = f"{stem}_{count}"
        return self.get(name)


def is_static(dims: Iterable[Dim]) -> bool:
    """Whether all dims are numbers."""
    return all(isinstance(dim, int) for dim in dims)


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return _add(a, b)


def sub(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return 0 if a is b else _add(a, _mul(-1, b))


def neg(a: Dim) -> Dim:
    return -a if isinstance(a, int) else _mul(-1, a)


def mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return _mul(a, b)


def product(dims: Iterable[Dim]) -> Dim:
    number, result = 1, None
    for dim in dims:
        if isinstance(dim, int):
            number *= dim
        else:
            result = dim if result is None else _mul(result, dim)
    if result is None or number == 0:
        return number
    return result if number == 1 else _mul(number, result)


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b).

    Raises:
        ShapeError: b is the number 0 and a is another.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b else _divide_by_zero(a)
    return _floordiv(a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """The least integer not below a / b."""
    if isinstance(b, int) and b > 0:
        return floordiv(add(a, b - 1), b)
    return neg(floordiv(neg(a), b))


def truncdiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded towards zero, as C and ONNX divide integers."""
    if _certain_nonnegative(b):
        if _certain_nonnegative(a):
            return floordiv(a, b)
        if _certain_nonnegative(add(a, sub(b, 1))):  # what lies between -b and 0 is rounded to 0
            return floordiv(maximum(a, 0), b)
    if isinstance(a, int) and isinstance(b, int):
        if b == 0:
            return _divide_by_zero(a)
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    magnitude = floordiv(maximum(a, neg(a)), maximum(b, neg(b)))
    opposite = not_equal(less(a, 0), less(b, 0))
    return select(opposite, neg(magnitude), magnitude)


def mod(a: Dim, b: Dim) -> Dim:
    """`a - b * floor(a / b)`: the sign of the divisor, as in Python.

    Raises:
        ShapeError: b is the number 0 and a is another.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a % b if b else _divide_by_zero(a)
    return _mod(a, b)


def minimum(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return _extremum(forms.Min, a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return _extremum(forms.Max, a, b)


def equal(a: Dim, b: Dim) -> Dim:
    """1 where a == b, else 0."""
    return int(a == b) if isinstance(a, int) and isinstance(b, int) else _equal(a, b)


def not_equal(a: Dim, b: Dim) -> Dim:
    return logical_not(equal(a, b))


def less(a: Dim, b: Dim) -> Dim:
    """1 where a < b, else 0."""
    return int(a < b) if isinstance(a, int) and isinstance(b, int) else _less(a, b)


def less_equal(a: Dim, b: Dim) -> Dim:
    return less(a, add(b, 1))


def logical_not(a: Dim) -> Dim:
    """The other truth value of a, which is 0 or 1."""
    return sub(1, a)


def logical_and(a: Dim, b: Dim) -> Dim:
    return a if a == b else mul(a, b)


def logical_or(a: Dim, b: Dim) -> Dim:
    return logical_not(logical_and(logical_not(a), logical_not(b)))


def select(condition: Dim, a: Dim, b: Dim) -> Dim:
    """`a` where the condition (0 or 1) is 1, else b."""
    if isinstance(condition, int):
        return a if condition else b
    return a if a == b else _select(condition, a, b)


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """The extent two extents broadcast to: the other where one is 1.

    That they can be broadcast is the caller's knowledge, save for two numbers.

    Raises:
        ShapeError: two numbers that do not broadcast.
    """
    if isinstance(a, int):
        if a == 1:
            return b
        if isinstance(b, int) and b not in (1, a):
            raise ShapeError(f"extents {a} and {b} do not broadcast")
        return a
    if isinstance(b, int):
        return a if b == 1 else b
    return a if a == b else _broadcast(a, b)


def rebuild(form: Any, args: tuple[Dim, ...]) -> Dim:
    """The expression of the same form over other operands, simplified."""
    if isinstance(form, forms.Add):
        return functools.reduce(add, args, 0)
    if isinstance(form, forms.Mul):
        return product(args)
    if isinstance(form, forms.Pow):
        return product([args[0]] * args[1])
    fold = _FOLDS.get(type(form))
    return _CONSTRUCTORS[type(form)](*args) if fold is None else functools.reduce(fold, args)


def substitute(dim: Dim, values: Mapping[Any, Dim]) -> Dim:
    """The dim with symbols replaced; numbers for all symbols give a number."""
    known = dict(values)
    for leaf in opaque_leaves(dim, known):
        known[leaf] = opaque(_replace(leaf.definition, known))
    return _replace(dim, known)


def _replace(dim: Dim, values: Mapping[Any, Dim]) -> Dim:
    if isinstance(dim, int):
        return dim
    value = values.get(dim)
    if value is not None:
        return value
    if not dim.args:
        return dim
    return rebuild(dim, tuple(_replace(arg, values) for arg in dim.args))


def opaque_leaves(dim: Dim, known: Container[Dim] = ()) -> list[forms.Opaque]:
    """The opaque leaves of a dim and of their definitions, each behind those it is defined by.

    Known ones are left out, and so is what only they are defined by.
    """
    found: dict[forms.Opaque, None] = {}
    pending = [(leaf, False) for leaf in _leaves(dim) if leaf not in known]
    while pending:
        leaf, defined = pending.pop()
        if defined:
            found[leaf] = None
        elif leaf not in found:
            pending.append((leaf, True))
            inner = _leaves(leaf.definition)
            pending += [(each, False) for each in inner if each not in known]
    return list(found)


def _leaves(dim: Dim) -> list[forms.Opaque]:
    parts = () if isinstance(dim, int) else dim.parts()
    return sorted({part for part in parts if isinstance(part, forms.Opaque)}, key=str)


def opaque(dim: Dim) -> Dim:
    """The dim as a leaf that is looked into no more."""
    return dim if isinstance(dim, int) or not dim.args else _opaque(dim)


@lru_cache(maxsize=_MEMO)
def _opaque(dim: Dim) -> forms.Opaque:
    return forms.Opaque(dim, bounds(dim))


def _light(*args: Dim) -> tuple[Dim, ...]:
    """Operands of one operation, the heaviest ones opaque where they are too heavy together."""
    weights = [_weight(arg) for arg in args]
    if sum(weights) <= MAX_WEIGHT:
        return args
    result = list(args)
    for index in sorted(range(len(args)), key=lambda index: -weights[index]):
        if sum(weights) > MAX_WEIGHT:
            result[index], weights[index] = opaque(args[index]), 1
    return tuple(result)


def _weight(dim: Dim) -> int:
    return 1 if isinstance(dim, int) or not dim.args else _weight_of(dim)


@lru_cache(maxsize=_MEMO)
def _weight_of(dim: Dim) -> int:
    return 1 + sum(map(_weight, dim.args))


@lru_cache(maxsize=_MEMO)
def _add(a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    result = forms.total((a, b))
    return _within_extremum(result) if isinstance(result, forms.Add) else result


def _within_extremum(dim: Dim) -> Dim:
    """A sum with an extremum, where that gives a number to choose from, or none: x - Min(1, x) is Max(0, x - 1), and that
    plus Min(1, x) is x.
    """
    extrema = [found for term in dim.args if (found := forms.scaled_extremum(term)) is not None]
    others = forms.count_of_terms(dim) - 1
    for term, scale, extremum in extrema:
        if all(forms.count_of_terms(arg) != others for arg in extremum.args):
            continue  # no number is left
        rest = forms.total((dim, mul(-1, term)))
        sums = [forms.total((rest, mul(scale, arg))) for arg in extremum.args]
        if any(isinstance(each, int) for each in sums):
            smallest = isinstance(extremum, forms.Min) == (scale > 0)
            return functools.reduce(minimum if smallest else maximum, sums)
    return _without_opposites(dim, extrema)


def _without_opposites(dim: Dim, extrema: Sequence[tuple[Dim, int, Dim]]) -> Dim:
    """A sum where Min(a, b) + Max(a + c, b + c) is a + b + c, whichever is the smaller one."""
    pairs = [found for found in extrema if len(found[2].args) == 2]
    lower = {
        (scale, sub(*extremum.args)): (term, extremum)
        for term, scale, extremum in pairs
        if isinstance(extremum, forms.Min)
    }
    for term, scale, extremum in pairs if lower else ():
        if isinstance(extremum, forms.Min):
            continue
        for c, d in (extremum.args, extremum.args[::-1]):
            if (found := lower.get((scale, sub(c, d)))) is not None:
                other, smallest = found
                rest = forms.total((dim, mul(-1, term), mul(-1, other)))
                return add(rest, mul(scale, add(c, smallest.args[1])))
    return dim


@lru_cache(maxsize=_MEMO)
def _mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, forms.Equal | forms.Less) and a == b:
        return a
    a, b = _light(a, b)
    if _expands(polynomial(a), polynomial(b)):
        a, b = opaque(a), opaque(b)
    return forms.product((a, b))


def _expands(a: Polynomial, b: Polynomial) -> bool:
    """Whether a product has too many terms, too high a degree or too large a factor."""
    if min(len(a), len(b)) > 1 and len(a) * len(b) > MAX_TERMS:
        return True
    if sum(max(map(abs, poly.values()), default=0).bit_length() for poly in (a, b)) > _MAX_BITS:
        return True
    return sum(max(map(_degree, poly), default=0) for poly in (a, b)) > _MAX_DEGREE


def _degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def _divide_by_zero(a: int) -> int:
    if a:
        raise ShapeError(f"a dim divides {a} by 0")
    return 0


def _certain_nonnegative(dim: Dim) -> bool:
    return bounds(dim)[0] >= 0


@lru_cache(maxsize=_MEMO)
def _floordiv(a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    if b in (0, 1, -1) or a == 0:
        return a if b == 1 else neg(a) if b == -1 else 0 if a == 0 else forms.FloorDiv(a, b)
    top, divisor = polynomial(a), polynomial(b)
    quotient = exact_quotient(top, divisor)
    if quotient is not None:
        return to_dim(quotient)
    if len(top) > MAX_TERMS:
        return forms.FloorDiv(a, b)
    whole: Polynomial = {}
    if len(divisor) == 1:
        whole, top = divide(top, divisor)
    top, divisor = _cancel(top, divisor)
    rest = _proper_floordiv(to_dim(top), to_dim(divisor))
    return add(to_dim(whole), rest) if whole else rest


def _proper_floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b) of operands without a common factor or whole part."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a // b
    if _within(a, b):
        return 0
    if isinstance(b, int) and b < 0:
        a, b = neg(a), -b
    nested = _divided_within(a) if isinstance(b, int) and b > 0 else None
    if nested is not None:
        inner, divisor = nested
        return floordiv(inner, divisor * b)
    return a if b == 1 else forms.FloorDiv(a, b)


def _divided_within(dim: Dim) -> tuple[Dim, int] | None:
    """(a, d) where the dim is floor(a / d), d > 0: x//d + c is (x + d*c)//d for all integers.

    None where no term of the sum, or more than one, is such a division.
    """
    found: tuple[Dim, int] | None = None
    terms = polynomial(dim)
    for monomial, coefficient in terms.items():
        atom, power = next(iter(monomial), (None, 0))
        if len(monomial) != 1 or power != 1 or coefficient != 1:
            continue
        if not isinstance(atom, forms.FloorDiv):
            continue
        top, divisor = atom.args
        if not isinstance(divisor, int) or divisor <= 0:
            continue
        if found is not None:
            return None
        rest = {m: c * divisor for m, c in terms.items() if m != monomial}
        found = add(top, to_dim(rest)), divisor
    return found


def _cancel(top: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Both without the factors common to all their terms."""
    number, factors = content(top)
    other, other_factors = content(divisor)
    shared = gcd(number, other)
    others = dict(other_factors)
    common: Monomial = frozenset(
        (atom, min(power, others[atom])) for atom, power in factors if atom in others
    )
    if shared in (0, 1) and not common:
        return top, divisor
    shared = shared or 1
    return _divide_terms(top, shared, common), _divide_terms(divisor, shared, common)


def _divide_terms(poly: Polynomial, number: int, factors: Monomial) -> Polynomial:
    result = {}
    for monomial, coefficient in poly.items():
        reduced = divide_monomial(monomial, factors)
        assert reduced is not None
        result[reduced] = coefficient // number
    return result


def _within(a: Dim, b: Dim) -> bool:
    """Whether certainly 0 <= a < b."""
    return nonnegative(polynomial(a)) and _is_below(a, b)


def _is_below(a: Dim, b: Dim) -> bool:
    """Whether certainly a < b."""
    return nonnegative(plus(difference(b, a), polynomial(-1)))


@lru_cache(maxsize=_MEMO)
def _mod(a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    if b in (1, -1) or a == 0:
        return 0
    top, divisor = polynomial(a), polynomial(b)
    if b != 0 and exact_quotient(top, divisor) is not None:
        return 0
    if b == 0 or len(top) > MAX_TERMS:
        return forms.Mod(a, b)
    if len(divisor) == 1 and (isinstance(b, int) or _certain_nonnegative(b)):
        _, top = divide(top, divisor)
    reduced = to_dim(top)
    if _within(reduced, b):
        return reduced
    return reduced % b if isinstance(reduced, int) and isinstance(b, int) else forms.Mod(reduced, b)


@lru_cache(maxsize=_MEMO)
def _extremum(form: type[forms.IntegerForm], a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    largest = form is forms.Max
    kept: list[Dim] = []
    for arg in (*_flat(form, a), *_flat(form, b)):
        if any(_covers(other, arg, largest) for other in kept):
            continue
        kept = [other for other in kept if not _covers(arg, other, largest)]
        kept.append(arg)
    return kept[0] if len(kept) == 1 else form(*sorted(kept, key=forms.order_of))


def _flat(form: type[forms.IntegerForm], dim: Dim) -> tuple[Dim, ...]:
    return dim.args if isinstance(dim, form) else (dim,)


def _covers(winner: Dim, other: Dim, largest: bool) -> bool:
    """Whether `winner` is certainly at least (`largest`) or at most the other."""
    gap = difference(winner, other) if largest else difference(other, winner)
    return nonnegative(gap)


@lru_cache(maxsize=_MEMO)
def _equal(a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    constant = constant_of(difference(a, b))
    if constant is not None:
        return int(constant == 0)
    if _is_below(b, a) or _is_below(a, b):
        return 0
    number, other = (a, b) if isinstance(a, int) else (b, a)
    if isinstance(number, int) and bounds(other) == (0, 1):
        return other if number else logical_not(other)
    return forms.Equal(*sorted([a, b], key=forms.order_of))


@lru_cache(maxsize=_MEMO)
def _less(a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    if _is_below(a, b):
        return 1
    return 0 if nonnegative(difference(a, b)) else forms.Less(a, b)


@lru_cache(maxsize=_MEMO)
def _select(condition: Dim, a: Dim, b: Dim) -> Dim:
    return forms.Select(*_light(condition, a, b))


@lru_cache(maxsize=_MEMO)
def _broadcast(a: Dim, b: Dim) -> Dim:
    a, b = _light(a, b)
    args = dict.fromkeys((*_flat(forms.BroadcastDim, a), *_flat(forms.BroadcastDim, b)))
    proper = next((arg for arg in args if bounds(arg)[0] > 1), None)
    if proper is not None:
        return proper
    return forms.BroadcastDim(*sorted(args, key=forms.order_of))


_CONSTRUCTORS: dict[type, Callable[..., Dim]] = {
    forms.FloorDiv: floordiv,
    forms.Mod: mod,
    forms.Equal: equal,
    forms.Less: less,
    forms.Select: select,
}
_FOLDS: dict[type, Callable[[Dim, Dim], Dim]] = {
    forms.Min: minimum,
    forms.Max: maximum,
    forms.BroadcastDim: broadcast_dim,
}
"""Forms of any number of operands."""
