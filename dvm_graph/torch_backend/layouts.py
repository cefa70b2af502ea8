"""In which order elements of torch's tensors lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def is_row_major(tensor: torch.Tensor) -> bool:
    step = 1
    for extent, stride in zip(reversed(tensor.shape), reversed(tensor.stride()), strict=True):
        if stride != step:
            return False
        step *= extent
    return True


def order_of(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Axes from the outermost in memory on; None: there are gaps between elements."""
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    # Axes of one element lie anywhere.
    order = [axis for axis in order if shape[axis] == 1] + [a for a in order if shape[a] != 1]
    step = 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != step:
                return None
            step *= shape[axis]
    kept = [axis for axis in order if shape[axis] != 1]
    return list(range(len(shape))) if kept == sorted(kept) else order


def inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
