"""Work that a model does at given dims, counted over its ONNX graph: multiply-add FLOPs and weight bytes.

In: an ONNX file and the extents of its named dims. Out: a `Work`. Counted exactly are MatMul, Gemm, Conv and
ConvTranspose, the operators that the FMA ceiling is about; everything else counts nothing. An operator whose
shapes cannot be inferred is an error, never a gap in the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from onnx import helper, shape_inference

from models.feeds import extent

Dims = Mapping[str, int]
Shape = tuple[int, ...]

_DENSE = {"MatMul", "Gemm", "Conv", "ConvTranspose"}


@dataclass(frozen=True, slots=True)
class Work:
    """FLOPs of the dense operators (two for a multiply-add), and bytes of the constants that they read."""

    flops: int
    weight_bytes: int


def count_work(path: Path, dims: Dims) -> Work:
    """`ValueError` names the operator whose shapes are not known."""
    model = onnx.load(path, load_external_data=False)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:  # a tied embedding is the transposed weight of the head
        if node.op_type == "Transpose" and node.input[0] in constants:
            constants[node.output[0]] = constants[node.input[0]]
    shapes = _shapes(model, dims)
    flops, read = 0, set()
    for node in model.graph.node:
        if node.op_type in _DENSE and not node.domain:
            flops += _flops(node, shapes)
            read |= {name for name in node.input if name in constants}
    return Work(flops, sum(_bytes(constants[name]) for name in read))


def _bytes(tensor: onnx.TensorProto) -> int:
    width = int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    return width * prod(int(extent) for extent in tensor.dims)


def _shapes(model: onnx.ModelProto, dims: Dims) -> dict[str, Shape]:
    graph = model.graph
    for value in [*graph.input, *graph.value_info, *graph.output]:
        for dim in value.type.tensor_type.shape.dim:
            _make_concrete(dim, dims)
    inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in [*inferred.input, *inferred.value_info, *inferred.output]
        if all(dim.HasField("dim_value") for dim in value.type.tensor_type.shape.dim)
    }
    return shapes | {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}


def _make_concrete(dim: onnx.TensorShapeProto.Dimension, dims: Dims) -> None:
    """Dims that are expressions over others become numbers; the exporter's own symbols become unknown."""
    if not dim.dim_param:
        return
    try:
        value = extent(dim, dims, "")
    except (ValueError, SyntaxError):
        dim.ClearField("dim_param")
    else:
        dim.dim_value = value


def _flops(node: onnx.NodeProto, shapes: Mapping[str, Shape]) -> int:
    names = (node.input[0], node.input[1], node.output[0])
    if unknown := [name for name in names if name not in shapes]:
        raise ValueError(f"{node.op_type} {node.name!r}: the shape of {unknown[0]!r} is not known")
    first, second, out = (shapes[name] for name in names)
    if node.op_type == "Conv":
        return 2 * prod(out) * prod(second[1:])
    if node.op_type == "ConvTranspose":
        return 2 * prod(first) * prod(second[1:])
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return 2 * prod(out) * (first[-2] if transposed else first[-1])
