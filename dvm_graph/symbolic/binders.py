"""Which vendor operators bind symbols: sizes that are known only once the operator has run.

In: a graph of basic and vendor operators. Out: the operator of each such symbol, and the symbols an
operator needs. No edge of the graph says so: only shapes and attributes mention the symbol.

Only computable values bind symbols: of others the executor does not see the shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import sympy

from dvm_graph.ir import Graph, Node
from dvm_graph.symbolic.dims import symbols_of


def find_binders(graph: Graph, order: Iterable[Node]) -> dict[sympy.Symbol, Node]:
    """The vendor operator whose result binds a symbol, for symbols that no input binds."""
    given = {s for value in graph.inputs if value.computable for s in _symbols_of(value.shape)}
    binders: dict[sympy.Symbol, Node] = {}
    for node in order:
        if node.op == "vendor":
            for value in node.outputs:
                for symbol in _symbols_of(value.shape):
                    if value.computable and symbol not in given:
                        binders.setdefault(symbol, node)
    return binders


def needed_symbols(node: Node) -> Iterator[sympy.Symbol]:
    """Symbols without whose values an operator cannot run: every one that its attributes, its
    operands or its results mention.
    """
    for value in (*node.inputs, *node.outputs):
        if value is not None:
            yield from _symbols_of(value.shape)
    yield from _symbols_of(tuple(node.attrs.values()))


def _symbols_of(content: Any) -> Iterator[sympy.Symbol]:
    """Symbols of a dim, or of dims in nested tuples; of attributes that are no dims none."""
    if isinstance(content, tuple | list):
        for part in content:
            yield from _symbols_of(part)
    elif isinstance(content, sympy.Basic):
        yield from symbols_of(content)
