"""Differences of sums, means and products: of infinite terms, zeros, and numbers that cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.documented import (
    Array,
    Documented,
    Step,
    axes_of,
    both,
    difference_of,
    is_float,
    left_open,
    replaced,
)


@difference_of("ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare")
def _reduce(step: Step) -> Documented | None:
    """Integers wrap, where onnxruntime stops at the ends of the type."""
    if step.node.op_type == "ReduceProd" and is_float(step.x):
        return _product(step)
    if step.node.op_type == "ReduceSum" and is_float(step.x) and axes_of(step):
        return means(step)
    if step.x.dtype.kind not in "iu":
        return None
    x = step.x
    with np.errstate(all="ignore"):
        terms = {"ReduceL1": np.abs, "ReduceSumSquare": np.square}.get(step.node.op_type, np.array)(
            x
        )
    reduce: Any = np.prod if step.node.op_type == "ReduceProd" else np.sum
    return replaced(step, reduce(terms, axes_of(step), x.dtype).reshape(step.results[0].shape))


@difference_of("Einsum")
def _einsum(step: Step) -> Documented | None:
    """Integers wrap, where onnxruntime's sums stop at the ends of the type."""
    if step.x.dtype.kind not in "iu":
        return both(_sum_of_zeros(step), overflowing(step, len(step.operands)))
    y = np.einsum(step.attribute("equation", b"").decode(), *step.operands, dtype=step.x.dtype)
    return replaced(step, np.asarray(y).reshape(step.results[0].shape))


def _sum_of_zeros(step: Step) -> Documented | None:
    """Of nothing but -0, be it one product: sums begin with 0, or with what they add first."""
    y = np.asarray(step.results[0])
    if not is_float(y) or not (y == 0).any():
        return None

    def of(change: Callable[[Array], Array]) -> Array:
        given = [np.asarray(x) for x in step.operands if x is not None]
        operands = [change(x) if is_float(x) else x for x in given]
        return np.asarray(step.again(operands)[0]).astype(np.float64)

    terms = of(np.ones_like)
    negative = (terms > 0) & (of(lambda x: np.copysign(np.ones_like(x), x)) == -terms)
    return Documented(step.results, [None], unsigned=[negative & (y == 0) & (of(np.abs) == 0)])


@difference_of("MatMul", "Gemm")
def _products_of_two(step: Step) -> Documented | None:
    return overflowing(step, 2)


_MEANS = ("AveragePool", "GlobalAveragePool", "ReduceMean")


def overflowing(step: Step, factors: int) -> Documented | None:
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
    return left_open(step, np.logical_and(*reached))


@difference_of("AveragePool", "GlobalAveragePool")
def means(step: Step) -> Documented | None:
    return both(_sum_of_zeros(step), overflowing(step, 1))


@difference_of("ReduceMean")
def _reduced_means(step: Step) -> Documented | None:
    return means(step) if is_float(step.x) and axes_of(step) else None


@difference_of("LayerNormalization")
def _mean_of_layer(step: Step) -> Documented | None:
    """As `ReduceMean`, if somebody asks for the mean."""
    names = [name for name in step.node.output if name]
    if len(step.node.output) < 2 or not step.node.output[1] or not is_float(step.x):
        return None
    at = names.index(step.node.output[1])
    axis = int(step.attribute("axis", -1)) % step.x.ndim
    negative = (step.numbers == 0) & np.signbit(step.numbers)
    zeros = negative.all(axis=tuple(range(axis, step.x.ndim)), keepdims=True)
    zeros &= np.asarray(step.results[at]) == 0
    masks = [zeros if place == at else None for place in range(len(names))]
    return Documented(step.results, [None] * len(names), unsigned=masks) if zeros.any() else None


def _product(step: Step) -> Documented | None:
    """Whether a factor that is nearly 0 meets one that is nearly infinite hangs on the order."""
    axes, x = axes_of(step), step.numbers
    settled = (np.any(x == 0, axes) & np.any(np.isinf(x), axes)) | np.any(np.isnan(x), axes)
    hangs = _hangs_on_order(step, axes) & ~settled
    return left_open(step, hangs.reshape(step.results[0].shape))


@difference_of("CumSum")
def _sums(step: Step) -> Documented | None:
    """In one order or another."""
    if not is_float(step.x) or not step.x.size:
        return None
    axis = int(np.asarray(step.operands[1]).reshape(())) % step.x.ndim
    total = np.sum(
        np.where(np.isfinite(step.numbers), np.abs(step.numbers), 0), axis, keepdims=True
    )
    spread = float(ml_dtypes.finfo(step.x.dtype).eps) * np.broadcast_to(total, step.x.shape)
    return Documented(step.results, [None], [spread])


@difference_of("CumProd")
def _products(step: Step) -> Documented | None:
    """As `ReduceProd`, of some of the factors."""
    if not is_float(step.x):
        return None
    axis = int(np.asarray(step.operands[1]).reshape(())) % step.x.ndim
    mask = np.expand_dims(_hangs_on_order(step, (axis,)), axis)
    return left_open(step, np.broadcast_to(mask, step.x.shape))


def _hangs_on_order(step: Step, axes: tuple[int, ...]) -> Array:
    info = ml_dtypes.finfo(step.x.dtype)
    size = np.log(np.abs(step.numbers))
    zero, infinite = np.any(size == -np.inf, axes), np.any(size == np.inf, axes)
    finite = np.where(np.isfinite(size), size, 0)
    small = zero | (np.sum(np.minimum(finite, 0), axes) < np.log(float(info.tiny)))
    large = infinite | (np.sum(np.maximum(finite, 0), axes) > np.log(float(info.max)))
    return np.asarray(small & large)


@difference_of("BlackmanWindow", "HannWindow", "HammingWindow")
def _window(step: Step) -> Documented | None:
    """At the ends the terms cancel, and rounding is what is left."""
    (y,) = step.results
    if not is_float(y):
        return None
    rounding = 4 * float(np.finfo(np.float32).eps)
    return left_open(step, np.abs(y.astype(np.float64)) <= rounding)


@difference_of("DFT", "STFT")
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


@difference_of("MeanVarianceNormalization")
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
    return Documented(replaced(step, result).results, [None], [spread])


LEAST_DEVIATION = 1e-9
"""Is added to a deviation by the function that the standard has for MeanVarianceNormalization."""


@difference_of("InstanceNormalization")
def _instance_norm(step: Step) -> Documented | None:
    """onnxruntime subtracts the scaled mean from scaled numbers, which rounds more where it nearly cancels them."""
    if not is_float(step.x) or not step.x.size:
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
        return replaced(step, np.where(np.abs(exact - result) <= rounding, exact, result))


@difference_of("BatchNormalization")
def _batch_norm(step: Step) -> Documented | None:
    """onnxruntime adds the scaled mean to scaled numbers; where both are infinite, or the shift is, that is NaN. Where the
    statistics are those of the batch, it does otherwise.
    """
    if step.attribute("training_mode", 0) or len(step.results) > 1:
        return None
    (y,) = step.results
    with np.errstate(all="ignore"):
        channels = (-1, *(1 for _ in step.x.shape[2:]))
        scale, shift, mean, variance = (
            np.asarray(v, np.float64).reshape(channels) for v in step.operands[1:]
        )
        scale = scale / np.sqrt(variance + step.attribute("epsilon", 1e-5))
        exact = (step.numbers - mean) * scale + shift
    return left_open(step, np.isnan(y.astype(np.float64)) & ~np.isnan(exact))


@difference_of("LRN")
def _sliding(step: Step) -> Documented | None:
    """A sum of squares that slides over the channels keeps what rounding leaves of those behind it, be it more than
    there is in a window, and never gets over one that overflows. Windows of onnxruntime's operator are odd.
    """
    beta, bias = step.attribute("beta", 0.75), step.attribute("bias", 1.0)
    size = step.attribute("size", 1)
    factor = step.attribute("alpha", 1e-4) / size
    around = [(size // 2, size // 2) if axis == 1 else (0, 0) for axis in range(step.x.ndim)]
    with np.errstate(all="ignore"):
        squares = np.square(step.x.astype(np.float32)).astype(np.float64)
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(squares, around), size, axis=1)
        exact = step.numbers / (bias + factor * windows.sum(-1)) ** beta
    overflows = ~np.isfinite(windows[..., 0])  # the first of a window is about to be left behind
    passed = np.roll(np.logical_or.accumulate(overflows, axis=1), 1, axis=1)
    passed[:, :1] = False
    behind = np.cumsum(np.where(np.isfinite(squares), squares, 0), axis=1)
    left = float(np.finfo(step.x.dtype).eps) * behind * abs(factor * beta / bias)
    result = np.where(passed | (left > 1), exact, step.results[0].astype(np.float64))
    spread = np.where(np.isfinite(result), np.abs(result), 0) * np.minimum(left, 1)
    return Documented(replaced(step, result).results, [None], [spread])
