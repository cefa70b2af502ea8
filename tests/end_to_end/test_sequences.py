"""Sequences and optional values, made, carried by control flow, fed and given back, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.backend.conformance import Status, node_tests, run_tests
from dvm_graph.errors import DvmError
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from tests.backend.strict_backend import StrictBackend
from tests.decompose.reference import session
from tests.end_to_end.reference import model_from_text

Feeds = Mapping[str, Any]

KNOWN_PARTS = """g (float[n, 6] x) => (float[a, b] y, float[c] z, float[e, f] u) <int64[3] p = {1, 2, 3}, int64 k = {-1}> {
  e = Exp(x)
  s = SplitToSequence<axis = 1>(e, p)
  one = SequenceAt(s, k)
  y = Neg(one)
  t = SplitToSequence<axis = 1, keepdims = 0>(e)
  last = SequenceAt(t, k)
  z = Abs(last)
  r = SequenceErase(s)
  q = SequenceInsert(r, e)
  u = ConcatFromSequence<axis = 1>(q)
}"""
PARTS = """g (float[n, m] x, int64 size, int64 i) => (float[a, b] y, int64 l, float[c, d] z) {
  e = Exp(x)
  s = SplitToSequence(e, size)
  l = SequenceLength(s)
  one = SequenceAt(s, i)
  y = Neg(one)
  z = ConcatFromSequence<axis = 0>(s)
}"""
STACKED = """g (float[n, m] x, int64 i) => (float[a, b, c] y, float[d, e] z) {
  s = SplitToSequence<keepdims = 0>(x)
  two = SequenceConstruct(x, x)
  y = ConcatFromSequence<axis = -1, new_axis = 1>(two)
  z = ConcatFromSequence<axis = 0, new_axis = 1>(s)
}"""
# repeat_interleave, as torch.onnx's TorchScript exporter writes it
REPEATED = """g (float[n, 4] x, int64[n] r) => (float[a, b] y) {
  one = Constant<value_ints = [1]>()
  SPLIT
  counts = SplitToSequence(r, sizes)
  rows = SplitToSequence(x, sizes)
  none = SequenceEmpty()
  s = Loop(k, "", none) <
    body = turn (int64 i, bool go, seq(float[p, q]) had) => (bool more, seq(float[p, q]) has) {
        more = Identity(go)
        count = SequenceAt(counts, i)
        row = SequenceAt(rows, i)
        four = Constant<value_ints = [4]>()
        to = Concat<axis = 0>(count, four)
        wide = Expand(row, to)
        has = SequenceInsert(had, wide)
      }>
  all = ConcatFromSequence<axis = 0>(s)
  y = Relu(all)
}"""
SPLITS = {
    "one": "n = Shape(r) k = Squeeze(n) sizes = Squeeze(one)",
    "ones": "n = Shape(r) k = Squeeze(n) sizes = ConstantOfShape<value = int64[1] {1}>(n)",
    "twos": "n = Shape(r) two = Add(one, one) m = Div(n, two) k = Squeeze(m) "
    "sizes = ConstantOfShape<value = int64[1] {2}>(m)",
}
CHANGED = """g (seq(float[a, b]) s, float[n, m] x, int64 i, int64 j) => (seq(float[a, b]) t, seq(float[a, b]) u, float[c, d] v) {
  e = Exp(x)
  t = SequenceInsert(s, e, i)
  u = SequenceErase(t, j)
  v = SequenceAt(t, i)
}"""
GROWN = """g (int64 n, float[a, b] x) => (float[c, d] y, seq(float[p, q]) s, int64 l) {
  none = SequenceEmpty()
  s, last = Loop(n, "", none, x) <
    body = turn (int64 i, bool go, seq(float[p, q]) had, float[a, b] one) =>
      (bool more, seq(float[p, q]) has, float[a, b] next) {
        more = Identity(go)
        next = Sin(one)
        rows = Neg(next)
        has = SequenceInsert(had, rows)
      }
  >
  l = SequenceLength(s)
  y = ConcatFromSequence<axis = 0>(s)
}"""
SHRUNK = """g (seq(float[a, b]) s, float[n] w) => (float[n] y, seq(float[a, b]) t) {
  zero = Constant<value = int64 {0}>()
  l = SequenceLength(s)
  t, y = Loop(l, "", s, w) <
    body = turn (int64 i, bool go, seq(float[a, b]) had, float[n] sum) => (bool more, seq(float[a, b]) has, float[n] next) {
      one = SequenceAt(had, zero)
      has = SequenceErase(had, zero)
      m = ReduceMean<keepdims = 0>(one)
      next = Add(sum, m)
      more = Identity(go)
    }
  >
}"""
BRANCHES = """g (bool c, float[n, m] x, float[k, m] y) => (seq(float[a, b]) s, float[d, e] z) {
  zero = Constant<value = int64 {0}>()
  pair = SequenceConstruct(x, y)
  s = If (c) <
    then_branch = p () => (seq(float[a, b]) t) { e = Exp(x) t = SequenceInsert(pair, e, zero) },
    else_branch = o () => (seq(float[a, b]) u) { u = SequenceErase(pair) }
  >
  first = SequenceAt(s, zero)
  z = Neg(first)
}"""
OPTIONALS = """g (optional(float[n]) o, float[m] x, bool c) => (bool h, float[k] y, optional(float[p]) q) {
  h = OptionalHasElement(o)
  y = If (h) <
    then_branch = p () => (float[k] a) { e = OptionalGetElement(o) a = Exp(e) },
    else_branch = r () => (float[k] b) { b = Neg(x) }
  >
  q = Optional(y)
}"""
ASIDE = """g (float[n] x) => (bool h, float[m] y, bool i) {
  o = Optional(x)
  h = OptionalHasElement(o)
  e = OptionalGetElement(o)
  y = Exp(e)
  i = OptionalHasElement()
}"""

OPTIONAL_AT_FIRST = """g (int64 n, optional(seq(float[r])) o) => (seq(float[r]) s, int64 l, float[k] y) {
  yes = Constant<value = bool {1}>()
  s = Loop(n, yes, o) <
    body = turn (int64 i, bool go, optional(seq(float[r])) had) => (bool more, seq(float[r]) has) {
        more = Identity(go)
        there = OptionalHasElement(had)
        before = If (there) <
          then_branch = t () => (seq(float[r]) a) { a = OptionalGetElement(had) },
          else_branch = e () => (seq(float[r]) b) { x = Constant<value_floats = [0.0, 2.0]>() b = SequenceConstruct(x) }
        >
        number = Cast<to = 1>(i)
        one = Constant<value_ints = [1]>()
        row = Reshape(number, one)
        has = SequenceInsert(before, row)
    }
  >
  l = SequenceLength(s)
  last = Constant<value_int = -1>()
  other = Constant<value_ints = [7]>()
  y = TAKEN
}"""


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def i64(value: int) -> np.ndarray[Any, Any]:
    return np.array(value, np.int64)


def assert_same(got: Any, want: Any) -> None:
    if isinstance(want, list):
        assert isinstance(got, list)
        assert len(got) == len(want)
        for mine, theirs in zip(got, want, strict=True):
            assert_same(mine, theirs)
        return
    assert (got.shape, got.dtype) == (np.shape(want), np.asarray(want).dtype)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def agrees(text: str, *runs: Feeds, opset: int = 20) -> dvm_graph.Model:
    proto = model_from_text(text, opset)
    model, reference = dvm_graph.optimize(proto, strict=True), session(proto)
    for feeds in (*runs, *runs[::-1]):
        assert_same(model.run(feeds), reference.run(None, feeds))
    return model


def test_what_is_known_needs_no_sequence() -> None:
    model = agrees(KNOWN_PARTS, {"x": normal(4, 6)}, {"x": normal(1, 6)})
    compiled = compile_model(model_from_text(KNOWN_PARTS, 20), Options())
    assert not any(node.is_call for node in compiled.graph.nodes)
    assert not model.report().vendor_operators


def test_parts_of_sizes_that_the_run_tells() -> None:
    shapes = [(6, 4, 2, 0), (6, 4, 3, -1), (9, 1, 3, 2)]
    runs = [{"x": normal(n, m), "size": i64(s), "i": i64(i)} for n, m, s, i in shapes]
    agrees(PARTS, *runs, {"x": normal(7, 4), "size": i64(3), "i": i64(-1)})


def test_parts_of_a_constant() -> None:
    """As many as are not kept as views of it."""
    rows = ", ".join(str(i) for i in range(169))
    agrees(
        f"""g () => (float[a, 1] y, float[b, 13] z) {{
          c = Constant<value = float[13, 13] {{{rows}}}>()
          one = Constant<value_int = 1>()
          n = Neg(c)
          s = SplitToSequence<axis = -1, keepdims = 1>(n, one)
          y = ConcatFromSequence<axis = 0>(s)
          z = ConcatFromSequence<axis = 1>(s)
        }}""",
        {},
    )


def test_rows_become_an_axis() -> None:
    agrees(STACKED, {"x": normal(3, 5), "i": i64(0)}, {"x": normal(1, 1), "i": i64(0)})


def test_changes_at_every_place() -> None:
    given = [normal(2, 3), normal(1, 1), normal(4, 2)]
    places = [(0, 0), (3, -1), (-3, 3), (1, -4), (2, 2)]
    runs = [{"s": given, "x": normal(5, 2), "i": i64(i), "j": i64(j)} for i, j in places if i < 3]
    agrees(CHANGED, *runs, {"s": [], "x": normal(2, 2), "i": i64(0), "j": i64(-1)})


@pytest.mark.parametrize(
    "feeds",
    [
        {"i": i64(4)},
        {"i": i64(-4)},
        {"j": i64(4)},
        {"j": i64(-5)},
        {"s": normal(2, 2)},
        {"s": None},
        {"s": [normal(2, 2).astype(np.float64)]},
    ],
    ids=str,
)
def test_what_onnxruntime_refuses_is_refused(feeds: Feeds) -> None:
    proto = model_from_text(CHANGED, 20)
    fine = {"s": [normal(1, 1)] * 3, "x": normal(2, 2), "i": i64(0), "j": i64(0)}
    model, reference = dvm_graph.optimize(proto, strict=True), session(proto)
    with pytest.raises(Exception):  # noqa: B017 - whatever onnxruntime raises
        reference.run(None, {**fine, **feeds})
    with pytest.raises(DvmError):
        model.run({**fine, **feeds})
    assert_same(model.run(fine), reference.run(None, fine))


def test_what_cannot_be_joined_is_refused() -> None:
    text = "g (seq(float[a, b]) s) => (float[c, d] y) { y = ConcatFromSequence<axis = 0>(s) }"
    model = agrees(text, {"s": [normal(2, 3), normal(4, 3)]})
    for wrong in ([], [normal(2, 3), normal(2, 4)], [normal(2, 3), normal(2)]):
        with pytest.raises(DvmError):
            model.run({"s": wrong})


def test_a_loop_grows_a_sequence() -> None:
    runs = [{"n": i64(n), "x": normal(a, b)} for n, a, b in ((1, 2, 3), (5, 1, 4), (40, 3, 2))]
    agrees(GROWN, *runs)


@pytest.mark.parametrize("split", ["one", "ones"])
def test_rows_are_repeated(split: str) -> None:
    """Every part has one row, whatever the extent, so that the rank of what is made of it is known."""
    runs = [{"x": normal(n, 4), "r": np.arange(1, n + 1) % 3 + 1} for n in (5, 1, 12)]
    model = agrees(REPEATED.replace("SPLIT", SPLITS[split]), *runs)
    assert not model.report().vendor_operators


def test_parts_of_two_rows_each() -> None:
    text = "g (float[n, 4] x, int64[n] r) => (float[a, b] y, int64 l) { one = Constant<value_ints = [1]>() "
    text += SPLITS["twos"] + " s = SplitToSequence(x, sizes) l = SequenceLength(s) "
    text += "z = Constant<value_int = -1>() p = SequenceAt(s, z) y = Exp(p) }"
    agrees(text, *({"x": normal(n, 4), "r": np.arange(n)} for n in (6, 2, 10)))


def test_a_loop_shrinks_a_sequence() -> None:
    parts = [normal(n, 3) for n in (2, 5, 1, 1)]
    agrees(
        SHRUNK,
        {"s": parts, "w": normal(3)},
        {"s": [], "w": normal(2)},
        {"s": parts[:1], "w": normal(1)},
    )


def test_branches_give_sequences() -> None:
    shapes = [(True, 2, 3, 4), (False, 1, 2, 3), (True, 5, 1, 1), (False, 2, 2, 2)]
    runs = [{"c": np.array(c), "x": normal(n, m), "y": normal(k, m)} for c, n, m, k in shapes]
    agrees(BRANCHES, *runs)


def test_optional_values() -> None:
    agrees(OPTIONALS, *({"o": o, "x": normal(4), "c": np.array(True)} for o in (normal(3), None)))
    model = agrees(ASIDE, {"x": normal(5)})
    assert not model.report().vendor_operators


@pytest.mark.parametrize(
    ("rank", "taken"), [("[r]", "SequenceAt(s, last)"), ("[]", "Cast<to = 1>(other)")]
)
def test_a_state_that_is_optional_at_first(rank: str, taken: str) -> None:
    """Behind the first turn it is there; before, an optional sequence may be none."""
    text = OPTIONAL_AT_FIRST.replace("float[r]", f"float{rank}").replace("TAKEN", taken)
    given = [None, [], [normal(3)], [normal(1), normal(4)]]
    model = agrees(text, *({"n": i64(n), "o": o} for n in (1, 2, 5) for o in given))
    assert_same(model.run({"n": i64(0), "o": given[3]})[1:2], [np.int64(2)])
    with pytest.raises(DvmError):
        model.run({"n": i64(0), "o": None})
    assert_same(model.run({"n": i64(1), "o": None})[1:2], [np.int64(2)])


def test_results_are_the_callers_own() -> None:
    """What lies in a sequence twice, or is an input, too, is not shared."""
    text = """g (seq(float[a]) s, float[n] x) => (seq(float[a]) t, seq(float[a]) u, float[b] v, float[c] w) {
      zero = Constant<value = int64 {0}>()
      e = Exp(x)
      t = SequenceInsert(s, e, zero)
      u = SequenceInsert(t, e)
      v = SequenceAt(t, zero)
      w = SequenceAt(u, zero)
    }"""
    feeds = {"s": [normal(3)], "x": normal(2)}
    model = agrees(text, feeds)
    results = model.run(feeds)
    arrays = [feeds["s"][0], *results[0], *results[1], *results[2:]]
    kept = [array.copy() for array in arrays]
    for at, array in enumerate(arrays):
        array += 1000
        for other, (now, then) in enumerate(zip(arrays, kept, strict=True)):
            assert other == at or np.array_equal(now, then)
        array[:] = kept[at]


def test_saved_models_have_them(tmp_path: Any) -> None:
    model = dvm_graph.optimize(model_from_text(GROWN, 20), strict=True)
    model.save(tmp_path / "model.dvm")
    feeds = {"n": i64(7), "x": normal(2, 3)}
    assert_same(dvm_graph.load(tmp_path / "model.dvm").run(feeds), model.run(feeds))


def test_the_vendor_library_takes_and_gives_them() -> None:
    """Beside strings, which are its own."""
    proto = model_from_text(CHANGED, 20)
    names = {f"{node.op_type}:{node.output[0]}" for node in proto.graph.node}
    feeds = {"s": [normal(2, 3)], "x": normal(2, 2), "i": i64(0), "j": i64(-1)}
    want = session(proto).run(None, feeds)
    for name in sorted(names):
        assert_same(dvm_graph.optimize(proto, vendor_nodes={name}).run(feeds), want)


def test_node_tests_need_no_vendor_operator() -> None:
    pattern = r"^test_(split_to_)?sequence|optional|^test_(if|nonzero|compress|unique|top_k|nonmaxsuppression|lstm|gru|simple_rnn|rnn)"
    tests = [test for test in node_tests(pattern) if "map" not in test.name]
    outcomes = list(run_tests(tests, jobs=1, backend=StrictBackend))
    assert len(outcomes) > 60
    assert [o.name for o in outcomes if o.status is not Status.PASSED] == []
