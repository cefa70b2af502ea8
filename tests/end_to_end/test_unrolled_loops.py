"""A `Loop` of a few turns, whose turns fuse with each other and with what is around."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.test_control_flow import agrees, normal, parse


def turns(number: int, more: str = "Identity(go)", step: str = "Tanh(m)") -> str:
    return f"""g (float[b, h] x, float[b, h] e) => (float[b, h] z, float[t, b, h] u) <int64 n = {{{number}}}> {{
      e1 = Exp(e)
      y, u = Loop (n, "", x) <
        body = turn (int64 i, bool go, float[b, h] one) => (bool more, float[b, h] next, float[b, h] row) {{
          f = Cast<to = 1>(i)
          m = Mul(one, f)
          next = {step}
          row = Add(next, e1)
          limit = Constant<value_int = 3>()
          more = {more}
        }}
      >
      z = Neg(y)
    }}"""


RUNS = [{"x": normal(n, m), "e": normal(m, n).T.copy()} for n, m in ((3, 4), (1, 1), (17, 33))]


@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("more", ["Identity(go)", "Less(i, limit)"])
def test_turns_are_one_kernel(number: int, more: str) -> None:
    model = agrees(parse(turns(number, more)), *RUNS, check=True)
    assert model.report().kernels == 1
    model.run(RUNS[0])
    assert model.statistics.kernels_launched == 1


def test_none_is_none() -> None:
    agrees(parse(turns(0)), *RUNS)


def test_more_operators_than_a_kernel_has_stay_a_loop() -> None:
    parsed = parse(turns(60))
    assert controls(dvm_graph.optimize(parsed)) == 1
    few = parse(turns(4))
    assert controls(dvm_graph.optimize(few)) == 0
    limits = dvm_graph.FusionLimits(max_operators=10)
    assert controls(agrees(few, *RUNS, limits=limits)) == 1
    agrees(parsed, *RUNS)


def test_a_condition_that_only_a_run_tells_stays_a_loop() -> None:
    text = turns(3).replace(
        "more = Identity(go)",
        "most = ReduceMax<keepdims = 0>(next) half = Constant<value_float = 0.5>() more = Less(most, half)",
    )
    assert controls(agrees(parse(text), *RUNS)) == 1


def test_what_is_carried_may_grow() -> None:
    text = """g (float[k, 2] x) => (float[a, b] y) <int64 n = {3}> {
      y = Loop (n, "", x) <
        body = turn (int64 i, bool go, float[a, b] s) => (bool more, float[c, d] t) {
          more = Identity(go)
          r = Neg(s)
          t = Concat<axis = 0>(s, r)
        }
      >
    }"""
    assert controls(agrees(parse(text), {"x": normal(3, 2)}, {"x": normal(1, 2)}, check=True)) == 0


def test_states_that_change_places_and_loops_inside_loops() -> None:
    text = """g (float[k] x, float[k] w) => (float[k] y, float[k] v) <int64 n = {3}, int64 two = {2}> {
      y, v = Loop (n, "", x, w) <
        body = turn (int64 i, bool go, float[k] s, float[k] t) => (bool more, float[k] t1, float[k] s1) {
          more = Identity(go)
          s1 = Loop (two, "", s) <
            body = inner (int64 j, bool on, float[k] a) => (bool again, float[k] a1) {
              again = Identity(on)
              q = Add(i, j)
              f = Cast<to = 1>(q)
              p = Mul(a, f)
              a1 = Sin(p)
            }
          >
          t1 = Identity(t)
        }
      >
    }"""
    runs = [{"x": normal(k), "w": normal(k + 1)[:k]} for k in (1, 7)]
    assert controls(agrees(parse(text), *runs, check=True)) == 0


def test_a_branch_in_each_turn() -> None:
    text = """g (bool c, float[n, m] x, float[m, m] w) => (float[n, m] y) <int64 t = {3}> {
      y = Loop (t, "", x) <
        body = turn (int64 i, bool go, float[n, m] s) => (bool more, float[n, m] r) {
          more = Identity(go)
          h = Tanh(s)
          r = If (c) <
            then_branch = p () => (float[n, m] a) { a = MatMul(h, w) },
            else_branch = o () => (float[n, m] b) { b = Softmax(h) }
          >
        }
      >
    }"""
    runs = [{"c": np.array(c), "x": normal(3, 4), "w": normal(4, 4)} for c in (True, False)]
    agrees(parse(text), *runs, check=True)


def controls(model: dvm_graph.Model) -> int:
    return sum(s.kind.value == "control" for s in model.report().subgraphs)
