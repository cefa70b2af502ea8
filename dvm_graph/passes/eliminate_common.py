"""Computes equal operators once.

    Requires: basic operators. Ensures: no two operators have the same op, operands and attributes.

    a = exp(x); b = exp(x); return a + b   =>   a = exp(x); return a + a

Constants with equal bytes count as one operand. Vendor operators stay, they may be impure.
"""

from __future__ import annotations

from typing import Any

from dvm_graph.ir import Graph, Node, Value

_MAX_COMPARED_BYTES = 1 << 12
"""Larger constants are the same only if they are one value."""


def eliminate_common(graph: Graph) -> bool:
    """True if something was removed."""
    outputs = set(graph.outputs)
    constants: dict[Any, int] = {}
    known: dict[Any, Node] = {}
    changed = False
    for node in graph.sorted_nodes():
        if node.op == "vendor":
            continue
        key = (
            node.op,
            tuple(_operand(value, constants) for value in node.inputs),
            tuple(sorted(((name, _frozen(attr)) for name, attr in node.attrs.items()), key=_first)),
        )
        first = known.setdefault(key, node)
        if first is node or node.output in outputs:
            continue
        graph.replace_uses(node.output, first.output)
        graph.remove(node)
        changed = True
    return changed


def _first(item: tuple[str, Any]) -> str:
    return item[0]


def _frozen(attr: Any) -> Any:
    return tuple(attr) if isinstance(attr, list) else attr


def _operand(value: Value | None, constants: dict[Any, int]) -> int:
    """A number that equal operands share."""
    if value is None:
        return 0
    data = value.data
    if data is None or data.nbytes > _MAX_COMPARED_BYTES:
        return id(value)
    return constants.setdefault((value.dtype, value.shape, data.tobytes()), id(value))
