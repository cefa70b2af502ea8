"""What nodes of a graph make of constants alone.

A node of constants, or of views of them, is computed once and for all, unless that would take more memory. Views of constants
are kept where a kernel can read the constant as it lies, which strides tell: weights are not copied, unless every run would
have to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from operator import itemgetter

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import OPERATORS, Array, Graph, Kind, Node, Value
from dvm_graph.symbolic.numeric import evaluate_constant, strided_view

_MAX_ELEMENTS = 1 << 24
"""Of any operand or result."""
_MAX_VIEW_BYTES = 1 << 12
"""Larger views of constants stay views."""
_MOST_MAKERS = 16
"""That are looked through for what a value holds."""


class Folding:
    """Of a graph, of whose nodes each is asked about behind those that it reads."""

    def __init__(self, graph: Graph, allowance: int = 0) -> None:
        """What is computed may take so many bytes, or else no more than what it is made of."""
        self._graph = graph
        self._allowance = allowance
        self._made: dict[Value, tuple[int, Node]] = {}
        """What nodes make that are left to make it, numbered in an order that they can be computed in."""
        self._lying: dict[Value, Array] = {}
        """Views of constants that strides tell, in the memory of these."""

    def covers(self, values: Iterable[Value | None]) -> bool:
        """Whether all are constants, or made of them alone."""
        return all(v is None or v.data is not None or v in self._made for v in values)

    def fold(self, node: Node) -> Value | None:
        """Of one whose operands it covers: what stands for its result from now on; None: the node stays."""
        if node.is_call or not (node.inputs or node.op == "iota"):
            return None
        data = self._computed(node) if node.inputs else None
        if data is None:
            self._made[node.output] = len(self._made), node
            return None
        result = self._graph.constant(data, node.output.name)
        self._graph.replace_uses(node.output, result)
        self._graph.remove(node)
        return result

    def fold_each(self, nodes: Iterable[Node]) -> dict[Value, Value]:
        """Of nodes behind those that they read: what stands for which result from now on."""
        folded = dict[Value, Value]()
        for node in nodes:
            value = self.fold(node) if self.covers(node.inputs) else None
            if value is not None:
                folded[node.output] = value
        return folded

    def of_constants(self, node: Node) -> Node | None:
        """The node of constants instead of values that hold as much; it is in no graph. None: one cannot be computed.

        The values stay for others to read as they are, often a view of a single number.
        """
        needed = self._needed(node)
        constants = {value: value for value in needed if value.data is not None}
        made = (self._made[value] for value in needed if value.data is None)
        for _, maker in sorted(made, key=itemgetter(0)):
            data = _evaluated(_over(maker, constants), with_iota=True)
            if data is None:
                return None
            constants[maker.output] = replace(maker.output, data=data, producer=None)
        return _over(node, constants)

    def takes_more(self, node: Node, allowance: int) -> bool:
        """Whether results take more memory than the constants that they are made of, and than is allowed."""
        held = sum(value.data.nbytes for value in self._needed(node) if value.data is not None)
        return not sum(map(_bytes, node.outputs)) <= max(held, allowance)

    def _computed(self, node: Node) -> Array | None:
        made = [self._made[value][1] for value in self._needed(node) if value.data is None]
        if not all(map(_is_view, made)):
            return None
        if self._lies(node):
            large = not _bytes(node.output) <= _MAX_VIEW_BYTES
        else:
            large = self.takes_more(node, self._allowance)
        whole = None if large else self.of_constants(node)
        return None if whole is None else _evaluated(whole)

    def _lies(self, node: Node) -> bool:
        """Whether it is a view of a constant that can be read as that lies."""
        if not _is_view(node):
            return False
        operand = node.required(0)
        below = self._lying.get(operand) if operand.data is None else np.asarray(operand.data)
        view = None if below is None else strided_view(node, below)
        if view is not None:
            self._lying[node.output] = view
        return view is not None

    def _needed(self, node: Node) -> Iterable[Value]:
        """What a node reads, and what that is made of."""
        needed = dict.fromkeys(value for value in node.inputs if value is not None)
        pending = list(needed)
        while pending:
            value = pending.pop()
            maker = self._made[value][1] if value.data is None else None
            for operand in () if maker is None else maker.inputs:
                if operand is not None and operand not in needed:
                    needed[operand] = None
                    pending.append(operand)
        return needed


def contents(value: Value) -> Array | None:
    """What a constant holds, or what a few operators make of constants, such as views, or dequantized bytes; None: it is
    neither.
    """
    if value.data is not None:
        return np.asarray(value.data)
    constants = dict[Value, Value]()
    makers = list[Node]()
    pending = [value]
    while pending:
        at = pending.pop()
        if at.data is not None:
            constants[at] = at
        elif at.producer is None or at.producer.is_call or len(makers) == _MOST_MAKERS:
            return None
        else:
            makers.append(at.producer)
            pending += [operand for operand in at.producer.inputs if operand is not None]
    for node in reversed(makers):  # one that two read stands twice, and here behind what it reads
        data = _evaluated(_over(node, constants))
        if data is None:
            return None
        constants[node.output] = replace(node.output, data=data, producer=None)
    return np.asarray(constants[value].data)


def _is_view(node: Node) -> bool:
    """Whether it gives the elements of one operand elsewhere."""
    return OPERATORS[node.op].kind is Kind.VIEW and node.op != "concat"


def _evaluated(node: Node, *, with_iota: bool = False) -> Array | None:
    """What a node of constants makes; an index out of range is for the run to tell."""
    try:
        return evaluate_constant(node, _MAX_ELEMENTS, with_iota=with_iota)
    except ShapeError:
        return None


def _over(node: Node, constants: Mapping[Value, Value]) -> Node:
    return replace(node, inputs=tuple(None if v is None else constants[v] for v in node.inputs))


def _bytes(value: Value) -> float:
    """As far as known."""
    extents = [dim for dim in value.shape or () if isinstance(dim, int)]
    known = value.shape is not None and len(extents) == len(value.shape)
    return math.prod(extents) * value.dtype.itemsize if known else math.inf
