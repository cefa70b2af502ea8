"""Element types of tensors.

The value of a member is numpy's name of the type (bfloat16 is ml_dtypes'). `short` is the name
used in dumps and by the C++ core.
"""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class DType(enum.Enum):
    """An element type; `DType.of(array.dtype)` finds that of an array."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    BOOL = "bool"
    OPAQUE = "opaque"
    """String, sequence, optional and other types that only vendor operators touch."""

    __hash__ = object.__hash__  # that of an Enum is Python's, and dtypes are keys everywhere

    short: str
    numpy: np.dtype[Any]
    itemsize: int
    is_float: bool
    is_integer: bool
    register: DType
    """The type a tile of this type has in local memory (kernels/dtype.h)."""

    @classmethod
    def of(cls, dtype: np.dtype[Any]) -> DType:
        """That of a type of numpy.

        Raises:
            ValueError: it is none of these.
        """
        known = _BY_NUMPY.get(dtype)
        return cls(dtype.name) if known is None else known

    def bits(self, array: Array) -> Array:
        """An array of this type as the C++ core takes it: bfloat16 as what represents it."""
        return array.view(np.uint16) if self is DType.BFLOAT16 else array

    @property
    def bundled(self) -> int:
        """Steps of k that panels hold side by side in 32 bits, where they do (vm/panels.h)."""
        return 4 // self.itemsize


_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16})
_SHORT = {
    DType.FLOAT32: "f32", DType.FLOAT64: "f64", DType.FLOAT16: "f16", DType.BFLOAT16: "bf16",
    DType.INT8: "i8", DType.INT16: "i16", DType.INT32: "i32", DType.INT64: "i64",
    DType.UINT8: "u8", DType.UINT16: "u16", DType.UINT32: "u32", DType.UINT64: "u64",
    DType.BOOL: "b8", DType.OPAQUE: "opaque",
}  # fmt: skip
_NUMPY = {DType.BFLOAT16: ml_dtypes.bfloat16, DType.OPAQUE: object}
"""Of those that numpy does not have by their name."""
_REGISTER = {
    DType.FLOAT16: DType.FLOAT32, DType.BFLOAT16: DType.FLOAT32,
    DType.INT8: DType.INT32, DType.UINT8: DType.INT32,
    DType.INT16: DType.INT32, DType.UINT16: DType.INT32,
    DType.UINT32: DType.INT64, DType.UINT64: DType.INT64,
}  # fmt: skip

for _dtype in DType:  # attributes rather than properties: they are asked for everywhere
    _dtype.short = _SHORT[_dtype]
    _dtype.numpy = np.dtype(_NUMPY.get(_dtype, _dtype.value))
    _dtype.itemsize = _dtype.numpy.itemsize
    _dtype.is_float = _dtype in _FLOATS
    _dtype.is_integer = not _dtype.is_float and _dtype not in (DType.BOOL, DType.OPAQUE)
    _dtype.register = _REGISTER.get(_dtype, _dtype)

_BY_NUMPY = {dtype.numpy: dtype for dtype in DType if dtype is not DType.OPAQUE}
