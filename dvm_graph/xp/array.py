"""The array: a value that may not be computed yet, with the operators of Python.

An array is a value of the stream (`buffer`), memory of the host, or both. Elements never change: what looks like a
change (`x += y`, `x[0] = y`) makes the name stand for a new value, which other names of the old one do not see.
Looking at elements runs what they need: printing, `bool`, `int`, `float`, `complex`, `__index__`, `__array__` and DLPack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

import dvm_graph.xp as xp  # functions look at arrays, and arrays have operators
from dvm_graph._core import StreamValue
from dvm_graph.errors import InputError

Number: TypeAlias = "bool | int | float"
Scalar: TypeAlias = "bool | int | float | complex"
Operand: TypeAlias = "Array | Scalar | np.ndarray[Any, Any] | np.generic"
Device: TypeAlias = str
DTypeObject: TypeAlias = "np.dtype[Any]"

DEVICE: Device = "cpu"
SCALARS = (bool, int, float, complex)
_OPERANDS = (*SCALARS, np.ndarray, np.generic)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64"),
    )
} | {"bfloat16": _BFLOAT16}
_Binary: TypeAlias = "Callable[[Any, Any], Any]"


_REFUSED: Array = NotImplemented


def _operator(name: str) -> tuple[_Binary, _Binary, _Binary]:
    """An operator of Python by a function of the namespace: forward, reflected and in place."""

    def forward(self: Array, other: Operand, /) -> Array:
        if type(other) is Array or isinstance(other, _OPERANDS):
            result: Array = getattr(xp, name)(self, other)
            return result
        return _REFUSED

    def reflected(self: Array, other: Operand, /) -> Array:
        if isinstance(other, _OPERANDS):
            result: Array = getattr(xp, name)(other, self)
            return result
        return _REFUSED

    def in_place(self: Array, other: Operand, /) -> Array:
        result = forward(self, other)
        return result if result is _REFUSED else self._become(result)

    return forward, reflected, in_place


def _unary(name: str) -> Callable[[Any], Any]:
    def apply(self: Array, /) -> Array:
        result: Array = getattr(xp, name)(self)
        return result

    return apply


def require_device(device: Device | None) -> None:
    """
    Raises:
        InputError: arrays are not there.
    """
    if device not in (None, DEVICE):
        raise InputError(f"arrays are on {DEVICE!r}, not on {device!r}")


class Array:
    """An array of the namespace. `asarray` and its like make them."""

    __slots__ = ("__weakref__", "_dtype", "_host", "_value")
    __array_ufunc__ = None  # so that numpy's arrays leave operators to us
    __hash__ = None  # type: ignore[assignment]  # as of all mutable objects; mypy sees object's

    def __init__(self, value: StreamValue | None, host: np.ndarray[Any, Any] | None = None) -> None:
        self._value = value
        self._host = host
        self._dtype: DTypeObject | None = None

    # -- what it is

    @property
    def dtype(self) -> DTypeObject:
        dtype = self._dtype
        if dtype is None:
            host, value = self._host, self._value
            dtype = self._dtype = _DTYPES[value.dtype] if host is None else host.dtype  # type: ignore[union-attr]  # one is there
        return dtype

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = (self._value if self._host is None else self._host).shape  # type: ignore[union-attr]  # one is there
        return shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def device(self) -> Device:
        return DEVICE

    @property
    def T(self) -> Array:
        if self.ndim != 2:
            raise InputError(f"T is of matrices, not of rank {self.ndim}: use mT or permute_dims")
        return self.mT

    @property
    def mT(self) -> Array:
        return xp.matrix_transpose(self)

    def to_device(self, device: Device, /, *, stream: object = None) -> Array:
        if device != DEVICE or stream is not None:
            raise InputError(f"arrays are on {DEVICE!r}, without streams: not on {device!r}")
        return self

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        return xp.inspection.of_version(api_version)

    # -- looking at elements

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """The elements, as numpy's read-only array over the same memory unless it has to be copied."""
        elements: np.ndarray[Any, Any] = self._elements().view()
        elements.flags.writeable = False
        if dtype is not None and np.dtype(dtype) != elements.dtype:
            if copy is False:
                raise InputError(f"{np.dtype(dtype)} of {elements.dtype} is a copy")
            elements = elements.astype(dtype)
        elif copy:
            elements = elements.copy()
        return elements

    def _elements(self) -> np.ndarray[Any, Any]:
        if self._host is None:
            assert self._value is not None
            host = self._value.numpy()
            self._host = host.view(_BFLOAT16) if self._value.dtype == "bfloat16" else host
        return self._host

    def __dlpack__(
        self,
        /,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The elements without a copy, marked read-only where the consumer knows of that."""
        if stream is not None:
            raise BufferError("there are no streams on a CPU")
        elements = self._elements()
        if max_version is not None and max_version[0] >= 1 and not copy:
            elements = self.__array__()
        elif not elements.flags.writeable:  # what older consumers cannot be told
            elements = elements.copy()
        return elements.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def _number(self, what: str) -> Any:
        if self.ndim:
            raise InputError(f"{what} is of arrays of rank 0, not of shape {self.shape}")
        return self._elements()[()]

    def __bool__(self) -> bool:
        return bool(self._number("bool()"))

    def __int__(self) -> int:
        return int(self._real("int()"))

    def __float__(self) -> float:
        return float(self._real("float()"))

    def __complex__(self) -> complex:
        return complex(self._number("complex()"))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu":
            raise TypeError(f"an array of {self.dtype} is no index")
        return int(self._number("an index"))

    def _real(self, what: str) -> Any:
        if self.dtype.kind == "c":
            raise TypeError(f"{what} is not of complex numbers")
        return self._number(what)

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("an array of rank 0 has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter([self[i] for i in range(len(self))])

    def __repr__(self) -> str:
        text = np.array2string(self._elements(), separator=", ", prefix="Array(")
        return f"Array({text}, dtype={self.dtype})"

    def __str__(self) -> str:
        return str(self._elements())

    def __copy__(self) -> Array:
        return xp.astype(self, self.dtype)

    def __deepcopy__(self, memo: object) -> Array:
        return xp.astype(self, self.dtype)

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[np.ndarray[Any, Any]]]:
        return xp.asarray, (np.array(self._elements()),)

    # -- parts

    def __getitem__(self, key: Any, /) -> Array:
        return xp.indexing.part(self, key)

    def __setitem__(self, key: Any, value: Operand, /) -> None:
        self._become(xp.indexing.replaced(self, key, value))

    def _become(self, other: Array) -> Array:
        """Takes the value of a result; in place, an array keeps its dtype and shape."""
        if other.dtype != self.dtype:
            raise InputError(f"{other.dtype} does not fit in place of {self.dtype}: use astype")
        if other.shape != self.shape:
            raise InputError(f"shape {other.shape} does not fit in place of {self.shape}")
        self._value, self._host = other._value, other._host
        return self

    # -- operators

    __add__, __radd__, __iadd__ = _operator("add")
    __sub__, __rsub__, __isub__ = _operator("subtract")
    __mul__, __rmul__, __imul__ = _operator("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _operator("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _operator("floor_divide")
    __mod__, __rmod__, __imod__ = _operator("remainder")
    __pow__, __rpow__, __ipow__ = _operator("pow")
    __matmul__, __rmatmul__, __imatmul__ = _operator("matmul")
    __and__, __rand__, __iand__ = _operator("bitwise_and")
    __or__, __ror__, __ior__ = _operator("bitwise_or")
    __xor__, __rxor__, __ixor__ = _operator("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = _operator("bitwise_left_shift")
    __rshift__, __rrshift__, __irshift__ = _operator("bitwise_right_shift")
    __eq__, _, _ = _operator("equal")
    __ne__, _, _ = _operator("not_equal")
    __lt__, _, _ = _operator("less")
    __le__, _, _ = _operator("less_equal")
    __gt__, _, _ = _operator("greater")
    __ge__, _, _ = _operator("greater_equal")
    __neg__ = _unary("negative")
    __pos__ = _unary("positive")
    __abs__ = _unary("abs")
    __invert__ = _unary("bitwise_invert")


def another(x: Array) -> Array:
    """An array of the same elements; what is assigned to the one, the other does not see."""
    return Array(x._value, x._host)
