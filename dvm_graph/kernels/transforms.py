"""Weights of convolutions by 3 x 3 taps that are packed with their transforms (npu/host/transformed_windows.h).

In: a product of patches of images or volumes, and its weights as a matrix [slices * taps * channels, results]. Out: whether rows of
transforms are to lie behind those of the weights, for each of 6 x 6 points those of all channels of all slices. They are computed where
they are packed (npu/host/transformed_weights.h).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dvm_graph.ir import Dim, DType, Node

TAPS, RESULTS = 3, 4
"""Along each axis: of the kernel, and results that come of one square of pixels."""
_ROWS = 1 + (TAPS + RESULTS - 1) ** 2 // TAPS**2
"""Of what is packed over those of the weights."""

_LEAST_CHANNELS = 16
"""Of a group, and results: of fewer, transforming takes most of what is saved."""
_LEAST_SQUARES = 9
"""Of an image: of fewer, each transformed weight is read for too few products."""
_MOST_BYTES, _MOST_BYTES_APART = 20 << 20, 40 << 20
"""Of transforms where nothing is known of the image: if it is small, they only take room. Windows are dilated in place of strides before
them, which would have made it small, so theirs may take more."""


def transformed_slices(
    product: Node, groups: int, k: int, results: int, number_of: Callable[[Dim], int | None]
) -> int:
    """Slices of 3 by 3 taps that weights [groups, k, results] of a product of patches are made of; 0 where no extents gain by transforms."""
    patches = product.required(0).made_by("patches")
    if patches is None or product.output.dtype is not DType.FLOAT32:
        return 0
    attrs = patches.attrs
    *depth, height, width = attrs["kernel"]
    if (height, width) != (TAPS, TAPS) or tuple(attrs["strides"][-2:]) != (1, 1):
        return 0
    slices = math.prod(depth)
    if min(k // (slices * TAPS**2), results) < _LEAST_CHANNELS:
        return 0
    size = [number_of(extent) for extent in attrs["size"]]
    known = [extent for extent in size if extent is not None]
    if len(known) < len(size):
        room = groups * k * results * (_ROWS - 1) * DType.FLOAT32.itemsize
        apart = max(attrs["dilations"][-2:]) > 1
        return slices if room <= (_MOST_BYTES_APART if apart else _MOST_BYTES) else 0
    squares = math.prod(map(_squares, known[-2:], attrs["dilations"][-2:]))
    fewer = squares * (TAPS + RESULTS - 1) ** 2 < math.prod(known[-2:]) * TAPS**2
    return slices if fewer and squares * math.prod(known[:-2]) >= _LEAST_SQUARES else 0


def packed_rows(k: int, slices: int) -> int:
    """Of weights of so many rows, and behind them of the transforms of their slices, if there are any."""
    return k * _ROWS if slices else k


def _squares(results: int, apart: int) -> int:
    """Along an axis, as `kernels/transforms.h` counts them."""
    bands, rest = divmod(results, apart * RESULTS)
    return bands * apart + min(rest, apart)
