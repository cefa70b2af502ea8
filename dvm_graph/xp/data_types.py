"""Data type functions of the standard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import Array, Device, DTypeObject
from dvm_graph.xp.promotion import converted, copied, dtype_of
from dvm_graph.xp.promotion import result_type as result_type


def astype(
    x: Array, dtype: DTypeObject, /, *, copy: bool = True, device: Device | None = None
) -> Array:
    """The elements in another dtype. They never change, so a copy is one of memory that others can write."""
    target = dtype_of(dtype, device)
    return copied(x) if copy and x.dtype == target else converted(x, target)


def can_cast(from_: DTypeObject | Array, to: DTypeObject, /) -> bool:
    """Whether values of one dtype promote to another."""
    return np.can_cast(from_.dtype if isinstance(from_, Array) else from_, to)


def isdtype(dtype: DTypeObject, kind: DTypeObject | str | tuple[DTypeObject | str, ...]) -> bool:
    """Whether a dtype is one of these, or of these kinds."""
    try:
        return bool(np.isdtype(dtype, kind))
    except (TypeError, ValueError) as error:
        raise InputError(f"isdtype: {error}") from error


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """What a float type holds."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DTypeObject


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """What an integer type holds."""

    bits: int
    max: int
    min: int
    dtype: DTypeObject


def finfo(type: DTypeObject | Array, /) -> FloatInfo:
    dtype = type.dtype if isinstance(type, Array) else dtype_of(type)
    if dtype.kind not in "fc" and dtype != dtypes.bfloat16:
        raise InputError(f"{dtype} is no float type")
    real = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}.get(dtype, dtype)
    info: Any = ml_dtypes.finfo(real)  # type: ignore[no-untyped-call]  # the library is untyped
    return FloatInfo(
        bits=info.bits,
        eps=float(info.eps),
        max=float(info.max),
        min=float(info.min),
        smallest_normal=float(info.smallest_normal),
        dtype=real,
    )


def iinfo(type: DTypeObject | Array, /) -> IntegerInfo:
    dtype = type.dtype if isinstance(type, Array) else dtype_of(type)
    try:
        info = np.iinfo(dtype)
    except ValueError as error:
        raise InputError(f"{dtype} is no integer type") from error
    return IntegerInfo(info.bits, int(info.max), int(info.min), dtype)
