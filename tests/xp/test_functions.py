"""Creation, statistics, manipulation, searching, sorting, sets and linear algebra equal numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dvm_graph.xp as xp
from dvm_graph.errors import DvmError, InputError, ShapeError
from tests.tolerances import assert_close

X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
N = np.random.default_rng(1).integers(-9, 9, (4, 6)).astype(np.int32)

Case = Callable[[Any, Any, Any], Any]
CASES: dict[str, Case] = {
    "arange": lambda ns, x, n: ns.arange(2, 11, 3),
    "arange of floats": lambda ns, x, n: ns.arange(0.0, 1.0, 0.1, dtype=ns.float32),
    "linspace": lambda ns, x, n: ns.linspace(0, 1, 7),
    "zeros": lambda ns, x, n: ns.zeros((2, 0, 3)),
    "ones": lambda ns, x, n: ns.ones(4, dtype=ns.int16),
    "full": lambda ns, x, n: ns.full((2, 2), 7),
    "full of uint64": lambda ns, x, n: ns.full((2,), 2**63, dtype=ns.uint64),
    "full_like": lambda ns, x, n: ns.full_like(n, -1),
    "eye": lambda ns, x, n: ns.eye(3, 5, k=-1),
    "tril": lambda ns, x, n: ns.tril(x, k=1),
    "triu": lambda ns, x, n: ns.triu(n, k=-2),
    "meshgrid": lambda ns, x, n: ns.meshgrid(n[0], n[:, 1]),
    "meshgrid ij": lambda ns, x, n: ns.meshgrid(n[0], n[:, 1], n[1], indexing="ij"),
    "sum": lambda ns, x, n: ns.sum(x, axis=(0, 2)),
    "sum of integers": lambda ns, x, n: ns.sum(n, axis=-1, keepdims=True),
    "sum in float32": lambda ns, x, n: ns.sum(n, dtype=ns.float32),
    "sum of truth": lambda ns, x, n: ns.sum(n > 0),
    "prod": lambda ns, x, n: ns.prod(x, axis=1),
    "max": lambda ns, x, n: ns.max(n, axis=0),
    "min": lambda ns, x, n: ns.min(x, axis=(1, 2), keepdims=True),
    "mean": lambda ns, x, n: ns.mean(x, axis=1),
    "mean of integers": lambda ns, x, n: ns.mean(n, axis=1),
    "var": lambda ns, x, n: ns.var(x, axis=2, correction=1),
    "std": lambda ns, x, n: ns.std(x),
    "spread of complex numbers": lambda ns, x, n: (
        ns.var(ns.multiply(x, 2 - 1j), axis=1, correction=1),
        ns.std(ns.multiply(n, 1j), keepdims=True),
    ),
    "cumulative_sum": lambda ns, x, n: ns.cumulative_sum(n, axis=1, include_initial=True),
    "cumulative_prod": lambda ns, x, n: ns.cumulative_prod(n[0]),
    "concat": lambda ns, x, n: ns.concat([n, n[1:], n], axis=0),
    "concat of types": lambda ns, x, n: ns.concat([n, ns.astype(n, ns.int64)], axis=None),
    "stack": lambda ns, x, n: ns.stack([n, n + 1], axis=-1),
    "unstack": lambda ns, x, n: ns.unstack(n, axis=1),
    "flip": lambda ns, x, n: ns.flip(x, axis=(0, 2)),
    "roll": lambda ns, x, n: ns.roll(x, (2, -7), axis=(1, 2)),
    "roll flat": lambda ns, x, n: ns.roll(n, 5),
    "repeat": lambda ns, x, n: ns.repeat(n, 3, axis=1),
    "repeat each": lambda ns, x, n: ns.repeat(n[0], ns.asarray([0, 1, 2, 3, 1, 0])),
    "tile": lambda ns, x, n: ns.tile(n, (2, 1, 3)),
    "moveaxis": lambda ns, x, n: ns.moveaxis(x, (0, 1), (-1, 0)),
    "expand_dims": lambda ns, x, n: ns.expand_dims(n, axis=-2),
    "squeeze": lambda ns, x, n: ns.squeeze(n[:1, :, None], axis=(0, 2)),
    "broadcast_to": lambda ns, x, n: ns.broadcast_to(n[:, :1], (2, 4, 3)),
    "permute_dims": lambda ns, x, n: ns.permute_dims(x, (2, 0, 1)),
    "argmax": lambda ns, x, n: ns.argmax(x, axis=1),
    "argmin flat": lambda ns, x, n: ns.argmin(n, keepdims=True),
    "argmax of NaN": lambda ns, x, n: ns.argmax(ns.where(x > 1, ns.nan, x), axis=2),
    "count_nonzero": lambda ns, x, n: ns.count_nonzero(n, axis=0),
    "nonzero": lambda ns, x, n: ns.nonzero(n),
    "searchsorted": lambda ns, x, n: ns.searchsorted(ns.sort(n[0]), n[1], side="right"),
    "sort": lambda ns, x, n: ns.sort(x, axis=1),
    "argsort": lambda ns, x, n: ns.argsort(n, axis=1, stable=True),
    "unique_all": lambda ns, x, n: ns.unique_all(n),
    "unique_counts": lambda ns, x, n: ns.unique_counts(n),
    "unique_inverse": lambda ns, x, n: ns.unique_inverse(n),
    "unique_values": lambda ns, x, n: ns.unique_values(n),
    "matmul": lambda ns, x, n: x @ ns.matrix_transpose(x),
    "matmul of vectors": lambda ns, x, n: x[0, 0] @ x[1, 2],
    "matmul of integers": lambda ns, x, n: n @ n.T,
    "tensordot": lambda ns, x, n: ns.tensordot(x, x, axes=((1, 2), (1, 2))),
    "vecdot": lambda ns, x, n: ns.vecdot(x, x + 1, axis=-1),
    "vecdot of truth": lambda ns, x, n: ns.vecdot(n > 0, n > 2, axis=0),
    "outer": lambda ns, x, n: ns.linalg.outer(n[0], n[1]),
    "norm": lambda ns, x, n: ns.linalg.vector_norm(x, axis=1),
    "fft": lambda ns, x, n: ns.abs(ns.fft.rfft(x)),
    "take": lambda ns, x, n: ns.take(x, ns.asarray([2, 0, -1]), axis=2),
    "take_along_axis": lambda ns, x, n: ns.take_along_axis(x, ns.argmax(x, axis=1, keepdims=True), axis=1),
    "all": lambda ns, x, n: ns.all(n > -9, axis=1),
    "any": lambda ns, x, n: ns.any(n),
    "diff": lambda ns, x, n: ns.diff(x, axis=1, n=2),
    "diff with ends": lambda ns, x, n: ns.diff(n, axis=0, prepend=n[:1], append=n[-1:]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_equals_numpy(case: str) -> None:
    actual = CASES[case](xp, xp.asarray(X), xp.asarray(N))
    expected = CASES[case](np, X, N)
    if not isinstance(expected, tuple | list):
        actual, expected = [actual], [expected]
    for ours, theirs in zip(actual, expected, strict=True):
        assert isinstance(ours, xp.Array)
        assert_close(np.asarray(ours), np.asarray(theirs), reduction_length=X.size)


@pytest.mark.parametrize("descending", [False, True])
def test_orders_are_stable(descending: bool) -> None:
    x = xp.asarray([3, 1, 3, 2, 1])
    assert np.asarray(xp.argsort(x, descending=descending)).tolist() == (
        [0, 2, 3, 1, 4] if descending else [1, 4, 3, 0, 2]
    )
    assert np.asarray(xp.sort(x, descending=True)).tolist() == [3, 3, 2, 1, 1]


WRONG: dict[str, Callable[[xp.Array], object]] = {
    "shapes that do not broadcast": lambda x: x + xp.ones((2, 2)),
    "an axis out of range": lambda x: xp.sum(x, axis=3),
    "an axis twice": lambda x: xp.sum(x, axis=(0, 0)),
    "an index out of range": lambda x: x[3],
    "too many indices": lambda x: x[0, 0, 0, 0],
    "an index of floats": lambda x: x[1.5],
    "elements that do not fit a shape": lambda x: xp.reshape(x, (7, 7)),
    "no shape": lambda x: xp.zeros((2, -1)),
    "an unknown device": lambda x: xp.zeros(3, device="gpu"),
    "an unknown dtype": lambda x: xp.zeros(3, dtype="U3"),
    "an array of words": lambda x: xp.asarray(["a", "b"]),
    "a maximum of nothing": lambda x: xp.max(x[:0], axis=0),
    "inner extents that differ": lambda x: x @ x,
    "arithmetic on truth": lambda x: -(x > 0),
    "truth of many": bool,
    "another shape in place": lambda x: x.__iadd__(xp.ones((2, 3, 4, 5))),
    "another dtype in place": lambda x: x.__iadd__(xp.ones((3, 4, 5), dtype=xp.float64)),
    "another version": lambda x: x.__array_namespace__(api_version="1999.12"),
}


@pytest.mark.parametrize("case", WRONG)
def test_whatever_is_wrong_is_named(case: str) -> None:
    x = xp.asarray(X)
    with pytest.raises(DvmError) as caught:
        WRONG[case](x)
    assert isinstance(caught.value, InputError | ShapeError)
    np.testing.assert_array_equal(np.asarray(x + 0), X)  # and the array stays usable


def test_an_index_that_is_computed_out_of_range_is_an_error_of_the_run() -> None:
    x, place = xp.asarray(X), xp.asarray([1, 9]) + 1
    part = x[place]
    with pytest.raises(DvmError):
        np.asarray(part)
    np.testing.assert_array_equal(np.asarray(x + 0), X)
