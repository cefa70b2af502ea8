"""Differences of extremes, activations, and whatever meets NaN or infinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.documented import (
    Array,
    Documented,
    RefusedError,
    Step,
    along_axis,
    axes_of,
    difference_of,
    is_float,
    left_open,
    replaced,
)
from tests.fuzz.few_bits import product_of_few_bits


@difference_of("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skipped(step: Step) -> Documented | None:
    """A second operand with a larger batch than the first, of which onnxruntime reads the first."""
    skip = np.asarray(step.operands[1])
    if skip.ndim == step.x.ndim and len(skip) > len(step.x):
        raise RefusedError
    return None


@difference_of("Concat", "ConcatFromSequence")
def _joined(step: Step) -> Documented | None:
    """Of a tensor without elements any extents are taken."""
    parts = step.operands[0] if step.node.op_type == "ConcatFromSequence" else step.operands
    axis = step.attribute("axis", 0)
    if step.attribute("new_axis", 0):
        shapes = {part.shape for part in parts}
    else:
        shapes = {tuple(np.delete(part.shape, axis)) for part in parts}
    if len(shapes) > 1:
        raise RefusedError
    return None


@difference_of("GatherND")
def _gathered(step: Step) -> Documented | None:
    """`batch_dims` axes that are not those of the indices: onnxruntime reads other batches."""
    batch = step.attribute("batch_dims", 0)
    if step.x.shape[:batch] != np.shape(step.operands[1])[:batch]:
        raise RefusedError
    return None


@difference_of("ReduceMax", "ReduceMin")
def _extreme(step: Step) -> Documented | None:
    """NaN stays NaN; of nothing, the end of the type."""
    if not is_float(step.x):
        return None
    largest = step.node.op_type == "ReduceMax"
    reduce: Any = np.max if largest else np.min
    initial = -np.inf if largest else np.inf
    y = reduce(step.numbers, axes_of(step), initial=initial)
    return replaced(step, y.reshape(step.results[0].shape))


@difference_of("Clip")
def _clip(step: Step) -> Documented | None:
    """A limit that is NaN leaves nothing but NaN."""
    limits = [x for x in step.operands[1:] if x is not None]
    if not is_float(step.x) or not any(np.isnan(np.asarray(x, np.float64)).any() for x in limits):
        return None
    return replaced(step, np.full(step.results[0].shape, np.nan))


@difference_of("Sign")
def _sign(step: Step) -> Documented | None:
    """Of a float16 NaN, too, NaN."""
    if not is_float(step.x):
        return None
    return replaced(step, np.where(np.isnan(step.numbers), np.nan, step.results[0]))


@difference_of("ArgMax", "ArgMin")
def _arg(step: Step) -> Documented | None:
    """As `Hardmax`."""
    if not is_float(step.x):
        return None
    axis = int(step.attribute("axis", 0))
    return left_open(step, np.isnan(step.numbers).any(axis=axis).reshape(step.results[0].shape))


@difference_of("GRU", "LSTM", "RNN")
def _recurrent(step: Step) -> Documented | None:
    """Each turn rounds what the next one goes on with. Over no steps the last states are the first ones, where
    onnxruntime gives zeros. Its activations take NaN for a number, and its Softplus overflows: a batch that meets one is open, or whose states are
    not finite.
    """
    batch_first = bool(step.attribute("layout", 0))
    turns = step.x.shape[int(batch_first)]
    none = [None] * len(step.results)
    if turns > 0:
        axes = [0 if batch_first else y.ndim - 2 for y in step.results]
        lost = _lost_batches(step, batch_first)
        for y, at in zip(step.results, axes, strict=True):
            lost |= ~np.isfinite(np.moveaxis(y, at, 0).reshape(len(lost), -1)).all(axis=1)
        unit = RECURRENT_ULPS * float(np.finfo(step.x.dtype).eps)
        sizes = (np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)) for y in step.results)
        spread = [np.full(size.shape, turns * unit * np.max(size, initial=0)) for size in sizes]
        open_ = [_of_batches(lost, y, at) for y, at in zip(step.results, axes, strict=True)]
        return Documented(step.results, open_, spread)
    first = dict(enumerate(step.operands[5:7], 1))
    named = [at for at, name in enumerate(step.node.output) if name]
    pairs = zip(named, step.results, strict=True)
    results = [y if first.get(at) is None else first[at] for at, y in pairs]
    return Documented(results, none)


def _lost_batches(step: Step, batch_first: bool) -> Array:
    """Which batches some gate is NaN of: infinities that cancel, or meet a weight of 0."""
    x = np.moveaxis(step.numbers, 0, int(not batch_first))  # [batch, turns, width]
    weights, carried, *others = (
        np.asarray(0 if given is None else given, np.float64)
        for at, given in enumerate(step.operands[1:])
        if at != 3  # the lengths
    )
    gates = np.einsum("btk,dgk->bdgt", x, weights)
    lost = np.isnan(gates).any(axis=(1, 2, 3))
    finite = all(np.isfinite(given).all() for given in (weights, carried, *others))
    return np.asarray(lost | (not finite))


def _of_batches(which: Array, result: Array, axis: int) -> Array:
    shape = [1] * result.ndim
    shape[axis] = len(which)
    return np.broadcast_to(which.reshape(shape), result.shape)


RECURRENT_ULPS = 4
"""Of the largest state: what the functions of one turn may be off."""


@difference_of("MatMulNBits")
def _of_few_bits(step: Step) -> Documented | None:
    """Where rows tell the block that they are of: of 2 bits onnxruntime makes what it finds in memory, of 4 it takes
    zero points for 8. Sums over a block may overflow before its scale makes them smaller. Of a row that is rounded
    to bytes nothing is promised where an element is not finite; scales and zero points of the run are lost there where
    weights are packed.
    """
    operands = [None if x is None else np.asarray(x) for x in step.operands]
    sizes = {name: step.attribute(name, 0) for name in ("K", "N", "block_size")}
    sizes["bits"] = step.attribute("bits", 4)
    if len(operands) < 5 or operands[4] is None:
        if (lost := _lost_scales(step, operands, sizes)) is not None:
            return lost
        large = _largest_block(step.numbers, sizes["block_size"]) * (1 << sizes["bits"])
        open_ = large[..., None] >= float(ml_dtypes.finfo(step.x.dtype).max)
        if step.attribute("accuracy_level", 0) == 4:
            open_ |= ~np.isfinite(step.numbers).all(axis=-1, keepdims=True)
        return left_open(step, np.broadcast_to(open_, step.results[0].shape))
    return replaced(step, product_of_few_bits(*operands, **sizes))


def _lost_scales(step: Step, operands: Sequence[Array | None], sizes: Any) -> Documented | None:
    """Where results are farther from the product than rows that are rounded to bytes explain."""
    if step.attribute("accuracy_level", 0) != 4 or not np.isfinite(step.numbers).all():
        return None
    product = np.asarray(product_of_few_bits(*operands, **sizes))
    levels = float(np.max(np.abs(np.asarray(operands[2], np.float64)), initial=0)) * (
        1 << sizes["bits"]
    )
    spread = float(np.max(np.abs(step.numbers), initial=0)) / 127 * levels * sizes["K"] ** 0.5
    if not np.any(np.abs(step.results[0].astype(np.float64) - product) > spread):
        return None
    return Documented([product], [None], [np.full(product.shape, spread)])


def _largest_block(numbers: Array, size: int) -> Array:
    """The largest sum over a block of the sizes of what is finite, by row."""
    sizes = np.abs(numbers, where=np.isfinite(numbers), out=np.zeros_like(numbers))
    sums = np.add.reduceat(sizes, np.arange(0, sizes.shape[-1], size), axis=-1)
    return np.asarray(np.max(sums, axis=-1))


@difference_of("Tokenizer")
def _tokens(step: Step) -> Documented | None:
    """Of no strings, an axis of tokens all the same."""
    return None if step.x.size else replaced(step, np.empty((*step.x.shape, 0), object))


@difference_of("Hardmax")
def _hardmax(step: Step) -> Documented | None:
    """Who wins against NaN hangs on the width of vectors."""
    return left_open(step, along_axis(step, np.isnan(step.numbers), 1))


@difference_of("LogSoftmax")
def _log_softmax(step: Step) -> Documented | None:
    """In float64, onnxruntime's exponential takes NaN for a number."""
    if step.x.dtype != np.float64:
        return None
    return left_open(step, along_axis(step, ~np.isfinite(step.numbers), 1))


@difference_of("SoftmaxCrossEntropyLoss")
def _loss(step: Step) -> Documented | None:
    """As `LogSoftmax` over the classes."""
    if step.x.dtype != np.float64 or np.isfinite(step.numbers).all():
        return None
    return left_open(step, *(np.full(np.shape(y), True) for y in step.results))


@difference_of("BitCast")
def _bit_cast(step: Step) -> Documented | None:
    """The bits of a NaN are nobody's promise."""
    (y,) = step.results
    if not is_float(step.x):
        return None
    nan = np.isnan(step.numbers)
    return left_open(step, nan if nan.shape == y.shape else np.full(y.shape, nan.any()))


@difference_of("BiasGelu", "FastGelu", "Gelu")
def _gelu(step: Step) -> Documented | None:
    """Below 0, 1 less nearly 1, of which rounding is what is left far down."""
    if not is_float(step.x) or not step.x.size:
        return None
    bias = np.asarray(step.operands[1], np.float64) if len(step.operands) > 1 else 0.0
    size = np.abs(step.numbers + bias)
    eps = 4 * float(np.finfo(np.float32).eps)
    spread = np.where(np.isfinite(size) & (step.numbers + bias < 0), size * eps, 0)
    return Documented(step.results, [None], [spread.reshape(step.results[0].shape)])


@difference_of("QuickGelu", "Sigmoid", "Swish")
def _vanishing(step: Step) -> Documented | None:
    """Far below 0 the least numbers, or 0 at once."""
    if not is_float(step.x):
        return None
    small = np.abs(step.results[0].astype(np.float64)) < float(ml_dtypes.finfo(step.x.dtype).tiny)
    return left_open(step, small & (step.numbers < -1))


@difference_of("Tan")
def _many_turns(step: Step) -> Documented | None:
    """Of numbers whose neighbours are further apart than 1: anything, by how the operand was rounded; a tangent may be
    farther from others than these are from each other.
    """
    if not is_float(step.x):
        return None
    apart = np.abs(step.numbers) * float(ml_dtypes.finfo(step.x.dtype).eps)
    return left_open(step, np.isfinite(apart) & (apart > 1))


@difference_of("Softplus")
def _far_above(step: Step) -> Documented | None:
    """The number itself, where onnxruntime's own kernel has not the type and the exponential of the function overflows."""
    lost = np.isinf(step.results[0].astype(np.float64)) & np.isfinite(step.numbers)
    return replaced(step, np.where(lost, step.x, step.results[0])) if lost.any() else None


@difference_of("DynamicQuantizeLSTM")
def _rows_together(step: Step) -> Documented | None:
    """Rows that a core takes are quantised together: what comes of several hangs on the number of cores."""
    several = step.x.shape[1] > 1
    return left_open(step, *(np.full(np.shape(result), several) for result in step.results))


@difference_of("Celu", "Elu", "Selu")
def _exponential_less_one(step: Step) -> Documented | None:
    """Near 0, what rounding leaves of nearly 1 less 1, a 0 of either sign too. Of a Celu by an alpha of 0, infinity times
    0: NaN in float32 and float64, and else what is above 0 as it is.
    """
    selu = step.node.op_type == "Selu"
    alpha = abs(step.attribute("alpha", 1.6732632 if selu else 1.0))
    if step.node.op_type == "Celu" and not alpha:
        return left_open(step, ~(step.numbers < 0))
    eps = float(ml_dtypes.finfo(step.x.dtype).eps)
    size = alpha * (step.attribute("gamma", 1.050701) if selu else 1.0)
    near = (step.numbers <= -eps) & (step.numbers > -1)
    nothing = (step.numbers <= 0) & (step.numbers > -eps)
    return Documented(step.results, [None], [np.where(near, size * eps, 0)], [nothing])


@difference_of("Unique")
def _unique(step: Step) -> Documented | None:
    """Of NaN: equal to NaN and behind all numbers."""
    if not is_float(step.x) or not np.isnan(step.numbers).any():
        return None
    axis: int | None = step.attribute("axis", None)
    # by the place of each number among all of them
    places = np.unique(step.numbers, return_inverse=True)[1].reshape(step.x.shape)
    _, first, inverse, counts = np.unique(
        places, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    order = np.arange(len(first)) if step.attribute("sorted", 1) else np.argsort(first)
    first, counts = first[order], counts[order]
    inverse = np.argsort(order)[inverse.reshape(-1)]
    y = step.x.reshape(-1)[first] if axis is None else step.x.take(first, axis)
    found = zip(step.node.output, (y, first, inverse, counts), strict=False)
    results = [result for name, result in found if name]
    return Documented(results, [None] * len(results))


@difference_of("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _compared(step: Step) -> Documented | None:
    """Numbers that only rounding keeps apart, or together: which of the two nobody promises."""
    if not is_float(step.x):
        return None
    a, b = np.broadcast_arrays(step.numbers, np.asarray(step.operands[1]).astype(np.float64))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= COMPARED_ULPS * float(ml_dtypes.finfo(step.x.dtype).eps) * np.abs(a)
        tiny = float(ml_dtypes.finfo(step.x.dtype).tiny)
        near |= (
            np.maximum(np.abs(a), np.abs(b)) <= tiny
        )  # what else was added up says whether it is 0
        return left_open(step, near & ((a != b) | (a != np.rint(a))))


COMPARED_ULPS = 16
"""Numbers as near as these are compared as rounding has it; whole numbers that are equal come from no rounding."""
