"""Symbolic contents of integer tensors against numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dvm_graph.errors import ShapeError
from dvm_graph.ir import DType, Graph, Value
from dvm_graph.symbolic import Builder, Facts, substitute

Array = np.ndarray[Any, Any]
SHAPES = [
    ((), ()),
    ((3,), (3,)),
    ((3,), ()),
    ((), (2,)),
    ((1,), (3,)),
    ((2, 3), (3,)),
    ((0,), (1,)),
]


class Tensors:
    """Integer tensors whose elements are partly symbols, and what numbers they are."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.builder = Builder(Graph(), self.facts)
        self.values: dict[Any, int] = {}

    def tensor(self, numbers: Array, symbolic: list[bool]) -> Value:
        elements = []
        for number, is_symbol in zip(numbers.reshape(-1).tolist(), symbolic * 9, strict=False):
            if is_symbol and number >= 0:
                symbol = self.facts.symbols.fresh("s")
                self.values[symbol] = number
                elements.append(symbol)
            else:
                elements.append(number)
        return self.builder.dims(elements, numbers.shape)

    def numbers(self, value: Value) -> Array:
        assert value.elements is not None and value.shape is not None
        elements = [substitute(element, self.values) for element in value.elements]
        return np.array(elements, value.dtype.numpy).reshape(value.shape)


def _truncating(function: Callable[[int, int], int]) -> Callable[[Array, Array], Array]:
    return np.vectorize(function, otypes=[np.int64])


REFERENCE: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "mod": np.mod, "fmod": np.fmod, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "div": _truncating(lambda a, b: int(a / b)),
}  # fmt: skip
flags = st.lists(st.booleans(), min_size=1, max_size=6)


def _integers(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-6, 12, shape)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(REFERENCE)), st.sampled_from(SHAPES), st.integers(0, 999), flags, flags
)
def test_binary(name: str, shapes: Any, seed: int, first: list[bool], second: list[bool]) -> None:
    a, b = _integers(shapes[0], seed), _integers(shapes[1], seed + 1)
    if name in ("div", "mod", "fmod"):
        b = np.where(b == 0, 1, b)
    tensors = Tensors()
    operands = tensors.tensor(a, first), tensors.tensor(b, second)
    result = tensors.builder.op(name, *operands)
    expected = REFERENCE[name](a, b)
    np.testing.assert_array_equal(tensors.numbers(result), expected)
    choice = tensors.builder.select(tensors.builder.lt(*operands), operands[0], operands[1])
    np.testing.assert_array_equal(tensors.numbers(choice), np.where(a < b, a, b))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([(), (3,), (2, 3), (2, 1, 2)]), st.integers(0, 999), flags, st.data())
def test_arrangements(shape: tuple[int, ...], seed: int, symbolic: list[bool], data: Any) -> None:
    array = _integers(shape, seed)
    tensors = Tensors()
    x, builder, rank = tensors.tensor(array, symbolic), tensors.builder, len(shape)

    def check(value: Value, expected: Array) -> None:
        np.testing.assert_array_equal(tensors.numbers(value), expected)

    check(builder.abs(x), np.abs(array))
    check(builder.sign(x), np.sign(array))
    check(builder.neg(builder.shift_right(x, tensors.tensor(np.array(1), [False]))), -(array >> 1))
    check(builder.reshape(x, (array.size,)), array.reshape(-1))
    perm = data.draw(st.permutations(range(rank)))
    check(builder.transpose(x, perm), array.transpose(perm))
    check(builder.broadcast_to(x, (2, *shape)), np.broadcast_to(array, (2, *shape)))
    check(builder.iota((3, 2), 0, 5, -2), np.array([[5, 5], [3, 3], [1, 1]]))
    axes = tuple(data.draw(st.sets(st.integers(0, rank - 1)))) if rank else ()
    check(builder.reduce_sum(x, axes), array.sum(axes, keepdims=True) if axes else array)
    check(builder.reduce_prod(x, axes), array.prod(axes, keepdims=True) if axes else array)
    check(builder.reduce_max(x, axes), array.max(axes, keepdims=True) if axes else array)
    for axis in range(rank):
        extent = shape[axis]
        index = data.draw(st.lists(st.integers(-extent, extent - 1), min_size=1, max_size=3))
        indices = builder.constant(np.array(index))
        check(builder.gather(x, indices, axis), array.take(index, axis))
        check(builder.concat([x, x], axis), np.concatenate([array, array], axis))
        starts, sizes = [0] * rank, list(shape)
        starts[axis], sizes[axis] = extent - 1, 1
        check(builder.slice(x, starts, sizes, [-1] * rank), array.take([extent - 1], axis)) if (
            rank == 1
        ) else None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 999), flags, st.sampled_from(list(DType)))
def test_casts(seed: int, symbolic: list[bool], dtype: DType) -> None:
    assume(dtype is not DType.OPAQUE and not dtype.is_float)
    array = _integers((4,), seed)
    tensors = Tensors()
    result = tensors.builder.cast(tensors.tensor(array, symbolic), dtype)
    if result.elements is not None:
        np.testing.assert_array_equal(tensors.numbers(result), array.astype(dtype.numpy))
    if dtype in (DType.INT64, DType.INT32, DType.BOOL) or all(
        isinstance(element, int) for element in tensors.tensor(array, symbolic).elements or ()
    ):
        assert result.elements is not None


def test_logic_of_conditions() -> None:
    tensors = Tensors()
    s = tensors.facts.symbols.get("s")
    builder = tensors.builder
    x = builder.dims([s], ())
    small = builder.lt(x, builder.scalar(8, DType.INT64))
    even = builder.eq(
        builder.mod(x, builder.scalar(2, DType.INT64)), builder.scalar(0, DType.INT64)
    )
    for number in range(12):
        tensors.values = {s: number}
        is_small, is_even = number < 8, number % 2 == 0
        assert tensors.numbers(builder.bitwise_and(small, even)) == (is_small and is_even)
        assert tensors.numbers(builder.bitwise_or(small, even)) == (is_small or is_even)
        assert tensors.numbers(builder.bitwise_xor(small, even)) == (is_small != is_even)
        assert tensors.numbers(builder.logical_not(small)) == (not is_small)


def test_conditions_that_are_provable_are_numbers() -> None:
    tensors = Tensors()
    s = tensors.facts.symbols.get("s")
    builder = tensors.builder
    wanted = builder.dims([s, -1, 4])
    minus_one = builder.scalar(-1, DType.INT64)
    is_open = builder.eq(wanted, minus_one)
    assert is_open.elements == (0, 1, 0)
    ones = builder.broadcast_to(builder.scalar(1, DType.INT64), (3,))
    assert builder.select(is_open, ones, wanted).elements == (s, 1, 4)


def test_unsigned_types_hold_no_negative_expression() -> None:
    tensors = Tensors()
    s = tensors.facts.symbols.get("s")
    builder = tensors.builder
    below = builder.cast(builder.dims([s - 1]), DType.UINT32)
    assert below.elements is None
    assert builder.cast(builder.dims([s]), DType.UINT64).elements == (s,)


def test_an_index_out_of_range_is_an_error() -> None:
    tensors = Tensors()
    s = tensors.facts.symbols.get("s")
    with pytest.raises(ShapeError, match="index 2 is outside"):
        tensors.builder.gather(
            tensors.builder.dims([s, 4]), tensors.builder.scalar(2, DType.INT64), 0
        )
