"""Bad runs: a specific error each, and the program usable afterwards."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dvm_graph import _core
from dvm_graph.errors import (
    CompileError,
    DvmError,
    ExecutionError,
    InputError,
    OutOfMemoryError,
    ShapeError,
)
from dvm_graph.npu.machine import this_machine
from dvm_graph.options import Options
from dvm_graph.runtime import Program
from dvm_graph.runtime.assemble import assemble
from tests.runtime.plans import I64, PlanBuilder, call

OPTIONS = Options(cores=2)


def masked() -> PlanBuilder:
    """y = input_ids + attention_mask, as int64."""
    b = PlanBuilder()
    ids = b.input("input_ids", ("batch", "seq"), I64)
    mask = b.input("attention_mask", ("batch", "seq"), I64)
    y = b.output("y", ("batch", "seq"), I64)
    b.launch([call(b.map("add", [ids, mask], y, I64))])
    return b


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.int64)


GOOD = {"input_ids": ones(2, 3), "attention_mask": ones(2, 3)}


def works(program: Program) -> bool:
    return bool((program.run(GOOD)[0] == 2).all())


@pytest.mark.parametrize(
    ("feeds", "error", "words"),
    [
        ({"input_ids": ones(2, 3)}, InputError, ["missing", "attention_mask"]),
        ({**GOOD, "labels": ones(1)}, InputError, ["unknown", "labels", "input_ids"]),
        ({**GOOD, "input_ids": ones(2, 3).astype(np.int32)}, InputError,
         ["input_ids", "int32", "int64"]),
        ({**GOOD, "input_ids": ones(6)}, InputError, ["input_ids", "rank 1", "rank 2"]),
        ({"input_ids": ones(4, 3), "attention_mask": ones(3, 3)}, ShapeError,
         ["batch is 4 by input_ids and 3 by attention_mask"]),
    ],
)  # fmt: skip
def test_bad_inputs(feeds: dict[str, Any], error: type[DvmError], words: list[str]) -> None:
    program = assemble(masked().plan, OPTIONS)
    with pytest.raises(error) as caught:
        program.run(feeds)
    for word in words:
        assert word in str(caught.value)
    assert works(program)


def test_extent_against_an_expression() -> None:
    b = PlanBuilder()
    b.input("past", ("batch", "seq"))
    b.input("mask", ("batch", b.dim("seq") + 1))
    b.input("weights", (4,))
    y = b.output("y", ("batch", "seq"))
    b.launch([call(b.map("neg", [0], y))])
    program = assemble(b.plan, OPTIONS)
    past = np.ones((2, 3), np.float32)
    with pytest.raises(ShapeError, match=r"mask \(axis 1\) has extent 5, expected 4, which is "):
        program.run(
            {"past": past, "mask": np.ones((2, 5), np.float32), "weights": np.ones(4, "f4")}
        )
    with pytest.raises(ShapeError, match=r"weights \(axis 0\) has extent 3, expected 4"):
        program.run(
            {"past": past, "mask": np.ones((2, 4), np.float32), "weights": np.ones(3, "f4")}
        )


def test_extent_that_no_symbol_gives() -> None:
    b = PlanBuilder()
    x = b.input("x", (2 * b.dim("half"),))
    y = b.output("y", (2 * b.dim("half"),))
    b.launch([call(b.map("neg", [x], y))])
    from dvm_graph.kernels.plan import SymbolBinding

    b.plan.bindings.append(SymbolBinding(b.plan.dims.symbol(b.dim("half")), x, 0, 2, 0))
    program = assemble(b.plan, OPTIONS)
    (result,) = program.run({"x": np.ones(6, np.float32)})
    np.testing.assert_array_equal(result, -np.ones(6))
    with pytest.raises(ShapeError, match=r"extent 5, which is not .*half"):
        program.run({"x": np.ones(5, np.float32)})


def test_broken_hint() -> None:
    b = masked()
    program = assemble(b.plan, Options(cores=1, dim_hints={"seq": (1, 16)}))
    assert works(program)
    with pytest.raises(ShapeError, match=r"seq is in 1\.\.16.*seq = 17 by input_ids"):
        program.run({"input_ids": ones(1, 17), "attention_mask": ones(1, 17)})
    assert works(program)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.empty((2, 4), np.int64), "shape [2, 4]"),
        (np.empty((2, 3), np.int32), "int32"),
        (np.empty((3, 2), np.int64).T, "C-contiguous"),
    ],
)
def test_bad_given_outputs(array: np.ndarray[Any, Any], words: str) -> None:
    program = assemble(masked().plan, OPTIONS)
    with pytest.raises(InputError) as caught:
        program.run(GOOD, {"y": array})
    assert words in str(caught.value) and "y" in str(caught.value)
    with pytest.raises(InputError, match="unknown output 'z'"):
        program.run(GOOD, {"z": array})
    assert works(program)


def test_given_outputs_that_share_memory() -> None:
    b = masked()
    ids = b.plan.inputs[0]
    b.launch([call(b.map("neg", [ids], b.output("z", ("batch", "seq"), I64), I64))])
    program = assemble(b.plan, OPTIONS)
    memory = np.empty((3, 3), np.int64)
    with pytest.raises(InputError, match="outputs y and z share memory"):
        program.run(GOOD, {"y": memory[:2], "z": memory[1:]})
    y, _ = program.run(GOOD, {"y": memory[:2]})
    np.testing.assert_array_equal(y, 2 * ones(2, 3))


_MANY_CORES = """
import resource
from dvm_graph import _core
from dvm_graph.errors import OutOfMemoryError
from dvm_graph.npu.machine import this_machine
machine = this_machine().core
resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
try:
    _core.ModelBuilder(2000, "", 1 << 16, machine, True)
except OutOfMemoryError as error:
    print(error)
"""


def test_more_cores_than_threads() -> None:
    done = subprocess.run([sys.executable, "-c", _MANY_CORES], capture_output=True, text=True)
    assert "2000 cores" in done.stdout, done.stderr


def lookup() -> PlanBuilder:
    b = PlanBuilder()
    table, index = b.input("table", ("rows", 8)), b.input("index", ("n",), I64)
    b.launch([call(b.take_rows(table, index, b.output("y", ("n", 8))))])
    return b


@pytest.mark.parametrize("n", [1, 5000])
def test_index_out_of_range(n: int) -> None:
    program = assemble(lookup().plan, OPTIONS)
    table = np.arange(80, dtype=np.float32).reshape(10, 8)
    index = np.zeros(n, np.int64)
    index[n // 2] = 12
    with pytest.raises(ExecutionError) as caught:
        program.run({"table": table, "index": index})
    message = str(caught.value)
    for words in ("take_rows", "/emb/Gather", "index 12", "-10 to 9", "core ", "pc ", "-> "):
        assert words in message, message
    index[n // 2] = -1
    (result,) = program.run({"table": table, "index": index})
    np.testing.assert_array_equal(result, table[index])


def test_more_memory_than_there_is() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    n = b.dim("n")
    t = b.value("t", (n, n, n))
    y = b.output("y", ("n",))
    b.launch([call(b.map("neg", [x], y))])
    plan = b.map("neg", [t], t)
    b.launch([call(plan)])
    program = assemble(b.plan, OPTIONS)
    for extent in (1 << 16, 1 << 22):  # 2^50 bytes, 2^68 bytes
        with pytest.raises(OutOfMemoryError) as caught:
            program.run({"x": np.ones(extent, np.float32)})
        assert isinstance(caught.value, MemoryError)
    (result,) = program.run({"x": np.ones(3, np.float32)})
    np.testing.assert_array_equal(result, -np.ones(3))


def test_more_elements_than_can_be_counted() -> None:
    program = assemble(masked().plan, OPTIONS)
    for dims in ({"batch": 1 << 40, "seq": 1 << 40}, {"batch": 1, "seq": (1 << 63) - 1}):
        with pytest.raises(CompileError, match="2\\^55 elements"):
            program.listings(dims)
    assert program.listings({"batch": 1 << 20, "seq": 1 << 30})


def test_output_larger_than_memory() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    n = b.dim("n")
    big = b.output("big", (n, n, n))
    b.launch([call(b.map("neg", [x], b.output("y", ("n",))))])
    b.launch([call(b.map("neg", [big], big))])
    program = assemble(b.plan, OPTIONS)
    with pytest.raises(OutOfMemoryError, match="big"):
        program.run({"x": np.ones(1 << 15, np.float32)})
    big_result, _ = program.run({"x": np.ones(3, np.float32)})
    assert big_result.shape == (3, 3, 3)


def test_guard_without_a_fallback() -> None:
    b = PlanBuilder()
    x, y = b.input("x", ("n",)), b.output("y", ("n",))
    guard = b.plan.dims.predicate("eq", b.dim("n"), 2)
    b.launch([call(b.map("abs", [x], y), guard=guard)])
    program = assemble(b.plan, OPTIONS)
    with pytest.raises(CompileError, match="refused by its guard"):
        program.run({"x": np.ones(3, np.float32)})
    np.testing.assert_array_equal(program.run({"x": -np.ones(2, np.float32)})[0], np.ones(2))


def test_division_by_zero_in_a_dim_that_is_used() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n", "m"))
    from dvm_graph.symbolic import floordiv

    quotient = floordiv(b.dim("n"), b.dim("m"))
    shape = b.output("shape", (1,), I64)
    b.write_dims(shape, [quotient])
    program = assemble(b.plan, OPTIONS)
    assert x == 0
    with pytest.raises(ShapeError, match="divides by zero"):
        program.run({"x": np.ones((3, 0), np.float32)})
    np.testing.assert_array_equal(program.run({"x": np.ones((7, 2), np.float32)})[0], [3])


def test_malformed_plans() -> None:
    b = masked()
    b.plan.values[2] = b.plan.values[0]
    b.plan.outputs = (99,)
    with pytest.raises(CompileError, match="malformed model plan: no value 99"):
        assemble(b.plan, OPTIONS)


def test_values_that_no_launched_kernel_writes() -> None:
    """A kernel is there, but no step launches it."""
    builder = copying(1, 1, 0, launched=False)
    with pytest.raises(CompileError, match="the caller reads y, which nothing writes"):
        builder.finish()


def copying(strides: int, axes: int, extent: int, *, launched: bool = True) -> _core.ModelBuilder:
    """y = x over [4], its one kernel made of what the test says."""
    builder = _core.ModelBuilder(1, "", 0, this_machine().core, True)
    builder.set_dims([], [("const", 4, 0), ("const", 1, 0)])
    builder.add_value("x", "f32", "input", [0])
    builder.add_value("y", "f32", "output", [0])
    none: tuple[int, ...] = ()
    load = ("load", "f32", axes, none, 0, 0, "", 0.0, 0, -1, -1, none, -1, none, "")
    store = ("store", "f32", axes, (0,), 1, 0, "", 0.0, 0, -1, -1, none, -1, none, "")
    accesses = [(value, (1,) * strides, -1, False, 0, 0, 0, False) for value in (0, 1)]
    kernel = builder.add_kernel(
        "copy", "vector", [extent], [load, store], accesses, (-1, -1, -1, -1), False, []
    )
    number = builder.add_call(kernel, -1, [])
    builder.add_launch([number] if launched else [], follows=False)
    builder.set_ports([0], [1])
    return builder


def test_malformed_kernels() -> None:
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(copying(1, 1, 0).finish().run([x], [], None)[0], x)
    for kernel, words in (
        (copying(40, 1, 0), "more strides than axes"),
        (copying(1, 0b11, 0), "along axes"),
        (copying(1, 1, -1), "no dim slot -1"),
    ):
        with pytest.raises(CompileError, match=words):
            kernel.finish()
        assert kernel.cores == 1  # spent, but no danger


def test_dims_written_beyond_their_value() -> None:
    builder = _core.ModelBuilder(1, "", 0, this_machine().core, True)
    builder.set_dims([], [("const", 1, 0)])
    builder.add_value("y", "i64", "output", [0])
    builder.add_dims_write(0, [0] * 1000)
    builder.set_ports([], [0])
    with pytest.raises(CompileError, match="y is too small"):
        builder.finish().run([], [], None)


def test_a_plan_that_reads_what_nothing_writes() -> None:
    b = PlanBuilder()
    b.input("x", ("n",))
    lost = b.value("lost", ("n",))
    y = b.output("y", ("n",))
    b.launch([call(b.map("neg", [lost], y))])
    with pytest.raises(CompileError, match="reads lost, which nothing writes"):
        assemble(b.plan, OPTIONS)


def test_a_plan_that_writes_an_input() -> None:
    b = PlanBuilder()
    x = b.input("x", ("n",))
    b.launch([call(b.map("neg", [x], x))])
    b.returns(x)
    with pytest.raises(CompileError, match="writes x, which is not its to write"):
        assemble(b.plan, OPTIONS)


def test_unknown_level() -> None:
    with pytest.raises(InputError, match="simd is 'mmx', but this machine has "):
        assemble(masked().plan, Options(simd="mmx"))


def test_build_for_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` builds for its machine alone; the folder may come to an older one."""
    monkeypatch.setattr(_core, "simd_levels", list)
    monkeypatch.setattr(_core, "built_levels", lambda: ["x86-64-v4"])
    with pytest.raises(InputError, match="code for x86-64-v4, which this CPU does not run"):
        assemble(masked().plan, Options())
