"""Sequences and optional values: `host` operators, whose results are looked into where what they hold is known.

In: an ONNX operator over sequences or optional values of tensors that kernels can hold. Out: a `host` operator
(`runtime/host_ops/sequences.cpp`, `optionals.cpp`), and for a tensor that is taken out where all is known, the tensor
that was put in: then nobody reads the sequence, and it goes away. Parts of known sizes are views of what is split.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from dvm_graph.decompose.arithmetic import with_axis, without_axes
from dvm_graph.decompose.host import add_host, fresh_dim
from dvm_graph.decompose.operands import (
    constant_scalar,
    integers,
    normalize_axis,
    operand,
    present,
    required,
)
from dvm_graph.decompose.registry import Operands, Results, decomposition, of_containers
from dvm_graph.decompose.slicing import part
from dvm_graph.import_.tensors import dtype_of
from dvm_graph.import_.types import optional_of
from dvm_graph.ir import DType, Holding, Node, Shape, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.holdings import holding, joined

_MOST_PARTS = 64
"""Longer sequences are made at run time, whatever is known of them."""


def _value(
    builder: Builder,
    node: Node,
    operands: Operands,
    holding: Holding,
    arguments: Sequence[int] = (),
    members: tuple[Value, ...] | None = None,
) -> list[Value]:
    """The sequence or optional value that the operator gives."""
    (result,) = add_host(builder, node, operands, arguments, [(DType.OPAQUE, None)])
    result.holds = holding
    result.members = members if members is None or len(members) <= _MOST_PARTS else None
    return [result]


def _tensor(builder: Builder, node: Node, operands: Operands, held: Holding) -> list[Value] | None:
    """A tensor that the run takes out; None: nobody knows its rank."""
    if held.shape is None:
        return None
    shape = tuple(
        fresh_dim(builder, node, 0, axis) if dim is None else dim
        for axis, dim in enumerate(held.shape)
    )
    return add_host(builder, node, operands, (), [(held.dtype, shape)])


def _sequence(node: Node, operands: Operands) -> tuple[Value, Holding] | None:
    value = required(node, operands, 0)
    held = value.holds
    if held is None or not held.sequence or held.optional:
        return None
    return value, held


def _place(value: Value | None, count: int, default: int) -> int | None:
    """A place in a list with so many of them; None: it is not known, or not there."""
    index = default if value is None else constant_scalar(value)
    if index is None or not -count <= index < count:
        return None
    return int(index) % count


@decomposition("SequenceConstruct")
@of_containers
def sequence_construct(builder: Builder, node: Node, operands: Operands) -> Results:
    values = tuple(present(operands))
    if not values or not all(value.computable for value in values):
        return None
    held = holding(values, builder.facts)
    if held is None or held.dtype is DType.BFLOAT16:
        return None
    return _value(builder, node, operands, held, members=values)


@decomposition("SequenceEmpty")
@of_containers
def sequence_empty(builder: Builder, node: Node, operands: Operands) -> Results:
    dtype = dtype_of(node.attrs.get("dtype", 1))
    if dtype in (DType.OPAQUE, DType.BFLOAT16):
        return None
    return _value(builder, node, operands, Holding(dtype, empty=True), members=())


@decomposition("SequenceAt")
@of_containers
def sequence_at(builder: Builder, node: Node, operands: Operands) -> Results:
    found = _sequence(node, operands)
    if found is None:
        return None
    sequence, held = found
    if sequence.members:
        place = _place(required(node, operands, 1), len(sequence.members), -1)
        if place is not None:
            return [sequence.members[place]]
    return _tensor(builder, node, operands, held)


@decomposition("SequenceInsert")
@of_containers
def sequence_insert(builder: Builder, node: Node, operands: Operands) -> Results:
    found = _sequence(node, operands)
    tensor = required(node, operands, 1)
    if found is None or not tensor.computable:
        return None
    sequence, held = found
    grown = joined(held, Holding(tensor.dtype, tensor.shape), builder.facts)
    if grown is None:
        return None
    members = sequence.members
    if members is not None:
        # Behind the last one is a place, too, which counts from the front alone.
        given = operand(operands, 2)
        index = len(members) if given is None else constant_scalar(given)
        inside = index is not None and -len(members) <= index <= len(members)
        members = (*members[:index], tensor, *members[index:]) if inside else None
    return _value(builder, node, operands, grown, members=members)


@decomposition("SequenceErase")
@of_containers
def sequence_erase(builder: Builder, node: Node, operands: Operands) -> Results:
    found = _sequence(node, operands)
    if found is None:
        return None
    sequence, held = found
    members = sequence.members
    if members is not None:
        place = _place(operand(operands, 1), len(members), len(members) - 1)
        members = None if place is None else (*members[:place], *members[place + 1 :])
    return _value(builder, node, operands, held, members=members)


@decomposition("SequenceLength")
@of_containers
def sequence_length(builder: Builder, node: Node, operands: Operands) -> Results:
    found = _sequence(node, operands)
    if found is None:
        return None
    if found[0].members is not None:
        return [builder.scalar(len(found[0].members), DType.INT64)]
    return add_host(builder, node, operands, (), [(DType.INT64, ())])


@decomposition("SplitToSequence")
@of_containers
def split_to_sequence(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if not x.computable or x.dtype is DType.BFLOAT16:
        return None
    axis = normalize_axis(node, node.attrs.get("axis", 0), x.rank)
    keeps = operand(operands, 1) is not None or bool(node.attrs.get("keepdims", 1))
    sizes = _sizes(builder, node, operands, x, axis)
    shape = shape_of(x)
    members: tuple[Value, ...] | None = None
    if sizes is not None and len(sizes) <= _MOST_PARTS:
        starts = itertools.accumulate(sizes, initial=0)
        pairs = zip(starts, sizes, strict=False)
        parts = [part(builder, x, axis, start, size) for start, size in pairs]
        members = tuple(parts if keeps else [without_axes(builder, p, (axis,)) for p in parts])
    row = _size_of_each(operand(operands, 1))
    if sizes is not None and len(set(sizes)) == 1:
        row = sizes[0]
    rest: Shape = (row,) if keeps else ()
    held = Holding(x.dtype, (*shape[:axis], *rest, *shape[axis + 1 :]))
    return _value(builder, node, operands, held, (axis, keeps), members)


def _size_of_each(given: Value | None) -> int | None:
    """The size that all parts have, whatever the extent and however many there are.

    That is the one number of a vector of any length, as torch makes it; of a scalar the last part may have less, unless it is 1.
    """
    if given is None:
        return 1
    spread = given.made_by("broadcast_to")
    size = constant_scalar(given if spread is None else spread.required(0))
    return size if given.rank or size == 1 else None


def _sizes(
    builder: Builder, node: Node, operands: Operands, x: Value, axis: int
) -> list[int] | None:
    """The sizes of all parts, where they are known."""
    extent, given = shape_of(x)[axis], operand(operands, 1)
    known = None if given is None else integers(given.elements)
    if given is not None and (known is None or min(known, default=0) < 0):
        return None
    if given is not None and given.rank and known is not None:
        what = f"the parts of {node.name} are the whole"
        builder.facts.assume_equal(sum(known), extent, what)
        return list(known)
    size = 1 if known is None else known[0]
    if not isinstance(extent, int) or size <= 0 or extent > size * _MOST_PARTS:
        return None
    return [min(size, extent - start) for start in range(0, extent, size)]


@decomposition("ConcatFromSequence")
@of_containers
def concat_from_sequence(builder: Builder, node: Node, operands: Operands) -> Results:
    found = _sequence(node, operands)
    if found is None:
        return None
    sequence, held = found
    given, stacks = int(node.attrs["axis"]), bool(node.attrs.get("new_axis", 0))
    if held.shape is None or (held.empty and not sequence.members):
        return None
    rank = len(held.shape) + stacks
    axis = normalize_axis(node, given, rank)
    if sequence.members:
        parts = list(sequence.members)
        if stacks:
            parts = [with_axis(builder, value, axis) for value in parts]
        return [parts[0] if len(parts) == 1 else builder.concat(parts, axis)]
    dims = [
        fresh_dim(builder, node, 0, at) if dim is None else dim for at, dim in enumerate(held.shape)
    ]
    if stacks:
        dims.insert(axis, None)
    dims[axis] = fresh_dim(builder, node, 0, axis)
    return add_host(builder, node, operands, (axis, stacks), [(held.dtype, tuple(dims))])


@decomposition("Optional")
@of_containers
def optional(builder: Builder, node: Node, operands: Operands) -> Results:
    value = operand(operands, 0)
    if value is None:
        nothing = optional_of(node.attrs["type"])
        return None if nothing is None else _value(builder, node, operands, nothing)
    if value.holds is not None:
        held = replace(value.holds, optional=True)
    elif value.computable and value.dtype is not DType.BFLOAT16:
        held = Holding(value.dtype, value.shape, sequence=False, optional=True)
    else:
        return None
    return _value(builder, node, operands, held, members=(value,))


@decomposition("OptionalGetElement")
@of_containers
def optional_get_element(builder: Builder, node: Node, operands: Operands) -> Results:
    value = required(node, operands, 0)
    held = value.holds
    if held is None or not held.optional:
        return [value]
    if value.members is not None:
        return value.members
    if held.sequence:
        return _value(builder, node, operands, replace(held, optional=False))
    return _tensor(builder, node, operands, held)


@decomposition("OptionalHasElement")
@of_containers
def optional_has_element(builder: Builder, node: Node, operands: Operands) -> Results:
    value = operand(operands, 0)
    if value is None:
        return [builder.scalar(False, DType.BOOL)]
    held = value.holds
    if held is None or not held.optional or value.members is not None:
        return [builder.scalar(True, DType.BOOL)]
    return add_host(builder, node, operands, (), [(DType.BOOL, ())])
