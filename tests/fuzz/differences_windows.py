"""Differences of operators over images: what lies beyond them, and what is read with weight 0."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.fuzz.differences_sums import overflowing
from tests.fuzz.documented import (
    Array,
    Documented,
    Step,
    both,
    difference_of,
    is_float,
    left_open,
    replaced,
)


@difference_of("MaxPool", "GlobalMaxPool")
def _max_pool(step: Step) -> Documented | None:
    """NaN stays NaN, and -infinity, with which onnxruntime does not begin. Nobody promises a place of what is not there."""
    if not step.x.size:
        return None
    if not is_float(step.x):
        empty = np.asarray(step.again([np.ones_like(step.x)])[0]) != 1
        return Documented(step.results, [None, empty][: len(step.results)])
    hides = np.asarray(step.again([np.isnan(step.numbers).astype(step.x.dtype)])[0]) > 0
    y = step.results[0].astype(np.float64)
    y = np.where(y <= float(ml_dtypes.finfo(step.x.dtype).min), -np.inf, y)
    return replaced(step, np.where(hides, np.nan, y), hides | np.isinf(y))


@difference_of("RoiAlign")
def _greatest_of_regions(step: Step) -> Documented | None:
    """NaN stays NaN, and what infinity gives by a weight of 0: onnxruntime's greatest leaves it out where it does not begin
    with it. Means tell which results read something that is not finite.
    """
    wild = ~np.isfinite(step.numbers)
    if step.attribute("mode", b"avg") != b"max" or not wild.any():
        return None
    image = np.where(wild, np.nan, 0).astype(step.x.dtype)
    (means,) = step.again([image, *step.operands[1:]], {"mode": "avg"})
    return left_open(step, np.isnan(means))


@difference_of("DeformConv")
def _deformed(step: Step) -> Documented | None:
    """Elements that are read with weight 0 are not read, as with `Resize`."""
    if np.isfinite(step.numbers).all():
        return None
    return left_open(step, np.full(np.shape(step.results[0]), True))


@difference_of("ConvInteger")
def _no_channels(step: Step) -> Documented | None:
    """Over no channels: whatever lies in memory, where it is left to onnxruntime."""
    return left_open(step, np.full(np.shape(step.results[0]), step.x.shape[1] == 0))


@difference_of("Conv")
def _conv(step: Step) -> Documented | None:
    return both(_beyond_the_image(step), overflowing(step, 2))


def _beyond_the_image(step: Step) -> Documented | None:
    """The padding adds nothing to what weights that are not finite give, or NaN."""
    weights = np.asarray(step.operands[1])
    wild = ~np.isfinite(weights.astype(np.float64))
    if not wild.any():
        return None
    ones = np.ones_like(step.x)
    (inside,) = step.again([ones, wild.astype(weights.dtype)])
    whole = wild.sum(axis=tuple(range(1, wild.ndim)))
    return left_open(step, inside < whole.reshape(-1, *(1,) * (wild.ndim - 2)))


@difference_of("ConvTranspose")
def _transposed_conv(step: Step) -> Documented | None:
    return both(_wild_channels(step), overflowing(step, 2))


def _wild_channels(step: Step) -> Documented | None:
    """As `Conv`, for the channels that weights which are not finite lead to."""
    weights = np.asarray(step.operands[1])
    wild = ~np.isfinite(weights.astype(np.float64)).all(axis=tuple(range(2, weights.ndim)))
    if not wild.any():
        return None
    group, shape = int(step.attribute("group", 1)), np.shape(step.results[0])
    channels = wild.reshape(group, -1, wild.shape[1]).any(axis=1).reshape(-1)
    return left_open(step, np.broadcast_to(channels.reshape(-1, *(1,) * (len(shape) - 2)), shape))


@difference_of("FusedConv")
def _fused_conv(step: Step) -> Documented | None:
    """As `Conv`, behind an activation."""
    wild = not np.isfinite(np.asarray(step.operands[1]).astype(np.float64)).all()
    return left_open(step, np.full(np.shape(step.results[0]), wild))


@difference_of("Resize", "Upsample")
def _resize(step: Step) -> Documented | None:
    """Elements that are read with weight 0 are not read."""
    mode = step.attribute("mode", b"nearest")
    if mode == b"nearest" or not is_float(step.x) or np.isfinite(step.numbers).all():
        return None
    if step.results[0].shape == step.x.shape:  # nothing changes, which the compiler may not know
        return left_open(step, np.full(step.x.shape, True))

    def of(image: Array) -> Array:
        return np.asarray(step.again([image.astype(step.x.dtype), *step.operands[1:]])[0])

    x = step.numbers
    nan, above, below = (of(mask) != 0 for mask in (np.isnan(x), x == np.inf, x == -np.inf))
    nan |= above & below
    if mode == b"cubic":  # weights of either sign
        return left_open(step, np.isnan(step.results[0].astype(np.float64)) & ~nan)
    result = of(np.where(np.isfinite(x), x, 0))
    for where, value in ((above, np.inf), (below, -np.inf), (nan, np.nan)):
        result = np.where(where, value, result)
    open_ = np.isnan(step.results[0].astype(np.float64)) & ~nan  # in axes that change, they are
    return Documented(replaced(step, result).results, [open_])


@difference_of("AffineGrid")
def _one_position(step: Step) -> Documented | None:
    """Between corners that are the same element: NaN where the standard's function divides by 0."""
    (y,) = step.results
    lost = np.isnan(y.astype(np.float64))
    return left_open(step, lost) if 1 in np.asarray(step.operands[1])[2:] else None
