"""Loops that are given states of other ranks than their turns carry, against onnxruntime."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.errors import UnsupportedError
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import parse

LOOP = """g (float[b, h] x, int64 m, bool c, float limit) => (float[k, n] y, float[k2, n2] z {outputs}) {{
  none = Constant<value = float {{0.5}}>()
  one = Constant<value_floats = [1.0]>()
  true = Constant<value = bool {{1}}>()
  false = Constant<value = bool {{0}}>()
  never = Constant<value = int64 {{0}}>()
  once = Constant<value_ints = [1]>()
  often = Constant<value = int64 {{6}}>()
  a, e, w3 {results} = Loop ({turns}, {goes_on}, none, one, x) <
    body = turn (int64 i, bool go, float v, float u, float[b, h] w) => (bool more, float v2, float u2, float[b, h] w2 {made}) {{
      {body}
      top = ReduceMax<keepdims = 0>(w2)
      more = Less(top, limit)
    }}
  >
  y = Add(a, w3)
  z = Mul(e, w3)
}}"""
BODIES = {
    "nobody reads them": "w2 = Add(w, w) v2 = Sin(w2) u2 = Neg(w)",
    "turns read them": "v2 = Add(v, w) u2 = Mul(u, v2) w2 = Add(w, u2)",
    "the number of the turn": "f = Cast<to = 1>(i) v2 = Add(w, f) u2 = Add(u, f) w2 = Add(v2, w)",
    "one of a turn before": "v2 = Identity(w) u2 = Identity(v2) w2 = Add(w, w)",
    "a branch by what is read": """big = ReduceMax<keepdims = 0>(v) q = Greater(big, limit)
      v2 = If (q) < then_branch = p () => (float[b, h] s) { s = Neg(w) },
                    else_branch = o () => (float[b, h] t) { t = Add(w, v) } >
      u2 = Identity(u) w2 = Add(w, w)""",
    "a loop inside": """two = Constant<value = int64 {2}>()
      n = Loop (two, "", u) < body = inner (int64 j, bool g, float r) => (bool gg, float r2) {
        gg = Identity(g) r2 = Add(r, w) } >
      v2 = Sin(n) u2 = Identity(n) w2 = Add(w, w)""",
}
TURNS = ("often", "once", "never", "m", '""')
GOES_ON = ("true", "false", "c", '""')


def loop(body: str, *, turns: str = "often", goes_on: str = "true", collects: bool = False) -> str:
    """`collects`: the body's `row`, as the last result."""
    return LOOP.format(
        outputs=", float[r, b, h] all" if collects else "",
        results=", all" if collects else "",
        made=", float[b, h] row" if collects else "",
        turns=turns,
        goes_on=goes_on,
        body=body,
    )


def check(text: str, opset: int = 17) -> dvm_graph.Model:
    model, reference = dvm_graph.optimize(parse(text, opset)), session(parse(text, opset))
    generator = np.random.default_rng(1)
    rows = ((2, 3), (1, 1), (1, 4))
    for shape, m, c, limit in itertools.product(rows, (0, 1, 4), (True, False), (0.0, 3.0)):
        feeds: dict[str, Any] = {
            "x": np.abs(generator.standard_normal(shape)).astype(np.float32),
            "m": np.int64(m),
            "c": np.bool_(c),
            "limit": np.float32(limit),
        }
        fed = {name: np.asarray(value) for name, value in feeds.items()}
        wanted = reference.run(None, {i.name: fed[i.name] for i in reference.get_inputs()})
        for got, want in zip(model.run(fed), wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return model


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("turns", TURNS)
@pytest.mark.parametrize("goes_on", GOES_ON)
def test_states_that_the_first_turn_gives_their_rank(body: str, turns: str, goes_on: str) -> None:
    model = check(loop(BODIES[body], turns=turns, goes_on=goes_on))
    assert model.report().vendor_operators == ()


def test_numbers_of_turns_with_an_axis() -> None:
    body = (
        "two = Concat<axis = 0>(i, i) f = Cast<to = 1>(two) s = ReduceSum<keepdims = 0>(f) "
        "v2 = Add(w, s) u2 = Identity(u) w2 = Add(w, w)"
    )
    text = loop(body, goes_on="c").replace("int64 i,", "int64[1] i,")
    assert check(text).report().vendor_operators == ()


def test_loops_that_collect_rows_are_for_the_vendor_library() -> None:
    text = loop(BODIES["turns read them"] + " row = Sin(v2)", collects=True)
    assert any(name.startswith("Loop") for name in check(text).report().vendor_operators)


def test_a_rank_that_grows_with_every_turn_is_for_the_vendor_library() -> None:
    body = "zero = Constant<value_ints = [0]>() v2 = Unsqueeze(v, zero) u2 = Identity(u) w2 = Add(w, w)"
    model = check(loop(body))
    assert any(name.startswith("Loop") for name in model.report().vendor_operators)


def test_a_body_with_fewer_results_than_states_is_refused_by_onnxruntime() -> None:
    text = """g (float[b, h] x, int64 m) => (float[p, q] y) {
      none = Constant<value = float {0.5}>()
      a, y = Loop (m, "", none, x) < body = turn (int64 i, bool go, float v, float w) => (bool more, float v2) {
        more = Identity(go) v2 = Add(v, v) } >
    }"""
    with pytest.raises(UnsupportedError, match="onnxruntime refuses Loop"):
        dvm_graph.optimize(parse(text, 17))
