"""Attributes of ONNX nodes as Python values.

In: AttributeProtos. Out: ints, floats, strings, tuples of those, numpy arrays for tensors,
serialised TypeProtos. Subgraphs are left to `importer`. Attributes are checked against the schema,
and the schema's defaults are filled in, so that no reader needs to know them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import onnx
from onnx import AttributeProto

from dvm_graph.errors import ModelError
from dvm_graph.import_.external_data import ExternalData
from dvm_graph.import_.schemas import Signature
from dvm_graph.import_.tensors import sparse_to_array, tensor_to_array

GRAPH_TYPES = (AttributeProto.GRAPH, AttributeProto.GRAPHS)

_Reader = Callable[[onnx.AttributeProto, ExternalData], Any]
_READERS: dict[int, _Reader] = {
    AttributeProto.INT: lambda a, _: a.i,
    AttributeProto.FLOAT: lambda a, _: a.f,
    AttributeProto.STRING: lambda a, _: _text(a.s),
    AttributeProto.INTS: lambda a, _: tuple(a.ints),
    AttributeProto.FLOATS: lambda a, _: tuple(a.floats),
    AttributeProto.STRINGS: lambda a, _: _texts(a.strings),
    AttributeProto.TENSOR: lambda a, external: tensor_to_array(a.t, external),
    AttributeProto.TENSORS: lambda a, ext: tuple(tensor_to_array(t, ext) for t in a.tensors),
    AttributeProto.SPARSE_TENSOR: lambda a, external: sparse_to_array(a.sparse_tensor, external),
    AttributeProto.SPARSE_TENSORS: lambda a, ext: tuple(
        sparse_to_array(t, ext) for t in a.sparse_tensors
    ),
    AttributeProto.TYPE_PROTO: lambda a, _: a.tp.SerializeToString(),
    AttributeProto.TYPE_PROTOS: lambda a, _: tuple(t.SerializeToString() for t in a.type_protos),
}


def read_attributes(
    node: onnx.NodeProto, where: str, signature: Signature | None, external: ExternalData
) -> dict[str, Any]:
    """Attributes of a node, defaults included, subgraphs left out.

    Raises:
        ModelError: an attribute is unknown, missing, given twice, or of a wrong type.
    """
    attrs: dict[str, Any] = {}
    given: set[str] = set()
    for attribute in node.attribute:
        name = attribute.name
        if name in given:
            raise ModelError(f"{where}: attribute {name!r} is given twice")
        given.add(name)
        if attribute.ref_attr_name:
            raise ModelError(
                f"{where}: attribute {name!r} refers to {attribute.ref_attr_name!r} of a function, "
                "but stands outside of one"
            )
        if signature is not None:
            _check_type(attribute, where, signature)
        if attribute.type not in GRAPH_TYPES:
            attrs[name] = _value(attribute, where, external)
    if signature is not None:
        _fill_defaults(attrs, given, where, signature, external)
    return attrs


def _value(attribute: onnx.AttributeProto, where: str, external: ExternalData) -> Any:
    reader = _READERS.get(attribute.type)
    if reader is None:
        raise ModelError(f"{where}: attribute {attribute.name!r} has no valid type")
    return reader(attribute, external)


def _check_type(attribute: onnx.AttributeProto, where: str, signature: Signature) -> None:
    expected = signature.attribute_types.get(attribute.name)
    if expected is None:
        raise ModelError(
            f"{where}: {signature.op} has no attribute {attribute.name!r} "
            f"(it has {', '.join(sorted(signature.attribute_types)) or 'none'})"
        )
    if attribute.type != expected:
        raise ModelError(
            f"{where}: attribute {attribute.name!r} is {_type_name(attribute.type)}, "
            f"but has to be {_type_name(expected)}"
        )


def _fill_defaults(
    attrs: dict[str, Any],
    given: set[str],
    where: str,
    signature: Signature,
    external: ExternalData,
) -> None:
    for name in signature.required:
        if name not in given:
            raise ModelError(f"{where}: {signature.op} needs attribute {name!r}")
    for name, default in signature.defaults.items():
        if name not in given:
            attrs[name] = _value(default, where, external)


def _type_name(number: int) -> str:
    names: dict[int, str] = {v: name for name, v in AttributeProto.AttributeType.items()}
    return names.get(number, f"unknown type {number}")


def _texts(strings: Iterable[bytes]) -> tuple[str, ...]:
    """Of the nodes of trees, millions of few different ones."""
    strings = tuple(strings)
    texts = {string: _text(string) for string in set(strings)}
    return tuple(map(texts.__getitem__, strings))


def _text(data: bytes) -> str:
    return str(data, "utf-8", "surrogateescape")


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type in GRAPH_TYPES:
            yield from (attribute.g, *attribute.graphs)


def names_read(node: onnx.NodeProto) -> Iterable[str]:
    """Names a node reads, those captured by its subgraphs included."""
    graphs = list(subgraphs(node))
    if not graphs:  # as most have none
        names: Iterable[str] = node.input
        return names
    return [*node.input, *(name for graph in graphs for name in _free_names(graph))]


def _free_names(graph: onnx.GraphProto) -> Iterable[str]:
    defined = {info.name for info in graph.input}
    defined |= {tensor.name for tensor in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    defined |= {name for node in graph.node for name in node.output}
    read = [name for node in graph.node for name in names_read(node)]
    read += [info.name for info in graph.output]
    return (name for name in read if name not in defined)
