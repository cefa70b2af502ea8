"""Operands that several recipes draw alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.fuzz.growth import FLOATS, Growth, RefusedError, Shape, Value

INT8S = (TensorProto.INT8, TensorProto.UINT8)
INT4S = (TensorProto.UINT4, TensorProto.INT4)
FLOAT8S = (
    *(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ),
    *(TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ),
)


def along(x: Value, *dims: Any) -> list[Shape]:
    """A shape per environment: numbers as they are, `(axis,)` for the extent of an axis of `x`."""
    return [tuple(s[d[0]] if isinstance(d, tuple) else d for d in dims) for s in x.shapes]


def maybe(g: Growth, make: Any, probability: float = 0.5) -> Value | None:
    return make() if g.chance(probability) else None


def scales(g: Growth, x: Value) -> tuple[Value, Value]:
    scale = g.constant(np.array(g.choose((0.5, 0.1, 1.0)), np.float32))
    kind = np.int8 if x.dtype == 3 else np.uint8
    return scale, g.constant(np.array(g.choose((0, 1, 5)), kind))


def met(g: Growth, first: Value, another: Callable[[], Value]) -> Value:
    """Products of the same rows, which meet behind as gates and what passes them do; mostly the first alone.

    `another` draws a product like the first, of the same rows.
    """
    result = first
    while g.chance(0.25):
        made = another()
        if made.shapes != result.shapes:
            raise RefusedError
        if made.dtype in FLOATS and g.chance(0.6):
            gate = g.emit(g.choose(("Sigmoid", "Tanh", "Softplus", "Abs")), [result])
        else:
            gate = result
        result = g.emit(g.choose(("Mul", "Add", "Sub")), g.rng.sample([gate, made], 2))
    return result


def extents(g: Growth) -> tuple[int, ...]:
    _, found = g.dim()
    return tuple(max(1, extent) for extent in found)
