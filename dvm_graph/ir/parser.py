"""Reads the text form of a graph back (see `printer`), by recursive descent.

Contents that the printer elided become zeros that take no memory. Nodes get names of their own.
Dims are read by a callback, as `ir` knows no symbols.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from dvm_graph.errors import DvmError
from dvm_graph.ir.dtypes import DType
from dvm_graph.ir.graph import BASIC, Dim, Graph, Node, Shape, Value
from dvm_graph.ir.text import ELIDED, FLOAT, KEYWORDS, SHORT_NAMES

ParseDim = Callable[[str], Dim]


class GraphSyntaxError(DvmError):
    """The text is no graph; the message has the line."""


def parse_graph(text: str, parse_dim: ParseDim) -> Graph:
    """The graph of a text.

    Args:
        text: what `print_graph` writes, comments other than origins allowed.
        parse_dim: reads a dim that is not an integer literal.

    Raises:
        GraphSyntaxError: the text does not follow the form, or reads an undefined value.
    """
    cursor = _Cursor(text)
    cursor.expect("graph")
    graph = Graph(cursor.name())
    _GraphParser(cursor, parse_dim).body(graph)
    cursor.skip()
    if not cursor.at_end():
        raise cursor.error("the end")
    return graph


class _Cursor:
    """A position in the text, with the words of the text form."""

    _space = re.compile(r"(\s+|//[^\n]*)*")
    _blank = re.compile(r"[ \t]*")
    _name = re.compile(r"[\w./$-]+")
    _operator = re.compile(r"[\w.]+")
    _integer = re.compile(r"-?\d+")
    _origin = re.compile(r"// origin: ")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def error(self, wanted: str) -> GraphSyntaxError:
        line = self.text.count("\n", 0, self.position) + 1
        rest = self.text[self.position : self.position + 40].split("\n")[0]
        return GraphSyntaxError(f"line {line}: expected {wanted}, found {rest!r}")

    def at_end(self) -> bool:
        return self.position == len(self.text)

    def skip(self) -> None:
        self._pass(self._space)

    def _pass(self, gap: re.Pattern[str]) -> None:
        found = gap.match(self.text, self.position)
        assert found is not None, "gaps may be empty"
        self.position = found.end()

    def accept(self, literal: str) -> bool:
        self.skip()
        if self.text.startswith(literal, self.position):
            self.position += len(literal)
            return True
        return False

    def expect(self, literal: str) -> None:
        if not self.accept(literal):
            raise self.error(repr(literal))

    def match(self, pattern: re.Pattern[str], wanted: str) -> str:
        self.skip()
        found = pattern.match(self.text, self.position)
        if found is None:
            raise self.error(wanted)
        self.position = found.end()
        return found.group()

    def name(self) -> str:
        self.skip()
        return self.string() if self.peek() == '"' else self.match(self._name, "a name")

    def operator(self) -> str:
        return self.match(self._operator, "an operator")

    def integer(self) -> int:
        return int(self.match(self._integer, "an integer"))

    def peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def string(self) -> str:
        try:
            result, self.position = json.JSONDecoder().raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            raise self.error("a quoted string") from error
        if not isinstance(result, str):
            raise self.error("a quoted string")
        return result

    def until(self, stops: str) -> str:
        """Text up to one of `stops` outside of parentheses."""
        self.skip()
        depth, start = 0, self.position
        while not self.at_end():
            char = self.peek()
            if depth == 0 and char in stops:
                return self.text[start : self.position].strip()
            depth += {"(": 1, ")": -1}.get(char, 0)
            self.position += 1
        raise self.error(f"one of {stops!r}")

    def opens_block(self) -> bool:
        """Takes a brace on the rest of this line."""
        self._pass(self._blank)
        if self.peek() != "{":
            return False
        self.position += 1
        return True

    def origin(self) -> tuple[str, ...]:
        """The origin comment on the rest of this line."""
        self._pass(self._blank)
        found = self._origin.match(self.text, self.position)
        if found is None:
            return ()
        self.position = found.end()
        names = [self.name()]
        while self.peek() == ",":
            self.position += 1
            names.append(self.name())
        return tuple(names)


class _GraphParser:
    """Reads the body of one graph; regions get a parser of their own."""

    def __init__(self, cursor: _Cursor, parse_dim: ParseDim) -> None:
        self._cursor = cursor
        self._parse_dim = parse_dim
        self._values: dict[str, Value] = {}

    def body(self, graph: Graph) -> None:
        cursor = self._cursor
        cursor.expect("(")
        while not cursor.accept(")"):
            graph.inputs.append(self._declaration(graph))
            cursor.accept(",")
        cursor.expect("{")
        while not cursor.accept("return"):
            self._statement(graph)
        names = []
        while not cursor.accept("}"):
            value = self._reference()
            graph.outputs.append(value)
            cursor.skip()
            names.append(cursor.name() if cursor.accept("as") else value.name)
            cursor.accept(",")
        graph.output_names = tuple(names)

    def _statement(self, graph: Graph) -> None:
        cursor = self._cursor
        results: list[Value] = []
        cursor.skip()
        while cursor.peek() == "%":
            results.append(self._declaration(graph))
            cursor.accept(",")
            cursor.skip()
        if results:
            cursor.expect("=")
        operator = cursor.operator()
        if operator == "constant":
            self._constant(results)
        else:
            self._node(graph, operator, results)

    def _constant(self, results: list[Value]) -> None:
        self._cursor.expect("(")
        if len(results) != 1 or results[0].shape is None:
            raise self._cursor.error("one result with a shape before constant")
        (value,) = results
        shape = self._static(value.shape)
        value.data = self._contents(value.dtype.numpy, shape)
        if value.dtype.numpy.kind in "iub" and value.data.size <= 64:
            value.elements = tuple(int(x) for x in value.data.reshape(-1))

    def _node(self, graph: Graph, operator: str, results: list[Value]) -> None:
        cursor = self._cursor
        domain, version = BASIC, 0
        if cursor.accept("::"):
            domain = "" if operator == "onnx" else operator
            operator = cursor.operator()
            cursor.expect("@")
            version = cursor.integer()
        inputs, attrs = self._arguments()
        has_regions = cursor.opens_block()
        origin = cursor.origin()
        regions: list[Graph] = []
        bodies: list[Graph] = []
        while has_regions and not cursor.accept("}"):
            if operator == "control":
                cursor.expect("body")
                bodies.append(Graph(cursor.name()))
                _GraphParser(cursor, self._parse_dim).body(bodies[-1])
                continue
            cursor.expect("region")
            region = graph.new_region(cursor.name())
            _GraphParser(cursor, self._parse_dim).body(region)
            regions.append(region)
        graph.add(
            Node(
                name=graph.unique_name(f"{results[0].name}.{operator}" if results else operator),
                op=operator,
                inputs=tuple(inputs),
                outputs=tuple(results),
                attrs=attrs,
                domain=domain,
                version=version,
                origin=origin,
                regions=tuple(regions),
                bodies=tuple(bodies),
            )
        )

    def _arguments(self) -> tuple[list[Value | None], dict[str, Any]]:
        cursor = self._cursor
        inputs: list[Value | None] = []
        attrs: dict[str, Any] = {}
        cursor.expect("(")
        while not cursor.accept(")"):
            cursor.skip()
            if cursor.peek() == "%":
                inputs.append(self._reference())
            elif cursor.peek() == "_" and cursor.text[cursor.position + 1] in ",)":
                cursor.position += 1
                inputs.append(None)
            else:
                name = cursor.operator()
                cursor.expect("=")
                attrs[name] = self._attribute()
            cursor.accept(",")
        return inputs, attrs

    def _attribute(self) -> Any:
        cursor = self._cursor
        cursor.skip()
        if cursor.peek() == '"':
            return cursor.string()
        if cursor.accept("("):
            return self._tuple()
        if cursor.accept("dtype:"):
            return self._dtype()
        if cursor.accept("dim:"):
            return self._parse_dim(cursor.string())
        if cursor.accept("tensor:"):
            return self._tensor()
        text = cursor.until(",)")
        if text in KEYWORDS:
            return KEYWORDS[text]
        if FLOAT.fullmatch(text):
            return float(text)
        if re.fullmatch(r"0x([0-9a-f]{2})*", text):
            return bytes.fromhex(text[2:])
        return self._dim(text)

    def _tensor(self) -> np.ndarray[Any, Any]:
        name = self._cursor.operator()
        try:
            dtype = np.dtype(name)
        except TypeError as error:
            raise self._cursor.error(f"an element type instead of {name!r}") from error
        shape = self._static(self._dims("[", "]"))
        self._cursor.expect("(")
        return self._contents(dtype, shape)

    def _static(self, shape: Shape | None) -> tuple[int, ...]:
        if any(not isinstance(dim, int) or dim < 0 for dim in shape or ()):
            raise self._cursor.error("a constant of static shape")
        return tuple(shape or ())

    def _tuple(self) -> tuple[Any, ...]:
        items = []
        while not self._cursor.accept(")"):
            items.append(self._attribute())
            self._cursor.accept(",")
        return tuple(items)

    def _declaration(self, graph: Graph) -> Value:
        cursor = self._cursor
        cursor.expect("%")
        name = cursor.name()
        if name in self._values:
            raise cursor.error(f"a new name instead of {name!r}")
        cursor.expect(":")
        dtype = self._dtype()
        shape: Shape | None = None
        elements: tuple[Dim, ...] | None = None
        if cursor.peek() == "[":
            shape = self._dims("[", "]")
        if cursor.peek() == "{":
            elements = self._dims("{", "}")
        value = Value(graph.unique_name(name), dtype, shape, elements=elements)
        self._values[name] = value
        return value

    def _reference(self) -> Value:
        self._cursor.expect("%")
        name = self._cursor.name()
        value = self._values.get(name)
        if value is None:
            raise self._cursor.error(f"a value defined before {name!r}")
        return value

    def _dtype(self) -> DType:
        name = self._cursor.operator()
        if name not in SHORT_NAMES:
            raise self._cursor.error(f"an element type instead of {name!r}")
        return SHORT_NAMES[name]

    def _dims(self, start: str, end: str) -> tuple[Dim, ...]:
        cursor = self._cursor
        cursor.expect(start)
        dims: list[Dim] = []
        while not cursor.accept(end):
            cursor.skip()
            if cursor.peek() == '"':
                dims.append(self._parse_dim(cursor.string()))
            else:
                dims.append(self._dim(cursor.until("," + end)))
            cursor.accept(",")
        return tuple(dims)

    def _dim(self, text: str) -> Dim:
        return int(text) if re.fullmatch(r"-?\d+", text) else self._parse_dim(text)

    def _contents(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The array between parentheses, the opening one read already."""
        cursor = self._cursor
        if cursor.accept(ELIDED):
            cursor.expect(")")
            return np.broadcast_to(np.zeros((), dtype), shape)
        cursor.expect("[")
        items: list[Any] = []
        while not cursor.accept("]"):
            cursor.skip()
            items.append(cursor.string() if cursor.peek() == '"' else cursor.until(",]"))
            cursor.accept(",")
        cursor.expect(")")
        try:
            data = np.array([_element(item, dtype) for item in items], dtype).reshape(shape)
        except ValueError as error:
            raise cursor.error(f"elements of {dtype} that fill shape {shape} ({error})") from error
        data.flags.writeable = False
        return data


def _element(item: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "O":
        return item
    if item in KEYWORDS:
        return KEYWORDS[item]
    return int(item) if dtype.kind in "iu" else float(item)
