"""Computes equal operators once, and keeps equal constants once.

    Requires: basic operators. Ensures: no two operators have the same op, operands and attributes; no two
    constants that operators read have the same bytes.

    a = exp(x); b = exp(x); return a + b   =>   a = exp(x); return a + a, where a is of both origins

Constants are compared in full only where a few of their elements are the same, so that mapped ones
are not read for it. Vendor operators stay, they may be impure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.ir import DType, Graph, Node, Value

_SAMPLED = 16
"""Elements of a constant that are looked at before its contents are compared."""


def eliminate_common(graph: Graph) -> bool:
    """True if something was removed."""
    constants = _Constants()
    known: dict[Any, Node] = {}
    changed = False
    for node in graph.sorted_nodes():
        inputs = tuple(map(constants.first, node.inputs))
        if inputs != node.inputs:
            graph.set_inputs(node, inputs)
            changed = True
        if node.is_call:
            continue
        key = (node.op, inputs, node.frozen_attrs)
        first = known.setdefault(key, node)
        if first is node:
            continue
        first.origin = tuple(dict.fromkeys((*first.origin, *node.origin)))
        graph.replace_uses(node.output, first.output)
        graph.remove(node)
        changed = True
    return changed


class _Constants:
    """The first of each set of equal constants."""

    def __init__(self) -> None:
        self._only: dict[Any, Value | None] = {}
        """The one of a type and shape, whose contents need not be looked at; None: there are several."""
        self._alike: dict[Any, list[Value]] = {}
        self._first: dict[Value, Value] = {}

    def first(self, value: Value | None) -> Value | None:
        if value is None or value.data is None or value.dtype is DType.OPAQUE:
            return value
        known = self._first.get(value)
        if known is None:
            known = self._first[value] = self._find(value, value.data)
        return known

    def _find(self, value: Value, data: NDArray[Any]) -> Value:
        kind = value.dtype, value.shape
        if kind not in self._only:
            self._only[kind] = value
            return value
        only, self._only[kind] = self._only[kind], None
        if only is not None and only.data is not None:
            self._alike.setdefault((*kind, _sample(only.data)), []).append(only)
        alike = self._alike.setdefault((*kind, _sample(data)), [])
        for other in alike:
            assert other.data is not None
            if _same_bytes(other.data, data):
                return other
        alike.append(value)
        return value


def _sample(data: NDArray[Any]) -> bytes:
    """Some elements, evenly spread."""
    if data.size <= _SAMPLED:
        return data.tobytes()
    if not data.flags.c_contiguous:
        return data.flat[:: data.size // _SAMPLED].tobytes()
    return data.ravel()[:: data.size // _SAMPLED].tobytes()


def _same_bytes(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if a is b:
        return True
    left, right = (np.ascontiguousarray(data).reshape(-1).view(np.uint8) for data in (a, b))
    return np.array_equal(left, right)
