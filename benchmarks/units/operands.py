"""Operands of the cases of `benchmarks.units.every`: random ones of about so many elements, of shapes as networks have them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from benchmarks.units.cases import Array, Case

Cases: TypeAlias = Iterator[Case]

RANDOM = np.random.default_rng(3)
TYPES = {
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}


def array(kind: str, *shape: int) -> Array:
    dtype = np.dtype(TYPES[kind])
    if dtype.kind == "f":
        return RANDOM.uniform(0.05, 0.95, shape).astype(dtype)
    if dtype.kind == "b":
        return RANDOM.integers(0, 2, shape).astype(np.bool_)
    return RANDOM.integers(1, 100, shape).astype(dtype)


def scalar(kind: str, value: float) -> Array:
    return np.array(value).astype(TYPES[kind])


def matrix_of(count: int) -> tuple[int, int]:
    """About `count` elements in rows as transformers have them."""
    columns = {1000: 64, 100_000: 256}.get(count, 1024)
    return max(1, count // columns), columns


def image_of(count: int, channels: int = 32) -> tuple[int, int, int, int]:
    if count < 10_000:
        channels = 4
    side = math.isqrt(max(1, count // channels))
    return (1, channels, min(side, 256), side * side // min(side, 256))
