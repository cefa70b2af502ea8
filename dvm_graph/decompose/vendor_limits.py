"""Extents at which onnxruntime ends the process, as conditions that every run checks before it calls it.

In: a node that becomes a vendor operator, its operands' shapes known or not. Out: expectations in the facts.
What bodies of control flow hold is not looked at: whether it runs is known only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dvm_graph.ir import Dim, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import minimum
from dvm_graph.symbolic.facts import Relation

Operands = Sequence[Value | None]
_Bounds = Iterable[tuple[Dim, Dim]]
"""Pairs of a dim and one that it must not exceed."""


def expect_survival(node: Node, operands: Operands, facts: Facts) -> None:
    """Has runs raise an error where onnxruntime would end the process."""
    limit = None if node.domain else _LIMITS.get(node.op)
    x = operands[0] if operands else None
    if limit is None or x is None or x.shape is None:
        return
    for low, high in limit(node, x.shape):
        facts.expect(
            low,
            Relation.LESS_EQUAL,
            high,
            lambda: f"onnxruntime ends the process over less in {node.op} of {node.name}",
        )


def _gru(node: Node, shape: Sequence[Dim]) -> _Bounds:
    return [(1, dim) for dim in shape]


def _lstm(node: Node, shape: Sequence[Dim]) -> _Bounds:
    return [(1, dim) for dim in shape[1:2]]


def _unique(node: Node, shape: Sequence[Dim]) -> _Bounds:
    """Slices along an axis, if there are any, have to have elements."""
    axis = node.attrs.get("axis")
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        return []
    axis %= len(shape)
    some = minimum(shape[axis], 1)
    return [(some, dim) for place, dim in enumerate(shape) if place != axis]


_LIMITS: dict[str, Callable[[Node, Sequence[Dim]], _Bounds]] = {
    "GRU": _gru,
    "LSTM": _lstm,
    "Unique": _unique,
}
