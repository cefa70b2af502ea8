"""Which nodes of a graph of torch run together: pieces, each of which becomes a program, and what torch runs between them.

In: a graph, and what of it can be translated. Out: the same graph in an order in which it can run, and the nodes of each piece,
which stand together in it. Nodes go in *phases*, counted from the end of the graph: even ones are pieces, odd ones torch's. What leads
to a later phase through a node of the other kind is of a phase before it, so no piece waits for itself, there are as many as must
be, and to find them takes two passes over the graph. Each node is as late as may be, as what it reads is there already.

Views, and rows of one number, cost nothing: each piece that reads them, and torch, has some of its own, so that what a piece reads by a
view is read in place, and what torch reads by it does not become a result of the piece.

Nodes that draw random numbers, or may have effects that nobody knows of, keep their order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._prims.rng_prims import run_with_rng_state
from torch.fx import GraphModule, Node
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from dvm_graph.torch_backend.translation import UNWRITTEN, is_operator

_LAST_OF_TORCH = -1
_LAST_PIECE = 0
_OF_TORCH = ("aten", "prims")
"""Of operators: those whose tags say whether they draw."""


class _Least(NamedTuple):
    """The phases that readers leave to what they read: the least one."""

    of_piece: int
    of_torch: int


_END = _Least(_LAST_PIECE, _LAST_OF_TORCH)


def fuse_pieces(
    graph: GraphModule,
    is_supported: Callable[[Node], bool],
    computes: Callable[[Node], bool],
) -> GraphModule:
    """The graph with a module in place of each piece some node of which `computes`."""
    pieces = [piece for piece in _Phases(graph, is_supported).pieces() if any(map(computes, piece))]
    return fuse_by_partitions(graph, [dict.fromkeys(piece) for piece in pieces], prefix="fused_")


def is_filled(node: Node) -> bool:
    """Whether a node makes rows of one number, which may be any."""
    return node.target is torch.ops.aten.full.default or node.target in UNWRITTEN


def is_seeded(target: object) -> bool:
    """Whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


def _may_draw(target: object) -> bool:
    """Whether an operator draws random numbers, or is one of others than torch, or of graphs, which may do so."""
    if isinstance(target, HigherOrderOperator):
        return target is not run_with_rng_state  # which leaves the generator as it was
    foreign = isinstance(target, OpOverload) and target.namespace not in _OF_TORCH
    return foreign or is_seeded(target)


class _Phases:
    """Of the nodes of a graph."""

    def __init__(self, graph: GraphModule, is_supported: Callable[[Node], bool]) -> None:
        self._graph = graph.graph
        nodes = list(self._graph.nodes)
        self._position = {node: index for index, node in enumerate(nodes)}
        called = [node for node in nodes if node.op not in ("placeholder", "output")]
        supported: set[Node] = set()
        for node in called:
            if node.args[0] in supported if _is_result(node) else is_supported(node):
                supported.add(node)
        self._free = {node for node in supported if not is_operator(node) or is_filled(node)}
        self._phase: dict[Node, int] = {}
        """Of what is not free."""
        self._find_phases(called, supported)
        self._copies: dict[tuple[Node, int], Node] = {}

    def pieces(self) -> list[list[Node]]:
        """The nodes of each, the piece that runs first first, in the graph's new order."""
        for node, phase in list(self._phase.items()):
            if not phase % 2:
                self._read_own(node, phase)
        self._leave_to_torch()
        order = sorted(self._phase, key=lambda node: (-self._phase[node], self._position[node]))
        end = self._graph.output_node()
        for node in order:
            end.prepend(node)
        pieces: dict[int, list[Node]] = {}
        for node in order:
            if not self._phase[node] % 2:
                pieces.setdefault(self._phase[node], []).append(node)
        return list(pieces.values())

    def _find_phases(self, called: list[Node], supported: set[Node]) -> None:
        least: dict[Node, _Least] = {}
        drawn = _LAST_OF_TORCH
        """The phase of the random numbers that come next."""
        for node in reversed(called):
            left = _least(least[user] for user in node.users if user in least)
            if node in self._free or (node in supported and _is_result(node)):
                least[node] = left
            elif node in supported:
                self._phase[node] = left.of_piece
                least[node] = _Least(left.of_piece, left.of_piece + 1)
            else:
                ordered = _may_draw(node.target)
                phase = max(left.of_torch, drawn) if ordered else left.of_torch
                drawn = phase if ordered else drawn
                self._phase[node] = phase
                least[node] = _Least(phase + 1, phase)
        for node in called:
            if node not in self._phase and node not in self._free:
                self._phase[node] = self._phase[node.args[0]]

    def _read_own(self, node: Node, phase: int) -> None:
        """A node of a piece reads views of its own piece's."""
        for operand in node.all_input_nodes:
            if operand in self._free:
                node.replace_input_with(operand, self._copy(operand, phase))

    def _copy(self, node: Node, phase: int) -> Node:
        """A free node for the piece of a phase, with the free nodes that it reads."""
        pending = [node]
        while pending:
            at = pending[-1]
            operands = [each for each in at.all_input_nodes if each in self._free]
            missing = [each for each in operands if (each, phase) not in self._copies]
            if missing:
                pending += missing
                continue
            pending.pop()
            if (at, phase) not in self._copies:
                self._copies[at, phase] = self._copied(at, phase)
        return self._copies[node, phase]

    def _copied(self, node: Node, phase: int) -> Node:
        with self._graph.inserting_after(node):
            copy = self._graph.node_copy(
                node, lambda operand: self._copies.get((operand, phase), operand)
            )
        self._phase[copy], self._position[copy] = phase, self._position[node]
        return copy

    def _leave_to_torch(self) -> None:
        """What is free and has readers yet is torch's: right before the first."""
        for node in sorted(self._free, key=self._position.__getitem__, reverse=True):
            if not node.users:
                self._graph.erase_node(node)
                continue
            readers = [self._phase.get(user, _LAST_OF_TORCH) for user in node.users]
            self._phase[node] = max(readers)


def _least(phases: Iterable[_Least]) -> _Least:
    least = _END
    for each in phases:
        least = _Least(max(least.of_piece, each.of_piece), max(least.of_torch, each.of_torch))
    return least


def _is_result(node: Node) -> bool:
    """One of an operator's several results: they come together."""
    return node.target is operator.getitem
