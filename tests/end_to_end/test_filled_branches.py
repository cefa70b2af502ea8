"""An `If` with its neighbours: operators before it, in the branch that is taken and behind it as one kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import agrees, normal, parse

LONG = " ".join(f"s{i} = Sin({f's{i - 1}' if i else 'h'})" for i in range(20))
BRANCHES: Mapping[str, tuple[str, str]] = {
    "product and reduction": (
        "a = MatMul(h, w)",
        """axes = Constant<value_ints = [1]>() total = ReduceSum<keepdims = 1>(h, axes)
           b = Div(h, total)""",
    ),
    "many operators": (f"{LONG} a = Neg(s19)", f"{LONG} t = Cos(s19) b = Add(t, y)"),
    "other values": ("a = MatMul(h, w)", "q = Mul(y, y) r = Exp(q) b = MatMul(r, v)"),
}


def between(then: str, other: str, behind: str = "q = Add(r, y) z = Relu(q)") -> onnx.ModelProto:
    """Branches between element-wise operators."""
    return parse(f"""g (bool c, float[n, m] x, float[n, m] y, float[m, m] w, float[m, m] v) => (float[n, m] z) {{
      g1 = Mul(x, x)
      h = Tanh(g1)
      r = If (c) <
        then_branch = p () => (float[n, m] a) {{ {then} }},
        else_branch = o () => (float[n, m] b) {{ {other} }}
      >
      {behind}
    }}""")


def feeds(taken: bool, n: int, m: int) -> dict[str, Any]:
    arrays = {name: normal(n + i, m)[:n] for i, name in enumerate("xy")}
    weights = {name: normal(m, m + i)[:, :m] / np.float32(m**0.5) for i, name in enumerate("wv")}
    return {"c": np.array(taken), **arrays, **weights}


RUNS = [feeds(taken, n, m) for n, m in ((3, 5), (1, 1), (40, 64)) for taken in (True, False)]


def bodies(model: dvm_graph.Model) -> list[Any]:
    (control,) = (s for s in model.report().subgraphs if s.kind.value == "control")
    return list(control.bodies)


@pytest.mark.parametrize("name", BRANCHES)
def test_one_kernel_in_either_branch(name: str) -> None:
    model = agrees(between(*BRANCHES[name]), *RUNS, check=True)
    assert model.report().kernels == 0
    assert [body.kernels for body in bodies(model)] == [1, 1]
    for run in RUNS:
        model.run(run)
        assert model.statistics.kernels_launched == 1
    listings = [listing.name for listing in model.listings({"n": 40, "m": 64})]
    assert [name.split("/")[0] for name in listings] == ["If (If:r) body 0", "If (If:r) body 1"]


@pytest.mark.parametrize("name", BRANCHES)
def test_without_the_pass(name: str) -> None:
    model = agrees(between(*BRANCHES[name]), *RUNS, disable_passes={"fill_branches"})
    assert model.report().kernels == 2


def test_nodes_are_found_where_they_went() -> None:
    model = dvm_graph.optimize(between(*BRANCHES["product and reduction"]))
    operators = [{name for s in body.subgraphs for name in s.onnx_nodes} for body in bodies(model)]
    for found in operators:
        assert {"Mul:g1", "Tanh:h", "Add:q", "Relu:z"} <= found


def test_results_in_the_middle_that_are_outputs_or_read_elsewhere() -> None:
    text = """g (bool c, float[n, m] x, float[m, m] w) => (float[n, m] h, float[n, m] r, float[n, m] z, float u) {
      h = Tanh(x)
      k = Exp(h)
      r, s = If (c) <
        then_branch = p () => (float[n, m] a, float[n, m] a2) { a = MatMul(k, w) a2 = Neg(a) },
        else_branch = o () => (float[n, m] b, float[n, m] b2) { b = Softmax(k) b2 = Identity(h) }
      >
      q = Add(r, s)
      z = Mul(q, h)
      u = ReduceMax<keepdims = 0>(s)
    }"""
    runs = [
        {"c": np.array(taken), "x": normal(n, m), "w": normal(m, m)}
        for n, m in ((3, 4), (1, 1))
        for taken in (True, False)
    ]
    agrees(parse(text), *runs, check=True)


def test_nested_branches() -> None:
    text = """g (bool c, bool d, float[n, m] x, float[m, m] w) => (float[n, m] z) {
      h = Tanh(x)
      r = If (c) <
        then_branch = p () => (float[n, m] a) {
          k = Exp(h)
          t = If (d) <
            then_branch = p2 () => (float[n, m] a2) { a2 = MatMul(k, w) },
            else_branch = o2 () => (float[n, m] b2) { b2 = Softmax(k) }
          >
          a = Neg(t)
        },
        else_branch = o () => (float[n, m] b) { b = MatMul(h, w) }
      >
      z = Relu(r)
    }"""
    runs = [
        {"c": np.array(c), "d": np.array(d), "x": normal(3, 4), "w": normal(4, 4)}
        for c in (True, False)
        for d in (True, False)
    ]
    model = agrees(parse(text), *runs, check=True)
    for run in runs:
        model.run(run)
        assert model.statistics.kernels_launched == 1


def test_branches_of_other_shapes() -> None:
    text = """g (bool c, float[n, m] x, float[m, k] w, float[k] y) => (float[n, i] z, float[a, b] t, int64[2] s) {
      h = Tanh(x)
      r = If (c) <
        then_branch = p () => (float[n, i] a1) { a1 = MatMul(h, w) },
        else_branch = o () => (float[n, j] b1) {
          axes = Constant<value_ints = [1]>() b1 = ReduceSum<keepdims = 1>(h, axes)
        }
      >
      z = Add(r, y)
      s = Shape(r)
      t = Reshape(z, s2)
    }"""
    text = text.replace("t = Reshape(z, s2)", "e = Expand(y, s) t = Mul(e, r)")
    runs = [
        {"c": np.array(c), "x": normal(n, m), "w": normal(m, k), "y": normal(k)}
        for c in (True, False)
        for n, m, k in ((3, 4, 1), (1, 1, 1))
    ]
    agrees(parse(text), *runs, check=True)


def test_a_condition_that_hangs_on_what_goes_into_branches() -> None:
    text = """g (float[n, m] x, float[m, m] w) => (float[n, m] z) {
      h = Tanh(x)
      k = Exp(h)
      least = ReduceMin<keepdims = 0>(h)
      zero = Constant<value_float = 0.0>()
      c = Less(least, zero)
      r = If (c) <
        then_branch = p () => (float[n, m] a) { a = MatMul(k, w) },
        else_branch = o () => (float[n, m] b) { b = Softmax(k) }
      >
      z = Mul(r, h)
    }"""
    x = normal(3, 4)
    agrees(parse(text), *({"x": f(x), "w": normal(4, 4)} for f in (np.abs, np.negative)))


def test_traps_stay_where_they_end_every_run() -> None:
    """An index out of range ends a run whichever branch is taken."""
    text = """g (bool c, float[n, m] x, int64[n] i, float[m, m] w) => (float[n, m] z) {
      h = Gather(x, i)
      r = If (c) <
        then_branch = p () => (float[n, m] a) { a = MatMul(h, w) },
        else_branch = o () => (float[n, m] b) { b = Softmax(x) }
      >
      z = Neg(r)
    }"""
    model = dvm_graph.optimize(parse(text))
    run = {"x": normal(3, 4), "i": np.array([0, 1, 7]), "w": normal(4, 4)}
    for taken in (True, False):
        with pytest.raises(dvm_graph.DvmError, match="7"):
            model.run({"c": np.array(taken), **run})


def test_growth_is_bounded() -> None:
    """No branch takes more operators than one kernel may have."""
    chain = " ".join(f"q{i} = Sin({f'q{i - 1}' if i else 'r'})" for i in range(40))
    parsed = between(*BRANCHES["product and reduction"], behind=f"{chain} z = Neg(q39)")
    limits = dvm_graph.FusionLimits(max_operators=10)
    model = agrees(parsed, *RUNS[:2], limits=limits)
    operators = [sum(len(s.operators) for s in body.subgraphs) for body in bodies(model)]
    assert operators[0] <= 1 + 10
    assert model.report().kernels > 0


def test_in_the_turns_of_a_loop() -> None:
    text = """g (int64 n, float[b, m] x, float[m, m] w) => (float[b, m] y) {
      y = Loop (n, "", x) <
        body = turn (int64 i, bool go, float[b, m] s) => (bool more, float[b, m] t) {
          more = Identity(go)
          two = Constant<value_int = 2>()
          rest = Mod(i, two)
          one = Constant<value_int = 1>()
          odd = Equal(rest, one)
          h = Tanh(s)
          r = If (odd) <
            then_branch = p () => (float[b, m] a) { a = MatMul(h, w) },
            else_branch = o () => (float[b, m] b1) { b1 = Softmax(h) }
          >
          t = Add(r, s)
        }
      >
    }"""
    agrees(
        parse(text), *({"n": np.array(n), "x": normal(3, 4), "w": normal(4, 4)} for n in (0, 1, 5))
    )


def test_a_value_under_two_names() -> None:
    text = """g (bool c, float[n, m] x) => (float[n, k] z) {
      keep = Constant<value_ints = [0, 0]>()
      h = Tanh(x)
      same = Reshape(h, keep)
      r = If (c) <
        then_branch = p () => (float[n, i] a) { a = Concat<axis = 1>(h, same) },
        else_branch = o () => (float[n, j] b) { b = Add(same, h) }
      >
      z = Neg(r)
    }"""
    agrees(parse(text), *({"c": np.array(c), "x": normal(3, 4)} for c in (True, False)), check=True)


def test_constants_of_one_name_inside_and_outside() -> None:
    gelu = "m = MatMul(h, w) a = Gelu(m)", 's = Softmax(h) b = Gelu<approximate = "tanh">(s)'
    agrees(
        between(*gelu, behind='q = Gelu<approximate = "tanh">(r) z = Gelu(q)'), *RUNS, check=True
    )


def test_a_vendor_operator_in_a_branch() -> None:
    model = between("d = Det(w) a = Mul(h, d)", "b = Softmax(h)")
    optimised, reference = dvm_graph.optimize(model, check=True), session(model)
    for run in RUNS:
        (got,), (want,) = optimised.run(run), reference.run(None, run)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_an_operand_that_folds() -> None:
    """A branch reads it as an input, until all that it is made of is known."""
    text = """g (bool c, float[n, m] x) => (float[k, l] r)
      <float[20, 1] column = {COLUMN}, float[1, 10] row = {ROW}, float[10, 2] w = {COLUMN}> {
        h = Mul(column, row)
        r = If (c) <
          then_branch = p () => (float[k, l] a) { a = MatMul(h, w) },
          else_branch = o () => (float[k, l] b) { b = Sub(h, h) }
        >
    }"""
    for name, count in (("COLUMN", 20), ("ROW", 10)):
        text = text.replace(name, ", ".join(str(i % 7 - 3) for i in range(count)))
    agrees(parse(text), *({"c": np.array(c), "x": normal(1, 1)} for c in (True, False)), check=True)


def test_constants_of_one_name() -> None:
    """Those of an operator that moves, and those that a branch has."""
    constants = " ".join(
        f"a{i} = LeakyRelu<alpha = 0.{i + 1}>({'h' if not i else f'a{i - 1}'})" for i in range(6)
    )
    behind = " ".join(
        f"q{i} = LeakyRelu<alpha = 0.{i + 1}5>({'r' if not i else f'q{i - 1}'})" for i in range(6)
    )
    model = between(f"{constants} a = Neg(a5)", "b = Add(h, y)", f"{behind} z = Neg(q5)")
    agrees(model, *RUNS)
