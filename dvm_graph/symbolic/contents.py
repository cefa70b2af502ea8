"""Symbolic contents of small integer tensors.

Purpose: what a basic operator makes of operands whose elements are known as dims, so that chains of
shape arithmetic (`Shape -> Gather -> Concat -> Reshape`) become expressions.

Inputs and outputs: a node whose result has its shape and dtype; elements out, flat and row-major,
or None where they are not known. Booleans are 0 or 1, or an expression that is. Symbolic elements
are taken to fit 32 and 64 bits, which runs confirm; numbers are wrapped to their dtype.

What it does not do: tensors of more than `MAX_ELEMENTS` elements, or of floats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic import dims
from dvm_graph.symbolic.dims import is_static
from dvm_graph.symbolic.intervals import bounds
from dvm_graph.symbolic.polynomial import Dim, polynomial

MAX_ELEMENTS = 64

Elements: TypeAlias = tuple[Dim, ...]
_Index: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class _UnknownError(Exception):
    """The elements are not known; never leaves this module."""


def deduce_elements(node: Node) -> Elements | None:
    """The elements of the result of a basic node, None where they are not known."""
    operands = []
    for operand in node.inputs:
        if operand is None or operand.elements is None:
            return None
        operands.append(operand)
    result = node.output
    if result.dtype.is_float or result.dtype is DType.OPAQUE:
        return None
    shape = result.shape
    if shape is None or not is_static(shape):
        return None
    count = math.prod(shape)
    if count > MAX_ELEMENTS:
        return None
    try:
        return _fit(_deduce(node, operands, count), result.dtype)
    except _UnknownError:
        return None


def _deduce(node: Node, operands: Sequence[Value], count: int) -> Sequence[Dim]:
    function = _MAPS.get(node.op)
    if function is not None:
        columns = [_broadcast(operand, node.output, count) for operand in operands]
        return [function(*row) for row in zip(*columns, strict=True)]
    if node.op == "cast":
        return _cast(_elements(operands[0]), operands[0].dtype, node.output.dtype)
    if node.op in _LOGICAL:
        return _bitwise(node, operands, count)
    if node.op == "check_index":
        limit = node.attrs["limit"]
        return [_wrap_index(element, limit) for element in _elements(operands[0])]
    if node.op in _FOLDS:
        return _reduce(node, operands[0])
    rule = _ARRANGEMENTS.get(node.op)
    if rule is None:
        raise _UnknownError
    return rule(node, operands)


def _elements(value: Value) -> Elements:
    assert value.elements is not None, value.name
    return value.elements


def _positions(value: Value) -> _Index:
    return np.arange(len(_elements(value))).reshape(value.shape)


def _picked(value: Value, index: _Index) -> list[Dim]:
    elements = _elements(value)
    return [elements[i] for i in index.reshape(-1).tolist()]


def _broadcast(value: Value, result: Value, count: int) -> Sequence[Dim]:
    elements = _elements(value)
    if value.shape == result.shape:
        return elements
    if len(elements) == 1:
        return elements * count
    return _picked(value, np.broadcast_to(_positions(value), shape_of(result)))


_LARGEST_NUMBER = 2**62
"""In an expression that is taken to fit 64 bits."""


def _fit(elements: Sequence[Dim], dtype: DType) -> Elements:
    """The elements as the dtype holds them: numbers wrap; what may lie outside of 32 bits is for runs to check.

    Raises:
        _UnknownError: an expression may be outside of its type; kernels compute it, and wrap.
    """
    if dtype is DType.BOOL:
        return tuple(elements)
    limits = np.iinfo(dtype.value)
    fitted = []
    for element in elements:
        if isinstance(element, int):
            span = int(limits.max) - int(limits.min) + 1
            fitted.append((element - int(limits.min)) % span + int(limits.min))
            continue
        if any(abs(number) > _LARGEST_NUMBER for number in polynomial(element).values()):
            raise _UnknownError  # it wraps for some extents
        low, high = bounds(element)
        if limits.bits < 32 and not limits.min <= low <= high <= limits.max:
            raise _UnknownError
        if limits.min == 0 and low < 0:
            raise _UnknownError
        fitted.append(element)
    return tuple(fitted)


# -- element-wise operators


def _truncdiv(a: Dim, b: Dim) -> Dim:
    return 0 if b == 0 else dims.truncdiv(a, b)


def _mod(a: Dim, b: Dim) -> Dim:
    return 0 if b == 0 else dims.mod(a, b)


def _fmod(a: Dim, b: Dim) -> Dim:
    return 0 if b == 0 else dims.sub(a, dims.mul(b, dims.truncdiv(a, b)))


def _pow(base: Dim, exponent: Dim) -> Dim:
    if not isinstance(exponent, int) or not 0 <= exponent <= MAX_ELEMENTS:
        raise _UnknownError
    return dims.product([base] * exponent)


def _sign(a: Dim) -> Dim:
    return dims.sub(dims.less(0, a), dims.less(a, 0))


def _abs(a: Dim) -> Dim:
    return dims.maximum(a, dims.neg(a))


def _shift_left(a: Dim, count: Dim) -> Dim:
    return dims.mul(a, _power_of_two(count))


def _shift_right(a: Dim, count: Dim) -> Dim:
    return dims.floordiv(a, _power_of_two(count))


def _power_of_two(count: Dim) -> int:
    if not isinstance(count, int) or not 0 <= count < 63:
        raise _UnknownError
    return 1 << count


_MAPS: dict[str, Callable[..., Dim]] = {
    "add": dims.add,
    "sub": dims.sub,
    "mul": dims.mul,
    "div": _truncdiv,
    "mod": _mod,
    "fmod": _fmod,
    "pow": _pow,
    "min": dims.minimum,
    "max": dims.maximum,
    "abs": _abs,
    "neg": dims.neg,
    "sign": _sign,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "eq": dims.equal,
    "ne": dims.not_equal,
    "lt": dims.less,
    "le": dims.less_equal,
    "gt": lambda a, b: dims.less(b, a),
    "ge": lambda a, b: dims.less_equal(b, a),
    "select": dims.select,
    "logical_not": dims.logical_not,
}


def _bitwise(node: Node, operands: Sequence[Value], count: int) -> list[Dim]:
    """Logic of booleans; of integers only where all are numbers."""
    columns = [_broadcast(operand, node.output, count) for operand in operands]
    on_bools, on_ints = _LOGICAL[node.op]
    if node.output.dtype is DType.BOOL:
        return [on_bools(*row) for row in zip(*columns, strict=True)]
    if not all(is_static(column) for column in columns):
        raise _UnknownError
    return [on_ints(*row) for row in zip(*columns, strict=True)]


_LOGICAL: dict[str, tuple[Callable[..., Dim], Callable[..., int]]] = {
    "bitwise_and": (dims.logical_and, lambda a, b: a & b),
    "bitwise_or": (dims.logical_or, lambda a, b: a | b),
    "bitwise_xor": (dims.not_equal, lambda a, b: a ^ b),
    "bitwise_not": (dims.logical_not, lambda a: ~a),
}


def _cast(elements: Elements, source: DType, target: DType) -> Sequence[Dim]:
    if target is DType.BOOL and source is not DType.BOOL:
        return [dims.not_equal(element, 0) for element in elements]
    return elements


def _wrap_index(index: Dim, limit: Dim) -> Dim:
    return dims.select(dims.less(index, 0), dims.add(index, limit), index)


# -- reductions


def _extremum(function: Callable[[Dim, Dim], Dim], elements: Sequence[Dim]) -> Dim:
    if not elements:
        raise _UnknownError
    return functools.reduce(function, elements)


_FOLDS: dict[str, Callable[[Sequence[Dim]], Dim]] = {
    "reduce_sum": lambda elements: functools.reduce(dims.add, elements, 0),
    "reduce_prod": dims.product,
    "reduce_max": lambda elements: _extremum(dims.maximum, elements),
    "reduce_min": lambda elements: _extremum(dims.minimum, elements),
}


def _reduce(node: Node, operand: Value) -> list[Dim]:
    axes = node.attrs["axes"]
    kept = [axis for axis in range(operand.rank) if axis not in axes]
    length = math.prod([shape_of(operand)[axis] for axis in axes])
    shape = math.prod(shape_of(node.output)), length
    rows = _positions(operand).transpose((*kept, *axes)).reshape(shape)
    elements, fold = _elements(operand), _FOLDS[node.op]
    return [fold([elements[i] for i in row]) for row in rows.tolist()]


# -- operators that only rearrange


def _transpose(node: Node, operands: Sequence[Value]) -> list[Dim]:
    return _picked(operands[0], _positions(operands[0]).transpose(node.attrs["perm"]))


def _broadcast_to(node: Node, operands: Sequence[Value]) -> Sequence[Dim]:
    return _broadcast(operands[0], node.output, math.prod(shape_of(node.output)))


def _slice(node: Node, operands: Sequence[Value]) -> list[Dim]:
    starts, steps, sizes = (node.attrs[name] for name in ("starts", "steps", "sizes"))
    if not (is_static(starts) and is_static(steps)):
        raise _UnknownError
    index = _positions(operands[0])
    for axis, (start, step, size) in enumerate(zip(starts, steps, sizes, strict=True)):
        index = index.take([start + i * step for i in range(size)], axis)
    return _picked(operands[0], index)


def _concat(node: Node, operands: Sequence[Value]) -> list[Dim]:
    if all(operand.rank == 1 for operand in operands):
        return [element for operand in operands for element in _elements(operand)]
    elements: list[Dim] = []
    indices = []
    for operand in operands:
        indices.append(_positions(operand) + len(elements))
        elements += _elements(operand)
    index = np.concatenate(indices, node.attrs["axis"])
    return [elements[i] for i in index.reshape(-1).tolist()]


def _gather(node: Node, operands: Sequence[Value]) -> list[Dim]:
    x, index = operands
    wanted = _elements(index)
    if not is_static(wanted):
        raise _UnknownError
    axis = node.attrs["axis"]
    extent = shape_of(x)[axis]
    for i in wanted:
        if not -extent <= i < extent:
            raise ShapeError(
                f"gather of {node.where}: index {i} is outside an axis of extent {extent}"
            )
    positions = np.array(wanted, np.int64).reshape(index.shape)
    return _picked(x, _positions(x).take(positions, axis, mode="wrap"))


def _iota(node: Node, _operands: Sequence[Value]) -> list[Dim]:
    shape, axis = node.attrs["shape"], node.attrs["axis"]
    start, step = node.attrs["start"], node.attrs["step"]
    steps = np.indices(shape)[axis].reshape(-1).tolist() if shape else [0]
    return [dims.add(start, dims.mul(i, step)) for i in steps]


_ARRANGEMENTS: dict[str, Callable[[Node, Sequence[Value]], Sequence[Dim]]] = {
    "reshape": lambda _node, operands: _elements(operands[0]),
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "slice": _slice,
    "concat": _concat,
    "gather": _gather,
    "iota": _iota,
    "dims": lambda node, _operands: tuple(node.attrs["elements"]),
}
