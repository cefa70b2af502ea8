"""Small models that random graphs once broke: what onnxruntime has to be told of vendor operators, and does not survive."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    assert_same_bits,
    model_from_text,
    session,
)


def test_a_vendor_operator_whose_results_nobody_reads() -> None:
    """onnxruntime runs nothing of which no result is asked for."""
    model = model_from_text(
        "unread (float[n, n] x) => (int64 y) { d = Det(x) y = Size(d) }",
    )
    disabled = frozenset(("eliminate_dead",))
    (y,) = dvm_graph.optimize(model, disable_passes=disabled).run({"x": np.eye(3, dtype="f4")})
    assert y == 1


def test_operands_given_as_none_behind_the_last() -> None:
    """onnxruntime's rewrites read the type of a LayerNormalization's bias that is none, and the process died."""
    model = model_from_text(
        """g (float[a, b, c] x, float[d] s) => (float[e, f] y) {
            u = Squeeze(x)
            y = LayerNormalization<epsilon = 0.0>(u, s, "")
        }"""
    )
    x, s = np.array([[[-3, -2], [4, 0]]], np.float32), np.array([2, -1], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x, "s": s})
    assert_all_close([y], [np.array([[-2, -1], [2, 1]], np.float32)], 2)


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(0, 0, 0, 3), (1, 1, 4, 3)])
def test_a_quantised_operand_spread_over_nothing_behind_a_vendor_operator(
    op: str, shape: tuple[int, ...]
) -> None:
    """onnxruntime ends the process there."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]> g (uint8[a, b, c, d] x, uint8[e, f, 1, 1] y) => (uint8[a, b, c, d] z)
        <float s = {{0.5}}, uint8 o = {{2}}> {{
            p, at = MaxPool<kernel_shape = [1, 1]>(x)
            z = com.microsoft.{op}(p, s, o, y, s, o, s, o)
        }}"""
    )
    x, y = np.full(shape, 9, np.uint8), np.full((*shape[:2], 1, 1), 5, np.uint8)
    (z,) = dvm_graph.optimize(model).run({"x": x, "y": y})
    number = {"QLinearAdd": 3.5 + 1.5, "QLinearMul": 3.5 * 1.5}[op]
    np.testing.assert_array_equal(z, np.full(shape, round(number / 0.5) + 2, np.uint8))


@pytest.mark.parametrize("node", ["Pad<pads = [0, 0, 1, 1]>(e)", "Clip<max = 0.5>(f)"])
def test_numbers_for_a_tensor_whose_type_inference_does_not_tell(node: str) -> None:
    """They were of float32, and met float64."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 10]>
        g (double[n, m] x) => (y) {{ e = EyeLike(x) f = EyeLike<dtype = 1>(x) y = {node} }}"""
    )
    feeds = {"x": np.ones((2, 3))}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_saturation_of_a_cast_to_no_float8() -> None:
    """It says nothing there, and onnxruntime refuses it of a cast that it does not leave out: which these are hangs on what
    is left to it.
    """
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (uint64[3, n] x, uint64[n, 2] w) => (uint64[1, 3, n] y, uint64[3, 2] p)
        <int64[1] first = {0}> {
            c = CastLike<saturate = 0>(x, x)
            p = MatMul(c, w)
            y = Unsqueeze(c, first)
        }"""
    )
    generator = np.random.default_rng(0)
    x, w = (generator.integers(0, 9, shape, np.uint64) for shape in ((3, 4), (4, 2)))
    mine = dvm_graph.optimize(model).run({"x": x, "w": w})
    assert_same_bits(mine, [x[None], x @ w])


TRAINED = """r, m, s = BatchNormalization<training_mode = 1, momentum = 0.5>(x, scale, scale, mean, variance)
    moved = Mul(m, s)"""


@pytest.mark.parametrize("given", ["fed", "constant"])
@pytest.mark.parametrize("where", ["node", "loop"])
def test_norms_in_training_write_over_nothing(given: str, where: str) -> None:
    """onnxruntime puts moved statistics where those lie that it was given."""
    results = (
        "float[3, 2, 4] r, float[2] moved"
        if where == "node"
        else "float[3, 2, 4] r, float[2, 2] all"
    )
    ends = [1.5, 2.0]
    names = "float[2] mean, float[2] variance"
    nodes = (
        TRAINED
        if where == "node"
        else f"""two = Constant<value_int = 2>() r, all = Loop(two, "", x) <
        body = turn (int64 i, bool go, float[3, 2, 4] h) => (bool on, float[3, 2, 4] r, float[2] moved) {{
          on = Identity(go) {TRAINED}
        }}>"""
    )
    text = (
        f"g (float[3, 2, 4] x, float[2] scale, {names}) => ({results}) {{ {nodes} }}"
        if given == "fed"
        else f"""g (float[3, 2, 4] x, float[2] scale) => ({results})
            <float[2] mean = {{1.5, 2}}, float[2] variance = {{1.5, 2}}> {{ {nodes} }}"""
    )
    model = model_from_text(text, opset=19)
    for node in model.graph.node:
        node.name = node.output[0]
    x = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    feeds = {"x": x, "scale": np.array([3, 4], np.float32)}
    if given == "fed":
        feeds |= {name: np.array(ends, np.float32) for name in ("mean", "variance")}
    before = {name: array.copy() for name, array in feeds.items()}
    compiled = dvm_graph.optimize(model, vendor_nodes={node.name for node in model.graph.node})
    mean = 0.5 * x.mean((0, 2)) + 0.5 * np.array(ends)
    variance = 0.5 * x.var((0, 2)) + 0.5 * np.array(ends)
    for _ in range(3):
        moved = compiled.run(feeds)[1]
        np.testing.assert_allclose(moved, np.broadcast_to(mean * variance, moved.shape), rtol=1e-5)
        assert all(np.array_equal(feeds[name], before[name]) for name in feeds)
