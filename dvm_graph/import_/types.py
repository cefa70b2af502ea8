"""Types and shapes of values, to and from ONNX's TypeProto.

Symbolic dims are written as their text, so equal dims have equal `dim_param`s.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import onnx

from dvm_graph.import_.tensors import dtype_of, element_name, onnx_type_of
from dvm_graph.ir import Dim, DType, Holding, Node, Shape, Value

DimReader = Callable[[onnx.TensorShapeProto.Dimension, int], Dim]
"""The dim of a dimension at an axis."""


def type_proto(value: Value) -> onnx.TypeProto:
    """The type of a value; empty where nothing is known."""
    result = onnx.TypeProto()
    if value.holds is not None and not value.opaque_type:
        return _holding_proto(value.holds)
    if value.dtype is DType.OPAQUE:
        result.ParseFromString(value.opaque_type)
        for entry in result.tensor_type.shape.dim:
            if entry.dim_value < 0:  # unknown; onnx's inference does not survive it
                entry.Clear()
        return result
    result.tensor_type.elem_type = onnx_type_of(value.dtype)
    if value.shape is not None:
        result.tensor_type.shape.SetInParent()
        for dim in value.shape:
            entry = result.tensor_type.shape.dim.add()
            if not isinstance(dim, int):
                entry.dim_param = str(dim)
            elif dim <= _MOST:  # else no tensor has it
                entry.dim_value = dim
    return result


_MOST = 2**63 - 1
"""The largest extent that the format has a place for."""


def _holding_proto(holding: Holding) -> onnx.TypeProto:
    held = onnx.TypeProto()
    held.tensor_type.elem_type = onnx_type_of(holding.dtype)
    if holding.sequence:
        held = onnx.helper.make_sequence_type_proto(held)
    return onnx.helper.make_optional_type_proto(held) if holding.optional else held


def declared_type(proto: onnx.TypeProto, *, named: bool) -> bytes:
    """A type as a model declares it, for who reads it back; without the names of dims, where these are to say nothing."""
    serialized: bytes = proto.SerializeToString()
    if named:
        return serialized
    held = result = onnx.TypeProto.FromString(serialized)
    while (kind := held.WhichOneof("value")) in ("optional_type", "sequence_type"):
        held = getattr(held, kind).elem_type
    if kind == "tensor_type":
        for dim in held.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    unnamed: bytes = result.SerializeToString()
    return unnamed


def read_holding(proto: onnx.TypeProto) -> Holding | None:
    """What a sequence or optional value of a type holds; None: not tensors that kernels can hold."""
    held, kinds = proto, []
    while (kind := held.WhichOneof("value")) in ("optional_type", "sequence_type"):
        kinds.append(kind)
        held = getattr(held, kind).elem_type
    if kinds not in (["sequence_type"], ["optional_type"], ["optional_type", "sequence_type"]):
        return None
    dtype, shape = read_type(held, lambda dim, _: dim.dim_value if dim.dim_value > 0 else None)
    if dtype in (DType.OPAQUE, DType.BFLOAT16):  # arrays have no such type
        return None
    return Holding(dtype, shape, "sequence_type" in kinds, "optional_type" in kinds)


def optional_of(proto: bytes) -> Holding | None:
    """An optional value of a serialised type that holds nothing."""
    held = onnx.TypeProto.FromString(proto)
    holding = read_holding(onnx.helper.make_optional_type_proto(held))
    return None if holding is None else replace(holding, shape=None, empty=True)


def string_type(shape: Shape) -> bytes:
    """The serialised type of a tensor of strings."""
    dims = [dim if isinstance(dim, int) else str(dim) for dim in shape]
    proto = onnx.helper.make_tensor_type_proto(onnx.TensorProto.STRING, dims)
    serialized: bytes = proto.SerializeToString()
    return serialized


def rank_of_strings(proto: bytes) -> int | None:
    """That which a serialised type of a tensor of strings has; -1: it names none, or is of scalars; None: it is no such type."""
    held = onnx.TypeProto.FromString(proto)
    if held.tensor_type.elem_type != onnx.TensorProto.STRING:
        return None
    return len(held.tensor_type.shape.dim) or -1


def are_strings(value: Value) -> bool:
    """Whether it is a tensor of strings."""
    return value.dtype is DType.OPAQUE and type_text(value) == "tensor(string)"


def casts_to_strings(node: Node) -> bool:
    """Whether a Cast does."""
    return bool(node.attrs.get("to") == onnx.TensorProto.STRING)


def type_text(value: Value) -> str:
    """The type of a value as onnxruntime writes it: tensor(float), seq(tensor(int64))."""
    return _type_text(type_proto(value))


def _type_text(proto: onnx.TypeProto) -> str:
    match proto.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({element_name(proto.tensor_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({element_name(proto.sparse_tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({_type_text(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({_type_text(proto.optional_type.elem_type)})"
        case "map_type":
            key = element_name(proto.map_type.key_type)
            return f"map({key},{_type_text(proto.map_type.value_type)})"
        case _:
            return "unknown"


def declared_shape(value: Value) -> tuple[int | str, ...]:
    """The shape that a model declares for a value of unknown rank; nothing counts on it."""
    shape = onnx.TypeProto.FromString(value.opaque_type).tensor_type.shape
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_dim{axis}"
        for axis, dim in enumerate(shape.dim)
    )


def read_type(proto: onnx.TypeProto, read_dim: DimReader) -> tuple[DType, Shape | None]:
    """Dtype and shape of a type; no shape where the rank is unknown."""
    if not proto.HasField("tensor_type"):
        return DType.OPAQUE, None
    tensor = proto.tensor_type
    dtype = dtype_of(tensor.elem_type)
    if not tensor.HasField("shape"):
        return dtype, None
    return dtype, tuple(read_dim(dim, axis) for axis, dim in enumerate(tensor.shape.dim))
