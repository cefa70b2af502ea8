"""The text form of dims in model files.

Purpose: ONNX `dim_param` strings carry expressions (`Min(512, seq)`, `batch*seq`, `s0//2`,
`floor(h/8 + 1)`, unbacked `u0`); this reads them by recursive descent. Nothing is ever evaluated.

    sum     := product (("+" | "-") product)*
    product := unary (("*" | "/" | "//" | "%") unary)*
    unary   := ("-" | "+") unary | power
    power   := primary ("**" unary)?
    primary := number | name | name "(" sum ("," sum)* ")" | "(" sum ")"

Names hold letters, digits, `_`, `.`, `:`, `$`, and `-` between letters (`batch-size` is a name,
`seq - 1` is not). Intermediate results may be fractions (`h/8` inside of `floor`).

What it does not do: fail. Text it cannot read becomes a symbol named by the whole text. Files are
untrusted: length, nesting and size of the result are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dvm_graph.errors import ShapeError
from dvm_graph.symbolic import dims
from dvm_graph.symbolic.dims import Symbols
from dvm_graph.symbolic.polynomial import Dim, exact_quotient, polynomial, to_dim

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?)(?![A-Za-z_])"
    r"|(?P<name>[^\W\d](?:[\w.:$]|-(?=[^\W\d]))*)"
    r"|(?P<operator>\*\*|//|[-+*/%(),]))"
)
_MAX_LENGTH = 500
_MAX_NESTING = 40
_MAX_EXPONENT = 8
_MAX_NUMBER = 2**63 - 1


class _MalformedError(Exception):
    """The text is no expression of the grammar; never leaves this module."""


@dataclass(frozen=True, slots=True)
class _Ratio:
    """top / bottom, before a rounding function makes it an integer."""

    top: Dim
    bottom: Dim = 1


def parse_dim(text: str, symbols: Symbols) -> Dim:
    """The dim that a `dim_param` string stands for.

    Text that is no expression becomes a symbol of that name, text without a letter or digit (`?`)
    a fresh one, as it names nothing.
    """
    stripped = text.strip()
    if not any(char.isalnum() for char in stripped):
        return symbols.fresh("dim")
    if stripped.isidentifier():
        return symbols.get(stripped)
    if len(stripped) <= _MAX_LENGTH:
        staged = Symbols()
        try:
            result = _Parser(stripped, staged).parse()
        except (_MalformedError, ShapeError):
            return symbols.get(stripped)
        for symbol in staged.order:
            symbols.get(symbol.name)
        return result
    return symbols.get(stripped)


def evaluate_dim_text(text: str, values: Mapping[str, int], default: int) -> int:
    """The extent that `dim_param` text has, given values of (some of) its symbols.

    Symbols without a value take the default; so does text whose value is no valid extent.
    """
    if text in values:
        return values[text]
    symbols = Symbols()
    dim = parse_dim(text, symbols)
    try:
        extent = dims.substitute(dim, {s: values.get(s.name, default) for s in symbols.order})
    except ShapeError:
        return default
    return extent if isinstance(extent, int) and extent >= 0 else default


class _Parser:
    def __init__(self, text: str, symbols: Symbols) -> None:
        self._tokens = _tokenise(text)
        self._position = 0
        self._nesting = 0
        self._symbols = symbols

    def parse(self) -> Dim:
        result = self._sum()
        if self._peek():
            raise _MalformedError
        dim = _integer(result)
        if dims.opaque_leaves(dim):
            raise _MalformedError  # too large to be read by anybody
        return dim

    def _peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._position += 1
        return token

    def _expect(self, token: str) -> None:
        if self._next() != token:
            raise _MalformedError

    def _sum(self) -> _Ratio:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise _MalformedError
        result = self._product()
        while self._peek() in ("+", "-"):
            combine = _add if self._next() == "+" else _sub
            result = combine(result, self._product())
        self._nesting -= 1
        return result

    def _product(self) -> _Ratio:
        """A sign before factors is that of their product, as dims are printed."""
        negative, result = self._sign(), self._power()
        while (operator := self._peek()) in _PRODUCTS:
            self._next()
            if negative and operator != "*":
                negative, result = False, _negated(result)
            result = _PRODUCTS[operator](result, self._unary())
        return _negated(result) if negative else result

    def _unary(self) -> _Ratio:
        negative, result = self._sign(), self._power()
        return _negated(result) if negative else result

    def _sign(self) -> bool:
        negative = False
        while self._peek() in ("+", "-"):
            negative ^= self._next() == "-"
        return negative

    def _power(self) -> _Ratio:
        base = self._primary()
        if self._peek() != "**":
            return base
        self._next()
        return _power(base, self._primary())

    def _primary(self) -> _Ratio:
        token = self._next()
        if token == "(":
            result = self._sum()
            self._expect(")")
            return result
        if token[:1].isdigit():
            value = Fraction(token)
            if max(value.numerator, value.denominator) > _MAX_NUMBER:
                raise _MalformedError
            return _Ratio(value.numerator, value.denominator)
        if not token or not (token[0].isalpha() or token[0] == "_"):
            raise _MalformedError
        if self._peek() == "(":
            return self._call(token)
        return _Ratio(self._symbols.get(token))

    def _call(self, name: str) -> _Ratio:
        self._expect("(")
        arguments = [self._sum()]
        while self._peek() == ",":
            self._next()
            arguments.append(self._sum())
        self._expect(")")
        if name in _FOLDS:
            fold, result = _FOLDS[name], _integer(arguments[0])
            for argument in arguments[1:]:
                result = fold(result, _integer(argument))
            return _Ratio(result)
        arity, function = _FUNCTIONS.get(name, (0, None))
        if function is None or len(arguments) != arity:
            raise _MalformedError
        return function(*arguments)


def _tokenise(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _MalformedError
        tokens.append(match[match.lastgroup or 0])
        position = match.end()
    return tokens


def _negated(ratio: _Ratio) -> _Ratio:
    return _sub(_Ratio(0), ratio)


def _integer(ratio: _Ratio) -> Dim:
    if ratio.bottom == 1:
        return ratio.top
    quotient = exact_quotient(polynomial(ratio.top), polynomial(ratio.bottom))
    if quotient is None:
        raise _MalformedError
    return to_dim(quotient)


def _mul_dims(a: Dim, b: Dim) -> Dim:
    result = dims.mul(a, b)
    if isinstance(result, int) and abs(result) > _MAX_NUMBER:
        raise _MalformedError
    return result


def _add(a: _Ratio, b: _Ratio) -> _Ratio:
    if a.bottom == b.bottom:
        return _Ratio(dims.add(a.top, b.top), a.bottom)
    top = dims.add(_mul_dims(a.top, b.bottom), _mul_dims(b.top, a.bottom))
    return _Ratio(top, _mul_dims(a.bottom, b.bottom))


def _sub(a: _Ratio, b: _Ratio) -> _Ratio:
    return _add(a, _Ratio(dims.neg(b.top), b.bottom))


def _mul(a: _Ratio, b: _Ratio) -> _Ratio:
    return _Ratio(_mul_dims(a.top, b.top), _mul_dims(a.bottom, b.bottom))


def _divide(a: _Ratio, b: _Ratio) -> _Ratio:
    if b.top == 0:
        raise _MalformedError
    return _Ratio(_mul_dims(a.top, b.bottom), _mul_dims(a.bottom, b.top))


def _floor(a: _Ratio) -> _Ratio:
    return _Ratio(dims.floordiv(a.top, a.bottom))


def _ceil(a: _Ratio) -> _Ratio:
    return _Ratio(dims.ceildiv(a.top, a.bottom))


def _truncate(a: _Ratio) -> _Ratio:
    return _Ratio(dims.truncdiv(a.top, a.bottom))


def _floordiv(a: _Ratio, b: _Ratio) -> _Ratio:
    return _floor(_divide(a, b))


def _mod(a: _Ratio, b: _Ratio) -> _Ratio:
    return _Ratio(dims.mod(_integer(a), _integer(b)))


def _power(base: _Ratio, exponent: _Ratio) -> _Ratio:
    count = _integer(exponent)
    if not isinstance(count, int) or not 0 <= count <= _MAX_EXPONENT:
        raise _MalformedError
    result = _Ratio(1)
    for _ in range(count):
        result = _mul(result, base)
    return result


def _abs(a: _Ratio) -> _Ratio:
    value = _integer(a)
    return _Ratio(dims.maximum(value, dims.neg(value)))


def _same(a: _Ratio) -> _Ratio:
    return a


def _modular_indexing(a: _Ratio, divisor: _Ratio, modulus: _Ratio) -> _Ratio:
    return _mod(_floordiv(a, divisor), modulus)


_PRODUCTS: dict[str, Callable[[_Ratio, _Ratio], _Ratio]] = {
    "*": _mul,
    "/": _divide,
    "//": _floordiv,
    "%": _mod,
}
_FOLDS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "Min": dims.minimum,
    "min": dims.minimum,
    "Max": dims.maximum,
    "max": dims.maximum,
}
_FUNCTIONS: dict[str, tuple[int, Callable[..., _Ratio]]] = {
    "floor": (1, _floor),
    "FloorToInt": (1, _floor),
    "ceil": (1, _ceil),
    "ceiling": (1, _ceil),
    "CeilToInt": (1, _ceil),
    "TruncToInt": (1, _truncate),
    "trunc": (1, _truncate),
    "ToFloat": (1, _same),
    "Identity": (1, _same),
    "Abs": (1, _abs),
    "abs": (1, _abs),
    "FloorDiv": (2, _floordiv),
    "CleanDiv": (2, _floordiv),
    "CeilDiv": (2, lambda a, b: _ceil(_divide(a, b))),
    "IntTrueDiv": (2, _divide),
    "FloatTrueDiv": (2, _divide),
    "Mod": (2, _mod),
    "PythonMod": (2, _mod),
    "PowByNatural": (2, _power),
    "ModularIndexing": (3, _modular_indexing),
}
