"""Makes tables of functions of a byte.

    Requires: basic operators with shapes. Ensures: an element-wise function from one tensor of bytes to another, of
    several operators and numbers, is a `lookup`.

    q(sigmoid(dq(x)) * dq(x))  =>  lookup(x, table)

Quantised models are full of such functions: all that is done between two products is often to widen and scale bytes, to
apply an activation, and to round what it gives to bytes again. There are 256 bytes, so that a table holds all results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dvm_graph.ir import OPERATORS, DType, Graph, Kind, Node, Value
from dvm_graph.records import record
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.numeric import evaluate_constant

_LEAST, _LEAST_BESIDE = 4, 8
"""Operators that a table takes the place of; and where others read some of its function, so that these are computed
anyway: what is rounded to bytes right there takes less than to read a table."""
_BYTES = {
    dtype: np.arange(256, dtype=np.uint8).view(dtype.numpy) for dtype in (DType.UINT8, DType.INT8)
}
"""All there are, in the order of tables."""
_EVERY = (256,)
"""The shape of results for all of them."""


@record(frozen=True, slots=True)
class _Function:
    """What a value is of the bytes of another one, element by element."""

    source: Value
    node: Node
    """The operator that gives it."""
    operands: tuple[Value, ...]
    """What it reads but numbers: functions of the same bytes, or these."""


@record(frozen=True, slots=True)
class _Table:
    """What a function gives for all bytes."""

    results: NDArray[Any]
    origin: tuple[str, ...]
    """The ONNX nodes that it comes from."""


_Functions: TypeAlias = dict[Value, _Function]
"""In topological order."""


def tabulate(graph: Graph, facts: Facts) -> bool:
    """True if a table took the place of operators."""
    if _BYTES.keys().isdisjoint([value.dtype for node in graph.nodes for value in node.outputs]):
        return False
    builder = Builder(graph, facts)
    refused: set[Value] = set()
    while True:  # most functions are worth no table: theirs are not computed
        functions = _functions(graph, refused)
        tabulated = _tabulated(graph, functions)
        tables = _tables(functions, [node.output for node in tabulated])
        without = {value for value, table in tables.items() if table is None}
        if not without:
            break
        refused |= without
    for node in tabulated:
        function, table = functions[node.output], tables[node.output]
        assert table is not None
        with builder.scope(replace(node, origin=table.origin)):
            entries = tuple(table.results.tolist())
            result = builder.lookup(function.source, entries, node.output.dtype)
        graph.replace_node(node, result)
    return bool(tabulated)


def _tabulated(graph: Graph, functions: _Functions) -> list[Node]:
    """Whose results are worth a table, given those of all others."""
    made = [function.node for function in functions.values()]
    chosen = [node for node in made if node.output.dtype in _BYTES]
    while chosen:
        gone = set(chosen)
        for node in reversed(made):
            if not graph.is_output(node.output) and graph.users(node.output) <= gone:
                gone.add(node)
        worthy = [node for node in chosen if _saves_enough(node, gone, functions)]
        if len(worthy) == len(chosen):
            break
        chosen = worthy
    return chosen


def _saves_enough(node: Node, gone: Set[Node], functions: _Functions) -> bool:
    """Whether enough of what the result is computed from is `gone` with a table."""
    saved, some_stays = 0, False
    pending, seen = [node], {node}
    while pending and saved < _LEAST_BESIDE:
        node = pending.pop()
        if node not in gone:
            some_stays = True
            continue
        saved += 1
        for value in map(node.required, range(len(node.inputs))):
            producer = value.producer if value in functions else None
            if producer is not None and producer not in seen:
                seen.add(producer)
                pending.append(producer)
    return saved >= (_LEAST_BESIDE if some_stays else _LEAST)


def _functions(graph: Graph, refused: Set[Value]) -> _Functions:
    """The results of element-wise operators all of whose operands are functions of the same bytes, or numbers; what is
    `refused` is none, but may be bytes that others are functions of.
    """
    functions: _Functions = {}
    for node in graph.sorted_nodes():
        if OPERATORS[node.op].kind is Kind.MAP and node.op != "check_index":  # which traps
            function = _function_of(node, functions)
            if function is not None and node.output not in refused:
                functions[node.output] = function
    return functions


def _function_of(node: Node, functions: _Functions) -> _Function | None:
    source: Value | None = None
    operands: list[Value] = []
    for value in map(node.required, range(len(node.inputs))):
        if _number(value) is not None:
            continue
        known = functions.get(value)
        if known is None and value.dtype not in _BYTES:
            return None
        read = value if known is None else known.source
        if source is not None and read is not source:
            return None
        source = read
        operands.append(value)
    if source is None or node.output.shape != source.shape:
        return None
    return _Function(source, node, tuple(operands))


def _tables(functions: _Functions, wanted: Sequence[Value]) -> dict[Value, _Table | None]:
    """Those of some values, and of what they are computed from; None: not the same on every machine, and nothing is
    computed from that.
    """
    needed = set(wanted)
    for value, function in reversed(functions.items()):
        if value in needed:
            needed.update(function.operands)
    tables: dict[Value, _Table | None] = {}
    for value, function in functions.items():
        read = [operand for operand in function.operands if operand in functions]
        if value in needed and all(tables.get(operand) is not None for operand in read):
            tables[value] = _table_of(function, tables)
    return tables


def _table_of(function: _Function, tables: Mapping[Value, _Table | None]) -> _Table | None:
    node, held = function.node, []
    origin: dict[str, None] = {}
    for value in map(node.required, range(len(node.inputs))):
        table, number = tables.get(value), _number(value)
        if number is not None:
            held.append(_held(value, number.shape, number))
        elif table is not None:
            held.append(_held(value, _EVERY, table.results))
            origin.update(dict.fromkeys(table.origin))
        else:
            held.append(_held(value, _EVERY, _BYTES[value.dtype]))
    result = _held(node.output, _EVERY, None)
    results = evaluate_constant(
        Node(node.name, node.op, tuple(held), (result,), node.attrs, origin=node.origin)
    )
    origin.update(dict.fromkeys(node.origin))
    return None if results is None else _Table(results, tuple(origin))


def _number(value: Value) -> NDArray[Any] | None:
    return value.data if value.data is not None and value.data.size == 1 else None


def _held(value: Value, shape: tuple[int, ...], data: NDArray[Any] | None) -> Value:
    """In place of a value: what kernels hold of it, half types in more than they are. It is in no graph."""
    dtype = value.dtype.register if value.dtype.is_float else value.dtype
    return Value(value.name, dtype, shape, None if data is None else data.astype(dtype.numpy))
