"""Kernels by hand: results against numpy, what kinds demand, and errors with the line that they come from."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph import KernelBuilder
from tests.tolerances import tolerance

F32 = np.dtype(np.float32)


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _close(mine: Any, exact: np.ndarray[Any, Any], terms: int = 1) -> None:
    bound = tolerance(F32, terms)
    np.testing.assert_allclose(mine, exact, rtol=bound.relative, atol=bound.absolute)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (130, 67), (0, 4)])
def test_vector_kernel_at_any_shape(shape: tuple[int, int]) -> None:
    @dvm_graph.kernel(kind="vector")
    def softmax(k: KernelBuilder) -> None:
        x = k.load([-1, "width"], "float32")
        e = k.exp(k.sub(x, k.amax(x, axes=[1], keepdims=True)))
        k.store(k.div(e, k.sum(e, axes=[-1], keepdims=True)))

    x = _random(*shape)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True, initial=-np.inf))
    _close(softmax(x), e / e.sum(axis=1, keepdims=True), shape[1])


def test_mix_kernel_with_bias() -> None:
    @dvm_graph.kernel(kind="mix")
    def linear(k: KernelBuilder) -> None:
        a, w = k.load([-1, "k"], np.float32), k.load(["k", "n"], np.float32)
        k.store(k.max(k.add(k.matmul(a, w), k.load(["n"], np.float32)), 0))

    for m, depth, n in ((1, 3, 2), (33, 64, 40)):
        a, w, bias = _random(m, depth), _random(depth, n), _random(n)
        exact = np.maximum(a.astype(np.float64) @ w + bias, 0)
        _close(linear(a, w, bias), exact, depth)


def test_several_inputs_and_outputs_of_several_types() -> None:
    @dvm_graph.kernel
    def parts(k: KernelBuilder) -> None:
        x, limit = k.load(["n"], np.float32, "x"), k.scalar(np.float32, "limit")
        above = k.gt(x, limit)
        k.store(k.select(above, x, -1.0), "clipped")
        k.store(k.sum(k.cast(above, np.int64), axes=[0]), "count")

    x = _random(100)
    clipped, count = parts(x, np.float32(0.25))
    np.testing.assert_array_equal(clipped, np.where(x > 0.25, x, np.float32(-1)))
    assert count.shape == () and count == (x > 0.25).sum()


def test_kernels_side_by_side_and_one_behind_the_other() -> None:
    @dvm_graph.kernel(kind="parallel")
    def both(k: KernelBuilder) -> None:
        k.store(k.exp(k.load(["n"], np.float32)))
        k.store(k.sum(k.load(["m", 5], np.float32), axes=[0]))

    @dvm_graph.kernel(kind="sequence")
    def chain(k: KernelBuilder) -> None:
        x = k.load(["n", "n"], np.float32)
        k.store(k.sum(k.matmul(x, x), axes=[0]))

    x, y, z = _random(7), _random(4, 5), _random(6, 6)
    one, other = both(x, y)
    _close(one, np.exp(x.astype(np.float64)))
    _close(other, y.astype(np.float64).sum(axis=0), 4)
    _close(chain(z), (z.astype(np.float64) @ z).sum(axis=0), 36)
    assert len({kernel.stage for kernel in chain.report().subgraphs}) == 2


def test_shows_its_plan_and_its_bytecode() -> None:
    @dvm_graph.kernel
    def doubled(k: KernelBuilder) -> None:
        k.store(k.mul(k.load(["rows", 8], np.float16), 2))

    assert "vector kernel" in doubled.dump() and "rows" in doubled.dump()
    listing = doubled.das(np.ones((3, 8), np.float16))
    assert "v_mul_f32" in listing and "[0, 48)" in listing  # 3 x 8 halves


def _add_of_shapes_apart(k: KernelBuilder) -> None:
    k.store(k.add(k.load([2, 3], np.float32), k.load([4, 3], np.float32)))


def _add_of_types_apart(k: KernelBuilder) -> None:
    k.store(k.add(k.load([2], np.float32), k.load([2], np.int32)))


def _extent_without_a_name(k: KernelBuilder) -> None:
    k.store(k.load(["a b"], np.float32))


def _unknown_dtype(k: KernelBuilder) -> None:
    k.store(k.load([1], "complex64"))


def _numbers_alone(k: KernelBuilder) -> None:
    k.store(k.add(1.0, 2.0))


def _no_such_axis(k: KernelBuilder) -> None:
    k.store(k.sum(k.load([1], np.float32), axes=[3]))


def _reduces_a_number(k: KernelBuilder) -> None:
    k.store(k.reduce_max(3.0, [0]))


def _same_input_twice(k: KernelBuilder) -> None:
    k.store(k.add(k.load([1], np.float32, "x"), k.load([1], np.float32, "x")))


def _no_such_operator(k: KernelBuilder) -> None:
    k.store(k.op("conv", k.load([1], np.float32)))


@pytest.mark.parametrize(
    "function",
    [
        *(_add_of_shapes_apart, _add_of_types_apart, _extent_without_a_name, _unknown_dtype),
        *(_numbers_alone, _no_such_axis, _reduces_a_number, _same_input_twice, _no_such_operator),
    ],
)
def test_errors_name_the_line(function: Callable[[KernelBuilder], None]) -> None:
    line = inspect.getsourcelines(function)[1] + 1
    with pytest.raises(dvm_graph.DvmError, match=rf"test_kernel_builder\.py:{line}\b"):
        dvm_graph.kernel(function)


def test_values_of_another_kernel_are_refused() -> None:
    kept = []

    @dvm_graph.kernel
    def first(k: KernelBuilder) -> None:
        kept.append(k.load([1], np.float32))
        k.store(k.exp(kept[0]))

    assert first(np.zeros(1, np.float32)) == 1
    with pytest.raises(dvm_graph.InputError, match="no value of this kernel"):

        @dvm_graph.kernel
        def second(k: KernelBuilder) -> None:
            k.store(k.exp(kept[0]))


def test_errors_of_the_function_are_its_own() -> None:
    with pytest.raises(ZeroDivisionError):

        @dvm_graph.kernel
        def broken(k: KernelBuilder) -> None:
            k.store(k.mul(k.load([1], np.float32), 1 / 0))


def test_another_kind_says_what_it_becomes() -> None:
    with pytest.raises(dvm_graph.UnsupportedError, match=r"no vector kernel.*\(mix\)"):

        @dvm_graph.kernel(kind="vector")
        def product(k: KernelBuilder) -> None:
            x = k.load(["n", "n"], np.float32)
            k.store(k.exp(k.matmul(x, x)))

    with pytest.raises(dvm_graph.InputError, match="kinds are split"):
        dvm_graph.kernel(kind="scalar")
    with pytest.raises(dvm_graph.InputError, match="stores nothing"):
        dvm_graph.kernel(lambda k: None)


def test_calls_are_checked() -> None:
    @dvm_graph.kernel
    def total(k: KernelBuilder) -> None:
        k.store(k.add(k.load(["n"], np.float32), k.load(["n"], np.float32)))

    with pytest.raises(dvm_graph.InputError, match="takes 2 arguments"):
        total(np.ones(2, np.float32))
    with pytest.raises(dvm_graph.ShapeError, match="n"):
        total(np.ones(2, np.float32), np.ones(3, np.float32))
    np.testing.assert_array_equal(total(np.ones(2, np.float32), np.ones(2, np.float32)), [2, 2])
