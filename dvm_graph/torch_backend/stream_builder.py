"""Basic operators by the streaming fuser: what `Builder` is for graphs, for values whose extents are numbers.

In: operands and attributes of basic operators, as decompositions give them to a builder. Out: values whose operators wait
in a stream. Nothing is deduced here: the stream says what a result is, or refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dvm_graph._core import Stream, StreamValue
from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import OPERATORS, DType, Graph, Kind, Value
from dvm_graph.options import Options
from dvm_graph.symbolic import Facts, Symbols
from dvm_graph.symbolic.builder_methods import OperatorMethods

_DTYPES = {dtype.value: dtype for dtype in DType}
_TRAPS = frozenset({"gather", "check_index"})


class Streamed(Value):
    """A value of a stream, or a number of rank 0."""

    __slots__ = ("held",)

    def __init__(self, held: StreamValue | float, dtype: DType, shape: tuple[int, ...]) -> None:
        super().__init__("", dtype, shape)
        self.held = held


def streamed(value: StreamValue) -> Streamed:
    return Streamed(value, _DTYPES[value.dtype], value.shape)


class StreamBuilder(OperatorMethods):
    """Appends basic operators to a stream. What is appended in vain, before a refusal, is never computed."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.facts = Facts(Symbols())
        self.options = Options(winograd=False)
        self.inside: tuple[tuple[str, ...], Mapping[str, str], str] = ((), {}, "")
        self.meanings: Mapping[Value, object] = {}

    @property
    def graph(self) -> Graph:
        """Which decompositions ask for what is no basic operator.

        Raises:
            UnsupportedError: always: streams have basic operators only.
        """
        raise UnsupportedError("streams have basic operators only")

    def op(self, name: str, *operands: Value, **attrs: Any) -> Streamed:
        """The result of a basic operator.

        Raises:
            UnsupportedError: streams do not compute this, or its run could fail by what the elements are, which
                eager operators tell at once.
            ShapeError, InputError: operands do not fit.
        """
        if name in _TRAPS:
            raise UnsupportedError("an index may be out of range")
        given = [operand for operand in operands if isinstance(operand, Streamed)]
        first = given[0] if given else None
        if name == "cast" and first is not None:
            return self._cast(first, attrs["dtype"])
        kind = OPERATORS[name].kind
        if kind is Kind.REDUCE and not attrs["axes"] and first is not None:
            return first
        takes_numbers = kind is Kind.MAP or name == "broadcast_to"
        held = [x.held if takes_numbers else self.stored(x) for x in given]
        dtype = "" if not given else given[-1].dtype.value
        return streamed(self.stream.append(name, held, _flat(name, attrs), dtype))

    def scalar(self, value: float | int | bool, dtype: DType) -> Streamed:
        """A number of rank 0."""
        return Streamed(np.array(value).astype(dtype.numpy).item(), dtype, ())

    def dims(
        self,
        elements: Sequence[Any],
        shape: Sequence[int] | None = None,
        dtype: DType = DType.INT64,
    ) -> Streamed:
        """A number of rank 0, or a vector of them."""
        if shape == () or (shape is not None and len(shape) == 0):
            return self.scalar(elements[0], dtype)
        value = self.constant(np.array(elements, dtype.numpy).reshape(shape or len(elements)))
        value.elements = tuple(elements)
        return value

    def constant(self, array: np.ndarray[Any, Any]) -> Streamed:
        return streamed(self.stream.constant(np.ascontiguousarray(array)))

    def _cast(self, x: Streamed, dtype: DType) -> Streamed:
        if x.dtype is dtype:
            return x
        if not isinstance(x.held, StreamValue):
            with np.errstate(all="ignore"):
                return self.scalar(
                    np.array(x.held, x.dtype.numpy).astype(dtype.numpy).item(), dtype
                )
        return streamed(self.stream.append("cast", (x.held,), (), dtype.value))

    def stored(self, x: Streamed) -> StreamValue:
        """The value of a number, for operators that take none."""
        if isinstance(x.held, StreamValue):
            return x.held
        return self.stream.append("broadcast_to", (x.held,), (), x.dtype.value)


def _flat(name: str, attrs: Mapping[str, Any]) -> list[int]:
    """Attributes as `Stream.append` takes them: one after the other."""
    names = ("axis", "start", "step", "shape") if name == "iota" else OPERATORS[name].attrs
    flat: list[int] = []
    for attr in names:
        value = attrs[attr]
        flat.extend(value if isinstance(value, tuple | list) else (value,))
    return flat
