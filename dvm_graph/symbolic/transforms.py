"""Convolutions by 3 x 3 taps whose weights have transforms (npu/host/transformed_windows.h).

In: how windows move over images or volumes, and how many channels and results groups of weights have. Out: whether products of their
patches gain by transforms at any extents. Decompositions ask it where patches are one way of several, and lowering where weights are
packed: rows of transforms lie behind those of the weights, for each of 6 x 6 points those of all channels of all slices. They are
computed where they are packed (npu/host/transformed_weights.h).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dvm_graph import _core
from dvm_graph.ir import Dim, DType
from dvm_graph.symbolic.facts import Facts
from dvm_graph.symbolic.intervals import LARGEST_EXTENT

TAPS = _core.TRANSFORM_TAPS
"""Along each axis of the kernel."""
ROWS = _core.TRANSFORMED_ROWS
"""Of what is packed over those of the weights."""
_POINTS = _core.TRANSFORM_POINTS**2
"""Of a square of pixels."""

_LEAST_CHANNELS = 16
"""Of a group, and results: of fewer, transforming takes most of what is saved."""
_LEAST_SQUARES = 9
"""Of an image: of fewer, each transformed weight is read for too few products."""
_MOST_BYTES, _MOST_BYTES_APART = 20 << 20, 40 << 20
"""Of transforms where nothing is known of the image: if it is small, they only take room. Windows are dilated in place of strides before
them, which would have made it small, so theirs may take more."""
_FEW_SQUARES, _TOO_FEW_SQUARES = 4, 3
"""That pass by the weights at a time, in the scratch memory of a core: of few, transforms are read so often that they gain only where they
lie near; of too few, not even there. Measured from 1024 to 2048 channels."""


def transformed_slices(
    window: Mapping[str, Any], groups: int, k: int, results: int, facts: Facts
) -> int:
    """Slices of 3 by 3 taps that f32 weights [groups, k, results] of a product of patches are made of; 0 where no extents gain by
    transforms. `window`: the attributes of `patches`.
    """
    *depth, height, width = window["kernel"]
    if (height, width) != (TAPS, TAPS) or tuple(window["strides"][-2:]) != (1, 1):
        return 0
    slices = math.prod(depth)
    if min(k // (slices * TAPS**2), results) < _LEAST_CHANNELS:
        return 0
    room = groups * k * results * (ROWS - 1) * DType.FLOAT32.itemsize
    at_a_time = _core.SCRATCH_BYTES // (_POINTS * k // TAPS**2 * DType.FLOAT32.itemsize)
    if at_a_time <= (_FEW_SQUARES if room > _MOST_BYTES else _TOO_FEW_SQUARES):
        return 0
    size = [_number(extent, facts) for extent in window["size"]]
    known = [extent for extent in size if extent is not None]
    if len(known) < len(size):
        apart = max(window["dilations"][-2:]) > 1
        return slices if room <= (_MOST_BYTES_APART if apart else _MOST_BYTES) else 0
    squares = math.prod(map(_core.transform_squares, known[-2:], window["dilations"][-2:]))
    fewer = squares * _POINTS < math.prod(known[-2:]) * TAPS**2
    return slices if fewer and squares * math.prod(known[:-2]) >= _LEAST_SQUARES else 0


def _number(dim: Dim, facts: Facts) -> int | None:
    known = dim if isinstance(dim, int) else facts.canonical(dim)
    return min(known, LARGEST_EXTENT) if isinstance(known, int) else None
