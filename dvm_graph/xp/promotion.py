"""Promotion: the dtypes in which operands meet, and operands in them.

numpy's rules, which are the standard's where that has any. Python numbers take the dtype of the arrays they meet, if
it is of their kind or a wider one. Kinds that the standard does not mix (int64 with float32, say) promote as
numpy's do.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeGuard

import numpy as np

from dvm_graph.errors import InputError
from dvm_graph.xp import dtypes
from dvm_graph.xp.array import (
    SCALARS,
    Array,
    Device,
    DTypeObject,
    Number,
    Operand,
    Scalar,
    require_device,
)
from dvm_graph.xp.buffer import OnHost, append, compute_on_host

Typed: TypeAlias = "Array | DTypeObject | Scalar"


def result_type(*arrays_and_dtypes: Typed) -> DTypeObject:
    """The dtype in which these meet."""
    given = [x.dtype if isinstance(x, Array) else x for x in arrays_and_dtypes]
    try:
        return np.result_type(*given)
    except (TypeError, ValueError) as error:
        raise InputError(f"no result_type of {', '.join(map(str, given))}") from error


def promoted(*operands: Operand) -> list[Array | Number]:
    """Operands in the dtype in which they meet; numbers of it stay numbers.

    Raises:
        OnHost: a number that the dtype does not hold.
    """
    first, second = operands[0], operands[-1]
    if len(operands) == 2 and type(first) is Array and _meets(second, first.dtype):
        return [first, second]
    arrays = [_operand(x) for x in operands]
    if not any(isinstance(x, Array) for x in arrays):
        arrays = [as_array(np.asarray(x)) for x in arrays]
    found = [x.dtype for x in arrays if isinstance(x, Array)]
    dtype = found[0]
    if len(found) < len(arrays) or any(other is not dtype for other in found):
        dtype = result_type(*arrays)
    return [_as(x, dtype) for x in arrays]


def _meets(other: Operand, dtype: DTypeObject) -> TypeGuard[Array | Number]:
    """Whether an operand is seen at a glance to need nothing: the usual case, on the way of every operator."""
    if type(other) is Array:
        return dtype is other.dtype
    if type(other) is float:
        return dtype.kind == "f"
    return type(other) is int and dtype.kind in "if" and -128 <= other <= 127


def _operand(x: Operand) -> Array | Scalar:
    """Python's own numbers as they are; numpy's, of which some are Python's too, are arrays."""
    if isinstance(x, SCALARS) and not isinstance(x, np.generic):
        return x
    return as_array(x)


def as_arrays(*operands: Operand) -> list[Array]:
    """As `promoted`, numbers as arrays of rank 0."""
    values = promoted(*operands)
    dtype = next(x.dtype for x in values if isinstance(x, Array))
    return [x if isinstance(x, Array) else Array(None, np.asarray(x, dtype)) for x in values]


def as_floats(*operands: Operand) -> list[Array]:
    """As `as_arrays`, integers in floats: each array in those of its own dtype (`floating`), then all in the dtype in which they meet.

    Raises:
        OnHost: of complex numbers.
    """
    values = [_operand(x) for x in operands]
    if not all(isinstance(x, Array) for x in values):  # numbers take the dtype of integers
        values = [*as_arrays(*operands)]
    return as_arrays(*(floating(as_array(x)) for x in values))


def _as(x: Array | Scalar, dtype: DTypeObject) -> Array | Number:
    if isinstance(x, Array):
        return x if x.dtype == dtype else cast(x, dtype)
    return number(x, dtype)


def number(x: Scalar, dtype: DTypeObject) -> Number:
    """A number as an element of this type.

    Raises:
        OnHost: the type does not hold it.
    """
    whole = dtype.kind in "iu"
    if isinstance(x, complex) or dtype.kind == "c":
        raise OnHost("kernels know no complex numbers")
    if whole and not np.iinfo(dtype).min <= x <= np.iinfo(dtype).max:
        raise OnHost(f"{dtype} does not hold {x!r:.50}")
    return x


def as_array(x: Operand) -> Array:
    """An operand as an array; numpy's share their memory."""
    if isinstance(x, Array):
        return x
    elements = np.asarray(x)
    if elements.dtype.kind not in "biufc" and elements.dtype != dtypes.bfloat16:
        raise InputError(f"arrays hold no {elements.dtype}: {x!r:.50}")
    native = elements.dtype.newbyteorder("=")
    return Array(None, elements.astype(native, copy=False))


def cast(x: Array, dtype: DTypeObject) -> Array:
    """As `astype`, for dtypes that are known to be some.

    Raises:
        OnHost: kernels do not convert between the two.
    """
    if dtype.kind == "c" or x.dtype.kind == "c":
        raise OnHost(f"kernels know no {x.dtype if x.dtype.kind == 'c' else dtype}")
    return append("cast", (x,), (), dtype.name)


def dtype_of(dtype: Any, device: Device | None = None) -> DTypeObject:
    """What users gave as a dtype, and perhaps a device.

    Raises:
        InputError: it is none that arrays have.
    """
    require_device(device)
    try:
        found: DTypeObject = np.dtype(dtype)
    except TypeError as error:
        raise InputError(f"{dtype!r:.50} is no dtype") from error
    if found.name not in dtypes.ALL:
        raise InputError(f"arrays hold no {found}")
    return found


def floating(x: Array) -> Array:
    """Integers in the float type that numpy computes roots and logarithms of them in.

    Raises:
        OnHost: of complex numbers, whose formulas numpy has.
    """
    if x.dtype.kind == "c":
        raise OnHost("kernels know no complex numbers")
    if x.dtype.kind in "biu":
        small = {1: dtypes.float16, 2: dtypes.float32}.get(x.dtype.itemsize, dtypes.float64)
        return cast(x, small)
    return x


def converted(x: Array, dtype: DTypeObject) -> Array:
    """The elements in a dtype, by kernels or numpy; the array itself where it is of it."""
    if x.dtype == dtype:
        return x
    try:
        return cast(x, dtype)
    except OnHost as reason:
        result: Array = compute_on_host(np.astype, x, dtype, why=str(reason))
        return result


def copied(x: Array) -> Array:
    """An array that shares no memory with numpy's or DLPack's."""
    return Array(x._value) if x._host is None else Array(None, x._host.copy())
