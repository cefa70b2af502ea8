"""Results whose rank only a run tells, behind which a model declares one that it does not have: onnxruntime warns of it at
the most.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from dvm_graph.errors import ContradictionError
from tests.decompose.reference import session
from tests.end_to_end.test_control_flow import normal, parse

_RAISED = "zero = Constant<value_ints = [0]>() {0} = Unsqueeze({1}, zero)"


def _branches(result: str, operand: str) -> str:
    """One rank in one branch, another in the other."""
    raised = _RAISED.format("b", operand)
    return f"""{result} = If (p) <then_branch = t () => (float[] a) {{ a = Relu({operand}) }},
                                  else_branch = e () => (float[] b) {{ {raised} }}>"""


def _turns(results: str, body: str, rows: str = "") -> str:
    return f"""{results} = Loop (k, , x) <body = d (int64 i, bool c, float[] s) => (bool c2, float[] s2{rows}) {{
      c2 = Identity(c) {body}
    }}>"""


SOURCES = {
    "branches": _branches("v", "x"),
    "turns": _turns("v", _RAISED.format("s2", "s")),
    "branches in turns": _turns("v", _branches("s2", "s")),
    "collected": _turns("u, v", "s2 = Relu(s) " + _branches("r", "s"), ", float[] r"),
    "sequence": f"""{_RAISED.format("y", "x")}
    s = SequenceConstruct(x, y) at = Cast<to = 7>(p) v = SequenceAt(s, at)""",
    "optional": f"""s = If (p) <
      then_branch = t () => (optional(float[]) a) {{ a = Optional(x) }},
      else_branch = e () => (optional(float[]) b) {{ {_RAISED.format("y", "x")} b = Optional(y) }}>
    v = OptionalGetElement(s)""",
}
CONSUMERS = {
    "nothing": "w = Identity(v)",
    "operators": "t = Tanh(v) w = Mul(t, v)",
    "a reduction": "w = ReduceMax<keepdims = 0>(v)",
    "a product": "w = MatMul(v, m)",
    "views": "t = Transpose(v) w = Concat<axis = -1>(t, t)",
    "its own shape": "s0 = Shape(v) t = Relu(v) w = Reshape(t, s0)",
    "branches": """w = If (p) <then_branch = f () => (float[] g) { g = Exp(v) },
                                else_branch = h () => (float[] j) { j = Relu(v) }>""",
    "turns": """w = Loop (k, , v) <body = f (int64 g, bool h, float[] j) => (bool l, float[] n) {
                                l = Identity(h) n = Tanh(j) }>""",
    "a sequence": "q = SequenceConstruct(v, x) zero_ = Constant<value_int = 0>() w = SequenceAt(q, zero_)",
}


def _model(source: str, consumer: str, declared: str) -> Any:
    text = f"""g (float[b, 4] x, float[4, 4] m, bool p, int64 k) => (float{declared} w) {{
      {SOURCES[source]} {CONSUMERS[consumer]}
    }}"""
    return parse(text)


def _feeds(p: bool, k: int) -> dict[str, Any]:
    return {"x": normal(2, 4), "m": normal(4, 4), "p": np.array(p), "k": np.array(k)}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("source", SOURCES)
def test_as_onnxruntime(source: str, consumer: str) -> None:
    proto = _model(source, consumer, "[c, d]")
    reference, model = session(proto), dvm_graph.optimize(proto)
    for p, k in product((True, False), (1, 2, 0)):
        if k == 0 and "collected" in source:
            continue  # its rank is made up
        feeds = _feeds(p, k)
        (got,), (want,) = model.run(feeds), reference.run(None, feeds)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_kernels_behind_what_is_declared() -> None:
    """As long as it holds."""
    proto = _model("sequence", "operators", "[c, d]")
    declared = proto.graph.value_info.add(name="v")
    declared.type.CopyFrom(proto.graph.output[0].type)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    reference, model = session(proto), dvm_graph.optimize(proto)
    for p, kernels in ((False, 3), (True, 2), (False, 3)):
        feeds = _feeds(p, 1)
        (got,), (want,) = model.run(feeds), reference.run(None, feeds)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
        assert model.statistics.kernels_launched == kernels


def test_a_saved_model_has_nothing_to_compile(tmp_path: Path) -> None:
    proto, feeds = _model("turns", "nothing", "[c, d]"), _feeds(True, 1)
    dvm_graph.optimize(proto).save(tmp_path / "believes.dvm")
    dvm_graph.optimize(proto, dims_by_name=False).save(tmp_path / "asks.dvm")
    with pytest.raises(ContradictionError, match=r"rank 3 .*wants rank 2"):
        dvm_graph.load(tmp_path / "believes.dvm").run(feeds)
    (got,) = dvm_graph.load(tmp_path / "asks.dvm").run(feeds)
    assert got.shape == (1, 2, 4)


@pytest.mark.parametrize("dtype", ["float", "uint64"])
@pytest.mark.parametrize("declared", ["[9, 2]", "[q, q]", "[q, 4]"])
def test_extents_that_a_body_declares_and_does_not_have(declared: str, dtype: str) -> None:
    """Where the body runs on onnxruntime, which is not told the rank of what it reads, or has the only kernels."""
    text = f"""g ({dtype}[a, b] x, int64 k) => ({dtype}[n, c, d] y) {{
      y = Loop (k, , ) <body = r (int64 i, bool on) => (bool on2, {dtype}{declared} t) {{
        on2 = Identity(on) t = Min(x, x)
      }}> }}"""
    proto = parse(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    reference, model = session(proto), dvm_graph.optimize(proto)
    for shape in ((2, 4), (3, 3), (9, 2)):
        feeds = {"x": normal(*shape).astype(dtype.replace("float", "float32")), "k": np.array(2)}
        (got,), (want,) = model.run(feeds), reference.run(None, feeds)
        np.testing.assert_array_equal(got, want)


SCALARS = {
    "rates": "g (float[n] x, float rate) => (float[m] y) { y = Mul(x, rate) }",
    "steps": """g (float[n] x, float rate) => (float[m, k] y) {
        shape = Constant<value_ints = [-1, 1]>()
        column = Reshape(rate, shape)
        y = Sub(column, x)
    }""",
    "branches": """g (float[n] x, bool rate) => (float[m] y) {
        y = If (rate) <
            then_branch = g1 () => (float[p] a) { a = Exp(x) },
            else_branch = g2 () => (float[q] b) { b = Abs(x) }
        >
    }""",
}


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("opset", [4, 17])
@pytest.mark.filterwarnings("ignore::dvm_graph.errors.RescueWarning")  # opset 4
def test_declared_scalars_are_what_a_run_feeds(name: str, opset: int) -> None:
    """onnxruntime compares no extents with those of a scalar."""
    text = SCALARS[name]
    if opset == 4:
        if name != "branches":
            return
        text = text.replace("b = Abs(x)", "t = Reshape <shape = [-1]> (x) b = Abs(t)")
        text = text.replace("a = Exp(x)", "a = Transpose(x)").replace(
            "b = Abs(t)", "b = Transpose(t)"
        )
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
    model, reference = dvm_graph.optimize(proto), session(proto)
    x = np.array([-1, 2, 3], np.float32)
    dtype = np.bool_ if name == "branches" else np.float32
    for shape in ((), (1,), (1, 1), (), (3,)) if name == "rates" else ((), (1,), (1, 1), ()):
        feeds = {"x": x, "rate": np.ones(shape, dtype)}
        got, want = model.run(feeds), reference.run(None, feeds)
        assert got[0].shape == want[0].shape
        np.testing.assert_allclose(got[0], want[0], rtol=1e-6)


def test_scalars_of_other_ranks_from_the_start(tmp_path: Path) -> None:
    proto = parse(SCALARS["rates"])
    feeds = {"x": np.ones(3, np.float32), "rate": np.ones(1, np.float32)}
    dvm_graph.optimize(proto).save(tmp_path / "scalar.dvm")
    with pytest.raises(ContradictionError, match=r"rate has rank 1 .*wants rank 0"):
        dvm_graph.load(tmp_path / "scalar.dvm").run(feeds)
    dvm_graph.optimize(proto, scalar_ranks={"rate": 1}).save(tmp_path / "row.dvm")
    assert dvm_graph.load(tmp_path / "row.dvm").run(feeds)[0].shape == (3,)
    with pytest.raises(dvm_graph.InputError, match="'z', which is no input"):
        dvm_graph.optimize(proto, scalar_ranks={"z": 1})
