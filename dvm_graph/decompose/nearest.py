"""Which element of an axis is the nearest to a position, by the ways of Resize's `nearest_mode`.

In: positions in float32, or exact ones. Out: numbers of elements, which may lie outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from dvm_graph.decompose.arithmetic import shifted
from dvm_graph.ir import DType, Value
from dvm_graph.symbolic.builder import Builder

_AMID = 1e-6
"""How far from the middle between two elements onnxruntime takes a position to be there."""


def _rounded(builder: Builder, x: Value, prefers_floor: bool) -> Value:
    below = builder.floor(x)
    past = shifted(builder, builder.sub(x, below), -0.5)
    amid = builder.scalar(_AMID if prefers_floor else -_AMID, DType.FLOAT32)
    above = builder.ge(past, amid) if prefers_floor else builder.gt(past, amid)
    return builder.select(above, shifted(builder, below, 1.0), below)


NEAREST: Mapping[str, Callable[[Builder, Value], Value]] = {
    "round_prefer_floor": lambda builder, x: _rounded(builder, x, prefers_floor=True),
    "round_prefer_ceil": lambda builder, x: _rounded(builder, x, prefers_floor=False),
    "floor": lambda builder, x: builder.floor(x),
    "ceil": lambda builder, x: builder.ceil(x),
}

NEAREST_NUMBER: Mapping[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda position: math.ceil(position - Fraction(1, 2)),
    "round_prefer_ceil": lambda position: math.floor(position + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}
"""The same of one exact position."""
