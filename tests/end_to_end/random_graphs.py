"""Random ONNX graphs over dynamic dims, for differential tests.

A graph is grown node by node. Every value knows its shape as a tuple of dim names and numbers, so
that each node drawn is valid whatever the extents turn out to be, except that some broadcasts are
only right because two dims happen to be equal: none are drawn. Extents are drawn apart from the
graph. What is not drawn: types other than float32, float16, int64 and bool, and operators that the
vendor library would run.

Values are kept away from the places where two right answers differ: logarithms, roots and divisors
get operands made positive, steps and comparisons get operands without rounding errors, integers stay
small, indices are valid.
"""

from __future__ import annotations

import math
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
EXTENTS = (0, 1, 2, 3, 7, 13, 16, 17, 31, 64, 67)
FIXED = (1, 2, 5, 8)
OPSET = 21

FLOAT, HALF, INT, BOOL = (
    TensorProto.FLOAT,
    TensorProto.FLOAT16,
    TensorProto.INT64,
    TensorProto.BOOL,
)

UNARY = (
    "Abs", "Neg", "Relu", "Tanh", "Sigmoid", "Erf", "Softplus", "Softsign", "HardSwish", "LeakyRelu",
    "Elu", "Selu", "Gelu", "Mish",
)  # fmt: skip
UNARY_OF_SMALL = ("Exp", "Sin", "Cos")
STEPS = ("Ceil", "Floor", "Sign")
EXACT = frozenset(
    (
        "Abs", "Neg", "Relu", "Ceil", "Floor", "Sign", "Max", "Min", "ReduceMax", "ReduceMin", "Where",
        "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Cast", "Transpose", "Unsqueeze", "Reshape",
        "ArgMax", "ArgMin", "Tile", "Trilu", "Expand", "Concat", "Slice", "Split", "Gather", "Pad", "Mod", "Shape",
    )
)  # fmt: skip
"""Operators that make no rounding error of their own."""
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
COMPARISONS = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")
NOT_FOR_EMPTY = ("ReduceMax", "ReduceMin", "ReduceMean")


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
class RandomModel:
    """A model and one set of extents to run it at."""

    model: onnx.ModelProto
    dims: tuple[dict[str, int], ...]
    seed: int
    reduction_length: int
    """Longest sum of one output, over all extents."""
    precision: np.dtype[Any]
    """The least precise floating-point type."""

    def feeds(self, dims: dict[str, int]) -> dict[str, Array]:
        generator = np.random.default_rng(self.seed)
        return {
            value.name: _draw_input(generator, value, dims) for value in self.model.graph.input
        }

    @property
    def text(self) -> str:
        """The model, for messages; `onnx.parser` reads it back."""
        return str(onnx.printer.to_text(self.model))


def _draw_input(
    generator: np.random.Generator, value: onnx.ValueInfoProto, dims: dict[str, int]
) -> Array:
    tensor = value.type.tensor_type
    shape = [dims[d.dim_param] if d.dim_param else d.dim_value for d in tensor.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if tensor.elem_type == INT:
        return generator.integers(-4, 5, shape)
    return generator.uniform(-2, 2, shape).astype(dtype)


@dataclass(slots=True)
class _Grower:
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
        self.nodes.append(helper.make_node(op, list(operands), [name], name=f"{op}_{name}", **attrs))
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

    # -- one method per family of operators; each adds nothing where nothing fits

    def unary(self) -> None:
        tensor = self.pick(FLOAT, HALF)
        if tensor is None:
            return
        op = self.choose(UNARY)
        tensor = self.small(tensor, 1e3)
        self.emit(op, [tensor.name], tensor.shape, tensor.dtype, tensor.bound + 2)

    def unary_of_small(self) -> None:
        tensor = self.pick(FLOAT, HALF)
        if tensor is None:
            return
        op = self.choose(UNARY_OF_SMALL)
        tensor = self.small(tensor, 6.0)
        self.emit(op, [tensor.name], tensor.shape, tensor.dtype, 500.0 if op == "Exp" else 1.0)

    def step(self) -> None:
        tensor = self.pick(FLOAT, HALF, exact=True)
        if tensor is not None:
            op = self.choose(STEPS)
            self.emit(op, [tensor.name], tensor.shape, tensor.dtype, tensor.bound + 1)

    def positive(self) -> None:
        """sqrt, log or 1/x of something made positive."""
        tensor = self.pick(FLOAT)
        if tensor is None:
            return
        size = self.emit("Abs", [tensor.name], tensor.shape, FLOAT, tensor.bound)
        one = self.constant(np.array(1, np.float32))
        above = self.emit("Add", [size.name, one], tensor.shape, FLOAT, tensor.bound + 1)
        op = self.choose(("Sqrt", "Log", "Reciprocal"))
        self.emit(op, [above.name], tensor.shape, FLOAT, tensor.bound + 1)

    def binary(self) -> None:
        left = self.pick(FLOAT, HALF, INT)
        if left is None:
            return
        right = self.partner(left)
        op = self.choose(BINARY)
        left, right = self.small(left), self.small(right)
        bound = max(left.bound * right.bound, left.bound + right.bound)
        if left.dtype == INT and bound > 1e6:
            return
        shape = _broadcast(left.shape, right.shape)
        self.emit(op, [left.name, right.name], shape, left.dtype, bound)

    def partner(self, tensor: Tensor) -> Tensor:
        """A tensor that broadcasts with this one: another, a part of its own shape, or a constant."""
        others = [
            t for t in self.tensors if t.dtype == tensor.dtype and _compatible(tensor.shape, t.shape)
        ]
        if self.draw(st.booleans()):
            return self.choose(others)
        fixed = [d if isinstance(d, int) else 1 for d in tensor.shape]
        keep = self.draw(st.integers(0, len(fixed)))
        shape = tuple(fixed[len(fixed) - keep :])
        array = np.linspace(-2, 2, int(np.prod(shape))).reshape(shape)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.dtype)
        return Tensor(self.constant(array.astype(dtype)), shape, tensor.dtype, 2.0)

    def compare_and_select(self) -> None:
        left = self.pick(FLOAT, INT, exact=True)
        if left is None:
            return
        right = self.partner(left)
        if not right.exact:
            return
        shape = _broadcast(left.shape, right.shape)
        condition = self.emit(self.choose(COMPARISONS), [left.name, right.name], shape, BOOL, 1)
        choice = self.partner(left)
        if not _compatible(shape, choice.shape):
            return
        self.emit(
            "Where",
            [condition.name, left.name, choice.name],
            _broadcast(shape, _broadcast(left.shape, choice.shape)),
            left.dtype,
            max(left.bound, choice.bound),
        )

    def cast(self) -> None:
        tensor = self.pick(FLOAT, HALF, INT, BOOL)
        if tensor is None:
            return
        target = self.choose((FLOAT, HALF) if tensor.dtype in (FLOAT, HALF) else (FLOAT, INT))
        tensor = self.small(tensor, 1e3)
        self.emit("Cast", [tensor.name], tensor.shape, target, tensor.bound, to=target)

    def reduce(self) -> None:
        tensor = self.pick(FLOAT, rank=1)
        if tensor is None:
            return
        tensor = self.small(tensor)
        rank = len(tensor.shape)
        axes = sorted(self.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank)))
        self.sums += [tensor.shape[axis] for axis in axes]
        keep = self.draw(st.booleans())
        shape = tuple(
            1 if axis in axes else dim
            for axis, dim in enumerate(tensor.shape)
            if keep or axis not in axes
        )
        signed = [axis - rank if self.draw(st.booleans()) else axis for axis in axes]
        operands = [tensor.name, self.constant(np.array(signed, np.int64))]
        op = self.choose(REDUCTIONS)
        self.emit(op, operands, shape, FLOAT, tensor.bound * 100, keepdims=int(keep))

    def softmax(self) -> None:
        tensor = self.pick(FLOAT, rank=1)
        if tensor is None:
            return
        tensor = self.small(tensor)
        axis = self.draw(st.integers(-len(tensor.shape), len(tensor.shape) - 1))
        self.sums.append(tensor.shape[axis])
        op = self.choose(("Softmax", "LogSoftmax"))
        self.emit(op, [tensor.name], tensor.shape, FLOAT, 40.0, axis=axis)

    def layer_norm(self) -> None:
        tensor = self.pick(FLOAT, rank=1)
        if tensor is None or not isinstance(tensor.shape[-1], int):
            return
        tensor = self.small(tensor)
        width = tensor.shape[-1]
        scale = self.constant(np.linspace(0.5, 1.5, width).astype(np.float32))
        shift = self.constant(np.linspace(-1, 1, width).astype(np.float32))
        self.sums.append(width)
        # A large epsilon: rows of one repeated value would turn rounding errors into answers.
        self.emit(
            "LayerNormalization", [tensor.name, scale, shift], tensor.shape, FLOAT, 10.0, epsilon=0.1
        )

    def transpose(self) -> None:
        tensor = self.pick(FLOAT, HALF, INT, BOOL, rank=2)
        if tensor is None:
            return
        order = self.draw(st.permutations(range(len(tensor.shape))))
        shape = tuple(tensor.shape[axis] for axis in order)
        self.emit("Transpose", [tensor.name], shape, tensor.dtype, tensor.bound, perm=order)

    def unsqueeze(self) -> None:
        tensor = self.pick(FLOAT, INT)
        if tensor is None or len(tensor.shape) > 4:
            return
        axis = self.draw(st.integers(0, len(tensor.shape)))
        shape = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
        operands = [tensor.name, self.constant(np.array([axis], np.int64))]
        self.emit("Unsqueeze", operands, shape, tensor.dtype, tensor.bound)

    def reshape(self) -> None:
        """Merges two neighbouring axes, dynamic ones too."""
        tensor = self.pick(FLOAT, INT, rank=2)
        if tensor is None:
            return
        axis = self.draw(st.integers(0, len(tensor.shape) - 2))
        a, b = tensor.shape[axis : axis + 2]
        merged = a * b if isinstance(a, int) and isinstance(b, int) else f"{a}*{b}"
        shape = (*tensor.shape[:axis], merged, *tensor.shape[axis + 2 :])
        # A 0 copies the extent at its place, which holds before the merged axes.
        target = [0] * axis + [d if isinstance(d, int) else -1 for d in shape[axis:]]
        if target.count(-1) > 1:
            return
        operands = [tensor.name, self.constant(np.array(target, np.int64))]
        self.emit("Reshape", operands, shape, tensor.dtype, tensor.bound)

    def flatten(self) -> None:
        tensor = self.pick(FLOAT, INT, rank=2)
        if tensor is None:
            return
        size = "*".join(map(str, tensor.shape))
        if all(isinstance(d, int) for d in tensor.shape):
            size = int(np.prod(tensor.shape))
        operands = [tensor.name, self.constant(np.array([-1], np.int64))]
        self.emit("Reshape", operands, (size,), tensor.dtype, tensor.bound)

    def divide_axis(self) -> None:
        """Reshapes a known even extent into two axes."""
        tensor = self.pick(FLOAT, INT, rank=1)
        if tensor is None:
            return
        even = [i for i, d in enumerate(tensor.shape) if isinstance(d, int) and d and d % 2 == 0]
        if not even or len(tensor.shape) > 4:
            return
        axis = self.choose(even)
        factors = self.choose([(2, tensor.shape[axis] // 2), (tensor.shape[axis] // 2, 2)])
        shape = (*tensor.shape[:axis], *factors, *tensor.shape[axis + 1 :])
        target = [0] * axis + [d if isinstance(d, int) else -1 for d in shape[axis:]]
        if target.count(-1) > 1:
            return
        operands = [tensor.name, self.constant(np.array(target, np.int64))]
        self.emit("Reshape", operands, shape, tensor.dtype, tensor.bound)

    def split_heads(self) -> None:
        """Reshape by a shape computed with Shape, as exporters do: (.., 8) to (.., 2, 4)."""
        tensor = self.pick(FLOAT, HALF, rank=1)
        if tensor is None or tensor.shape[-1] != 8:
            return
        shape = self.emit("Shape", [tensor.name], (len(tensor.shape),), INT, 100, start=0, end=-1)
        self.tensors.pop()
        heads = self.constant(np.array([2, 4], np.int64))
        target = self.emit("Concat", [shape.name, heads], (len(tensor.shape) + 1,), INT, 100, axis=0)
        self.tensors.pop()
        result = (*tensor.shape[:-1], 2, 4)
        self.emit("Reshape", [tensor.name, target.name], result, tensor.dtype, tensor.bound)

    def expand(self) -> None:
        """Expands to the shape of another tensor."""
        tensor = self.pick(FLOAT, INT)
        if tensor is None:
            return
        others = [t for t in self.tensors if _compatible(tensor.shape, t.shape)]
        other = self.choose(others)
        target = self.emit("Shape", [other.name], (len(other.shape),), INT, 100)
        self.tensors.pop()
        shape = _broadcast(tensor.shape, other.shape)
        self.emit("Expand", [tensor.name, target.name], shape, tensor.dtype, tensor.bound)

    def concat(self) -> None:
        tensor = self.pick(FLOAT, HALF, INT, rank=1)
        if tensor is None:
            return
        axis = self.draw(st.integers(0, len(tensor.shape) - 1))
        if not isinstance(tensor.shape[axis], int):
            return
        others = [
            t
            for t in self.tensors
            if t.dtype == tensor.dtype
            and len(t.shape) == len(tensor.shape)
            and isinstance(t.shape[axis], int)
            and all(a == b for i, (a, b) in enumerate(zip(t.shape, tensor.shape, strict=True)) if i != axis)
        ]
        parts = [tensor, *(self.choose(others) for _ in range(self.draw(st.integers(0, 2))))]
        extent = sum(int(part.shape[axis]) for part in parts)
        shape = (*tensor.shape[:axis], extent, *tensor.shape[axis + 1 :])
        bound = max(part.bound for part in parts)
        self.emit("Concat", [p.name for p in parts], shape, tensor.dtype, bound, axis=axis)

    def slice(self) -> None:
        tensor = self.pick(FLOAT, HALF, INT, rank=1)
        if tensor is None:
            return
        axis = self.draw(st.integers(0, len(tensor.shape) - 1))
        if not isinstance(tensor.shape[axis], int):
            return
        start = self.draw(st.integers(-6, 6))
        stop = self.draw(st.integers(-6, 9))
        step = self.choose((1, 1, 2, 3, -1, -2))
        extent = len(range(tensor.shape[axis])[start:stop:step])
        if extent == 0:
            return
        numbers = [self.constant(np.array([n], np.int64)) for n in (start, stop, axis, step)]
        shape = (*tensor.shape[:axis], extent, *tensor.shape[axis + 1 :])
        self.emit("Slice", [tensor.name, *numbers], shape, tensor.dtype, tensor.bound)

    def split(self) -> None:
        tensor = self.pick(FLOAT, rank=1)
        if tensor is None or not isinstance(tensor.shape[-1], int) or tensor.shape[-1] < 2:
            return
        first = self.draw(st.integers(1, tensor.shape[-1] - 1))
        sizes = [first, tensor.shape[-1] - first]
        names = [f"v{len(self.nodes)}", f"v{len(self.nodes)}b"]
        operands = [tensor.name, self.constant(np.array(sizes, np.int64))]
        self.nodes.append(helper.make_node("Split", operands, names, axis=-1, name=f"Split_{names[0]}"))
        for name, size in zip(names, sizes, strict=True):
            shape = (*tensor.shape[:-1], size)
            self.tensors.append(Tensor(name, shape, tensor.dtype, tensor.bound, tensor.exact))

    def gather(self) -> None:
        tensor = self.pick(FLOAT, HALF, INT, rank=1)
        if tensor is None:
            return
        axis = self.draw(st.integers(0, len(tensor.shape) - 1))
        extent = tensor.shape[axis]
        if not isinstance(extent, int):
            return
        picked = self.draw(st.lists(st.integers(-extent, extent - 1), min_size=1, max_size=5))
        scalar = self.draw(st.booleans())
        index = self.constant(np.array(picked[0] if scalar else picked, np.int64))
        middle = () if scalar else (len(picked),)
        shape = (*tensor.shape[:axis], *middle, *tensor.shape[axis + 1 :])
        self.emit("Gather", [tensor.name, index], shape, tensor.dtype, tensor.bound, axis=axis)

    def embed(self) -> None:
        """Gather by computed indices, brought into range by Mod."""
        index = self.pick(INT)
        if index is None or len(index.shape) > 3:
            return
        table = self.constant(np.linspace(-1, 1, 7 * 5).reshape(7, 5).astype(np.float32))
        seven = self.constant(np.array(7, np.int64))
        valid = self.emit("Mod", [index.name, seven], index.shape, INT, 7)
        self.emit("Gather", [table, valid.name], (*index.shape, 5), FLOAT, 1.0)

    def matmul_constant(self) -> None:
        tensor = self.pick(FLOAT, rank=1)
        if tensor is None or not isinstance(tensor.shape[-1], int):
            return
        tensor = self.small(tensor)
        width = tensor.shape[-1]
        columns = self.choose((1, 2, 5, 8, 33))
        weights = np.sin(np.arange(width * columns)).reshape(width, columns).astype(np.float32)
        self.sums.append(width)
        operands = [tensor.name, self.constant(weights)]
        self.emit("MatMul", operands, (*tensor.shape[:-1], columns), FLOAT, tensor.bound * width)

    def matmul_transposed(self) -> None:
        """x @ transposed(x): both operands dynamic, a batch of any rank, k of any extent."""
        tensor = self.pick(FLOAT, rank=2)
        if tensor is None:
            return
        tensor = self.small(tensor, 8.0)
        *batch, rows, columns = tensor.shape
        order = [*range(len(batch)), len(batch) + 1, len(batch)]
        other = self.emit(
            "Transpose", [tensor.name], (*batch, columns, rows), FLOAT, tensor.bound, perm=order
        )
        self.sums.append(columns)
        shape = (*batch, rows, rows)
        self.emit("MatMul", [tensor.name, other.name], shape, FLOAT, tensor.bound**2 * 64)

    def gemm(self) -> None:
        tensor = self.pick(FLOAT, rank=2)
        if tensor is None or len(tensor.shape) != 2 or not isinstance(tensor.shape[-1], int):
            return
        tensor = self.small(tensor)
        width = tensor.shape[-1]
        weights = np.cos(np.arange(width * 6)).reshape(6, width).astype(np.float32)
        bias = np.linspace(-1, 1, 6).astype(np.float32)
        self.sums.append(width)
        self.emit(
            "Gemm",
            [tensor.name, self.constant(weights), self.constant(bias)],
            (tensor.shape[0], 6),
            FLOAT,
            tensor.bound * width + 1,
            transB=1,
            alpha=0.5,
        )

    def pad(self) -> None:
        tensor = self.pick(FLOAT, rank=1)
        if tensor is None or not isinstance(tensor.shape[-1], int):
            return
        before, after = self.draw(st.integers(0, 3)), self.draw(st.integers(0, 3))
        rank = len(tensor.shape)
        pads = np.zeros(2 * rank, np.int64)
        pads[rank - 1], pads[-1] = before, after
        shape = (*tensor.shape[:-1], tensor.shape[-1] + before + after)
        self.emit("Pad", [tensor.name, self.constant(pads)], shape, FLOAT, tensor.bound)


    def logic(self) -> None:
        left = self.pick(BOOL)
        if left is None:
            return
        others = [t for t in self.tensors if t.dtype == BOOL and _compatible(left.shape, t.shape)]
        right = self.choose(others)
        shape = _broadcast(left.shape, right.shape)
        both = self.emit(self.choose(("And", "Or", "Xor")), [left.name, right.name], shape, BOOL, 1)
        self.emit("Not", [both.name], shape, BOOL, 1)

    def arg(self) -> None:
        """The first of the extremes, where there are no rounding errors to make another the first."""
        tensor = self.pick(FLOAT, INT, rank=1, exact=True)
        if tensor is None:
            return
        axis = self.draw(st.integers(0, len(tensor.shape) - 1))
        shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
        op = self.choose(("ArgMax", "ArgMin"))
        self.emit(op, [tensor.name], shape, INT, 1e3, axis=axis, keepdims=0)

    def tile(self) -> None:
        tensor = self.pick(FLOAT, INT, rank=1)
        if tensor is None:
            return
        known = [isinstance(d, int) for d in tensor.shape]
        repeats = [self.choose((1, 2, 3)) if k else 1 for k in known]
        shape = tuple(
            d * r if isinstance(d, int) else d
            for d, r in zip(tensor.shape, repeats, strict=True)
        )
        operands = [tensor.name, self.constant(np.array(repeats, np.int64))]
        self.emit("Tile", operands, shape, tensor.dtype, tensor.bound)

    def divide(self) -> None:
        """Integers by a positive or negative number, towards zero."""
        tensor = self.pick(INT)
        if tensor is None:
            return
        divisor = self.constant(np.array(self.choose((-3, 2, 5)), np.int64))
        op = self.choose(("Div", "Mod"))
        self.emit(op, [tensor.name, divisor], tensor.shape, INT, tensor.bound)

    def triangle(self) -> None:
        tensor = self.pick(FLOAT, rank=2)
        if tensor is not None:
            upper = int(self.draw(st.booleans()))
            shift = self.constant(np.array(self.draw(st.integers(-2, 2)), np.int64))
            operands = [tensor.name, shift]
            self.emit("Trilu", operands, tensor.shape, FLOAT, tensor.bound, upper=upper)


FAMILIES: tuple[tuple[Callable[[_Grower], None], int], ...] = (
    (_Grower.unary, 4),
    (_Grower.unary_of_small, 2),
    (_Grower.step, 1),
    (_Grower.positive, 1),
    (_Grower.binary, 6),
    (_Grower.compare_and_select, 2),
    (_Grower.cast, 1),
    (_Grower.reduce, 3),
    (_Grower.softmax, 2),
    (_Grower.layer_norm, 1),
    (_Grower.transpose, 3),
    (_Grower.unsqueeze, 1),
    (_Grower.reshape, 2),
    (_Grower.flatten, 1),
    (_Grower.divide_axis, 2),
    (_Grower.split_heads, 1),
    (_Grower.expand, 1),
    (_Grower.concat, 2),
    (_Grower.slice, 2),
    (_Grower.split, 1),
    (_Grower.gather, 1),
    (_Grower.embed, 1),
    (_Grower.matmul_constant, 2),
    (_Grower.matmul_transposed, 2),
    (_Grower.gemm, 1),
    (_Grower.pad, 1),
    (_Grower.logic, 1),
    (_Grower.arg, 1),
    (_Grower.tile, 1),
    (_Grower.divide, 1),
    (_Grower.triangle, 1),
)


def _compatible(left: Shape, right: Shape) -> bool:
    """Whether shapes broadcast whatever the extents: a dim meets itself or a 1."""
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def _broadcast(left: Shape, right: Shape) -> Shape:
    rank = max(len(left), len(right))
    a = (1,) * (rank - len(left)) + left
    b = (1,) * (rank - len(right)) + right
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


@st.composite
def random_models(draw: Draw) -> RandomModel:
    """Models of up to a dozen families' worth of nodes, with two or three sets of extents."""
    grower = _Grower(draw)
    for _ in range(draw(st.integers(1, 3))):
        grower.input(draw(st.sampled_from((FLOAT, FLOAT, FLOAT, HALF, INT))))
    # A few families at a time: they meet more often than if all took part.
    few = draw(st.sets(st.sampled_from(FAMILIES), min_size=2, max_size=len(FAMILIES)))
    weighted = [family for family, weight in FAMILIES if (family, weight) in few for _ in range(weight)]
    for _ in range(draw(st.integers(1, 12))):
        grower.choose(weighted)(grower)
    if not grower.nodes:
        tensor = grower.inputs[0]
        grower.emit("Neg", [tensor.name], tensor.shape, tensor.dtype, tensor.bound)
    dims = tuple(
        {symbol: draw(st.sampled_from(EXTENTS)) for symbol in SYMBOLS}
        for _ in range(draw(st.integers(1, 3)))
    )
    half = any(tensor.dtype == HALF for tensor in grower.tensors)
    precision = np.dtype(np.float16 if half else np.float32)
    seed = draw(st.integers(0, 9))
    return RandomModel(_model(grower), dims, seed, _longest(grower.sums, dims), precision)


def _longest(sums: Sequence[Dim], dims: Sequence[dict[str, int]]) -> int:
    """The product of the longest of each, which is cautious: few of the sums follow each other."""
    return math.prod(max(1, *(_extent(dim, extents) for extents in dims)) for dim in sums)


def _extent(dim: Dim, extents: dict[str, int]) -> int:
    """The extent of a dim, which may be a product of dims."""
    if isinstance(dim, int):
        return dim
    return math.prod(extents[f] if f in extents else int(f) for f in dim.split("*"))


def _model(grower: _Grower) -> onnx.ModelProto:
    read = {name for node in grower.nodes for name in node.input}
    results = [t for t in grower.tensors if t.name not in read and t not in grower.inputs]

    def info(tensor: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor.name, tensor.dtype, tensor.shape)

    graph = helper.make_graph(
        grower.nodes,
        "random",
        [info(tensor) for tensor in grower.inputs],
        [info(tensor) for tensor in results],
        grower.constants,
    )
    imports = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, ir_version=10, opset_imports=imports)
