"""Which recipe draws the operands of which operator; the others are drawn from their schemas alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from tests.fuzz.growth import DTYPES, FLOATS, Growth, Value, find_schema

ELEMENTWISE, PRODUCT, REDUCTION, WINDOW, GATHER, VIEW, OTHER = (
    *("elementwise", "product", "reduction", "window"),
    *("gather", "view", "other"),
)
REGION, SEQUENCE, TEXT, CONTRIB = "region", "sequence", "text", "contrib"


@dataclass(frozen=True, slots=True)
class Recipe:
    kind: str
    weight: float
    """How often, among those of its kind."""
    draw: Callable[[Growth], Value]


RECIPES: dict[str, Recipe] = {}


def recipe(
    *ops: str, kind: str, weight: float = 1
) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Registers what draws a node of these operators; it is told which where it asks."""

    def register(function: Callable[..., Value]) -> Callable[..., Value]:
        for op in ops:
            told = "op" in inspect.signature(function).parameters
            draw = functools.partial(_told, function, op) if told else function
            RECIPES[op] = Recipe(kind, weight, draw)
        return function

    return register


def _told(function: Callable[..., Value], op: str, g: Growth) -> Value:
    return function(g, op=op)


@functools.cache
def types(op: str, opset: int, place: int = 0) -> tuple[int, ...]:
    """The element types that a schema allows for an input."""
    schema = find_schema(op, opset)
    inputs = schema.inputs
    return parse_types(inputs[min(place, len(inputs) - 1)].types)


def parse_types(names: Any) -> tuple[int, ...]:
    found = [NAMES[name] for name in names if name in NAMES]
    return tuple(sorted(found))


NAMES = {
    f"tensor({helper.tensor_dtype_to_string(d).removeprefix('TensorProto.').lower()})": d
    for d in DTYPES
}
"""Types of elements, by what schemas call tensors of them."""


ABOVE_ZERO = frozenset(("Log", "Sqrt", "Acosh", "Reciprocal"))
WITHIN_ONE = frozenset(("Asin", "Acos", "Atanh"))


def into_domain(g: Growth, op: str, x: Value) -> Value:
    """Something for which the operator is not NaN, which would hide whatever follows, unless NaN is asked for."""
    if x.dtype not in FLOATS or g.special:
        return x
    if op in WITHIN_ONE:
        return g.emit("Tanh", [x])
    if op in ABOVE_ZERO:
        one = g.constant(np.array(1).astype(helper.tensor_dtype_to_np_dtype(x.dtype)))
        return g.emit("Add", [g.emit("Abs", [x]), one])
    return x
