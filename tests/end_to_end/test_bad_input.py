"""Bad runs of whole models: each a specific error that says where, and the model usable afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from models import random_feeds, tiny_path
from tests.end_to_end.reference import Array, assert_same_bits, model_from_text

Feeds = dict[str, Array]


def good() -> Feeds:
    return random_feeds("bert", {"batch": 3, "seq": 9})


@pytest.fixture(scope="module")
def model() -> dvm_graph.Model:
    return dvm_graph.optimize(tiny_path("bert"))


def changed(**feeds: Any) -> Callable[[], Feeds]:
    return lambda: {**good(), **feeds}


def without(name: str) -> Callable[[], Feeds]:
    return lambda: {key: value for key, value in good().items() if key != name}


ZEROS = np.zeros((3, 9), np.int64)


@pytest.mark.parametrize(
    ("feeds", "error", "words"),
    [
        (without("attention_mask"), dvm_graph.InputError, ["missing", "attention_mask"]),
        (changed(labels=ZEROS), dvm_graph.InputError, ["unknown", "labels", "input_ids"]),
        (changed(input_ids=ZEROS.astype(np.int32)), dvm_graph.InputError,
         ["input_ids", "int32", "int64"]),
        (changed(input_ids=ZEROS.astype(np.float64)), dvm_graph.InputError,
         ["input_ids", "float64", "int64"]),
        (changed(input_ids=ZEROS[0]), dvm_graph.InputError, ["input_ids", "rank 1 (shape [", "rank 2"]),
        (changed(input_ids=ZEROS[None]), dvm_graph.InputError, ["input_ids", "rank 3 (shape [", "rank 2"]),
        (changed(input_ids=ZEROS[:, :4]), dvm_graph.ShapeError,
         ["seq", "input_ids", "attention_mask", "4", "9"]),
        (changed(input_ids=ZEROS + 10**6), dvm_graph.ExecutionError,
         ["1000000", "node_embedding"]),
        (changed(input_ids=ZEROS - 10**6), dvm_graph.ExecutionError,
         ["-1000000", "node_embedding"]),
    ],
    ids=("missing", "unknown", "int32", "float64", "rank 1", "rank 3", "seq", "index",
         "negative index"),
)  # fmt: skip
def test_bad_feeds(
    model: dvm_graph.Model,
    feeds: Callable[[], Feeds],
    error: type[dvm_graph.DvmError],
    words: list[str],
) -> None:
    before = model.run(good())
    for _ in range(2):
        with pytest.raises(error) as caught:
            model.run(feeds())
        for word in words:
            assert word in str(caught.value)
        assert_same_bits(model.run(good()), before)


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        (list(good().values()), "mapping of names"),
        (None, "mapping of names"),
        ({**good(), 1: ZEROS, "labels": ZEROS}, "unknown input 1"),
        ({**good(), "input_ids": [[1, 2], [3]]}, "input_ids does not make an array"),
    ],
)
def test_feeds_that_are_no_arrays_by_name(model: dvm_graph.Model, feeds: Any, words: str) -> None:
    with pytest.raises(dvm_graph.InputError, match=words):
        model.run(feeds)


def test_a_model_prints_what_it_takes_and_gives() -> None:
    source = model_from_text(
        "g (float[n, 2] x, int64[m] i) => (float[m, 2] y) { y = Gather(x, i) }"
    )
    words = "<dvm_graph.Model: x tensor(float)[n, 2], i tensor(int64)[m] -> y tensor(float)[m, 2]>"
    assert repr(dvm_graph.optimize(source)) == words


def test_negative_extents(model: dvm_graph.Model) -> None:
    with pytest.raises(dvm_graph.InputError, match="batch is -1"):
        model.listings({"batch": -1, "seq": 2})
    with pytest.raises(dvm_graph.InputError, match=r"shape \[-1, 2\]"):
        model.compare(dims={"batch": -1})


def test_dims_that_no_input_has(model: dvm_graph.Model) -> None:
    with pytest.raises(
        dvm_graph.InputError, match="no input has a dim 'sequence'; dims are batch, seq"
    ):
        model.compare(dims={"sequence": 3})


def test_a_view_too_large_to_be_copied(model: dvm_graph.Model) -> None:
    endless = np.broadcast_to(np.int64(1), (1 << 40, 9))
    with pytest.raises(dvm_graph.OutOfMemoryError, match="contiguous copy of input input_ids"):
        model.run(changed(input_ids=endless)())


CUTS = {
    "split": "(float[n] x) => (float[a] y, float[b] z) <int64[2] s = {2, 3}> { y, z = Split(x, s) }",
    "pad of nothing": "(float[0] x) => (float[1] y) <int64[2] s = {-1, 2}> { y = Pad(x, s) }",
    "window": """(float[a, b, n, c] x) => (float[d, e, f, g] y) <int64[2] s = {2, 3}> {
        z = MaxPool<kernel_shape = [7, 1]>(x)
        y = ReduceSum(z, s)
    }""",
}


@pytest.mark.parametrize("cut", CUTS)
def test_parts_that_leave_the_whole(cut: str) -> None:
    """They were internal errors, or the rest of the whole went unnoticed."""
    with pytest.raises(dvm_graph.ShapeError):
        compiled = dvm_graph.optimize(model_from_text(f"g {CUTS[cut]}"))
        rank = len(compiled.get_inputs()[0].shape)
        compiled.run({"x": np.ones((4,) * rank, np.float32)})


def test_an_index_into_nothing() -> None:
    source = model_from_text("g (float[n] x, int64[m] i) => (float[m] y) { y = Gather(x, i) }")
    with pytest.raises(
        dvm_graph.ExecutionError, match=r"index 0 .* there is nothing to choose from"
    ):
        dvm_graph.optimize(source).run({"x": np.ones(0, np.float32), "i": np.zeros(1, np.int64)})


def test_comparison_with_a_model_that_onnxruntime_does_not_run() -> None:
    source = model_from_text("g (bfloat16[n] x) => (bfloat16[n] y) { y = Mul(x, x) }")
    with pytest.raises(dvm_graph.UnsupportedError, match="onnxruntime does not run this model"):
        dvm_graph.compare(source)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.empty((3, 9), np.float32), ["shape", "[3, 9]"]),
        (np.empty((3, 9, 1), np.float64), ["float64", "float32"]),
        (np.empty((9, 3, 32), np.float32).transpose(1, 0, 2), ["C-contiguous"]),
    ],
)
def test_bad_outputs(model: dvm_graph.Model, array: Array, words: list[str]) -> None:
    name = model.get_outputs()[0].name
    before = model.run(good())
    with pytest.raises(dvm_graph.InputError) as caught:
        model.run(good(), outputs={name: array})
    for word in [name, *words]:
        assert word in str(caught.value)
    assert_same_bits(model.run(good()), before)


def test_results_are_written_into_given_outputs(model: dvm_graph.Model) -> None:
    name = model.get_outputs()[0].name
    expected = model.run(good())
    array = np.full_like(expected[0], np.nan)
    result = model.run(good(), outputs={name: array})
    assert result[0] is array or np.shares_memory(result[0], array)
    assert_same_bits([array], expected[:1])


def test_strings_beside_a_given_output() -> None:
    model = dvm_graph.optimize(
        model_from_text(
            "g (float[n] x, string[n] s) => (string[n] t, float[n] y) { t = Identity(s) y = Neg(x) }"
        )
    )
    feeds = {"x": np.arange(3, dtype=np.float32), "s": np.array(["a", "b", ""], object)}
    array = np.empty(3, np.float32)
    words, _ = model.run(feeds, outputs={"y": array})
    np.testing.assert_array_equal(words, feeds["s"])
    np.testing.assert_array_equal(array, -feeds["x"])


def test_outputs_keep_their_names() -> None:
    """Whatever passes make of the values: moved on, divided late, the same one twice, an input."""
    model = dvm_graph.optimize(
        model_from_text(
            "g (float[r,2,h,w] x, float[w,3] v) => (float[r,5,h,w] a, float[r,2,h,3] b,"
            " float[r,2,h,w] d, float[r,2,h,w] e, float[w,3] f, float[r,2,h,w] p)"
            " <float[5,2,1,1] k = {1,2,3,4,5,6,7,8,9,0}>"
            "{ s = Conv(x, k) a = Relu(s) q = Softmax(x) b = MatMul(q, v)"
            "  d = Neg(x) e = Identity(d) f = Identity(v) t = Neg(x) p = Softmax(t) }"
        )
    )
    names = ["a", "b", "d", "e", "f", "p"]
    assert [info.name for info in model.get_outputs()] == names
    generator = np.random.default_rng(0)
    shapes = {"x": (1, 2, 5, 7), "v": (7, 3)}
    feeds = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    b = np.empty((1, 2, 5, 3), np.float32)
    f, p = model.run(feeds, ["f", "p"], outputs={"b": b})
    weights = np.exp(feeds["x"])
    np.testing.assert_allclose(b, weights / weights.sum(-1, keepdims=True) @ feeds["v"], 1e-5)
    np.testing.assert_array_equal(f, feeds["v"])
    np.testing.assert_allclose(p, 1 / weights / (1 / weights).sum(-1, keepdims=True), 1e-5)


def test_unknown_output_names(model: dvm_graph.Model) -> None:
    with pytest.raises(dvm_graph.InputError, match="nothing"):
        model.run(good(), ["nothing"])
    with pytest.raises(dvm_graph.InputError, match="nothing"):
        model.run(good(), outputs={"nothing": np.empty(1, np.float32)})


def test_a_result_may_be_written_over_an_input() -> None:
    """Both results need the input, which the first one's array is a part of."""
    model = dvm_graph.optimize(
        model_from_text("g (float[n] x) => (float[n] y, float[n] z) { y = Neg(x) z = Abs(x) }")
    )
    buffer = np.arange(1, 9, dtype=np.float32)
    x = buffer[:6]
    expected = model.run({"x": x.copy()})
    y, z = model.run({"x": x}, outputs={"y": buffer[2:]})
    assert_same_bits([y, z, buffer[2:]], [*expected, expected[0]])


GATHER = """rows (float[rows, 4] table, int64[n] index) => (float[n, 4] y) {
    [lookup] v = Gather<axis = 0>(table, index)
    y = Tanh(v)
}"""


@pytest.mark.parametrize("index", [[0, 5], [-6, 0], [2**40], [-(2**62)]])
def test_an_index_out_of_range_names_the_operator(index: list[int]) -> None:
    model = dvm_graph.optimize(model_from_text(GATHER))
    table = np.arange(20, dtype=np.float32).reshape(5, 4)
    with pytest.raises(dvm_graph.ExecutionError, match="lookup"):
        model.run({"table": table, "index": np.array(index)})
    (y,) = model.run({"table": table, "index": np.array([4, -5])})
    np.testing.assert_allclose(y, np.tanh(table[[4, 0]]), rtol=1e-6)


def test_a_table_without_rows_has_no_valid_index() -> None:
    model = dvm_graph.optimize(model_from_text(GATHER))
    table = np.zeros((0, 4), np.float32)
    with pytest.raises(dvm_graph.ExecutionError, match="lookup"):
        model.run({"table": table, "index": np.array([0])})
    assert model.run({"table": table, "index": np.array([], np.int64)})[0].shape == (0, 4)


def big_model() -> onnx.ModelProto:
    """The outer product of two inputs: as large as its inputs' extents multiplied."""
    return model_from_text(
        """big (float[m] x, float[n] y, float[k] z) => (float[m, n, k] w)
        <int64[2] ends = {1, 2}, int64[1] end = {1}>
        {
            a = Unsqueeze(x, ends)
            b = Unsqueeze(y, end)
            c = Mul(a, b)
            w = Mul(c, z)
        }"""
    )


def test_more_memory_than_there_is() -> None:
    model = dvm_graph.optimize(big_model())
    ones = np.ones(1 << 15, np.float32)
    with pytest.raises(dvm_graph.OutOfMemoryError):
        model.run({"x": ones, "y": ones, "z": ones})
    (w,) = model.run({"x": ones[:2], "y": ones[:3], "z": ones[:4]})
    assert_same_bits([w], [np.ones((2, 3, 4), np.float32)])


def test_more_elements_than_can_be_counted() -> None:
    model = dvm_graph.optimize(big_model())
    with pytest.raises(dvm_graph.OutOfMemoryError):
        model.run({name: np.ones(1 << 21, np.float32) for name in "xyz"})
    assert model.run({name: np.ones(1, np.float32) for name in "xyz"})[0].shape == (1, 1, 1)


def test_an_expansion_beyond_memory() -> None:
    """The shape is computed from the extents of an input; the large value is an intermediate one."""
    model = dvm_graph.optimize(
        model_from_text(
            """big (float[n] x) => (float[a] first, float[b] last)
            <int64[1] many = {1048576}, int64[1] front = {0}, int64[1] all = {-1}, float[1] one = {1}> {
                extent = Shape(x)
                extents = Concat<axis = 0>(extent, many, extent)
                large = Expand(one, extents)
                wave = Sin(large)
                flat = Reshape(wave, all)
                sorted, order = TopK(flat, extent)
                first = Neg(sorted)
                last = Cast<to = 1>(order)
            }"""
        )
    )
    with pytest.raises(dvm_graph.OutOfMemoryError):
        model.run({"x": np.ones(1 << 13, np.float32)})
    assert model.run({"x": np.ones(1, np.float32)})[0].shape == (1,)


def test_strict_names_the_operators_it_refuses() -> None:
    model = model_from_text("g (float[n, m, m] x) => (float[n] y) { y = Det(x) }")
    with pytest.raises(dvm_graph.StrictError, match="Det"):
        dvm_graph.optimize(model, strict=True)


class NoElements:
    def __array__(self, *_: object, **__: object) -> None:
        raise RuntimeError("it requires grad")


SUM = "g (float[n] x, int64[n] i) => (float[n] y, int64[n] j) { y = Neg(x) j = Neg(i) }"
X, INDEX = np.array([1.5, -2, 3], np.float32), np.array([1, 2, -3])


@pytest.mark.parametrize(
    "feeds",
    [
        {"x": X.tolist(), "i": INDEX.tolist()},
        {"x": tuple(X.tolist()), "i": tuple(INDEX.tolist())},
        {"x": X.astype(">f4"), "i": INDEX.astype(">i8")},
        {"x": np.repeat(X, 2)[::2], "i": INDEX[::-1][::-1]},
        {"x": np.ma.masked_array(X, False), "i": INDEX},
        {"x": memoryview(X), "i": INDEX},
        {"x": np.frombuffer(X.tobytes(), np.float32), "i": INDEX},
    ],
    ids=("lists", "tuples", "big-endian", "strided", "unmasked", "a buffer", "read-only"),
)
def test_feeds_of_every_form(feeds: Any) -> None:
    y, j = dvm_graph.optimize(model_from_text(SUM)).run(feeds)
    assert_same_bits([y, j], [-X, -INDEX])


def test_numbers_are_feeds_of_rank_0() -> None:
    source = model_from_text("g (float x, bool b) => (float y, bool c) { y = Neg(x) c = Not(b) }")
    model = dvm_graph.optimize(source)
    for x in (2, 2.0, np.float32(2), np.array(2, np.float32)):
        y, c = model.run({"x": x, "b": True})
        assert_same_bits([y, c], [np.array(-2, np.float32), np.array(False)])


@pytest.mark.parametrize(
    ("x", "i", "words"),
    [
        (np.ma.masked_array(X, [0, 1, 0]), INDEX, "x has masked elements"),
        (NoElements(), INDEX, "x does not make an array: it requires grad"),
        (X.astype(object), INDEX, "x is object"),
        (X, [1.5, 2, 3], "a number does not fit int64"),
        (X, [1, 2**70, 3], "input i"),
        (["a", "b", "c"], INDEX, "input x is <U1"),
        ({1: 2}, INDEX, "input x"),
        (None, INDEX, "input x"),
        (X.astype(">f8"), INDEX, "x is >f8"),
    ],
)
def test_feeds_without_a_meaning(x: Any, i: Any, words: str) -> None:
    model = dvm_graph.optimize(model_from_text(SUM))
    with pytest.raises(dvm_graph.InputError, match=words):
        model.run({"x": x, "i": i})
    assert_same_bits(model.run({"x": X, "i": INDEX}), [-X, -INDEX])
