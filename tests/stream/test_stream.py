"""The buffer of a stream: what is stored, what fails and when, threads, memory."""

from __future__ import annotations

import gc
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from dvm_graph import _core
from dvm_graph.errors import (
    DvmError,
    ExecutionError,
    InputError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
)
from dvm_graph.stream import open_stream
from tests.stream.programs import on_stream, random_program
from tests.stream.soak import flush_programs, resident_bytes
from tests.tolerances import assert_close

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def stream() -> _core.Stream:
    return open_stream()


def test_a_chain_is_one_kernel_and_stores_its_end(stream: _core.Stream) -> None:
    y = stream.constant(X)
    for _ in range(5):
        y = stream.append("add", [y, 1])
    np.testing.assert_array_equal(y.numpy(), X + 5)
    assert (stream.statistics["kernels"], stream.statistics["stored"]) == (1, 1)


def test_what_died_is_not_computed(stream: _core.Stream) -> None:
    x = stream.constant(X)
    kept = stream.append("neg", [x])
    for _ in range(3):
        stream.append("exp", [x])
    stream.flush()
    assert stream.statistics["dead"] == 3
    assert stream.statistics["stored"] == 1
    np.testing.assert_array_equal(kept.numpy(), -X)


def test_values_are_the_same_memory_each_time(stream: _core.Stream) -> None:
    y = stream.append("add", [stream.constant(X), 1])
    assert np.shares_memory(y.numpy(), y.numpy())
    assert np.shares_memory(stream.constant(X).numpy(), X)
    reshaped = stream.append("reshape", [y], [3, 2])
    assert np.shares_memory(reshaped.numpy(), y.numpy())


def test_a_full_buffer_is_flushed(stream: _core.Stream) -> None:
    stream.record(True)
    y = stream.constant(X)
    for _ in range(500):
        y = stream.append("add", [y, 1])
    np.testing.assert_array_equal(y.numpy(), X + 500)
    assert [flush["reason"] for flush in stream.take_record()] == ["full", "full", "value"]


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "error", "word"),
    [
        ("add", [X, np.zeros(2, np.float32)], (), ShapeError, "3 and 2"),
        ("add", [X, X.astype(np.float64)], (), InputError, "dtypes"),
        ("add", [X], (), InputError, "2 operands"),
        ("fold", [X], (), InputError, "fold"),
        ("matmul", [X, X], (), ShapeError, "contracts 3"),
        ("matmul", [X.astype(int), X.T.astype(int).copy()], (), UnsupportedError, "floats"),
        ("reshape", [X], (4,), ShapeError, "elements"),
        ("transpose", [X], (0, 0), InputError, "twice"),
        ("slice", [X], (0, 0, 1, 1, 3, 1), ShapeError, "axis 0"),
        ("reduce_sum", [X], (2,), InputError, "axis 2"),
        ("exp", [X.astype(np.int32)], (), UnsupportedError, "int32"),
        ("broadcast_to", [X], (1,) * 9, UnsupportedError, "8 axes"),
        ("gather", [X, X], (0,), InputError, "int64"),
        ("lt", [X.astype(np.uint64), 1], (), UnsupportedError, "uint64"),
    ],
)
def test_what_does_not_fit_is_told_at_once(
    stream: _core.Stream,
    op: str,
    operands: list[np.ndarray],
    attrs: tuple[int, ...],
    error: type[DvmError],
    word: str,
) -> None:
    values = [stream.constant(o) if isinstance(o, np.ndarray) else o for o in operands]
    with pytest.raises(error, match=word):
        stream.append(op, values, attrs)
    assert stream.statistics["operators"] == 0


@pytest.mark.parametrize("number", [300, -1, 1.5])
def test_numbers_that_a_dtype_does_not_hold(stream: _core.Stream, number: float) -> None:
    with pytest.raises(InputError, match="uint8"):
        stream.append("add", [stream.constant(X.astype(np.uint8)), number])


def test_a_flush_that_fails_leaves_the_stream_usable(stream: _core.Stream) -> None:
    x = stream.constant(X)
    wrong = stream.append("gather", [x, stream.constant(np.array([2]))], [0])
    after = stream.append("neg", [wrong])
    for _ in range(2):
        with pytest.raises(ExecutionError, match="index 2"):
            after.numpy()
    with pytest.raises(ExecutionError, match="index 2"):
        stream.append("neg", [wrong])
    np.testing.assert_array_equal(stream.append("neg", [x]).numpy(), -X)


@pytest.mark.parametrize(
    "dtype", ["float16", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64"]
)
def test_dtypes(stream: _core.Stream, dtype: str) -> None:
    x = np.array([[1, 2, 3], [100, 101, 102]]).astype(dtype)
    y = stream.append("mul", [stream.append("add", [stream.constant(x), 27]), 2])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y.numpy(), (x + x.dtype.type(27)) * x.dtype.type(2))
    z = stream.append("cast", [y], (), "float32")
    np.testing.assert_array_equal(z.numpy(), y.numpy().astype(np.float32))


@pytest.mark.parametrize("number", [1 + 2**-11, 1 + 2**-11 + 2**-40, -3e-8, 65519.99, 65520.0, 1e9])
def test_numbers_are_rounded_once(stream: _core.Stream, number: float) -> None:
    x = np.zeros(3, np.float16)
    with np.errstate(over="ignore"):
        expected = np.full(3, np.float16(number))
    np.testing.assert_array_equal(
        stream.append("add", [stream.constant(x), number]).numpy(), expected
    )


def test_bfloat16_is_its_bits(stream: _core.Stream) -> None:
    x = X.astype(ml_dtypes.bfloat16)
    y = stream.append("add", [stream.constant(x.view(np.uint16), "bfloat16"), 1.0])
    assert y.dtype == "bfloat16"
    np.testing.assert_array_equal(y.numpy().view(ml_dtypes.bfloat16), x + ml_dtypes.bfloat16(1))


@pytest.mark.parametrize("shape", [(0,), (2, 0, 3), (0, 4)])
def test_empty_tensors(stream: _core.Stream, shape: tuple[int, ...]) -> None:
    x = stream.constant(np.zeros(shape, np.float32))
    assert stream.append("exp", [stream.append("add", [x, 1])]).numpy().shape == shape
    total = stream.append("reduce_sum", [x], range(len(shape))).numpy()
    np.testing.assert_array_equal(total, np.zeros((1,) * len(shape), np.float32))
    assert stream.append("reshape", [x], (0, 7)).numpy().shape == (0, 7)


def test_arrays_are_let_go(stream: _core.Stream) -> None:
    array = np.array(X)
    gone = weakref.ref(array)
    y = stream.append("add", [stream.constant(array), 1])
    del array
    y.numpy()
    gc.collect()
    assert gone() is None


def test_an_array_that_goes_may_use_the_stream(stream: _core.Stream) -> None:
    seen = []
    array = np.array(X)
    held = stream.constant(X)
    weakref.finalize(array, lambda: seen.append(stream.append("neg", [held]).numpy()))
    y = stream.append("add", [stream.constant(array), 1])
    del array
    np.testing.assert_array_equal(y.numpy(), X + 1)
    np.testing.assert_array_equal(seen, [-X])


def test_values_of_another_stream(stream: _core.Stream) -> None:
    other = open_stream()
    y = other.append("add", [other.constant(X), 1])
    np.testing.assert_array_equal(stream.append("mul", [y, 2]).numpy(), (X + 1) * 2)


def test_several_threads(stream: _core.Stream) -> None:
    failures: list[int] = []

    def work(first: int) -> None:
        for seed in range(first, first + 40):
            program = random_program(seed)
            for index, value in on_stream(program, stream).items():
                if not np.array_equal(value.numpy(), program.values[index]):
                    failures.append(seed)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_memory_stays_flat(stream: _core.Stream) -> None:
    flush_programs(stream, 0, 1000)
    before = resident_bytes()
    flush_programs(stream, 0, 3000)
    assert resident_bytes() - before < 2 << 20


def test_rows_stay_only_where_that_is_faster(stream: _core.Stream) -> None:
    """A softmax whose rows do not fit local memory behind their product: kernels of their own."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 8), (8, 200_000)))
    c = rng.standard_normal((200_000, 4)).astype(np.float32)
    x = stream.append("matmul", [stream.constant(a), stream.constant(b)])
    e = stream.append("exp", [stream.append("sub", [x, stream.append("reduce_max", [x], [1])])])
    p = stream.append("div", [e, stream.append("reduce_sum", [e], [1])])
    y = stream.append("matmul", [p, stream.constant(c)])
    scores = a.astype(np.float64) @ b
    weights = np.exp(scores - scores.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    assert_close(y.numpy(), (weights @ c).astype(np.float32), reduction_length=200_000)
    assert stream.statistics["kernels"] > 1


def test_memory_that_runs_out_is_told_to_who_asks(stream: _core.Stream) -> None:
    huge = stream.append("broadcast_to", [1.0], [1 << 24, 1 << 24], "float32")
    other = stream.append("neg", [stream.constant(X)])
    with pytest.raises(OutOfMemoryError):
        huge.numpy()
    with pytest.raises(OutOfMemoryError):
        other.numpy()
    del huge, other
    np.testing.assert_array_equal(stream.append("neg", [stream.constant(X)]).numpy(), -X)
