"""What turns of a loop compute alike is computed once, before the first of them, and not at all where there is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.errors import ExecutionError, ShapeError
from dvm_graph.ir import Graph, Node
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import agrees, normal, parse

DECODER = """g (int64 n, bool c, float[b, s, 8] m, float[b, 8] x, float[8, 8] wk, float[8, 8] wv, float[8] bias)
    => (float[b, 8] y, float[t, b, 1, s] scores) {
  y, scores = Loop (n, c, x) <
    body = turn (int64 i, bool go, float[b, 8] h) => (bool on, float[b, 8] after, float[b, 1, s] a) {
      on = Identity(go)
      k1 = MatMul(m, wk)
      k = Add(k1, bias)
      kt = Transpose<perm = [0, 2, 1]>(k)
      v1 = MatMul(m, wv)
      v = Tanh(v1)
      one = Constant<value_ints = [1]>()
      q = Unsqueeze(h, one)
      p = MatMul(q, kt)
      a = Softmax(p)
      r = MatMul(a, v)
      u = Squeeze(r, one)
      w = Add(u, bias)
      after = Add(w, h)
    }
  >
}"""


def decoder_feeds(n: int, b: int, s: int, begin: bool = True) -> dict[str, Any]:
    weights = {name: normal(8, 8) * np.float32(0.2) for name in ("wk", "wv")}
    given = {"n": np.array(n), "c": np.array(begin), "m": normal(b, s, 8), "x": normal(b, 8)}
    return {**given, **weights, "bias": normal(8)}


def turns(source: Any, **options: Any) -> tuple[Graph, Node]:
    """A graph and the one loop in it, behind all passes."""
    graph = compile_model(source, Options(**options)).graph
    (control,) = (node for node in graph.nodes if node.op == "control")
    return graph, control


def operators(graph: Graph) -> list[str]:
    return sorted(node.op for node in graph.nodes)


def looped(body: str, results: str = "float[b, 4] y", n: str = "n") -> Any:
    """A Loop of one state `h` whose body gives `after`, around `m`, `w`, `ids` and `table`."""
    number = "" if n == "n" else f"{n} = Constant<value = int64 {{{n[1:]}}}>()"
    return parse(f"""g (int64 n, float[b, 4] x, float[k, l] m, float[p, 4] w, int64[b] ids, float[q, 4] table)
        => ({results}) {{
      {number}
      y = Loop ({n}, "", x) <
        body = turn (int64 i, bool go, float[b, 4] h) => (bool on, float[b, 4] after) {{
          on = Identity(go)
          {body}
        }}
      >
    }}""")


def feeds(n: int, b: int = 3, l: int = 4, p: int = 4) -> dict[str, Any]:  # noqa: E741 - the dim's name
    ids = np.arange(b) % 2
    small = {"w": normal(p, 4), "ids": ids, "table": normal(2, 4)}
    return {"n": np.array(n), "x": normal(b, 4), "m": normal(b, l), **small}


RUNS = [feeds(n, b) for n in (0, 1, 2, 30) for b in (1, 3, 40)]


@pytest.mark.parametrize("options", [{}, {"fallbacks": "always"}, {"check": True}])
def test_a_memory_that_turns_multiply_by_weights(options: dict[str, Any]) -> None:
    runs = [
        decoder_feeds(n, b, s, begin)
        for n, begin in ((0, True), (5, False), (1, True), (2, True), (9, True))
        for b, s in ((1, 1), (3, 7), (2, 40))
    ]
    agrees(parse(DECODER), *runs, **options)


def test_the_prelude_has_what_costs_and_turns_what_fuses() -> None:
    graph, control = turns(parse(DECODER))
    body, prelude = control.bodies
    assert operators(prelude) == ["add", "matmul", "matmul", "tanh"]
    assert "add" in operators(body) and operators(body).count("matmul") == 2
    assert operators(graph) == ["control"]


def test_nothing_leaves_where_all_that_is_alike_fuses() -> None:
    """Broadcasts, and what is as cheap as to be read."""
    model = looped("a = Add(h, m) s = ReduceSum<keepdims = 0>(h) b1 = Mul(m, s) after = Sub(a, b1)")
    agrees(model, *RUNS)
    assert len(turns(model)[1].bodies) == 1


ALIKE = {
    "a reduction": "one = Constant<value_ints = [1]>() s = ReduceMax(m, one) after = Mul(h, s)",
    "a gather": "r = Gather<axis = 0>(table, ids) after = Add(h, r)",
    "a copy": "r = Concat<axis = 0>(w, table) s = MatMul(r, w) t = ReduceSum<keepdims = 0>(s) after = Mul(h, t)",
    "a function": "f = Exp(m) after = Mul(h, f)",
    "what is stored": "s = Mul(w, w) p1 = MatMul(h, s) after = Tanh(p1)",
    "a turned reshape": """flat = Constant<value_ints = [-1]>() t = Transpose<perm = [1, 0]>(w) r = Reshape(t, flat)
        zero = Constant<value_ints = [0]>() four = Constant<value_ints = [4]>() f = Slice(r, zero, four)
        after = Add(h, f)""",
    "two of a chain": "a = MatMul(m, w) b1 = Softmax(a) c = MatMul(b1, w) d = Relu(c) after = Add(h, d)",
    "a result": "after = MatMul(m, w)",
}


@pytest.mark.parametrize("name", ALIKE)
def test_what_turns_compute_alike(name: str) -> None:
    model = looped(ALIKE[name])
    agrees(model, *RUNS)
    graph, control = turns(model)
    assert len(control.bodies) == 2
    assert operators(graph) == ["control"]


@pytest.mark.parametrize("name", ALIKE)
def test_where_there_is_a_turn_for_sure_it_stands_before_the_loop(name: str) -> None:
    model = looped(ALIKE[name], n="n1000")
    agrees(model, *[feeds(0, b) for b in (1, 3)])
    graph, control = turns(model)
    assert len(control.bodies) == 1
    assert len(graph.nodes) > 1


def test_positions() -> None:
    """Functions of numbers that dims tell."""
    model = looped(
        """zero = Constant<value = int64 {0}>() step = Constant<value = int64 {1}>()
        rates = Constant<value_floats = [0.1, 0.2, 0.3, 0.4]>() axis = Constant<value_ints = [1]>()
        d = Shape(h) end = Gather(d, zero) r = Range(zero, end, step) f = Cast<to = 1>(r)
        c = Unsqueeze(f, axis) t = Mul(c, rates) s = Sin(t) after = Add(h, s)"""
    )
    agrees(model, *RUNS)
    assert operators(turns(model)[1].bodies[1]) == ["cast", "iota", "mul", "reshape", "sin"]


def test_functions_that_no_memory_is_as_large_as_stay() -> None:
    """Of rows and columns, whose number is that of what turns read times itself; a kernel sums them up as they come."""
    text = """g (int64 n, float[k, 1] x, float[1, k] y, float[1, k] s) => (float[1, k] z) {
      z = Loop (n, "", s) <
        body = turn (int64 i, bool go, float[1, k] h) => (bool on, float[1, k] after) {
          on = Identity(go)
          d = Sub(x, y)
          q = Mul(d, d)
          m = Neg(q)
          e = Exp(m)
          p1 = Mul(e, h)
          axis = Constant<value_ints = [1]>()
          r = ReduceMean<keepdims = 1>(p1, axis)
          after = Transpose<perm = [1, 0]>(r)
        }
      >
    }"""
    runs = [
        {"n": np.array(n), "x": normal(k, 1), "y": normal(1, k), "s": normal(1, k) + 1}
        for n in (0, 1, 3)
        for k in (1, 7, 100)
    ]
    agrees(parse(text), *runs)
    (body,) = turns(parse(text))[1].bodies
    assert "exp" in operators(body)
    known = re.sub(r"\bk\b", "20", text)
    runs = [{**run, "x": normal(20, 1), "y": normal(1, 20), "s": normal(1, 20)} for run in runs]
    agrees(parse(known), *runs)
    assert "exp" not in operators(turns(parse(known))[1].bodies[0])


def test_no_turn_refuses_nothing() -> None:
    """Neither an index out of range nor extents that do not fit; a turn refuses either."""
    gather, product = looped(ALIKE["a gather"]), looped(ALIKE["what is stored"])
    bad = {**feeds(0), "ids": np.full(3, 7)}
    model = agrees(gather, bad, feeds(2))
    with pytest.raises(ExecutionError, match="7"):
        model.run({**bad, "n": np.array(1)})
    agrees(gather, feeds(2))
    model = agrees(product, feeds(2))
    other = feeds(0, p=9)
    np.testing.assert_array_equal(model.run(other)[0], other["x"])
    with pytest.raises(ShapeError):
        model.run({**other, "n": np.array(1)})


def test_no_turn_computes_nothing() -> None:
    model = dvm_graph.optimize(parse(DECODER))
    model.run(decoder_feeds(0, 2, 3))
    assert model.statistics.kernels_launched == 0
    model.run(decoder_feeds(1, 2, 3))
    first = model.statistics.kernels_launched
    model.run(decoder_feeds(4, 2, 3))
    assert 0 < model.statistics.kernels_launched < 4 * first


NESTED = """g (int64 n, int64 k, float[b, 4] x, float[4, 4] w, float[4, 4] v) => (float[b, 4] y) {
  y = Loop (n, "", x) <
    body = outer (int64 i, bool go, float[b, 4] h) => (bool on, float[b, 4] after) {
      on = Identity(go)
      after = Loop (NUMBER, "", h) <
        body = inner (int64 j, bool go2, float[b, 4] g1) => (bool on2, float[b, 4] next) {
          on2 = Identity(go2)
          p = MatMul(w, v)
          q = MatMul(h, p)
          r = Tanh(q)
          next = Add(g1, r)
        }
      >
    }
  >
}"""


@pytest.mark.parametrize(
    ("number", "outer", "inner"),
    [
        # What the inner turns compute alike waits for one of them, but where there is one for sure.
        ("k", [], ["matmul", "matmul", "tanh"]),
        ("n1000", ["matmul"], []),
    ],
)
def test_loops_in_loops(number: str, outer: list[str], inner: list[str]) -> None:
    text = NESTED.replace("NUMBER", number)
    constant = "n1000 = Constant<value = int64 {1000}>()"
    text = text.replace("  y = Loop", f"  {constant}\n  y = Loop")
    model = parse(text)
    runs = [
        {
            "n": np.array(n),
            "k": np.array(k),
            "x": normal(b, 4),
            "w": normal(4, 4),
            "v": normal(4, 4),
        }
        for n, k in ((0, 3), (3, 0), (1, 1), (2, 3))
        for b in (1, 3)
    ]
    agrees(model, *runs)
    control = turns(model)[1]
    found = [operators(prelude) for prelude in control.bodies[1:]]
    assert found == ([outer] if outer else [])
    (within,) = (node for node in control.bodies[0].nodes if node.op == "control")
    assert [operators(prelude) for prelude in within.bodies[1:]] == ([inner] if inner else [])


def test_branches_keep_what_they_may_not_run() -> None:
    model = looped(
        """s = ReduceSum<keepdims = 0>(h) z = Constant<value_float = 0.0>() c = Less(s, z)
        after = If (c) <
          then_branch = p () => (float[b, 4] a) { k1 = MatMul(m, w) a = Add(h, k1) },
          else_branch = o () => (float[b, 4] d) { d = Neg(h) }
        >"""
    )
    agrees(model, *RUNS)
    assert len(turns(model)[1].bodies) == 1


SCAN = """g (float[t, b, 4] x, float[b, 4] first, float[k, 4] m, float[4, 4] w) => (float[b, 4] y, float[t, b, 4] rows) {
  y, rows = Scan <num_scan_inputs = 1, body = turn (float[b, 4] h, float[b, 4] one) => (float[b, 4] after, float[b, 4] row) {
    k1 = MatMul(m, w)
    zero = Constant<value_ints = [0]>()
    s = ReduceMax<keepdims = 0>(k1, zero)
    a = Add(one, s)
    p = MatMul(h, w)
    b1 = Add(a, p)
    after = Tanh(b1)
    row = Mul(after, s)
  }> (first, x)
}"""


def test_scans() -> None:
    """Their turns behind the first go on in one launch as before."""
    runs = [
        {"x": normal(t, b, 4), "first": normal(b, 4), "m": normal(6, 4), "w": normal(4, 4)}
        for t in (1, 2, 50)
        for b in (1, 3, 40)
    ]
    agrees(parse(SCAN), *runs)
    assert len(turns(parse(SCAN))[1].bodies) == 2
    fixed = parse(SCAN.replace("float[t, b, 4] x", "float[50, b, 4] x"))
    agrees(fixed, *(run for run in runs if len(run["x"]) == 50))
    assert len(turns(fixed)[1].bodies) == 1


def test_a_saved_model_keeps_its_prelude(tmp_path: Path) -> None:
    model = dvm_graph.optimize(parse(DECODER))
    model.save(tmp_path / "decoder.dvm")
    again = dvm_graph.load(tmp_path / "decoder.dvm")
    for run in (decoder_feeds(0, 2, 3), decoder_feeds(6, 2, 3)):
        for got, want in zip(again.run(run), session(parse(DECODER)).run(None, run), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    run = decoder_feeds(6, 2, 3)
    assert model.disassemble(run) == again.disassemble(run)


def test_reports_and_profiles_name_it() -> None:
    model = dvm_graph.optimize(parse(DECODER))
    assert "prelude: " in str(model.report())
    run = decoder_feeds(5, 2, 3)
    times = {kernel.name: kernel for kernel in model.profile(run).kernels}
    assert any(" body 1/" in name for name in times)


def test_constants_are_named_in_the_graph_that_they_come_to() -> None:
    """Of two unlike ones, which have the same name in the body and behind the loop."""
    model = parse("""g (float[b, 4] x, float[5, b, 4] rows, float[p, 4] w) => (float[b, 4] y, float[5, p, 4] z) {
      begin, z = Scan <num_scan_inputs = 1, body = turn (float[b, 4] h, float[b, 4] row)
          => (float[b, 4] after, float[p, 4] a) {
        after = Add(h, row)
        a = Gelu(w)
      }>(x, rows)
      y = Elu<alpha = 0.5>(begin)
    }""")
    runs = [{"x": normal(b, 4), "rows": normal(5, b, 4), "w": normal(3, 4)} for b in (1, 2)]
    agrees(model, *runs)


def test_what_the_body_assumes_of_extents_holds_where_its_operators_go() -> None:
    """That a bias has 24 numbers, where nobody says so of the input; a loop without turns does not mind."""
    weights = {"w": normal(1, 12, 4), "r": normal(1, 12, 3)}
    model = parse("""g (int64 n, float[t, b, 4] x, float[1, p] bias, float[1, 12, 4] w, float[1, 12, 3] r, float s)
        => (float[1, b, 3] y, float z) {
      axes = Constant<value_ints = [0]>()
      z, all = Loop(n, "", s) <body = turn (int64 i, bool go, float a) => (bool on, float c, float[1, b, 3] last) {
        on = Identity(go)
        y, last, cell = LSTM<hidden_size = 3>(x, w, r, bias)
        c = Add(a, s)
      }>
      y = ReduceSum<keepdims = 0>(all, axes)
    }""")
    feeds = [
        {"n": np.array(n), "x": normal(5, b, 4), "bias": normal(1, 24), "s": normal(), **weights}
        for n, b in ((2, 3), (1, 1), (3, 2))
    ]
    agrees(model, *feeds)
    compiled = dvm_graph.optimize(model, strict=True)
    wrong = {**feeds[0], "bias": normal(1, 23)}
    with pytest.raises(ShapeError, match="24"):
        compiled.run(wrong)
    compiled.run({**wrong, "n": np.array(0)})
