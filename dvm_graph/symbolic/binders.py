"""Which vendor operators bind symbols: sizes that are known only once the operator has run.

In: a graph of basic and vendor operators. Out: the operator of each such symbol, and the symbols an
operator depends on. No edge of the graph says so: only shapes mention the symbol.
"""

from __future__ import annotations

from collections.abc import Iterable

import sympy

from dvm_graph.ir import Dim, Graph, Node
from dvm_graph.symbolic.dims import symbols_of


def find_binders(graph: Graph, order: Iterable[Node]) -> dict[sympy.Symbol, Node]:
    """The vendor operator whose result binds a symbol, for symbols that no input binds."""
    given = {s for value in graph.inputs for s in _symbols_of_dims(value.shape or ())}
    binders: dict[sympy.Symbol, Node] = {}
    for node in order:
        if node.op == "vendor":
            for symbol in result_symbols(node):
                if symbol not in given:
                    binders.setdefault(symbol, node)
    return binders


def result_symbols(node: Node) -> list[sympy.Symbol]:
    """Symbols that the results of an operator depend on."""
    dims = [dim for value in node.outputs for dim in value.shape or ()]
    dims += node.attrs.get("elements", ())
    dims += [node.attrs[key] for key in ("start", "step") if key in node.attrs]
    return _symbols_of_dims(dims)


def _symbols_of_dims(dims: Iterable[Dim]) -> list[sympy.Symbol]:
    return [s for dim in dims if not isinstance(dim, int) for s in symbols_of(dim)]
