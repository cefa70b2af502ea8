"""Tensors of types that numpy lacks, on their way to onnxruntime and back.

In: arrays of ml_dtypes' types, or the bits of bfloat16, which is how kernels hand it over. Out: what
`InferenceSession.run` takes, and the reverse. bfloat16 and the float8 types share their memory with
the array; elements of less than a byte, which arrays hold one a byte, are packed and unpacked.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime

from dvm_graph.errors import InputError
from dvm_graph.ir import Array
from dvm_graph.runtime.arrays import as_array


@dataclass(frozen=True, slots=True)
class ElementType:
    """An ONNX element type that numpy lacks."""

    number: int
    """ONNX's."""
    dtype: np.dtype[Any]
    width: int
    """In bits."""

    @property
    def bits(self) -> np.dtype[Any]:
        return np.dtype(np.uint16 if self.width == 16 else np.uint8)


def _table() -> dict[str, ElementType]:
    rows = [
        ("bfloat16", 16, "bfloat16", 16),
        ("float8e4m3fn", 17, "float8_e4m3fn", 8),
        ("float8e4m3fnuz", 18, "float8_e4m3fnuz", 8),
        ("float8e5m2", 19, "float8_e5m2", 8),
        ("float8e5m2fnuz", 20, "float8_e5m2fnuz", 8),
        ("uint4", 21, "uint4", 4),
        ("int4", 22, "int4", 4),
        ("float4e2m1", 23, "float4_e2m1fn", 4),
        ("float8e8m0", 24, "float8_e8m0fnu", 8),
        ("uint2", 25, "uint2", 2),
        ("int2", 26, "int2", 2),
    ]
    return {
        f"tensor({name})": ElementType(number, np.dtype(getattr(ml_dtypes, scalar)), width)
        for name, number, scalar, width in rows
        if hasattr(ml_dtypes, scalar)
    }


FOREIGN = _table()
"""By the name that onnxruntime gives to tensors of the type."""
_BY_DTYPE = {kind.dtype: kind for kind in FOREIGN.values()}


def to_ort(name: str, array: Any, kind: ElementType) -> onnxruntime.OrtValue:
    """A tensor for onnxruntime.

    Raises:
        InputError: it is no array, or one of another type.
    """
    array = as_array(name, array, order="C")
    if array.dtype not in (kind.dtype, kind.bits):
        raise InputError(f"{name} is {array.dtype}, but the model wants {kind.dtype}")
    bits = array.view(kind.bits)
    if kind.width >= 8:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, kind.number)
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(bits.shape), kind.number)
    _memory(value, np.dtype(np.uint8), value.tensor_size_in_bytes())[:] = _pack(bits, kind.width)
    return value


def as_ort(array: Array) -> onnxruntime.OrtValue:
    """A tensor of the array's type, over its memory where elements are whole bytes."""
    kind = _BY_DTYPE.get(array.dtype)
    if kind is not None:
        return to_ort("the array", array, kind)
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def from_ort(value: onnxruntime.OrtValue) -> Any:
    """An array over the tensor's memory, where numpy has its type or ml_dtypes has; None: an optional value that is not there."""
    if (
        not value.has_value()
    ):  # which has no type either: onnxruntime ends the process if it is asked
        return None
    kind = FOREIGN.get(value.data_type())
    if kind is None and value.data_type() == "tensor(string)":
        return value.numpy()
    shape = value.shape()
    if kind is None:
        return array_over(value.data_ptr(), shape, _numpy_name(value.data_type()), value)
    if kind.width >= 8:
        return array_over(value.data_ptr(), shape, kind.dtype, value)
    packed = _memory(value, np.dtype(np.uint8), value.tensor_size_in_bytes())
    return _unpack(packed, kind.width, math.prod(shape)).view(kind.dtype).reshape(shape)


def array_over(address: int, shape: Sequence[int], dtype: Any, owner: object = None) -> Array:
    """An array over memory that `owner` keeps alive; `dtype` may be ONNX's number of a type.

    Raises:
        InputError: elements that are no whole bytes, or no numbers.
    """
    if isinstance(dtype, int):
        foreign = next((kind for kind in FOREIGN.values() if kind.number == dtype), None)
        if foreign is not None and foreign.width < 8:
            raise InputError(f"an array cannot lie over elements of {foreign.width} bits")
        dtype = foreign.dtype if foreign is not None else _numpy_of(dtype)
    kind = np.dtype(dtype)
    if kind.hasobject:
        raise InputError("an array over memory has numbers as elements")
    size = math.prod(shape) * kind.itemsize
    if size == 0:
        return np.empty(shape, kind)
    buffer: Any = (ctypes.c_uint8 * size).from_address(address)
    buffer.owner = owner  # lives as long as the array over it
    memory: Array = np.ctypeslib.as_array(buffer).view(kind)
    return memory.reshape(shape)


def _numpy_of(number: int) -> np.dtype[Any]:
    from dvm_graph.import_.tensors import dtype_of  # onnx's numbers

    return dtype_of(number).numpy


def _memory(value: onnxruntime.OrtValue, dtype: np.dtype[Any], count: int) -> Array:
    return array_over(value.data_ptr(), (count,), dtype, value)


def _numpy_name(data_type: str) -> str:
    """Of a tensor's type as onnxruntime writes it: "tensor(float)"."""
    name = data_type.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


def _pack(elements: Array, width: int) -> Array:
    """Elements one a byte, packed from the low bits up."""
    flat, each = elements.reshape(-1) & ((1 << width) - 1), 8 // width
    padded = np.zeros(-(-flat.size // each) * each, np.uint8)
    padded[: flat.size] = flat
    shifts = np.arange(each, dtype=np.uint8) * width
    packed: Array = np.bitwise_or.reduce(padded.reshape(-1, each) << shifts, axis=1)
    return packed.astype(np.uint8)


def _unpack(packed: Array, width: int, count: int) -> Array:
    shifts = np.arange(8 // width, dtype=np.uint8) * width
    elements = (packed[:, None] >> shifts) & ((1 << width) - 1)
    return np.ascontiguousarray(elements.reshape(-1)[:count].astype(np.uint8))
