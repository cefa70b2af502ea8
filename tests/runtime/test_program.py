"""Programs of hand-made plans against numpy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.ir import DType
from dvm_graph.kernels.plan import Storage
from dvm_graph.options import Options
from dvm_graph.runtime import Program
from dvm_graph.runtime.assemble import assemble
from tests.runtime.plans import F32, I64, RNG, PlanBuilder, call, random

OPTIONS = Options(cores=2)


def exp_then_add() -> PlanBuilder:
    """y = exp(x) + x, through an intermediate value."""
    b = PlanBuilder()
    x = b.input("x", ("batch", "seq"))
    t = b.value("t", ("batch", "seq"))
    y = b.output("y", ("batch", "seq"))
    b.launch([call(b.map("exp", [x], t))], [call(b.map("add", [t, x], y))])
    return b


def chain(length: int, dtype: DType = F32) -> PlanBuilder:
    """x -> neg -> neg -> ... with an intermediate value each."""
    b = PlanBuilder()
    last = b.input("x", ("n",), dtype)
    for i in range(length - 1):
        value = b.value(f"t{i}", ("n",), dtype)
        b.launch([call(b.map("neg", [last], value, dtype.register))])
        last = value
    y = b.output("y", ("n",), dtype)
    b.launch([call(b.map("neg", [last], y, dtype.register))])
    return b


def program(builder: PlanBuilder, options: Options = OPTIONS) -> Program:
    return assemble(builder.plan, options)


@pytest.mark.parametrize("shape", [(1, 1), (3, 77), (0, 5), (5, 0), (128, 33), (1, 4097)])
def test_element_wise(shape: tuple[int, int]) -> None:
    x = random(*shape)
    (y,) = program(exp_then_add()).run({"x": x})
    assert y.shape == shape and y.dtype == np.float32
    np.testing.assert_allclose(y, np.exp(x) + x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (7, 1000), (2, 0), (300, 3), (1, 1_000_003)])
def test_reduce(shape: tuple[int, int]) -> None:
    b = PlanBuilder()
    x, y = b.input("x", ("m", "n")), b.output("y", ("m",))
    b.launch([call(b.reduce("reduce_sum", x, y))])
    x_array = random(*shape)
    (result,) = program(b).run({"x": x_array})
    np.testing.assert_allclose(result, x_array.sum(1, dtype=np.float64), rtol=1e-4, atol=2e-2)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("m", [0, 1, 5, 64, 131])
def test_matmul_with_a_constant(m: int, packed: bool) -> None:
    b = PlanBuilder()
    weights = random(96, 70)
    x = b.input("x", ("m", 96))
    w = b.constant("w", weights)
    y = b.output("y", ("m", 70))
    operand = b.panels(w) if packed else w
    b.launch([call(b.matmul(x, operand, y, packed))])
    x_array = random(m, 96)
    (result,) = program(b).run({"x": x_array})
    np.testing.assert_allclose(result, x_array @ weights, rtol=1e-4, atol=1e-4)


def test_large_panels_are_packed_by_several_cores() -> None:
    b = PlanBuilder()
    weights = random(300, 3001)
    x, w, y = b.input("x", ("m", 300)), b.constant("w", weights), b.output("y", ("m", 3001))
    b.launch([call(b.matmul(x, b.panels(w), y, packed=True))])
    x_array = random(9, 300)
    (result,) = program(b).run({"x": x_array})
    np.testing.assert_allclose(result, x_array @ weights, rtol=1e-4, atol=1e-3)


def test_kernels_side_by_side() -> None:
    b = PlanBuilder()
    x, z = b.input("x", ("n",)), b.input("z", ("m",))
    y, v = b.output("y", ("n",)), b.output("v", ("m",))
    b.launch([call(b.map("exp", [x], y)), call(b.map("neg", [z], v))])
    feeds = {"x": random(1000), "z": random(70)}
    first, second = program(b).run(feeds)
    np.testing.assert_allclose(first, np.exp(feeds["x"]), rtol=1e-6)
    np.testing.assert_array_equal(second, -feeds["z"])


def test_dims_are_written_by_the_host() -> None:
    b = PlanBuilder()
    b.input("x", ("batch", "seq"))
    shape = b.output("shape", (3,), I64)
    b.write_dims(shape, ["batch", "seq", b.dim("batch") * b.dim("seq") + 1])
    (result,) = program(b).run({"x": random(3, 5)})
    np.testing.assert_array_equal(result, [3, 5, 16])


@pytest.mark.parametrize("n", [2, 3])
def test_guard_picks_the_fallback(n: int) -> None:
    b = PlanBuilder()
    x, y = b.input("x", ("n",)), b.output("y", ("n",))
    t = b.value("t", ("n",))
    guard = b.plan.dims.predicate("eq", b.dim("n"), 2)
    fallback = call(b.map("neg", [x], t)), call(b.map("exp", [t], y))
    b.launch([call(b.map("abs", [x], y), *fallback, guard=guard)])
    built = program(b)
    x_array = random(n)
    (result,) = built.run({"x": x_array})
    expected = np.abs(x_array) if n == 2 else np.exp(-x_array)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert built.statistics.fallbacks == (n != 2)


def test_fallback_values_take_memory_only_when_used() -> None:
    b = PlanBuilder()
    x, y = b.input("x", ("n",)), b.output("y", ("n",))
    t = b.value("t", ("n",))
    guard = b.plan.dims.predicate("le", b.dim("n"), 1 << 20)
    fallback = call(b.map("neg", [x], t)), call(b.map("neg", [t], y))
    b.launch([call(b.map("abs", [x], y), *fallback, guard=guard)])
    built = program(b)
    built.run({"x": random(1 << 20)})
    assert built.statistics.arena_bytes == 0
    x_array = random((1 << 20) + 1)
    (result,) = built.run({"x": x_array})
    np.testing.assert_array_equal(result, x_array)
    assert built.statistics.arena_bytes >= 4 << 20


def test_a_shape_seen_in_the_previous_run_compiles_nothing() -> None:
    built = program(exp_then_add())
    x = random(4, 50)
    built.run({"x": x})
    assert built.statistics.kernels_compiled == 2
    assert 0 < built.statistics.max_compile_ns <= built.statistics.compile_ns
    assert built.statistics.compile_ns <= built.statistics.run_ns
    (y,) = built.run({"x": 2 * x})
    assert built.statistics.kernels_compiled == 0
    np.testing.assert_allclose(y, np.exp(2 * x) + 2 * x, rtol=1e-6, atol=1e-6)
    built.run({"x": random(4, 51)})
    assert built.statistics.kernels_compiled == 2


def test_kernels_that_differ_in_their_buffers_compile_once() -> None:
    built = program(chain(4))
    for extent in (1, 17, 1000):
        x = random(extent)
        (y,) = built.run({"x": x})
        assert built.statistics.kernels_compiled == 1
        assert built.statistics.kernels_launched == 4
        np.testing.assert_array_equal(y, x)


def test_compile_times_name_each_distinct_kernel_once() -> None:
    built = program(exp_then_add())
    times = built.compile_times({"batch": 3, "seq": 5}, 7)
    assert len({time.kernel for time in times}) == len(times) == 2
    for time in times:
        assert 0 < time.least_ns <= time.median_ns
        assert time.least_ns <= time.first_ns
    assert built.compile_times({}, 1) == []
    with pytest.raises(dvm_graph.InputError, match="no dim"):
        built.compile_times({"nothing": 1}, 1)


def test_random_shapes_equal_a_fresh_program() -> None:
    reused = program(exp_then_add())
    for _ in range(40):
        x = random(*RNG.integers(0, 70, size=2))
        np.testing.assert_array_equal(
            reused.run({"x": x})[0], program(exp_then_add()).run({"x": x})[0]
        )


def test_cores_and_levels_agree() -> None:
    x = random(33, 257)
    expected = program(exp_then_add(), Options(cores=1)).run({"x": x})[0]
    for options in (Options(cores=3), Options(cores=2, local_bytes=32 << 10)):
        np.testing.assert_array_equal(program(exp_then_add(), options).run({"x": x})[0], expected)


def test_one_program_in_several_threads() -> None:
    built = program(exp_then_add())
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            x = rng.standard_normal(tuple(rng.integers(1, 40, size=2)), dtype=np.float32)
            (y,) = built.run({"x": x})
            if not np.allclose(y, np.exp(x) + x, rtol=1e-5, atol=1e-5):
                failures.append(f"seed {seed}, shape {x.shape}")

    run_threads([lambda seed=seed: work(seed) for seed in range(4)])
    assert not failures


def test_two_programs_share_the_device() -> None:
    programs = [program(exp_then_add()), program(chain(5))]
    failures: list[str] = []

    def work(index: int) -> None:
        rng = np.random.default_rng(index)
        for _ in range(100):
            n = int(rng.integers(1, 2000))
            x = rng.standard_normal((1, n) if index == 0 else (n,), dtype=np.float32)
            (y,) = programs[index].run({"x": x})
            if not np.allclose(y, np.exp(x) + x if index == 0 else -x, rtol=1e-5, atol=1e-5):
                failures.append(f"program {index}, {n} elements")

    run_threads([lambda index=index: work(index) for index in range(2)])
    assert not failures


def run_threads(jobs: list[Any]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "dtype", [DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16, DType.INT8, DType.INT64]
)
def test_dtypes_pass_unchanged(dtype: DType) -> None:
    x = np.arange(-8, 9).astype(dtype.numpy)
    (y,) = program(chain(3, dtype)).run({"x": x})
    assert y.dtype == dtype.numpy
    np.testing.assert_array_equal(y.astype(np.float64), -x.astype(np.float64))


def test_inputs_need_not_be_contiguous() -> None:
    x = random(20, 30)
    built = program(exp_then_add())
    (y,) = built.run({"x": x[::2, ::-3]})
    np.testing.assert_allclose(y, np.exp(x[::2, ::-3]) + x[::2, ::-3], rtol=1e-6, atol=1e-6)


def test_outputs_are_owned_by_the_caller() -> None:
    built = program(exp_then_add())
    x = random(3, 4)
    (first,) = built.run({"x": x})
    kept = first.copy()
    built.run({"x": random(3, 4)})
    del built
    np.testing.assert_array_equal(first, kept)
    first[:] = 0  # writeable


def test_given_outputs_are_filled_in_place() -> None:
    built = program(exp_then_add())
    x, y = random(6, 7), np.empty((6, 7), np.float32)
    (result,) = built.run({"x": x}, {"y": y})
    assert result is y
    np.testing.assert_allclose(y, np.exp(x) + x, rtol=1e-6, atol=1e-6)


def test_a_given_output_may_overlap_an_input() -> None:
    b = PlanBuilder()
    x = b.input("x", ("m", "n"))
    total, y = b.value("total", ("m",)), b.output("y", ("m", "n"))
    last = b.value("negative", ("m", "n"))
    b.launch([call(b.map("neg", [x], last))])
    b.launch([call(b.map("exp", [last], y))])
    b.launch([call(b.reduce("reduce_sum", x, total))])
    x_array = random(6, 7)
    expected = np.exp(-x_array)
    (result,) = program(b).run({"x": x_array}, {"y": x_array})
    assert result is x_array
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_outputs_that_are_inputs_or_constants_or_repeated() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    w = b.constant("w", random(3))
    y = b.output("y", ("n",))
    b.launch([call(b.map("neg", [x], y))])
    b.returns(y, x, w, y)
    x_array = random(5)
    first, same, constant, second = program(b).run({"x": x_array})
    np.testing.assert_array_equal(same, x_array)
    np.testing.assert_array_equal(first, second)
    assert not np.shares_memory(same, x_array) and not np.shares_memory(first, second)
    assert constant.shape == (3,)


def test_intermediate_values_share_memory() -> None:
    built = program(chain(12))
    built.run({"x": random(1 << 18)})
    assert built.statistics.arena_bytes == 1 << 20  # each is written over the one before


def test_memory_shrinks_when_large_shapes_stop_coming() -> None:
    built = program(chain(3))
    built.run({"x": random(4 << 20)})
    large = built.statistics.arena_bytes
    for _ in range(70):
        built.run({"x": random(100)})
    assert large >= 16 << 20 and built.statistics.arena_bytes < 1 << 16
    x = random(4 << 20)
    np.testing.assert_array_equal(built.run({"x": x})[0], -x)


def test_profile_names_every_launch() -> None:
    built = program(exp_then_add())
    profile = built.profile({"x": random(8, 8)})
    assert built.statistics.profile is not None
    assert [kernel.name for kernel in profile.kernels] == ["exp_to_t", "add_to_y"]
    assert {span.kernel for span in profile.spans} == {0, 1}
    assert sorted(span.kernel for span in profile.compilations) == [0, 1]
    assert all(span.start_ns < span.end_ns for span in profile.compilations)
    built.run({"x": random(8, 8)})
    assert built.statistics.profile is None


def test_a_forgotten_shape_is_compiled_again() -> None:
    built = program(exp_then_add())
    x = random(8, 8)
    expected = built.run({"x": x})
    built.run({"x": x})
    assert built.statistics.kernels_compiled == 0
    built.forget()
    np.testing.assert_array_equal(built.run({"x": x}), expected)
    assert built.statistics.kernels_compiled == 2


def test_disassemble() -> None:
    built = program(exp_then_add())
    by_feeds = built.disassemble({"x": random(4, 8)})
    assert "v_exp_f32" in by_feeds and "v_add_f32" in by_feeds
    listings = built.listings({"batch": 4, "seq": 8})
    assert [kernel.name for kernel in listings] == ["exp_to_t", "add_to_y"]
    assert all(kernel.text in by_feeds for kernel in listings)
    assert built.listings({}) == []


def test_arena_values_can_be_outputs() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    t, u = b.value("t", ("n",)), b.value("u", ("n",))
    y = b.output("y", ("n",))
    b.launch([call(b.map("neg", [x], t))])
    b.launch([call(b.map("exp", [t], u))])
    b.launch([call(b.map("abs", [u], y))])
    b.returns(y, t)
    assert b.plan.values[t].storage is Storage.ARENA
    x_array = random(9)
    _, negative = program(b).run({"x": x_array})
    np.testing.assert_array_equal(negative, -x_array)
