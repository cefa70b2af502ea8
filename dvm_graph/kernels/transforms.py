"""Weights of convolutions by 3 x 3 taps, transformed as Winograd's way to convolve has them (npu/host/transformed_windows.h).

In: the weights as a matrix [taps * channels, results]. Out: that matrix with the rows of the transforms behind it: for each of 6 x
6 points those of all channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.ir import Dim, DType, Node

TAPS, RESULTS = 3, 4
"""Along each axis: of the kernel, and results that come of one square of pixels."""
POINTS = (0.0, 0.75, -0.75, 1.5, -1.5)
"""At which polynomials are multiplied; the sixth is at infinity."""
ROWS = 1 + (TAPS + RESULTS - 1) ** 2 // TAPS**2
"""Of the result over those of the weights."""

_CHANNELS = 16
"""Transforms are of whole vectors of channels, on every CPU."""
_LEAST_CHANNELS = 32
"""And results: of fewer, transforming takes most of what is saved."""
_LEAST_SQUARES = 9
"""Of an image: of fewer, each transformed weight is read for too few products."""
_MOST_BYTES = 20 << 20
"""Of transforms where nothing is known of the image: if it is small, they only take room."""
_AT_A_TIME = 4096
"""Kernels that are transformed in double precision."""
_MOST = 2.0**20
"""Weights beyond that could push sums out of the range of f32."""


def transformed(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of a matrix [9 * channels, results], taps outermost: [45 * channels, results]."""
    rows, results = weights.shape
    found = np.empty((rows * ROWS, results), np.float32)
    found[:rows] = weights
    matrix = np.kron(_matrix(), _matrix())
    taps, points = found[:rows].reshape(TAPS**2, -1), found[rows:].reshape(len(matrix), -1)
    for begin in range(0, taps.shape[1], _AT_A_TIME):
        part = slice(begin, begin + _AT_A_TIME)
        points[:, part] = matrix @ taps[:, part].astype(np.float64)
    return found


def _matrix() -> NDArray[np.float64]:
    """From taps to what their polynomial is at the points, over the product of the distances to the other ones."""
    rows = [
        [
            point**tap / math.prod(point - other for other in POINTS if other != point)
            for tap in range(TAPS)
        ]
        for point in POINTS
    ]
    return np.array([*rows, [0.0] * (TAPS - 1) + [1.0]])


def have_transforms(
    product: Node, k: int, results: int, number_of: Callable[[Dim], int | None]
) -> bool:
    """Whether a product of patches of images by weights [k, results] may gain by transforms, for some extents."""
    patches = product.required(0).made_by("patches")
    if patches is None or product.output.dtype is not DType.FLOAT32:
        return False
    attrs = patches.attrs
    moves = attrs["kernel"], attrs["strides"], attrs["dilations"], attrs["groups"]
    if moves != ((TAPS, TAPS), (1, 1), (1, 1), 1):
        return False
    channels = k // TAPS**2
    if channels % _CHANNELS != 0 or min(channels, results) < _LEAST_CHANNELS:
        return False
    size = [number_of(extent) for extent in attrs["size"]]
    known = [extent for extent in size if extent is not None]
    if len(known) < len(size):
        return k * results * (ROWS - 1) * DType.FLOAT32.itemsize <= _MOST_BYTES
    return math.prod(-(-extent // RESULTS) for extent in known) >= _LEAST_SQUARES


def can_be_transformed(weights: NDArray[Any]) -> bool:
    """None is so large that sums could leave the range of f32, or no number."""
    return bool(np.abs(weights).max(initial=0) < _MOST)
