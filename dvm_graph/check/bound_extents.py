"""Extents that are values, by numpy: what `host` operators of the runtime are held to.

In: the operator, its arguments and operands as arrays (`decompose/extents` says which). Out: the result, without
elements, whose extents behind the first are the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import Array

_Operands: TypeAlias = Sequence[Array | None]

_LARGEST = (2**31 - 1, 2**63 - 1)


def compute_extents(op: str, arguments: Sequence[int], operands: _Operands) -> Array:
    """The result of an operator of `EXTENTS`.

    Raises:
        ShapeError: the operands contradict each other.
    """
    try:
        extents = EXTENTS[op](operands, arguments)
        if any(extent < 0 for extent in extents):
            raise ValueError("negative extents")
        return np.zeros((0, *extents), np.int64)
    except (IndexError, ValueError, ZeroDivisionError) as error:
        raise ShapeError(f"{op}: {error}") from error


def _numbers(operands: _Operands, index: int) -> list[int]:
    array = operands[index] if index < len(operands) else None
    return [] if array is None else [int(number) for number in array.reshape(-1)]


def _reshape(operands: _Operands, arguments: Sequence[int]) -> Sequence[int]:
    shape, target = _numbers(operands, 0), _numbers(operands, 1)
    copied = [
        shape[axis] if extent == 0 and not arguments[0] else extent
        for axis, extent in enumerate(target)
    ]
    if any(extent < -1 for extent in copied):  # numpy takes them for -1
        raise ValueError(f"{target} is no shape")
    if arguments[0] and 0 in shape and 0 in copied and -1 in copied:  # of what is not 0
        rest = math.prod(extent or 1 for extent in shape)
        part = math.prod(extent or 1 for extent in copied if extent != -1)
        if rest % part:
            raise ValueError(f"{shape} does not divide into {target}")
        return [rest // part if extent == -1 else extent for extent in copied]
    return np.broadcast_to(np.int8(0), shape).reshape(copied).shape


def _expand(operands: _Operands, _arguments: Sequence[int]) -> Sequence[int]:
    return np.broadcast_shapes(tuple(_numbers(operands, 0)), tuple(_numbers(operands, 1)))


def _tile(operands: _Operands, _arguments: Sequence[int]) -> Sequence[int]:
    return _numbers(operands, 1)


def _constant(operands: _Operands, _arguments: Sequence[int]) -> Sequence[int]:
    return _numbers(operands, 0)


def _slice(operands: _Operands, _arguments: Sequence[int]) -> Sequence[int]:
    shape, starts, ends = (_numbers(operands, index) for index in range(3))
    axes = _numbers(operands, 3) or range(len(starts))
    steps = _numbers(operands, 4) or [1] * len(starts)
    extents = [number for extent in shape for number in (0, extent)]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = shape[axis]
        if step < 0:  # onnxruntime's differences from numpy
            start = max(start, -extent)
            end = -extent - 1 if end in _LARGEST else end
        taken = range(extent)[start:end:step]
        axis %= len(shape)
        extents[2 * axis : 2 * axis + 2] = max(taken.start, 0), len(taken)
    return extents


def _split(operands: _Operands, arguments: Sequence[int]) -> Sequence[int]:
    extent = _numbers(operands, 0)[arguments[0]]
    sizes = _numbers(operands, 1) or [extent // arguments[1]] * arguments[1]
    if len(sizes) != arguments[1] or sum(sizes) != extent:
        raise ValueError(f"{sizes} are not the parts")
    return sizes


def _pad(operands: _Operands, arguments: Sequence[int]) -> Sequence[int]:
    shape, pads = _numbers(operands, 0), _numbers(operands, 1)
    axes = _numbers(operands, 2) or range(len(shape))
    extents = [number for extent in shape for number in (0, extent, 0, 0)]
    for axis, before, behind in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        extent = shape[axis]
        result = range(-before, extent + behind)  # positions of the operand
        if before + extent + behind < 0:
            raise ValueError(f"{pads} leave less than nothing")
        kept = [at for at in result if 0 <= at < extent]
        if arguments[0] and result and not kept:
            raise ValueError("nothing to repeat")
        front = sum(at < 0 for at in result) if kept else max(0, before + min(0, extent + behind))
        first = kept[0] if kept else min(max(0, -before), extent)
        axis %= len(shape)
        numbers = first, len(kept), front, len(result) - len(kept) - front
        extents[4 * axis : 4 * axis + 4] = numbers
    return extents


def _one_hot(operands: _Operands, _arguments: Sequence[int]) -> Sequence[int]:
    (depth,) = _numbers(operands, 0)
    return [depth]


def _resize(operands: _Operands, arguments: Sequence[int]) -> Sequence[int]:
    shape, sizes = _numbers(operands, 0), _numbers(operands, 2)
    if operands[1] is not None:
        scales = operands[1].astype(np.float32)
        sizes = [int(s * np.float32(shape[a])) for a, s in zip(arguments, scales, strict=True)]
    if len(sizes) != len(arguments):
        raise ValueError(f"{sizes} are not for axes {list(arguments)}")
    return sizes


def _range(operands: _Operands, _arguments: Sequence[int]) -> Sequence[int]:
    start, limit, delta = (np.asarray(operand).reshape(()) for operand in operands)
    if start.dtype.kind == "f":
        return [max(0, math.ceil(float(limit - start) / float(delta)))]
    return [len(range(int(start), int(limit), int(delta)))]


EXTENTS: dict[str, Callable[[_Operands, Sequence[int]], Sequence[int]]] = {
    "ConstantOfShapeExtents": _constant,
    "ExpandExtents": _expand,
    "OneHotExtents": _one_hot,
    "PadExtents": _pad,
    "RangeExtents": _range,
    "ReshapeExtents": _reshape,
    "ResizeExtents": _resize,
    "SliceExtents": _slice,
    "SplitExtents": _split,
    "TileExtents": _tile,
}
