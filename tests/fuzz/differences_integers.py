"""Differences of integers: their ends, and what is rounded to them."""

from __future__ import annotations

import numpy as np

from tests.fuzz.documented import (
    Documented,
    Step,
    axes_of,
    difference_of,
    is_float,
    left_open,
    replaced,
)


@difference_of("Cast", "CastLike")
def _cast(step: Step) -> Documented | None:
    """Numbers that the integer type does not hold: what the processor's instruction gives."""
    (y,) = step.results
    if not is_float(step.x) or y.dtype.kind not in "iu":
        return None
    ends = np.iinfo(y.dtype)
    numbers = step.numbers
    return left_open(step, ~((numbers > ends.min - 1.0) & (numbers < ends.max + 1.0)))


@difference_of("DynamicQuantizeLinear", "DynamicQuantizeMatMul")
def _dynamic_quantize(step: Step) -> Documented | None:
    wrong = not np.isfinite(step.numbers).all()
    return left_open(step, *(np.full(np.shape(y), wrong) for y in step.results))


@difference_of("DynamicQuantizeLSTM")
def _dynamic_quantize_lstm(step: Step) -> Documented | None:
    """States of several sequences, which its threads round by ranges that they share; and a level more or less of any."""
    open_ = np.shape(step.x)[1] != 1 or not np.isfinite(step.numbers).all()
    return left_open(step, *(np.full(np.shape(y), open_) for y in step.results))


@difference_of("QLinearAdd", "QLinearMul")
def _qlinear(step: Step) -> Documented | None:
    """As `DequantizeLinear`, the operator and `QuantizeLinear` in float32; onnxruntime rounds the sum with the zero point."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (
        np.asarray(0 if given is None else given, np.float32) for given in step.operands
    )
    a, b = (a - a_zero) * a_scale, (b - b_zero) * b_scale
    exact = (a + b if step.node.op_type == "QLinearAdd" else a * b) / scale
    ends = np.iinfo(step.results[0].dtype)
    return replaced(step, np.clip(np.rint(exact) + zero, ends.min, ends.max))


@difference_of("QLinearConv")
def _qlinear_conv(step: Step) -> Documented | None:
    """Sums with a bias near the ends of int32: they wrap, or are those of floats, as the way of the convolution has it."""
    bias = step.operands[8] if len(step.operands) > 8 else None
    if bias is None:
        return None
    most = 2**31 - 255 * 255 * int(np.prod(np.shape(step.operands[3])[1:]))
    near = np.abs(np.asarray(bias, np.float64)) > most
    (y,) = step.results
    return left_open(step, np.broadcast_to(near.reshape(1, -1, *[1] * (y.ndim - 2)), y.shape))


@difference_of("Pow")
def _pow(step: Step) -> Documented | None:
    """Integers wrap, where onnxruntime computes in float64."""
    base, exponent = step.x, np.asarray(step.operands[1])
    if base.dtype.kind not in "iu":
        return None
    if exponent.dtype.kind not in "iu":
        numbers = step.numbers ** exponent.astype(np.float64)
        ends = np.iinfo(base.dtype)
        return left_open(step, ~((numbers > ends.min - 1.0) & (numbers < ends.max + 1.0)))
    wide, signed = base.astype(np.int64), exponent.astype(np.int64)
    power = wide ** np.maximum(signed, 0)
    unit = np.where(wide == 1, 1, np.where(wide == -1, 1 - 2 * (signed & 1), 0))
    return replaced(step, np.where(signed < 0, unit, power))


@difference_of("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def _root(step: Step) -> Documented | None:
    """Integers: computed in floats, of which the type need not hold the result."""
    (y,) = step.results
    if y.dtype.kind not in "iu":
        return _log_of_exponentials(step) if step.node.op_type == "ReduceLogSumExp" else None
    if step.node.op_type == "ReduceLogSumExp":  # of which onnxruntime rounds each step
        return left_open(step, np.full(np.shape(y), True))
    ends = np.iinfo(y.dtype)
    size = np.sqrt(np.sum(np.square(step.numbers), axes_of(step))).reshape(y.shape)
    extreme = (y == ends.max) | (y == ends.min) | (size >= float(ends.max) * (1 - 1e-6))
    return left_open(step, np.asarray(extreme))


def _log_of_exponentials(step: Step) -> Documented | None:
    """The greatest is taken out first, which the function that stands for newer operators does not do."""
    (y,) = step.results
    axes = axes_of(step)
    if not step.x.size:
        return None
    greatest = np.max(step.numbers, axes, keepdims=True)
    with np.errstate(all="ignore"):
        rest = np.log(np.sum(np.exp(step.numbers - greatest), axes, keepdims=True))
    far = np.isinf(y) & np.isfinite(greatest).reshape(y.shape)
    return (
        replaced(step, np.where(far, (greatest + rest).reshape(y.shape), y)) if far.any() else None
    )
