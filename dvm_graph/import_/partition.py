"""Vendor partitions: nodes left to the vendor library, as a model of their own.

In: nodes (imported, or `vendor` operators made from them) that carry their NodeProto in `source`.
Out: a serialised ModelProto whose value names are those of the graph's values.

The nodes run as the model had them: original attributes and operands, at the model's opset, but for what says nothing
of them and onnxruntime refuses.
Constants that are not among the inputs become initializers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from dvm_graph.errors import UnsupportedError
from dvm_graph.import_ import vendor_library
from dvm_graph.import_.attributes import subgraphs
from dvm_graph.import_.loading import OLDEST_OPSET, default_domain, every_node
from dvm_graph.import_.normalize_opset import CHANGED_MEANING
from dvm_graph.import_.schemas import signature
from dvm_graph.import_.tensors import array_to_tensor
from dvm_graph.import_.types import type_proto
from dvm_graph.import_.vendor_writes import spare_statistics
from dvm_graph.import_.widening import refused_at_runs, widen
from dvm_graph.ir import DType, Node, Value

_CASTS = ("Cast", "CastLike")
_HELD_BY = {
    number: getattr(onnx.TensorProto, "UINT8" if name.startswith("U") else "INT8")
    for name, number in onnx.TensorProto.DataType.items()
    if name in ("INT4", "UINT4", "INT2", "UINT2")
}
"""Types that hold all values of those narrower than a byte."""

_CONSTANTS_APART = 4
"""The first version of the format in which initializers need not be inputs as well; in those before,
onnxruntime does not find initializers that only bodies read."""


def partition_model(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    newest_opset: int | None = None,
) -> bytes:
    """The model of a vendor partition, serialised.

    Args:
        nodes: in topological order; `partition_opset` has to find an opset for them.
        inputs: values from outside; constants among them stay inputs.
        outputs: values needed outside.
        newest_opset: the newest opset that the vendor library runs.
    """
    model = build_partition(nodes, inputs, outputs, newest_opset)
    return bytes(model.SerializeToString())


def build_partition(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    newest_opset: int | None = None,
    opset: int | None = None,
) -> onnx.ModelProto:
    """As `partition_model`, not serialised; at an opset of the caller's choice where it has one."""
    opset = partition_opset(nodes, newest_opset) if opset is None else opset
    if opset is None:
        names = ", ".join(node.where for node in nodes)
        limit = f" up to {newest_opset}" if newest_opset else ""
        raise UnsupportedError(f"vendor operators {names}: no opset{limit} has them all")
    imports = {"": opset} if opset else {}
    for node in _with_regions(nodes):
        domain = _domain(node)
        if domain:
            imports[domain] = max(node.version, imports.get(domain, 0))
    given = set(inputs)
    constants = dict.fromkeys(
        value
        for node in nodes
        for value in node.inputs[: _source_operands(node)]
        if value is not None and value.data is not None and value not in given
    )
    graph = onnx.GraphProto(
        name="partition",
        node=[partition_node(node) for node in nodes],
        input=[_value_info(value) for value in inputs],
        output=[_value_info(value) for value in outputs],
        initializer=[_initializer(value) for value in constants],
    )
    if any(node.regions for node in nodes):
        graph.value_info.extend(_known_within(nodes, outputs))
    spare_statistics(graph)
    inside = [v for node in nodes if node.domain for v in node.outputs if v not in set(outputs)]
    graph.value_info.extend(filter(None, map(declared_elements, inside)))
    opset_imports = [helper.make_opsetid(domain, version) for domain, version in imports.items()]
    oldest = helper.find_min_ir_version_for(opset_imports, ignore_unknown=True)
    return onnx.ModelProto(
        ir_version=max(oldest, _CONSTANTS_APART),
        opset_import=opset_imports,
        graph=graph,
        producer_name="dvm_graph",
    )


def _known_within(nodes: Sequence[Node], outputs: Sequence[Value]) -> Iterator[onnx.ValueInfoProto]:
    """The ranks of values between nodes, which onnxruntime cannot tell of all: what a body collects over no
    turns has one axis where it does not know its rank.
    """
    for value in (value for node in nodes for value in node.outputs):
        if value.name and value.computable and value not in outputs:
            info = _value_info(value)
            for dim in info.type.tensor_type.shape.dim:
                dim.ClearField("dim_param")
            yield info


def partition_models(
    nodes: Sequence[Node],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    newest_opset: int | None = None,
    *,
    in_branch: bool = False,
) -> Iterator[tuple[bytes, list[str]]]:
    """What to try in turn until onnxruntime takes one, and what is done in it that nobody asked for.

    The partition as it is; another opset at which there are kernels; then with casts around operators for
    whose types there are none. Where onnxruntime would take it and refuse at the run, the casts come first.
    Around bodies at last without extents: those that the model had not told onnxruntime may not fit in a
    branch that is never taken. In a branch (`in_branch`) at last without ranks, which then were not told, either, and
    without those of constants.
    """
    refused = any(map(refused_at_runs, every_node(map(_source, nodes))))
    if not refused:
        yield partition_model(nodes, inputs, outputs, newest_opset), []
    opset = opset_with_kernels(nodes)
    model = build_partition(nodes, inputs, outputs, newest_opset, opset)
    if opset is not None and not refused:
        yield model.SerializeToString(), []
    produced = [value for node in nodes for value in node.outputs if value not in set(outputs)]
    del model.graph.value_info[:]
    model.graph.value_info.extend(_value_info(value) for value in produced)
    notes = widen(model)
    if notes:
        yield model.SerializeToString(), notes
    if refused:
        yield partition_model(nodes, inputs, outputs, newest_opset), []
    if any(node.regions for node in nodes):
        model = build_partition(nodes, inputs, outputs, newest_opset)
        for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
            for dim in info.type.tensor_type.shape.dim:
                dim.Clear()
        yield model.SerializeToString(), []
    if in_branch:
        model = build_partition(nodes, inputs, outputs, newest_opset)
        for info in (*model.graph.input, *model.graph.value_info, *model.graph.output):
            if info.type.WhichOneof("value") == "tensor_type":
                info.type.tensor_type.ClearField("shape")
        yield model.SerializeToString(), []
        if _hide_constants(model):
            yield model.SerializeToString(), []


_COMPRESS = 9
"""The first opset that has it."""


def _hide_constants(model: onnx.ModelProto) -> bool:
    """Constants as tensors of which onnxruntime does not tell how many axes they have: reshaped by lists of a length that
    only the run tells. False: there are none, or an operator for it is missing.
    """
    opset = max((entry.version for entry in model.opset_import if entry.domain == ""), default=0)
    graph = model.graph
    constants = list(graph.initializer) if opset >= _COMPRESS else []
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    prefix = "hidden"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    nodes = []
    for number, tensor in enumerate(constants):
        dims = np.array(tensor.dims, np.int64)
        hidden, shape, kept, target = (f"{prefix}{number}.{part}" for part in range(4))
        nodes.append(helper.make_node("Compress", [shape, kept], [target], axis=0))
        nodes.append(helper.make_node("Reshape", [hidden, target], [tensor.name]))
        tensor.name = hidden
        graph.initializer.append(array_to_tensor(dims, shape))
        graph.initializer.append(array_to_tensor(np.ones(dims.shape, np.bool_), kept))
    nodes.extend(onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    return bool(constants)


def lacks_zero_point(nodes: Sequence[Node]) -> bool:
    """Whether something is dequantised without a zero point that others than products read.

    onnxruntime's optimiser moves views past such a DequantizeLinear as if all integers were unsigned.
    """
    found = list(every_node(map(_source, nodes)))
    moved = {name for node in found if node.op_type != "MatMul" for name in node.input}
    read = {name for node in found for name in node.input}
    return any(
        node.op_type == "DequantizeLinear"
        and "".join(node.input[2:]) == ""
        and (node.output[0] in moved or node.output[0] not in read)
        for node in found
    )


def has_dilated_pools(nodes: Sequence[Node]) -> bool:
    """Whether windows of a pool are dilated.

    onnxruntime's optimiser has it work on blocks of channels, and ends the process where no window fits the image.
    """
    return any(
        node.op_type in ("AveragePool", "MaxPool")
        and any(a.name == "dilations" and set(a.ints) != {1} for a in node.attribute)
        for node in every_node(map(_source, nodes))
    )


def cast_outputs(partition: bytes, names: Sequence[str]) -> bytes:
    """The model with some outputs cast to types that numpy has, which hold all their values."""
    model = onnx.ModelProto.FromString(partition)
    for info in model.graph.output:
        if info.name in names:
            kind = info.type.tensor_type.elem_type
            wide = _HELD_BY.get(kind, onnx.TensorProto.FLOAT)
            inner, info.name = info.name, f"{info.name}.cast"
            model.graph.node.append(helper.make_node("Cast", [inner], [info.name], to=wide))
            info.type.tensor_type.elem_type = wide
    return bytes(model.SerializeToString())


def opset_probes() -> Iterator[tuple[int, bytes]]:
    """The smallest model of each opset, newest first: to find out which the vendor library runs."""
    value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    for version in range(onnx.defs.onnx_opset_version(), OLDEST_OPSET - 1, -1):
        imports = [helper.make_opsetid("", version)]
        ir_version = helper.find_min_ir_version_for(imports, ignore_unknown=True)
        model = onnx.ModelProto(ir_version=ir_version, opset_import=imports, graph=graph)
        yield version, model.SerializeToString()


def partition_opset(nodes: Iterable[Node], newest: int | None = None) -> int | None:
    """The opset of the default domain at which all nodes mean what they mean at their own version.

    The newest of the nodes' own versions if that works for all, else an older one (down from
    `newest`, where the vendor library does not run the nodes' own). 0 where no node is of the
    default domain, None where there is no such opset: nodes of function bodies may be newer than
    the model's.
    """
    operators = _default_operators(nodes)
    if not operators:
        return 0
    own = {version for _, version in operators}
    limit = max(own) if newest is None else min(newest, max(own))
    for candidate in sorted({v for v in own if v <= limit} | {limit}, reverse=True):
        if all(_same_meaning(proto, version, candidate) for proto, version in operators):
            return candidate
    return None


def opset_with_kernels(nodes: Iterable[Node]) -> int | None:
    """As `partition_opset`, the newest at which onnxruntime has kernels for all nodes."""
    operators = _default_operators(nodes)
    newest = max((version for _, version in operators), default=0)
    for candidate in range(newest, OLDEST_OPSET - 1, -1):
        if all(
            _same_meaning(proto, version, candidate) and _has_kernel(proto.op_type, candidate)
            for proto, version in operators
        ):
            return candidate
    return None


def _default_operators(nodes: Iterable[Node]) -> list[tuple[onnx.NodeProto, int]]:
    """Operators of the default domain, those of regions included, and their versions."""
    return [(_source(node), node.version) for node in _with_regions(nodes) if not _domain(node)]


def _has_kernel(op: str, version: int) -> bool:
    """Whether onnxruntime has a kernel, or a body to take in its place."""
    schema = signature(op, "", version)
    definition: Any = None if schema is None else schema.definition
    if definition is None:
        return False
    if definition.has_function or definition.has_context_dependent_function:
        return True
    return bool(vendor_library.kernels(op, "", definition.since_version))


def partition_node(node: Node) -> onnx.NodeProto:
    """The NodeProto of a node, its names those of the graph's values."""
    proto = _source(node)
    for part in every_node([proto]):
        part.domain = default_domain(part.domain)  # which onnx's inference has one name for
    explicit = len(proto.input)
    operands = node.inputs[:explicit]
    proto.input[:] = ["" if value is None else value.name for value in operands]
    for index, name in enumerate(proto.output):
        if name:
            proto.output[index] = node.outputs[index].name
    captures = node.attrs.get("captures", ())
    renamed = {
        name: value.name
        for name, value in zip(captures, node.inputs[explicit:], strict=False)
        if value is not None
    }
    if renamed:
        for body in subgraphs(proto):
            _rename_captures(body, renamed)
    _drop_trailing(proto)
    if proto.op_type in _CASTS and node.outputs[0].dtype is not DType.OPAQUE:
        _drop_saturation(proto)
    return proto


def _drop_saturation(cast: onnx.NodeProto) -> None:
    """Leaves out what counts for float8 alone, which onnxruntime refuses of other types wherever the cast is one that it
    does not leave out.
    """
    kept = [attribute for attribute in cast.attribute if attribute.name != "saturate"]
    del cast.attribute[:]
    cast.attribute.extend(kept)


def _drop_trailing(node: onnx.NodeProto) -> None:
    """Leaves out operands that are given as none behind the last: onnxruntime's rewrites read their types. Those of a `Loop`
    stand before its states, which are counted from there on.
    """
    least = 2 if node.op_type == "Loop" else 0
    while len(node.input) > least and not node.input[-1]:
        node.input.pop()
    for body in subgraphs(node):
        for inner in body.node:
            _drop_trailing(inner)


def _rename_captures(graph: onnx.GraphProto, renamed: Mapping[str, str]) -> None:
    local = {info.name for info in graph.input} | {t.name for t in graph.initializer}
    local |= {t.values.name for t in graph.sparse_initializer}
    local |= {name for node in graph.node for name in node.output}
    visible = {old: new for old, new in renamed.items() if old not in local}
    for node in graph.node:
        node.input[:] = [visible.get(name, name) for name in node.input]
        for body in subgraphs(node):
            _rename_captures(body, visible)
    for info in graph.output:
        info.name = visible.get(info.name, info.name)


def _with_regions(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes and those of their regions."""
    for node in nodes:
        yield node
        for region in node.regions:
            yield from _with_regions(region.nodes)


def _source_operands(node: Node) -> int:
    """How many of a node's operands its source reads: all but those of moved attributes."""
    explicit = len(_source(node).input)
    return explicit + len(node.attrs.get("captures", ()))


def _domain(node: Node) -> str:
    return default_domain(_source(node).domain)


def _source(node: Node) -> onnx.NodeProto:
    proto = onnx.NodeProto()
    proto.ParseFromString(node.source)
    return proto


def _same_meaning(proto: onnx.NodeProto, version: int, candidate: int) -> bool:
    op = proto.op_type
    ours, theirs = signature(op, "", version), signature(op, "", candidate)
    if ours is None or theirs is None:
        return False
    if ours.since_version == theirs.since_version:
        return True
    return (
        op not in CHANGED_MEANING
        and len(proto.input) <= theirs.max_inputs
        and len(proto.output) <= theirs.max_outputs
        and all(attribute.name in theirs.attribute_types for attribute in proto.attribute)
        and all(
            theirs.defaults[name] == default
            for name, default in ours.defaults.items()
            if name in theirs.defaults
        )
    )


def _value_info(value: Value) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=value.name, type=type_proto(value))


def declared_elements(value: Value) -> onnx.ValueInfoProto | None:
    """The element type that the model declares for a tensor: some results may be of several, which no operand tells."""
    declared = onnx.TypeProto.FromString(value.opaque_type)
    if declared.WhichOneof("value") != "tensor_type":
        return None
    return helper.make_tensor_value_info(value.name, declared.tensor_type.elem_type, None)


def _initializer(value: Value) -> onnx.TensorProto:
    assert value.data is not None, value.name
    return array_to_tensor(value.data, value.name)
