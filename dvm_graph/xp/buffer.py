"""The operator buffer behind arrays: where every operation of the namespace ends up.

`append` adds a basic operator; nothing runs until a value is looked at. What basic operators cannot do raises
`OnHost`, with the reason, before anything is added: `lazy` then computes the function by numpy's of the same name, on
the operands' values. So every function of the standard has one definition of what it means, numpy's, and those that
basic operators cover also one of how it fuses.

Invariant: this file alone knows the stream (`stream/`) and who is told of what runs (`xp.trace`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from dvm_graph._core import StreamValue
from dvm_graph.errors import DvmError, InputError, UnsupportedError, border
from dvm_graph.stream import open_stream
from dvm_graph.xp.array import Array, Number
from dvm_graph.xp.axes import OutOfRange
from dvm_graph.xp.on_numpy import function_of

_P = ParamSpec("_P")
_R = TypeVar("_R")

_STREAM = open_stream()


class OnHost(Exception):  # noqa: N818 - it is no error
    """Why basic operators cannot compute something; numpy does."""


def append(
    op: str, operands: Sequence[Array | Number], attrs: Sequence[int] = (), dtype: str = ""
) -> Array:
    """The result of a basic operator, not yet computed. Attributes are laid out as `Stream.append` says.

    Numbers among operands take the dtype of the others, or `dtype`.

    Raises:
        OnHost: kernels do not compute this.
        ShapeError: operands whose shapes contradict each other.
    """
    values = [
        (_constant(x) if x._value is None else x._value) if isinstance(x, Array) else x
        for x in operands
    ]
    try:
        return Array(_STREAM.append(op, values, attrs, dtype))
    except (InputError, UnsupportedError) as error:  # who has the last word on operands is numpy
        raise OnHost(str(error)) from error


def _constant(array: Array) -> StreamValue:
    """Memory of the host as a value; the array keeps it."""
    elements = np.asarray(array._host, order="C")
    try:
        if elements.dtype.name == "bfloat16":
            value = _STREAM.constant(elements.view(np.uint16), "bfloat16")
        else:
            value = _STREAM.constant(elements)
    except (InputError, UnsupportedError) as error:
        raise OnHost(f"kernels know no {elements.dtype}") from error
    array._value = value
    return value


def flush() -> None:
    """Runs everything that is still to be computed and that somebody holds."""
    _STREAM.flush()


def record(on: bool) -> None:
    """Whether flushes are noted from now on; what was noted is dropped."""
    _STREAM.record(on)
    _STREAM.take_record()


def take_record() -> list[dict[str, Any]]:
    """Flushes since this was called last."""
    record: list[dict[str, Any]] = _STREAM.take_record()
    return record


def lazy(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function of the standard by basic operators, or else by numpy's of the same name."""
    on_host = function_of(function.__name__)

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except OnHost as reason:
            result: _R = compute_on_host(on_host, *args, why=str(reason), **kwargs)
            return result

    return call


def of_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy on arrays of the namespace."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compute_on_host(function, *args, why="no basic operator does this", **kwargs)

    return call


def compute_on_host(function: Callable[..., Any], *args: Any, why: str, **kwargs: Any) -> Any:
    """What a function of numpy makes of the values of arrays; runs what they need.

    Raises:
        InputError: numpy refuses it.
    """
    name = function.__name__.lstrip("_")
    given = [host_values(arg) for arg in args]
    named = {key: host_values(arg) for key, arg in kwargs.items()}
    for tell in ON_HOST:
        tell(name, why)
    try:
        with np.errstate(all="ignore"):
            return _from_host(function(*given, **named))
    except DvmError:
        raise
    except IndexError as error:
        raise OutOfRange(f"{name}: {error}") from error
    except MemoryError:
        with border(f"compute {name}"):
            raise
    except Exception as error:  # numpy's own, of many classes, about operands
        raise InputError(f"{name}: {error}") from error


def host_values(operand: Any) -> Any:
    """The same with numpy's arrays."""
    if isinstance(operand, Array):
        return operand.__array__()
    if isinstance(operand, list | tuple):
        return type(operand)(host_values(item) for item in operand)
    return operand


def _from_host(result: Any) -> Any:
    if isinstance(result, np.ndarray | np.generic):
        return Array(None, np.asarray(result))
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*(_from_host(item) for item in result))
    if isinstance(result, list | tuple):
        return type(result)(_from_host(item) for item in result)
    return result


ON_HOST: list[Callable[[str, str], None]] = []
"""Who is told what numpy computes, and why."""
