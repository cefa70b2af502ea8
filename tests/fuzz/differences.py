"""What operators give where onnxruntime's answer is not the one to expect: `docs/edge_values.md` as a table.

In: a node, its operands and what onnxruntime makes of them. Out: the results as documented, and which of
their elements anything may be: where the documents promise no number, or only one of two. Elements, not
operators or models: whatever else a model computes is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One node, run on onnxruntime."""

    node: onnx.NodeProto
    opset: int
    operands: Sequence[Any]
    """None: left out."""
    results: Sequence[Any]
    again: Callable[[Sequence[Any]], Sequence[Any]]
    """What onnxruntime gives for other operands of the same types."""

    def attribute(self, name: str, default: Any) -> Any:
        found = (helper.get_attribute_value(a) for a in self.node.attribute if a.name == name)
        return next(found, default)

    @property
    def x(self) -> Array:
        return np.asarray(self.operands[0])

    @property
    def numbers(self) -> Array:
        """The first operand in float64."""
        return self.x.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Documented:
    results: Sequence[Any]
    open: Sequence[Array | None]
    """Which elements of each result nobody promises."""
    spread: Sequence[Array] = ()
    """How far elements of the first results may be off."""
    unsigned: Sequence[Array | None] = ()
    """Which zeros of each result may have either sign."""


class RefusedError(RuntimeError):
    """The operator is documented to be refused where onnxruntime makes something of it."""


Difference = Callable[[Step], "Documented | None"]
DIFFERENCES: dict[str, Difference] = {}
"""By operator; None: what onnxruntime gives is what is documented."""


def _difference(*ops: str) -> Callable[[Difference], Difference]:
    def register(function: Difference) -> Difference:
        DIFFERENCES.update(dict.fromkeys(ops, function))
        return function

    return register


def _left_open(step: Step, *masks: Array) -> Documented | None:
    return Documented(step.results, masks) if any(mask.any() for mask in masks) else None


def _replaced(step: Step, result: Array, *others: Any) -> Documented:
    results = [np.asarray(result.astype(step.results[0].dtype)), *step.results[1:]]
    return Documented(results, [None, *others][: len(results)])


def _is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


# -- integers


@_difference("Cast", "CastLike")
def _cast(step: Step) -> Documented | None:
    """Numbers that the integer type does not hold: what the processor's instruction gives."""
    (y,) = step.results
    if not _is_float(step.x) or y.dtype.kind not in "iu":
        return None
    ends = np.iinfo(y.dtype)
    numbers = step.numbers
    return _left_open(step, ~((numbers > ends.min - 1.0) & (numbers < ends.max + 1.0)))


@_difference("DynamicQuantizeLinear")
def _dynamic_quantize(step: Step) -> Documented | None:
    wrong = not np.isfinite(step.numbers).all()
    return _left_open(step, *(np.full(np.shape(y), wrong) for y in step.results))


@_difference("QLinearAdd", "QLinearMul")
def _qlinear(step: Step) -> Documented | None:
    """As `DequantizeLinear`, the operator and `QuantizeLinear` in float32; onnxruntime rounds the sum with the zero point."""
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (
        np.asarray(0 if given is None else given, np.float32) for given in step.operands
    )
    a, b = (a - a_zero) * a_scale, (b - b_zero) * b_scale
    exact = (a + b if step.node.op_type == "QLinearAdd" else a * b) / scale
    ends = np.iinfo(step.results[0].dtype)
    return _replaced(step, np.clip(np.rint(exact) + zero, ends.min, ends.max))


@_difference("Pow")
def _pow(step: Step) -> Documented | None:
    """Integers wrap, where onnxruntime computes in float64."""
    base, exponent = step.x, np.asarray(step.operands[1])
    if base.dtype.kind not in "iu":
        return None
    if exponent.dtype.kind not in "iu":
        numbers = step.numbers ** exponent.astype(np.float64)
        ends = np.iinfo(base.dtype)
        return _left_open(step, ~((numbers > ends.min - 1.0) & (numbers < ends.max + 1.0)))
    wide, signed = base.astype(np.int64), exponent.astype(np.int64)
    power = wide ** np.maximum(signed, 0)
    unit = np.where(wide == 1, 1, np.where(wide == -1, 1 - 2 * (signed & 1), 0))
    return _replaced(step, np.where(signed < 0, unit, power))


def _axes(step: Step) -> tuple[int, ...]:
    given = step.operands[1] if len(step.operands) > 1 else None
    axes = step.attribute("axes", None) if given is None else np.asarray(given).tolist()
    if not axes:
        identity = step.attribute("noop_with_empty_axes", 0)
        return () if identity else tuple(range(step.x.ndim))
    return tuple(axis % step.x.ndim for axis in axes)


@_difference("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare")
def _reduce(step: Step) -> Documented | None:
    """Integers wrap, where onnxruntime stops at the ends of the type."""
    if step.node.op_type == "ReduceProd" and _is_float(step.x):
        return _product(step)
    if step.node.op_type == "ReduceSum" and _is_float(step.x) and _axes(step):
        return _means(step)
    if step.x.dtype.kind not in "iu":
        return None
    x = step.x
    with np.errstate(all="ignore"):
        terms = {"ReduceL1": np.abs, "ReduceSumSquare": np.square}.get(step.node.op_type, np.array)(
            x
        )
    reduce: Any = np.prod if step.node.op_type == "ReduceProd" else np.sum
    return _replaced(step, reduce(terms, _axes(step), x.dtype).reshape(step.results[0].shape))


@_difference("Einsum")
def _einsum(step: Step) -> Documented | None:
    """Integers wrap, where onnxruntime's sums stop at the ends of the type."""
    if step.x.dtype.kind not in "iu":
        return _both(_sum_of_zeros(step), _overflowing(step, len(step.operands)))
    y = np.einsum(step.attribute("equation", b"").decode(), *step.operands, dtype=step.x.dtype)
    return _replaced(step, np.asarray(y).reshape(step.results[0].shape))


def _sum_of_zeros(step: Step) -> Documented | None:
    """Of nothing but -0, be it one product: sums begin with 0, or with what they add first."""
    y = np.asarray(step.results[0])
    if not _is_float(y) or not (y == 0).any():
        return None

    def of(change: Callable[[Array], Array]) -> Array:
        given = [np.asarray(x) for x in step.operands if x is not None]
        operands = [change(x) if _is_float(x) else x for x in given]
        return np.asarray(step.again(operands)[0]).astype(np.float64)

    terms = of(np.ones_like)
    negative = (terms > 0) & (of(lambda x: np.copysign(np.ones_like(x), x)) == -terms)
    return Documented(step.results, [None], unsigned=[negative & (y == 0) & (of(np.abs) == 0)])


@_difference("MatMul", "Gemm")
def _products_of_two(step: Step) -> Documented | None:
    return _overflowing(step, 2)


_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")


def _overflowing(step: Step, factors: int) -> Documented | None:
    """Terms of both signs, some of which overflow together: infinite or no number, by their order.

    Of an operator whose results are sums, or means, of products of so many operands; what follows is added.
    """
    floats = (np.float32, np.float64)
    if step.x.dtype not in floats or np.isfinite(step.results[0]).all():
        return None
    info = np.finfo(step.x.dtype)
    unit = 2.0 ** -(int(info.maxexp) // 2)
    terms = step.x.size if step.node.op_type in _MEANS else 1
    least = 0.5 * float(info.max) * unit**factors / terms

    def of(change: Callable[[Array, int], Array]) -> Array:
        given = [
            x
            if x is None or np.asarray(x).dtype not in floats
            else change(np.asarray(x), 1 if at < factors else factors).astype(step.x.dtype)
            for at, x in enumerate(step.operands)
        ]
        return np.asarray(step.again(given)[0]).astype(np.float64)

    def sign(x: Array) -> Array:
        return np.where(np.isnan(x), 0, np.sign(x))

    def finite(x: Array) -> Array:
        return np.where(np.isfinite(x), x, 0)

    def parts(change: Callable[[Array, int], Array]) -> tuple[Array, Array]:
        """The sums of the terms above 0 and of those below."""
        total, size = of(change), of(lambda x, power: np.abs(change(x, power)))
        return (size + total) / 2, (size - total) / 2

    reached = []
    for all_, settled, large in zip(
        parts(lambda x, _: sign(x)),
        parts(lambda x, _: sign(finite(x))),
        parts(lambda x, power: finite(x) * unit**power),
        strict=True,
    ):
        reached.append((all_ > settled) | (large >= least))
    return _left_open(step, np.logical_and(*reached))


def _both(one: Documented | None, other: Documented | None) -> Documented | None:
    """Of the same results: what either leaves open."""
    if one is None or other is None:
        return one or other
    pairs = zip(one.open, other.open, strict=True)
    open_ = [b if a is None else a if b is None else a | b for a, b in pairs]
    return Documented(
        one.results, open_, one.spread or other.spread, one.unsigned or other.unsigned
    )


@_difference("AveragePool", "GlobalAveragePool")
def _means(step: Step) -> Documented | None:
    return _both(_sum_of_zeros(step), _overflowing(step, 1))


@_difference("ReduceMean")
def _reduced_means(step: Step) -> Documented | None:
    return _means(step) if _is_float(step.x) and _axes(step) else None


@_difference("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skipped(step: Step) -> Documented | None:
    """A second operand with a larger batch than the first, of which onnxruntime reads the first."""
    skip = np.asarray(step.operands[1])
    if skip.ndim == step.x.ndim and len(skip) > len(step.x):
        raise RefusedError
    return None


@_difference("Concat", "ConcatFromSequence")
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


@_difference("GatherND")
def _gathered(step: Step) -> Documented | None:
    """`batch_dims` axes that are not those of the indices: onnxruntime reads other batches."""
    batch = step.attribute("batch_dims", 0)
    if step.x.shape[:batch] != np.shape(step.operands[1])[:batch]:
        raise RefusedError
    return None


@_difference("LayerNormalization")
def _mean_of_layer(step: Step) -> Documented | None:
    """As `ReduceMean`, if somebody asks for the mean."""
    names = [name for name in step.node.output if name]
    if len(step.node.output) < 2 or not step.node.output[1] or not _is_float(step.x):
        return None
    at = names.index(step.node.output[1])
    axis = int(step.attribute("axis", -1)) % step.x.ndim
    negative = (step.numbers == 0) & np.signbit(step.numbers)
    zeros = negative.all(axis=tuple(range(axis, step.x.ndim)), keepdims=True)
    zeros &= np.asarray(step.results[at]) == 0
    masks = [zeros if place == at else None for place in range(len(names))]
    return Documented(step.results, [None] * len(names), unsigned=masks) if zeros.any() else None


@_difference("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def _root(step: Step) -> Documented | None:
    """Integers: computed in floats, of which the type need not hold the result."""
    (y,) = step.results
    if y.dtype.kind not in "iu":
        return _log_of_exponentials(step) if step.node.op_type == "ReduceLogSumExp" else None
    ends = np.iinfo(y.dtype)
    size = np.sqrt(np.sum(np.square(step.numbers), _axes(step))).reshape(y.shape)
    extreme = (y == ends.max) | (y == ends.min) | (size >= float(ends.max) * (1 - 1e-6))
    return _left_open(step, np.asarray(extreme))


def _log_of_exponentials(step: Step) -> Documented | None:
    """The greatest is taken out first, which the function that stands for newer operators does not do."""
    (y,) = step.results
    axes = _axes(step)
    if not step.x.size:
        return None
    greatest = np.max(step.numbers, axes, keepdims=True)
    with np.errstate(all="ignore"):
        rest = np.log(np.sum(np.exp(step.numbers - greatest), axes, keepdims=True))
    far = np.isinf(y) & np.isfinite(greatest).reshape(y.shape)
    return (
        _replaced(step, np.where(far, (greatest + rest).reshape(y.shape), y)) if far.any() else None
    )


def _product(step: Step) -> Documented | None:
    """Whether a factor that is nearly 0 meets one that is nearly infinite hangs on the order."""
    axes, x = _axes(step), step.numbers
    settled = (np.any(x == 0, axes) & np.any(np.isinf(x), axes)) | np.any(np.isnan(x), axes)
    hangs = _hangs_on_order(step, axes) & ~settled
    return _left_open(step, hangs.reshape(step.results[0].shape))


@_difference("CumSum")
def _sums(step: Step) -> Documented | None:
    """In one order or another."""
    if not _is_float(step.x) or not step.x.size:
        return None
    axis = int(np.asarray(step.operands[1]).reshape(())) % step.x.ndim
    total = np.sum(
        np.where(np.isfinite(step.numbers), np.abs(step.numbers), 0), axis, keepdims=True
    )
    spread = float(ml_dtypes.finfo(step.x.dtype).eps) * np.broadcast_to(total, step.x.shape)
    return Documented(step.results, [None], [spread])


@_difference("CumProd")
def _products(step: Step) -> Documented | None:
    """As `ReduceProd`, of some of the factors."""
    if not _is_float(step.x):
        return None
    axis = int(np.asarray(step.operands[1]).reshape(())) % step.x.ndim
    mask = np.expand_dims(_hangs_on_order(step, (axis,)), axis)
    return _left_open(step, np.broadcast_to(mask, step.x.shape))


def _hangs_on_order(step: Step, axes: tuple[int, ...]) -> Array:
    info = ml_dtypes.finfo(step.x.dtype)
    size = np.log(np.abs(step.numbers))
    zero, infinite = np.any(size == -np.inf, axes), np.any(size == np.inf, axes)
    finite = np.where(np.isfinite(size), size, 0)
    small = zero | (np.sum(np.minimum(finite, 0), axes) < np.log(float(info.tiny)))
    large = infinite | (np.sum(np.maximum(finite, 0), axes) > np.log(float(info.max)))
    return np.asarray(small & large)


@_difference("BlackmanWindow", "HannWindow", "HammingWindow")
def _window(step: Step) -> Documented | None:
    """At the ends the terms cancel, and rounding is what is left."""
    (y,) = step.results
    if not _is_float(y):
        return None
    rounding = 4 * float(np.finfo(np.float32).eps)
    return _left_open(step, np.abs(y.astype(np.float64)) <= rounding)


# -- maxima


@_difference("ReduceMax", "ReduceMin")
def _extreme(step: Step) -> Documented | None:
    """NaN stays NaN; of nothing, the end of the type."""
    if not _is_float(step.x):
        return None
    largest = step.node.op_type == "ReduceMax"
    reduce: Any = np.max if largest else np.min
    initial = -np.inf if largest else np.inf
    y = reduce(step.numbers, _axes(step), initial=initial)
    return _replaced(step, y.reshape(step.results[0].shape))


@_difference("MaxPool", "GlobalMaxPool")
def _max_pool(step: Step) -> Documented | None:
    """NaN stays NaN, and -infinity, with which onnxruntime does not begin. Nobody promises a place of what is not there."""
    if not step.x.size:
        return None
    if not _is_float(step.x):
        empty = np.asarray(step.again([np.ones_like(step.x)])[0]) != 1
        return Documented(step.results, [None, empty][: len(step.results)])
    hides = np.asarray(step.again([np.isnan(step.numbers).astype(step.x.dtype)])[0]) > 0
    y = step.results[0].astype(np.float64)
    y = np.where(y <= float(ml_dtypes.finfo(step.x.dtype).min), -np.inf, y)
    return _replaced(step, np.where(hides, np.nan, y), hides | np.isinf(y))


@_difference("Clip")
def _clip(step: Step) -> Documented | None:
    """A limit that is NaN leaves nothing but NaN."""
    limits = [x for x in step.operands[1:] if x is not None]
    if not _is_float(step.x) or not any(np.isnan(np.asarray(x, np.float64)).any() for x in limits):
        return None
    return _replaced(step, np.full(step.results[0].shape, np.nan))


@_difference("Sign")
def _sign(step: Step) -> Documented | None:
    """Of a float16 NaN, too, NaN."""
    if not _is_float(step.x):
        return None
    return _replaced(step, np.where(np.isnan(step.numbers), np.nan, step.results[0]))


@_difference("ArgMax", "ArgMin")
def _arg(step: Step) -> Documented | None:
    """As `Hardmax`."""
    if not _is_float(step.x):
        return None
    axis = int(step.attribute("axis", 0))
    return _left_open(step, np.isnan(step.numbers).any(axis=axis).reshape(step.results[0].shape))


@_difference("GRU", "LSTM", "RNN")
def _recurrent(step: Step) -> Documented | None:
    """Each turn rounds what the next one goes on with. Over no steps the last states are the first ones, where
    onnxruntime gives zeros. Its activations take NaN for a number: a batch that meets one is open.
    """
    batch_first = bool(step.attribute("layout", 0))
    turns = step.x.shape[int(batch_first)]
    none = [None] * len(step.results)
    if turns > 0:
        lost = _lost_batches(step, batch_first)
        unit = RECURRENT_ULPS * float(np.finfo(step.x.dtype).eps)
        sizes = (np.abs(y, where=np.isfinite(y), out=np.zeros_like(y)) for y in step.results)
        spread = [np.full(size.shape, turns * unit * np.max(size, initial=0)) for size in sizes]
        axes = (0 if batch_first else y.ndim - 2 for y in step.results)
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


@_difference("DFT", "STFT")
def _fourier(step: Step) -> Documented | None:
    """Sums by sines and cosines, which are rounded: where terms cancel, some of that is left."""
    (y,) = step.results
    if not y.size:
        return None
    sizes = np.abs(y, where=np.isfinite(y), out=np.zeros_like(y))
    largest = np.max(sizes, axis=tuple(range(1, y.ndim)), keepdims=True)
    spread = FOURIER_ULPS * float(ml_dtypes.finfo(y.dtype).eps) * largest
    return Documented(step.results, [None], [np.broadcast_to(spread, y.shape)])


FOURIER_ULPS = 4
"""Of a signal's largest result: what is left of terms that cancel."""


@_difference("Hardmax")
def _hardmax(step: Step) -> Documented | None:
    """Who wins against NaN hangs on the width of vectors."""
    return _left_open(step, _along(step, np.isnan(step.numbers), 1))


@_difference("LogSoftmax")
def _log_softmax(step: Step) -> Documented | None:
    """In float64, onnxruntime's exponential takes NaN for a number."""
    if step.x.dtype != np.float64:
        return None
    return _left_open(step, _along(step, ~np.isfinite(step.numbers), 1))


@_difference("SoftmaxCrossEntropyLoss")
def _loss(step: Step) -> Documented | None:
    """As `LogSoftmax` over the classes."""
    if step.x.dtype != np.float64 or np.isfinite(step.numbers).all():
        return None
    return _left_open(step, *(np.full(np.shape(y), True) for y in step.results))


def _along(step: Step, mask: Array, default: int) -> Array:
    """Where any of the elements along the node's axis is set."""
    axis = int(step.attribute("axis", default if step.opset < 13 else -1)) % max(1, mask.ndim)
    axes = (axis,) if step.opset >= 13 else tuple(range(axis, mask.ndim))
    return np.broadcast_to(mask.any(axis=axes, keepdims=True), mask.shape)


# -- floats that are not finite


@_difference("BitCast")
def _bit_cast(step: Step) -> Documented | None:
    """The bits of a NaN are nobody's promise."""
    (y,) = step.results
    if not _is_float(step.x):
        return None
    nan = np.isnan(step.numbers)
    return _left_open(step, nan if nan.shape == y.shape else np.full(y.shape, nan.any()))


@_difference("BiasGelu", "FastGelu", "Gelu")
def _gelu(step: Step) -> Documented | None:
    """Below 0, 1 less nearly 1, of which rounding is what is left far down."""
    if not _is_float(step.x) or not step.x.size:
        return None
    bias = np.asarray(step.operands[1], np.float64) if len(step.operands) > 1 else 0.0
    size = np.abs(step.numbers + bias)
    eps = 4 * float(np.finfo(np.float32).eps)
    spread = np.where(np.isfinite(size) & (step.numbers + bias < 0), size * eps, 0)
    return Documented(step.results, [None], [spread.reshape(step.results[0].shape)])


@_difference("QuickGelu", "Sigmoid", "Swish")
def _vanishing(step: Step) -> Documented | None:
    """Far below 0 the least numbers, or 0 at once."""
    if not _is_float(step.x):
        return None
    small = np.abs(step.results[0].astype(np.float64)) < float(ml_dtypes.finfo(step.x.dtype).tiny)
    return _left_open(step, small & (step.numbers < -1))


@_difference("Celu", "Elu", "Selu")
def _exponential_less_one(step: Step) -> Documented | None:
    """Near 0, what rounding leaves of nearly 1 less 1, a 0 of either sign too. Of a Celu by an alpha of 0, infinity times
    0: NaN in float32 and float64, and else what is above 0 as it is.
    """
    selu = step.node.op_type == "Selu"
    alpha = abs(step.attribute("alpha", 1.6732632 if selu else 1.0))
    if step.node.op_type == "Celu" and not alpha:
        return _left_open(step, ~(step.numbers < 0))
    eps = float(ml_dtypes.finfo(step.x.dtype).eps)
    size = alpha * (step.attribute("gamma", 1.050701) if selu else 1.0)
    near = (step.numbers <= -eps) & (step.numbers > -1)
    nothing = (step.numbers <= 0) & (step.numbers > -eps)
    return Documented(step.results, [None], [np.where(near, size * eps, 0)], [nothing])


@_difference("ConvInteger")
def _no_channels(step: Step) -> Documented | None:
    """Over no channels: whatever lies in memory, where it is left to onnxruntime."""
    return _left_open(step, np.full(np.shape(step.results[0]), step.x.shape[1] == 0))


@_difference("Unique")
def _unique(step: Step) -> Documented | None:
    """Of NaN: equal to NaN and behind all numbers."""
    if not _is_float(step.x) or not np.isnan(step.numbers).any():
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


@_difference("MeanVarianceNormalization")
def _mean_variance(step: Step) -> Documented | None:
    """The deviation is not quite 0: of equal numbers 0, but for the mean's rounding, which is divided by little more
    than itself; onnxruntime divides 0 by 0.
    """
    x = step.numbers
    axes = tuple(axis for axis in step.attribute("axes", (0, 2, 3)) if axis < x.ndim)
    if not x.size:
        return None
    equal = np.max(x, axes, keepdims=True) == np.min(x, axes, keepdims=True)
    equal = equal & np.isfinite(x)
    result, deviation = step.results[0].astype(np.float64), x.std(axes, keepdims=True)
    exact = (x - x.mean(axes, keepdims=True)) / (deviation + LEAST_DEVIATION)
    small = (deviation < 1e6 * LEAST_DEVIATION) & ~equal
    if not (equal | small).any():
        return None
    result = np.where(equal, 0, np.where(small, exact, result))
    spread = np.where(equal & (x != 0), 1.0, 0.0)
    return Documented(_replaced(step, result).results, [None], [spread])


LEAST_DEVIATION = 1e-9
"""Is added to a deviation by the function that the standard has for MeanVarianceNormalization."""


@_difference("InstanceNormalization")
def _instance_norm(step: Step) -> Documented | None:
    """onnxruntime subtracts the scaled mean from scaled numbers, which rounds more where it nearly cancels them."""
    if not _is_float(step.x) or not step.x.size:
        return None
    axes = tuple(range(2, step.x.ndim))
    scale, shift = (
        np.asarray(v, np.float64).reshape(-1, *(1 for _ in axes)) for v in step.operands[1:3]
    )
    with np.errstate(all="ignore"):
        variance = step.numbers.var(axes, keepdims=True)
        scale = scale / np.sqrt(variance + step.attribute("epsilon", 1e-5))
        exact = (step.numbers - step.numbers.mean(axes, keepdims=True)) * scale + shift
        rounding = 8 * float(ml_dtypes.finfo(step.x.dtype).eps) * np.abs(step.numbers * scale)
        result = np.asarray(step.results[0]).astype(np.float64)
        return _replaced(step, np.where(np.abs(exact - result) <= rounding, exact, result))


@_difference("Conv")
def _conv(step: Step) -> Documented | None:
    return _both(_beyond_the_image(step), _overflowing(step, 2))


def _beyond_the_image(step: Step) -> Documented | None:
    """The padding adds nothing to what weights that are not finite give, or NaN."""
    weights = np.asarray(step.operands[1])
    wild = ~np.isfinite(weights.astype(np.float64))
    if not wild.any():
        return None
    ones = np.ones_like(step.x)
    (inside,) = step.again([ones, wild.astype(weights.dtype)])
    whole = wild.sum(axis=tuple(range(1, wild.ndim)))
    return _left_open(step, inside < whole.reshape(-1, *(1,) * (wild.ndim - 2)))


@_difference("ConvTranspose")
def _transposed_conv(step: Step) -> Documented | None:
    return _both(_wild_channels(step), _overflowing(step, 2))


def _wild_channels(step: Step) -> Documented | None:
    """As `Conv`, for the channels that weights which are not finite lead to."""
    weights = np.asarray(step.operands[1])
    wild = ~np.isfinite(weights.astype(np.float64)).all(axis=tuple(range(2, weights.ndim)))
    if not wild.any():
        return None
    group, shape = int(step.attribute("group", 1)), np.shape(step.results[0])
    channels = wild.reshape(group, -1, wild.shape[1]).any(axis=1).reshape(-1)
    return _left_open(step, np.broadcast_to(channels.reshape(-1, *(1,) * (len(shape) - 2)), shape))


@_difference("FusedConv")
def _fused_conv(step: Step) -> Documented | None:
    """As `Conv`, behind an activation."""
    wild = not np.isfinite(np.asarray(step.operands[1]).astype(np.float64)).all()
    return _left_open(step, np.full(np.shape(step.results[0]), wild))


@_difference("Resize", "Upsample")
def _resize(step: Step) -> Documented | None:
    """Elements that are read with weight 0 are not read."""
    mode = step.attribute("mode", b"nearest")
    if mode == b"nearest" or not _is_float(step.x) or np.isfinite(step.numbers).all():
        return None

    def of(image: Array) -> Array:
        return np.asarray(step.again([image.astype(step.x.dtype), *step.operands[1:]])[0])

    x = step.numbers
    nan, above, below = (of(mask) != 0 for mask in (np.isnan(x), x == np.inf, x == -np.inf))
    nan |= above & below
    if mode == b"cubic":  # weights of either sign
        return _left_open(step, np.isnan(step.results[0].astype(np.float64)) & ~nan)
    result = of(np.where(np.isfinite(x), x, 0))
    for where, value in ((above, np.inf), (below, -np.inf), (nan, np.nan)):
        result = np.where(where, value, result)
    open_ = np.isnan(step.results[0].astype(np.float64)) & ~nan  # in axes that change, they are
    return Documented(_replaced(step, result).results, [open_])


@_difference("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
def _compared(step: Step) -> Documented | None:
    """Numbers that only rounding keeps apart, or together: which of the two nobody promises."""
    if not _is_float(step.x):
        return None
    a, b = np.broadcast_arrays(step.numbers, np.asarray(step.operands[1]).astype(np.float64))
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= COMPARED_ULPS * float(ml_dtypes.finfo(step.x.dtype).eps) * np.abs(a)
        tiny = float(ml_dtypes.finfo(step.x.dtype).tiny)
        near |= (
            np.maximum(np.abs(a), np.abs(b)) <= tiny
        )  # what else was added up says whether it is 0
        return _left_open(step, near & ((a != b) | (a != np.rint(a))))


COMPARED_ULPS = 16
"""Numbers as near as these are compared as rounding has it; whole numbers that are equal come from no rounding."""
FILLS = (np.nan, 0.0, -1e4, np.inf, 1e4, 1.0, -np.inf, 0.3)
"""Any four in a row are finite ones and others."""


def shake(result: Array, spread: Array, place: int, number: int) -> Array:
    """The result with each element off by some of what it may be, or rounded to as much."""
    if number in (3, 5):
        steps = np.exp2(np.ceil(np.log2(np.where(spread > 0, spread, 1))))
        near = np.round(result.astype(np.float64) / steps) * steps
        return np.asarray(np.where(spread > 0, near, result).astype(result.dtype))
    part = np.random.default_rng((place, number)).uniform(-1, 1, result.shape)
    return np.asarray((result.astype(np.float64) + part * spread).astype(result.dtype))


def turn(result: Array, unsigned: Array, place: int, number: int) -> Array:
    """The result with zeros of some sign or other: each its own, as they are, or all turned."""
    turned = np.random.default_rng((place, number)).random(result.shape) < (0.5, 0, 1)[number % 3]
    return np.where(unsigned & turned, -result, result)


def fill(result: Array, open_: Array, place: int, number: int) -> Array:
    """The result with something of its type in each open element of the node at a place.

    Elements are filled unlike each other, so that they do not cancel; and each with another thing for each
    of four even numbers in a row, and of four odd ones, so that what hangs on it is sure to move. Of every
    third number all alike, or not at all: sums of many that are unlike would be NaN every time.
    """
    if result.dtype.kind in "iu":
        ends = np.iinfo(result.dtype)
        values = np.array(
            [ends.min, ends.max, 0, 1, ends.max // 3, 2, 7, ends.min + 1], result.dtype
        )
    elif result.dtype.kind == "b":
        values = np.array([True, False])
    else:
        values = np.array(FILLS).astype(result.dtype)
    if number % 3 == 1:
        return result
    if number % 3 == 2:
        return np.where(open_, values[number // 3 % len(values)], result)
    drawn = np.random.default_rng(place).integers(0, len(values), result.shape)
    return np.where(open_, values[(drawn + number // 2) % len(values)], result)
