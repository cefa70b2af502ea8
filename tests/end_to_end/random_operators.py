"""Families of ONNX operators that random graphs are grown from.

One function per family: it picks operands among the values of a `Grower` and adds nodes, or nothing
where nothing fits. Values are kept away from the places where two right answers differ: logarithms,
roots and divisors get operands made positive, steps and comparisons get operands without rounding
errors, integers stay small, indices are valid.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from onnx import helper

from tests.end_to_end.grower import BOOL, FLOAT, HALF, INT, Grower, Tensor, broadcast, compatible

UNARY = (
    "Abs", "Neg", "Relu", "Tanh", "Sigmoid", "Erf", "Softplus", "Softsign", "HardSwish", "LeakyRelu",
    "Elu", "Selu", "Gelu", "Mish",
)  # fmt: skip
UNARY_OF_SMALL = ("Exp", "Sin", "Cos")
STEPS = ("Ceil", "Floor", "Sign")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
COMPARISONS = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual")
REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare")


def unary(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF)
    if tensor is None:
        return
    op = grower.choose(UNARY)
    tensor = grower.small(tensor, 1e3)
    grower.emit(op, [tensor.name], tensor.shape, tensor.dtype, tensor.bound + 2)


def unary_of_small(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF)
    if tensor is None:
        return
    op = grower.choose(UNARY_OF_SMALL)
    tensor = grower.small(tensor, 6.0)
    grower.emit(op, [tensor.name], tensor.shape, tensor.dtype, 500.0 if op == "Exp" else 1.0)


def step(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF, exact=True)
    if tensor is not None:
        op = grower.choose(STEPS)
        grower.emit(op, [tensor.name], tensor.shape, tensor.dtype, tensor.bound + 1)


def positive(grower: Grower) -> None:
    """sqrt, log or 1/x of something made positive."""
    tensor = grower.pick(FLOAT)
    if tensor is None:
        return
    size = grower.emit("Abs", [tensor.name], tensor.shape, FLOAT, tensor.bound)
    one = grower.constant(np.array(1, np.float32))
    above = grower.emit("Add", [size.name, one], tensor.shape, FLOAT, tensor.bound + 1)
    op = grower.choose(("Sqrt", "Log", "Reciprocal"))
    grower.emit(op, [above.name], tensor.shape, FLOAT, tensor.bound + 1)


def binary(grower: Grower) -> None:
    left = grower.pick(FLOAT, HALF, INT)
    if left is None:
        return
    right = grower.partner(left)
    op = grower.choose(BINARY)
    left, right = grower.small(left), grower.small(right)
    bound = max(left.bound * right.bound, left.bound + right.bound)
    if left.dtype == INT and bound > 1e6:
        return
    shape = broadcast(left.shape, right.shape)
    grower.emit(op, [left.name, right.name], shape, left.dtype, bound)


def compare_and_select(grower: Grower) -> None:
    left = grower.pick(FLOAT, INT, exact=True)
    if left is None:
        return
    right = grower.partner(left)
    if not right.exact:
        return
    shape = broadcast(left.shape, right.shape)
    condition = grower.emit(grower.choose(COMPARISONS), [left.name, right.name], shape, BOOL, 1)
    choice = grower.partner(left)
    if not compatible(shape, choice.shape):
        return
    grower.emit(
        "Where",
        [condition.name, left.name, choice.name],
        broadcast(shape, broadcast(left.shape, choice.shape)),
        left.dtype,
        max(left.bound, choice.bound),
    )


def cast(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF, INT, BOOL)
    if tensor is None:
        return
    target = grower.choose((FLOAT, HALF) if tensor.dtype in (FLOAT, HALF) else (FLOAT, INT))
    tensor = grower.small(tensor, 1e3)
    grower.emit("Cast", [tensor.name], tensor.shape, target, tensor.bound, to=target)


def reduce_axes(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=1)
    if tensor is None:
        return
    tensor = grower.small(tensor)
    rank = len(tensor.shape)
    axes = sorted(grower.draw(st.sets(st.integers(0, rank - 1), min_size=1, max_size=rank)))
    grower.sums += [tensor.shape[axis] for axis in axes]
    keep = grower.draw(st.booleans())
    shape = tuple(
        1 if axis in axes else dim
        for axis, dim in enumerate(tensor.shape)
        if keep or axis not in axes
    )
    signed = [axis - rank if grower.draw(st.booleans()) else axis for axis in axes]
    operands = [tensor.name, grower.constant(np.array(signed, np.int64))]
    op = grower.choose(REDUCTIONS)
    grower.emit(op, operands, shape, FLOAT, tensor.bound * 100, keepdims=int(keep))


def softmax(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=1)
    if tensor is None:
        return
    tensor = grower.small(tensor)
    axis = grower.draw(st.integers(-len(tensor.shape), len(tensor.shape) - 1))
    grower.sums.append(tensor.shape[axis])
    op = grower.choose(("Softmax", "LogSoftmax"))
    grower.emit(op, [tensor.name], tensor.shape, FLOAT, 40.0, axis=axis)


def layer_norm(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=1)
    if tensor is None or not isinstance(tensor.shape[-1], int):
        return
    tensor = grower.small(tensor)
    width = tensor.shape[-1]
    scale = grower.constant(np.linspace(0.5, 1.5, width).astype(np.float32))
    shift = grower.constant(np.linspace(-1, 1, width).astype(np.float32))
    grower.sums.append(width)
    # A large epsilon: rows of one repeated value would turn rounding errors into answers.
    grower.emit(
        "LayerNormalization", [tensor.name, scale, shift], tensor.shape, FLOAT, 10.0, epsilon=0.1
    )


def transpose(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF, INT, BOOL, rank=2)
    if tensor is None:
        return
    order = grower.draw(st.permutations(range(len(tensor.shape))))
    shape = tuple(tensor.shape[axis] for axis in order)
    grower.emit("Transpose", [tensor.name], shape, tensor.dtype, tensor.bound, perm=order)


def unsqueeze(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, INT)
    if tensor is None or len(tensor.shape) > 4:
        return
    axis = grower.draw(st.integers(0, len(tensor.shape)))
    shape = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
    operands = [tensor.name, grower.constant(np.array([axis], np.int64))]
    grower.emit("Unsqueeze", operands, shape, tensor.dtype, tensor.bound)


def reshape(grower: Grower) -> None:
    """Merges two neighbouring axes, dynamic ones too."""
    tensor = grower.pick(FLOAT, INT, rank=2)
    if tensor is None:
        return
    axis = grower.draw(st.integers(0, len(tensor.shape) - 2))
    a, b = tensor.shape[axis : axis + 2]
    merged = a * b if isinstance(a, int) and isinstance(b, int) else f"{a}*{b}"
    shape = (*tensor.shape[:axis], merged, *tensor.shape[axis + 2 :])
    # A 0 copies the extent at its place, which holds before the merged axes.
    target = [0] * axis + [d if isinstance(d, int) else -1 for d in shape[axis:]]
    if target.count(-1) > 1:
        return
    operands = [tensor.name, grower.constant(np.array(target, np.int64))]
    grower.emit("Reshape", operands, shape, tensor.dtype, tensor.bound)


def flatten(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, INT, rank=2)
    if tensor is None:
        return
    size = "*".join(map(str, tensor.shape))
    if all(isinstance(d, int) for d in tensor.shape):
        size = int(np.prod(tensor.shape))
    operands = [tensor.name, grower.constant(np.array([-1], np.int64))]
    grower.emit("Reshape", operands, (size,), tensor.dtype, tensor.bound)


def divide_axis(grower: Grower) -> None:
    """Reshapes a known even extent into two axes."""
    tensor = grower.pick(FLOAT, INT, rank=1)
    if tensor is None:
        return
    even = [i for i, d in enumerate(tensor.shape) if isinstance(d, int) and d and d % 2 == 0]
    if not even or len(tensor.shape) > 4:
        return
    axis = grower.choose(even)
    factors = grower.choose([(2, tensor.shape[axis] // 2), (tensor.shape[axis] // 2, 2)])
    shape = (*tensor.shape[:axis], *factors, *tensor.shape[axis + 1 :])
    target = [0] * axis + [d if isinstance(d, int) else -1 for d in shape[axis:]]
    if target.count(-1) > 1:
        return
    operands = [tensor.name, grower.constant(np.array(target, np.int64))]
    grower.emit("Reshape", operands, shape, tensor.dtype, tensor.bound)


def split_heads(grower: Grower) -> None:
    """Reshape by a shape computed with Shape, as exporters do: (.., 8) to (.., 2, 4)."""
    tensor = grower.pick(FLOAT, HALF, rank=1)
    if tensor is None or tensor.shape[-1] != 8:
        return
    shape = grower.emit("Shape", [tensor.name], (len(tensor.shape),), INT, 100, start=0, end=-1)
    grower.tensors.pop()
    heads = grower.constant(np.array([2, 4], np.int64))
    target = grower.emit("Concat", [shape.name, heads], (len(tensor.shape) + 1,), INT, 100, axis=0)
    grower.tensors.pop()
    result = (*tensor.shape[:-1], 2, 4)
    grower.emit("Reshape", [tensor.name, target.name], result, tensor.dtype, tensor.bound)


def expand(grower: Grower) -> None:
    """Expands to the shape of another tensor."""
    tensor = grower.pick(FLOAT, INT)
    if tensor is None:
        return
    others = [t for t in grower.tensors if compatible(tensor.shape, t.shape)]
    other = grower.choose(others)
    target = grower.emit("Shape", [other.name], (len(other.shape),), INT, 100)
    grower.tensors.pop()
    shape = broadcast(tensor.shape, other.shape)
    grower.emit("Expand", [tensor.name, target.name], shape, tensor.dtype, tensor.bound)


def concat(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF, INT, rank=1)
    if tensor is None:
        return
    axis = grower.draw(st.integers(0, len(tensor.shape) - 1))
    if not isinstance(tensor.shape[axis], int):
        return
    others = [
        t
        for t in grower.tensors
        if t.dtype == tensor.dtype
        and len(t.shape) == len(tensor.shape)
        and isinstance(t.shape[axis], int)
        and all(
            a == b for i, (a, b) in enumerate(zip(t.shape, tensor.shape, strict=True)) if i != axis
        )
    ]
    parts = [tensor, *(grower.choose(others) for _ in range(grower.draw(st.integers(0, 2))))]
    extent = sum(int(part.shape[axis]) for part in parts)
    shape = (*tensor.shape[:axis], extent, *tensor.shape[axis + 1 :])
    bound = max(part.bound for part in parts)
    grower.emit("Concat", [p.name for p in parts], shape, tensor.dtype, bound, axis=axis)


def slice_axis(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF, INT, rank=1)
    if tensor is None:
        return
    axis = grower.draw(st.integers(0, len(tensor.shape) - 1))
    if not isinstance(tensor.shape[axis], int):
        return
    start = grower.draw(st.integers(-6, 6))
    stop = grower.draw(st.integers(-6, 9))
    step = grower.choose((1, 1, 2, 3, -1, -2))
    extent = len(range(tensor.shape[axis])[start:stop:step])
    if extent == 0:
        return
    numbers = [grower.constant(np.array([n], np.int64)) for n in (start, stop, axis, step)]
    shape = (*tensor.shape[:axis], extent, *tensor.shape[axis + 1 :])
    grower.emit("Slice", [tensor.name, *numbers], shape, tensor.dtype, tensor.bound)


def split(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=1)
    if tensor is None or not isinstance(tensor.shape[-1], int) or tensor.shape[-1] < 2:
        return
    first = grower.draw(st.integers(1, tensor.shape[-1] - 1))
    sizes = [first, tensor.shape[-1] - first]
    names = [f"v{len(grower.nodes)}", f"v{len(grower.nodes)}b"]
    operands = [tensor.name, grower.constant(np.array(sizes, np.int64))]
    grower.nodes.append(
        helper.make_node("Split", operands, names, axis=-1, name=f"Split_{names[0]}")
    )
    for name, size in zip(names, sizes, strict=True):
        shape = (*tensor.shape[:-1], size)
        grower.tensors.append(Tensor(name, shape, tensor.dtype, tensor.bound, tensor.exact))


def gather(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, HALF, INT, rank=1)
    if tensor is None:
        return
    axis = grower.draw(st.integers(0, len(tensor.shape) - 1))
    extent = tensor.shape[axis]
    if not isinstance(extent, int):
        return
    picked = grower.draw(st.lists(st.integers(-extent, extent - 1), min_size=1, max_size=5))
    scalar = grower.draw(st.booleans())
    index = grower.constant(np.array(picked[0] if scalar else picked, np.int64))
    middle = () if scalar else (len(picked),)
    shape = (*tensor.shape[:axis], *middle, *tensor.shape[axis + 1 :])
    grower.emit("Gather", [tensor.name, index], shape, tensor.dtype, tensor.bound, axis=axis)


def embed(grower: Grower) -> None:
    """Gather by computed indices, brought into range by Mod."""
    index = grower.pick(INT)
    if index is None or len(index.shape) > 3:
        return
    table = grower.constant(np.linspace(-1, 1, 7 * 5).reshape(7, 5).astype(np.float32))
    seven = grower.constant(np.array(7, np.int64))
    valid = grower.emit("Mod", [index.name, seven], index.shape, INT, 7)
    grower.emit("Gather", [table, valid.name], (*index.shape, 5), FLOAT, 1.0)


def matmul_constant(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=1)
    if tensor is None or not isinstance(tensor.shape[-1], int):
        return
    tensor = grower.small(tensor)
    width = tensor.shape[-1]
    columns = grower.choose((1, 2, 5, 8, 33))
    weights = np.sin(np.arange(width * columns)).reshape(width, columns).astype(np.float32)
    grower.sums.append(width)
    operands = [tensor.name, grower.constant(weights)]
    grower.emit("MatMul", operands, (*tensor.shape[:-1], columns), FLOAT, tensor.bound * width)


def matmul_transposed(grower: Grower) -> None:
    """x @ transposed(x): both operands dynamic, a batch of any rank, k of any extent."""
    tensor = grower.pick(FLOAT, rank=2)
    if tensor is None:
        return
    tensor = grower.small(tensor, 8.0)
    *batch, rows, columns = tensor.shape
    order = [*range(len(batch)), len(batch) + 1, len(batch)]
    other = grower.emit(
        "Transpose", [tensor.name], (*batch, columns, rows), FLOAT, tensor.bound, perm=order
    )
    grower.sums.append(columns)
    shape = (*batch, rows, rows)
    grower.emit("MatMul", [tensor.name, other.name], shape, FLOAT, tensor.bound**2 * 64)


def gemm(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=2)
    if tensor is None or len(tensor.shape) != 2 or not isinstance(tensor.shape[-1], int):
        return
    tensor = grower.small(tensor)
    width = tensor.shape[-1]
    weights = np.cos(np.arange(width * 6)).reshape(6, width).astype(np.float32)
    bias = np.linspace(-1, 1, 6).astype(np.float32)
    grower.sums.append(width)
    grower.emit(
        "Gemm",
        [tensor.name, grower.constant(weights), grower.constant(bias)],
        (tensor.shape[0], 6),
        FLOAT,
        tensor.bound * width + 1,
        transB=1,
        alpha=0.5,
    )


def pad(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=1)
    if tensor is None or not isinstance(tensor.shape[-1], int):
        return
    before, after = grower.draw(st.integers(0, 3)), grower.draw(st.integers(0, 3))
    rank = len(tensor.shape)
    pads = np.zeros(2 * rank, np.int64)
    pads[rank - 1], pads[-1] = before, after
    shape = (*tensor.shape[:-1], tensor.shape[-1] + before + after)
    grower.emit("Pad", [tensor.name, grower.constant(pads)], shape, FLOAT, tensor.bound)


def logic(grower: Grower) -> None:
    left = grower.pick(BOOL)
    if left is None:
        return
    others = [t for t in grower.tensors if t.dtype == BOOL and compatible(left.shape, t.shape)]
    right = grower.choose(others)
    shape = broadcast(left.shape, right.shape)
    both = grower.emit(grower.choose(("And", "Or", "Xor")), [left.name, right.name], shape, BOOL, 1)
    grower.emit("Not", [both.name], shape, BOOL, 1)


def arg(grower: Grower) -> None:
    """The first of the extremes, where there are no rounding errors to make another the first."""
    tensor = grower.pick(FLOAT, INT, rank=1, exact=True)
    if tensor is None:
        return
    axis = grower.draw(st.integers(0, len(tensor.shape) - 1))
    shape = (*tensor.shape[:axis], *tensor.shape[axis + 1 :])
    op = grower.choose(("ArgMax", "ArgMin"))
    grower.emit(op, [tensor.name], shape, INT, 1e3, axis=axis, keepdims=0)


def tile(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, INT, rank=1)
    if tensor is None:
        return
    known = [isinstance(d, int) for d in tensor.shape]
    repeats = [grower.choose((1, 2, 3)) if k else 1 for k in known]
    shape = tuple(
        d * r if isinstance(d, int) else d for d, r in zip(tensor.shape, repeats, strict=True)
    )
    operands = [tensor.name, grower.constant(np.array(repeats, np.int64))]
    grower.emit("Tile", operands, shape, tensor.dtype, tensor.bound)


def divide(grower: Grower) -> None:
    """Integers by a positive or negative number, towards zero."""
    tensor = grower.pick(INT)
    if tensor is None:
        return
    divisor = grower.constant(np.array(grower.choose((-3, 2, 5)), np.int64))
    op = grower.choose(("Div", "Mod"))
    grower.emit(op, [tensor.name, divisor], tensor.shape, INT, tensor.bound)


def triangle(grower: Grower) -> None:
    tensor = grower.pick(FLOAT, rank=2)
    if tensor is not None:
        upper = int(grower.draw(st.booleans()))
        shift = grower.constant(np.array(grower.draw(st.integers(-2, 2)), np.int64))
        operands = [tensor.name, shift]
        grower.emit("Trilu", operands, tensor.shape, FLOAT, tensor.bound, upper=upper)


FAMILIES: tuple[tuple[Callable[[Grower], None], int], ...] = (
    (unary, 4),
    (unary_of_small, 2),
    (step, 1),
    (positive, 1),
    (binary, 6),
    (compare_and_select, 2),
    (cast, 1),
    (reduce_axes, 3),
    (softmax, 2),
    (layer_norm, 1),
    (transpose, 3),
    (unsqueeze, 1),
    (reshape, 2),
    (flatten, 1),
    (divide_axis, 2),
    (split_heads, 1),
    (expand, 1),
    (concat, 2),
    (slice_axis, 2),
    (split, 1),
    (gather, 1),
    (embed, 1),
    (matmul_constant, 2),
    (matmul_transposed, 2),
    (gemm, 1),
    (pad, 1),
    (logic, 1),
    (arg, 1),
    (tile, 1),
    (divide, 1),
    (triangle, 1),
)
"""Families with their weights."""
