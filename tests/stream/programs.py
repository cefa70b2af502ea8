"""Random programs over basic operators with concrete shapes: on a stream, in numpy, and as a graph for the static fuser.

Elements are whole numbers that float32 holds, whatever the order of operations, so results are equal or wrong.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph import _core
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.symbolic import Facts, Symbols
from dvm_graph.symbolic.shape_functions import infer

Array = NDArray[Any]
Operand = int | float
"""The index of a value, or a number."""

_UNARY = {"neg": np.negative, "abs": np.abs, "floor": np.floor, "sign": np.sign}
_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_REDUCE = {"reduce_sum": np.sum, "reduce_max": np.max, "reduce_min": np.min}
_VIEWS = frozenset({"transpose", "reshape", "broadcast_to", "slice"})
_MOST = 2**20
EXTENTS = (1, 1, 2, 3, 4, 6)


@dataclass(frozen=True)
class Step:
    op: str
    operands: tuple[Operand, ...]
    attrs: tuple[int, ...] = ()
    like: str = ""
    """Dtype of a number that stands alone."""


@dataclass
class Program:
    """Values are numbered: those given first, then a result for each step."""

    given: list[Array]
    steps: list[Step] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    """What numpy says that they are."""
    wanted: list[int] = field(default_factory=list)


def random_program(seed: int, most_steps: int = 14) -> Program:
    """A program of up to `most_steps` operators; a third of its results is wanted."""
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    program = Program([])
    for _ in range(draw.randint(1, 3)):
        shape = [draw.choice(EXTENTS) for _ in range(draw.randint(0, 4))]
        program.given.append(numbers.integers(-3, 4, shape).astype(np.float32))
    program.values = list(program.given)
    for _ in range(draw.randint(1, most_steps)):
        step, result = _random_step(draw, program.values, program.given)
        program.steps.append(step)
        program.values.append(np.asarray(result))
    first = len(program.given)
    made = range(first, len(program.values))
    program.wanted = [i for i in made if i == len(program.values) - 1 or draw.random() < 0.3]
    return program


def gated_program(seed: int) -> Program:
    """Products of the same rows, or of others, that meet behind; some are wanted themselves."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    rows, k, n = draw.choice((1, 3, 6)), draw.choice((2, 5)), draw.choice((1, 4))
    batch = draw.choice(((), (2,)))
    program = Program([numbers.integers(-3, 4, (*batch, rows, k)).astype(np.float32)])
    count = draw.randint(2, 5)
    for _ in range(count):
        shape = (*draw.choice(((), batch)), k, n)
        program.given.append(numbers.integers(-3, 4, shape).astype(np.float32))
    program.values = list(program.given)

    def add(op: str, operands: tuple[int, ...], result: Array, attrs: tuple[int, ...] = ()) -> int:
        program.steps.append(Step(op, operands, attrs))
        program.values.append(result)
        return len(program.values) - 1

    met = -1
    for at in range(1, count + 1):
        x, left = 0, program.values[0]
        if draw.random() < 0.1:
            x = add("neg", (0,), left := np.negative(left))
        elif batch and draw.random() < 0.2:
            left = left.reshape(2 * rows, k).reshape(2, rows, k)
            x = add("reshape", (0,), left.reshape(2 * rows, k), (2 * rows, k))
            x = add("reshape", (x,), left, left.shape)
        made = add("matmul", (x, at), np.matmul(left, program.values[at]))
        for _ in range(draw.randint(0, 2)):
            op = draw.choice(sorted(_UNARY))
            made = add(op, (made,), _UNARY[op](program.values[made]))
        if draw.random() < 0.1:
            program.wanted.append(made)
        if met >= 0:
            op = draw.choice(("add", "sub", "max"))
            made = add(op, (met, made), _BINARY[op](program.values[met], program.values[made]))
        met = made
    program.wanted = sorted({*program.wanted, met})
    return program


def _random_step(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array]:
    makers = [_unary, _binary, _binary, _number, _reduce, _view, _view, _matmul, _concat, _gather]
    while True:
        made = draw.choice(makers)(draw, values, given)
        if made is not None and made[1].size <= 5000 and np.abs(made[1]).max() < _MOST:
            return made


def _pick(draw: random.Random, values: list[Array]) -> int:
    """The last values more often than others."""
    return (
        min(draw.randint(0, len(values) - 1), len(values) - 1)
        if draw.random() < 0.4
        else (max(len(values) - 1 - draw.randint(0, 2), 0))
    )


def _unary(draw: random.Random, values: list[Array], given: list[Array]) -> tuple[Step, Array]:
    at, op = _pick(draw, values), draw.choice(sorted(_UNARY))
    return Step(op, (at,)), _UNARY[op](values[at])


def _binary(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array] | None:
    left, right = _pick(draw, values), draw.randint(0, len(values) - 1)
    op = draw.choice(sorted(_BINARY))
    try:
        return Step(op, (left, right)), _BINARY[op](values[left], values[right])
    except ValueError:
        return None


def _number(draw: random.Random, values: list[Array], given: list[Array]) -> tuple[Step, Array]:
    at, number = _pick(draw, values), draw.choice([3.0, -1.0, 2.0])
    op = draw.choice(sorted(_BINARY))
    return Step(op, (at, number)), _BINARY[op](values[at], np.float32(number))


def _reduce(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array] | None:
    at = _pick(draw, values)
    rank = values[at].ndim
    axes = tuple(sorted(draw.sample(range(rank), draw.randint(1, rank)))) if rank else ()
    op = draw.choice(sorted(_REDUCE))
    if not axes:
        return None
    return Step(op, (at,), axes), _REDUCE[op](values[at], axis=axes, keepdims=True)


def _view(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array] | None:
    at = _pick(draw, values)
    x = values[at]
    match draw.choice(["transpose", "reshape", "broadcast_to", "slice"]):
        case "transpose":
            perm = draw.sample(range(x.ndim), x.ndim)
            if perm == sorted(perm):
                return None
            return Step("transpose", (at,), tuple(perm)), np.transpose(x, perm)
        case "reshape":
            shape = _random_shape(draw, x.size)
            return None if shape == x.shape else (Step("reshape", (at,), shape), x.reshape(shape))
        case "broadcast_to":
            shape = tuple(draw.choice(EXTENTS) if e == 1 else e for e in x.shape)
            shape = (draw.choice((2, 3)), *shape) if draw.random() < 0.4 else shape
            if shape == x.shape or len(shape) > 5:
                return None
            return Step("broadcast_to", (at,), shape), np.broadcast_to(x, shape)
    starts, steps, sizes = [], [], []
    for extent in x.shape:
        step = draw.choice((1, 1, 2, -1))
        start = draw.randint(0, extent - 1)
        size = draw.randint(1, 1 + ((extent - 1 - start) // step if step > 0 else start))
        starts, steps, sizes = [*starts, start], [*steps, step], [*sizes, size]
    parts = tuple(
        np.arange(size) * step + start
        for start, step, size in zip(starts, steps, sizes, strict=True)
    )
    result = x[np.ix_(*parts)] if parts else x
    if result.shape == x.shape:
        return None
    return Step("slice", (at,), (*starts, *steps, *sizes)), result


def _random_shape(draw: random.Random, size: int) -> tuple[int, ...]:
    shape = []
    while size > 1 and len(shape) < 3 and draw.random() < 0.7:
        part = draw.choice([d for d in range(1, size + 1) if size % d == 0])
        shape.append(part)
        size //= part
    return (*shape, size)


def _matmul(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array] | None:
    left = _pick(draw, values)
    fits = [
        i
        for i, x in enumerate(values)
        if x.ndim >= 2 and values[left].ndim >= 2 and x.shape[-2] == values[left].shape[-1]
    ]
    if not fits:
        return None
    right = draw.choice(fits)
    try:
        result = np.matmul(values[left], values[right])
    except ValueError:
        return None
    return Step("matmul", (left, right)), result


def _concat(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array] | None:
    at = _pick(draw, values)
    if draw.random() < 0.5 or values[at].ndim == 0:
        return None
    axis = draw.randint(0, values[at].ndim - 1)
    shape = np.delete(values[at].shape, axis).tolist()
    fits = [
        i
        for i, x in enumerate(values)
        if x.ndim == values[at].ndim and np.delete(x.shape, axis).tolist() == shape
    ]
    parts = (at, *draw.choices(fits, k=draw.randint(1, 2)))
    return Step("concat", parts, (axis,)), np.concatenate([values[i] for i in parts], axis)


def _gather(
    draw: random.Random, values: list[Array], given: list[Array]
) -> tuple[Step, Array] | None:
    at = _pick(draw, values)
    if draw.random() < 0.5 or values[at].ndim == 0 or len(values) > len(given) + 100:
        return None
    axis = draw.randint(0, values[at].ndim - 1)
    number = draw.randint(-values[at].shape[axis], values[at].shape[axis] - 1)
    index = np.array([number, 0], np.int64)
    return Step("gather", (at,), (axis, number)), np.take(values[at], index, axis)


# -- the three ways to run one


def on_stream(
    program: Program, stream: _core.Stream, given: Sequence[_core.StreamValue] = ()
) -> dict[int, _core.StreamValue]:
    """The wanted values; nothing else is held."""
    values = list(given) or [stream.constant(array) for array in program.given]
    for step in program.steps:
        operands = [values[o] if isinstance(o, int) else o for o in step.operands]
        attrs = step.attrs
        if step.op == "gather":
            operands.append(stream.constant(np.array([step.attrs[1], 0])))
            attrs = step.attrs[:1]
        values.append(stream.append(step.op, operands, attrs))
    return {i: values[i] for i in program.wanted}


def as_graph(program: Program) -> tuple[Graph, Facts]:
    """For the static fuser: given arrays are inputs, and each reader of a view has one of its own, as on a stream.
    Operators come in the order of the program, which breaks the ties of a topological one.
    """
    graph, facts = Graph("program"), Facts(Symbols())
    first = len(program.given)
    made: dict[int, Value] = {}
    for i, array in enumerate(program.given):
        made[i] = Value(f"x{i}", DType.FLOAT32, array.shape)
        graph.inputs.append(made[i])

    def insert(index: int) -> Value:
        step = program.steps[index - first]
        operands = [operand(o) for o in step.operands]
        if step.op == "gather":
            graph.inputs.append(Value(graph.unique_name("i"), DType.INT64, (2,)))
            operands.append(graph.inputs[-1])
        result = Value(graph.unique_name(f"v{index}"), DType.FLOAT32)
        name = graph.unique_name(f"n{index}")
        node = Node(name, step.op, tuple(operands), (result,), _attrs(step))
        infer(node, facts)
        graph.add(node)
        return result

    def operand(index: Operand) -> Value:
        if isinstance(index, float):
            return graph.constant(np.float32(index), "number")
        return made[index] if index in made else insert(index)

    views = {i + first for i, step in enumerate(program.steps) if step.op in _VIEWS}
    alive = _alive(program)
    outputs = {}
    for index in sorted(alive):
        if index not in views:
            made[index] = outputs[index] = insert(index)
        elif index in program.wanted:
            outputs[index] = insert(index)
    graph.outputs = [outputs[i] for i in program.wanted]
    graph.output_names = tuple(f"o{i}" for i in program.wanted)
    return graph, facts


def _alive(program: Program) -> set[int]:
    """Results that are wanted, or needed for those."""
    first = len(program.given)
    alive = set(program.wanted)
    for index in reversed(range(first, len(program.values))):
        if index in alive:
            alive.update(o for o in program.steps[index - first].operands if isinstance(o, int))
    return {index for index in alive if index >= first}


def _attrs(step: Step) -> dict[str, Any]:
    match step.op:
        case "transpose":
            return {"perm": step.attrs}
        case "reshape" | "broadcast_to":
            return {"shape": step.attrs}
        case "slice":
            rank = len(step.attrs) // 3
            starts, steps, sizes = (step.attrs[i * rank : (i + 1) * rank] for i in range(3))
            return {"starts": starts, "steps": steps, "sizes": sizes}
        case "gather" | "concat":
            return {"axis": step.attrs[0]}
    return {"axes": step.attrs} if step.op.startswith("reduce") else {}
