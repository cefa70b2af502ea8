"""Random programs over arrays with Python's control flow equal numpy.

A program is a list of statements over a growing list of arrays; conditions and turns of loops hang on elements. It runs
twice, with numpy as the namespace and with lazy arrays. Elements are small whole numbers in every dtype, so that every
result is exact, and a branch never hangs on rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dvm_graph.xp as xp

DTYPES = ["float32", "float64", "int32", "int64", "int16", "int8"]
LARGEST = 50
"""What every result is clipped to: squares fit int16, sums of a few of them float32."""

_index = st.integers(0, 10**6)
_plain = st.one_of(
    st.tuples(st.just("unary"), st.sampled_from(["negative", "abs", "sign", "square"]), _index),
    st.tuples(
        st.just("binary"),
        st.sampled_from(["add", "subtract", "multiply", "maximum", "minimum", "remainder"]),
        _index,
        _index,
    ),
    st.tuples(st.just("number"), st.sampled_from(["+", "-", "*", "//"]), _index, st.integers(1, 5)),
    st.tuples(
        st.just("compare"), st.sampled_from(["less", "equal", "greater_equal"]), _index, _index
    ),
    st.tuples(
        st.just("reduce"), st.sampled_from(["sum", "max", "min"]), _index, _index, st.booleans()
    ),
    st.tuples(st.just("place"), st.sampled_from(["argmax", "argmin"]), _index, _index),
    st.tuples(st.just("reshape"), _index, _index),
    st.tuples(st.just("permute"), _index, st.randoms(use_true_random=False)),
    st.tuples(st.just("slice"), _index, _index, st.integers(-4, 4), st.sampled_from([1, 2, -1])),
    st.tuples(st.just("item"), _index, _index),
    st.tuples(st.just("assign"), _index, _index, st.integers(-9, 9)),
    st.tuples(st.just("concat"), _index, _index, _index),
    st.tuples(st.just("take"), _index, _index, st.lists(st.integers(0, 99), max_size=4)),
    st.tuples(st.just("mask"), _index),
    st.tuples(st.just("sort"), _index),
    st.tuples(st.just("matmul"), _index, _index),
    st.tuples(st.just("astype"), _index, st.sampled_from(DTYPES)),
    st.tuples(st.just("look"), _index),
)
_block = st.deferred(lambda: st.lists(_statement, min_size=2, max_size=7))
_statement = st.one_of(
    *(_plain,) * 4,
    st.tuples(st.just("if"), _index, _block, _block),
    st.tuples(st.just("while"), _index, _block),
    st.tuples(st.just("for"), _index, _block),
    st.tuples(st.just("recurse"), _index),
)
_shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def _inputs(draw: st.DrawFn) -> list[np.ndarray[Any, Any]]:
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    count = draw(st.integers(1, 3))
    drawn = [(draw(_shapes), draw(st.sampled_from(DTYPES))) for _ in range(count)]
    return [rng.integers(-9, 9, shape).astype(dtype) for shape, dtype in drawn]


class Machine:
    """Runs programs with one namespace. Statements that fit no arrays are left out, by shapes and dtypes alone."""

    def __init__(self, ns: Any, inputs: list[np.ndarray[Any, Any]]) -> None:
        self.ns = ns
        self.values = [ns.asarray(array) for array in inputs]

    def run(self, block: list[Any]) -> None:
        for kind, *arguments in block:
            getattr(self, f"_{kind}")(*arguments)

    def _get(self, index: int) -> Any:
        return self.values[index % len(self.values)]

    def _put(self, value: Any) -> None:
        if value.dtype != self.ns.bool:
            value = self.ns.clip(value, -LARGEST, LARGEST)
        self.values.append(value)

    def _number_of(self, index: int) -> Any:
        """An array of numbers: those of truth as int32."""
        x = self._get(index)
        return self.ns.astype(x, self.ns.int32) if x.dtype == self.ns.bool else x

    def _pair(self, i: int, j: int) -> tuple[Any, Any] | None:
        a, b = self._number_of(i), self._number_of(j)
        try:
            np.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            return None
        return a, b

    def _unary(self, name: str, i: int) -> None:
        self._put(getattr(self.ns, name)(self._number_of(i)))

    def _binary(self, name: str, i: int, j: int) -> None:
        pair = self._pair(i, j)
        if pair is not None:
            a, b = pair
            if name == "remainder":
                b = self.ns.where(b == 0, self.ns.ones_like(b), b)
            self._put(getattr(self.ns, name)(a, b))

    def _number(self, operator: str, i: int, number: int) -> None:
        x = self._number_of(i)
        self._put({"+": x + number, "-": number - x, "*": x * number, "//": x // number}[operator])

    def _compare(self, name: str, i: int, j: int) -> None:
        pair = self._pair(i, j)
        if pair is not None:
            self._put(getattr(self.ns, name)(*pair))

    def _reduce(self, name: str, i: int, axis: int, keepdims: bool) -> None:
        x = self._number_of(i)
        where = axis % x.ndim if x.ndim and axis % 3 else None
        if x.size:
            self._put(getattr(self.ns, name)(x, axis=where, keepdims=keepdims))

    def _place(self, name: str, i: int, axis: int) -> None:
        x = self._number_of(i)
        if x.size and x.ndim:
            self._put(getattr(self.ns, name)(x, axis=axis % x.ndim))

    def _reshape(self, i: int, order: int) -> None:
        x = self._get(i)
        shapes = [(x.size,), (1, x.size), (*x.shape, 1), x.shape[::-1]]
        self._put(self.ns.reshape(x, shapes[order % len(shapes)]))

    def _permute(self, i: int, random: Any) -> None:
        x = self._get(i)
        axes = list(range(x.ndim))
        random.seed(i)
        random.shuffle(axes)
        self._put(self.ns.permute_dims(x, tuple(axes)))

    def _slice(self, i: int, axis: int, start: int, step: int) -> None:
        x = self._get(i)
        if x.ndim:
            self._put(x[(slice(None),) * (axis % x.ndim) + (slice(start, None, step),)])

    def _item(self, i: int, place: int) -> None:
        x = self._get(i)
        if x.ndim and x.shape[0]:
            self._put(x[place % x.shape[0], ...])

    def _assign(self, i: int, place: int, number: int) -> None:
        x = self.ns.asarray(self._number_of(i), copy=True)
        if x.ndim and x.shape[-1]:
            x[..., place % x.shape[-1]] = number
            x[..., -1] += 1
            self._put(x)

    def _concat(self, i: int, j: int, axis: int) -> None:
        a, b = self._number_of(i), self._number_of(j)
        if a.ndim and a.shape == b.shape:
            self._put(self.ns.concat([a, b], axis=axis % a.ndim))

    def _take(self, i: int, axis: int, places: list[int]) -> None:
        x = self._get(i)
        if x.ndim and x.shape[axis % x.ndim]:
            extent = x.shape[axis % x.ndim]
            index = self.ns.asarray(np.array([p % extent for p in places], np.int64))
            self._put(self.ns.take(x, index, axis=axis % x.ndim))

    def _mask(self, i: int) -> None:
        x = self._number_of(i)
        self._put(x[x > 0])

    def _sort(self, i: int) -> None:
        x = self._number_of(i)
        if x.ndim:
            self._put(self.ns.sort(x, axis=-1))

    def _matmul(self, i: int, j: int) -> None:
        a, b = self._number_of(i), self._number_of(j)
        if a.ndim < 2:
            return
        if b.ndim < 2 or a.shape[-1] != b.shape[-2] or a.ndim != b.ndim:
            b = self.ns.matrix_transpose(a)
        if a.shape[:-2] == b.shape[:-2]:
            self._put(a @ b)

    def _astype(self, i: int, dtype: str) -> None:
        self._put(self.ns.astype(self._get(i), getattr(self.ns, dtype)))

    def _look(self, i: int) -> None:
        x = self._get(i)
        assert np.asarray(x).shape == x.shape

    # -- control flow

    def _if(self, i: int, then: list[Any], other: list[Any]) -> None:
        if bool(self.ns.any(self._get(i) > 2)):
            self.run(then)
        else:
            self.run(other)

    def _while(self, i: int, block: list[Any]) -> None:
        left = self.ns.asarray(3)
        while left > 0 and bool(self.ns.sum(self._number_of(i)) > -LARGEST):
            self.run(block)
            left -= 1

    def _for(self, i: int, block: list[Any]) -> None:
        turns = self.ns.count_nonzero(self._get(i))
        for _ in range(min(int(turns), 3)):
            self.run(block)

    def _recurse(self, i: int) -> None:
        self._put(self._halved(self._number_of(i)))

    def _halved(self, x: Any) -> Any:
        """A sum by recursion on both halves, whose depth hangs on the extent, and whose end on elements."""
        if x.size < 2:
            return self.ns.sum(x)
        flat = self.ns.reshape(x, (x.size,))
        if bool(self.ns.all(flat == 0)):
            return self.ns.sum(flat)
        return self._halved(flat[: x.size // 2]) + self._halved(flat[x.size // 2 :])


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(inputs=_inputs(), program=_block)
def test_random_programs_equal_numpy(
    inputs: list[np.ndarray[Any, Any]], program: list[Any]
) -> None:
    ours, theirs = Machine(xp, inputs), Machine(np, inputs)
    ours.run(program)
    theirs.run(program)
    assert len(ours.values) == len(theirs.values)
    for actual, expected in zip(ours.values, theirs.values, strict=True):
        assert actual.dtype == expected.dtype
        assert actual.shape == np.shape(expected)
        np.testing.assert_array_equal(np.asarray(actual), expected)
