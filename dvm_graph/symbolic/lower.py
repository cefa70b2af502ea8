"""Dims lowered to straight-line integer programs, which the executor evaluates once per run.

Purpose: turn dim expressions into one shared SSA program over int64, without Python at run time.

The program: instruction i computes slot i from earlier slots, as `(op, a, b)`:

    const v 0     the number v                 symbol i 0    the value of symbol number i
    add a b       slot a + slot b              sub, mul      likewise
    floordiv a b  rounded down                 mod a b       sign of the divisor, as in Python
    min, max      of two slots                 eq, ne, lt, le, and, or    1 or 0

Semantics: int64; `x // 0` and `x % 0` are 0 for x = 0 and else raise the error flag (and give 0).
There is no branch: selection is `b + c * (a - b)`.

Invariants: equal dims have one slot; constants are folded where they fit; `symbols[i]` is symbol
number i.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dvm_graph.symbolic import expressions as forms
from dvm_graph.symbolic.dims import floordiv, mod, opaque_leaves
from dvm_graph.symbolic.facts import Check, Relation
from dvm_graph.symbolic.polynomial import Dim

Instruction: TypeAlias = tuple[str, int, int]


_LARGEST = 2**63 - 1


def _fits(number: int) -> bool:
    return -_LARGEST - 1 <= number <= _LARGEST


OPS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": floordiv,
    "mod": mod,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
    "when": lambda a, b: b if a else 0,
}
"""Binary operators of the program and their meaning; `const` and `symbol` are the leaves."""

_COMMUTATIVE = frozenset({"add", "mul", "min", "max", "eq", "ne", "and", "or"})
_FORM_OPS: dict[type, str] = {
    forms.Mul: "mul",
    forms.FloorDiv: "floordiv",
    forms.Mod: "mod",
    forms.Min: "min",
    forms.Max: "max",
    forms.Equal: "eq",
    forms.Less: "lt",
}


class DimTable:
    """A growing program; asked for a dim it answers with its slot."""

    def __init__(self) -> None:
        self.symbols: list[forms.Symbol] = []
        self.instructions: list[Instruction] = []
        self._symbol_numbers: dict[forms.Symbol, int] = {}
        self._slots: dict[Dim, int] = {}
        self._instruction_slots: dict[Instruction, int] = {}

    def __len__(self) -> int:
        return len(self.instructions)

    def slot(self, dim: Dim) -> int:
        """The slot that holds the value of a dim (or of a 0/1 condition)."""
        known = self._slots.get(dim)
        if known is None:
            known = self._slots[dim] = self._lower(dim)
        return known

    def dims(self) -> dict[int, Dim]:
        """The dims that were asked for, by slot; of equal ones the first."""
        known: dict[int, Dim] = {}
        for dim, slot in self._slots.items():
            known.setdefault(slot, dim)
        return known

    def predicate(self, op: str, a: Dim, b: Dim) -> int:
        """The slot of a comparison (`eq ne lt le`) of dims, or of `and`/`or` of conditions."""
        return self.emit(op, self.slot(a), self.slot(b))

    def condition(self, check: Check) -> int:
        """The slot that is 1 where a check holds, else 0."""
        left, right = self.slot(check.left), self.slot(check.right)
        if check.relation is Relation.LESS_EQUAL:
            return self.emit("le", left, right)
        holds = self.emit("eq", left, right)
        if check.relation is not Relation.EQUAL:
            holds = self.emit("or", holds, self.emit("eq", left, self.slot(1)))
        if check.relation is Relation.BROADCASTS:
            holds = self.emit("or", holds, self.emit("eq", right, self.slot(1)))
        return holds

    def symbol(self, symbol: forms.Symbol) -> int:
        """The number of a symbol."""
        known = self._symbol_numbers.get(symbol)
        if known is None:
            known = self._symbol_numbers[symbol] = len(self.symbols)
            self.symbols.append(symbol)
        return known

    def emit(self, op: str, a: int, b: int) -> int:
        """The slot of an operator applied to slots, folded and shared where possible."""
        left, right = self._constant(a), self._constant(b)
        if left is not None and right is not None and not (op in ("floordiv", "mod") and not right):
            folded = OPS[op](left, right)
            if _fits(folded):
                return self._append(("const", folded, 0))
        if op in _COMMUTATIVE and b < a:
            a, b = b, a
        return self._append((op, a, b))

    def _constant(self, slot: int) -> int | None:
        op, value, _ = self.instructions[slot]
        return value if op == "const" else None

    def _append(self, instruction: Instruction) -> int:
        known = self._instruction_slots.get(instruction)
        if known is None:
            known = self._instruction_slots[instruction] = len(self.instructions)
            self.instructions.append(instruction)
        return known

    def _lower(self, dim: Any) -> int:
        if isinstance(dim, int):
            if not _fits(dim):  # an overflow, too, for whoever needs it at the run
                return self.emit("mul", self.slot(_LARGEST), self.slot(_LARGEST))
            return self._append(("const", dim, 0))
        if isinstance(dim, forms.Symbol):
            return self._append(("symbol", self.symbol(dim), 0))
        if isinstance(dim, forms.Opaque):
            return self._lower_opaque(dim)
        args = dim.args
        if isinstance(dim, forms.Add):
            return self._lower_sum(args)
        if isinstance(dim, forms.Pow):
            return self._fold("mul", (args[0],) * args[1])
        if isinstance(dim, forms.Select):
            condition, then, other = (self.slot(arg) for arg in args)
            return self._select(condition, then, other)
        if isinstance(dim, forms.BroadcastDim):
            return self._lower_broadcast([self.slot(arg) for arg in args])
        return self._fold(_FORM_OPS[type(dim)], args)

    def _lower_opaque(self, dim: forms.Opaque) -> int:
        """Definitions in order, not by recursion: they nest without bound."""
        for leaf in opaque_leaves(dim.definition, self._slots):
            self._slots[leaf] = self.slot(leaf.definition)
        return self.slot(dim.definition)

    def _lower_sum(self, args: Sequence[Dim]) -> int:
        """Terms with a factor of -1 are subtracted."""
        result: int | None = None
        negative = []
        for arg in args:
            if isinstance(arg, forms.Mul) and arg.args[0] == -1:
                negative.append(self._fold("mul", arg.args[1:]))
            else:
                term = self.slot(arg)
                result = term if result is None else self.emit("add", result, term)
        total = self.slot(0) if result is None else result
        for term in negative:
            total = self.emit("sub", total, term)
        return total

    def _lower_broadcast(self, extents: Sequence[int]) -> int:
        result = extents[0]
        for extent in extents[1:]:
            result = self._select(self.emit("eq", result, self.slot(1)), extent, result)
        return result

    def _fold(self, op: str, args: Sequence[Dim]) -> int:
        result = self.slot(args[0])
        for arg in args[1:]:
            result = self.emit(op, result, self.slot(arg))
        return result

    def _select(self, condition: int, then: int, other: int) -> int:
        zero = self.slot(0)
        left = zero if then == zero else self.emit("when", condition, then)
        if other == zero:
            return left
        right = self.emit("when", self.emit("eq", condition, zero), other)
        return right if left == zero else self.emit("add", left, right)


def evaluate(table: DimTable, symbol_values: Sequence[int]) -> list[int]:
    """The value of every slot, given the values of `table.symbols`: the reference evaluator.

    Raises:
        ShapeError: a division by zero.
    """
    values: list[int] = []
    for op, a, b in table.instructions:
        if op == "const":
            values.append(a)
        elif op == "symbol":
            values.append(symbol_values[a])
        else:
            values.append(OPS[op](values[a], values[b]))
    return values
