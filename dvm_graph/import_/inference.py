"""dtypes and shapes of vendor operators, as onnx and onnxruntime infer them.

In: a vendor node whose operands have dtypes and shapes. Out: dtype and shape set on its results;
dims that cannot be told are fresh symbols, to be bound when the node has run. Operands whose
contents are known (small constants, symbolic shape tensors) take part in the inference.

onnxruntime is asked about operators that onnx does not know and where onnx tells no type or rank.
Where neither can tell the rank, that of the type which the model declares counts; without one,
the result keeps shape None, and only other vendor operators can use it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from dvm_graph.errors import ShapeError, UnsupportedError
from dvm_graph.import_ import vendor_library
from dvm_graph.import_.attributes import subgraphs
from dvm_graph.import_.loading import default_domain, every_node
from dvm_graph.import_.onnx_inference import infer_shapes
from dvm_graph.import_.partition import build_partition, declared_elements
from dvm_graph.import_.ranks import result_ranks
from dvm_graph.import_.schemas import signature
from dvm_graph.import_.tensors import dtype_of, onnx_type_of
from dvm_graph.import_.types import read_holding, read_type
from dvm_graph.ir import Dim, DType, Node, Shape, Value
from dvm_graph.symbolic import Facts

_SMALL = 1024
"""Constants of up to this many elements are shown to the inference."""


_NAMED = ("Loop", "Scan", "Slice")
"""Operators whose inference is right about numbers, and not about names."""
_SCALED = ("Resize", "Upsample")


def infer_vendor(node: Node, facts: Facts, *, declared_shapes: bool = True) -> None:
    """Sets dtype and shape of a vendor node's results; of ranks that nothing else tells, and of what bodies take and give,
    the model may be believed.

    Raises:
        ShapeError: the operands' types or shapes contradict the operator.
        UnsupportedError: an operator that onnx does not know, and that onnxruntime does not run.
    """
    operands = dict.fromkeys(value for value in node.inputs if value is not None)
    hidden = [value for value in operands if value.data is None or value.data.size > _SMALL]
    model = build_partition([node], hidden, node.outputs)
    dims: dict[str, Dim] = {}
    if not node.regions:  # whose dims have names of their own
        dims = {str(dim): dim for value in operands for dim in value.shape or ()}
    for value in hidden:
        dims |= _show_elements(model.graph, value)
    _untype_outputs(model.graph)
    if not declared_shapes:
        _forget_shapes_in_bodies(model.graph)
    types = _infer_types(node, model)
    for index, value in enumerate(node.outputs):
        if value.name in types:
            _set_type(node, index, types[value.name], dims, facts)
            if value.shape is None and value.dtype is not DType.OPAQUE:
                value.shape = _fallback_shape(node, index, declared_shapes, facts)
    x = node.operand(0)
    if node.attrs.get("op") == "NonZero" and x is not None and x.shape == ():
        value = node.output  # a scalar counts as one element along one axis, not along none
        value.shape = (1, *(value.shape or ())[1:])


def _untype_outputs(graph: onnx.GraphProto) -> None:
    """Leaves the outputs that nodes give, without their types."""
    produced = [name for node in graph.node for name in node.output if name]
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in produced)


def _forget_shapes_in_bodies(graph: onnx.GraphProto) -> None:
    for node in every_node(graph.node):
        for body in subgraphs(node):
            for info in (*body.input, *body.output, *body.value_info):
                if info.type.HasField("tensor_type"):
                    info.type.tensor_type.ClearField("shape")


def _infer_types(node: Node, model: onnx.ModelProto) -> Mapping[str, onnx.TypeProto]:
    """The types of the model's outputs, by name, as far as they can be told."""
    proto = onnx.NodeProto.FromString(node.source)
    schema = signature(proto.op_type, default_domain(proto.domain), node.version)
    known = schema is not None and schema.definition is not None
    types: dict[str, onnx.TypeProto] = {}
    if known:
        try:
            inferred = infer_shapes(model, data_prop=True)
        except (onnx.shape_inference.InferenceError, RuntimeError) as error:
            raise ShapeError(f"node {node.where}: {error}") from error
        types = {info.name: info.type for info in inferred.graph.output} if inferred else {}
        _forget_disputed_rank(node, proto, types)
        _forget_disputed_extents(node, proto, types)
        if types and all(map(_has_rank, types.values())):
            return types
        typed = (
            v.dtype is not DType.OPAQUE or _has_type(types.get(v.name, onnx.TypeProto()))
            for v in node.outputs
        )
        if None not in result_ranks(node) and all(typed):
            return types
    declared = {value.name: declared_elements(value) for value in node.outputs}
    for info in model.graph.output:
        if (known_elements := declared.get(info.name)) is not None:
            info.CopyFrom(known_elements)
    try:
        types |= vendor_library.result_types(model)
        _forget_disputed_rank(node, proto, types)
        _forget_disputed_extents(node, proto, types)
        return types
    except UnsupportedError as error:
        if known:
            return types
        raise UnsupportedError(f"node {node.where} ({proto.op_type}): {error}") from error


def _forget_disputed_rank(
    node: Node, proto: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> None:
    """Leaves open what remains without the axes that a Squeeze does not name: its inference takes none at
    all for none, its kernel for all of extent 1. So it does with the weights of attention, of which the inference
    says that they have no axes where it does not know those of the queries; in a body it may not.
    """
    first, *inside = every_node([proto])
    axes, queries = node.operand(1), node.operand(0)
    unnamed = first.op_type == "Squeeze" and axes is not None and axes.shape == (0,)
    weights = first.op_type == "Attention" and queries is not None and queries.shape is None
    if unnamed or weights or any(n.op_type == "Attention" and len(n.output) > 3 for n in inside):
        for known in types.values():
            known.tensor_type.ClearField("shape")


def _forget_disputed_extents(
    node: Node, proto: onnx.NodeProto, types: Mapping[str, onnx.TypeProto]
) -> None:
    """Leaves open, for the run to tell, the extents of which onnx, and onnxruntime's
    inference, which is the same, say otherwise than its kernels do.

    It counts a window that starts behind the image where a pool rounds up, which kernels, as opset 22 says, do not; it
    pads for dilated windows as if they were not, and has one over nothing where strides are longer; it adds
    `output_padding` to what `SAME` determines; it counts no keys where the weights of attention without a past are
    asked for, and no values where a bias of queries, keys and values has an unknown extent; it takes a byte of several
    numbers for one where rows of them are gathered; it resizes along axes that
    are counted from the end where a ratio is to be kept, and to other products of extents and scales than those in float32; it takes half of a spectrum for all of it, where the length is
    no constant, or where that is the default, and for the length of a spectrum that of the signal, where it is no constant; before opset 11 it names a slice's extent after the whole axis; it takes what one branch knows for true
    of the other, and what a body's results are for what they are over no turns. What comes of bodies in which there is
    any of these rests on it. Models all of whose operators are left
    to onnxruntime (`tests/fuzz`) find further ones.
    """
    first, *inside = (_disputed_from(part, node.version) for part in every_node([proto]))
    if proto.op_type in _SCALED and _scales_exactly(node):
        first = None
    whole = proto.op_type == "If" or any(found is not None for found in inside)
    if first is None and not whole and proto.op_type not in _NAMED:
        return
    if proto.op_type == "Slice" and node.version != 10:
        return
    for known in types.values():
        for dim in known.tensor_type.shape.dim[first or 0 :]:
            if first is not None or whole or dim.dim_param:
                dim.Clear()


def _scales_exactly(node: Node) -> bool:
    """Whether products of extents and these scales are no others in float32."""
    scales = node.operand(_scales_at(node.version))
    if scales is None or scales.data is None:
        return False
    steps = np.asarray(scales.data) * 64
    return np.array_equal(steps, np.trunc(steps))


def _scales_at(version: int) -> int:
    """Which operand of a Resize or Upsample they are."""
    return 2 if version >= 11 else 1


def _disputed_from(node: onnx.NodeProto, version: int) -> int | None:
    """The first axis of an operator's results of whose extent inference and kernels differ; None: of none."""
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    same = attributes.get("auto_pad", b"NOTSET").startswith(b"SAME")
    first, disputed = 0, False
    if node.op_type in ("AveragePool", "LpPool", "MaxPool"):
        first, disputed = 2, attributes.get("ceil_mode") or same
    elif node.op_type == "ConvTranspose":
        first, disputed = 2, same and any(attributes.get("output_padding", ()))
    elif node.domain == "com.microsoft" and node.op_type in ("Attention", "QAttention"):
        first, disputed = 2, True
    elif node.op_type == "GatherBlockQuantized":
        disputed = True
    elif node.op_type == "Attention":
        first, disputed = 3, len(node.output) > 3
    elif node.op_type in _SCALED:
        at = _scales_at(version)
        disputed = attributes.get("keep_aspect_ratio_policy", b"stretch") != b"stretch"
        disputed = disputed or any(node.input[at : at + 1])
    elif node.op_type == "DFT":
        disputed = bool(attributes.get("onesided")) or any(node.input[1:2])
    elif node.op_type == "STFT":
        first, disputed = 1, "onesided" not in attributes
    return first if disputed else None


def _has_type(proto: onnx.TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or proto.tensor_type.elem_type != 0)


def _has_rank(proto: onnx.TypeProto) -> bool:
    kind = proto.WhichOneof("value")
    return kind is not None and (kind != "tensor_type" or proto.tensor_type.HasField("shape"))


def _set_type(
    node: Node, index: int, proto: onnx.TypeProto, dims: dict[str, Dim], facts: Facts
) -> None:
    value = node.outputs[index]
    read_dim = functools.partial(_read_dim, dims, _stem(value), facts)
    declared = onnx.TypeProto.FromString(value.opaque_type)
    if proto.WhichOneof("value") is not None:
        value.dtype, value.shape = read_type(proto, read_dim)
    elif value.dtype is DType.OPAQUE:
        value.dtype = dtype_of(declared.tensor_type.elem_type)
    if value.dtype is DType.OPAQUE and proto.ByteSize():
        value.opaque_type = proto.SerializeToString()
        value.holds = read_holding(proto)


def _read_dim(
    dims: dict[str, Dim],
    stem: str,
    facts: Facts,
    dim: onnx.TensorShapeProto.Dimension,
    axis: int,
) -> Dim:
    if dim.HasField("dim_value"):
        return dim.dim_value
    if dim.dim_param in dims:
        return dims[dim.dim_param]
    symbol = facts.symbols.fresh(f"{stem}_{axis}")
    if dim.dim_param:
        dims[dim.dim_param] = symbol
    return symbol


def _fallback_shape(node: Node, index: int, declared_shapes: bool, facts: Facts) -> Shape | None:
    """Fresh dims where the inference does not find the rank, but the operator or the model tells it."""
    value, rank = node.outputs[index], result_ranks(node)[index]
    # Over no turns, onnxruntime makes up a rank of its own.
    if rank is None and declared_shapes and node.attrs.get("op") != "Loop":
        declared = onnx.TypeProto.FromString(value.opaque_type).tensor_type
        rank = len(declared.shape.dim) if declared.HasField("shape") else None
    if rank is None:
        return None
    return tuple(facts.symbols.fresh(f"{_stem(value)}_{axis}") for axis in range(rank))


def _stem(value: Value) -> str:
    """What its dims are called."""
    return re.sub(r"\W+", "_", value.name).strip("_")


def _show_elements(graph: onnx.GraphProto, value: Value) -> dict[str, Dim]:
    """Lets the inference see a shape tensor: as a constant, or as the Shape of a stand-in tensor.

    Returns the dims that appear, by their text.
    """
    if value.elements is None or value.shape is None:
        return {}
    position = next(i for i, info in enumerate(graph.input) if info.name == value.name)
    if all(isinstance(element, int) for element in value.elements):
        shape = [int(dim) for dim in value.shape]
        data = helper.make_tensor(
            value.name, onnx_type_of(value.dtype), shape, [int(e) for e in value.elements]
        )
        del graph.input[position]
        graph.initializer.append(data)
    elif len(value.shape) == 1 and value.dtype is DType.INT64:
        stand_in = f"{value.name}.shaped"
        dims = [element if isinstance(element, int) else str(element) for element in value.elements]
        if any(isinstance(dim, int) and dim < 0 for dim in dims):
            return {}
        del graph.input[position]
        graph.input.append(helper.make_tensor_value_info(stand_in, onnx.TensorProto.FLOAT, dims))
        graph.node.insert(0, helper.make_node("Shape", [stand_in], [value.name]))
        return {str(element): element for element in value.elements}
    return {}
