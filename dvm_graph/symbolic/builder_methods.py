"""A method per basic operator, named as the operator; all end in `op`.

Attributes are normalised here: axes count from the front and are sorted, sequences are tuples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from dvm_graph.ir import DType, Value
from dvm_graph.options import Options
from dvm_graph.symbolic.polynomial import Dim


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the rows and columns of channels-last images, and the size of the result; patches may be of
    volumes, slices before rows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    """At the front, top and left; what lies behind, below and right follows from the size."""
    size: tuple[Dim, ...]

    @property
    def attrs(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


Unary: TypeAlias = "Callable[[OperatorMethods, Value], Value]"
Binary: TypeAlias = "Callable[[OperatorMethods, Value, Value], Value]"


def _unary(name: str) -> Unary:
    def build(self: OperatorMethods, x: Value) -> Value:
        return self.op(name, x)

    build.__name__ = name
    return build


def _binary(name: str) -> Binary:
    def build(self: OperatorMethods, a: Value, b: Value) -> Value:
        return self.op(name, a, b)

    build.__name__ = name
    return build


class OperatorMethods(ABC):
    """Calls for all basic operators."""

    options: Options
    """Of which `rounds_blocks` and `transforms` are read while operators are built."""

    @abstractmethod
    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """The result of a basic operator."""

    abs = _unary("abs")
    neg = _unary("neg")
    sign = _unary("sign")
    sqrt = _unary("sqrt")
    rsqrt = _unary("rsqrt")
    reciprocal = _unary("reciprocal")
    exp = _unary("exp")
    log = _unary("log")
    log1p = _unary("log1p")
    sin = _unary("sin")
    cos = _unary("cos")
    tan = _unary("tan")
    asin = _unary("asin")
    acos = _unary("acos")
    atan = _unary("atan")
    sinh = _unary("sinh")
    cosh = _unary("cosh")
    asinh = _unary("asinh")
    acosh = _unary("acosh")
    atanh = _unary("atanh")
    erf = _unary("erf")
    tanh = _unary("tanh")
    sigmoid = _unary("sigmoid")
    floor = _unary("floor")
    ceil = _unary("ceil")
    round = _unary("round")
    trunc = _unary("trunc")
    logical_not = _unary("logical_not")
    bitwise_not = _unary("bitwise_not")
    isnan = _unary("isnan")
    isinf = _unary("isinf")
    isfinite = _unary("isfinite")

    add = _binary("add")
    sub = _binary("sub")
    mul = _binary("mul")
    div = _binary("div")
    mod = _binary("mod")
    fmod = _binary("fmod")
    pow = _binary("pow")
    min = _binary("min")
    max = _binary("max")
    bitwise_and = _binary("bitwise_and")
    bitwise_or = _binary("bitwise_or")
    bitwise_xor = _binary("bitwise_xor")
    shift_left = _binary("shift_left")
    shift_right = _binary("shift_right")
    eq = _binary("eq")
    ne = _binary("ne")
    lt = _binary("lt")
    le = _binary("le")
    gt = _binary("gt")
    ge = _binary("ge")

    def matmul(self, a: Value, b: Value, rounded_blocks: int | None = None) -> Value:
        if rounded_blocks is None and self.options.rounds_blocks:
            rounded_blocks = b.packed_block
        attrs = {} if rounded_blocks is None else {"rounded_blocks": rounded_blocks}
        return self.op("matmul", a, b, **attrs)

    def select(self, condition: Value, then: Value, other: Value) -> Value:
        return self.op("select", condition, then, other)

    def cast(self, x: Value, dtype: DType) -> Value:
        return self.op("cast", x, dtype=dtype)

    def check_index(self, index: Value, limit: Dim) -> Value:
        return self.op("check_index", index, limit=limit)

    def reduce_sum(self, x: Value, axes: Sequence[int]) -> Value:
        return self.op("reduce_sum", x, axes=_axes(axes, x.rank))

    def reduce_prod(self, x: Value, axes: Sequence[int]) -> Value:
        return self.op("reduce_prod", x, axes=_axes(axes, x.rank))

    def reduce_max(self, x: Value, axes: Sequence[int]) -> Value:
        return self.op("reduce_max", x, axes=_axes(axes, x.rank))

    def reduce_min(self, x: Value, axes: Sequence[int]) -> Value:
        return self.op("reduce_min", x, axes=_axes(axes, x.rank))

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        return self.op("reshape", x, shape=tuple(shape))

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        return self.op("transpose", x, perm=tuple(perm))

    def broadcast_to(self, x: Value, shape: Sequence[Dim]) -> Value:
        return self.op("broadcast_to", x, shape=tuple(shape))

    def slice(
        self,
        x: Value,
        starts: Sequence[Dim],
        sizes: Sequence[Dim],
        steps: Sequence[Dim] | None = None,
    ) -> Value:
        """out[i...] = x[start + i * step ...]; one entry per axis, steps of 1 unless given."""
        steps = (1,) * len(starts) if steps is None else tuple(steps)
        return self.op("slice", x, starts=tuple(starts), steps=steps, sizes=tuple(sizes))

    def concat(self, values: Sequence[Value], axis: int) -> Value:
        return self.op("concat", *values, axis=_axis(axis, values[0].rank))

    def gather(self, x: Value, index: Value, axis: int) -> Value:
        return self.op("gather", x, index, axis=_axis(axis, x.rank))

    def lookup(self, x: Value, table: Sequence[int], dtype: DType) -> Value:
        """What a table has for each byte, unsigned ones in order."""
        return self.op("lookup", x, table=tuple(table), dtype=dtype)

    def pool_max(self, x: Value, window: Window) -> Value:
        """The greatest element of each window, channel by channel."""
        return self.op("pool_max", x, **window.attrs)

    def pool_sum(self, x: Value, window: Window) -> Value:
        return self.op("pool_sum", x, **window.attrs)

    def depthwise(
        self, x: Value, weights: Value, window: Window, groups: int, outside: int = 0
    ) -> Value:
        """Each group of channels convolved by itself; `weights` are [taps * channels of a group, results]. What lies around
        an image of bytes is `outside`.
        """
        return self.op("depthwise", x, weights, **window.attrs, groups=groups, outside=outside)

    def patches(self, x: Value, window: Window, groups: int = 1) -> Value:
        return self.op("patches", x, **window.attrs, groups=groups)

    def unpack_blocks(
        self, levels: Value, zeros: Value | None, scales: Value, bits: int, k: int
    ) -> Value:
        numbers = (scales,) if zeros is None else (zeros, scales)
        return self.op("unpack_blocks", levels, *numbers, bits=bits, k=k)

    def iota(self, shape: Sequence[Dim], axis: int = 0, start: Dim = 0, step: Dim = 1) -> Value:
        return self.op("iota", shape=tuple(shape), axis=axis, start=start, step=step)


def _axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def _axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    return tuple(sorted({_axis(axis, rank) for axis in axes}))
