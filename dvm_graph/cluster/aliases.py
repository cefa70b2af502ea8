"""Which values share a buffer: reshapes of what is in memory cost nothing.

In: the subgraphs of all clusters. Out: for each aliased value the value whose buffer it is, and the
reshapes that have to copy after all.

A value is *demanded* where its own buffer with its own shape is needed: graph outputs and operands of
vendor operators. A demanded reshape takes over the buffer of its source if that is a kernel's result of the same
phase (before, the extents of the reshape may not be bound), all parts of a concat among it, that nobody else demands;
otherwise it is a copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from dvm_graph.cluster.subgraph import FusedSubgraph, SubgraphKind
from dvm_graph.ir import Graph, Value


class Aliases:
    """Values and the values whose buffers they share."""

    def __init__(self) -> None:
        self._to: dict[Value, Value] = {}

    def root(self, value: Value) -> Value:
        """The value that owns the buffer."""
        while value in self._to:
            value = self._to[value]
        return value

    def join(self, value: Value, root: Value) -> None:
        self._to[value] = root


def find_aliases(
    graph: Graph, subgraphs: Iterable[tuple[int, FusedSubgraph]]
) -> tuple[Aliases, set[FusedSubgraph]]:
    """The shared buffers, and the ALIAS subgraphs that have to be copies, of subgraphs and their phases."""
    aliases = Aliases()
    copies: set[FusedSubgraph] = set()
    demanded = set(graph.outputs)
    placed: set[Value] = set()
    movable: dict[Value, int] = {}
    for node in graph.nodes:
        if node.is_call:
            demanded.update(value for value in node.inputs if value is not None)
        if node.op == "concat":
            placed.update(value for value in node.inputs if value is not None)
    for phase, subgraph in subgraphs:
        if subgraph.kind is not SubgraphKind.ALIAS:
            parts = [v for node in subgraph.nodes if node.op == "concat" for v in node.inputs]
            at_once = all(v is not None and movable.get(v, phase) == phase for v in parts)
            if subgraph.kind is not SubgraphKind.DIMS and at_once:
                movable.update(dict.fromkeys(subgraph.outputs, phase))
            continue
        source = aliases.root(subgraph.inputs[0])
        own = [value for value in subgraph.outputs if value in demanded]
        if any(value in placed for value in subgraph.outputs) or len(own) > 1:
            copies.add(subgraph)
            movable.update(dict.fromkeys(subgraph.outputs, phase))
        elif not own:
            for value in subgraph.outputs:
                aliases.join(value, source)
        elif movable.get(source) == phase and source not in demanded and source not in placed:
            for value in (source, *subgraph.outputs):
                if value is not own[0]:
                    aliases.join(value, own[0])
        else:
            copies.add(subgraph)
    return aliases, copies
