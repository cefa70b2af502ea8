"""Small models that random graphs once broke: bodies of loops and branches, and recurrent operators."""

from __future__ import annotations

import warnings

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


@pytest.mark.parametrize("turns", [0, 2])
def test_what_a_loop_collects_has_the_rank_of_its_rows_and_one_over_no_turns_too(
    turns: int,
) -> None:
    """onnxruntime makes up one axis for rows of which it does not know the rank."""
    model = model_from_text(
        """g (int64 n, float[k] x) => (float[a, b] y) {
            last, y = Loop(n, "", x) <body = turn (int64 i, bool go, float[] state)
                => (bool on, float[] next, float[] item) {
                on = Identity(go)
                next = Neg(state)
                item = Abs(state)
            }>
        }"""
    )
    feeds = {"n": np.array(turns), "x": np.array([-1, 2], np.float32)}
    (got,), (want,) = dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds)
    if turns:
        assert_same_bits([got], [want])
    assert got.ndim == 2 and got.size == want.size


@pytest.mark.parametrize("choice", [True, False])
def test_branches_of_which_one_declares_what_the_other_leaves_open(choice: bool) -> None:
    """onnx takes the declared extent for that of both branches."""
    model = model_from_text(
        """g (bool which, float[2] x, float[n] z) => (float[a, b] y) <int64[1] zero = {0}> {
            y = If (which) <
                then_branch = g1 () => (float[1, 2] p) { u = Unsqueeze(x, zero) p = Selu(u) },
                else_branch = g2 () => (float[1, k] q) { q = Unsqueeze(z, zero) }
            >
        }"""
    )
    compiled = dvm_graph.optimize(model)
    for n in (2, 3, 0):
        feeds = {
            "which": np.array(choice),
            "x": np.ones(2, np.float32),
            "z": np.ones(n, np.float32),
        }
        assert_same_bits(compiled.run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("turns", [0, 2])
def test_what_a_loop_collects_over_no_turns_has_a_shape_of_its_own(turns: int) -> None:
    """Its dims were named after those of the input that the body reads."""
    model = model_from_text(
        """g (float[n, m] x, int64 k) => (float[a, b, c] z) {
            s = Shape(x)
            t, y = Loop(k, "", s) <body = g1 (int64 i, bool c, int64[2] u) => (bool d, int64[2] v, float[e, f] w) {
                w = Abs(x)
                d = Identity(c)
                v = Neg(u)
            }>
            z = Abs(y)
        }""",
        opset=17,
    )
    feeds = {"x": np.array([[-3.0, 2.0]], np.float32), "k": np.array(turns, np.int64)}
    expected = session(model).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(model).run(feeds), expected)


@pytest.mark.parametrize("turns", [0, 2])
def test_a_body_that_reads_what_only_inference_knows_the_rank_of(turns: int) -> None:
    """onnxruntime does not know the rank of a sequence's tensor, and so made another one up."""
    model = model_from_text(
        """g (int32 x, int64 n) => (int32[a, b, c] z) <int64 first = {0}, int64[2] axes = {0, 1}> {
            s = SequenceConstruct(x, x)
            t = SequenceAt(s, first)
            u, y = Loop(n, "", t) <body = turn (int64 i, bool c, int32 v) => (bool d, int32 w, int32[] e) {
                e = Unsqueeze(t, axes)
                d = Identity(c)
                w = Neg(v)
            }>
            z = Abs(y)
        }""",
        opset=17,
    )
    feeds = {"x": np.array(-3, np.int32), "n": np.array(turns)}
    (z,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_array_equal(z, np.full((turns, 1, 1), 3, np.int32))


def test_a_body_rests_on_what_the_graph_around_it_assumes() -> None:
    """The numbers that a body's plan was tried with broke it: a product's extents, which are one outside."""
    model = model_from_text(
        """g (float[n, m] a, float[k, 1] x, float[l] start) => (float[n, 1] p, float[j] y)
        <int64[2] twice = {1, 2}> {
            wide = Tile(a, twice)
            p = MatMul(wide, x)
            y, rows = Scan <num_scan_inputs = 1, scan_input_axes = [1],
                body = add (float[i] state, float[k] row) => (float[i] next, float[i] out) {
                    next = Add(state, row)
                    out = Identity(next)
                }>(start, x)
        }"""
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        mine = dvm_graph.optimize(model)
    generator = np.random.default_rng(0)
    for m in (3, 1):
        feeds = {
            "a": generator.random((2, m), np.float32),
            "x": generator.random((2 * m, 1), np.float32),
            "start": generator.random(2 * m, np.float32),
        }
        assert_all_close(mine.run(feeds), session(model).run(None, feeds), 8)


def test_a_branch_that_is_not_taken_need_not_fit() -> None:
    """Of a rank that is known, extents that onnxruntime had not inferred were told it: it refused the branch."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 15]>
        g (float[s, m, ?, 1, 6] x, float[4, ?] z, bool which) => (float[?, ?, ?, ?, 4] y) {
            p = AveragePool<ceil_mode = 1, kernel_shape = [3, 2, 1], strides = [2, 2, 2]>(x)
            q = Identity(p)
            y = If (which) <
                then_branch = t () => (float[?, ?, ?, 2, 4] u) { u = MatMul(q, z) },
                else_branch = e () => (float[?, ?, ?, 2, 4] v) { v = Add(p, p) }
            >
        }"""
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 1, 6)).astype(np.float32)
    feeds = {"x": x, "z": np.ones((4, 4), np.float32), "which": np.array(False)}
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("before", range(1, 10))
def test_steps_of_a_recurrence_whose_operands_are_constants(before: int) -> None:
    """What the step computed of constants had names that those around it took again, by the count of nodes before."""
    chain = " ".join(f"n{at + 1} = Selu(n{at})" for at in range(before))
    generator = np.random.default_rng(0)
    shapes = {"x": (1, 2, 1), "w": (2, 9, 1), "r": (2, 9, 3), "b": (2, 18)}
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 14]>
        g (float[2] n0) => (float[1, 2, 2, 3] y, float[2] n{before}) {{
            {chain}
            y = GRU<direction = "bidirectional", hidden_size = 3, linear_before_reset = 1>(x, w, r, b)
        }}"""
    )
    for name, shape in shapes.items():
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feeds = {"n0": np.ones(2, np.float32)}
    mine = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(mine, session(model).run(None, feeds))


def test_a_loop_without_condition_or_states_around_a_vendor_operator() -> None:
    """It was shown to onnx without its second operand, from which on states are counted: there were less than none."""
    model = model_from_text(
        """g (int64 n, float[k, k] x) => (float[a] y) {
            y = Loop(n, "") <body = turn (int64 i, bool go) => (bool on, float row) {
                on = Identity(go)
                row = Det(x)
            }>
        }"""
    )
    feeds = {"n": np.array(3), "x": np.array([[1, 2], [3, 5]], np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        compiled = dvm_graph.optimize(model)
    assert_same_bits(compiled.run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
def test_rows_of_which_onnx_says_otherwise_than_onnxruntime(op: str) -> None:
    """Every run failed: of a dilated pool's rows, what onnx infers was held to be true, as it is not of the pool itself."""
    model = model_from_text(
        f"""g (int64 n, float[1, 1, 9, 3] x, float[2, 1, 9, 3] first) => (float[2, 1, 9, 3] last, float[a, b, c, d, e] y) {{
            last, y = Loop(n, "", first) <body = turn (int64 i, bool go, float[2, 1, 9, 3] state)
                => (bool on, float[2, 1, 9, 3] next, float[f, g, h, j] row) {{
                on = Identity(go)
                row = {op}<auto_pad = "SAME_UPPER", dilations = [1, 2], kernel_shape = [3, 3]>(x)
                next = Add(state, row)
            }}>
        }}""",
        opset=19,
    )
    generator = np.random.default_rng(0)
    shapes = {"x": (1, 1, 9, 3), "first": (2, 1, 9, 3)}
    feeds = {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    feeds["n"] = np.array(2)
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_a_branch_with_a_name_that_the_other_reads_from_outside() -> None:
    """onnxruntime reads from outside in both; importing it was a KeyError."""
    model = model_from_text(
        """g (bool which, float[n] x, float[n] c) => (float[n] y) {
            y = If (which) <
                then_branch = g1 () => (float[n] p) <float[1] d = {3}> { p = Add(x, d) },
                else_branch = g2 () => (float[n] q) { q = Mul(x, c) }
            >
        }"""
    )
    then = model.graph.node[0].attribute[0].g
    then.initializer[0].name = then.node[0].input[1] = "c"
    x, c = np.array([1, 2], np.float32), np.array([5, 7], np.float32)
    with pytest.warns(dvm_graph.RescueWarning, match=r"defines 'c', which another of its bodies"):
        compiled = dvm_graph.optimize(model)
    for which in (True, False):
        feeds = {"which": np.array(which), "x": x, "c": c}
        assert_same_bits(compiled.run(feeds), session(model).run(None, feeds))
