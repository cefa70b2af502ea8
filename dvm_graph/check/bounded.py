"""Numbers with error bounds: the result of a basic operator in float64, and how far off a device may be.

In: an operator of `ir.numeric`, and operands that are known up to an error. Out: its result in float64
(integers and booleans in their own type) with a bound on what a computation in the operator's own types
may differ by: what the operands are off, carried through the operator, plus its own rounding, which is
the unit roundoff of its type times what it adds up, times the number of terms. So no order of a sum, no
fused multiply-add and no intermediate that is kept wider than its type leaves the bound.

An error of None is none at all. An infinite one says that the result is open: a comparison whose sides
are too close to call, an overflow of a half type. Integers and booleans are exact or open.

Invariants: bounds are of first order or above; where float64 gives NaN or an infinity whatever the error
of the operands, so must the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dvm_graph.ir import OPERATORS, Array, DType, Kind
from dvm_graph.ir.numeric import MAPS, apply, highest, rounded_blocks

_DIGITS = {DType.FLOAT64: 52, DType.FLOAT32: 24, DType.FLOAT16: 11, DType.BFLOAT16: 8}
"""Of the significand; one less for float64, which is the reference's own type, too."""
_LEAST = {DType.FLOAT64: -1022, DType.FLOAT32: -126, DType.FLOAT16: -24, DType.BFLOAT16: -126}
"""Exponent of what may be flushed to 0, or is rounded to a multiple of."""
_GREATEST = {
    DType.FLOAT64: np.inf,
    DType.FLOAT32: float(np.finfo(np.float32).max),
    DType.FLOAT16: 65504.0,
    DType.BFLOAT16: 3.38e38,
}
_ROUNDINGS = {
    "rsqrt": 4, "exp": 9, "log": 9, "log1p": 9, "sin": 9, "cos": 9, "tan": 9, "asin": 9, "acos": 9,
    "atan": 9, "sinh": 9, "cosh": 9, "asinh": 9, "acosh": 9, "atanh": 9, "erf": 9, "tanh": 9,
    "sigmoid": 9, "pow": 9,
}  # fmt: skip
"""Unit roundoffs that a function may be off, where it is not rounded once: the instructions' own bounds."""
_EXACT = frozenset(
    [
        "abs",
        "neg",
        "sign",
        "floor",
        "ceil",
        "round",
        "trunc",
        "min",
        "max",
        "select",
        "isnan",
        "isinf",
        "isfinite",
        "logical_not",
        "fmod",
    ]
)
"""Operators on floats that round nothing."""
_STEEPEST = {"erf": 1.13, "tanh": 1.0, "sigmoid": 0.25, "sin": 1.0, "cos": 1.0, "atan": 1.0}
"""The greatest derivative of functions that have one."""
_AROUND_ZERO = (MAPS["asin"], MAPS["acos"], MAPS["atanh"])
"""Functions that are defined around 0 only."""
_LARGE = 1 << 16
"""Elements of a constant operand from which on a looser bound that is cheaper does, and of a tensor that is kept
in half its memory."""
_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])


@dataclass(frozen=True, slots=True)
class Bounded:
    """A tensor that is `value`, or at most `error` off it."""

    value: Array
    error: Array | None = None

    def __post_init__(self) -> None:
        assert self.error is None or self.error.shape == self.value.shape

    @property
    def is_float(self) -> bool:
        return self.value.dtype.kind in "fV"  # V: of ml_dtypes

    @property
    def is_number(self) -> bool:
        return self.value.dtype.kind in "fViub"

    @property
    def errors(self) -> Array:
        return np.zeros(self.value.shape) if self.error is None else self.error

    def wide(self) -> Bounded:
        """Floats in float64."""
        error = self.error
        if error is not None and error.dtype != np.float64:
            error = error.astype(np.float64)
        value = self.value
        if self.is_float and value.dtype != np.float64:
            value = value.astype(np.float64)
        return self if value is self.value and error is self.error else Bounded(value, error)

    def narrow(self) -> Bounded:
        """To be kept for long: large floats in float32 where that holds them, errors rounded up to it."""
        if self.value.size < _LARGE:
            return self
        value, error = self.value, self.error
        with np.errstate(all="ignore"):
            if value.dtype == np.float64:
                near = value.astype(np.float32)
                value = near if np.array_equal(near, value, equal_nan=True) else value
            if error is not None:
                above = error.astype(np.float32)
                error = np.where(above < error, np.nextafter(above, np.float32(np.inf)), above)
        return Bounded(value, error)


def differs(got: Array, wanted: Bounded) -> Array:
    """Where an array is not what it may be."""
    if got.dtype.kind in "iub":
        wrong = got != wanted.value
    else:
        wide = got.astype(np.float64)
        with np.errstate(all="ignore"):
            near = np.abs(wide - wanted.value) <= wanted.errors
        both = np.isnan(wide) & np.isnan(wanted.value)
        wrong = ~((wide == wanted.value) | near | both)
    decided: Array = np.isfinite(wanted.errors)
    return np.asarray(wrong & decided)


def compute(
    op: str,
    attrs: Mapping[str, Any],
    operands: Sequence[Bounded],
    dtype: DType,
    rounds_to: DType | None = None,
) -> Bounded:
    """The result of a basic operator of type `dtype`.

    `rounds_to` is what a product rounds its operands to before it multiplies them.
    """
    with np.errstate(all="ignore"):
        kind = OPERATORS[op].kind
        if kind in (Kind.VIEW, Kind.SOURCE, Kind.GATHER) or op in ("check_index", "patches"):
            return _moved(op, attrs, operands)
        operands = [operand.wide() for operand in operands]
        values = [operand.value for operand in operands]
        if op == "cast":
            return _cast(operands[0], attrs["dtype"])
        if (block := attrs.get("rounded_blocks")) is not None:
            operands[0] = _in_levels(operands[0], block)
            values, attrs = [operand.value for operand in operands], {}
        value = apply(op, attrs, values)
        if kind is Kind.UNPACK:  # a difference and a product, both rounded
            return Bounded(value, 2 * _roundoff(dtype) * np.abs(value) + _least(dtype))
        if not any(operand.is_float for operand in operands):
            return Bounded(value, _open(op, attrs, operands, value))
        if rounds_to is not None and op == "matmul":
            operands = [rounded(operand, rounds_to) for operand in operands]
        error = _error(op, attrs, operands, value, dtype)
        result = _settled(op, attrs, operands, value, error, dtype)
        if op == "reduce_prod":
            is_open = _hangs_on_order(attrs, operands[0], dtype)
        elif op == "depthwise" and not np.isfinite(values[1]).all():
            is_open = _meets_padding(attrs, *values)
        else:
            return result
        return replace(result, error=np.where(is_open, np.inf, result.errors))


def _in_levels(operand: Bounded, block: int) -> Bounded:
    """Rounded to bytes block by block; what is off may be rounded to another level, and moves the levels of its block."""
    value = rounded_blocks(operand.value, block)
    if operand.error is None:
        return Bounded(value)
    *lead, k = value.shape
    blocks = -(-k // block)
    padded = np.zeros((2, *lead, blocks * block))
    padded[0, ..., :k], padded[1, ..., :k] = np.abs(operand.value), operand.errors
    of_blocks = padded.reshape(2, *lead, blocks, block)
    most, off = of_blocks.max(-1, keepdims=True)
    moved = of_blocks[1] + np.where(off > 0, off + (most + off) / 127, 0)
    return Bounded(value, moved.reshape(*lead, blocks * block)[..., :k])


# -- what only moves


def _moved(op: str, attrs: Mapping[str, Any], operands: Sequence[Bounded]) -> Bounded:
    value = apply(op, attrs, [operand.value for operand in operands])
    if op == "patches" and operands[0].is_float:
        # A pad is a 0 or is left out, which differ in front of what is infinite.
        inside = apply(op, attrs, [np.ones(operands[0].value.shape)])
        if not inside.all():
            moved = np.asarray(apply(op, attrs, [operands[0].errors]))
            return Bounded(value, np.where(inside > 0, moved, np.nextafter(0.0, 1.0)))
    if all(operand.error is None for operand in operands):
        return Bounded(value)
    if op == "concat":
        value = apply(op, attrs, [operand.wide().value for operand in operands])
    index = operands[1:] if op == "gather" else ()
    if any(operand.error is not None for operand in index):
        return Bounded(value, np.full(value.shape, np.inf))
    moving = [operand.errors for operand in operands]
    if op == "gather":
        moving[1] = operands[1].value
    if op == "check_index":
        return Bounded(value, moving[0])
    return Bounded(value, np.asarray(apply(op, attrs, moving)))


def _open(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Bounded], value: Array
) -> Array | None:
    """The error of an operator on integers and booleans: what rests on something open is open."""
    if all(operand.error is None for operand in operands):
        return None
    masks = [(operand.errors > 0).astype(np.float64) for operand in operands]
    kind = OPERATORS[op].kind
    if kind is Kind.REDUCE:
        reached = apply("reduce_max", attrs, masks)
    elif kind is Kind.MAP:
        reached = np.asarray(sum(np.broadcast_to(mask, value.shape) for mask in masks))
    else:
        return np.full(value.shape, np.inf)
    return np.where(reached > 0, np.inf, 0.0)


# -- rounding


def _roundoff(dtype: DType) -> float:
    return float(2.0 ** -_DIGITS[dtype])


def _least(dtype: DType) -> float:
    return float(2.0 ** _LEAST[dtype])


def rounded(operand: Bounded, dtype: DType) -> Bounded:
    """The number after one more rounding, or before it."""
    if not operand.is_float or not dtype.is_float:
        return operand
    size = np.abs(operand.value)
    own = np.where(size > 0, size * _roundoff(dtype) + _least(dtype), 0)
    error = operand.errors + np.where(np.isfinite(size), own, 0)
    return Bounded(operand.value, np.where(size > _GREATEST[dtype], np.inf, error))


def _cast(operand: Bounded, dtype: DType) -> Bounded:
    value = operand.value
    if dtype.is_float:
        if operand.is_float:
            exact = _is_representable(value, dtype) and operand.error is None
            return _limited(operand if exact else rounded(operand, dtype), dtype)
        wide = Bounded(value.astype(np.float64), operand.error)
        return wide if _is_representable(wide.value, dtype) else rounded(wide, dtype)
    result = apply("cast", {"dtype": dtype}, [value])
    if not operand.is_float:
        return Bounded(result, operand.error)
    if dtype is DType.BOOL:
        is_open = (np.abs(value) <= operand.errors) & (operand.errors > 0)
    else:
        ends = [np.trunc(value + sign * operand.errors) for sign in (-1, 1)]
        limits = np.iinfo(dtype.value)
        inside = (ends[0] >= limits.min) & (ends[1] < limits.max + 1.0)
        is_open = (ends[0] != ends[1]) | ~inside  # out of range, machines differ
    return Bounded(result, np.where(is_open, np.inf, 0.0)) if is_open.any() else Bounded(result)


def _is_representable(value: Array, dtype: DType) -> bool:
    again = value.astype(dtype.numpy).astype(np.float64)
    return bool(((again == value) | np.isnan(value)).all())


# -- how errors travel


def _error(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Bounded], value: Array, dtype: DType
) -> Array | None:
    """The error of a finite result; that of the others is settled apart."""
    unit = _roundoff(dtype) if dtype.is_float else 0.0
    least = _least(dtype) if dtype.is_float else 0.0
    if op in ("matmul", "depthwise", "pool_sum", "reduce_sum"):
        within = max(dtype, DType.FLOAT32, key=_DIGITS.__getitem__)  # half types add up in float32
        error = _error_of_sums(op, attrs, operands, _roundoff(within), _least(within))
        if any(np.signbit(operand.value).any() for operand in operands):  # of zeros: 0 or -0
            error = np.where((value == 0) & (error == 0), _least(within), error)
        return error if within is dtype else error + unit * np.abs(value) + least
    if op in ("reduce_max", "reduce_min", "pool_max"):
        return _error_of_extremes(op, attrs, operands)
    if op == "reduce_prod":
        return _error_of_products(attrs, operands[0], value, unit, least)
    if op == "select":
        return _error_of_select(operands, value)
    travelled = _travelled(op, operands, value)
    if op in _COMPARISONS or op in _EXACT or not dtype.is_float:
        return travelled
    size = np.abs(value)
    own = np.where(size > 0, _ROUNDINGS.get(op, 1) * unit * size + least, 0)
    if op in ("add", "sub"):
        whole = [(x.errors == 0) & (x.value == np.rint(x.value)) for x in operands]
        exact = np.logical_and(*whole) & (size < 1 / unit)  # integers, as zero points are
        own = np.where(exact, 0, unit * size)
    return own if travelled is None else own + travelled


def _error_of_sums(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Bounded], unit: float, least: float
) -> Array:
    """Of a sum of n terms: n units of the sum of their sizes, in whatever order they are added."""
    terms = _terms(op, attrs, operands[0].value.shape)
    first = np.abs(operands[0].value) * (terms * unit)
    if operands[0].error is not None:
        first = first + operands[0].error
    if op == "matmul" and operands[1].error is None and operands[1].value.size > _LARGE:
        return _product_of_norms(first, operands[1].value) + terms * least
    sizes = [np.abs(operand.value) for operand in operands]
    error = apply(op, attrs, [first, *sizes[1:]])
    if len(operands) > 1 and operands[1].error is not None:
        error = error + apply(op, attrs, [sizes[0] + operands[0].errors, operands[1].error])
    flushed = terms * least if len(operands) > 1 else 0.0  # products of small numbers
    return np.where(error > 0, error + flushed, error)


def _product_of_norms(a: Array, b: Array) -> Array:
    """At least `a @ |b|`, by Cauchy and Schwarz, for the cost of reading `b` once."""
    rows = np.sqrt(np.einsum("...mk,...mk->...m", a, a))
    columns = np.sqrt(np.einsum("...kn,...kn->...n", b, b))
    product: Array = rows[..., :, np.newaxis] * columns[..., np.newaxis, :]
    return product


def _terms(op: str, attrs: Mapping[str, Any], shape: Sequence[int]) -> int:
    if op == "matmul":
        return shape[-1]
    if op == "reduce_sum":
        return int(np.prod([shape[axis] for axis in attrs["axes"]], dtype=np.int64))
    channels = shape[-1] // attrs["groups"] if op == "depthwise" else 1
    return int(np.prod(attrs["kernel"], dtype=np.int64)) * channels


def _error_of_extremes(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Bounded]
) -> Array | None:
    if operands[0].error is None:
        return None
    reach = "pool_max" if op == "pool_max" else "reduce_max"
    return np.maximum(apply(reach, attrs, [operands[0].error]), 0)


def _error_of_products(
    attrs: Mapping[str, Any], operand: Bounded, value: Array, unit: float, least: float
) -> Array:
    size = np.abs(operand.value)
    terms = _terms("reduce_sum", attrs, size.shape)
    wider = apply("reduce_prod", attrs, [size + operand.errors])
    return (wider - np.abs(value)) + np.where(wider > 0, wider * (terms * unit) + terms * least, 0)


def _hangs_on_order(attrs: Mapping[str, Any], operand: Bounded, dtype: DType) -> Array:
    """Whether part of a product overflows or vanishes in some orders, and the rest would bring it back."""
    dtype = max(dtype, DType.FLOAT32, key=_DIGITS.__getitem__)  # half types multiply in float32
    size = np.abs(operand.value)
    grown = apply("reduce_prod", attrs, [np.where(size > 1, size, 1.0)])
    shrunk = apply("reduce_prod", attrs, [np.where(size < 1, size, 1.0)])
    vanishes = shrunk < 2.0 ** _LEAST[dtype]
    return np.asarray(((grown >= _GREATEST[dtype]) & (shrunk < 1)) | (vanishes & (grown > 1)))


def _meets_padding(attrs: Mapping[str, Any], x: Array, weights: Array) -> Array:
    """Whether a weight that is not finite lies outside of the image: times nothing, or times 0."""
    wild = (~np.isfinite(weights)).astype(np.float64)
    inside = apply("depthwise", attrs, [np.ones_like(x), wild])
    return np.asarray(inside < wild.sum(axis=0))


def _error_of_select(operands: Sequence[Bounded], value: Array) -> Array | None:
    condition, then, other = operands
    if all(operand.error is None for operand in operands):
        return None
    error = np.where(condition.value, then.errors, other.errors)
    gap = np.abs(then.value - other.value) + np.maximum(then.errors, other.errors)
    gap = np.where(np.isnan(gap), np.inf, gap)
    return np.broadcast_to(np.where(condition.errors > 0, gap, error), value.shape)


def _travelled(op: str, operands: Sequence[Bounded], value: Array) -> Array | None:
    """How far the result moves as the operands move by their errors; one that is open may be no number."""
    if all(operand.error is None for operand in operands):
        return None
    is_open = np.logical_or.reduce(
        [np.broadcast_to(np.isinf(operand.errors), value.shape) for operand in operands]
    )
    return np.where(is_open, np.inf, _moved_within(op, operands, value))


def _moved_within(op: str, operands: Sequence[Bounded], value: Array) -> Array:
    if op in ("add", "sub", "neg", "abs"):
        return np.broadcast_to(sum(operand.errors for operand in operands), value.shape)
    if op in ("min", "max"):
        return np.broadcast_to(np.maximum(*(operand.errors for operand in operands)), value.shape)
    if op in _STEEPEST:
        return operands[0].errors * _STEEPEST[op]
    if op in _COMPARISONS:
        a, b = operands
        near = a.errors + b.errors
        is_open = (np.abs(a.value - b.value) <= near) & (near > 0)
        return np.where(is_open, np.inf, 0.0)
    if op in ("mod", "fmod"):
        return _moved_modulo(op, *operands)
    return _moved_by_corners(MAPS[op], operands, value)


def _moved_modulo(op: str, a: Bounded, b: Bounded) -> Array:
    """Within one period as far as the operands move, else anywhere in it."""
    toward = np.floor if op == "mod" else np.trunc
    corners = [
        toward((a.value + left * a.errors) / (b.value + right * b.errors))
        for left in (-1, 1)
        for right in (-1, 1)
    ]
    one_period = np.logical_and.reduce([corner == corners[0] for corner in corners])
    signs = 1 if op == "mod" else 2  # results of both, or of the divisor's
    error = np.where(
        one_period, a.errors + np.abs(corners[0]) * b.errors, signs * (np.abs(b.value) + b.errors)
    )
    return np.where((np.abs(b.value) <= b.errors) & (b.errors > 0), np.inf, error)


def _moved_by_corners(
    function: Callable[..., Array], operands: Sequence[Bounded], value: Array
) -> Array:
    """The most that the result differs at the ends of the operands' intervals.

    Of functions that are defined around 0, next to it, too: both ends may lie outside.
    """
    ends = []
    for operand in operands:
        low, high = operand.value - operand.errors, operand.value + operand.errors
        corners = (operand.value,) if operand.error is None else (low, high)
        if function in _AROUND_ZERO:
            corners = (*corners, np.clip(0, low, high))
        ends.append(corners)
    result = np.zeros(value.shape)
    for corner in itertools.product(*ends):
        there = np.asarray(function(*corner))
        if there.dtype == np.bool_:
            gap = np.where(there == value, 0.0, np.inf)
        else:
            gap = np.abs(there - value)
            same = (there == value) | (np.isnan(there) & np.isnan(value))
            gap = np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))
        result = np.maximum(result, gap)
    return np.where(_meets_pole(function, operands), np.inf, result)


def _meets_pole(function: Callable[..., Array], operands: Sequence[Bounded]) -> Array:
    """Where a pole, or something undefined, may lie between the ends of an operand's interval."""
    if function is MAPS["tan"]:
        (angle,) = operands
        ends = (angle.value - angle.errors, angle.value + angle.errors)
        first, last = (np.floor(end / np.pi - 0.5) for end in ends)
        return np.asarray(first != last)
    if function is MAPS["pow"]:
        base, exponent = operands
        negative = exponent.value - exponent.errors < 0
        # Below 0 defined at integers only.
        uncertain = (exponent.errors > 0) & (base.value - base.errors < 0)
        return np.asarray(uncertain | (_may_be_zero(base) & negative))
    if function in (MAPS["div"], MAPS["reciprocal"]):
        return _may_be_zero(operands[-1])
    return np.array(False)


def _may_be_zero(operand: Bounded) -> Array:
    return np.asarray((np.abs(operand.value) <= operand.errors) & (operand.errors > 0))


# -- what is not finite, or becomes so


def _settled(
    op: str,
    attrs: Mapping[str, Any],
    operands: Sequence[Bounded],
    value: Array,
    error: Array | None,
    dtype: DType,
) -> Bounded:
    if value.dtype.kind != "f":
        if error is None or not error.any():
            return Bounded(value)
        return Bounded(value, np.where(error > 0, np.inf, 0.0))
    if error is not None:
        error = np.where(np.isnan(error), np.inf, error)
        finite = np.isfinite(value)
        if not finite.all():
            error = np.where(finite, error, _error_of_nonfinite(op, attrs, operands, value))
    return _limited(Bounded(value, error), dtype)


def _error_of_nonfinite(
    op: str, attrs: Mapping[str, Any], operands: Sequence[Bounded], value: Array
) -> Array:
    """0 where the result is NaN or infinite whatever the errors of the operands."""
    if all(operand.error is None for operand in operands):
        return np.zeros(value.shape)
    if op in MAPS and op != "select":
        error = _moved_by_corners(MAPS[op], operands, value)
        for operand in operands:  # what is open is anything, not NaN at all corners
            is_open = ~np.isfinite(operand.value) & np.isinf(operand.errors)
            error = np.where(is_open, np.inf, error)
        return error
    if op == "matmul":
        a, b = ((operand.errors > 0).astype(np.float64) for operand in operands)
        reached = apply(op, attrs, [a, np.ones_like(b)]) + apply(op, attrs, [np.ones_like(a), b])
        return np.where(reached > 0, np.inf, 0.0)
    return np.full(value.shape, np.inf)


def _limited(result: Bounded, dtype: DType) -> Bounded:
    """What overflows the type is infinite in float32; half types may be kept wider for a while."""
    greatest = _GREATEST[dtype]
    size = np.abs(result.value)
    if not result.value.size or greatest == highest(result.value.dtype):
        return result
    reach = size + result.errors
    over = (reach >= greatest) & np.isfinite(size)
    if not over.any():
        return result
    certain = over & (size - result.errors > greatest * (1 + 2.0**-20)) & (dtype is DType.FLOAT32)
    value = np.where(certain, np.copysign(np.inf, result.value), result.value)
    error = np.where(certain, 0.0, np.where(over, np.inf, result.errors))
    return Bounded(value, error)
