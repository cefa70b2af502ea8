"""Creation functions. What is one number throughout is never stored: it is an operator without operands."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import Array, Device, DTypeObject, Scalar, require_device
from dvm_graph.xp.buffer import OnHost, append, compute_on_host, host_values
from dvm_graph.xp.elementwise import greater_equal, less_equal, where
from dvm_graph.xp.manipulation import broadcast_arrays, reshape
from dvm_graph.xp.promotion import as_array, converted, copied, dtype_of, number

Shape = int | tuple[int, ...]


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeObject | None = None,
    device: Device | None = None,
    copy: bool | None = None,
) -> Array:
    """An array of what numpy makes one of; arrays of numpy and DLPack share their memory unless `copy`.

    Whoever writes to shared memory before what reads it has run, changes what that reads.
    """
    target = None if dtype is None else dtype_of(dtype, device)
    require_device(device)
    if isinstance(obj, Array):
        if target is not None and target != obj.dtype:
            if copy is False:
                raise InputError(f"{target} of {obj.dtype} is a copy")
            return converted(obj, target)
        return copied(obj) if copy else obj
    foreign = not isinstance(obj, np.ndarray) and hasattr(obj, "__dlpack__")
    try:
        if foreign and not hasattr(obj, "__array__"):
            obj = np.from_dlpack(obj)
        elements = np.array(host_values(obj), dtype=target, copy=copy, order="C" if copy else "K")
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        raise InputError(f"asarray: {error}") from error
    return as_array(elements)


def from_dlpack(x: object, /, *, device: Device | None = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's, without a copy unless asked for."""
    require_device(device)
    result: Array = compute_on_host(np.from_dlpack, x, copy=copy, why="memory of the host")
    return result


def full(
    shape: Shape,
    fill_value: Scalar,
    *,
    dtype: DTypeObject | None = None,
    device: Device | None = None,
) -> Array:
    extents = _shape(shape)
    target = dtype_of(np.asarray(fill_value).dtype if dtype is None else dtype, device)
    try:
        return append("broadcast_to", (number(_plain(fill_value), target),), extents, target.name)
    except OnHost as reason:
        result: Array = compute_on_host(np.full, extents, fill_value, dtype=target, why=str(reason))
        return result


def _plain(fill_value: Any) -> Scalar:
    """A number of Python's, which an array of rank 0 may stand for."""
    value: Scalar = np.asarray(fill_value).item()
    return value


def _shape(shape: Shape) -> tuple[int, ...]:
    extents = (shape,) if isinstance(shape, int | np.integer) else shape
    try:
        plain = tuple(int(extent) for extent in extents)
    except (TypeError, ValueError) as error:
        raise InputError(f"{shape!r:.50} is no shape") from error
    if any(extent < 0 for extent in plain):
        raise InputError(f"shape {shape} has an extent below 0")
    return plain


def zeros(shape: Shape, *, dtype: DTypeObject | None = None, device: Device | None = None) -> Array:
    return full(shape, 0, dtype=dtypes.float64 if dtype is None else dtype, device=device)


def ones(shape: Shape, *, dtype: DTypeObject | None = None, device: Device | None = None) -> Array:
    return full(shape, 1, dtype=dtypes.float64 if dtype is None else dtype, device=device)


def empty(shape: Shape, *, dtype: DTypeObject | None = None, device: Device | None = None) -> Array:
    """Zeros: elements never change, so nobody could write others."""
    return zeros(shape, dtype=dtype, device=device)


def full_like(
    x: Array,
    /,
    fill_value: Scalar,
    *,
    dtype: DTypeObject | None = None,
    device: Device | None = None,
) -> Array:
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device)


def zeros_like(
    x: Array, /, *, dtype: DTypeObject | None = None, device: Device | None = None
) -> Array:
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(
    x: Array, /, *, dtype: DTypeObject | None = None, device: Device | None = None
) -> Array:
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(
    x: Array, /, *, dtype: DTypeObject | None = None, device: Device | None = None
) -> Array:
    return full_like(x, 0, dtype=dtype, device=device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeObject | None = None,
    device: Device | None = None,
) -> Array:
    target = None if dtype is None else dtype_of(dtype)
    require_device(device)
    first, last = (0, start) if stop is None else (start, stop)
    why = "what counts is small"
    result: Array = compute_on_host(np.arange, first, last, step, dtype=target, why=why)
    return result


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: DTypeObject | None = None,
    device: Device | None = None,
    endpoint: bool = True,
) -> Array:
    target = None if dtype is None else dtype_of(dtype)
    require_device(device)
    why = "what counts is small"
    result: Array = compute_on_host(
        np.linspace, start, stop, num, dtype=target, endpoint=endpoint, why=why
    )
    return result


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeObject | None = None,
    device: Device | None = None,
) -> Array:
    n_cols = n_rows if n_cols is None else n_cols
    target = dtype_of(dtypes.float64 if dtype is None else dtype, device)
    on_diagonal = append("eq", _positions(n_rows, n_cols, k))
    return converted(on_diagonal, target)


def _positions(rows: int, columns: int, k: int) -> tuple[Array, Array]:
    """Of rows, moved by `k`, and of columns; compared, they tell the side of a diagonal."""
    k = max(-rows, min(k, columns))  # all or nothing is beyond that
    row = append("iota", (), (0, k, 1, rows, 1))
    return row, append("iota", (), (1, 0, 1, 1, columns))


def tril(x: Array, /, *, k: int = 0) -> Array:
    row, column = _matrix_positions(x, k)
    return where(greater_equal(row, column), x, zeros((), dtype=x.dtype))


def triu(x: Array, /, *, k: int = 0) -> Array:
    row, column = _matrix_positions(x, k)
    return where(less_equal(row, column), x, zeros((), dtype=x.dtype))


def _matrix_positions(x: Array, k: int) -> tuple[Array, Array]:
    if x.ndim < 2:
        raise InputError(f"a triangle of matrices, not of shape {x.shape}")
    return _positions(x.shape[-2], x.shape[-1], k)


def meshgrid(*arrays: Array, indexing: Literal["xy", "ij"] = "xy") -> list[Array]:
    if indexing not in ("xy", "ij"):
        raise InputError(f"indexing is 'xy' or 'ij', not {indexing!r}")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[:2] = [1, 0]
    placed = [
        reshape(x, tuple(x.size if axis == place else 1 for axis in range(len(arrays))))
        for x, place in zip(arrays, order, strict=True)
    ]
    return broadcast_arrays(*placed)
