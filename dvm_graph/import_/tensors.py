"""ONNX tensors as numpy arrays, without copying where the bytes allow it.

In: a TensorProto or SparseTensorProto. Out: a read-only array of its shape; bfloat16, float8 and
4-bit types have ml_dtypes' types, strings are an object array.

Raw data and external data become views; typed fields are converted. Sizes are checked against the
shape before memory is taken. Segmented tensors are refused, as ONNX deprecated them.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dvm_graph.errors import ModelError, OutOfMemoryError
from dvm_graph.import_.external_data import ExternalData
from dvm_graph.ir import Array, DType

_PACKED_BITS: dict[int, int] = {
    getattr(TensorProto, name): bits
    for name, bits in (
        ("INT4", 4), ("UINT4", 4), ("FLOAT4E2M1", 4), ("INT2", 2), ("UINT2", 2),
        ("FLOAT6E2M3", 6), ("FLOAT6E3M2", 6),
    )
    if hasattr(TensorProto, name)
}  # fmt: skip
"""Types whose elements straddle bytes, as far as the installed onnx has them."""
_TYPED_FIELD: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
"""Every other type uses int32_data."""


def tensor_to_array(tensor: onnx.TensorProto, external: ExternalData) -> Array:
    """The contents of a tensor.

    Raises:
        ModelError: unknown type, negative dim, or data that do not fit the shape.
        ExternalDataError: see `ExternalData.read`.
    """
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise ModelError(f"tensor {tensor.name!r}: negative dim in shape {shape}")
    if tensor.HasField("segment"):
        raise ModelError(f"tensor {tensor.name!r}: segmented tensors are not supported")
    count = math.prod(shape)
    if tensor.data_type == TensorProto.STRING:
        array = _strings(tensor, count)
    elif _is_packed(tensor):
        array = _packed(tensor, count, external)
    else:
        array = _plain(tensor, count, external)
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def sparse_to_array(sparse: onnx.SparseTensorProto, external: ExternalData) -> Array:
    """The dense form of a sparse tensor (linear or per-axis indices).

    Raises:
        ModelError: indices outside the shape or of a wrong rank.
        OutOfMemoryError: the dense form is larger than this machine's memory.
    """
    name = sparse.values.name
    shape = tuple(sparse.dims)
    values = tensor_to_array(sparse.values, external)
    indices = tensor_to_array(sparse.indices, external)
    if any(dim < 0 for dim in shape) or values.ndim != 1 or values.dtype == object:
        raise ModelError(f"sparse tensor {name!r}: malformed shape {shape} or values")
    _check_memory(name, math.prod(shape) * values.itemsize)
    if indices.dtype != np.int64 or indices.shape not in {
        values.shape,
        (*values.shape, len(shape)),
    }:
        raise ModelError(f"sparse tensor {name!r}: indices of shape {indices.shape} do not fit")
    dense = np.zeros(shape, values.dtype)
    try:
        where = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
        if np.any(np.asarray(where) < 0):
            raise ModelError(f"sparse tensor {name!r}: negative index")
        dense.reshape(-1)[where] = values
    except (IndexError, ValueError) as error:
        raise ModelError(f"sparse tensor {name!r}: index outside shape {shape}") from error
    dense.flags.writeable = False
    return dense


def array_to_tensor(array: Array, name: str) -> onnx.TensorProto:
    """The inverse of `tensor_to_array`, for partitions handed to the vendor library."""
    array = np.asarray(array)
    if array.dtype != object:
        return numpy_helper.from_array(array, name)
    texts = [text.encode("utf-8", "surrogateescape") for text in array.ravel()]
    return onnx.TensorProto(
        name=name, dims=array.shape, data_type=onnx.TensorProto.STRING, string_data=texts
    )


def dtype_of(onnx_type: int) -> DType:
    """The element type of an ONNX data type; OPAQUE for those only vendor operators touch.

    Raises:
        ModelError: there is no such type.
    """
    element_name(onnx_type)
    return _DTYPES.get(onnx_type, DType.OPAQUE)


def element_name(onnx_type: int) -> str:
    """An ONNX data type as onnxruntime writes it: float, int64.

    Raises:
        ModelError: there is no such type.
    """
    try:
        return str(onnx.TensorProto.DataType.Name(onnx_type)).lower()
    except ValueError:
        raise ModelError(f"ONNX has no element type of number {onnx_type}") from None


def dtype_of_array(array: Array) -> DType:
    """The element type of an array; OPAQUE for strings, complex, float8 and 4-bit types."""
    return _BY_NUMPY.get(array.dtype, DType.OPAQUE)


def onnx_type_of(dtype: DType) -> int:
    """The ONNX data type of an element type that is not OPAQUE."""
    return _ONNX_TYPES[dtype]


_ONNX_TYPES: dict[DType, int] = {
    dtype: helper.np_dtype_to_tensor_dtype(dtype.numpy)
    for dtype in DType
    if dtype is not DType.OPAQUE
}
_DTYPES = {number: dtype for dtype, number in _ONNX_TYPES.items()}
_BY_NUMPY = {dtype.numpy: dtype for dtype in _ONNX_TYPES}


def _numpy_dtype(tensor: onnx.TensorProto) -> np.dtype[Any]:
    try:
        return helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError as error:
        raise ModelError(f"tensor {tensor.name!r}: unknown data type {tensor.data_type}") from error


def _plain(tensor: onnx.TensorProto, count: int, external: ExternalData) -> Array:
    dtype = _numpy_dtype(tensor)
    expected = count * dtype.itemsize
    if tensor.data_location == TensorProto.EXTERNAL:
        data = external.read(tensor, expected)
        aligned = data.ctypes.data % dtype.alignment == 0
        return (data if aligned else data.copy()).view(dtype)
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != expected:
            raise ModelError(
                f"tensor {tensor.name!r}: {len(raw)} bytes of data, but its shape "
                f"{tuple(tensor.dims)} and type need {expected}"
            )
        return np.frombuffer(raw, dtype)
    return _typed(tensor, count, dtype)


def _typed(tensor: onnx.TensorProto, count: int, dtype: np.dtype[Any]) -> Array:
    field = getattr(tensor, _TYPED_FIELD.get(tensor.data_type, "int32_data"))
    stored = count * 2 if dtype.kind == "c" else count
    if len(field) != stored:
        raise ModelError(
            f"tensor {tensor.name!r}: {len(field)} elements of data, but its shape "
            f"{tuple(tensor.dims)} needs {stored}"
        )
    if dtype.kind == "c":
        part = np.float32 if dtype == np.complex64 else np.float64
        return np.array(field, part).view(dtype)
    if dtype == np.uint64:
        return np.array(field, dtype)
    if dtype.kind in "iub":
        # int32_data may hold an unsigned value sign-extended, so wrap instead of range-checking
        return np.array(field, np.int64).astype(dtype)
    if dtype == np.float32 or dtype == np.float64:
        return np.array(field, dtype)
    # float16, bfloat16, float8: bit patterns
    bits = np.array(field, np.int64).astype(np.uint16 if dtype.itemsize == 2 else np.uint8)
    return bits.view(dtype)


def _is_packed(tensor: onnx.TensorProto) -> bool:
    # int32_data holds 6-bit elements one by one, but smaller ones as packed bytes
    bits = _PACKED_BITS.get(tensor.data_type)
    return bits is not None and not (bits == 6 and tensor.int32_data)


def _packed(tensor: onnx.TensorProto, count: int, external: ExternalData) -> Array:
    """Types of less than a byte; onnx unpacks them (only vendor operators use them)."""
    expected = (count * _PACKED_BITS[tensor.data_type] + 7) // 8
    inline = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    if tensor.data_location == TensorProto.EXTERNAL:
        inline.raw_data = external.read(tensor, expected).tobytes()
    else:
        inline.raw_data = tensor.raw_data or bytes(byte & 255 for byte in tensor.int32_data)
    if len(inline.raw_data) != expected:
        raise ModelError(
            f"tensor {tensor.name!r}: {len(inline.raw_data)} bytes of data, {expected} needed"
        )
    return numpy_helper.to_array(inline)


def _strings(tensor: onnx.TensorProto, count: int) -> Array:
    if len(tensor.string_data) != count:
        raise ModelError(f"tensor {tensor.name!r}: {len(tensor.string_data)} strings, not {count}")
    array = np.empty(count, object)
    array[:] = [text.decode("utf-8", "surrogateescape") for text in tensor.string_data]
    return array


def _check_memory(name: str, size: int) -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > memory:
        raise OutOfMemoryError(f"sparse tensor {name!r}: dense form of {size} bytes exceeds memory")
