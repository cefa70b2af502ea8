"""Tensors as arrays, and arrays as tensors, in the same memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import torch


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    if tensor.dtype is torch.bfloat16:
        array: np.ndarray[Any, Any] = tensor.detach().view(torch.uint16).numpy(force=True)
        return array.view(ml_dtypes.bfloat16)
    array = tensor.numpy(force=True)
    return array


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
