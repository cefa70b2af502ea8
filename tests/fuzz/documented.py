"""What a documented difference is, and what is put in place of what nobody promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One node, run on onnxruntime."""

    node: onnx.NodeProto
    opset: int
    operands: Sequence[Any]
    """None: left out."""
    results: Sequence[Any]
    again: Callable[..., Sequence[Any]]
    """What onnxruntime gives for other operands of the same types, and with some attributes that are others, if given."""

    def attribute(self, name: str, default: Any) -> Any:
        found = (helper.get_attribute_value(a) for a in self.node.attribute if a.name == name)
        return next(found, default)

    @property
    def x(self) -> Array:
        return np.asarray(self.operands[0])

    @property
    def numbers(self) -> Array:
        """The first operand in float64."""
        return self.x.astype(np.float64)


@dataclass(frozen=True, slots=True)
class Documented:
    results: Sequence[Any]
    open: Sequence[Array | None]
    """Which elements of each result nobody promises."""
    spread: Sequence[Array] = ()
    """How far elements of the first results may be off."""
    unsigned: Sequence[Array | None] = ()
    """Which zeros of each result may have either sign."""


class RefusedError(RuntimeError):
    """The operator is documented to be refused where onnxruntime makes something of it."""


Difference = Callable[[Step], "Documented | None"]


DIFFERENCES: dict[str, Difference] = {}
"""By operator; None: what onnxruntime gives is what is documented."""


def difference_of(*ops: str) -> Callable[[Difference], Difference]:
    def register(function: Difference) -> Difference:
        DIFFERENCES.update(dict.fromkeys(ops, function))
        return function

    return register


def left_open(step: Step, *masks: Array) -> Documented | None:
    return Documented(step.results, masks) if any(mask.any() for mask in masks) else None


def replaced(step: Step, result: Array, *others: Any) -> Documented:
    results = [np.asarray(result.astype(step.results[0].dtype)), *step.results[1:]]
    return Documented(results, [None, *others][: len(results)])


def is_float(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16


def axes_of(step: Step) -> tuple[int, ...]:
    given = step.operands[1] if len(step.operands) > 1 else None
    axes = step.attribute("axes", None) if given is None else np.asarray(given).tolist()
    if not axes:
        identity = step.attribute("noop_with_empty_axes", 0)
        return () if identity else tuple(range(step.x.ndim))
    return tuple(axis % step.x.ndim for axis in axes)


def both(one: Documented | None, other: Documented | None) -> Documented | None:
    """Of the same results: what either leaves open."""
    if one is None or other is None:
        return one or other
    pairs = zip(one.open, other.open, strict=True)
    open_ = [b if a is None else a if b is None else a | b for a, b in pairs]
    return Documented(
        one.results, open_, one.spread or other.spread, one.unsigned or other.unsigned
    )


def along_axis(step: Step, mask: Array, default: int) -> Array:
    """Where any of the elements along the node's axis is set."""
    axis = int(step.attribute("axis", default if step.opset < 13 else -1)) % max(1, mask.ndim)
    axes = (axis,) if step.opset >= 13 else tuple(range(axis, mask.ndim))
    return np.broadcast_to(mask.any(axis=axes, keepdims=True), mask.shape)


FILLS = (np.nan, 0.0, -1e4, np.inf, 1e4, 1.0, -np.inf, 0.3)
"""Any four in a row are finite ones and others."""


def shake(result: Array, spread: Array, place: int, number: int) -> Array:
    """The result with each element off by some of what it may be, or rounded to as much."""
    if number in (3, 5):
        steps = np.exp2(np.ceil(np.log2(np.where(spread > 0, spread, 1))))
        near = np.round(result.astype(np.float64) / steps) * steps
        return np.asarray(np.where(spread > 0, near, result).astype(result.dtype))
    part = np.random.default_rng((place, number)).uniform(-1, 1, result.shape)
    return np.asarray((result.astype(np.float64) + part * spread).astype(result.dtype))


def turn(result: Array, unsigned: Array, place: int, number: int) -> Array:
    """The result with zeros of some sign or other: each its own, as they are, or all turned."""
    turned = np.random.default_rng((place, number)).random(result.shape) < (0.5, 0, 1)[number % 3]
    return np.where(unsigned & turned, -result, result)


def fill(result: Array, open_: Array, place: int, number: int) -> Array:
    """The result with something of its type in each open element of the node at a place.

    Elements are filled unlike each other, so that they do not cancel; and each with another thing for each
    of four even numbers in a row, and of four odd ones, so that what hangs on it is sure to move. Of every
    third number all alike, or not at all: sums of many that are unlike would be NaN every time.
    """
    if result.dtype.kind in "iu":
        ends = np.iinfo(result.dtype)
        values = np.array(
            [ends.min, ends.max, 0, 1, ends.max // 3, 2, 7, ends.min + 1], result.dtype
        )
    elif result.dtype.kind == "b":
        values = np.array([True, False])
    else:
        values = np.array(FILLS).astype(result.dtype)
    if number % 3 == 1:
        return result
    if number % 3 == 2:
        return np.where(open_, values[number // 3 % len(values)], result)
    drawn = np.random.default_rng(place).integers(0, len(values), result.shape)
    return np.where(open_, values[(drawn + number // 2) % len(values)], result)
