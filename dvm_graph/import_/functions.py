"""Function bodies: ONNX defines some operators by simpler ones.

In: a node and its operands, with dtypes and shapes known. Out: nodes that compute the same, to be
decomposed in its place. Bodies that depend on attributes or on operand types are built by onnx for
this very node. Model-local functions are inlined earlier (`loading`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from dvm_graph.import_.external_data import ExternalData
from dvm_graph.import_.importer import Importer, Provenance, Scope
from dvm_graph.import_.loading import opset_versions
from dvm_graph.import_.normalize_opset import form_version
from dvm_graph.import_.schemas import Signature, signature
from dvm_graph.import_.tensors import array_to_tensor
from dvm_graph.import_.types import type_proto
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.symbolic import Symbols


def expand_function(
    node: Node, operands: Sequence[Value | None], graph: Graph
) -> list[Node] | None:
    """The body of an ONNX operator, in topological order, or None where it has none.

    The nodes read `operands` and write `node.outputs`; they are not added to any graph. `graph`
    provides unique names. Nodes keep the origin and metadata of `node`.
    """
    schema = signature(node.op, node.domain, _version(node))
    if schema is None or node.regions:
        return None
    function = _function_body(node, operands, schema)
    if function is None:
        return None
    attributes = {a.name: a for a in _attribute_protos(node.attrs, schema)}
    for default in function.attribute_proto:
        attributes.setdefault(default.name, default)
    bound = dict(zip(function.input, operands, strict=False))
    omitted = {name for name in function.input if bound.get(name) is None}
    body = [_specialize(proto, attributes, omitted) for proto in function.node]
    scope = Scope(graph, values={n: v for n, v in bound.items() if v is not None})
    opsets = opset_versions(function.opset_import)
    opsets.setdefault("", _version(node) if node.domain == "" else onnx.defs.onnx_opset_version())
    importer = Importer(
        opsets,
        ExternalData(None),
        Symbols(),
        Provenance(f"{node.name}/", node.origin, node.metadata),
    )
    results = dict(zip(function.output, node.outputs, strict=False))
    nodes = list(importer.import_nodes(scope, body, results))
    for name, result in results.items():
        value = scope.values[name]
        if value is not result:
            nodes.append(_identity(node, value, result, graph))
    return nodes


def takes(node: Node, operands: Sequence[Value | None]) -> bool:
    """Whether the operator of a node is defined for operands of these types."""
    schema = signature(node.op, node.domain, _version(node))
    return schema is not None and schema.admits(operands)


def node_proto(node: Node, schema: Signature) -> onnx.NodeProto:
    """A NodeProto for the newest form of a node; names stand for positions only."""
    return onnx.NodeProto(
        op_type=node.op,
        domain=node.domain,
        name=node.name,
        input=["" if value is None else f"in{i}" for i, value in enumerate(node.inputs)],
        output=[f"out{i}" for i in range(len(node.outputs))],
        attribute=_attribute_protos(node.attrs, schema),
    )


def _version(node: Node) -> int:
    return form_version(node.op, node.domain, node.version)


def _function_body(
    node: Node, operands: Sequence[Value | None], schema: Signature
) -> onnx.FunctionProto | None:
    definition = schema.definition
    if definition is None:
        return None
    get: Callable[[int], bytes]
    if definition.has_context_dependent_function:
        types = [b"" if v is None else type_proto(v).SerializeToString() for v in operands]
        proto = node_proto(node, schema).SerializeToString()

        def get(version: int) -> bytes:
            return bytes(
                definition.get_context_dependent_function_with_opset_version(version, proto, types)
            )

    elif definition.has_function:
        get = definition.get_function_with_opset_version
    else:
        return None
    # One of a version whose operators have others of their name since is not given for what follows, but says its version.
    versions = range(_version(node), definition.since_version - 1, -1)
    data = next(filter(None, map(get, versions)), None)
    return onnx.FunctionProto.FromString(data) if data else None


def _attribute_protos(attrs: Mapping[str, Any], schema: Signature) -> list[onnx.AttributeProto]:
    return [
        _attribute_proto(name, value, schema.attribute_types[name])
        for name, value in attrs.items()
        if name in schema.attribute_types
    ]


def _attribute_proto(name: str, value: Any, kind: int) -> onnx.AttributeProto:
    if kind == onnx.AttributeProto.TENSOR:
        value = array_to_tensor(value, name)
    elif kind == onnx.AttributeProto.TYPE_PROTO:
        value = onnx.TypeProto.FromString(value)
    return helper.make_attribute(name, value, attr_type=kind)


def _specialize(
    proto: onnx.NodeProto,
    attributes: Mapping[str, onnx.AttributeProto],
    omitted: set[str],
) -> onnx.NodeProto:
    """A body node with the call's attributes put in and omitted operands left out."""
    result = onnx.NodeProto()
    result.CopyFrom(proto)
    for index, name in enumerate(result.input):
        if name in omitted:
            result.input[index] = ""
    del result.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            copy = result.attribute.add()
            copy.CopyFrom(attribute)
            if copy.HasField("g"):
                inner = [_specialize(n, attributes, omitted) for n in copy.g.node]
                del copy.g.node[:]
                copy.g.node.extend(inner)
        elif attribute.ref_attr_name in attributes:
            copy = result.attribute.add()
            copy.CopyFrom(attributes[attribute.ref_attr_name])
            copy.name = attribute.name
    return result


def _identity(node: Node, value: Value, result: Value, graph: Graph) -> Node:
    """Names a result that the body passes through."""
    name = graph.unique_name(f"{node.name}/Identity")
    proto = onnx.NodeProto(op_type="Identity", name=name, input=["x"], output=["y"])
    if result.dtype is DType.OPAQUE:
        result.dtype = value.dtype
    return Node(
        name=name,
        op="Identity",
        inputs=(value,),
        outputs=(result,),
        domain="",
        version=node.version if node.domain == "" else onnx.defs.onnx_opset_version(),
        origin=node.origin,
        metadata=node.metadata,
        source=proto.SerializeToString(),
    )
