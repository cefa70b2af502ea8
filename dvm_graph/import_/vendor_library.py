"""What the installed onnxruntime knows beyond onnx: its own operators, and the types of their results.

In: the name of an operator, or a partition of a few nodes. Out: the operator's schema; the types that
onnxruntime gives the partition's outputs; whether its sums of bytes are exact on this CPU, and how many channels it
lays side by side. Nothing about operators is written down here: what the installed onnxruntime runs, this module finds.

onnxruntime is loaded when first asked, which only models with operators that onnx does not know, or
whose results it cannot type, make necessary.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
import onnx.checker
import onnx.parser
from google.protobuf.message import DecodeError, EncodeError
from onnx import helper

from dvm_graph.errors import UnsupportedError
from dvm_graph.import_.types import read_type
from dvm_graph.ir import Graph, ModelMetadata, Node, Value
from dvm_graph.process import load_onnxruntime, vendor_failures, vendor_session

if TYPE_CHECKING:
    from dvm_graph.import_.loading import Source

_OPSET = 13
"""Of the Shape nodes that are asked for ranks, where nothing else decides it."""

_NO_END = 2**31 - 1
_Kernel: TypeAlias = tuple[int, int, Mapping[str, frozenset[str]]]
"""First and last version of the operator, and what it takes."""


def find_schema(op: str, domain: str, version: int) -> Any | None:
    """The schema that onnxruntime has of an operator at a version; None where it has none."""
    known = _schemas().get((domain, op), ())
    fitting = [schema for schema in known if schema.since_version <= version]
    newest = max(fitting, key=lambda schema: int(schema.since_version), default=None)
    return None if newest is None or newest.deprecated else newest


def newest_version(domain: str) -> int | None:
    """The version that a model which imports no operator set of this domain gets from onnxruntime."""
    versions = [
        int(schema.since_version)
        for (of, _), schemas in _schemas().items()
        for schema in schemas
        if of == domain
    ]
    return max(versions, default=None)


@functools.cache
def _schemas() -> Mapping[tuple[str, str], tuple[Any, ...]]:
    load_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    result: dict[tuple[str, str], tuple[Any, ...]] = {}
    for schema in state.get_all_operator_schema():
        key = (schema.domain, schema.name)
        result[key] = (*result.get(key, ()), schema)
    return result


def kernels(op: str, domain: str, since: int) -> Sequence[Mapping[str, frozenset[str]]]:
    """The types that onnxruntime's CPU kernels of an operator take, by type variable.

    `since` is the version of the operator's schema. A kernel without an end is one of the schema that
    it begins with; onnxruntime does not use it for later ones.
    """
    return [
        types
        for first, last, types in _kernel_table().get((domain, op), ())
        if first == since or (last < _NO_END and first <= since <= last)
    ]


@functools.cache
def _kernel_table() -> Mapping[tuple[str, str], tuple[_Kernel, ...]]:
    load_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    result: dict[tuple[str, str], tuple[_Kernel, ...]] = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.provider != "CPUExecutionProvider":
            continue
        types = {name: frozenset(takes) for name, takes in kernel.type_constraints.items()}
        key = ("" if kernel.domain == "ai.onnx" else kernel.domain, kernel.op_name)
        result[key] = (*result.get(key, ()), (*kernel.version_range, types))
    return result


def result_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """The types of a partition's outputs, by name; no shape where onnxruntime knows no rank.

    Some of its schemas take a dim without a number for 0. What they say over symbols counts as far as
    they say the same of dims of 1.

    Raises:
        UnsupportedError: onnxruntime refuses the partition.
    """
    types = _types(model)
    ones = onnx.ModelProto()
    ones.CopyFrom(model)
    for info in ones.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_value = 1
    try:
        of_ones = _types(ones)
    except UnsupportedError:  # the operator has no result for dims of 1
        return types
    for name, proto in types.items():
        _drop_contradictions(proto.tensor_type, of_ones[name].tensor_type)
    return types


def _drop_contradictions(symbolic: onnx.TypeProto.Tensor, of_ones: onnx.TypeProto.Tensor) -> None:
    """Forgets dims that are others for dims of 1, or all of them where the rank is another."""
    if not symbolic.HasField("shape") or not of_ones.HasField("shape"):
        return
    if len(symbolic.shape.dim) != len(of_ones.shape.dim):
        symbolic.ClearField("shape")
        return
    for dim, certain in zip(symbolic.shape.dim, of_ones.shape.dim, strict=True):
        expected = 1 if dim.dim_param else dim.dim_value
        if certain.HasField("dim_value") and certain.dim_value != expected:
            dim.Clear()


def _types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    types, ranks_in_doubt = _ask(model)
    if ranks_in_doubt:
        # A rank that is not known looks like rank 0 from outside; the shape of a Shape does not.
        probe = onnx.ModelProto()
        probe.CopyFrom(model)
        if not any(entry.domain in ("", "ai.onnx") for entry in probe.opset_import):
            probe.opset_import.append(helper.make_opsetid("", _OPSET))
        ranks = {f"{name}.rank": name for name in ranks_in_doubt}
        for rank, name in ranks.items():
            probe.graph.node.append(helper.make_node("Shape", [name], [rank]))
            probe.graph.output.append(onnx.ValueInfoProto(name=rank))
        answers, _ = _ask(probe)
        for rank, name in ranks.items():
            if not answers[rank].tensor_type.shape.dim[0].HasField("dim_value"):
                types[name].tensor_type.ClearField("shape")
    return types


def import_whole(source: Source, fed: frozenset[str] = frozenset()) -> Graph:
    """A graph of one vendor operator: the model as it is.

    `fed`: initializers that are inputs (`Options.fed_initializers`).

    Raises:
        UnsupportedError: onnxruntime does not run it either.
    """
    model = whole_source(source)
    try:
        session = _session(model, optimise=True)
    except UnsupportedError:  # of what it rewrites it may refuse some
        session = _session(model, optimise=False)
    about = session.get_modelmeta()
    graph = Graph()
    graph.about = ModelMetadata(
        **{field.name: getattr(about, field.name) for field in fields(ModelMetadata)}
    )
    inputs, outputs, initializers = (
        [_port_value(port, graph) for port in ports]
        for ports in (
            session.get_inputs(),
            session.get_outputs(),
            session.get_overridable_initializers(),
        )
    )
    graph.inputs = inputs + [value for value in initializers if value.name in fed]
    graph.overridable = [value for value in initializers if value.name not in fed]
    name = graph.unique_name("onnxruntime")
    proto = onnx.NodeProto(op_type="Model", input=[v.name for v in graph.inputs])
    node = Node(
        name,
        "vendor",
        tuple(graph.inputs),
        tuple(outputs),
        {"op": "Model", "domain": "", "model": model},
        origin=("the whole model",),
        source=proto.SerializeToString(),
    )
    graph.add(node)
    graph.outputs = outputs
    graph.output_names = tuple(port.name for port in session.get_outputs())
    return graph


def whole_source(source: Source) -> str | bytes:
    """A model as onnxruntime takes it."""
    if isinstance(source, onnx.ModelProto):
        return bytes(source.SerializeToString())
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    return os.fspath(source)


def whole_model(path: str) -> bytes:
    """The model at a path with its external data inside.

    Raises:
        UnsupportedError: it is no ONNX model, or too large to be one message.
    """
    try:
        return bytes(onnx.load(path).SerializeToString())
    except (OSError, ValueError, DecodeError, EncodeError, onnx.checker.ValidationError) as error:
        raise UnsupportedError(f"cannot put {path!r} into one message: {error}") from error


def _port_value(port: Any, graph: Graph) -> Value:
    """An input or output of onnxruntime's, passed as it comes."""
    proto = _described(port)
    dtype, _ = read_type(proto, lambda dim, axis: 0)
    name = graph.unique_name(port.name)
    return Value(name, dtype, opaque_type=proto.SerializeToString())


def _ask(model: onnx.ModelProto) -> tuple[dict[str, onnx.TypeProto], list[str]]:
    """The types of the outputs, and the tensors among them whose rank is 0 or not known."""
    session = _session(model.SerializeToString(), optimise=False)
    types, ranks_in_doubt = {}, []
    for port in session.get_outputs():
        proto = types[port.name] = _described(port)
        if proto.HasField("tensor_type") and not port.shape:
            ranks_in_doubt.append(port.name)
    return types, ranks_in_doubt


def compute(model: bytes) -> list[Any]:
    """The results of a model without inputs.

    Raises:
        UnsupportedError: onnxruntime refuses the model.
        vendor_failures(): it refuses to run it.
    """
    return list(_session(model, optimise=False).run(None, {}))


@functools.cache
def cuts_sums_of_bytes() -> bool:
    """Whether it adds two products of uint8 by int8 in 16 bits, as on x86 CPUs without VNNI where it may not rewrite a
    model.
    """
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (uint8[1, 2] a, int8[2, 1] b) => (int32[1, 1] sums) { sums = MatMulInteger(a, b) }"""
    )
    operands = {"a": np.full((1, 2), 255, np.uint8), "b": np.full((2, 1), 127, np.int8)}
    (sums,) = _session(model.SerializeToString(), optimise=False).run(None, operands)
    return bool(sums.item() != 2 * 255 * 127)


@functools.cache
def channels_of_block() -> int | None:
    """How many channels lie side by side where it lays images in blocks on this CPU; None where it lays none so."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]>
        g (float[1, 64, 1, 2] x) => (float[1, 64, 1, 2] blocks)
        { blocks = com.microsoft.nchwc.ReorderInput(x) }"""
    )
    pixels = np.tile(np.asarray([0, 1], np.float32), 64).reshape(1, 64, 1, 2)
    try:
        session = _session(model.SerializeToString(), optimise=False)
        (blocks,) = session.run(None, {"x": pixels})
    except UnsupportedError:
        return None
    except vendor_failures():
        return None
    first = int(np.argmax(blocks))  # all channels of a block of the first pixel come before
    return first if first > 1 else None


def _session(model: str | bytes, *, optimise: bool) -> Any:
    """
    Raises:
        UnsupportedError: onnxruntime refuses the model.
    """
    load_onnxruntime()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # failures are raised
    try:
        return vendor_session()(model, options, providers=["CPUExecutionProvider"])
    except vendor_failures() as error:
        raise UnsupportedError(f"onnxruntime refuses it: {error}") from error


def _described(port: Any) -> onnx.TypeProto:
    """The type of an input or output as onnxruntime tells it: rank 0 where it knows none."""
    proto = _type_of(port.type)
    if proto.HasField("tensor_type"):
        proto.tensor_type.shape.SetInParent()
        for dim in port.shape:
            entry = proto.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            elif dim is not None:
                entry.dim_param = dim
    return proto


def _type_of(text: str) -> onnx.TypeProto:
    """A type as onnxruntime writes it: tensor(float), seq(tensor(int64)), map(int64,tensor(float))."""
    match = re.fullmatch(r"(\w+)\((.*)\)", text)
    if match is None:
        raise UnsupportedError(f"onnxruntime gives a result of type {text!r}")
    kind, inner = match.groups()
    result = onnx.TypeProto()
    if kind == "tensor":
        result.tensor_type.elem_type = _element_number(inner)
    elif kind == "sparse_tensor":
        result.sparse_tensor_type.elem_type = _element_number(inner)
    elif kind == "seq":
        result.sequence_type.elem_type.CopyFrom(_type_of(inner))
    elif kind == "optional":
        result.optional_type.elem_type.CopyFrom(_type_of(inner))
    elif kind == "map":
        key, _, value = inner.partition(",")
        result.map_type.key_type = _element_number(key)
        result.map_type.value_type.CopyFrom(_type_of(value.strip()))
    else:
        raise UnsupportedError(f"onnxruntime gives a result of type {text!r}")
    return result


def _element_number(name: str) -> int:
    """ONNX's number of an element type by its name in type strings."""
    number: int = onnx.TensorProto.DataType.Value(name.upper())
    return number
