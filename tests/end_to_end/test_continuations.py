"""What comes behind an `If` whose branches give other ranks, against onnxruntime."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph.errors import ExecutionError
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import parse

SQUEEZED = """g (float[b, h, t] x, float[h, h] w) => (float[k] y, float[m] z) {
  r = Relu(x)
  s = Shape(r)
  last = Constant<value_ints = [-1]>()
  one = Constant<value_ints = [1]>()
  d = Gather(s, last)
  q = Equal(d, one)
  e = If (q) < then_branch = p () => (float[i, j] a) { a = Squeeze(r, last) },
               else_branch = o () => (float[i, j, l] c) { c = Identity(r) } >
  %s
}"""
BEHIND = {
    "a product and a sum": "m = MatMul(e, w) n = Tanh(m) u = ReduceSum<keepdims = 0>(n) y = Reshape(u, last) z = Neg(y)",
    "the rank as a value": """f = Shape(e) g = Size(f) h2 = Cast<to = 1>(g) y = Reshape(h2, last)
        n = Sin(e) z = Reshape(n, last)""",
    "what is made later of other values": """n = Sin(e) v = Exp(r) v2 = ReduceMean<keepdims = 0>(v)
        k1 = Mul(n, v2) y = Reshape(k1, last) z = Reshape(v2, last)""",
    "another branch by the rank": """f = Shape(e) g = Size(f) two = Constant<value = int64 {2}>() q2 = Equal(g, two)
        n = If (q2) < then_branch = p2 () => (float[i, j] a2) { a2 = MatMul(e, w) },
                      else_branch = o2 () => (float[i, j, l] c2) { c2 = Exp(e) } >
        y = Reshape(n, last) z = Neg(y)""",
    "another branch by a dim": """n = Sin(e) f = Shape(x) zero = Constant<value_ints = [0]>() d2 = Gather(f, zero) q2 = Equal(d2, one)
        v = If (q2) < then_branch = p2 () => (float[i, j] a2) { a2 = Squeeze(n, zero) },
                      else_branch = o2 () => (float[i, j, l] c2) { c2 = Neg(n) } >
        v2 = Exp(v) y = Reshape(v2, last) z = Reshape(n, last)""",
    "a loop over it": """three = Constant<value = int64 {3}>()
        n = Loop (three, "", e) < body = turn (int64 i, bool go, float v) => (bool more, float v2) {
            more = Identity(go) v1 = Sin(e) v2 = Add(v, v1) } >
        y = Reshape(n, last) z = Neg(y)""",
}


def agrees(proto: onnx.ModelProto, *runs: dict[str, Any]) -> dvm_graph.Model:
    compiled, reference = dvm_graph.optimize(proto), session(proto)
    for feeds in (*runs, *runs[::-1]):
        for got, want in zip(compiled.run(feeds), reference.run(None, feeds), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return compiled


def feeds(b: int, h: int, t: int) -> dict[str, Any]:
    generator = np.random.default_rng(b + h + t)
    x = generator.standard_normal((b, h, t)).astype(np.float32)
    return {"x": x, "w": generator.standard_normal((h, h)).astype(np.float32)}


@pytest.mark.parametrize("behind", BEHIND)
def test_what_rests_on_either_rank_is_compiled(behind: str) -> None:
    model = agrees(
        parse(SQUEEZED % BEHIND[behind], 17), feeds(3, 4, 1), feeds(4, 4, 4), feeds(1, 4, 1)
    )
    assert model.report().vendor_operators == ()


def test_results_of_either_rank() -> None:
    proto = parse(
        SQUEEZED.replace("float[m] z", "float[m] e") % "n = Sin(e) y = Reshape(n, last)", 17
    )
    proto.graph.output[1].type.tensor_type.ClearField("shape")
    model = agrees(proto, feeds(3, 4, 1), feeds(4, 4, 4))
    assert model.report().vendor_operators == ()


def test_results_of_either_type_are_for_the_vendor_library() -> None:
    """bfloat16 is passed on as its bits, which only a declared type tells from uint16."""
    text = """g (bfloat16[b, h, t] x, bool q) => (bfloat16[k] y) {
      last = Constant<value_ints = [-1]>()
      y = If (q) < then_branch = p () => (bfloat16[i, j] a) { a = ReduceMax<axes = [0], keepdims = 0>(x) },
                   else_branch = o () => (bfloat16[i, j, l] c) { c = Identity(x) } >
    }"""
    model = dvm_graph.optimize(parse(text, 17))
    assert any(name.startswith("If") for name in model.report().vendor_operators)


def test_a_branch_that_onnxruntime_refuses_is_refused_when_it_is_taken(tmp_path: Any) -> None:
    """A recurrent operator with an operand of rank 3, or of another one."""
    behind = """zero = Constant<value_ints = [0]>() w3 = Unsqueeze(w, zero) v = Unsqueeze(e, zero)
        n, n2 = RNN<hidden_size = 4>(v, w3, w3) y = Reshape(n, last) z = Neg(y)"""
    proto = parse(SQUEEZED % behind, 17)
    model = agrees(proto, feeds(3, 4, 1))
    model.save(tmp_path / "model.dvm")
    for each in (model, dvm_graph.load(tmp_path / "model.dvm")):
        with pytest.raises(ExecutionError, match="RNN"):
            each.run(feeds(4, 4, 4))
        each.run(feeds(3, 4, 1))


@pytest.mark.parametrize(
    "behind",
    [
        "y = Gather(e, first)",
        "y = Slice(e, first, two)",
        "y = Concat<axis = 0>(e, x)",
        "y, v = TopK(e, two)",
        "f = Sin(e) y = Softmax<axis = 0>(f)",
    ],
)
def test_a_constant_that_has_too_few_axes_in_a_branch(behind: str, tmp_path: Any) -> None:
    text = f"""g (bool q, float[n] x) => (float[m] y) <int64[1] first = {{0}}, int64[1] two = {{2}}, float k = {{3}}> {{
      e = If (q) < then_branch = p () => (float[i] a) {{ a = Neg(x) }},
                   else_branch = o () => (float b) {{ b = Identity(k) }} >
      {behind}
    }}"""
    proto = parse(text, 17)
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        model = agrees(proto, {"q": np.array(True), "x": x})
    model.save(tmp_path / "model.dvm")
    for each in (model, dvm_graph.load(tmp_path / "model.dvm")):
        with pytest.raises(ExecutionError, match=r"scalars?|rank|[Aa]xis|dim"):
            each.run({"q": np.array(False), "x": x})


@pytest.mark.parametrize("seed", range(60))
def test_random_operators_behind_several(seed: int) -> None:
    """Ifs that take an axis away or keep it, with operators for any rank between and behind, in a drawn order."""
    rng = random.Random(seed)
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    ints = {"minus": [-1], **{f"i{axis}": [axis] for axis in range(3)}, "one": [1]}
    values, scalars, made = ["x"], [], 0

    def fresh() -> str:
        nonlocal made
        made += 1
        return f"v{made}"

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)

    for _ in range(rng.randint(4, 12)):
        kind = rng.choice(("if", "unary", "scale", "sum", "nested", "size"))
        value, result = rng.choice(values), fresh()
        if kind in ("if", "nested"):
            dim, condition = fresh(), fresh()
            nodes.append(helper.make_node("Gather", ["s", f"i{rng.choice((0, 2))}"], [dim]))
            nodes.append(helper.make_node("Equal", [dim, "one"], [condition]))
            inside, other, last = fresh(), fresh(), fresh()
            then = [helper.make_node("ReduceMax", [value], [inside], axes=[0], keepdims=0)]
            if kind == "nested":
                then.append(helper.make_node("Sin", [inside], [last]))
                inside = last
            orelse = [helper.make_node(rng.choice(("Identity", "Tanh")), [value], [other])]
            branches = {
                "then_branch": helper.make_graph(then, "t", [], [info(inside)]),
                "else_branch": helper.make_graph(orelse, "e", [], [info(other)]),
            }
            nodes.append(helper.make_node("If", [condition], [result], **branches))
            values.append(result)
        elif kind == "unary":
            nodes.append(helper.make_node(rng.choice(("Sin", "Neg", "Tanh")), [value], [result]))
            values.append(result)
        elif kind == "scale" and scalars:
            nodes.append(helper.make_node("Mul", [value, rng.choice(scalars)], [result]))
            values.append(result)
        elif kind == "sum":
            nodes.append(helper.make_node("ReduceMean", [value], [result], keepdims=0))
            scalars.append(result)
        elif kind == "size":
            shape, number = fresh(), fresh()
            nodes.append(helper.make_node("Shape", [value], [shape]))
            nodes.append(helper.make_node("Size", [shape], [number]))
            nodes.append(helper.make_node("Cast", [number], [result], to=TensorProto.FLOAT))
            scalars.append(result)
    outputs = []
    for value in rng.sample(values, min(3, len(values))):
        outputs.append(fresh())
        nodes.append(helper.make_node("Reshape", [value, "minus"], [outputs[-1]]))
    outputs += rng.sample(scalars, min(2, len(scalars)))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "c"])],
        [info(name) for name in outputs],
        [numpy_helper.from_array(np.array(number), name) for name, number in ints.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    shapes = ((1, 3, 1), (2, 3, 1), (1, 3, 4), (2, 3, 4), (1, 1, 1))
    agrees(proto, *({"x": feeds(*shape)["x"]} for shape in shapes))
