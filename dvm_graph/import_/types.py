"""Types and shapes of values, to and from ONNX's TypeProto.

Symbolic dims are written as their text, so equal dims have equal `dim_param`s.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from dvm_graph.import_.tensors import dtype_of, onnx_type_of
from dvm_graph.ir import Dim, DType, Shape, Value

DimReader = Callable[[onnx.TensorShapeProto.Dimension, int], Dim]
"""The dim of a dimension at an axis."""


def type_proto(value: Value) -> onnx.TypeProto:
    """The type of a value; empty where nothing is known."""
    result = onnx.TypeProto()
    if value.dtype is DType.OPAQUE:
        result.ParseFromString(value.opaque_type)
        return result
    result.tensor_type.elem_type = onnx_type_of(value.dtype)
    if value.shape is not None:
        result.tensor_type.shape.SetInParent()
        for dim in value.shape:
            entry = result.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            else:
                entry.dim_param = str(dim)
    return result


def read_type(proto: onnx.TypeProto, read_dim: DimReader) -> tuple[DType, Shape | None]:
    """Dtype and shape of a type; no shape where the rank is unknown."""
    if not proto.HasField("tensor_type"):
        return DType.OPAQUE, None
    tensor = proto.tensor_type
    dtype = dtype_of(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(read_dim(dim, axis) for axis, dim in enumerate(tensor.shape.dim))
