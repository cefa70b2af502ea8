"""Grows ONNX graphs node by node, for the strategies of `random_graphs`.

Every value knows its shape as a tuple of numbers and dim names (or products of them), so that each
node added is valid whatever the extents turn out to be, and a bound of its magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

Dim: TypeAlias = "int | str"
Shape: TypeAlias = "tuple[Dim, ...]"
Array: TypeAlias = np.ndarray[Any, Any]
Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

SYMBOLS = ("batch", "seq", "width")
FIXED = (1, 2, 5, 8)

FLOAT, HALF, INT, BOOL = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.INT64,
    TensorProto.BOOL,
)

EXACT = frozenset(
    (
        "Abs", "Neg", "Relu", "Ceil", "Floor", "Sign", "Max", "Min", "ReduceMax", "ReduceMin", "Where",
        "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Cast", "Transpose", "Unsqueeze", "Reshape",
        "ArgMax", "ArgMin", "Tile", "Trilu", "Expand", "Concat", "Slice", "Split",
        "Gather", "Pad", "Mod", "Shape",
    )
)  # fmt: skip
"""Operators that make no rounding error of their own."""


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: Shape
    dtype: int
    bound: float
    """Magnitudes stay about below this."""
    exact: bool = True
    """Without any rounding error: every right implementation gives the same bits."""


@dataclass(slots=True)
class Grower:
    draw: Draw
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    sums: list[Dim] = field(default_factory=list)
    """Dims that were summed over."""

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def input(self, dtype: int) -> None:
        rank = self.draw(st.integers(1, 4))
        shape = tuple(self.choose(SYMBOLS + FIXED) for _ in range(rank))
        tensor = Tensor(f"x{len(self.inputs)}", shape, dtype, 4.0)
        self.inputs.append(tensor)
        self.tensors.append(tensor)

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def emit(
        self, op: str, operands: Sequence[str], shape: Shape, dtype: int, bound: float, **attrs: Any
    ) -> Tensor:
        name = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, list(operands), [name], name=f"{op}_{name}", **attrs)
        )
        rounded = {t.name for t in self.tensors if not t.exact}
        exact = (op in EXACT or dtype == INT) and rounded.isdisjoint(operands)
        tensor = Tensor(name, shape, dtype, bound, exact)
        self.tensors.append(tensor)
        return tensor

    def pick(self, *dtypes: int, rank: int = 0, exact: bool = False) -> Tensor | None:
        fitting = [
            t
            for t in self.tensors
            if t.dtype in dtypes and len(t.shape) >= rank and t.exact >= exact
        ]
        return self.choose(fitting[::-1]) if fitting else None

    def small(self, tensor: Tensor, limit: float = 30.0) -> Tensor:
        """The tensor, or its hyperbolic tangent where it may be large."""
        if tensor.bound <= limit or tensor.dtype == INT:
            return tensor
        return self.emit("Tanh", [tensor.name], tensor.shape, tensor.dtype, 1.0)

    def partner(self, tensor: Tensor) -> Tensor:
        """A tensor that broadcasts with this one: another, a part of its own shape, or a constant."""
        others = [
            t for t in self.tensors if t.dtype == tensor.dtype and compatible(tensor.shape, t.shape)
        ]
        if self.draw(st.booleans()):
            return self.choose(others)
        fixed = [d if isinstance(d, int) else 1 for d in tensor.shape]
        keep = self.draw(st.integers(0, len(fixed)))
        shape = tuple(fixed[len(fixed) - keep :])
        array = np.linspace(-2, 2, int(np.prod(shape))).reshape(shape)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.dtype)
        return Tensor(self.constant(array.astype(dtype)), shape, tensor.dtype, 2.0)


def compatible(left: Shape, right: Shape) -> bool:
    """Whether shapes broadcast whatever the extents: a dim meets itself or a 1."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def broadcast(left: Shape, right: Shape) -> Shape:
    rank = max(len(left), len(right))
    a = (1,) * (rank - len(left)) + left
    b = (1,) * (rank - len(right)) + right
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))
