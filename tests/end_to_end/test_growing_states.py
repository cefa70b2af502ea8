"""States of loops that turns append to: they stay where they are, and kernels whose extents stay are not compiled anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import agrees, normal, parse

TURNS = (0, 1, 2, 3, 40, 300)


def grown(body: str) -> Any:
    """A Loop of a state `s` that grows and one, `h`, that does not."""
    return parse(f"""g (int64 n, float[b, 4] x, float[k, 4] q, float[4, 4] w) => (float[l, m] y, float[b, 4] z) {{
      y, z = Loop (n, "", q, x) <
        body = turn (int64 i, bool go, float[p, 4] s, float[b, 4] h) => (bool on, float[r, 4] t, float[b, 4] g1) {{
          on = Identity(go)
          {body}
        }}
      >
    }}""")


def feeds(n: int, b: int = 1, k: int = 1) -> dict[str, Any]:
    random = np.random.default_rng(n + b + k)
    given = {
        name: random.standard_normal((rows, 4)) for name, rows in (("x", b), ("q", k), ("w", 4))
    }
    return {"n": np.array(n), **{name: a.astype(np.float32) for name, a in given.items()}}


RUNS = [feeds(n, b, k) for n in TURNS for b, k in ((1, 1), (3, 0), (2, 5))]

BODIES = {
    "behind": "g1 = Tanh(h) t = Concat<axis = 0>(s, g1)",
    "before": "g1 = Tanh(h) t = Concat<axis = 0>(g1, s)",
    "around": "g1 = Tanh(h) t = Concat<axis = 0>(g1, s, h)",
    "twice": "g1 = Tanh(h) t = Concat<axis = 0>(s, g1, h, g1)",
    "what is computed of it": """one = Constant<value_ints = [0]>() m = ReduceMean<keepdims = 1>(s, one)
        e = Exp(s) f = ReduceMax<keepdims = 1>(e, one) c = Add(h, m) d = Add(c, f) g1 = Tanh(d)
        t = Concat<axis = 0>(s, g1)""",
    "read where it has grown": """u = Concat<axis = 0>(s, h) t = Identity(u) k = Transpose<perm = [1, 0]>(t)
        p1 = MatMul(h, k) a = Softmax(p1) r1 = MatMul(a, t) g1 = Tanh(r1)""",
    "a product": "p1 = MatMul(h, w) g1 = Tanh(p1) t = Concat<axis = 0>(s, p1)",
    "without its last": """z = Constant<value_ints = [0]>() e = Constant<value_ints = [-1]>() c = Slice(s, z, e)
        g1 = Tanh(h) t = Concat<axis = 0>(c, g1, g1)""",
    "by what it holds": "g1 = Tanh(h) t = Concat<axis = 0>(s, s)",
    "changed, too": "g1 = Tanh(h) m = Neg(s) t = Concat<axis = 0>(m, g1)",
    "not at all now and then": """z = Constant<value_float = 0.0>() r1 = ReduceMax<keepdims = 0>(h) c = Greater(r1, z)
        o = Constant<value_ints = [1]>() cc = Reshape(c, o) f = Constant<value_ints = [0]>()
        first = Constant<value_ints = [0]>() one = Slice(h, first, o) a = Compress<axis = 0>(one, cc)
        u = Neg(h) g1 = Tanh(u) t = Concat<axis = 0>(s, a)""",
}


@pytest.mark.parametrize("name", BODIES)
def test_states_that_grow(name: str) -> None:
    runs = RUNS if name != "by what it holds" else [run for run in RUNS if run["n"] < 10]
    if name in ("without its last", "what is computed of it"):
        runs = [run for run in runs if len(run["q"])]
    agrees(grown(BODIES[name]), *runs)


def test_what_is_made_of_it_on_the_way_stays() -> None:
    """A sequence holds the state of every turn, and rows tell of it, while it grows in place."""
    text = """g (int64 n, float[b, 4] x, float[k, 4] q) => (float[l, m] y, float[c, d] all, float[t, o] rows) {
      none = SequenceEmpty()
      y, z, held, rows = Loop (n, "", q, x, none) <
        body = turn (int64 i, bool go, float[p, 4] s, float[b, 4] h, seq(float[e, f]) held0)
            => (bool on, float[r, 4] t, float[b, 4] g1, seq(float[e2, f2]) held1, float[o] row) {
          on = Identity(go)
          g1 = Tanh(h)
          t = Concat<axis = 0>(s, g1)
          before = SequenceInsert(held0, s)
          held1 = SequenceInsert(before, t)
          axis = Constant<value_ints = [0]>()
          row = ReduceSum<keepdims = 0>(t, axis)
        }
      >
      all = ConcatFromSequence<axis = 0>(held)
    }"""
    agrees(
        parse(text),
        *({k: v for k, v in feeds(n, b).items() if k != "w"} for n in (1, 2, 30) for b in (1, 3)),
    )


def test_states_that_begin_as_one() -> None:
    """Both grow, each in a place of its own; the tensor that they begin with stays as it is."""
    text = """g (int64 n, float[b, 4] x, float[k, 4] q) => (float[l, m] y, float[c, d] z, float[k, 4] same) {
      e = Exp(q)
      y, z = Loop (n, "", e, e) <
        body = turn (int64 i, bool go, float[p, 4] s, float[r, 4] u) => (bool on, float[o, 4] t, float[a, 4] v) {
          on = Identity(go)
          t = Concat<axis = 0>(s, x)
          m = Neg(x)
          v = Concat<axis = 0>(u, m)
        }
      >
      same = Neg(e)
    }"""
    runs = [{k: v for k, v in feeds(n, 2, 3).items() if k != "w"} for n in TURNS]
    agrees(parse(text), *runs)


def test_loops_in_loops_grow_what_is_around() -> None:
    text = """g (int64 n, float[b, 4] x, float[k, 4] q) => (float[l, m] y) {
      three = Constant<value = int64 {3}>()
      y = Loop (n, "", q) <
        body = outer (int64 i, bool go, float[p, 4] s) => (bool on, float[r, 4] t) {
          on = Identity(go)
          t = Loop (i, "", s) <
            body = inner (int64 j, bool go2, float[a, 4] u) => (bool on2, float[c, 4] v) {
              on2 = Identity(go2)
              v = Concat<axis = 0>(u, x)
            }
          >
        }
      >
    }"""
    agrees(parse(text), *({k: v for k, v in feeds(n).items() if k != "w"} for n in (0, 1, 5, 20)))


BATCHES = """g (int64 n, float[b, c, 4] x, float[b, k, 4] q) => (float[b, l, 4] y) {
  y, z = Loop (n, "", q, x) <
    body = turn (int64 i, bool go, float[b, p, 4] s, float[b, c, 4] h) => (bool on, float[b, r, 4] t, float[b, c, 4] g1) {
      on = Identity(go)
      g1 = Tanh(h)
      e = Neg(h)
      t = Concat<axis = 1>(s, e)
    }
  >
}"""


def test_states_of_a_batch() -> None:
    """Those of one sequence lie one behind the other, which only the run tells; those of several have room each."""
    runs = [
        {"n": np.array(n), "x": normal(b, c, 4), "q": normal(b, k, 4)}
        for n in (0, 1, 2, 50)
        for b in (1, 3, 0)
        for c, k in ((1, 1), (2, 0), (0, 3))
    ]
    model = agrees(parse(BATCHES), *runs)
    counts = {}
    for b in (1, 3):
        model.run({"n": np.array(100), "x": normal(b, 1, 4), "q": normal(b, 1, 4)})
        counts[b] = model.statistics.kernels_compiled
    assert max(counts.values()) < 20


def cached(turn: str, states: str = "", more: str = "", given: str = "float[h, k, 4] q") -> Any:
    """A Loop of rows of several heads that grow, `s`, of `states` and of `h0`, which does not; and all that turns say."""
    grown = "float[h, l, 4] y" + (", float[h, a, e] y2" if states else "")
    return parse(f"""g (int64 n, float[h, c, 4] x, {given}) => ({grown}, float[h, c, 4] z, float[t, h, c, 4] rows) {{
      y{", y2" if states else ""}, z, rows = Loop (n, "", q, {"q, " if states else ""}x) <
        body = turn (int64 i, bool go, float[h, p, 4] s{", " + states if states else ""}, float[h, c, 4] h0)
            => (bool on, float[h, r, 4] t{more}, float[h, c, 4] g1, float[h, c, 4] row) {{
          on = Identity(go)
          {turn}
          row = Identity(g1)
        }}
      >
    }}""")


ATTENDS = """k = Transpose<perm = [0, 2, 1]>(t) a = MatMul(h0, k) b = Softmax(a) m = MatMul(b, t)
    w = Add(m, h0) g1 = Tanh(w)"""
SECOND = "float[h, p2, 4] s2"
HEADS = {
    "attention": cached("t = Concat<axis = 1>(s, h0)" + ATTENDS),
    "attention to what was there": cached(
        """one = Constant<value_floats = [1.0]>() e = Exp(s) axes = Constant<value_ints = [1]>()
        m = ReduceSum(e, axes) o = Add(m, one) v = Div(h0, o) g1 = Tanh(v) t = Concat<axis = 1>(s, g1)"""
    ),
    "two states": cached(
        f"t = Concat<axis = 1>(s, h0) {ATTENDS} n2 = Neg(h0) t2 = Concat<axis = 1>(s2, n2, g1)",
        SECOND,
        ", float[h, r2, 4] t2",
    ),
    "one that grows, one that changes": cached(
        f"t = Concat<axis = 1>(s, h0) {ATTENDS} n2 = Neg(s2) t2 = Concat<axis = 1>(n2, g1)",
        SECOND,
        ", float[h, r2, 4] t2",
    ),
    "all heads as one": cached(
        """t = Concat<axis = 1>(s, h0) to = Constant<value_ints = [-1, 4]>() f = Reshape(t, to)
        axes = Constant<value_ints = [0]>() m = ReduceMax(f, axes) w = Sub(h0, m) g1 = Tanh(w)"""
    ),
    "before": cached("g1 = Tanh(h0) t = Concat<axis = 1>(g1, s)"),
    "the last rows": cached(
        """g1 = Tanh(h0) u = Concat<axis = 1>(s, g1) b = Constant<value_ints = [-20]>()
        e = Constant<value_ints = [9999]>() axes = Constant<value_ints = [1]>() t = Slice(u, b, e, axes)"""
    ),
    "now and then": cached(
        """two = Constant<value = int64 {2}>() zero = Constant<value = int64 {0}>() odd = Mod(i, two)
        c = Equal(odd, zero) g1 = Tanh(h0)
        t = If (c) <
          then_branch = grow () => (float[h, r3, 4] t3) { n3 = Neg(s) t3 = Concat<axis = 1>(n3, g1) },
          else_branch = keep () => (float[h, r4, 4] t4) { t4 = Concat<axis = 1>(s, g1, g1) }
        >"""
    ),
    "read by a branch": cached(
        f"""two = Constant<value = int64 {{2}}>() zero = Constant<value = int64 {{0}}>() odd = Mod(i, two)
        c = Equal(odd, zero) t = Concat<axis = 1>(s, h0)
        g1 = If (c) <
          then_branch = attends () => (float[h, c, 4] g3) {{ {ATTENDS.replace("g1 =", "g3 =")} }},
          else_branch = not () => (float[h, c, 4] g4) {{ axes = Constant<value_ints = [1]>() m4 = ReduceMean(s, axes)
            w4 = Add(m4, h0) g4 = Tanh(w4) }}
        >"""
    ),
    "in a loop of its own": cached(
        """two = Constant<value = int64 {2}>() yes = Constant<value = int64 {1}>() go2 = Cast<to = 9>(yes)
        g1 = Tanh(h0)
        t = Loop (two, go2, s) <
          body = inner (int64 j, bool go3, float[h, p5, 4] s5) => (bool on5, float[h, r5, 4] t5) {
            on5 = Identity(go3) axes = Constant<value_ints = [1]>() m = ReduceMax(s5, axes) o = Add(m, g1)
            t5 = Concat<axis = 1>(s5, o)
          }
        >"""
    ),
}


def heads(n: int, h: int, c: int, k: int) -> dict[str, Any]:
    return {"n": np.array(n), "x": normal(h, c, 4), "q": normal(h, k, 4)}


@pytest.mark.parametrize("name", HEADS)
def test_rows_of_several_heads(name: str) -> None:
    """They grow in place beyond the room that they begin with, and are whole once the loop is over."""
    least = 1 if name in ("in a loop of its own", "read by a branch", "all heads as one") else 0
    runs = [
        heads(n, h, c, max(k, least))
        for n in (0, 1, 2, 7, 300)
        for h, c, k in ((3, 1, 0), (2, 1, 5), (1, 1, 2), (8, 2, 1))
    ]
    agrees(HEADS[name], *runs)


def test_rows_keep_what_is_computed_of_them_apart() -> None:
    """What is asked for again, of other sizes: the room that a run before had is no other's."""
    model = HEADS["two states"]
    runs = [heads(n, h, 1, k) for n in (40, 3, 40) for h in (4, 2) for k in (0, 400)]
    compiled = agrees(model, *runs)
    for n in (60, 500):  # they are compiled for some extents at a time
        compiled.run(heads(n, 4, 1, 1))
        assert compiled.statistics.kernels_compiled < 40


ANEW = {
    "by index": "t = Gather<axis = 0>(u, order)",
    "negated": "t = Neg(u)",
    "a sum along the heads": "axes0 = Constant<value_ints = [0]>() m0 = ReduceMax(u, axes0) t = Sub(u, m0)",
    "backwards": """from = Constant<value_ints = [-1]>() to = Constant<value_ints = [-99999]>() axes1 = Constant<value_ints = [1]>()
        back = Constant<value_ints = [-1]>() t = Slice(u, from, to, axes1, back)""",
    "as one row": """flat = Constant<value_ints = [-1]>() extents = Shape(u) e = Reshape(u, flat) f = Tanh(e)
        t = Reshape(f, extents)""",
    "what the host has summed": "axis1 = Constant<value = int64 {1}>() k0 = CumSum(u, axis1) c = Constant<value_float = 0.003>() t = Mul(k0, c)",
    "two at once": """t = Gather<axis = 0>(u, order) u2 = Concat<axis = 1>(s2, g1, h0) v2 = Tanh(u2)
        t2 = Gather<axis = 0>(v2, order)""",
    "scores of one for another": """t = Gather<axis = 0>(u, order) u2 = Concat<axis = 1>(s2, g1, h0) k2 = Transpose<perm = [0, 2, 1]>(u2)
        p2 = MatMul(u, k2) b2 = Softmax(p2) r2 = MatMul(b2, u2) axes1 = Constant<value_ints = [1]>() m2 = ReduceMax(r2, axes1)
        v2 = Sub(u2, m2) t2 = Tanh(v2)""",
}

MADE_EACH_TURN = {
    "backwards": 1,  # the last of its rows is elsewhere
    "what the host has summed": 3,  # the host takes tensors as any lie
    "two at once": 1,  # a kernel that stores two rows of one state
}
"""Kernels that no program of another turn does for."""


def made_anew(name: str) -> Any:
    """Rows of a state that each turn makes anew, one longer, in an order that changes."""
    two = "t2 =" in ANEW[name]
    return cached(
        f"""zero = Constant<value = int64 {{0}}>() one = Constant<value = int64 {{1}}>() many = Shape<end = 1>(s)
        count = Squeeze(many) all = Range(zero, count, one) moved = Add(all, i) least = Max(many, one) order = Mod(moved, least)
        w = Sin(h0) g1 = Add(w, w) u = Concat<axis = 1>(s, g1) {ANEW[name]}""",
        SECOND if two else "",
        ", float[h, r2, 4] t2" if two else "",
    )


@pytest.mark.parametrize("name", ANEW)
def test_rows_made_anew(name: str) -> None:
    """They lie with room behind them, and kernels are compiled for some extents at a time."""
    runs = [
        heads(n, h, c, k)
        for n in (0, 1, 2, 150)
        for h, c, k in ((3, 1, 1), (2, 1, 5), (1, 1, 2), (8, 2, 1), (4, 1, 300))
    ]
    compiled = agrees(made_anew(name), *runs)
    for n in (150, 80):
        compiled.run(heads(n, 3, 1, 1))
        each_turn = MADE_EACH_TURN.get(name, 0)
        assert compiled.statistics.kernels_compiled < 50 + each_turn * n


def test_heads_that_are_none() -> None:
    for name in ("by index", "negated"):
        agrees(made_anew(name), *(heads(n, h, 1, 1) for h in (0, 3, 0) for n in (2, 9)))


def test_rows_along_the_last_axis() -> None:
    """Elements of a row are what grows."""
    text = """g (int64 n, float[b, d, 1] x, float[b, d, k] q) => (float[b, d, m] y, float[b, d, 1] z) {
      y, z = Loop (n, "", q, x) <
        body = turn (int64 i, bool go, float[b, d, p] s, float[b, d, 1] h) => (bool on, float[b, d, r] t, float[b, d, 1] g) {
          on = Identity(go)
          t = Concat<axis = 2>(s, h)
          axes = Constant<value_ints = [2]>()
          m = ReduceMean(t, axes)
          e = Sub(h, m)
          g = Sin(e)
        }
      >
    }"""
    runs = [
        {"n": np.array(n), "x": normal(b, d, 1), "q": normal(b, d, k)}
        for n in (0, 1, 5, 200)
        for b, d, k in ((1, 1, 0), (2, 3, 0), (1, 5, 4), (3, 1, 1))
    ]
    agrees(parse(text), *runs)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("exponent", [33, 57, 59, 61, 62])
def test_growth_beyond_all_memory(exponent: int, heads: int) -> None:
    """As many rows as an empty tensor is wide; the model is good for more runs."""
    text = """g (int64 n, float[h, k, 4] q, bool[none, wide] w, float[1] one) => (float[h, l, 4] y) {
      y = Loop (n, "", q) <
        body = turn (int64 i, bool go, float[h, p, 4] s) => (bool on, float[h, r, 4] t) {
          on = Identity(go)
          rows = Shape<start = 1>(w) h0 = Shape<end = 1>(q) four = Constant<value_ints = [4]>()
          shape = Concat<axis = 0>(h0, rows, four)
          e = Expand(one, shape)
          t = Concat<axis = 1>(s, e)
        }
      >
    }"""

    def feeds(wide: int, turns: int) -> dict[str, Any]:
        one = np.ones(1, np.float32)
        none = np.zeros((0, wide), bool)
        return {"n": np.array(turns), "q": normal(heads, 3, 4), "w": none, "one": one}

    good = [feeds(wide, turns) for wide in (1, 40) for turns in (1, 5)]
    model = agrees(parse(text), *good)
    for rows in (2**exponent, int(2**exponent * 1.9)):
        with pytest.raises((dvm_graph.OutOfMemoryError, dvm_graph.ShapeError)):
            model.run(feeds(rows, 2))
        result = model.run(good[-1])[0]
        np.testing.assert_array_equal(result[:, 3:], np.ones((heads, 200, 4), np.float32))


TOKENS = """g (int64 n, float[b, 64] x, TYPE[1, k] q) => (TYPE[1, m] y, float[b, 64] z) {
  y, z = Loop (n, "", q, x) <
    body = turn (int64 i, bool go, TYPE[1, p] s, float[b, 64] h) => (bool on, TYPE[1, v] t, float[b, 64] g1) {
      on = Identity(go)
      g1 = Tanh(h)
      best = ArgMax<axis = 1>(g1)
      a = Cast<to = NUMBER>(best)
      t = Concat<axis = 1>(s, a)
    }
  >
}"""


@pytest.mark.parametrize(
    ("dtype", "number"), [("int64", 7), ("int32", 6), ("float", 1), ("float16", 10)]
)
def test_tokens(dtype: str, number: int) -> None:
    names = {"float": np.float32, "int64": np.int64, "int32": np.int32, "float16": np.float16}
    model = parse(TOKENS.replace("TYPE", dtype).replace("NUMBER", str(number)))
    runs = [
        {
            "n": np.array(n),
            "x": np.random.default_rng(n).standard_normal((1, 64)).astype(np.float32),
            "q": np.arange(k).reshape(1, k).astype(names[dtype]),
        }
        for n in TURNS
        for k in (0, 1, 3)
    ]
    compiled = agrees(model, *runs)
    if dtype == "float16":  # two of which are counted as one: where they begin is for the program
        return
    compiled.run(runs[-1])
    assert compiled.statistics.kernels_compiled < 20 < compiled.statistics.kernels_launched / 2


def test_programs_have_room_whatever_ran_before() -> None:
    """Sums over long rows are cut in pieces, for the extents there are; behind them short ones are not."""
    model = parse("""g (int64 n, float[a, f] x, float[a, f] d) => (float[c, f] y, float[t] z) {
      y, z = Loop (n, "", x) <
        body = turn (int64 i, bool go, float[k, f] h) => (bool on, float[l, f] after, float s) {
          on = Identity(go)
          e = Exp(h)
          q = Mul(e, h)
          s = ReduceSum<keepdims = 0>(q)
          after = Concat<axis = 0>(h, d)
        }
      >
    }""")

    def of_length(f: int) -> dict[str, Any]:
        return {"n": np.array(40), "x": normal(1, f), "d": normal(1, f) / 8}

    compiled, reference = dvm_graph.optimize(model, cores=1, strict=True), session(model)
    counts = []
    for f in (8, 1 << 16, 8, 8):
        for got, want in zip(
            compiled.run(of_length(f)), reference.run(None, of_length(f)), strict=True
        ):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        counts.append(compiled.statistics.kernels_compiled)
    assert counts[0] < 10 and counts[1] >= 40 and counts[2] < 10 and counts[3] == 0


def test_who_takes_a_turn_does_not_hang_on_what_ran_before() -> None:
    """One core or all: what a turn takes is predicted for rows that lie as any tensor's, not as those of the last run."""
    model = parse("""g (int64 n, float[2, m, 4] q, float[2, 1, 4] x) => (float[2, l, 4] y, float[2, 1, 4] z) {
      y, z = Loop (n, "", q, x) <
        body = turn (int64 i, bool go, float[2, p, 4] s, float[2, 1, 4] h) => (bool on, float[2, r, 4] t, float[2, 1, 4] g1) {
          on = Identity(go)
          one = Constant<value_ints = [1]>()
          t = Concat<axis = 1>(s, h)
          top = ReduceMax<keepdims = 1>(t, one)
          v = Sub(t, top)
          k = Transpose<perm = [0, 2, 1]>(v)
          p1 = MatMul(h, k)
          p2 = MatMul(p1, v)
          last = Constant<value_ints = [-1]>()
          first = Constant<value_ints = [-9999999]>()
          back = Slice(v, last, first, one, last)
          both = Mul(v, back)
          f = Tanh(both)
          rest = Constant<value_ints = [1, 2]>()
          sum = ReduceSum<keepdims = 1>(f, rest)
          g2 = Add(p2, sum)
          g1 = Tanh(g2)
        }
      >
    }""")

    def of_length(rows: int) -> dict[str, Any]:
        return {"n": np.array(1), "x": normal(2, 1, 4), "q": normal(2, rows, 4)}

    def longest_for_one(between: int) -> int:
        """What one core takes alone, where that ran before."""
        compiled, other = dvm_graph.optimize(model, cores=2, strict=True), of_length(between)
        low, high = 1, 8000
        while high - low > 1:
            middle = (low + high) // 2
            for each in (of_length(middle), other, of_length(middle)):
                compiled.run(each)
            is_alone = compiled.statistics.kernels_compiled == 0  # nobody needed all cores since
            low, high = (middle, high) if is_alone else (low, middle)
        return low

    assert longest_for_one(750_000) == longest_for_one(40_000)  # rows without room, and with some
