"""The data types: numpy's. float16 and bfloat16 are there besides those of the standard."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

bool = np.dtype("bool")
int8, int16, int32, int64 = (np.dtype(f"int{bits}") for bits in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{bits}") for bits in (16, 32, 64))
complex64, complex128 = np.dtype("complex64"), np.dtype("complex128")
bfloat16 = np.dtype(ml_dtypes.bfloat16)

STANDARD: dict[str, np.dtype[Any]] = {
    dtype.name: dtype
    for dtype in (
        *(bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64),
        *(float32, float64, complex64, complex128),
    )
}
ALL: dict[str, np.dtype[Any]] = STANDARD | {"float16": float16, "bfloat16": bfloat16}
