"""Dims as polynomials with integer coefficients over atoms.

Purpose: the normal form behind equality, divisibility, exact division and intervals. An atom is a
symbol or an `IntegerForm`; a monomial is a frozenset of (atom, exponent); a polynomial maps
monomials to non-zero coefficients. Two dims with the same polynomial are equal for every value of
their atoms.

Inputs and outputs: dims in, `Polynomial` (a read-only dict) out, and back by `to_dim`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd
from typing import Any, TypeAlias

from dvm_graph.symbolic.expressions import Add, Mul, Pow, product, total

Dim: TypeAlias = Any
Atom: TypeAlias = Any
Monomial: TypeAlias = frozenset[tuple[Atom, int]]
Polynomial: TypeAlias = Mapping[Monomial, int]

UNIT: Monomial = frozenset()


@lru_cache(maxsize=1 << 14)
def polynomial(dim: Dim) -> Polynomial:
    """The normal form of a dim."""
    if isinstance(dim, int):
        return {UNIT: dim} if dim else {}
    if isinstance(dim, Add):
        return _sum(map(polynomial, dim.args))
    if isinstance(dim, Mul):
        result: Polynomial = {UNIT: 1}
        for arg in dim.args:
            result = times(result, polynomial(arg))
        return result
    if isinstance(dim, Pow):
        base, exponent = polynomial(dim.args[0]), dim.args[1]
        power: Polynomial = {UNIT: 1}
        for _ in range(exponent):
            power = times(power, base)
        return power
    return {frozenset({(dim, 1)}): 1}


def _sum(polynomials: Iterable[Polynomial]) -> Polynomial:
    total: dict[Monomial, int] = {}
    for poly in polynomials:
        for monomial, coefficient in poly.items():
            total[monomial] = total.get(monomial, 0) + coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def plus(left: Polynomial, right: Polynomial, scale: int = 1) -> Polynomial:
    """`left + scale * right`"""
    result = dict(left)
    for monomial, coefficient in right.items():
        value = result.get(monomial, 0) + scale * coefficient
        if value:
            result[monomial] = value
        else:
            result.pop(monomial, None)
    return result


def times(left: Polynomial, right: Polynomial) -> Polynomial:
    result: dict[Monomial, int] = {}
    for first, a in left.items():
        for second, b in right.items():
            monomial = _join(first, second)
            value = result.get(monomial, 0) + a * b
            if value:
                result[monomial] = value
            else:
                result.pop(monomial, None)
    return result


def difference(left: Dim, right: Dim) -> Polynomial:
    return plus(polynomial(left), polynomial(right), -1)


def constant_of(poly: Polynomial) -> int | None:
    """The value of a polynomial without atoms, else None."""
    if not poly:
        return 0
    return poly.get(UNIT) if len(poly) == 1 else None


def to_dim(poly: Polynomial) -> Dim:
    """The sum of products that a polynomial stands for."""
    terms = []
    for monomial, coefficient in poly.items():
        factors = [atom for atom, power in monomial for _ in range(power)]
        terms.append(product((coefficient, *factors)))
    return total(terms)


def divide_monomial(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """`monomial / divisor`, or None where the divisor is not among the factors."""
    if not divisor:
        return monomial
    powers = dict(monomial)
    for atom, power in divisor:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        if left:
            powers[atom] = left
        else:
            del powers[atom]
    return frozenset(powers.items())


def content(poly: Polynomial) -> tuple[int, Monomial]:
    """The largest integer and monomial that divide every term."""
    number = 0
    common: dict[Atom, int] | None = None
    for monomial, coefficient in poly.items():
        number = gcd(number, coefficient)
        powers = dict(monomial)
        if common is None:
            common = powers
        else:
            common = {a: min(p, powers[a]) for a, p in common.items() if a in powers}
    return number, frozenset((common or {}).items())


def divide(poly: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(quotient, rest) with poly = quotient * divisor + rest, for a divisor of one term.

    The coefficients stay integers: of each divisible term as many multiples as are in it go to the
    quotient, the remainder (non-negative for a positive divisor) to the rest.
    """
    ((divisor_monomial, number),) = divisor.items()
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in poly.items():
        reduced = divide_monomial(monomial, divisor_monomial)
        whole = 0 if reduced is None else coefficient // number
        if whole and reduced is not None:
            quotient[reduced] = whole
        left = coefficient - whole * number
        if left:
            rest[monomial] = left
    return quotient, rest


def exact_quotient(poly: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """`poly / divisor` where the division leaves nothing over (any divisor), else None."""
    if not divisor:
        return None
    if len(divisor) == 1:
        quotient, rest = divide(poly, divisor)
        return None if rest else quotient
    return _long_division(poly, divisor)


def _long_division(poly: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """Multivariate division by the divisor's leading term, in graded lexical order of the atoms."""
    atoms = sorted({a for p in (poly, divisor) for m in p for a, _ in m}, key=str)

    def rank(monomial: Monomial) -> tuple[int, ...]:
        powers = dict(monomial)
        exponents = tuple(powers.get(atom, 0) for atom in atoms)
        return (sum(exponents), *exponents)

    lead = max(divisor, key=rank)
    quotient: Polynomial = {}
    rest = poly
    while rest:
        top = max(rest, key=rank)
        reduced = divide_monomial(top, lead)
        if reduced is None or rest[top] % divisor[lead]:
            return None
        term = {reduced: rest[top] // divisor[lead]}
        quotient = plus(quotient, term)
        rest = plus(rest, times(term, divisor), -1)
    return quotient


def _join(first: Monomial, second: Monomial) -> Monomial:
    if not first:
        return second
    if not second:
        return first
    powers = dict(first)
    for atom, power in second:
        powers[atom] = powers.get(atom, 0) + power
    return frozenset(powers.items())
