"""Extents at which onnxruntime ends the process, as conditions that every run checks before it calls it.

In: a node that becomes a vendor operator, its operands' shapes known or not. Out: expectations in the facts.
What bodies of control flow hold is not looked at: whether it runs is known only then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dvm_graph.errors import DamagedError
from dvm_graph.ir import Dim, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import maximum, minimum
from dvm_graph.symbolic.facts import Relation

Operands = Sequence[Value | None]
_Bounds = Iterable[tuple[Dim, Dim]]
"""Pairs of a dim and one that it must not exceed."""


def expect_survival(node: Node, operands: Operands, facts: Facts) -> None:
    """Has runs raise an error where onnxruntime would end the process.

    Raises:
        DamagedError: it would in all of them.
    """
    if node.op == "GatherND" and int(node.attrs.get("batch_dims", 0)) < 0:
        raise DamagedError(f"{node.op} {node.name!r} has a negative number of batch axes")
    limit = None if node.domain else _LIMITS.get(node.op)
    for low, high in () if limit is None else limit(node, operands):
        facts.expect(
            low,
            Relation.LESS_EQUAL,
            high,
            lambda: f"onnxruntime ends the process over less in {node.op} of {node.name}",
        )


def _shape(operands: Operands, index: int) -> Sequence[Dim]:
    """That of an operand, empty where it is not known."""
    value = operands[index] if index < len(operands) else None
    return () if value is None or value.shape is None else value.shape


def _gru(node: Node, operands: Operands) -> _Bounds:
    return [(1, dim) for dim in _shape(operands, 0)]


def _lstm(node: Node, operands: Operands) -> _Bounds:
    return [(1, dim) for dim in _shape(operands, 0)[1:2]]


def _stft(node: Node, operands: Operands) -> _Bounds:
    """A frame has elements, whether its window or a number says how many, unless there are no signals."""
    length = operands[3] if len(operands) > 3 else None
    known = () if length is None else length.elements or ()
    signals = _shape(operands, 0)
    some = minimum(1, signals[0]) if signals else 1
    return [(some, maximum(0, dim)) for dim in (*_shape(operands, 2), *known)]


_LIMITS: dict[str, Callable[[Node, Operands], _Bounds]] = {
    "GRU": _gru,
    "LSTM": _lstm,
    "STFT": _stft,
}
