"""Element-wise operators of torch, casts, and tensors of one number."""

from __future__ import annotations

from typing import Any

import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value
from dvm_graph.torch_backend.translation import DTYPES, TABLE, Function, Translation, entry

aten, prims = torch.ops.aten, torch.ops.prims


def _promoted(*operands: Any) -> DType:
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
    return operand


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
        dtype = _promoted(a, b)
        return t.builder.op(name, t.value(a, dtype), t.value(b, dtype))

    return build


def _logical(name: str) -> Function:
    def build(t: Translation, a: Value, b: Value) -> Value:
        return t.builder.op(name, truth(t, a), truth(t, b))

    return build


def truth(t: Translation, x: Value) -> Value:
    return x if x.dtype is DType.BOOL else t.builder.ne(x, t.builder.scalar(0, x.dtype))


for _op in (
    *("abs", "neg", "sign", "sqrt", "rsqrt", "reciprocal", "exp", "log", "log1p", "sin", "cos"),
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "erf", "tanh"),
    *("sigmoid", "floor", "ceil", "round", "trunc"),
):
    TABLE[getattr(aten, _op).default] = _unary(_op)
for _op in ("isnan", "isinf"):
    TABLE[getattr(aten, _op).default] = _test(_op)
for _op, _basic in (
    *(("mul", "mul"), ("bitwise_and", "bitwise_and"), ("bitwise_or", "bitwise_or")),
    *(("bitwise_xor", "bitwise_xor"), ("div", "div")),
):
    TABLE[getattr(aten, _op).Tensor] = TABLE[getattr(aten, _op).Scalar] = _binary(_basic)
TABLE[aten.maximum.default], TABLE[aten.minimum.default] = _binary("max"), _binary("min")
for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    TABLE[getattr(aten, _op).Tensor] = TABLE[getattr(aten, _op).Scalar] = _compare(_op)
for _op in ("and", "or", "xor"):
    TABLE[getattr(aten, f"logical_{_op}").default] = _logical(f"bitwise_{_op}")


@entry(aten.bitwise_not.default)
def _bitwise_not(t: Translation, x: Value) -> Value:
    return t.builder.logical_not(x) if x.dtype is DType.BOOL else t.builder.bitwise_not(x)


@entry(aten.logical_not.default)
def _logical_not(t: Translation, x: Value) -> Value:
    return t.builder.logical_not(truth(t, x))


@entry(aten.add.Tensor, aten.add.Scalar)
def _add(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    return t.builder.add(t.value(a, t.dtype), scaled(t, b, alpha))


@entry(aten.sub.Tensor, aten.sub.Scalar)
def _sub(t: Translation, a: Any, b: Any, alpha: float = 1) -> Value:
    return t.builder.sub(t.value(a, t.dtype), scaled(t, b, alpha))


def scaled(t: Translation, x: Any, factor: float) -> Value:
    value = t.value(x, t.dtype)
    return value if factor == 1 else t.builder.mul(value, t.builder.scalar(factor, t.dtype))


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


@entry(aten.zero.default)
def _zero(t: Translation, _: Value) -> Value:
    return _full(t, _, 0)


@entry(aten.scalar_tensor.default)
def _scalar(t: Translation, number: Any, **_: Any) -> Value:
    return t.value(number, t.dtype)


@entry(aten.zeros.default, aten.zeros_like.default)
def _zeros(t: Translation, _: Any, **__: Any) -> Value:
    return _full(t, _, 0)


@entry(aten.ones.default, aten.ones_like.default)
def _ones(t: Translation, _: Any, **__: Any) -> Value:
    return _full(t, _, 1)


@entry(aten.arange.start_step)
def _arange(t: Translation, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    del end
    if not t.dtype.is_integer:
        raise UnsupportedError("counts in floats")
    # torch counts in the tensor's type, whatever the type of the bounds.
    start, step = (int(n) if isinstance(n, float) else n for n in (start, step))
    counted = t.builder.iota(t.shape, 0, start, step)
    return t.builder.cast(counted, t.dtype)


@entry(prims.iota.default)
def _iota(t: Translation, _length: Any, *, start: Any, step: Any, **_: Any) -> Value:
    return t.builder.cast(t.builder.iota(t.shape, 0, start, step), t.dtype)
