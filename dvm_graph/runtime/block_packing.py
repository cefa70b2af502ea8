"""Panels of matrices in levels of a few bits (vm/panels.h), from how onnxruntime packs them, and from panels of another width.

In: levels uint8[n, blocks, bytes], the lowest bits first, scales and zeros f32[n, blocks]. Out: words [panels][blocks][rows][columns],
flat; the rows of a block are scales, zeros less the middle of the levels if there are any, and words of levels. Columns past n are 0.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]


def packed_blocks(
    columns: int,
    bits: int,
    levels: NDArray[Any],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None = None,
) -> Words:
    """Panels of so many columns."""
    numbers = [scales] if zeros is None else [scales, zeros - np.float32(1 << (bits - 1))]
    rows = [number[..., None].view(np.uint32) for number in numbers]
    return _panels(np.concatenate([*rows, levels.view(np.uint32)], axis=-1), columns)


def repacked_blocks(panels: Words, columns: int, n: int, blocks: int, wanted: int) -> Words:
    """Panels of `wanted` columns, from such of `columns`."""
    tiles = panels.reshape(-(-n // columns), blocks, -1, columns)
    rows = tiles.transpose(0, 3, 1, 2).reshape(-1, blocks, tiles.shape[2])
    return _panels(rows[:n], wanted)


def _panels(rows: Words, columns: int) -> Words:
    """Of [n, blocks, rows]."""
    n, blocks, count = rows.shape
    panels = -(-n // columns)
    whole = np.zeros((panels * columns, blocks, count), np.uint32)
    whole[:n] = rows
    tiles = whole.reshape(panels, columns, blocks, count).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(tiles).reshape(-1)
