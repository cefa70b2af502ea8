"""`If`: which branches are chosen from, which become programs of their own, and that all give the same."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.decompose import walk
from dvm_graph.ir import Node
from tests.decompose.reference import calls, decomposed, session, vendor_operators

IDENTITY = "b = Identity(x)"


def model(then: str, other: str, inputs: str = "float[n, m] x, float[n, m] y") -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 20]>
        g (bool c, {inputs}) => (float[k, m] z) {{
          t = If (c) <
            then_branch = p () => (float[i, j] a) {{ {then} }},
            else_branch = q () => (float[i, j] b) {{ {other} }}
          >
          z = Neg(t)
        }}"""
    )
    onnx.checker.check_model(parsed)
    return parsed


CHOSEN = {
    "arithmetic": ("a = Mul(x, x)", "b = Exp(x)"),
    "no computation": ("a = Identity(x)", "b = Identity(y)"),
    "other tensors": ("a = Neg(x)", "b = Exp(y)"),
    "composite": ("a = Gelu(x)", "b = Relu(x)"),
    "views": ("s = Transpose<perm = [1, 0]>(x) r = Exp(s) a = Transpose<perm = [1, 0]>(r)", IDENTITY),
    "constants": ("k = Constant<value = float {2.0}>() a = Mul(x, k)", IDENTITY),
    "nested": (
        """w = Not(c)
        a = If (w) <
          then_branch = p2 () => (float[i, j] a2) { a2 = Sin(x) },
          else_branch = q2 () => (float[i, j] b2) { b2 = Cos(y) }
        >""",
        "b = Neg(x)",
    ),
}  # fmt: skip
LEFT = {
    "other shape": ("k = Constant<value_ints = [0]>() a = Unsqueeze(x, k)", IDENTITY),
    "demands dims": ("r = ReduceMax(x) w = Mul(x, y) s = Mul(r, w) a = Add(x, s)", IDENTITY),
    "product": ("s = Transpose<perm = [1, 0]>(x) r = MatMul(x, s) a = MatMul(r, x)", IDENTITY),
    "traps": ("k = Constant<value_ints = [0]>() g = Cast<to = 7>(x) r = Gather(x, g) "
              "a = ReduceMax(r, k)", IDENTITY),
    "long": ("".join(f"s{i} = Sin({f's{i - 1}' if i else 'x'})" for i in range(20))
             + "a = Neg(s19)", IDENTITY),
    "vendor operator": ("k = Det(x) a = Add(x, k)", IDENTITY),
}  # fmt: skip


def agrees(parsed: onnx.ModelProto, shape: tuple[int, ...], seed: int = 0) -> None:
    generator = np.random.default_rng(seed)
    x, y = (generator.standard_normal(shape).astype(np.float32) for _ in range(2))
    x[..., :1] = np.nan
    optimised, reference = dvm_graph.optimize(parsed, cores=2), session(parsed)
    for condition in (False, True):
        feeds = {"c": np.array(condition), "x": x, "y": y}
        (got,) = optimised.run(feeds)
        (want,) = reference.run(None, feeds)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", CHOSEN)
def test_harmless_branches_are_chosen_from(name: str) -> None:
    parsed = model(*CHOSEN[name])
    assert vendor_operators(decomposed(parsed)) == []
    for shape in ((1, 1), (3, 17), (5, 1), (0, 4)):
        agrees(parsed, shape)


@pytest.mark.parametrize("name", LEFT)
def test_other_branches_stay_whole(name: str) -> None:
    parsed = model(*LEFT[name])
    assert calls(decomposed(parsed)) == ["If"]
    assert vendor_operators(decomposed(parsed)) == []
    if name not in ("traps", "vendor operator"):
        agrees(parsed, (4, 4))


def test_a_branch_not_taken_demands_nothing() -> None:
    parsed = model("a = Add(x, y)", IDENTITY, "float[n, m] x, float[k, m] y")
    assert calls(decomposed(parsed)) == ["If"]
    feeds = {"c": np.array(False), "x": np.ones((2, 3), "f"), "y": np.ones((5, 3), "f")}
    (got,) = dvm_graph.optimize(parsed).run(feeds)
    np.testing.assert_array_equal(got, -feeds["x"])


def test_the_condition_may_have_one_axis() -> None:
    parsed = model("a = Exp(x)", "b = Sin(y)")
    parsed.graph.input[0].type.tensor_type.shape.dim.add().dim_value = 1
    assert vendor_operators(decomposed(parsed)) == []
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    (got,) = dvm_graph.optimize(parsed).run({"c": np.array([True]), "x": x, "y": x})
    np.testing.assert_allclose(got, -np.exp(x), rtol=1e-6)


def nest(levels: int, innermost: str) -> onnx.ModelProto:
    """Each `If` is all there is in a branch of the next."""
    inner = f"r0 = {innermost}(x)"
    for level in range(1, levels + 1):
        inner = f"""r{level} = If (c) <
          then_branch = p{level} () => (float[] r{level - 1}) {{ {inner} }},
          else_branch = q{level} () => (float[] o{level}) {{ o{level} = Abs(x) }}
        >"""
    parsed = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 20]>
        g (bool c, float[n] x) => (float[] r{levels}) {{ {inner} }}"""
    )
    return parsed


@pytest.mark.parametrize("innermost", ["Neg", "Det"])
def test_work_grows_with_the_depth_of_branches_and_not_exponentially(
    innermost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nest of 24 took minutes: each level had the ones inside it walked several times."""
    walked = []
    decompose_node = walk._Walk._decompose

    def count(self: walk._Walk, node: Node) -> bool:
        walked.append(node)
        return decompose_node(self, node)

    monkeypatch.setattr(walk._Walk, "_decompose", count)
    counts = []
    for levels in (10, 20):
        walked.clear()
        decomposed(nest(levels, innermost))
        counts.append(len(walked))
    assert counts[1] <= 3 * counts[0]


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("inner", ["c", "d"])
def test_the_branch_that_is_known_to_be_taken_stands_for_the_whole(
    condition: bool, inner: str
) -> None:
    """onnxruntime's own optimiser ended the process over the nest with both conditions known."""
    nested = f"""p = Acos(t)
        q = If ({inner}) <
          then_branch = p2 () => (float[i, j] a2) {{ a2 = Asin(p) }},
          else_branch = q2 () => (float[i, j] b2) {{ b2 = Sub(y, t) }}
        >
        n = NonZero(q) s = Shape(n) f = Cast<to = 1>(s) m = ReduceMax(f)"""
    inputs = "bool d, float[n, m] x, float[n, m] y"
    branches = f"t = Tanh(x) {nested} a = Add(q, m)", f"t = Sin(x) {nested} b = Sub(q, m)"
    parsed = model(*branches, inputs)
    known = onnx.numpy_helper.from_array(np.array(condition), "c")
    parsed.graph.initializer.append(known)
    del parsed.graph.input[0]
    assert "If" not in vendor_operators(decomposed(parsed))
    optimised, reference = dvm_graph.optimize(parsed), session(parsed)
    generator = np.random.default_rng(0)
    x, y = (generator.uniform(-1, 1, (3, 5)).astype(np.float32) for _ in range(2))
    for given in (False, True):
        feeds = {"d": np.array(given), "x": x, "y": y}
        (got,) = optimised.run(feeds)
        np.testing.assert_allclose(got, reference.run(None, feeds)[0], rtol=2e-6, atol=1e-6)
