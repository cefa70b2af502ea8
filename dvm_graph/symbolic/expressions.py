"""The forms of dim expressions beyond sympy's sums and products.

Purpose: floor division, remainder, minimum, maximum, comparisons and selection over integers, as
plain sympy nodes. They evaluate nothing by themselves: the constructors in `dims` simplify, so what
a dim means and what is rewritten is decided in one place, quickly.

Meaning (that of Python over integers, of the run-time evaluator too): division rounds down, a
remainder has the sign of the divisor, `0 // 0` and `0 % 0` are 0, any other division by zero is an
error. `Equal` and `Less` are 0 or 1.

What it does not do: build these nodes directly anywhere but in `dims`.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sympy
from sympy.printing.precedence import PRECEDENCE

if TYPE_CHECKING:
    from sympy.printing.str import StrPrinter


class IntegerForm(sympy.Expr):
    """An integer-valued function of integers that sympy leaves as it is."""

    is_integer = True
    is_commutative = True

    def __new__(cls, *args: Any) -> IntegerForm:
        form: IntegerForm = sympy.Expr.__new__(cls, *map(to_expression, args))
        return form

    def _sympystr(self, printer: StrPrinter) -> str:
        """Dims nest those of layers before, and printing sums takes long: what was written once is kept."""
        text = _TEXTS.get(self)
        if text is None:
            if len(_TEXTS) >= _MOST_TEXTS:
                _TEXTS.clear()
            text = _TEXTS[self] = self._written(printer)
        return text

    def _written(self, printer: StrPrinter) -> str:
        operands = ", ".join(printer.doprint(arg) for arg in self.args)
        return f"{type(self).__name__}({operands})"


_TEXTS: dict[IntegerForm, str] = {}
_MOST_TEXTS = 1 << 12


class _Infix(IntegerForm):
    symbol = ""

    def _written(self, printer: StrPrinter) -> str:
        left, right = (printer.parenthesize(arg, PRECEDENCE["Pow"]) for arg in self.args)
        return f"({left}{self.symbol}{right})"


class FloorDiv(_Infix):
    """floor(a / b)"""

    symbol = "//"


class Mod(_Infix):
    """a - b * floor(a / b)"""

    symbol = "%"


class Equal(_Infix):
    """1 where a == b, else 0."""

    symbol = "=="


class Less(_Infix):
    """1 where a < b, else 0."""

    symbol = "<"


class Min(IntegerForm):
    """The smallest of two or more operands."""


class Max(IntegerForm):
    """The largest of two or more operands."""


class Select(IntegerForm):
    """b where the condition a (0 or 1) is 1, else c."""


class BroadcastDim(IntegerForm):
    """The extent that two or more extents broadcast to: the first that is not 1, if there is one.

    Symmetric where the extents do broadcast.
    """

    def _written(self, printer: StrPrinter) -> str:
        return f"broadcast({', '.join(printer.doprint(arg) for arg in self.args)})"


class Opaque(sympy.AtomicExpr):
    """A dim that is looked into no more, because it grew too large (`dims.MAX_WEIGHT`).

    A leaf to whatever walks over expressions, and known by a digest of its definition: two of the
    same are equal, and nothing else is known of one but its bounds. Runs compute it.
    """

    is_integer = True
    is_commutative = True
    __slots__ = ("bounds", "definition", "symbols", "text")
    definition: Any
    bounds: tuple[float, float]
    symbols: frozenset[sympy.Symbol]
    text: str

    def __new__(cls, definition: Any, bounds: tuple[float, float]) -> Opaque:
        leaf: Opaque = sympy.AtomicExpr.__new__(cls)
        leaf.definition = definition
        leaf.bounds = bounds
        leaf.symbols = symbols_of(definition)
        leaf.text = f"dim#{_digest(definition).hex()}"
        return leaf

    def _hashable_content(self) -> tuple[Any, ...]:
        return (self.text,)

    @property
    def free_symbols(self) -> set[sympy.Symbol]:
        return set(self.symbols)

    def _sympystr(self, _printer: StrPrinter) -> str:
        return self.text


@lru_cache(maxsize=1 << 14)
def _digest(dim: Any) -> bytes:
    """Of the structure of an expression."""
    if dim.args:
        content = b"".join((type(dim).__name__.encode(), *map(_digest, dim.args)))
    else:
        content = f"{type(dim).__name__} {dim}".encode()
    return hashlib.blake2b(content, digest_size=8).digest()


def symbols_of(dim: Any) -> frozenset[sympy.Symbol]:
    """The symbols that a dim depends on."""
    return frozenset() if isinstance(dim, int) else frozenset(dim.free_symbols)


def to_expression(dim: Any) -> Any:
    """A dim as sympy has it: numbers as `sympy.Integer`."""
    return sympy.Integer(dim) if isinstance(dim, int) else dim


def arguments(form: Any) -> tuple[Any, ...]:
    """Operands of a form, integers as Python's."""
    return tuple(int(arg) if arg.is_Integer else arg for arg in form.args)
