"""States of loops that the host scatters into: only the rows that change are written, where nobody reads the state again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.test_control_flow import agrees, normal, parse

PLACE = (
    "one = Constant<value_ints = [1]>() four = Constant<value_ints = [1, 4]>() at = Reshape(i, one)"
)
ROW = f"{PLACE} w = Sin(h) v = Reshape(w, four) shape = Shape(v) e = Expand(at, shape)"
SCATTER = "ScatterElements<axis = 0>"


def scattered(turn: str, more: str = "float[m, 4] s2", made: str = "float[m, 4] u") -> Any:
    """A Loop of a state `s` of m rows, another one and `h`; `q` is what both states begin as."""
    return parse(f"""g (int64 n, float[4] x, float[m, 4] q) => (float[m, 4] y, float[m, 4] y2, float[4] z, float[t, k] rows) {{
      y, y2, z, rows = Loop (n, "", q, q, x) <
        body = turn (int64 i, bool go, float[m, 4] s, {more}, float[4] h)
            => (bool on, float[m, 4] t, {made}, float[4] g, float[k] row) {{
          on = Identity(go)
          {turn}
        }}
      >
    }}""")


BODIES = {
    "a row of each": f"""{ROW} t = {SCATTER}(s, e, v) minus = Neg(v) u = {SCATTER}(s2, e, minus) axes = Constant<value_ints = [0]>()
        m1 = ReduceMean(t, axes) g = Squeeze(m1, axes) row = ReduceMax<keepdims = 0>(u, axes)""",
    "what was there is read behind": f"""{ROW} t = {SCATTER}(s, e, v) u = {SCATTER}(s2, e, v) d = Sub(t, s) axes = Constant<value_ints = [0]>()
        row = ReduceSum<keepdims = 0>(d, axes) g = Add(h, row)""",
    "what was there is the other state": f"""{ROW} t = {SCATTER}(s, e, v) u = Identity(s) axes = Constant<value_ints = [0]>()
        row = ReduceSum<keepdims = 0>(u, axes) g = Tanh(h)""",
    "states change places": f"""{ROW} u = {SCATTER}(s, e, v) t = Identity(s2) axes = Constant<value_ints = [0]>()
        row = ReduceSum<keepdims = 0>(u, axes) g = Tanh(h)""",
    "both are one": f"""{ROW} t = {SCATTER}(s, e, v) u = Identity(t) axes = Constant<value_ints = [0]>()
        row = ReduceSum<keepdims = 0>(s2, axes) g = Tanh(h)""",
    "twice": f"""{ROW} a = {SCATTER}(s, e, v) n1 = Neg(e) two = Neg(v) t = {SCATTER}(a, n1, two) u = {SCATTER}(s2, n1, v)
        axes = Constant<value_ints = [0]>() row = ReduceSum<keepdims = 0>(t, axes) g = Tanh(h)""",
    "on the way, read again": f"""{ROW} a = {SCATTER}(s, e, v) n1 = Neg(e) two = Neg(v) t = {SCATTER}(a, n1, two) u = Add(a, t)
        axes = Constant<value_ints = [0]>() row = ReduceSum<keepdims = 0>(u, axes) g = Tanh(h)""",
    "by what it holds": f"""{ROW} z = Constant<value_ints = [0]>() first = Slice(s, z, one) o = Mul(e, z) t = {SCATTER}<reduction = "add">(s, o, first)
        u = {SCATTER}(s2, e, v) row = ReduceSum<keepdims = 0>(t, z) g = Tanh(h)""".replace(
        "<axis = 0><", "<axis = 0, "
    ),
    "a result, too": f"""{ROW} u = {SCATTER}(s2, e, v) n1 = Neg(e) t = {SCATTER}(u, n1, v) axes = Constant<value_ints = [0]>()
        row = ReduceSum<keepdims = 0>(t, axes) g = Tanh(h)""",
    "by itself": f"""{ROW} z = Constant<value_ints = [0]>() back = Constant<value_ints = [3, 2, 1, 0]>() extents = Shape(s)
        places = Expand(back, extents) t = ScatterElements<axis = 1>(s, places, s) u = {SCATTER}(s2, e, v) row = ReduceSum<keepdims = 0>(t, z) g = Tanh(h)""",
    "slices": f"""{ROW} t = ScatterND(s, four0, v) u = ScatterND<reduction = "mul">(s2, four0, v) axes = Constant<value_ints = [0]>()
        row = ReduceSum<keepdims = 0>(u, axes) g = Tanh(h)""".replace(
        " v = ", " pair = Constant<value_ints = [1, 1]>() four0 = Reshape(i, pair) v = "
    ),
    "kept in a sequence": f"""{ROW} a = {SCATTER}(s, e, v) kept = SequenceConstruct(a, s2) t = {SCATTER}(a, e, w2) axes = Constant<value_ints = [0]>()
        two = Constant<value = int64 {{2}}>() odd = Mod(i, two) u = SequenceAt(kept, odd) row = ReduceSum<keepdims = 0>(u, axes) g = Tanh(h)""".replace(
        " v = ", " w1 = Cos(h) w2 = Reshape(w1, four) v = "
    ),
    "now and then": f"""{ROW} two = Constant<value = int64 {{2}}>() zero = Constant<value = int64 {{0}}>() odd = Mod(i, two) c = Equal(odd, zero)
        t = If (c) <
          then_branch = writes () => (float[m, 4] t1) {{ t1 = {SCATTER}(s, e, v) }},
          else_branch = keeps () => (float[m, 4] t2) {{ t2 = Identity(s) }}
        > u = {SCATTER}(s2, e, v) axes = Constant<value_ints = [0]>() row = ReduceSum<keepdims = 0>(t, axes) g = Tanh(h)""",
    "in a loop of its own": f"""{ROW} two = Constant<value = int64 {{2}}>() yes = Constant<value_ints = [1]>() b1 = Cast<to = 9>(yes) go2 = Squeeze(b1)
        t = Loop (two, go2, s) <
          body = inner (int64 j, bool go3, float[m, 4] s5) => (bool on5, float[m, 4] t5) {{
            on5 = Identity(go3) t5 = ScatterElements<axis = 0, reduction = "add">(s5, e, v)
          }}
        > u = {SCATTER}(s, e, v) axes = Constant<value_ints = [0]>() row = ReduceSum<keepdims = 0>(t, axes) g = Tanh(h)""",
}


def feeds(n: int, rows: int) -> dict[str, Any]:
    return {"n": np.array(n), "x": normal(4), "q": normal(rows, 4)}


@pytest.mark.parametrize("name", BODIES)
def test_states_that_are_scattered_into(name: str) -> None:
    """Behind as many turns, the caller's arrays among what they begin as, are what they were."""
    runs = [feeds(n, rows) for n, rows in ((0, 1), (1, 1), (2, 5), (7, 7), (40, 64), (64, 64))]
    before = [run["q"].copy() for run in runs]
    agrees(scattered(BODIES[name]), *runs)
    for run, q in zip(runs, before, strict=True):
        np.testing.assert_array_equal(run["q"], q)


def test_a_row_that_is_not_there_leaves_the_next_run_alone() -> None:
    compiled = agrees(scattered(BODIES["a row of each"]), feeds(5, 9))
    with pytest.raises(dvm_graph.DvmError, match="lies outside"):
        compiled.run(feeds(10, 9))
    agrees(scattered(BODIES["a row of each"]), feeds(9, 9))
    want = dvm_graph.optimize(scattered(BODIES["a row of each"])).run(feeds(5, 9))
    for got, expected in zip(compiled.run(feeds(5, 9)), want, strict=True):
        np.testing.assert_array_equal(got, expected)
