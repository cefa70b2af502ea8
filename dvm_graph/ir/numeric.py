"""What each basic operator means, in numpy: their one executable definition.

In: the name of an operator, its attributes as numbers, and its operands. Out: its result. Constants are
folded with it, tests and translation validation hold everything else to it.

Arithmetic is that of the operands' type, so that one definition serves every precision: who wants half
floats computed in float32, or everything in float64, widens the operands and rounds the result.
Integers wrap. Vendor operators have no meaning here.

Invariant: every basic operator of `ir.operators` but `vendor` has a row (a test counts them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dvm_graph.ir.dtypes import Array, DType

Attrs: TypeAlias = Mapping[str, Any]


def apply(op: str, attrs: Attrs, arrays: Sequence[Array]) -> Array:
    """The result of an operator; attributes that are dims have to be ints.

    Raises:
        IndexError: an index is out of range, or a slice reads outside of its operand.
    """
    with np.errstate(all="ignore"):
        function = MAPS.get(op)
        if function is not None:
            return np.asarray(function(*arrays))
        return np.asarray(_WITH_ATTRS[op](attrs, *arrays))


def lowest(dtype: np.dtype[Any]) -> Any:
    """What no element of the type is below."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def highest(dtype: np.dtype[Any]) -> Any:
    """What no element of the type is above."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return True if dtype.kind == "b" else np.inf


def _is_integer(x: Array) -> bool:
    return x.dtype.kind in "iub"


# -- element-wise


def _divide(a: Array, b: Array) -> Array:
    """Integers are rounded towards 0; by 0 they give 0."""
    if not _is_integer(a):
        return np.divide(a, b)
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, a.dtype.type(0), quotient)


def _modulo(function: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    def modulo(a: Array, b: Array) -> Array:
        if not _is_integer(a):
            return function(a, b)
        return np.where(b == 0, a.dtype.type(0), function(a, np.where(b == 0, b.dtype.type(1), b)))

    return modulo


def _pow(a: Array, b: Array) -> Array:
    """Of integers: modulo 2^64, of which every type keeps its own bits."""
    if not _is_integer(a):
        return np.power(a, b)
    a, b = np.broadcast_arrays(a, b)
    one = np.uint64(1)
    left, factor = np.where(b < 0, 0, b).astype(np.uint64), a.astype(np.uint64)
    powers = np.ones(a.shape, np.uint64)
    with np.errstate(over="ignore"):  # numbers without axes warn
        while left.any():
            powers = np.where(left & one, powers * factor, powers)
            left, factor = left >> one, factor * factor
    wrapped = powers.astype(f"u{a.dtype.itemsize}").view(a.dtype)
    inverse = np.where((a == 1) | (a == -1), np.where(b % 2 == 0, 1, a), 0)
    return np.where(b < 0, inverse, wrapped).astype(a.dtype)


def _erf(x: Array) -> Array:
    wide = x.reshape(-1).astype(np.float64)
    values = np.fromiter(map(math.erf, wide.data), np.float64, x.size)
    result: Array = values.astype(x.dtype).reshape(x.shape)
    return result


def _product(attrs: Attrs, a: Array, b: Array) -> Array:
    """Of bytes in int32, which wraps: float64 holds every sum exactly, as no axis has 2^38 elements."""
    if (block := attrs.get("rounded_blocks")) is not None:
        a = rounded_blocks(a, block)
    if a.dtype.kind not in "iu":
        return np.asarray(np.matmul(a, b))
    sums = np.matmul(a.astype(np.float64), b.astype(np.float64))
    return np.asarray(sums).astype(np.int64).astype(np.int32)


def rounded_blocks(x: Array, block: int) -> Array:
    """As multiples of 1/127 of the greatest magnitude among so many elements along the last axis, half to even; 0 where that is
    below 2^-119, and NaN where an element is not finite. Computed in float32.
    """
    *lead, k = x.shape
    blocks = -(-k // block)
    padded = np.zeros((*lead, blocks * block), np.float32)
    padded[..., :k] = x
    padded = padded.reshape(*lead, blocks, block)
    most = np.abs(padded).max(-1, keepdims=True, initial=0)
    counts = np.isfinite(most) & (most >= np.float32(2.0**-119))
    inverse = np.where(counts, np.float32(127) / most, np.float32(0))
    step = np.where(counts, most / np.float32(127), np.where(np.isfinite(most), 0, np.nan))
    levels = np.rint(np.where(counts, padded, 0) * inverse).astype(x.dtype)
    rounded: Array = levels * step.astype(x.dtype)
    return rounded.reshape(*lead, blocks * block)[..., :k]


def _sigmoid(x: Array) -> Array:
    tail = np.exp(-np.abs(x))  # of both signs without overflow
    result: Array = np.where(x >= 0, 1 / (1 + tail), tail / (1 + tail)).astype(x.dtype)
    return result


MAPS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "exp": np.exp, "log": np.log, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": _erf, "tanh": np.tanh,
    "sigmoid": _sigmoid, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "logical_not": np.logical_not, "bitwise_not": np.invert,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide,
    "mod": _modulo(np.mod), "fmod": _modulo(np.fmod), "pow": _pow,
    "min": np.minimum, "max": np.maximum, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "select": np.where,
}  # fmt: skip
"""Operators that need nothing but their operands."""


# -- operators with attributes


def _cast(attrs: Attrs, x: Array) -> Array:
    dtype: DType = attrs["dtype"]
    return x != 0 if dtype is DType.BOOL else x.astype(dtype.numpy)


def _lookup(attrs: Attrs, x: Array) -> Array:
    return np.array(attrs["table"], attrs["dtype"].numpy)[x.view(np.uint8)]


def _check_index(attrs: Attrs, index: Array) -> Array:
    return _wrapped(index, attrs["limit"])


def _wrapped(index: Array, limit: int) -> Array:
    """Negative indices count from the end."""
    if index.size and not (-limit <= index.min() and index.max() < limit):
        raise IndexError(f"an index is outside an axis of extent {limit}")
    return np.where(index < 0, index + limit, index)


def _reduction(fold: Callable[..., Any], start: Callable[[np.dtype[Any]], Any]) -> Any:
    def reduce(attrs: Attrs, x: Array) -> Array:
        axes = tuple(attrs["axes"])
        result: Array = fold(x, axis=axes, keepdims=True, initial=start(x.dtype))
        same: Array = result.astype(x.dtype, copy=False)
        return same

    return reduce


def _slice(attrs: Attrs, x: Array) -> Array:
    bounds = zip(attrs["starts"], attrs["sizes"], attrs["steps"], strict=True)
    for axis, (start, size, step) in enumerate(bounds):
        index = start + np.arange(size) * step
        if index.size and not (index.min() >= 0 and index.max() < x.shape[axis]):
            raise IndexError(f"a slice reads outside of axis {axis} of extent {x.shape[axis]}")
        x = x.take(index, axis)
    return x


def _view(attrs: Attrs, x: Array) -> Array:
    index = strided_indices(attrs["offset"], attrs["shape"], attrs["strides"])
    if index.size and not (index.min() >= 0 and index.max() < x.size):
        raise IndexError(f"a view reads outside of its operand of {x.size} elements")
    flat: Array = np.ascontiguousarray(x).reshape(-1)[index]
    return flat


def strided_indices(offset: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Where the elements of a strided part of a buffer lie in it."""
    index: Array = np.asarray(offset)
    if 0 in shape:  # the axes before it may be long
        return np.empty(tuple(shape), index.dtype)
    for extent, stride in zip(shape, strides, strict=True):
        index = index[..., np.newaxis] + np.arange(extent) * stride
    return index


def _gather(attrs: Attrs, x: Array, index: Array) -> Array:
    axis: int = attrs["axis"]
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    if 0 in shape:  # nothing is looked up
        return np.empty(shape, x.dtype)
    return x.take(_wrapped(index, x.shape[axis]), axis)


def _iota(attrs: Attrs) -> Array:
    shape, axis = attrs["shape"], attrs["axis"]
    line = attrs["start"] + np.arange(shape[axis], dtype=np.int64) * attrs["step"]
    return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(shape))]), shape)


def _dims(attrs: Attrs) -> Array:
    elements: Array = np.array(attrs["elements"], np.int64).reshape(attrs["shape"])
    return elements


# -- windows over channels-last images


def _pool_max(attrs: Attrs, x: Array) -> Array:
    result: Array = _windows(attrs, x, lowest(x.dtype)).max(axis=(3, 4), initial=lowest(x.dtype))
    return result


def _pool_sum(attrs: Attrs, x: Array) -> Array:
    result: Array = _windows(attrs, x, 0).sum(axis=(3, 4), dtype=x.dtype)
    return result


def _depthwise(attrs: Attrs, x: Array, weights: Array) -> Array:
    groups: int = attrs["groups"]
    channels, results = x.shape[3] // groups, weights.shape[1] // groups
    dtype = x.dtype if x.dtype.kind == "f" else np.result_type(x, weights, np.int32)
    windows = _windows(attrs, x, attrs["outside"]).astype(dtype, copy=False)
    if channels == results == 1:
        taps = weights.reshape(*attrs["kernel"], groups)
        alone: Array = (windows * taps).sum(axis=(3, 4), dtype=dtype)
        return alone
    split = windows.reshape(*windows.shape[:5], groups, channels)
    taps = weights.reshape(*attrs["kernel"], channels, groups, results)
    result: Array = np.einsum("nyxabgc,abcgr->nyxgr", split, taps)
    return result.reshape(*result.shape[:3], groups * results)


def _patches(attrs: Attrs, x: Array) -> Array:
    groups: int = attrs["groups"]
    windows = _windows(attrs, x, 0)
    channels = x.shape[-1] // groups
    split = windows.reshape(*windows.shape[:-1], groups, channels)
    grouped = np.moveaxis(split, -2, 0)
    kernel: tuple[int, ...] = attrs["kernel"]
    positions = grouped.shape[: 2 + len(kernel)]
    grouped = grouped.reshape(*positions, math.prod(kernel) * channels)
    return grouped[0] if groups == 1 else grouped


def unpack_blocks(attrs: Attrs, levels: Array, *numbers: Array) -> Array:
    """`(level - zero) * scale` as [k, n]; `numbers` are zeros, if there are any, and scales."""
    bits: int = attrs["bits"]
    *zeros, scales = numbers
    n, blocks = scales.shape
    unpacked = few_bits(levels, bits).reshape(n, blocks, -1).astype(scales.dtype)
    centred = unpacked - (zeros[0][..., None] if zeros else scales.dtype.type(1 << (bits - 1)))
    weights = (centred * scales[..., None]).reshape(n, -1)[:, : attrs["k"]]
    return np.ascontiguousarray(weights.T)


def few_bits(data: Array, bits: int) -> Array:
    """Numbers of a few bits out of bytes, the lowest bits first, along the last axis."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (data[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.asarray(numbers.reshape(*data.shape[:-1], -1))


def _windows(attrs: Attrs, x: Array, outside: Any) -> Array:
    """[n, (d,) h, w, c] as [n, (slices,) rows, columns, (tap slice,) tap row, tap column, c]."""
    sizes = [attrs[name] for name in ("kernel", "strides", "dilations", "pads", "size")]
    result = x
    for number, (kernel, stride, dilation, pad, size) in enumerate(zip(*sizes, strict=True)):
        axis = 1 + number  # the taps of the axes before lie behind the channels by then
        at = np.arange(size)[:, None] * stride - pad + np.arange(kernel) * dilation
        inside = (at >= 0) & (at < x.shape[axis])
        if x.shape[axis]:
            taken = result.take(np.where(inside, at, 0), axis)
        else:
            shape = (*result.shape[:axis], size, kernel, *result.shape[axis + 1 :])
            taken = np.full(shape, outside, x.dtype)
        around = [1] * taken.ndim
        around[axis : axis + 2] = inside.shape
        result = np.where(inside.reshape(around), taken, x.dtype.type(outside))
        result = np.moveaxis(result, axis + 1, -1)
    return np.moveaxis(result, x.ndim - 1, -1)


_WITH_ATTRS: Mapping[str, Callable[..., Array]] = {
    "matmul": _product,
    "cast": _cast,
    "lookup": _lookup,
    "check_index": _check_index,
    "reduce_sum": _reduction(np.add.reduce, lambda dtype: dtype.type(0)),
    "reduce_prod": _reduction(np.multiply.reduce, lambda dtype: dtype.type(1)),
    "reduce_max": _reduction(np.maximum.reduce, lowest),
    "reduce_min": _reduction(np.minimum.reduce, highest),
    "reshape": lambda attrs, x: x.reshape(attrs["shape"]),
    "transpose": lambda attrs, x: x.transpose(attrs["perm"]),
    "broadcast_to": lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
    "slice": _slice,
    "view": _view,
    "concat": lambda attrs, *arrays: np.concatenate(arrays, attrs["axis"]),
    "gather": _gather,
    "pool_max": _pool_max,
    "pool_sum": _pool_sum,
    "depthwise": _depthwise,
    "patches": _patches,
    "unpack_blocks": unpack_blocks,
    "iota": _iota,
    "dims": _dims,
}
DEFINED = frozenset(MAPS) | frozenset(_WITH_ATTRS)
