"""Element-wise functions: one basic operator, or formulas of a few, written in the namespace itself.

The tables say which functions are a basic operator. What they have no row for is below, by the precision and the special
values that the standard asks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from dvm_graph.xp.array import Array, Operand, another
from dvm_graph.xp.buffer import OnHost, append, lazy
from dvm_graph.xp.dtypes import bool as boolean
from dvm_graph.xp.dtypes import float64
from dvm_graph.xp.promotion import as_array, as_arrays, as_floats, cast, floating, promoted

Unary: TypeAlias = Callable[[Array], Array]
Binary: TypeAlias = Callable[[Operand, Operand], Array]


def _named(function: Callable[..., Array], name: str) -> Callable[..., Array]:
    function.__name__ = function.__qualname__ = name
    return lazy(function)


def _of_floats(name: str, op: str) -> Unary:
    """Integers are computed in floats, as numpy does."""

    def function(x: Array, /) -> Array:
        return append(op, (floating(as_array(x)),))

    return _named(function, name)


def _of_numbers(name: str, op: str) -> Unary:
    def function(x: Array, /) -> Array:
        return append(op, (as_array(x),))

    return _named(function, name)


def _to_whole(name: str, op: str) -> Unary:
    """Integers are whole already."""

    def function(x: Array, /) -> Array:
        x = as_array(x)
        return another(x) if x.dtype.kind in "iu" else append(op, (x,))

    return _named(function, name)


def _test(name: str, op: str, of_integers: bool) -> Unary:
    def function(x: Array, /) -> Array:
        x = as_array(x)
        if x.dtype.kind in "biu":
            return append("broadcast_to", (of_integers,), x.shape, "bool")
        return append(op, (x,))

    return _named(function, name)


def _binary(name: str, op: str) -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Array:
        return append(op, promoted(x1, x2))

    return _named(function, name)


def _logical(name: str, op: str) -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Array:
        return append(op, (truth(x1), truth(x2)))

    return _named(function, name)


def truth(x: Operand) -> Array:
    array = as_array(x)
    return array if array.dtype == boolean else append("ne", (array, 0))


acos, asin = _of_floats("acos", "acos"), _of_floats("asin", "asin")
acosh, asinh = _of_floats("acosh", "acosh"), _of_floats("asinh", "asinh")
atan, atanh = _of_floats("atan", "atan"), _of_floats("atanh", "atanh")
cos, cosh = _of_floats("cos", "cos"), _of_floats("cosh", "cosh")
exp, log, log1p = _of_floats("exp", "exp"), _of_floats("log", "log"), _of_floats("log1p", "log1p")
sin, sinh = _of_floats("sin", "sin"), _of_floats("sinh", "sinh")
sqrt, tan, tanh = _of_floats("sqrt", "sqrt"), _of_floats("tan", "tan"), _of_floats("tanh", "tanh")

negative, sign = _of_numbers("negative", "neg"), _of_numbers("sign", "sign")
ceil, floor = _to_whole("ceil", "ceil"), _to_whole("floor", "floor")
round, trunc = _to_whole("round", "round"), _to_whole("trunc", "trunc")
isfinite = _test("isfinite", "isfinite", True)
isinf, isnan = _test("isinf", "isinf", False), _test("isnan", "isnan", False)

add, subtract, multiply = (
    _binary("add", "add"), _binary("subtract", "sub"), _binary("multiply", "mul")
)  # fmt: skip
maximum, minimum = _binary("maximum", "max"), _binary("minimum", "min")
bitwise_and, bitwise_or = _binary("bitwise_and", "bitwise_and"), _binary("bitwise_or", "bitwise_or")
bitwise_xor = _binary("bitwise_xor", "bitwise_xor")
bitwise_left_shift = _binary("bitwise_left_shift", "shift_left")
bitwise_right_shift = _binary("bitwise_right_shift", "shift_right")
equal, not_equal = _binary("equal", "eq"), _binary("not_equal", "ne")
less, less_equal = _binary("less", "lt"), _binary("less_equal", "le")
remainder = _binary("remainder", "mod")
greater, greater_equal = _binary("greater", "gt"), _binary("greater_equal", "ge")

logical_and, logical_or = (
    _logical("logical_and", "bitwise_and"),
    _logical("logical_or", "bitwise_or"),
)
logical_xor = _logical("logical_xor", "bitwise_xor")


@lazy
def abs(x: Array, /) -> Array:
    return another(x) if x.dtype.kind == "u" else append("abs", (x,))


@lazy
def positive(x: Array, /) -> Array:
    if x.dtype == boolean:
        raise OnHost("bool has no sign")
    return _same(x)


def _same(x: Array) -> Array:
    """Another array of the same value."""
    return Array(x._value, x._host)


@lazy
def logical_not(x: Array, /) -> Array:
    return append("logical_not", (truth(x),))


@lazy
def bitwise_invert(x: Array, /) -> Array:
    return append("logical_not" if x.dtype == boolean else "bitwise_not", (x,))


@lazy
def reciprocal(x: Array, /) -> Array:
    return append("reciprocal", (x,))


@lazy
def square(x: Array, /) -> Array:
    return append("mul", (x, x))


@lazy
def where(condition: Array, x1: Operand, x2: Operand, /) -> Array:
    return append("select", (condition, *promoted(x1, x2)))


@lazy
def divide(x1: Operand, x2: Operand, /) -> Array:
    a, b = promoted(x1, x2)
    if isinstance(a, Array) and a.dtype.kind in "biu":
        a = cast(a, float64)
    if isinstance(b, Array) and b.dtype.kind in "biu":
        b = cast(b, float64)
    return append("div", (a, b))


@lazy
def pow(x1: Operand, x2: Operand, /) -> Array:
    if type(x2) is int and x2 == 2 and isinstance(x1, Array):
        return square(x1)
    a, b = promoted(x1, x2)
    if (a if isinstance(a, Array) else as_array(b)).dtype.kind in "iu":
        raise OnHost("negative exponents of integers are errors")
    return append("pow", (a, b))


@lazy
def floor_divide(x1: Operand, x2: Operand, /) -> Array:
    a, b = as_arrays(x1, x2)
    if a.dtype.kind == "u":
        return append("div", (a, b))
    rest = append("fmod", (a, b))
    across = logical_and(not_equal(rest, 0), not_equal(less(rest, 0), less(b, 0)))
    if a.dtype.kind == "i":
        return subtract(append("div", (a, b)), cast(across, rest.dtype))
    whole = append("div", (subtract(a, rest), b))
    lower = round(subtract(whole, cast(across, rest.dtype)))
    quotient = append("div", (a, b))
    exact = where(equal(lower, 0), multiply(quotient, 0.0), lower)  # zeros with the sign
    limit = logical_or(equal(b, 0), logical_or(isinf(a), isinf(b)))
    return where(limit, floor(quotient), exact)


@lazy
def clip(x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    low = another(x) if min is None else maximum(x, min)
    return low if max is None else minimum(low, max)


@lazy
def expm1(x: Array, /) -> Array:
    """exp(x) - 1 without cancellation: what exp(x) is off by is that of the logarithm, too (Kahan)."""
    x = floating(x)
    power = exp(x)
    less_one = subtract(power, 1)
    near = multiply(less_one, divide(x, log(power)))
    rest = where(logical_or(equal(less_one, -1), isinf(power)), less_one, near)
    return where(equal(power, 1), x, rest)


@lazy
def log2(x: Array, /) -> Array:
    return divide(log(floating(x)), math.log(2))


@lazy
def log10(x: Array, /) -> Array:
    return divide(log(floating(x)), math.log(10))


@lazy
def logaddexp(x1: Operand, x2: Operand, /) -> Array:
    """log(exp(x1) + exp(x2)) without overflow."""
    a, b = as_floats(x1, x2)
    most = maximum(a, b)
    tail = log1p(exp(negative(abs(subtract(a, b)))))
    return where(equal(a, b), add(most, math.log(2)), add(most, tail))


@lazy
def hypot(x1: Operand, x2: Operand, /) -> Array:
    """sqrt(x1 * x1 + x2 * x2) without overflow."""
    a, b = (abs(x) for x in as_floats(x1, x2))
    long, short = maximum(a, b), minimum(a, b)
    ratio = divide(short, long)
    length = multiply(long, sqrt(add(square(ratio), 1)))
    limit = where(logical_or(isinf(a), isinf(b)), math.inf, length)
    return where(equal(long, 0), long, limit)


@lazy
def atan2(x1: Operand, x2: Operand, /) -> Array:
    """The angle of (x2, x1), by that in the first quadrant."""
    y, x = as_floats(x1, x2)
    above, beside = abs(y), abs(x)
    ratio = where(equal(above, beside), 1.0, divide(above, beside))
    angle = where(equal(maximum(above, beside), 0), above, atan(ratio))
    turned = where(_is_negative(x), subtract(math.pi, angle), angle)
    return where(_is_negative(y), negative(turned), turned)


def _is_negative(x: Array) -> Array:
    """Of zeros, too; not of NaN."""
    return logical_or(less(x, 0), less(reciprocal(x), 0))


@lazy
def copysign(x1: Operand, x2: Operand, /) -> Array:
    raise OnHost(_BITS)


@lazy
def nextafter(x1: Operand, x2: Operand, /) -> Array:
    raise OnHost(_BITS)


@lazy
def signbit(x: Array, /) -> Array:
    raise OnHost(_BITS)


_BITS = "no basic operator looks at the bits of floats"


@lazy
def conj(x: Array, /) -> Array:
    return _same(x) if x.dtype.kind in "iuf" else _of_complex()


@lazy
def real(x: Array, /) -> Array:
    return _same(x) if x.dtype.kind != "c" else _of_complex()


@lazy
def imag(x: Array, /) -> Array:
    return _of_complex()


def _of_complex() -> Array:
    raise OnHost("kernels know no complex numbers")
