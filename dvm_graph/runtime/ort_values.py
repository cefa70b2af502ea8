"""onnxruntime's tensors as arrays, and back, without a copy.

numpy lacks bfloat16 and the float8 types; their arrays are those of ml_dtypes, which onnxruntime does
not know: it takes and gives their bits and the number of the type.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from onnxruntime import OrtValue

from dvm_graph.import_.tensors import dtype_of

Array = np.ndarray[Any, Any]

_ML_DTYPES = {
    16: np.dtype(ml_dtypes.bfloat16),
    17: np.dtype(ml_dtypes.float8_e4m3fn),
    18: np.dtype(ml_dtypes.float8_e4m3fnuz),
    19: np.dtype(ml_dtypes.float8_e5m2),
    20: np.dtype(ml_dtypes.float8_e5m2fnuz),
}
"""By ONNX's number."""
_NUMBERS = {dtype: number for number, dtype in _ML_DTYPES.items()}
_BITS = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16)}
"""By bytes of an element."""


def as_ort_value(array: Array) -> OrtValue:
    """A tensor over the array's memory, which it keeps alive."""
    contiguous = np.asarray(array, order="C")
    number = _NUMBERS.get(contiguous.dtype)
    if number is None:
        return OrtValue.ortvalue_from_numpy(contiguous)
    bits = contiguous.view(_BITS[contiguous.itemsize])
    return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


def as_array(value: OrtValue) -> Array:
    """The tensor's memory as an array, which keeps the tensor alive; strings are copied."""
    dtype = _ML_DTYPES.get(value.element_type())
    if dtype is None:
        if value.data_type() == "tensor(string)":
            return np.asarray(value.numpy())
        dtype = _numpy_of(value.data_type())
    return array_over(value.data_ptr(), value.shape(), dtype, value)


def array_over(address: int, shape: Sequence[int], dtype: Any, owner: object = None) -> Array:
    """An array over memory that `owner` keeps alive.

    `dtype` is one of numpy's, or ONNX's number of a type.
    """
    kind = _numpy_of_number(dtype) if isinstance(dtype, int) else np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if size == 0:
        return np.empty(shape, kind)
    buffer = (ctypes.c_uint8 * size).from_address(address)
    buffer.owner = owner
    return np.frombuffer(buffer, np.uint8).view(kind).reshape(shape)


def _numpy_of_number(number: int) -> np.dtype[Any]:
    return _ML_DTYPES.get(number) or dtype_of(number).numpy


def _numpy_of(data_type: str) -> np.dtype[Any]:
    """Of a tensor's type as onnxruntime writes it: "tensor(float)"."""
    name = data_type.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))
