"""What is known about the symbols of a model, and what follows from it.

Purpose: gather equalities and ranges, from operators (matmul's k axes agree) and user hints, and
answer questions about dims from them.

Equalities are a union-find over expressions: where one can be solved for a symbol (`t == 2*s + 1`)
the symbol is substituted away, the one that appeared last first; otherwise the whole expression is
replaced where it appears. `canonical` gives the representative.

Invariants: answers are sound for extents 0 and 1 too: YES and NO are certain, anything else is
UNKNOWN. Every assumption is also kept in `checks`, for the executor to confirm with numbers.

What it does not do: search. A question that substitution, polynomial normal form and intervals
do not settle stays UNKNOWN.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dvm_graph.errors import ShapeError
from dvm_graph.symbolic import expressions as forms
from dvm_graph.symbolic.dims import Symbols, rebuild, symbols_of
from dvm_graph.symbolic.intervals import NONNEGATIVE, Interval, bounds, nonnegative
from dvm_graph.symbolic.meter import Meter
from dvm_graph.symbolic.polynomial import (
    UNIT,
    Dim,
    Polynomial,
    constant_of,
    content,
    difference,
    exact_quotient,
    plus,
    polynomial,
    to_dim,
)
from dvm_graph.symbolic.proofs import Answer, Proof

__all__ = ["Answer", "Check", "Facts", "Proof", "Relation"]


class Relation(enum.Enum):
    EQUAL = "equals"
    LESS_EQUAL = "is at most"
    BROADCASTS = "broadcasts with"
    """Equal, or either is 1."""
    BROADCASTS_TO = "broadcasts to"
    """Equal, or the left is 1."""


@dataclass(frozen=True, slots=True)
class Check:
    """An assumption: `left relation right`, which a run has to confirm."""

    left: Dim
    relation: Relation
    right: Dim
    reason: str

    def __str__(self) -> str:
        return f"{self.left} {self.relation.value} {self.right} ({self.reason})"


_SAME = Proof(Answer.YES, "both are the same")
_DIFFERENT = Proof(Answer.NO, "the numbers differ")


class Facts:
    """Facts about the symbols of one model; they only ever grow."""

    def __init__(self, symbols: Symbols | None = None, meter: Meter | None = None) -> None:
        self.symbols = Symbols() if symbols is None else symbols
        self.meter = Meter() if meter is None else meter
        self.checks: list[Check] = []
        self.outside: frozenset[Any] = frozenset()
        """Of a body of control flow: the symbols whose values come from around it."""
        self.bodies: dict[Any, Facts] = {}
        """Of the compiled bodies of control flow, by their graphs."""
        self.around: Facts | None = None
        """Of a body: those of what it lies in."""
        self._representative: dict[Any, Dim] = {}
        self._reasons: dict[Any, str] = {}
        self._ranges: dict[Any, Interval] = {}
        self._notes: list[tuple[frozenset[Any], str]] = []
        self._canonical: dict[Any, Dim] = {}
        self._equalities: dict[tuple[Dim, Dim], Proof] = {}
        self._same: dict[tuple[Dim, Dim], bool] = {}
        self._divides: dict[tuple[Dim, Dim], bool] = {}
        self._active: set[Any] = set()
        self._expected: set[tuple[Dim, Relation, Dim]] = set()

    def branch(self) -> Facts:
        """A copy, for a region of control flow: what it learns must not leak out."""
        copy = Facts(self.symbols, self.meter)
        copy.checks = list(self.checks)
        copy._representative = dict(self._representative)
        copy._reasons = dict(self._reasons)
        copy._ranges = dict(self._ranges)
        copy._notes = list(self._notes)
        copy._expected = set(self._expected)
        copy.outside, copy.bodies, copy.around = self.outside, self.bodies, self.around
        return copy

    def body(self) -> Facts:
        """A branch for a body that is compiled to a program of its own: it checks what it assumes itself."""
        copy = self.branch()
        copy.checks = []
        copy.outside = frozenset(self.symbols.order)
        copy.around = self
        return copy

    def conditions(self) -> list[Check]:
        """All that runs confirm before they get here."""
        return [*(self.around.conditions() if self.around is not None else ()), *self.checks]

    # -- assuming

    def assume_equal(self, a: Dim, b: Dim, reason: str) -> None:
        """Takes a == b as given.

        Raises:
            ShapeError: that contradicts what is known.
        """
        if a is b or a == b:
            return
        proof = self.prove_equal(a, b)
        if proof.no:
            raise ShapeError(f"{a} and {b} have to be equal ({reason}), but {proof.reason}")
        if proof.unknown:
            self._note(Check(a, Relation.EQUAL, b, reason))
            self._merge(self.canonical(a), self.canonical(b), reason)

    def assume_range(self, a: Dim, low: int | None, high: int | None, reason: str) -> None:
        """Takes low <= a <= high as given; None is no bound.

        Raises:
            ShapeError: that contradicts what is known.
        """
        low_bound = -math.inf if low is None else low
        high_bound = math.inf if high is None else high
        known = self.bounds(a)
        if known[0] > high_bound or known[1] < low_bound or low_bound > high_bound:
            raise ShapeError(f"{a} has to lie in [{low}, {high}] ({reason}), but lies in {known}")
        if low is not None and known[0] < low:
            self._note(Check(low, Relation.LESS_EQUAL, a, reason))
        if high is not None and known[1] > high:
            self._note(Check(a, Relation.LESS_EQUAL, high, reason))
        self._narrow(self.canonical(a), (low_bound, high_bound), reason)

    def assume_all(self, checks: Sequence[Check], known: Collection[Any]) -> None:
        """Takes what elsewhere is checked as given here, as far as it is about known symbols.

        Raises:
            ShapeError: that contradicts what is known.
        """
        for check in checks:
            if symbols_of(check.left) | symbols_of(check.right) <= set(known):
                self._assume(check)

    def _assume(self, check: Check) -> None:
        left, right, reason = check.left, check.right, check.reason
        if check.relation is Relation.EQUAL:
            self.assume_equal(left, right, reason)
        elif check.relation is Relation.LESS_EQUAL and isinstance(left, int):
            self.assume_range(right, left, None, reason)
        elif check.relation is Relation.LESS_EQUAL and isinstance(right, int):
            self.assume_range(left, None, right, reason)
        else:
            self.expect(left, check.relation, right, lambda: reason)

    def expect(self, a: Dim, relation: Relation, b: Dim, reason: Callable[[], str]) -> None:
        """Has a run check what the model demands and nothing follows from."""
        key = (a, relation, b)
        if key not in self._expected:
            self._expected.add(key)
            self.checks.append(Check(a, relation, b, reason()))

    def expects_broadcast(self, a: Dim, b: Dim) -> bool:
        """Whether runs check already that two extents broadcast."""
        pairs = (a, Relation.BROADCASTS, b), (b, Relation.BROADCASTS, a)
        return not self._expected.isdisjoint(pairs)

    # -- asking

    def canonical(self, dim: Dim) -> Dim:
        """The representative of a dim: equal dims of known equality have the same one."""
        if isinstance(dim, int):
            return dim
        known = self._canonical.get(dim)
        if known is None:
            if dim in self._active:
                return dim
            self._active.add(dim)
            known = self._canonicalise(dim)
            self._active.discard(dim)
            self._canonical[dim] = known
        return known

    def bounds(self, dim: Dim) -> Interval:
        """Lowest and highest value a dim can take (infinite where unknown)."""
        if isinstance(dim, int):
            return (dim, dim)
        return bounds(self.canonical(dim), self._ranges)

    def prove_equal(self, a: Dim, b: Dim) -> Proof:
        if isinstance(a, int) and isinstance(b, int):
            return _SAME if a == b else _DIFFERENT
        if a is b or a == b:
            return _SAME
        proof = self._equalities.get((a, b))
        if proof is None:
            proof = self._equalities[a, b] = self._compare(a, b)
        return proof

    def _compare(self, a: Dim, b: Dim) -> Proof:
        self.meter.step()
        left, right = self.canonical(a), self.canonical(b)
        because = () if left is a and right is b else self._used(a, b)
        gap = difference(left, right)
        constant = constant_of(gap)
        if constant == 0:
            return Proof(Answer.YES, "{} and {} are equal", (a, b), because)
        if constant is not None:
            subjects = (a, b, abs(constant))
            return Proof(Answer.NO, "{} and {} always differ by {}", subjects, because)
        if self._above_zero(gap) or self._above_zero(plus({}, gap, -1)) or _has_no_root(gap):
            return Proof(Answer.NO, "{} and {} are never equal", (a, b), self._used(a, b))
        return Proof(Answer.UNKNOWN, "{} and {} may or may not be equal", (a, b))

    def same(self, a: Dim, b: Dim) -> bool:
        """Whether two dims are certainly equal: the YES of `prove_equal`, without a reason, and without
        looking for a NO, which takes many times as long.
        """
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        if a is b:
            return True
        known = self._same.get((a, b))
        if known is None:
            self.meter.step()
            known = polynomial(self.canonical(a)) == polynomial(self.canonical(b))
            self._same[a, b] = known
        return known

    def prove_one(self, a: Dim) -> Proof:
        return self.prove_equal(a, 1)

    def same_shape(self, first: Sequence[Dim], second: Sequence[Dim]) -> bool:
        """Ranks and dims are provably equal."""
        return len(first) == len(second) and all(map(self.same, first, second))

    def prove_less_equal(self, a: Dim, b: Dim) -> Proof:
        if isinstance(a, int) and isinstance(b, int):
            answer = Answer.YES if a <= b else Answer.NO
            return Proof(answer, "{} against {}", (a, b))
        self.meter.step()
        left, right = polynomial(self.canonical(a)), polynomial(self.canonical(b))
        gap = plus(right, left, -1)
        if nonnegative(gap, self._ranges):
            return Proof(Answer.YES, "{} is at most {}", (a, b), self._used(a, b))
        if self._above_zero(plus({}, gap, -1)):
            return Proof(Answer.NO, "{} is above {}", (a, b), self._used(a, b))
        return Proof(Answer.UNKNOWN, "{} may be above {}", (a, b))

    def divides(self, divisor: Dim, a: Dim) -> bool:
        """Whether a is certainly a multiple of the divisor (0 is one of every number)."""
        if isinstance(divisor, int) and isinstance(a, int):
            return a == 0 if divisor == 0 else a % divisor == 0
        known = self._divides.get((divisor, a))
        if known is None:
            self.meter.step()
            known = self._is_multiple(self.canonical(a), self.canonical(divisor))
            self._divides[divisor, a] = known
        return known

    # -- equalities

    def _canonicalise(self, dim: Any) -> Dim:
        replaced = self._representative.get(dim)
        if replaced is not None:
            return self.canonical(replaced)
        if isinstance(dim, forms.Symbol):
            return dim
        args = dim.args
        reduced = tuple(self.canonical(arg) for arg in args)
        result = dim
        if any(a is not b for a, b in zip(args, reduced, strict=True)):
            try:
                result = rebuild(dim, reduced)
            except ShapeError:
                return dim  # no value is defined, which is for the run to report
        if isinstance(result, forms.IntegerForm):
            result = self._refine(result)
        return result if result == dim else self.canonical(result)

    def _refine(self, form: forms.IntegerForm) -> Dim:
        """What is known makes of an expression."""
        args = form.args
        match form:
            case forms.Min() | forms.Max():
                return self._refine_extremum(form, args)
            case forms.BroadcastDim():
                return next((arg for arg in args if bounds(arg, self._ranges)[0] > 1), form)
            case forms.Equal():
                return {Answer.YES: 1, Answer.NO: 0}.get(self.prove_equal(*args).answer, form)
            case forms.Less():
                answer = self.prove_less_equal(args[1], args[0]).answer
                return {Answer.YES: 0, Answer.NO: 1}.get(answer, form)
            case _:
                return form

    def _refine_extremum(self, form: forms.IntegerForm, args: tuple[Dim, ...]) -> Dim:
        for index, arg in enumerate(args):
            others = args[:index] + args[index + 1 :]
            for other in others:
                gap = difference(other, arg)
                covered = gap if isinstance(form, forms.Max) else plus({}, gap, -1)
                if nonnegative(covered, self._ranges):
                    return rebuild(form, others)
        return form

    def _merge(self, a: Dim, b: Dim, reason: str) -> None:
        """Makes canonical a and b, not known to be equal, equal."""
        gap = difference(a, b)
        number, _ = content(gap)
        gap = {monomial: c // number for monomial, c in gap.items()}
        solution = self._solve(gap)
        if solution is None:
            later = self.symbols.lateness
            key, value = (b, a) if isinstance(a, int) or later(a) < later(b) else (a, b)
            if not isinstance(value, int) and key in value.parts():
                key, value = value, key
            solution = (key, value)
        key, value = solution
        if self.bounds(value)[1] < self.bounds(key)[0]:
            raise ShapeError(f"{key} has to equal {value} ({reason}), which is less")
        self._represent(key, value, reason)

    def _solve(self, gap: Polynomial) -> tuple[Any, Dim] | None:
        """`gap == 0` solved for an atom of coefficient 1 or -1, the latest symbol if there is one.

        A run has to know what stands for a symbol as soon as the symbol.
        """
        atoms = (atom for monomial in gap for atom, _ in monomial)
        latest = max(map(self.symbols.lateness, atoms), default=0)
        best: tuple[int, Any, Dim] | None = None
        for monomial, coefficient in gap.items():
            if len(monomial) != 1 or abs(coefficient) != 1:
                continue
            ((atom, power),) = monomial
            rest = to_dim({m: -c * coefficient for m, c in gap.items() if m != monomial})
            if power != 1 or (not isinstance(rest, int) and atom in rest.parts()):
                continue
            if self.symbols.lateness(atom) < latest:
                continue
            rank = self.symbols.place(atom) if isinstance(atom, forms.Symbol) else -1
            if best is None or rank > best[0]:
                best = (rank, atom, rest)
        return None if best is None else best[1:]

    def _represent(self, key: Any, value: Dim, reason: str) -> None:
        """Replaces an expression by an equal one.

        A symbol that goes may turn expressions replaced so far into others: those are equated anew.
        It ends, as each symbol goes once.
        """
        stale = self._pull_expressions() if isinstance(key, forms.Symbol) else []
        self._representative[key] = value
        self._reasons[key] = reason
        self._forget()
        known = self._ranges.pop(key, NONNEGATIVE if isinstance(key, forms.Symbol) else None)
        if known is not None:
            self._narrow(self.canonical(value), known, reason)
        for left, right, why in stale:
            proof = self.prove_equal(left, right)
            if proof.no:
                raise ShapeError(f"{left} and {right} have to be equal ({why}), but {proof.reason}")
            if proof.unknown:
                self._merge(self.canonical(left), self.canonical(right), why)

    def _pull_expressions(self) -> list[tuple[Any, Dim, str]]:
        """Takes back what replaces expressions other than symbols."""
        keys = [key for key in self._representative if not isinstance(key, forms.Symbol)]
        return [(key, self._representative.pop(key), self._reasons.pop(key)) for key in keys]

    def _used(self, *dims: Dim) -> tuple[str, ...]:
        """Reasons of the facts about the symbols of some dims."""
        symbols = set().union(*(symbols_of(dim) for dim in dims))
        reasons = (reason for known, reason in self._notes if not known.isdisjoint(symbols))
        return tuple(dict.fromkeys(reasons))

    def _note(self, check: Check) -> None:
        self.checks.append(check)
        symbols = frozenset(symbols_of(check.left) | symbols_of(check.right))
        self._notes.append((symbols, check.reason))

    def _forget(self) -> None:
        """What was derived from fewer facts."""
        self._canonical.clear()
        self._equalities.clear()
        self._same.clear()
        self._divides.clear()

    # -- ranges and divisors

    def _narrow(self, dim: Dim, interval: Interval, reason: str) -> None:
        """Learns that a canonical dim lies in an interval, where it is linear in one atom."""
        poly = dict(polynomial(dim))
        shift = poly.pop(UNIT, 0)
        if len(poly) != 1:
            return
        ((monomial, scale),) = poly.items()
        if len(monomial) != 1:
            return
        ((atom, power),) = monomial
        if power != 1:
            return
        low, high = (_inverse(end, shift, scale) for end in interval)
        if scale < 0:
            low, high = high, low
        low = math.ceil(low) if math.isfinite(low) else low
        high = math.floor(high) if math.isfinite(high) else high
        known = bounds(atom, self._ranges)
        new = (max(low, known[0]), min(high, known[1]))
        if new[0] > new[1]:
            raise ShapeError(f"{atom} cannot lie in [{low}, {high}] ({reason}) and in {known}")
        if new == known:
            return
        self._ranges[atom] = new
        self._forget()
        if new[0] == new[1]:
            self._represent(atom, int(new[0]), reason)

    def _above_zero(self, poly: Polynomial) -> bool:
        return nonnegative(plus(poly, {UNIT: -1}), self._ranges)

    def _is_multiple(self, top: Dim, divisor: Dim) -> bool:
        """Whether a canonical dim is certainly a multiple of another."""
        if divisor == 1 or top == 0:
            return True
        return divisor != 0 and exact_quotient(polynomial(top), polynomial(divisor)) is not None


def _has_no_root(gap: Polynomial) -> bool:
    """Whether the terms with symbols, of which there are some, have a common factor that the constant lacks."""
    number, _ = content({m: c for m, c in gap.items() if m})
    return gap.get(UNIT, 0) % number != 0


def _inverse(end: float, shift: Any, scale: Any) -> float:
    if math.isinf(end):
        return end if scale > 0 else -end
    return Fraction(int(end) - shift, scale)  # type: ignore[return-value]  # exact; compares with floats
