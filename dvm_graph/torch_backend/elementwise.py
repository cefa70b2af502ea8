"""Element-wise operators of torch, casts, and tensors of one number."""

from __future__ import annotations

import math
from typing import Any

import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value
from dvm_graph.torch_backend.translation import (
    DTYPES,
    TABLE,
    UNWRITTEN,
    Function,
    Number,
    Translation,
    entry,
    truth_of,
)

aten, prims = torch.ops.aten, torch.ops.prims


def common_type(*operands: Any) -> DType:
    """The type in which torch computes with operands of several."""
    metas = [_sample(operand) for operand in operands]
    dtype = metas[0]
    for other in metas[1:]:
        dtype = torch.result_type(dtype, other)
        dtype = torch.empty((1,), dtype=dtype) if isinstance(dtype, torch.dtype) else dtype
    return DTYPES[dtype.dtype if isinstance(dtype, torch.Tensor) else torch.get_default_dtype()]


_TORCH = {dtype: name for name, dtype in DTYPES.items()}


def _sample(operand: Any) -> Any:
    if isinstance(operand, Value):
        return torch.empty((1,) * operand.rank, dtype=_TORCH[operand.dtype])
    if isinstance(operand, Number):
        return 1.0
    return operand if isinstance(operand, int | float) else 1  # a size


def _unary(name: str) -> Function:
    def build(t: Translation, x: Value) -> Value:
        return t.builder.op(name, t.value(x, t.dtype))

    return build


def _test(name: str) -> Function:
    def build(t: Translation, x: Value) -> Value:
        return t.builder.op(name, x)

    return build


def _binary(name: str) -> Function:
    def build(t: Translation, a: Any, b: Any) -> Value:
        return t.builder.op(name, t.value(a, t.dtype), t.value(b, t.dtype))

    return build


def _compare(name: str) -> Function:
    def build(t: Translation, a: Any, b: Any) -> Value:
        dtype = common_type(a, b)
        return t.builder.op(name, t.value(a, dtype), t.value(b, dtype))

    return build


def _logical(name: str) -> Function:
    def build(t: Translation, a: Value, b: Value) -> Value:
        return t.builder.op(name, truth(t, a), truth(t, b))

    return build


def truth(t: Translation, x: Value) -> Value:
    return truth_of(t.builder, x)


for _op in (
    *("abs", "neg", "sqrt", "rsqrt", "reciprocal", "exp", "log", "log1p", "sin", "cos"),
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "tanh"),
    *("sigmoid", "floor", "ceil", "round", "trunc"),
):
    TABLE[getattr(aten, _op).default] = _unary(_op)
for _op in ("isnan", "isinf"):
    TABLE[getattr(aten, _op).default] = _test(_op)
for _op, _basic in (
    *(("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or"), ("bitwise_xor", "bitwise_xor")),
    *(("div", "div"), ("true_divide", "div")),
):
    TABLE[getattr(aten, _op).Tensor] = TABLE[getattr(aten, _op).Scalar] = _binary(_basic)
TABLE[aten.maximum.default], TABLE[aten.minimum.default] = _binary("max"), _binary("min")
for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    TABLE[getattr(aten, _op).Tensor] = TABLE[getattr(aten, _op).Scalar] = _compare(_op)
for _op in ("and", "or", "xor"):
    TABLE[getattr(aten, f"logical_{_op}").default] = _logical(f"bitwise_{_op}")


@entry(aten.sign.default, aten.sgn.default)
def _sign(t: Translation, x: Value) -> Value:
    """Of a NaN 0, as torch has it."""
    sign = t.builder.sign(t.value(x, t.dtype))
    if not sign.dtype.is_float:
        return sign
    return t.builder.select(t.builder.isnan(x), t.builder.scalar(0, sign.dtype), sign)


@entry(aten.bitwise_not.default)
def _bitwise_not(t: Translation, x: Value) -> Value:
    return t.builder.logical_not(x) if x.dtype is DType.BOOL else t.builder.bitwise_not(x)


@entry(aten.logical_not.default)
def _logical_not(t: Translation, x: Value) -> Value:
    return t.builder.logical_not(truth(t, x))


@entry(aten.mul.Tensor, aten.mul.Scalar)
def _mul(t: Translation, a: Any, b: Any) -> Value:
    a, b = t.value(a, t.dtype), t.value(b, t.dtype)
    return (t.builder.bitwise_and if t.dtype is DType.BOOL else t.builder.mul)(a, b)


@entry(aten.add.Tensor, aten.add.Scalar)
def _add(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    if t.dtype is DType.BOOL and alpha:
        return t.builder.bitwise_or(t.value(a, t.dtype), t.value(b, t.dtype))
    return t.builder.add(t.value(a, t.dtype), scaled(t, b, alpha))


@entry(aten.sub.Tensor, aten.sub.Scalar)
def _sub(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    return t.builder.sub(t.value(a, t.dtype), scaled(t, b, alpha))


def scaled(t: Translation, x: Any, factor: Any) -> Value:
    value = t.value(x, t.dtype)
    return value if factor == 1 else t.builder.mul(value, t.value(factor, t.dtype))


@entry(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    return _sub(t, b, a, alpha)


@entry(aten.addcmul.default)
def _addcmul(t: Translation, x: Value, a: Value, b: Value, *, value: float = 1) -> Value:
    product = t.builder.mul(t.value(a, t.dtype), t.value(b, t.dtype))
    return t.builder.add(t.value(x, t.dtype), scaled(t, product, value))


@entry(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(t: Translation, x: Value, mask: Value, number: Any) -> Value:
    return t.builder.select(mask, t.value(number, t.dtype), x)


@entry(aten.silu.default)
def _silu(t: Translation, x: Value) -> Value:
    return t.builder.mul(x, t.builder.sigmoid(x))


@entry(aten.relu.default)
def _relu(t: Translation, x: Value) -> Value:
    return t.builder.max(x, t.builder.scalar(0, x.dtype))


@entry(aten.gelu.default)
def _gelu(t: Translation, x: Value, approximate: str = "none") -> Value:
    return t.onnx("Gelu", x, approximate=approximate)


@entry(aten.clamp.default, aten.clamp.Tensor)
def _clamp(t: Translation, x: Any, least: Any = None, most: Any = None) -> Value:
    value = t.value(x, t.dtype)
    if least is not None:
        value = t.builder.max(value, t.value(least, t.dtype))
    return value if most is None else t.builder.min(value, t.value(most, t.dtype))


@entry(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow(t: Translation, x: Any, exponent: Any) -> Value:
    base = t.value(x, t.dtype)
    if exponent == 2:
        return t.builder.mul(base, base)
    return t.builder.pow(base, t.value(exponent, t.dtype))


@entry(prims.fma.default)
def _fma(t: Translation, a: Any, b: Any, c: Any) -> Value:
    return _add(t, _mul(t, a, b), c)


@entry(aten.expm1.default)
def _expm1(t: Translation, x: Value) -> Value:
    """tanh(x / 2) (e^x + 1): near 0 nothing is lost."""
    b, x = t.builder, t.value(x, t.dtype)
    half = b.tanh(b.mul(x, b.scalar(0.5, x.dtype)))
    return b.mul(half, b.add(b.exp(x), b.scalar(1, x.dtype)))


@entry(aten.exp2.default)
def _exp2(t: Translation, x: Value) -> Value:
    return t.builder.pow(t.builder.scalar(2, t.dtype), t.value(x, t.dtype))


def _logarithm(base: float) -> Function:
    def build(t: Translation, x: Value) -> Value:
        """Of the powers of the base whole numbers: the quotient is rounded once."""
        if t.dtype is DType.FLOAT64:
            raise UnsupportedError("a quotient of logarithms is rounded twice")
        b = t.builder
        log = b.log(t.value(x, DType.FLOAT64))
        return b.cast(b.mul(log, b.scalar(1 / math.log(base), DType.FLOAT64)), t.dtype)

    return build


TABLE[aten.log2.default], TABLE[aten.log10.default] = _logarithm(2), _logarithm(10)


@entry(aten.fmax.default, aten.fmin.default)
def _number_rather(t: Translation, a: Value, b: Value) -> Value:
    """Of two numbers one of which may be no number."""
    a, b = t.value(a, t.dtype), t.value(b, t.dtype)
    better = (t.builder.max if t.target is aten.fmax.default else t.builder.min)(a, b)
    if not t.dtype.is_float:
        return better
    better = t.builder.select(t.builder.isnan(b), a, better)
    return t.builder.select(t.builder.isnan(a), b, better)


# -- signs, angles and lengths


@entry(aten.signbit.default)
def _signbit(t: Translation, x: Value) -> Value:
    """Of a NaN it is not read."""
    b, nothing = t.builder, t.builder.scalar(0, x.dtype)
    if x.dtype is DType.BOOL:
        return b.broadcast_to(b.scalar(False, DType.BOOL), t.shape)
    if x.dtype.is_float:
        x = b.select(b.eq(x, nothing), b.reciprocal(x), x)  # infinite, with the sign of 0
    return b.lt(x, nothing)


@entry(aten.copysign.Tensor, aten.copysign.Scalar)
def _copysign(t: Translation, x: Any, sign: Any) -> Value:
    b = t.builder
    size = b.abs(t.value(x, t.dtype))
    return b.select(_signbit(t, t.value(sign, t.dtype)), b.neg(size), size)


@entry(aten.atan2.default)
def _atan2(t: Translation, y: Value, x: Value) -> Value:
    """From the angle below 45 degrees: what is infinite or 0 on both sides has a quotient of 1 or 0."""
    b, dtype = t.builder, t.dtype.register
    y, x = t.value(y, dtype), t.value(x, dtype)
    size, along = b.abs(y), b.abs(x)
    less, more = b.min(size, along), b.max(size, along)
    nothing, one = b.scalar(0, dtype), b.scalar(1, dtype)
    quotient = b.select(b.eq(less, more), one, b.div(less, more))
    angle = b.atan(b.select(b.eq(more, nothing), nothing, quotient))
    angle = b.select(b.gt(size, along), b.sub(b.scalar(math.pi / 2, dtype), angle), angle)
    angle = b.select(_signbit(t, x), b.sub(b.scalar(math.pi, dtype), angle), angle)
    angle = b.select(_signbit(t, y), b.neg(angle), angle)
    nan = b.bitwise_or(b.isnan(x), b.isnan(y))
    return b.cast(b.select(nan, b.add(x, y), angle), t.dtype)


@entry(aten.hypot.default)
def _hypot(t: Translation, a: Value, b: Value) -> Value:
    """In float64, which holds the squares; infinite next to a NaN too."""
    if t.dtype is DType.FLOAT64:
        raise UnsupportedError("squares may be too large")
    build = t.builder
    wide = [t.value(t.value(each, t.dtype), DType.FLOAT64) for each in (a, b)]
    first, second = (build.mul(each, each) for each in wide)
    length = build.sqrt(build.add(first, second))
    infinite = build.bitwise_or(*(build.isinf(each) for each in wide))
    length = build.select(infinite, build.scalar(math.inf, DType.FLOAT64), length)
    return build.cast(length, t.dtype)


# -- shifts


def _shifted(name: str) -> Function:
    def build(t: Translation, a: Any, b: Any) -> Value:
        if not t.dtype.is_integer:
            raise UnsupportedError("shifts are of whole numbers")
        return t.builder.op(name, t.value(a, t.dtype), t.value(b, t.dtype))

    return build


for _op, _basic in (("left", "shift_left"), ("right", "shift_right")):
    _shift = getattr(aten, f"bitwise_{_op}_shift"), getattr(aten, f"__{_op[0]}shift__")
    for _target in (_shift[0].Tensor, _shift[0].Tensor_Scalar, _shift[0].Scalar_Tensor):
        TABLE[_target] = _shifted(_basic)
    TABLE[_shift[1].Tensor] = TABLE[_shift[1].Scalar] = _shifted(_basic)


# -- division with rests


def _divided(t: Translation, a: Any, b: Any) -> tuple[Value, Value]:
    """Both operands.

    Raises:
        UnsupportedError: whole numbers by one that may be 0, of which torch complains.
    """
    if t.dtype.is_integer and not _is_certainly_not_zero(t, b):
        raise UnsupportedError("division of whole numbers by what may be 0")
    return t.value(a, t.dtype), t.value(b, t.dtype)


def _is_certainly_not_zero(t: Translation, number: Any) -> bool:
    if isinstance(number, int | float):
        return number != 0
    return not isinstance(number, Value) and t.builder.facts.bounds(number)[0] > 0


def _turns(t: Translation, rest: Value, b: Value) -> Value:
    """Where the rest of a quotient that was cut off does not have the divisor's sign: one that rounds down is less by 1."""
    nothing = t.builder.scalar(0, rest.dtype)
    apart = t.builder.ne(t.builder.lt(rest, nothing), t.builder.lt(b, nothing))
    return t.builder.bitwise_and(apart, t.builder.ne(rest, nothing))


@entry(aten.fmod.Tensor, aten.fmod.Scalar)
def _fmod(t: Translation, a: Any, b: Any) -> Value:
    return t.builder.fmod(*_divided(t, a, b))


@entry(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def _remainder(t: Translation, a: Any, b: Any) -> Value:
    a, b = _divided(t, a, b)
    rest = t.builder.fmod(a, b)
    return t.builder.select(_turns(t, rest, b), t.builder.add(rest, b), rest)


@entry(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_rounded(t: Translation, a: Any, b: Any, *, rounding_mode: str | None) -> Value:
    build = t.builder
    if rounding_mode is None:
        return build.div(t.value(a, t.dtype), t.value(b, t.dtype))
    a, b = _divided(t, a, b)
    if rounding_mode == "trunc":
        quotient = build.div(a, b)
        return build.trunc(quotient) if t.dtype.is_float else quotient
    # Before the division nothing is added to what is divided: whole numbers have ends, and what is infinite stays so.
    rest = build.fmod(a, b)
    nothing, one = build.scalar(0, t.dtype), build.scalar(1, t.dtype)
    # As torch rounds: what is left over is taken off first, so that a quotient just below a whole number is not it.
    exact = build.div(build.sub(a, rest) if t.dtype.is_float else a, b)
    exact = build.select(_turns(t, rest, b), build.sub(exact, one), exact)
    if not t.dtype.is_float:
        return exact
    down = build.floor(exact)
    above = build.gt(build.sub(exact, down), build.scalar(0.5, t.dtype))
    down = build.select(above, build.add(down, one), down)
    plain = build.div(a, b)
    signed = build.mul(plain, nothing)  # 0 with the quotient's sign
    down = build.select(build.eq(exact, nothing), signed, down)
    return build.select(build.eq(b, nothing), plain, down)


@entry(aten.where.self)
def _where(t: Translation, condition: Value, a: Any, b: Any) -> Value:
    return t.builder.select(truth(t, condition), t.value(a, t.dtype), t.value(b, t.dtype))


@entry(aten._to_copy.default, prims.convert_element_type.default)
def _cast(t: Translation, x: Value, *_: Any, **__: Any) -> Value:
    return truth(t, x) if t.dtype is DType.BOOL else t.builder.cast(x, t.dtype)


# -- tensors of one number


@entry(aten.full.default, aten.full_like.default)
def _full(t: Translation, _: Any, number: Any, **__: Any) -> Value:
    return t.builder.broadcast_to(t.value(number, t.dtype), t.shape)


@entry(aten.fill.Scalar, aten.fill.Tensor, aten.copy.default)
def _copy(t: Translation, _: Value, source: Any, *__: Any) -> Value:
    return t.builder.broadcast_to(t.value(source, t.dtype), t.shape)


@entry(aten.scalar_tensor.default)
def _scalar(t: Translation, number: Any, **_: Any) -> Value:
    return t.value(number, t.dtype)


@entry(aten.zero.default, aten.zeros.default, aten.zeros_like.default, *UNWRITTEN)
def _zeros(t: Translation, *_: Any, **__: Any) -> Value:
    return _full(t, None, 0)


@entry(aten.ones.default, aten.ones_like.default)
def _ones(t: Translation, _: Any, **__: Any) -> Value:
    return _full(t, _, 1)


@entry(aten.arange.start_step)
def _arange(t: Translation, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    del end
    if isinstance(start, Number) or isinstance(step, Number):
        raise UnsupportedError("what is counted by floats that a run gives")
    # torch counts in the tensor's type, whatever the type of the bounds.
    whole = t.dtype.is_integer or all(_is_whole(number) for number in (start, step))
    if whole:
        start, step = (int(n) if isinstance(n, float) else n for n in (start, step))
        return t.builder.cast(t.builder.iota(t.shape, 0, start, step), t.dtype)
    places = t.builder.cast(t.builder.iota(t.shape), DType.FLOAT64)
    steps = t.builder.mul(places, t.value(step, DType.FLOAT64))
    return t.builder.cast(t.builder.add(steps, t.value(start, DType.FLOAT64)), t.dtype)


def _is_whole(number: Any) -> bool:
    return not isinstance(number, float) or number.is_integer()


@entry(prims.iota.default)
def _iota(t: Translation, _length: Any, *, start: Any, step: Any, **_: Any) -> Value:
    return t.builder.cast(t.builder.iota(t.shape, 0, start, step), t.dtype)
