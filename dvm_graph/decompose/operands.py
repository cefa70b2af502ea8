"""Reading operands and attributes of ONNX nodes: axes, contents of shape tensors, scalars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dvm_graph.decompose.registry import Operands
from dvm_graph.errors import ModelError
from dvm_graph.ir import Dim, Node, Value


def operand(operands: Operands, index: int) -> Value | None:
    """An operand that may be omitted."""
    return operands[index] if index < len(operands) else None


def required(node: Node, operands: Operands, index: int) -> Value:
    """An operand that the operator's definition demands.

    Raises:
        ModelError: the model omits it.
    """
    value = operand(operands, index)
    if value is None:
        raise ModelError(f"{node.op} {node.name!r}: operand {index} is missing")
    return value


def present(operands: Operands) -> list[Value]:
    """The operands that are not omitted."""
    return [value for value in operands if value is not None]


def normalize_axis(node: Node, axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ModelError: outside [-rank, rank).
    """
    if not -rank <= axis < max(rank, 1):
        raise ModelError(f"{node.op} {node.name!r}: axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis


def normalize_axes(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(sorted({normalize_axis(node, int(axis), rank) for axis in axes}))


def distinct_axes(node: Node, axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the first, in the order that they are told in.

    Raises:
        ModelError: one is told twice.
    """
    found = tuple(normalize_axis(node, int(axis), rank) for axis in axes)
    if len(set(found)) != len(found):
        raise ModelError(f"{node.op} {node.name!r}: axes {list(axes)} name one twice")
    return found


def integers(values: Sequence[Dim] | None) -> tuple[int, ...] | None:
    """The values where all are known numbers."""
    if values is None or not all(isinstance(value, int) for value in values):
        return None
    return tuple(values)


def elements(operands: Operands, index: int) -> tuple[Dim, ...] | None:
    """Contents of a shape tensor; None where it is omitted or its contents are not known."""
    value = operand(operands, index)
    return None if value is None else value.elements


def constant_scalar(value: Value) -> Any | None:
    """The one number in a constant, of any dtype; None: not a constant of one element."""
    if value.data is None or value.data.size != 1:
        return None
    return value.data.reshape(-1)[0].item()


def text(node: Node, name: str, default: str) -> str:
    """A string attribute."""
    value = node.attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)
