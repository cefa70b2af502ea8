"""The text form of a graph: deterministic, for dumps and golden tests; `parser` reads it back.

    graph main(%x:f32[batch, seq, 64]) {
      %scale:f32[] = constant([0.125])
      %t:f32[batch, 64, seq] = transpose(%x, perm=(0, 2, 1))  // origin: /encoder/Transpose
      %y:f32[batch, 64, seq] = mul(%t, %scale)
      return %y as "output"
    }

Nodes stand in topological order, ties by insertion; constants before them, in order of first use.
ONNX operators are written `domain::Op@version`; a value without brackets has an unknown shape; the
known contents of a shape tensor follow its shape in braces; regions follow their node, or the bodies that
they were compiled to.

Left out: contents of constants of more than 16 elements, node names, metadata and `Node.source`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dvm_graph.errors import CompileError
from dvm_graph.ir.dtypes import DType
from dvm_graph.ir.graph import BASIC, Graph, Node, Value
from dvm_graph.ir.text import (
    ELIDED,
    MAX_INLINE_ELEMENTS,
    dim_text,
    element_text,
    is_literal,
    quote_name,
)

_INDENT = "  "


def print_graph(graph: Graph) -> str:
    """The text form of a graph, ending in a line break."""
    return "\n".join(_graph_lines(graph, "graph", "")) + "\n"


def print_node(node: Node) -> str:
    """One node on one line, without its regions: for messages and reports."""
    return _node_text(node)


def print_type(value: Value) -> str:
    """dtype, shape and known contents: `i64[2]{batch, 1}`."""
    text = value.dtype.short
    if value.shape is not None:
        text += f"[{', '.join(map(dim_text, value.shape))}]"
    if value.elements is not None and value.data is None:
        text += f"{{{', '.join(map(dim_text, value.elements))}}}"
    return text


def _graph_lines(graph: Graph, keyword: str, indent: str) -> Iterator[str]:
    inputs = ", ".join(map(_declaration, graph.inputs))
    yield f"{indent}{keyword} {quote_name(graph.name)}({inputs}) {{"
    inner = indent + _INDENT
    for value in graph.values():
        if value.data is not None:
            yield f"{inner}{_declaration(value)} = constant({_contents(value.data)})"
    for node in graph.sorted_nodes():
        yield from _node_lines(node, inner)
    results = ", ".join(_result(graph, index) for index in range(len(graph.outputs)))
    yield f"{inner}return {results}".rstrip()
    yield f"{indent}}}"


def _node_lines(node: Node, indent: str) -> Iterator[str]:
    if not node.regions and not node.bodies:
        yield indent + _node_text(node)
        return
    yield f"{indent}{_assignment(node)} {{{_origin(node)}"
    for region in () if node.bodies else node.regions:
        yield from _graph_lines(region, "region", indent + _INDENT)
    for body in node.bodies:
        yield from _graph_lines(body, "body", indent + _INDENT)
    yield f"{indent}}}"


def _node_text(node: Node) -> str:
    return _assignment(node) + _origin(node)


def _assignment(node: Node) -> str:
    results = ", ".join(map(_declaration, node.outputs))
    operands = ["_" if value is None else _reference(value) for value in node.inputs]
    attributes = [f"{name}={_attribute(node, name)}" for name in sorted(node.attrs)]
    operator = node.op
    if node.domain != BASIC:
        operator = f"{node.domain or 'onnx'}::{node.op}@{node.version}"
    left = f"{results} = " if results else ""
    return f"{left}{operator}({', '.join(operands + attributes)})"


def _origin(node: Node) -> str:
    return f"  // origin: {', '.join(map(quote_name, node.origin))}" if node.origin else ""


def _reference(value: Value) -> str:
    return f"%{quote_name(value.name)}"


def _declaration(value: Value) -> str:
    return f"{_reference(value)}:{print_type(value)}"


def _result(graph: Graph, index: int) -> str:
    value = graph.outputs[index]
    names = graph.output_names
    if index < len(names) and names[index] != value.name:
        return f"{_reference(value)} as {json.dumps(names[index])}"
    return _reference(value)


def _contents(data: np.ndarray[Any, Any]) -> str:
    if data.size > MAX_INLINE_ELEMENTS:
        return ELIDED
    return f"[{', '.join(element_text(element) for element in data.reshape(-1))}]"


def _attribute(node: Node, name: str) -> str:
    try:
        return _attribute_text(node.attrs[name])
    except TypeError as error:
        raise CompileError(f"attribute {name!r} of {node!r} has no text form: {error}") from error


def _attribute_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (bool, int, float, str, np.generic)):
        return element_text(value)
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    if isinstance(value, DType):
        return f"dtype:{value.short}"
    if isinstance(value, np.ndarray):
        dtype = value.dtype.name
        return f"tensor:{dtype}[{', '.join(map(str, value.shape))}]({_contents(value)})"
    if isinstance(value, (tuple, list)):
        return _tuple_text(value)
    if isinstance(value, (dict, set, frozenset, Value, Node, Graph)):
        raise TypeError(type(value).__name__)
    text = dim_text(value)
    return f"dim:{json.dumps(str(value))}" if text[0] == '"' or is_literal(text) else text


def _tuple_text(values: Sequence[Any]) -> str:
    comma = "," if len(values) == 1 else ""
    return f"({', '.join(map(_attribute_text, values))}{comma})"
