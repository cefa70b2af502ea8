"""Sizes in a graph of torch: what they are computed from.

In: a graph whose arguments are tensors and sizes. torch traces sizes as it comes to them, extents of what was computed
before for instance, though all of them are expressions of the arguments' sizes. Computed from those, they tie no piece to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

aten = torch.ops.aten

_BETWEEN = {"==": (0, 0), "<=": (None, 0), "<": (None, -1), ">=": (0, None), ">": (1, None)}
"""Where the left side of a relation of whole numbers less its right side lies."""


class Sizes:
    """The sizes of a graph's arguments, by their symbols."""

    def __init__(self, module: GraphModule) -> None:
        self._graph = module.graph
        self._tracer = GraphAppendingTracer(module.graph)
        self._told: dict[Any, Node] = {}
        """Sizes that are there, by what they are."""
        given = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._extents = {
            extent: (node, axis) for node in given for axis, extent in _extents_of(node)
        }
        for node in given:
            if isinstance(node.meta["val"], torch.SymInt):
                self._told.setdefault(node.meta["val"].node.expr, node)

    def compute_from_arguments(self) -> None:
        """Computes each size before anything else."""
        first = next(node for node in self._graph.nodes if node.op != "placeholder")
        traced = [
            node
            for node in self._graph.nodes
            if node.op == "call_function" and isinstance(node.meta.get("val"), torch.SymInt)
        ]
        for node in traced:
            with self._graph.inserting_before(first):
                size = self._computed(node.meta["val"], first)
            if size is not None:
                node.replace_all_uses_with(size)
        for node in reversed(traced):
            if not node.users and node is not first:  # that has the others in front of it
                self._graph.erase_node(node)

    def give(self, call: Node, piece: GraphModule) -> None:
        """Adds to the arguments of a piece the symbols that no extent of its tensors is as it stands: of what was halved, the
        half does not tell the whole.
        """
        nodes = list(piece.graph.nodes)
        given = [node for node in nodes if node.op == "placeholder"]
        told = {size for node in given for size in _sizes_of(node)}
        needed = {
            symbol for node in nodes for size in _sizes_of(node) for symbol in size.free_symbols
        }
        for symbol in sorted(needed - told, key=str):
            with self._graph.inserting_before(call):
                source = self._symbol(symbol)
            if source is not None:
                with piece.graph.inserting_after(given[-1] if given else None):
                    given.append(piece.graph.placeholder(f"size_{symbol}"))
                given[-1].meta["val"] = source.meta["val"]
                call.args = (*call.args, source)
        piece.recompile()

    def _forget(self, count: int, at: Node) -> None:
        """Erases what was just inserted in front of a node."""
        for _ in range(count):
            self._graph.erase_node(at.prev)

    def _computed(self, size: torch.SymInt, at: Node) -> Node | None:
        """The size, computed in front of `at`; None: arguments do not tell it, or it is of a form that torch's interpreter does not know."""
        expression = size.node.expr
        if expression in self._told:
            return self._told[expression]
        symbols = {symbol: self._symbol(symbol) for symbol in expression.free_symbols}
        if None in symbols.values():
            return None
        proxies = {symbol: Proxy(node, self._tracer) for symbol, node in symbols.items()}
        before = len(self._graph.nodes)
        try:
            computed = sympy_interp(PythonReferenceAnalysis, proxies, expression)
        except (KeyError, AttributeError, TypeError, ValueError, NotImplementedError):
            computed = None  # the roots of sizes, say, which Python's own functions compute
        if not isinstance(computed, Proxy):
            self._forget(len(self._graph.nodes) - before, at)
            return None
        computed.node.meta["val"] = size
        return self._told.setdefault(expression, computed.node)

    def _symbol(self, symbol: Any) -> Node | None:
        if symbol not in self._told and symbol in self._extents:
            tensor, axis = self._extents[symbol]
            size = self._graph.call_function(aten.sym_size.int, (tensor, axis))
            size.meta["val"] = tensor.meta["val"].shape[axis]
            self._told[symbol] = size
        return self._told.get(symbol)


Between: TypeAlias = "tuple[Any, int | None, int | None]"
"""An expression of sizes, and the numbers that it lies between wherever the graph runs; None: unknown."""


def ranges_of(nodes: Iterable[Node]) -> Iterator[Between]:
    """Of the symbols in the sizes of nodes."""
    for symbol, environment in symbols_in(nodes).items():
        known = environment.var_to_range[symbol]
        yield symbol, _number(known.lower), _number(known.upper)


def guards_of(nodes: Iterable[Node]) -> Iterator[Between]:
    """What torch's guards say of several of these symbols."""
    symbols = symbols_in(nodes)
    for environment in dict.fromkeys(symbols.values()):
        guards = [each for guard in environment.guards for each in _conditions(guard.expr)]
        for expression in dict.fromkeys(guards):
            between = _BETWEEN.get(getattr(expression, "rel_op", ""))
            if between is not None and symbols.keys() >= expression.free_symbols:
                yield expression.lhs - expression.rhs, *between


def _conditions(guard: Any) -> Iterator[Any]:
    """What all has to hold."""
    if type(guard).__name__ == "And":
        for part in guard.args:
            yield from _conditions(part)
    else:
        yield guard


def _number(end: Any) -> int | None:
    return int(end) if end.is_Integer else None


def symbols_in(nodes: Iterable[Node]) -> dict[Any, Any]:
    """Symbols in the sizes of nodes, with what torch knows of them."""
    sizes = [size.node for node in nodes for size in symbolic(node)]
    return {symbol: size.shape_env for size in sizes for symbol in size.expr.free_symbols}


def _extents_of(node: Node) -> Iterator[tuple[int, Any]]:
    """Axes of a tensor with symbolic extents, and those."""
    value = node.meta["val"]
    for axis, extent in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
        if isinstance(extent, torch.SymInt):
            yield axis, extent.node.expr


def _sizes_of(node: Node) -> Iterator[Any]:
    for size in symbolic(node):
        yield size.node.expr


def symbolic(node: Node) -> Iterator[torch.SymInt]:
    """The symbolic extents of a node's tensors, or the size that it is."""
    values = node.meta.get("val")
    for value in values if isinstance(values, list | tuple) else (values,):
        for size in value.shape if isinstance(value, torch.Tensor) else (value,):
            if isinstance(size, torch.SymInt):
                yield size
