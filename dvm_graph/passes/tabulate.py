"""Makes tables of functions of a byte.

    Requires: basic operators with shapes. Ensures: an element-wise function from one tensor of bytes to another, of
    several operators and numbers, is a `lookup`.

    q(sigmoid(dq(x)) * dq(x))  =>  lookup(x, table)

Quantised models are full of such functions: all that is done between two products is often to widen and scale bytes, to
apply an activation, and to round what it gives to bytes again. There are 256 bytes, so that a table holds all results.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.ir import OPERATORS, DType, Graph, Kind, Node, Value
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


@dataclass(frozen=True, slots=True)
class _Function:
    """What a value is of the bytes of another one, element by element."""

    source: Value
    results: NDArray[Any]
    """For all bytes."""
    origin: tuple[str, ...]
    """The ONNX nodes that it comes from."""


def tabulate(graph: Graph, facts: Facts) -> bool:
    """True if a table took the place of operators."""
    builder = Builder(graph, facts)
    functions: dict[Value, _Function] = {}
    for node in graph.sorted_nodes():
        function = _function_of(node, functions)
        if function is not None:
            functions[node.output] = function
    tabulated = _tabulated(graph, functions)
    for node in tabulated:
        function = functions[node.output]
        with builder.scope(replace(node, origin=function.origin)):
            table = tuple(function.results.tolist())
            result = builder.lookup(function.source, table, node.output.dtype)
        graph.replace_node(node, result)
    return bool(tabulated)


def _tabulated(graph: Graph, functions: Mapping[Value, _Function]) -> list[Node]:
    """Whose results are worth a table, given those of all others."""
    made = [node for node in graph.sorted_nodes() if not functions.keys().isdisjoint(node.outputs)]
    chosen = [node for node in made if node.output.dtype in _BYTES]
    while True:
        gone = set(chosen)
        for node in reversed(made):
            if not graph.is_output(node.output) and graph.users(node.output) <= gone:
                gone.add(node)
        worthy = [node for node in chosen if _saves_enough(node, gone, functions)]
        if len(worthy) == len(chosen):
            return chosen
        chosen = worthy


def _saves_enough(node: Node, gone: Set[Node], functions: Mapping[Value, _Function]) -> bool:
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


def _function_of(node: Node, functions: Mapping[Value, _Function]) -> _Function | None:
    """That of the result, where all operands are functions of the same bytes, or numbers."""
    if OPERATORS[node.op].kind is not Kind.MAP or node.op == "check_index":  # which traps
        return None
    operands: list[Value] = []
    known: list[_Function] = []
    for value in map(node.required, range(len(node.inputs))):
        if value.data is not None and value.data.size == 1:
            operands.append(_held(value, value.data.shape, value.data))
            continue
        function = functions.get(value) or _identity(value)
        if function is None or (known and function.source is not known[0].source):
            return None
        known.append(function)
        operands.append(_held(value, _EVERY, function.results))
    if not known or node.output.shape != known[0].source.shape:
        return None
    results = evaluate_constant(
        replace(node, inputs=tuple(operands), outputs=(_held(node.output, _EVERY, None),))
    )
    if results is None:
        return None
    origins = (*(name for function in known for name in function.origin), *node.origin)
    return _Function(known[0].source, results, tuple(dict.fromkeys(origins)))


def _identity(value: Value) -> _Function | None:
    every = None if value.is_constant else _BYTES.get(value.dtype)
    return None if every is None else _Function(value, every, ())


def _held(value: Value, shape: tuple[int, ...], data: NDArray[Any] | None) -> Value:
    """In place of a value: what kernels hold of it, half types in more than they are. It is in no graph."""
    dtype = value.dtype.register if value.dtype.is_float else value.dtype
    return Value(value.name, dtype, shape, None if data is None else data.astype(dtype.numpy))
