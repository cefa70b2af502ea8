"""`If`, `Loop` and `Scan` whose bodies are compiled, against onnxruntime."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.errors import ExecutionError, ShapeError
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from tests.decompose.reference import session

Feeds = Mapping[str, Any]

BRANCHES = """g (bool c, float[n, m] x, float[n, m] y, float[m, m] w) => (float[k, l] z, float[i, j] u) {
  e = Exp(x)
  t, s = If (c) <
    then_branch = p () => (float[a, b] t1, float[d, e] s1) { q = MatMul(e, w) t1 = Relu(q) s1 = Softmax(q) },
    else_branch = o () => (float[a, b] t2, float[d, e] s2) {
      r = ReduceSum(y)
      t2 = Add(r, e)
      one = Constant<value_ints = [1]>()
      s2 = ReduceMax(y, one)
    }
  >
  z = Neg(t)
  u = Abs(s)
}"""
TURNS = """g (int64 n, bool c, float[b, h] x, float[h, h] w, float limit) => (float[b, h] z, float[b, h] s, float[t, p, q] u) {
  e = Exp(x)
  y, s, u = Loop (n, c, e, x) <
    body = turn (int64 i, bool go, float[b, h] one, float[b, h] two) =>
      (bool more, float[b, h] next, float[b, h] sum, float[b, h] row) {
        m = MatMul(one, w)
        next = Tanh(m)
        f = Cast<to = 1>(i)
        row = Add(next, f)
        sum = Add(two, e)
        largest = ReduceMax<keepdims = 0>(sum)
        more = Less(largest, limit)
      }
  >
  z = Neg(y)
}"""
GROWTH = """g (int64 n, float[k, 2] x) => (float[a, b] y) {
  y = Loop (n, "", x) <
    body = turn (int64 i, bool go, float[a, b] s) => (bool more, float[c, d] t) {
      more = Identity(go)
      r = Neg(s)
      t = Concat<axis = 0>(s, r)
    }
  >
}"""
NESTED = """g (int64 n, float[k] x) => (float[k] y) {
  y = Loop (n, "", x) <
    body = turn (int64 i, bool go, float[k] s) => (bool more, float[k] t) {
      more = Identity(go)
      two = Constant<value = int64 {2}>()
      zero = Constant<value = int64 {0}>()
      rest = Mod(i, two)
      even = Equal(rest, zero)
      t = If (even) <
        then_branch = p () => (float[k] a) {
          a = Loop (i, "", s) <
            body = inner (int64 j, bool on, float[k] v) => (bool still, float[k] w) {
              still = Identity(on)
              q = ReduceSum(x)
              p2 = Sin(v)
              w = Add(p2, q)
            }
          >
        },
        else_branch = o () => (float[k] b) { m = ReduceMean(s) b = Sub(s, m) }
      >
    }
  >
}"""
SCAN = """g (float[b, h] x, float[p, q, r] rows, float[h, h] w) => (float[b, h] z, float[t, f, g] u) {
  e = Exp(x)
  y, u = Scan <num_scan_inputs = 1, %s
    body = turn (float[b, h] s, float[b, h] row) => (float[b, h] next, float[b, h] out) {
      m = MatMul(s, w)
      a = Add(m, row)
      next = Tanh(a)
      out = Sub(next, e)
    }>(e, rows)
  z = Neg(y)
}"""


def parse(text: str, opset: int = 20) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {text}')
    onnx.checker.check_model(model)
    return model


def agrees(model: onnx.ModelProto, *runs: Feeds, **options: Any) -> dvm_graph.Model:
    compiled, reference = dvm_graph.optimize(model, strict=True, cores=2, **options), session(model)
    for feeds in (*runs, *runs[::-1]):
        for got, want in zip(compiled.run(feeds), reference.run(None, feeds), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return compiled


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def branch_feeds(taken: bool, n: int, m: int) -> Feeds:
    return {"c": np.array(taken), "x": normal(n, m), "y": normal(m, n).T.copy(), "w": normal(m, m)}


def turn_feeds(n: int, b: int, h: int, limit: float = 1e9, begin: bool = True) -> Feeds:
    w = normal(h, h) * np.float32(0.5 / h**0.5)
    limits = np.array(limit, np.float32)
    return {"n": np.array(n), "c": np.array(begin), "x": normal(b, h), "w": w, "limit": limits}


def test_branches_of_other_operators_reads_and_shapes() -> None:
    sizes = ((3, 4), (1, 1), (17, 33))
    runs = [branch_feeds(taken, *size) for size in sizes for taken in (True, False)]
    agrees(parse(BRANCHES), *runs)


def test_turns_by_number_by_condition_and_by_both() -> None:
    agrees(
        parse(TURNS),
        *(turn_feeds(3, 3, 4), turn_feeds(0, 3, 4), turn_feeds(5, 3, 4, begin=False)),
        *(turn_feeds(-1, 3, 4), turn_feeds(50, 1, 1, limit=20), turn_feeds(500, 5, 33)),
        turn_feeds(2**62, 2, 8, limit=900),
    )


def test_what_is_carried_may_grow() -> None:
    runs = [{"n": np.array(n), "x": normal(k, 2)} for n in (0, 1, 5) for k in (1, 3)]
    agrees(parse(GROWTH), *runs)


PASSED_ON = """g (int64 n, float[b, h] x, float[b, h] y) => (float[b, h] p, float[b, h] q, float[b, h] r,
    float[t, c, d] u, float[t, e, f] v, float[t, i, j] w, float[t, k, l] one, float[t, o] sizes) {
  p, q, r, u, v, w, one, sizes = Loop (n, "", x, y, x) <
    body = turn (int64 i, bool go, float[b, h] a, float[b, h] s, float[b, h] z) =>
      (bool more, float[b, h] after, float[b, h] moved, float[b, h] kept, float[b, h] first, float[b, h] again,
       float[b, h] captured, float[m, s2] ones, float[s1] extents) {
        more = Identity(go)
        part = Constant<value = float {0.4}>()
        sine = Sin(a)
        sum = Add(sine, s)
        after = Mul(sum, part)
        moved = Identity(a)
        kept = Identity(z)
        first = Identity(after)
        again = Identity(after)
        captured = Identity(x)
        ones = Constant<value = float[1, 2] {1, 2}>()
        shape = Shape(a)
        extents = Cast<to = 1>(shape)
      }
  >
}"""


UNCHANGED = """g (int64 n, float[b, h] x, float[h, h] w, float[k] limit) => (float[b, h] y, float[i, j] z, float[l, m] v,
    float[o] last, float[p, q] u, float[t, r, s] rows) <float[1, 4] bias = {0.5, -1, 2, 0}> {
  c = Constant<value = float[4, 4] {1, 0, 2, 0, -1, 1, 0, 0, 0, 0, 3, 1, 1, 1, 1, 1}>()
  e = Exp(w)
  v, y, z, last, u, rows = Loop (n, "", c, x, e, limit, bias) <
    body = turn (int64 i, bool go, float[d1, d2] kernel, float[b, h] state, float[d3, d4] inner, float[d5] most, float[d6, d7] by) =>
      (bool more, float[d1, d2] kernel_after, float[b, h] after, float[d3, d4] inner_after, float[d5] most_after,
       float[d6, d7] by_after, float[b, 4] row) {
        kernel_after = Identity(kernel)
        once = Identity(inner)
        inner_after = Identity(once)
        most_after = Identity(most)
        by_after = Identity(by)
        m = MatMul(state, kernel)
        r = MatMul(m, inner)
        a = Add(r, by)
        after = Tanh(a)
        row = Add(after, x)
        sum = ReduceSum<keepdims = 0>(row)
        highest = ReduceMax<keepdims = 0>(most)
        more = Less(sum, highest)
      }
  >
}"""
UNCHANGED_SCAN = """g (float[t, b, 4] x, float[4, 4] w, float[b, 4] first, float[p] s) => (float[i, j] k, float[b, 4] y, float[q] l,
    float[t, d, e] rows) {
  e = Exp(w)
  k, y, l, rows = Scan <num_scan_inputs = 1, scan_output_directions = [1], body = turn (float[i, j] kernel, float[b, 4] state,
      float[q] scale, float[b, 4] one) => (float[i, j] kernel_after, float[b, 4] after, float[q] scale_after, float[d, e] row) {
    kernel_after = Identity(kernel)
    scale_after = Identity(scale)
    m = MatMul(state, kernel)
    a = Add(m, one)
    f = ReduceMean<keepdims = 0>(scale)
    g = Mul(a, f)
    after = Tanh(g)
    row = Identity(after)
  }> (e, first, s, x)
}"""


UNREAD = """g (int64 n, float[b, 4] x, float[k] p, float[4, 4] w) => (float[b, 4] y, float[t, c, d] rows) {
  one = Constant<value_floats = [1.0]>()
  two = Constant<value_floats = [2.0]>()
  a, fixed, y, o, unused, rows = Loop (n, "", one, two, x, p, w) <
    body = turn (int64 i, bool go, float placeholder, float[1] kept, float[b, 4] state, float other, float[4, 4] kernel)
        => (bool more, float mean, float[1] kept_after, float[b, 4] after, float sum, float[4, 4] kernel_after, float[c, d] row) {
      more = Identity(go)
      kept_after = Identity(kept)
      kernel_after = Identity(kernel)
      m = MatMul(state, kernel)
      after = Tanh(m)
      mean = ReduceMean(after)
      sum = ReduceSum<keepdims = 0>(after)
      row = Mul(after, kept)
    }
  >
}"""
UNREAD_SCAN = """g (float[t, b, 4] x, float[b, 4] first) => (float[b, 4] y, float[t, d, e] rows) {
  zeros = Constant<value_float = 0.0>()
  a, y, b, rows = Scan <num_scan_inputs = 1, body = turn (float last, float[b, 4] state, float[b, 4] twin, float[b, 4] one)
      => (float last_after, float[b, 4] after, float[b, 4] twin_after, float[d, e] row) {
    s = Add(state, one)
    after = Tanh(s)
    twin_after = Neg(one)
    last_after = ReduceMax<keepdims = 0>(one)
    row = Identity(after)
  }> (zeros, first, first, x)
}"""


def _states_and_inputs(model: onnx.ModelProto, op: str) -> tuple[int, int]:
    """How many states an operator's turns have, and how many values they read in all."""
    options = Options(disable_passes=frozenset({"lift_invariants"}))
    graph = compile_model(model, options).graph
    (control,) = (node for node in graph.nodes if node.attrs.get("op") == op)
    return control.attrs["turns"].states, len(control.bodies[0].inputs)


def test_states_that_no_turn_changes_are_read_from_around() -> None:
    runs = [
        {"n": np.array(n), "x": normal(b, 4), "w": normal(4, 4) * np.float32(0.3), "limit": limit}
        for n in (0, 1, 7)
        for b in (1, 3, 40)
        for limit in (normal(2) + np.float32(1e6), np.zeros(5, np.float32))
    ]
    agrees(parse(UNCHANGED), *runs)
    assert _states_and_inputs(parse(UNCHANGED), "Loop") == (
        1,
        6,
    )  # number, condition, state, x, e, limit


def test_states_that_a_scan_does_not_change() -> None:
    runs = [
        {"x": normal(t, b, 4), "w": normal(4, 4), "first": normal(b, 4), "s": normal(t)}
        for t in (1, 6)
        for b in (1, 3)
    ]
    agrees(parse(UNCHANGED_SCAN), *runs)
    assert _states_and_inputs(parse(UNCHANGED_SCAN), "Scan") == (1, 4)


def test_states_that_nobody_reads_may_be_of_other_types_than_turns_give() -> None:
    """As exporters give them to variables of a loop that are not set before it."""
    runs = [
        {"n": np.array(n), "x": normal(b, 4), "p": normal(n), "w": normal(4, 4) * np.float32(0.3)}
        for n in (1, 2, 7)
        for b in (1, 3, 40)
    ]
    agrees(parse(UNREAD), *runs)
    assert _states_and_inputs(parse(UNREAD), "Loop") == (1, 4)  # number, condition, state, w


def test_states_of_a_scan_that_nobody_reads() -> None:
    runs = [{"x": normal(t, b, 4), "first": normal(b, 4)} for t in (1, 6) for b in (1, 3)]
    agrees(parse(UNREAD_SCAN), *runs)
    assert _states_and_inputs(parse(UNREAD_SCAN), "Scan") == (1, 2)


def test_results_of_turns_that_are_not_computed_there() -> None:
    """States that trade places, are kept, collected twice, captured, constant, or sizes."""
    sizes = ((1, 1), (3, 5), (40, 33))
    runs = [
        {"n": np.array(n), "x": normal(b, h), "y": normal(h, b).T.copy()}
        for n in (0, 1, 2, 3, 500)
        for b, h in sizes
    ]
    agrees(parse(PASSED_ON), *runs)


@pytest.mark.parametrize("limit", [0.5, 30, 300, 5000])
def test_turns_until_a_condition_in_more_memory_than_there_was(limit: float) -> None:
    agrees(parse(TURNS), *(turn_feeds(2**62, b, 40, limit=limit) for b in (1, 70)))


def test_a_trap_in_a_late_turn_leaves_the_model_usable() -> None:
    text = """g (int64 n, float[k] x) => (float y, float[t] rows) {
      zero = Constant<value = float {0}>()
      y, rows = Loop (n, "", zero) <
        body = turn (int64 i, bool go, float s) => (bool more, float t, float row) {
          more = Identity(go)
          one = Gather(x, i)
          t = Add(s, one)
          row = Identity(one)
        } > }"""
    model, feeds = dvm_graph.optimize(parse(text), strict=True, cores=2), {"x": normal(100)}
    for _ in range(3):
        with pytest.raises(ExecutionError, match="100"):
            model.run(feeds | {"n": np.array(200)})
        y, rows = model.run(feeds | {"n": np.array(100)})
        np.testing.assert_array_equal(rows, feeds["x"])
        np.testing.assert_allclose(y, feeds["x"].sum(), rtol=1e-4)


def test_endless_turns_end_within_a_second() -> None:
    model, options = dvm_graph.optimize(parse(TURNS), strict=True, cores=2), dvm_graph.RunOptions()
    feeds = turn_feeds(2**62, 3, 4) | {"limit": np.array(np.inf, np.float32)}
    small = turn_feeds(20, 3, 4)
    wanted = [output.tobytes() for output in model.run(small)]
    times: list[float] = []

    def end() -> None:
        times.append(time.monotonic())
        options.terminate = True

    threading.Timer(0.2, end).start()
    with pytest.raises(dvm_graph.CancelledError):
        model.run(feeds, run_options=options)
    assert time.monotonic() - times[0] < 5  # a second on a machine that does nothing else
    assert [output.tobytes() for output in model.run(small)] == wanted


def test_kernels_of_all_turns_are_counted() -> None:
    model = dvm_graph.optimize(parse(SCAN % ""), strict=True, cores=2)
    launched = []
    for n in (1, 2, 400):
        model.run({"x": normal(3, 4), "rows": normal(n, 3, 4), "w": normal(4, 4) / 4})
        launched.append(model.statistics.kernels_launched)
    assert launched[2] - launched[0] == 399 * (launched[1] - launched[0])


def test_nested() -> None:
    agrees(
        parse(NESTED), *({"n": np.array(n), "x": normal(k) / 8} for n in (0, 1, 5) for k in (1, 7))
    )


@pytest.mark.parametrize(
    ("attributes", "axis"),
    [
        ("", 0),
        ("scan_input_axes = [1], scan_output_axes = [-1], scan_input_directions = [1],", 1),
        ("scan_input_axes = [-1], scan_output_directions = [1], scan_output_axes = [1],", 2),
    ],
)
def test_scans_along_any_axis_in_either_direction(attributes: str, axis: int) -> None:
    runs = [
        {
            "x": normal(b, h),
            "rows": np.moveaxis(normal(n, b, h), 0, axis).copy(),
            "w": normal(h, h) / h,
        }
        for n, b, h in ((3, 3, 4), (1, 1, 1), (17, 5, 33))
    ]
    agrees(parse(SCAN % attributes), *runs)


@pytest.mark.parametrize("text", [BRANCHES, TURNS, GROWTH, NESTED, SCAN % "", UNCHANGED])
def test_checked(text: str) -> None:
    dvm_graph.optimize(parse(text), check=True, strict=True)


def test_saved_with_its_bodies(tmp_path: Path) -> None:
    model = dvm_graph.optimize(parse(TURNS))
    model.save(tmp_path / "turns.dvm")
    loaded = dvm_graph.load(tmp_path / "turns.dvm")
    feeds = turn_feeds(7, 3, 5)
    for got, want in zip(loaded.run(feeds), model.run(feeds), strict=True):
        np.testing.assert_array_equal(got, want)
    assert str(loaded.report()) == str(model.report())


def test_values_on_a_simulated_part() -> None:
    feeds = turn_feeds(7, 3, 5)
    part = dvm_graph.optimize(parse(TURNS), device="ascend910b2").run(feeds)
    for got, want in zip(part, dvm_graph.optimize(parse(TURNS)).run(feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_the_report_says_what_is_in_bodies() -> None:
    report = dvm_graph.optimize(parse(BRANCHES)).report()
    assert report.vendor_operators == ()
    (control,) = (s for s in report.subgraphs if s.kind.value == "control")
    assert [body.kernels for body in control.bodies] == [1, 3]
    assert "then: " in str(report) and "else: " in str(report)
    assert report.find("MatMul:q") == [control]


def test_a_vendor_operator_in_a_branch_is_named_and_refused_by_strict() -> None:
    text = """g (bool c, float[n, n] x) => (float[n, n] y) {
      y = If (c) < then_branch = p () => (float[n, n] a) { d = Det(x) s = MatMul(x, x) a = Add(s, d) },
                   else_branch = o () => (float[n, n] b) { b = MatMul(x, x) } > }"""
    model = dvm_graph.optimize(parse(text))
    assert model.report().vendor_operators == ("Det (Det:d)",)
    for taken in (True, False):
        feeds = {"c": np.array(taken), "x": normal(3, 3)}
        want = session(parse(text)).run(None, feeds)
        np.testing.assert_allclose(model.run(feeds)[0], want[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(dvm_graph.errors.StrictError):
        dvm_graph.optimize(parse(text), strict=True)


def test_rows_of_other_shapes_are_refused_and_the_model_stays_usable() -> None:
    text = """g (int64 n, float[k] x) => (float[a] y, float[t, b] rows) {
      y, rows = Loop (n, "", x) <
        body = turn (int64 i, bool go, float[a] s) => (bool more, float[d] t, float[f] row) {
          more = Identity(go)
          t = Concat<axis = 0>(s, x)
          row = Neg(t)
        } > }"""
    model = dvm_graph.optimize(parse(text), strict=True)
    with pytest.raises(ShapeError, match="row"):
        model.run({"n": np.array(3), "x": normal(2)})
    y, rows = model.run({"n": np.array(1), "x": normal(2)})
    assert y.shape == (4,) and rows.shape == (1, 4)


def test_extents_of_around_that_only_a_loop_inside_tells() -> None:
    """The body reads nothing that has the extent `b`: it is told, before the inner loop hands on what has it."""
    text = """g (int64 n, float[b, 4] x, float[r, 4] q) => (float[l, 4] y) {
      axis = Constant<value_ints = [0]>()
      v = ReduceSum<keepdims = 1>(x, axis)
      y = Loop (n, "", q) <
        body = turn (int64 i, bool go, float[a, 4] s) => (bool on, float[c, 4] t) {
          on = Identity(go)
          shape = Shape(x)
          e = Expand(v, shape)
          z, u = Loop (i, "", e, e) <
            body = inner (int64 j, bool go2, float[b, 4] one, float[b, 4] two)
                => (bool on2, float[b, 4] one2, float[b, 4] two2) {
              on2 = Identity(go2)
              one2 = Identity(two)
              two2 = Identity(one)
            }
          >
          t = Concat<axis = 0>(s, u)
        }
      >
    }"""
    feeds = [
        {"n": np.array(n), "x": normal(b, 4), "q": normal(1, 4)} for n in (0, 3) for b in (1, 3)
    ]
    agrees(parse(text), *feeds)


def test_several_threads() -> None:
    model = dvm_graph.optimize(parse(NESTED), strict=True)
    feeds = [{"n": np.array(n), "x": normal(k) / 8} for n in (3, 6) for k in (2, 5)]
    wanted = [model.run(f)[0] for f in feeds]
    wrong: list[int] = []

    def work(index: int) -> None:
        for _ in range(20):
            if model.run(feeds[index])[0].tobytes() != wanted[index].tobytes():
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
