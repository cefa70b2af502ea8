"""The builder: how every part of the compiler makes basic operators.

Purpose: make a node, deduce its result, add it to the graph; or find that no node is needed,
because the result is an operand (a view that changes nothing) or is known (shape arithmetic).

Invariants: every value made here has its shape and dtype. Results whose elements are all known are
constants (if numbers) or come from a `dims` node (if expressions): an exporter's chain of shape
operators leaves nothing behind but the expressions.

What it does not do: look for common subexpressions or larger constants; passes do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dvm_graph.ir import DType, Graph, Node, Value, shape_of
from dvm_graph.options import DEFAULTS, Options
from dvm_graph.symbolic.builder_methods import OperatorMethods
from dvm_graph.symbolic.contents import MAX_ELEMENTS
from dvm_graph.symbolic.dims import is_static
from dvm_graph.symbolic.facts import Facts
from dvm_graph.symbolic.numeric import evaluate_constant
from dvm_graph.symbolic.polynomial import Dim
from dvm_graph.symbolic.shape_functions import describe, infer

_Key: TypeAlias = tuple[Any, ...]


class Builder(OperatorMethods):
    """Builds basic operators at the end of a graph. Methods named as operators are inherited."""

    def __init__(self, graph: Graph, facts: Facts, options: Options | None = None) -> None:
        self.graph = graph
        self.facts = facts
        self.options = options or DEFAULTS
        self._constants: dict[_Key, Value] = {}
        self._dims: dict[_Key, Value] = {}
        self.inside: tuple[tuple[str, ...], Mapping[str, str], str] = ((), {}, "")
        """Origin, metadata and stem of names of what is built: see `scope`."""
        self.most_axes = 0
        """Of the loops of an operator built since this was set to 0."""
        self.meanings: dict[Value, object] = {}
        """What decompositions note of values that they built, for those that read them."""
        self._shared: dict[object, Value] = {}

    def scope(self, onnx_node: Node) -> _Scope:
        """Nodes built inside come from this ONNX node: name, origin and metadata."""
        return _Scope(self, onnx_node)

    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """The result of a basic operator.

        Raises:
            ShapeError: operands whose shapes contradict the operator or each other.
            ModelError: operands of wrong number or dtypes.
            TypeError: the result is of a type that only vendor operators know.
        """
        self.facts.meter.step()
        trivial = _TRIVIAL.get(name)
        if trivial is not None and trivial(operands, attrs, self.facts):
            return operands[0]
        node = self._node(name, operands, attrs)
        result = node.outputs[0]
        if result.dtype is DType.OPAQUE:
            raise TypeError(f"{describe(node)}: kernels do not compute with this type")
        known = self._known(node, result)
        return self._insert(node) if known is None else known

    def scalar(self, value: float | int | bool, dtype: DType) -> Value:
        """A constant of rank 0."""
        key = (dtype, type(value), str(value))
        known = self._constants.get(key)
        if known is None:
            data = np.array(value).astype(dtype.numpy)
            known = self._constants[key] = self.graph.constant(data, "scalar")
        return known

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        """A constant; of small ones, equal arrays give the same value."""
        if array.size > MAX_ELEMENTS or array.dtype == object:
            return self.graph.constant(array, f"{self.inside[2]}constant")
        key = (array.dtype, array.shape, array.tobytes())
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self.graph.constant(array, f"{self.inside[2]}constant")
        return known

    def shape_of(self, value: Value) -> Value:
        """The shape of a value as a tensor (ONNX Shape)."""
        return self.dims(shape_of(value))

    def dims(
        self,
        elements: Sequence[Dim],
        shape: Sequence[int] | None = None,
        dtype: DType = DType.INT64,
    ) -> Value:
        """An integer tensor of dims, of rank 1 unless a shape is given; a constant if of numbers."""
        elements = tuple(elements)
        shape = (len(elements),) if shape is None else tuple(shape)
        if is_static(elements):
            return self.constant(np.array(elements, dtype.numpy).reshape(shape))
        key = (dtype, shape, elements)
        known = self._dims.get(key)
        if known is not None and known.producer in self.graph:
            return known
        value = self._insert(self._node("dims", (), {"elements": elements, "shape": shape}))
        if dtype is not DType.INT64:
            value = self._insert(self._node("cast", (value,), {"dtype": dtype}))
        self._dims[key] = value
        return value

    def shared(self, key: object) -> Value | None:
        """What was shared under a key, if it is still there."""
        value = self._shared.get(key)
        return value if value is not None and value.producer in self.graph else None

    def share(self, key: object, value: Value) -> None:
        """Keeps a result for those that would compute the same."""
        self._shared[key] = value

    def _node(self, name: str, operands: tuple[Value, ...], attrs: dict[str, Any]) -> Node:
        """A node whose result is deduced, in no graph yet."""
        result = Value("", DType.INT64)
        origin, metadata, _ = self.inside
        node = Node("", name, operands, (result,), attrs, origin=origin, metadata=metadata)
        infer(node, self.facts)
        return node

    def _known(self, node: Node, result: Value) -> Value | None:
        """A value that stands for the result without computing anything."""
        if result.elements is not None:
            return self.dims(result.elements, shape_of(result), result.dtype)
        for operand in node.inputs:
            if operand is None or operand.data is None:
                return None
        data = evaluate_constant(node, MAX_ELEMENTS)
        return None if data is None else self.constant(data)

    def _insert(self, node: Node) -> Value:
        result = node.outputs[0]
        node.name = result.name = self.graph.unique_name(f"{self.inside[2]}{node.op}")
        self.most_axes = max(self.most_axes, _loops(node))
        self.graph.add(node)
        return result


class _Scope:
    """Whose nodes a builder builds. Passes enter one for every node: a generator would take several times as long."""

    __slots__ = ("_builder", "_node", "_outer")

    def __init__(self, builder: Builder, node: Node) -> None:
        self._builder, self._node = builder, node

    def __enter__(self) -> None:
        builder, node = self._builder, self._node
        self._outer = builder.inside
        builder.inside = (node.origin or (node.name,), node.metadata, f"{node.name}.")

    def __exit__(self, *_: object) -> None:
        self._builder.inside = self._outer


def _loops(node: Node) -> int:
    """How many axes an operator's loops have: those of its largest tensor, and a contracted one."""
    rank = node.output.rank
    for value in node.inputs:
        if value is not None and value.shape is not None and len(value.shape) > rank:
            rank = len(value.shape)
    return rank + (node.op == "matmul")


# -- operators that return their operand

_Trivial: TypeAlias = Callable[[Sequence[Value], Mapping[str, Any], Facts], bool]


def _same_shape(operands: Sequence[Value], attrs: Mapping[str, Any], facts: Facts) -> bool:
    shape = operands[0].shape
    assert shape is not None
    return facts.same_shape(shape, attrs["shape"])


def _identity_transpose(operands: Sequence[Value], attrs: Mapping[str, Any], _facts: Facts) -> bool:
    return tuple(attrs["perm"]) == tuple(range(operands[0].rank))


def _full_slice(operands: Sequence[Value], attrs: Mapping[str, Any], facts: Facts) -> bool:
    shape = operands[0].shape
    assert shape is not None
    if any(start != 0 for start in attrs["starts"]) or any(step != 1 for step in attrs["steps"]):
        return False
    return facts.same_shape(shape, attrs["sizes"])


def _same_dtype(operands: Sequence[Value], attrs: Mapping[str, Any], _facts: Facts) -> bool:
    return operands[0].dtype is attrs["dtype"]


def _no_axes(_operands: Sequence[Value], attrs: Mapping[str, Any], _facts: Facts) -> bool:
    return not attrs["axes"]


def _single(operands: Sequence[Value], _attrs: Mapping[str, Any], _facts: Facts) -> bool:
    return len(operands) == 1


_TRIVIAL: dict[str, _Trivial] = {
    "reshape": _same_shape,
    "broadcast_to": _same_shape,
    "transpose": _identity_transpose,
    "slice": _full_slice,
    "cast": _same_dtype,
    "concat": _single,
    "reduce_sum": _no_axes,
    "reduce_prod": _no_axes,
    "reduce_max": _no_axes,
    "reduce_min": _no_axes,
}
