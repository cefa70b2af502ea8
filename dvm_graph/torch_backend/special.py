"""Special functions of torch: the gamma function's logarithm and derivatives, the complement and the inverse of the error function.

Those of the gamma function are computed in float64, of which what a float32 holds survives every cancellation, the others in float32, to a
few parts in 1e7. Of float64 they are torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value
from dvm_graph.symbolic import Builder
from dvm_graph.torch_backend.translation import TABLE, Function, Translation, entry

aten = torch.ops.aten

_SHIFT = 10
"""From here on the series for large arguments are exact to a part in 1e14."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)
"""B2, B4 and so on."""
_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807),
    *(-1.13520398, 1.48851587, -0.82215223, 0.17087277),
)
"""Of Chebyshev's fit, exact to 1.1e-7 of the result."""
_NOTHING_LEFT = 12.0
"""From here on erfc is less than any float32."""
_ERFINV_NEAR = (
    *(1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087),
    *(-4.39150654e-06, -3.5233877e-06, 3.43273939e-07, 2.81022636e-08),
)
_ERFINV_FAR = (
    *(2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773),
    *(-0.00367342844, 0.00134934322, 0.000100950558, -0.000200214257),
)
"""Both exact to 1.3e-7 of the result."""


def _in(dtype: DType, function: Callable[[Builder, Value], Value]) -> Function:
    def build(t: Translation, x: Value) -> Value:
        if t.dtype is DType.FLOAT64:
            raise UnsupportedError("few digits of a float64")
        result = function(t.decomposer, t.value(t.value(x, t.dtype), dtype))
        return t.builder.cast(result, t.dtype)

    return build


def _number(b: Builder, x: Value, number: float) -> Value:
    return b.scalar(number, x.dtype)


def _polynomial(b: Builder, x: Value, factors: Sequence[float]) -> Value:
    """`factors` of x^0, x^1 and so on."""
    *rest, last = factors
    total = _number(b, x, last)
    for factor in reversed(rest):
        total = b.add(b.mul(total, x), _number(b, x, factor))
    return total


# -- the gamma function


def _shifted(b: Builder, x: Value) -> tuple[Value, Value, list[Value]]:
    """Whether a positive x is small; x where the series hold; the numbers that it was shifted over."""
    small = b.lt(x, _number(b, x, _SHIFT))
    steps = [b.add(x, _number(b, x, step)) if step else x for step in range(_SHIFT)]
    return small, b.select(small, b.add(x, _number(b, x, _SHIFT)), x), steps


def _from_positive(b: Builder, x: Value) -> tuple[Value, Value]:
    """Whether x is below 1/2, and what is above by reflection at it."""
    below = b.lt(x, _number(b, x, 0.5))
    return below, b.select(below, b.sub(_number(b, x, 1), x), x)


def _turns(b: Builder, x: Value) -> Value:
    """Of pi x what whole numbers of pi leave, so that its sine is exact near these."""
    return b.mul(b.sub(x, b.round(x)), _number(b, x, math.pi))


def _lgamma(b: Builder, x: Value) -> Value:
    below, positive = _from_positive(b, x)
    small, y, steps = _shifted(b, positive)
    square = b.reciprocal(b.mul(y, y))
    series = [number / (2 * n * (2 * n - 1)) for n, number in enumerate(_BERNOULLI, 1)]
    result = b.mul(b.sub(y, _number(b, x, 0.5)), b.log(y))
    result = b.add(b.sub(result, y), _number(b, x, math.log(2 * math.pi) / 2))
    result = b.add(result, b.div(_polynomial(b, square, series), y))
    product = b.select(small, reduce(b.mul, steps), _number(b, x, 1))
    sine = b.abs(b.sin(_turns(b, x)))
    reflected = b.div(b.mul(product, _number(b, x, math.pi)), sine)
    rest = b.log(b.select(below, reflected, product))
    result = b.select(below, b.sub(rest, result), b.sub(result, rest))
    zero = b.bitwise_or(b.eq(x, _number(b, x, 1)), b.eq(x, _number(b, x, 2)))
    result = b.select(zero, _number(b, x, 0), result)
    return b.select(b.isinf(x), _number(b, x, math.inf), result)


def _digamma(b: Builder, x: Value) -> Value:
    below, positive = _from_positive(b, x)
    small, y, steps = _shifted(b, positive)
    inverse = b.reciprocal(y)
    square = b.mul(inverse, inverse)
    series = [number / (2 * n) for n, number in enumerate(_BERNOULLI, 1)]
    result = b.sub(b.log(y), b.mul(inverse, _number(b, x, 0.5)))
    result = b.sub(result, b.mul(_polynomial(b, square, series), square))
    passed = reduce(b.add, (b.reciprocal(step) for step in steps))
    result = b.sub(result, b.select(small, passed, _number(b, x, 0)))
    angle = _turns(b, x)
    cotangent = b.div(_number(b, x, math.pi), b.tan(angle))
    result = b.select(below, b.sub(result, cotangent), result)
    pole = b.bitwise_and(b.eq(angle, _number(b, x, 0)), below)
    result = b.select(pole, _number(b, x, math.nan), result)
    signed = b.neg(b.reciprocal(x))  # infinite, with the sign that 0 has not
    return b.select(b.eq(x, _number(b, x, 0)), signed, result)


def _trigamma(b: Builder, x: Value) -> Value:
    below, positive = _from_positive(b, x)
    small, y, steps = _shifted(b, positive)
    inverse = b.reciprocal(y)
    square = b.mul(inverse, inverse)
    result = b.add(inverse, b.mul(square, _number(b, x, 0.5)))
    result = b.add(result, b.mul(_polynomial(b, square, _BERNOULLI), b.mul(square, inverse)))
    passed = reduce(b.add, (b.reciprocal(b.mul(step, step)) for step in steps))
    result = b.add(result, b.select(small, passed, _number(b, x, 0)))
    slope = b.div(_number(b, x, math.pi), b.sin(_turns(b, x)))
    return b.select(below, b.sub(b.mul(slope, slope), result), result)


@entry(aten.polygamma.default)
def _polygamma(t: Translation, order: int, x: Value) -> Value:
    if order != 1:
        raise UnsupportedError("a derivative of digamma beyond the first")
    result: Value = _in(DType.FLOAT64, _trigamma)(t, x)
    return result


# -- the error function


def _erfc(b: Builder, x: Value) -> Value:
    """As t e^(-x^2 + p(t)) with t = 1 / (1 + |x| / 2), as 1 - erf(x) has no digits left far out (Press et al., Numerical Recipes, 6.2).

    Of x^2 what 16ths of x have is exact in float32, and by itself; what is left is small.
    """
    size = b.min(b.abs(x), _number(b, x, _NOTHING_LEFT))
    t = b.reciprocal(b.add(_number(b, x, 1), b.mul(size, _number(b, x, 0.5))))
    coarse = b.mul(b.round(b.mul(size, _number(b, x, 16))), _number(b, x, 1 / 16))
    rest = b.mul(b.sub(size, coarse), b.add(size, coarse))
    y = b.mul(t, b.exp(b.sub(_polynomial(b, t, _ERFC), rest)))
    y = b.mul(y, b.exp(b.neg(b.mul(coarse, coarse))))
    return b.select(b.lt(x, _number(b, x, 0)), b.sub(_number(b, x, 2), y), y)


def _erfinv(b: Builder, x: Value) -> Value:
    """By polynomials of log(1 - x^2) (Giles, Approximating the erfinv function, 2010)."""
    one = _number(b, x, 1)
    w = b.neg(b.log(b.mul(b.sub(one, x), b.add(one, x))))
    near = _polynomial(b, b.sub(w, _number(b, x, 2.5)), _ERFINV_NEAR)
    far = _polynomial(b, b.sub(b.sqrt(w), _number(b, x, 3)), _ERFINV_FAR)
    y = b.mul(b.select(b.lt(w, _number(b, x, 5)), near, far), x)
    end = b.eq(b.abs(x), one)
    return b.select(end, b.mul(x, _number(b, x, math.inf)), y)


TABLE[aten.lgamma.default] = _in(DType.FLOAT64, _lgamma)
TABLE[aten.digamma.default] = _in(DType.FLOAT64, _digamma)
TABLE[aten.erfc.default] = _in(DType.FLOAT32, _erfc)
TABLE[aten.erfinv.default] = _in(DType.FLOAT32, _erfinv)
