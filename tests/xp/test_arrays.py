"""The array object: memory shared with others, what runs when, names and values, indexing."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dvm_graph.xp as xp
from tests.tolerances import assert_close

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def _shares(a: Any, b: Any) -> bool:
    return np.shares_memory(np.asarray(a), np.asarray(b))


def test_numpy_shares_memory_both_ways() -> None:
    x = xp.asarray(X)
    assert _shares(x, X)
    assert not _shares(xp.asarray(X, copy=True), X)
    y = x + 1
    out = np.asarray(y)
    assert _shares(out, y)
    assert not out.flags.writeable
    with pytest.raises(ValueError):
        out[0, 0, 0] = 7
    assert np.array(y, copy=True).flags.writeable


def test_dlpack_shares_memory_both_ways() -> None:
    y = xp.asarray(X) * 2
    assert y.__dlpack_device__() == (1, 0)
    out = np.from_dlpack(y)
    assert _shares(out, y)
    np.testing.assert_array_equal(out, X * 2)
    assert _shares(xp.from_dlpack(X), X)
    assert _shares(xp.from_dlpack(y), y)


def test_what_is_no_block_of_memory_is_read_all_the_same() -> None:
    part = X.transpose(2, 0, 1)[::-1, :, 1:]
    np.testing.assert_array_equal(np.asarray(xp.asarray(part) + 0), part)
    swapped = X.astype(">f4")
    np.testing.assert_array_equal(np.asarray(xp.asarray(swapped) + 0), X)


def test_numpy_leaves_operators_to_the_array() -> None:
    for result in (X + xp.asarray(X), np.float32(2) * xp.asarray(X), xp.asarray(X) - X):
        assert isinstance(result, xp.Array)


def test_numbers() -> None:
    x = xp.asarray(X)
    assert float(xp.sum(x)) == X.sum()
    assert int(xp.max(x)) == 23
    assert bool(xp.any(x > 22)) and not bool(xp.any(x > 23))
    assert complex(x[0, 0, 1]) == 1 + 0j
    assert [10, 20, 30][xp.asarray(1)] == 20
    assert range(5)[xp.argmax(x[0, 0])] == 3
    assert len(x) == 2 and [float(row[0, 0]) for row in x] == [0, 12]


def test_printing() -> None:
    assert repr(xp.asarray([1.0, 2.5]) + 1) == "Array([2. , 3.5], dtype=float64)"
    assert str(xp.asarray(3) + 1) == "4"


def test_names_of_one_array_see_a_change_and_results_do_not() -> None:
    x = xp.asarray(X, copy=True)
    same, later = x, x + 0
    x += 1
    x[0, 0, 0] = 100
    assert same is x and float(same[0, 0, 0]) == 100 and float(same[1, 1, 1]) == X[1, 1, 1] + 1
    np.testing.assert_array_equal(np.asarray(later), X)


UNCHANGED: dict[str, Callable[[xp.Array], xp.Array]] = {
    "x[...]": lambda x: x[...],
    "x[()]": lambda x: x[()],
    "x[:, 0:]": lambda x: x[:, 0:],
    "clip": xp.clip,
    "roll": lambda x: xp.roll(x, 0, axis=0),
    "diff": lambda x: xp.diff(x, n=0),
    "sum": lambda x: xp.sum(x, axis=()),
    "max": lambda x: xp.max(x, axis=(), keepdims=True),
    "floor": xp.floor,
    "round": xp.round,
    "abs": xp.abs,
    "reshape": lambda x: xp.reshape(x, x.shape),
    "astype": lambda x: xp.astype(x, x.dtype),
    "permute_dims": lambda x: xp.permute_dims(x, (0, 1, 2)),
    "positive": xp.positive,
    "unstack": lambda x: xp.unstack(x[None])[0],
}


@pytest.mark.parametrize("name", UNCHANGED)
@pytest.mark.parametrize("dtype", ["uint64", "int64", "float64"])
def test_results_equal_to_an_operand_do_not_see_its_change(name: str, dtype: str) -> None:
    x = xp.asarray(X.astype(dtype))
    y = UNCHANGED[name](x)
    x += 1
    x[0] = 100
    np.testing.assert_array_equal(np.asarray(y), X)
    y = UNCHANGED[name](x)
    y[...] = 7
    assert xp.max(x) == 100


def test_bfloat16() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    y = xp.asarray(x) + 1
    assert y.dtype == xp.bfloat16
    np.testing.assert_array_equal(np.asarray(y).astype(np.float32), X + 1)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("count", [8, 300_000])
def test_averages_of_half_floats_whose_sums_they_do_not_hold(dtype: Any, count: int) -> None:
    x = np.tile(np.array([20000, -20000, 30000, 10000], dtype), (2, count // 4))
    lazy, wide = xp.asarray(x), x.astype(np.float64)
    for found, expected in (
        (xp.mean(lazy, axis=1), wide.mean(axis=1)),
        (xp.std(lazy), wide.std()),
        (xp.var(xp.asarray(x * dtype(2.0**-10)), axis=1), (wide * 2.0**-10).var(axis=1)),
    ):
        assert found.dtype == dtype
        assert_close(np.asarray(found), expected.astype(dtype))


KEYS: dict[str, Any] = {
    "number": 1,
    "numbers": (0, -1, 2),
    "slice": slice(1, None),
    "slices": (slice(None), slice(2, 0, -1), slice(None, None, 3)),
    "backwards": (slice(None), slice(None, None, -1)),
    "empty": (slice(5, 9), slice(2, 1)),
    "ellipsis": (..., 1),
    "ellipsis inside": (0, ..., slice(1, 3)),
    "new axes": (None, 0, None, slice(None), None),
    "gathered": (slice(None), np.array([2, 0, -1])),
    "gathered by a matrix": (..., np.array([[0, 3], [1, 1]])),
    "gathered beside a slice": (slice(None, None, -1), np.array([1, 1]), slice(1, 3)),
    "several": (np.array([0, 1]), np.array([2, 0])),
    "an array and a number": (0, slice(None), np.array([1, 2])),
    "mask": X > 11,
    "mask of rows": np.array([False, True]),
    "mask of an axis": (slice(None), np.array([True, False, True])),
    "all": (),
    "whole": ...,
}


def _lazy(key: Any) -> Any:
    if isinstance(key, tuple):
        return tuple(map(_lazy, key))
    return xp.asarray(key) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("name", KEYS)
def test_parts(name: str) -> None:
    key = KEYS[name]
    np.testing.assert_array_equal(np.asarray(xp.asarray(X)[_lazy(key)]), X[key])
    np.testing.assert_array_equal(np.asarray((xp.asarray(X) + 1)[key]), (X + 1)[key])


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("whole", [False, True])
def test_assignments(name: str, whole: bool) -> None:
    key = KEYS[name]
    expected, x = X.copy(), xp.asarray(X) + 0
    value = np.arange(X[key].size, dtype=np.int64).reshape(X[key].shape) if whole else 5
    expected[key] = value
    x[_lazy(key)] = xp.asarray(value) if whole else value
    np.testing.assert_array_equal(np.asarray(x), expected)


def test_indices_that_are_computed_are_not_looked_at() -> None:
    x = xp.asarray(X)
    with xp.trace() as t:
        row = x[0, xp.argmax(x[0, :, 0])] * 2
    np.testing.assert_array_equal(np.asarray(row), X[0, 2] * 2)
    assert len(t.flushes) == 1 and not t.host_calls


def test_a_chain_is_one_kernel() -> None:
    x = xp.asarray(X)
    with xp.trace() as t:
        y = xp.tanh(x * 2 + 1) / (1 + xp.exp(-x))
        for _ in range(3):
            y = y * y + x
        total = float(xp.sum(y))
    assert math.isfinite(total)
    assert len(t.flushes) == 1
    (kernel,) = t.flushes[0].kernels
    assert sum(operator.startswith("mul") for operator in kernel.operators) == 4
    assert "tanh" in str(t)


def test_the_trace_tells_what_numpy_computes() -> None:
    with xp.trace() as t:
        y = xp.sort(xp.asarray(X) + 1)[0] * 2
    assert [call.function for call in t.host_calls] == ["sort"]
    assert len(t.flushes) == 2  # what is sorted, and what reads it
    np.testing.assert_array_equal(np.asarray(y), (X[0] + 1) * 2)
    with xp.trace() as t:
        del y
        xp.asarray(X) + 1  # nobody looks
    assert not any(flush.kernels for flush in t.flushes)


def test_threads_share_the_buffer() -> None:
    start = xp.asarray(X) * 2

    def work(number: int) -> float:
        y = start
        for turn in range(40):
            y = y + number
            if turn % 7 == 0:
                float(xp.sum(y))
        return float(xp.sum(y - start))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(8))) == [40.0 * n * X.size for n in range(8)]


def test_copies() -> None:
    x = xp.asarray(X) + 1
    other = copy.copy(x)
    other += 1
    np.testing.assert_array_equal(np.asarray(x), X + 1)
    np.testing.assert_array_equal(np.asarray(copy.deepcopy(x)), X + 1)
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(x))), X + 1)
