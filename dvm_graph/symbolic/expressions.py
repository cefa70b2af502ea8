"""Dim expressions: symbols, and sums, products and other integer functions of dims.

Purpose: what is to be known of an expression to compute with it, and no more. Sums and products are put in a normal form
as they are made, so that equal ones mostly are the same. All other forms evaluate nothing by themselves: the constructors in
`dims` simplify, so what a dim means and what is rewritten is decided in one place.

Forms: `Add` is a sum of a number, if there is one, and of two or more terms, no two of which differ by a factor that is a
number; `Mul` a product of a number, if there is one, and of powers of different bases; a number times a sum is the sum of the
products, while sums are not multiplied out. Numbers come first, the others in `Expression.order`.

Meaning (that of Python over integers, of the run-time evaluator too): division rounds down, a
remainder has the sign of the divisor, `0 // 0` and `0 % 0` are 0, any other division by zero is an
error. `Equal` and `Less` are 0 or 1.

Texts are those that `grammar` reads: terms in the order of falling powers (`b*s**2 + 2*s - 1`).

What it does not do: build these nodes directly anywhere but in `dims` and `polynomial`. sympy, which could be in its place,
takes longer to load than most models to compile.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from typing_extensions import Self

_MADE: WeakValueDictionary[tuple[type[Expression], tuple[Any, ...]], Any] = WeakValueDictionary()
"""All that there are, by form and operands."""
_MAKING = RLock()
os.register_at_fork(
    before=_MAKING.acquire, after_in_parent=_MAKING.release, after_in_child=_MAKING.release
)


class Expression:
    """An integer that symbols tell. There is one of the same form of the same operands in a process, which is equal to
    itself alone: dims are looked up so often that to compare or hash them by what they hold takes long.
    """

    __slots__ = ("__weakref__", "_text", "args", "order", "symbols")
    args: tuple[Any, ...]
    """Operands: Python's ints, and expressions."""
    order: tuple[Any, ...]
    """Its place among others: by form and operands, so that it is the same in each process."""
    symbols: frozenset[Symbol]
    """Those that it depends on."""
    rank = 4
    """Of the form among others."""

    def __new__(cls, *args: Any) -> Self:
        known: Self | None = _MADE.get((cls, args))
        if known is None:
            with _MAKING:
                known = _MADE.get((cls, args))
                if known is None:
                    known = super().__new__(cls)
                    known._fill(*args)
                    _MADE[cls, args] = known
        return known

    def _fill(self, *args: Any) -> None:
        """Of one that is new, what it holds."""
        self.args = args
        self.order = (self.rank, type(self).__name__, len(args), *map(order_of, args))
        self.symbols = frozenset().union(*map(symbols_of, args))
        self._text = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies are the same again; those in another process are made there."""
        return type(self), self.args

    def __str__(self) -> str:
        """Dims nest those of layers before, and sorting terms takes long: what was written once is kept."""
        self._text = self._text or self._written()
        return self._text

    __repr__ = __str__

    def _written(self) -> str:
        return f"{type(self).__name__}({_listed(self.args)})"

    def __add__(self, other: Any) -> Any:
        return total((self, other))

    def __sub__(self, other: Any) -> Any:
        return total((self, product((-1, other))))

    def __mul__(self, other: Any) -> Any:
        return product((self, other))

    def __neg__(self) -> Any:
        return product((-1, self))

    def __pow__(self, exponent: int) -> Any:
        return product((self,) * exponent)

    __radd__ = __add__
    __rmul__ = __mul__

    def over(self, args: Iterable[Any]) -> Any:
        """The same form of other operands; sums and products in their normal form, others as they are."""
        return type(self)(*args)

    def parts(self) -> Iterator[Expression]:
        """The expression, its operands and theirs, each as often as it is there."""
        yield self
        for arg in self.args:
            if isinstance(arg, Expression):
                yield from arg.parts()


class _Leaf(Expression):
    """An expression without operands, known by its text."""

    __slots__ = ("name",)

    def _named(self, name: str, symbols: frozenset[Symbol]) -> None:
        self.args = ()
        self.name = self._text = name
        self.order = (self.rank, type(self).__name__, 0, name)
        self.symbols = symbols


class Symbol(_Leaf):
    """A non-negative integer that a run tells."""

    __slots__ = ()
    rank = 0

    def _fill(self, name: str) -> None:
        self._named(name, frozenset((self,)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Symbol, (self.name,)


class Pow(Expression):
    """A base to the power of a number above 1."""

    __slots__ = ()
    rank = 1

    def over(self, args: Iterable[Any]) -> Any:
        base, exponent = args
        return product((base,) * exponent)

    def _written(self) -> str:
        base, exponent = self.args
        return f"{_in_brackets(base, Add)}**{exponent}"


class Mul(Expression):
    __slots__ = ()
    rank = 2

    def over(self, args: Iterable[Any]) -> Any:
        return product(args)

    def factors(self) -> list[Any]:
        """As they are written."""
        return sorted(self.args, key=_text_order)

    def _written(self) -> str:
        text = "*".join(_in_brackets(factor, Add) for factor in self.factors())
        return f"-{text[3:]}" if text.startswith("-1*") else text


class Add(Expression):
    __slots__ = ()
    rank = 3

    def over(self, args: Iterable[Any]) -> Any:
        return total(args)

    def terms(self) -> list[Any]:
        """As they are written: by falling powers, but a number in front of a single term that is subtracted."""
        number, last = self.args[0], self.args[-1]
        if len(self.args) == 2 and isinstance(number, int) and number > 0 and _scale(last) < 0:
            factors = last.args
            if len(factors) == 2:
                return [number, last]
        powers = {term: _powers(term) for term in self.args}
        bases = sorted({base for each in powers.values() for base in each}, key=_text_order)

        def place(term: Any) -> tuple[Any, ...]:
            return (*(-powers[term].get(base, 0) for base in bases), _scale(term))

        return sorted(self.args, key=place)

    def _written(self) -> str:
        text = "".join(
            f" - {term[1:]}" if term[0] == "-" else f" + {term}" for term in map(str, self.terms())
        )
        return text[3:] if text[1] == "+" else f"-{text[3:]}"


class IntegerForm(Expression):
    """Any other function."""

    __slots__ = ()


class _Infix(IntegerForm):
    __slots__ = ()
    sign = ""

    def _written(self) -> str:
        left, right = (_in_brackets(arg, Add, Mul, Pow) for arg in self.args)
        return f"({left}{self.sign}{right})"


class FloorDiv(_Infix):
    """floor(a / b)"""

    __slots__ = ()
    sign = "//"


class Mod(_Infix):
    """a - b * floor(a / b)"""

    __slots__ = ()
    sign = "%"


class Equal(_Infix):
    """1 where a == b, else 0."""

    __slots__ = ()
    sign = "=="


class Less(_Infix):
    """1 where a < b, else 0."""

    __slots__ = ()
    sign = "<"


class Min(IntegerForm):
    """The smallest of two or more operands."""

    __slots__ = ()


class Max(IntegerForm):
    """The largest of two or more operands."""

    __slots__ = ()


class Select(IntegerForm):
    """b where the condition a (0 or 1) is 1, else c."""

    __slots__ = ()


class BroadcastDim(IntegerForm):
    """The extent that two or more extents broadcast to: the first that is not 1, if there is one.

    Symmetric where the extents do broadcast.
    """

    __slots__ = ()

    def _written(self) -> str:
        return f"broadcast({_listed(self.args)})"


class Opaque(_Leaf):
    """A dim that is looked into no more, because it grew too large (`dims.MAX_WEIGHT`).

    A leaf to whatever walks over expressions, named by a digest of its definition: nothing else is known of
    one but its bounds. Runs compute it.
    """

    __slots__ = ("bounds", "definition")

    def _fill(self, definition: Any, bounds: tuple[float, float]) -> None:
        self._named(f"dim#{_digest(definition).hex()}", symbols_of(definition))
        self.definition = definition
        self.bounds = bounds

    def __reduce__(self) -> tuple[Any, ...]:
        return Opaque, (self.definition, self.bounds)


@lru_cache(maxsize=1 << 14)
def _digest(dim: Any) -> bytes:
    """Of the structure of an expression."""
    if isinstance(dim, Expression) and dim.args:
        content = b"".join((type(dim).__name__.encode(), *map(_digest, dim.args)))
    else:
        content = f"{type(dim).__name__} {dim}".encode()
    return hashlib.blake2b(content, digest_size=8).digest()


def symbols_of(dim: Any) -> frozenset[Symbol]:
    """The symbols that a dim depends on."""
    return frozenset() if isinstance(dim, int) else dim.symbols


def order_of(dim: Any) -> tuple[Any, ...]:
    """The place of a dim among others, numbers first."""
    return (-1, dim) if isinstance(dim, int) else dim.order


def total(dims: Iterable[Any]) -> Any:
    """The sum of dims."""
    number = 0
    scales: dict[Expression, int] = {}
    for dim in dims:
        for term in dim.args if isinstance(dim, Add) else (dim,):
            if isinstance(term, int):
                number += term
            else:
                scale, rest = _scale_and_rest(term)
                scales[rest] = scales.get(rest, 0) + scale
    terms = [_scaled(rest, scale) for rest, scale in scales.items() if scale]
    terms.sort(key=order_of)
    return _form(Add, number, 0, terms)


def product(dims: Iterable[Any]) -> Any:
    """The product of dims."""
    number = 1
    powers: dict[Expression, int] = {}
    for dim in dims:
        for factor in dim.args if isinstance(dim, Mul) else (dim,):
            if isinstance(factor, int):
                number *= factor
            else:
                base, power = factor.args if isinstance(factor, Pow) else (factor, 1)
                powers[base] = powers.get(base, 0) + power
    if number == 0:
        return 0
    factors = [base if power == 1 else Pow(base, power) for base, power in powers.items()]
    if number != 1 and len(factors) == 1 and isinstance(factors[0], Add):
        return total(product((number, term)) for term in factors[0].args)
    factors.sort(key=order_of)
    return _form(Mul, number, 1, factors)


def _form(form: type[Expression], number: int, neutral: int, operands: list[Expression]) -> Any:
    args = operands if number == neutral and operands else [number, *operands]
    return args[0] if len(args) == 1 else form(*args)


def _scale_and_rest(term: Expression) -> tuple[int, Expression]:
    if not isinstance(term, Mul) or not isinstance(term.args[0], int):
        return 1, term
    scale, *factors = term.args
    return scale, factors[0] if len(factors) == 1 else Mul(*factors)


def count_of_terms(dim: Any) -> int:
    """Of those that are no number."""
    terms = dim.args if isinstance(dim, Add) else (dim,)
    return sum(not isinstance(term, int) for term in terms)


def scaled_extremum(term: Any) -> tuple[Any, int, Any] | None:
    """A term of a sum, and the number and the extremum that it is the product of."""
    scale, *factors = term.args if isinstance(term, Mul) else (1, term)
    if not isinstance(scale, int) or len(factors) != 1:
        return None
    extremum = factors[0]
    return (term, scale, extremum) if isinstance(extremum, Min | Max) else None


def _scaled(rest: Expression, scale: int) -> Expression:
    if scale == 1:
        return rest
    return Mul(scale, *(rest.args if isinstance(rest, Mul) else (rest,)))


def _scale(term: Any) -> int:
    return term if isinstance(term, int) else _scale_and_rest(term)[0]


def _powers(term: Any) -> dict[Expression, int]:
    """The powers that a term is the product of, numbers aside."""
    factors = term.args if isinstance(term, Mul) else (term,)
    powers = (f.args if isinstance(f, Pow) else (f, 1) for f in factors if not isinstance(f, int))
    return dict(powers)


def _text_order(dim: Any) -> tuple[Any, ...]:
    """The place of a factor, or of a base, among others in a text: numbers, names, sums, other functions."""
    if isinstance(dim, int):
        return (0, "", 0, (), 1, dim)
    scale, rest = _scale_and_rest(dim)
    base, power = rest.args if isinstance(rest, Pow) else (rest, 1)
    return (*_base_order(base), power, scale)


@lru_cache(maxsize=1 << 14)
def _base_order(base: Expression) -> tuple[Any, ...]:
    if isinstance(base, _Leaf):
        return (1, type(base).__name__, 1, (base.name,))
    if isinstance(base, Mul):
        rank, args = 2, base.factors()
    elif isinstance(base, Add):
        rank, args = 3, base.terms()
    else:
        rank, args = 4, list(base.args)
    return (rank, type(base).__name__, len(args), tuple(map(_text_order, args)))


def _listed(dims: Iterable[Any]) -> str:
    return ", ".join(map(str, dims))


def _in_brackets(dim: Any, *forms: type[Expression]) -> str:
    """The text of an operand, in brackets where it is of one of some forms."""
    loose = isinstance(dim, forms) or (isinstance(dim, int) and dim < 0 and Mul in forms)
    return f"({dim})" if loose else str(dim)
