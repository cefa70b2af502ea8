"""Extents that operands hold only in a run: targets of Reshape, bounds of Slice, the count of a Range.

In: an ONNX operator whose operands decide extents, and are not known as dims. Out: the dims it is decomposed
over, as if they were known. Those that only the values tell are fresh symbols.

A `host` operator (`runtime/host_ops/extents.cpp`) reads the operands, refuses what the operator does not take, and
gives the extents as those of a tensor without elements, behind a first extent of 0: so they bind the symbols as
extents of any other result do. It gets the shape of the tensor, never the tensor, which may die in a kernel.

Extents that follow from operands known in part are no symbols: of a Reshape to [n, 12, k] only k is one. Operators
that read the same elements share their symbols, so that what two of them give is known to have the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dvm_graph.decompose.host import add_host, fresh_dim
from dvm_graph.decompose.registry import Operands
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.contents import MAX_ELEMENTS
from dvm_graph.symbolic.dims import product

Element: TypeAlias = tuple[Value, int]
"""A value and the position of one of its elements."""
Content: TypeAlias = Dim | Element

_INTEGERS = frozenset({DType.INT32, DType.INT64})


def contents_of(builder: Builder, value: Value) -> tuple[Content, ...] | None:
    """The elements of a shape tensor as far as they are known, others as where they are from.

    None: their number is not known, or too large, or their type is none that extents have.
    """
    if value.elements is not None:
        return value.elements
    if value.shape is None or value.dtype not in _INTEGERS:
        return None
    count = builder.facts.canonical(product(value.shape))
    if not isinstance(count, int) or count > MAX_ELEMENTS:
        return None
    node = value.producer
    if node is not None and node.op in ("reshape", "cast", "concat"):
        parts = [contents_of(builder, operand) for operand in node.inputs if operand is not None]
        if value.rank <= 1 or node.op != "concat":
            found = [part for part in parts if part is not None]
            if len(found) == len(parts):
                return tuple(element for part in found for element in part)
    return tuple((value, at) for at in range(count))


def assume_count(builder: Builder, node: Node, values: Value | None, count: int) -> None:
    """That a list has as many elements as the operator demands, where nobody knows that: of a part of a shape, say."""
    if values is None or values.shape is None or values.rank != 1:
        return
    if builder.facts.prove_equal(values.shape[0], count).unknown:
        reason = f"{node.op} {node.name!r} needs so many elements of {values.name!r}"
        builder.facts.assume_equal(values.shape[0], count, reason)


def known(content: Content) -> Dim | None:
    """A content as a dim; None: only the run tells."""
    return None if isinstance(content, tuple) else content


def bound_extents(
    builder: Builder,
    node: Node,
    operands: Operands,
    dims: Sequence[Dim | None],
    arguments: Sequence[int] = (),
) -> tuple[Dim, ...]:
    """Dims that a host operator makes of operands, which stand for those of the node.

    `dims` are those that are known already, which each run confirms; None becomes a symbol.
    """
    key = (
        node.op,
        tuple(arguments),
        tuple(dims),
        *(_identity(builder, value) for value in operands),
    )
    value = builder.shared(key)
    if value is None:
        extents = (
            fresh_dim(builder, node, 0, axis) if dim is None else dim
            for axis, dim in enumerate(dims)
        )
        types = [(DType.INT64, (0, *extents))]
        (value,) = add_host(builder, node, operands, arguments, types, op=f"{node.op}Extents")
        builder.share(key, value)
    return shape_of(value)[1:]


def shape_operand(builder: Builder, x: Value) -> Value | None:
    """The shape of a tensor as an operand; None: a scalar's."""
    return builder.shape_of(x) if x.rank else None


def _identity(builder: Builder, value: Value | None) -> object:
    if value is None:
        return None
    contents = contents_of(builder, value)
    return value if contents is None else contents
