"""Stages of the pipeline held to each other: what is wrong on purpose is named by its stage."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph import pipeline
from dvm_graph.check import graphs, validate
from dvm_graph.check.extents import choose_extents
from dvm_graph.check.findings import CheckReport
from dvm_graph.decompose import registry
from dvm_graph.errors import MiscompileError
from dvm_graph.ir import Graph, Node, Value
from dvm_graph.options import Options
from dvm_graph.symbolic import Facts, Relation
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.numeric import evaluate_constant
from tests.end_to_end.reference import model_from_text

TRANSPOSED = (
    "g (float[n,n] x) => (float[n,n] y){ e = Exp(x) t = Transpose<perm = [1, 0]>(e) y = Add(e, t) }"
)
SCALED = (
    "g (float[b,6] x, float[6,n] w) => (float[b,n] y) <float s = {0.125}>"
    "{ q = Mul(x, s) p = MatMul(q, w) y = Relu(p) }"
)


def drop_transpose(graph: Graph) -> None:
    (node,) = (node for node in graph.nodes if node.op == "transpose")
    graph.replace_node(node, node.required(0))


def change_constant(graph: Graph) -> None:
    """One in a thousand off: a constant that was folded in a narrow type, say."""
    for node in graph.nodes:
        for value in node.inputs:
            if (
                value is not None
                and value.data is not None
                and value.data.ravel().tolist() == [0.125]
            ):
                changed = graph.constant(np.asarray(value.data * np.float32(1.001)))
                graph.set_inputs(node, [changed if v is value else v for v in node.inputs])
                return
    raise AssertionError("no constant")


@pytest.mark.parametrize("stage", pipeline.PASSES)
@pytest.mark.parametrize(
    ("text", "breaks"), [(TRANSPOSED, drop_transpose), (SCALED, change_constant)]
)
def test_a_broken_pass_is_named(
    stage: str, text: str, breaks: Callable[[Graph], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_from_text(text)
    assert validate(model).findings == []
    right = getattr(pipeline, stage)

    def wrong(graph: Graph, *facts: Facts) -> bool:
        right(graph, *facts)
        if breaks is drop_transpose and all(node.op != "transpose" for node in graph.nodes):
            pytest.skip("absorbed into a view before")
        breaks(graph)
        return True

    monkeypatch.setattr(pipeline, stage, wrong)
    findings = validate(model).findings
    assert {finding.where for finding in findings} == {stage}
    assert "output y is wrong" in findings[0].problem
    assert findings[0].origin
    with pytest.raises(MiscompileError, match=stage):
        dvm_graph.optimize(model, check=True)


def test_a_wrong_decomposition_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(builder: Builder, node: Node, operands: list[object]) -> list[object]:
        return [builder.op("sub", *operands)]

    find = registry.find
    monkeypatch.setattr(
        "dvm_graph.decompose.walk.find", lambda node: wrong if node.op == "Add" else find(node)
    )
    findings = validate(model_from_text(TRANSPOSED)).findings
    assert [(finding.where, finding.origin) for finding in findings] == [("decompose", ("Add:y",))]


def test_integers_that_are_indices_stay_in_range() -> None:
    text = (
        "g (float[v,h] x, int64[n] i) => (float[n,h] y, int64[n] z)"
        "{ y = Gather<axis = 0>(x, i) z = Add(i, i) }"
    )
    report = validate(model_from_text(text))
    assert report.findings == []
    assert all(subject.runs for subject in report.subjects)


def test_constants_may_be_folded_in_their_own_type() -> None:
    """1 / sqrt(c), rounded twice in float32, is not what float64 gives."""
    text = (
        "g (float[n] x) => (float[n] y) <float[3] c = {2.0, 3.0, 5.0}, float[3] one = {1.0, 1.0, 1.0}>"
        "{ r = Sqrt(c) q = Div(one, r) p = Mul(q, q) s = ReduceSum(p) y = Mul(x, s) }"
    )
    assert validate(model_from_text(text)).findings == []


def test_constants_that_a_pass_folds_on_its_way_are_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pads are behind the function when the concat is; others than they are wrong."""
    text = """g (float[n] x) => (float[m] y) <int64[2] pads = {2, 0}, float value = {-2}> {
        p = Pad(x, pads, value) y = Sigmoid(p) }"""
    model = model_from_text(text)
    assert validate(model).findings == []
    fold = evaluate_constant

    def wrong(node: Node, *most: float) -> Any:
        data = fold(node, *most)
        return data * np.float32(1.00001) if node.op == "sigmoid" and data is not None else data

    monkeypatch.setattr("dvm_graph.symbolic.builder.evaluate_constant", wrong)
    assert validate(model).findings


@pytest.mark.parametrize("half", [onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16])
def test_half_types_may_be_kept_wider(half: int) -> None:
    text = (
        "g (float[n,5] x) => (float[n,5] y) "
        f"{{ h = Cast<to = {half}>(x) e = Exp(h) s = Softmax<axis = 1>(e) y = Cast<to = 1>(s) }}"
    )
    assert validate(model_from_text(text)).findings == []


def test_given_feeds_are_run_too() -> None:
    """A shape as an input, which no random number is; and an extent that nothing but 2n + 1 tells."""
    text = (
        "g (float[n] x, int64[2] s, float[p] z) => (float[a,b] y, float[c] w)"
        "{ r = Reshape(x, s) y = Exp(r) w = Neg(z) }"
    )
    feeds = {
        "x": np.arange(6, dtype=np.float32),
        "s": np.array([2, 3]),
        "z": np.arange(13, dtype=np.float32),
    }
    model = model_from_text(text)
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "2*n + 1"
    report = validate(model, feeds=feeds)
    assert report.findings == []
    (whole,) = (subject for subject in report.subjects if subject.kind == "run")
    assert whole.runs


def test_integer_divisions_by_zero_do_not_end_the_process() -> None:
    text = "g (int32[n] x, int32[n] z) => (int32[n] y) { y = Div(x, z) }"
    feeds = {"x": np.arange(4, dtype=np.int32), "z": np.zeros(4, np.int32)}
    assert validate(model_from_text(text), feeds=feeds).findings == []


def test_powers_that_no_integer_holds_are_not_compared() -> None:
    text = """g (float[n, m] x) => (int64[n, m] y) <int64 e = {-1}> {
        i = ArgMin<axis = 0>(x)
        j = Cast<to = 7>(x)
        z = Sub(j, j)
        p = Pow(z, e)
        q = Pow(i, e)
        y = Add(p, q)
    }"""
    assert validate(model_from_text(text)).findings == []


@pytest.mark.parametrize("op", ["ReduceProd", "ReduceSum", "ReduceL1", "ReduceSumSquare"])
def test_folds_that_no_integer_holds_are_not_compared(op: str) -> None:
    """onnxruntime stops at the ends of the type, where they wrap here."""
    text = f"g (int32[n] x) => (int32[1] y) <int32 k = {{1000000007}}> {{ l = Mul(x, k) y = {op}<keepdims = 1>(l) }}"
    assert not validate(model_from_text(text)).findings


def test_logarithms_whose_steps_are_rounded_to_integers_are_not_compared() -> None:
    """onnxruntime rounds each exponential, too."""
    text = "g (int32[16, n] x) => (int32[16] y) <int64[1] axis = {1}> { y = ReduceLogSumExp<keepdims = 0>(x, axis) }"
    assert not validate(model_from_text(text)).findings


def test_a_body_is_run_at_extents_that_reach_it() -> None:
    """What the graph around a body assumes was not asked of its extents: those of a sum that does not broadcast."""
    text = """g (float[m, k] x, float[j] s) => (float[m, l] y) <int64 turns = {2}> {
        e = Add(x, s)
        y = Loop(turns, "", e) <body = step (int64 i, bool c, float[m, l] z) => (bool d, float[m, l] w) {
            d = Identity(c)
            a = Abs(e)
            w = Add(z, a)
        }>
    }"""
    assert not validate(model_from_text(text)).findings


def test_infinite_weights_beyond_the_image_add_nothing_or_nan() -> None:
    text = """g (float[n,1,h,w] x) => (float[n,1,h,v] y) <float[1,1,1,2] k = {1.5, inf}>
    { c = Conv<pads = [0, 2, 0, 1]>(x, k) y = Tanh(c) }"""
    assert validate(model_from_text(text)).findings == []


def test_extents_whose_dims_leave_64_bits_are_not_drawn() -> None:
    text = """g (int8[n,m,n] x) => (int64 y) <float two = {2}>
    { s = Shape(x) c = ReduceProd<keepdims = 0>(s) y = Pow(c, two) }"""
    assert validate(model_from_text(text)).findings == []


def test_constants_that_a_pass_computes_are_rounded_in_between() -> None:
    """Queries and keys are constants, and so are their scores: folded, they are half floats."""
    generator = np.random.default_rng(0)
    q, k = (generator.standard_normal((2, 4, n, 5)).astype(np.float16) for n in (1, 2))
    node = helper.make_node("Attention", ["q", "k", "v"], ["y"])
    graph = helper.make_graph(
        [node],
        "attention",
        [helper.make_tensor_value_info("v", TensorProto.FLOAT16, [2, 4, 2, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT16, [2, 4, 1, "n"])],
        [numpy_helper.from_array(q, "q"), numpy_helper.from_array(k, "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    assert validate(model).findings == []


@pytest.mark.parametrize(
    "body",
    ["y = Gather<axis = 1>(found, at)", "t = Transpose(found) y = GatherND(t, places)"],
)
def test_indices_into_an_axis_that_only_the_run_knows(body: str) -> None:
    text = f"""g (float[a, b] x, int64[c] at, int64[c, 1] places) => (int64[d, e] y) {{
        found = NonZero(x) {body} }}"""
    assert validate(model_from_text(text)).findings == []


def test_extents_that_only_the_run_knows_to_break_what_the_model_assumes() -> None:
    text = """g (float[n] x, int64[one] first, int64[m] lengths) => (float[a, b] y)
    <int64[1] end = {129}, int64[1] axes = {0}, int64[1] steps = {-1}, int64[1] far = {454}> {
        start = Add(far, first) part = Slice(x, start, end, axes, steps) row = Unsqueeze(part, axes)
        y = ReverseSequence<batch_axis = 1, time_axis = 0>(row, lengths) }"""
    assert validate(model_from_text(text)).findings == []


def test_extents_that_only_a_body_of_control_flow_holds_together() -> None:
    text = """g (float[n, k] x, float[n, m] y) => (float[a, b] z) <int64 last = {-1}> {
      s = SequenceConstruct(x)
      t = SequenceMap(s, y) <
        body = each (float[a, b] one, float[n, m] two) => (float[a, b] r) { r = Add(one, two) }
      >
      z = SequenceAt(t, last)
    }"""
    dvm_graph.optimize(model_from_text(text), check=True)


@pytest.mark.parametrize(
    "text",
    [
        # of onnxruntime's float16, taken for what the next node reads
        """g (int64[n] i) => (float16[n, 1] y) <int64[2] axes = {0, 1}, float16 c = {48128}> {
            e = Celu(c) u = Unsqueeze(e, axes) y = Gather(u, i) }""",
        # nobody's
        "g (float16[n] x) => (float16[n] y) { y = Celu<alpha = 0.0>(x) }",
        """g (float[1] s, float[1] b) => (float[a, c, d, e] y)
        <int64[4] axes = {0, 1, 2, 3}, float c = {1.0104164}> {
            x = Unsqueeze(c, axes) y = InstanceNormalization(x, s, b) }""",
    ],
)
def test_what_rounding_inside_of_a_node_makes_is_not_wrong(text: str) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 11, opset_import: ["" : 28]>\n{text}')
    assert validate(model).findings == []


def test_levels_that_come_of_rounding_a_sum_of_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is one of integers here, and next to the middle of two levels; levels that are wrong are found."""
    generator = np.random.default_rng(172)
    weights = generator.integers(-127, 128, (16, 8, 3, 3)).astype(np.int8)
    of_image, of_weights = generator.uniform(0.01, 0.1, 2)
    constants = {
        "sx": np.float32(of_image), "zx": np.uint8(128), "w": weights, "sw": np.float32(of_weights), "zw": np.int8(0),
        "sy": np.float32(generator.uniform(2, 8) * of_image * of_weights * 100),
    }  # fmt: skip
    text = """<ir_version: 10, opset_import: ["" : 21]> g (uint8[n, 8, 6, 5] x) => (uint8[n, 16, h, v] y) {
        a = DequantizeLinear(x, sx, zx) b = DequantizeLinear(w, sw, zw)
        c = Conv<kernel_shape = [3, 3]>(a, b) y = QuantizeLinear(c, sy, zx) }"""
    model = onnx.parser.parse_model(text)
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    assert validate(model).findings == []
    find = registry.find

    def wrong(builder: Builder, node: Node, operands: list[Value | None]) -> list[Value]:
        quantize = find(node)
        assert quantize is not None
        (result,) = quantize(builder, node, operands) or ()
        assert result is not None
        return [builder.add(result, builder.scalar(1, result.dtype))]

    monkeypatch.setattr(
        "dvm_graph.decompose.walk.find",
        lambda node: wrong if node.op == "QuantizeLinear" else find(node),
    )
    assert [finding.where for finding in validate(model).findings] == ["decompose"]


def test_small_states_come_of_gates_that_are_nearly_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rounding leaves of 1 less such a gate is no small part of them; states that are wrong are found."""
    text = """<ir_version: 11, opset_import: ["" : 26]>
    g (float[K, n, m] x1, float[2, 3, m] x2, float[2, 3, 1] x3, float[2, 6] x4, float[K, 2, l, 1] x13)
      => (float[a, b, c, d] v21) {
        [GRU_v5] v5 = GRU<direction = "bidirectional", hidden_size = 1, linear_before_reset = 1>(x1, x2, x3, x4)
        s = SplitToSequence(v5)
        v19 = SequenceMap(s, x13, x2) <
          body = g18 (float[] b12, float[] b15, float[] b16) => (float[] v17) { v17 = Add(b12, b15) }
        >
        v21 = ConcatFromSequence<axis = 1>(v19)
    }"""
    model = onnx.parser.parse_model(text)
    assert validate(model).findings == []
    find = registry.find

    def wrong(builder: Builder, node: Node, operands: list[Value | None]) -> list[Value]:
        gru = find(node)
        assert gru is not None
        results = [result for result in gru(builder, node, operands) or () if result is not None]
        return [builder.mul(result, builder.scalar(0.5, result.dtype)) for result in results]

    monkeypatch.setattr(
        "dvm_graph.decompose.walk.find", lambda node: wrong if node.op == "GRU" else find(node)
    )
    assert [finding.where for finding in validate(model).findings] == ["decompose"]


def test_an_index_into_nothing_is_not_looked_at() -> None:
    text = """g (float[n, s, m] x, int64[k] i) => (float[a, b, c] y) <int64[3] repeats = {0, 1, 2}> {
        t = Tile(x, repeats) g = Gather<axis = 1>(t, i) y = ReduceProd(g) }"""
    assert validate(model_from_text(text)).findings == []


def test_what_a_body_assumes_of_extents_around_it() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[n, 6, q, 3] x, float[1, k, 1] z, float[1] s) => (float[a, b, c, d] v) <float w = {0.3}, int64[3] axes = {0, 1, 2}> {
        a, v = Scan(w, x) <num_scan_inputs = 1, body = each (float c, float[6, q, 3] d) => (float e, float[?, ?, ?] r) {
            e = Add(c, c) u = Unsqueeze(c, axes) r = com.microsoft.SkipLayerNormalization(u, z, s)
        }>
    }"""
    report = validate(onnx.parser.parse_model(text))
    assert report.findings == []
    assert next(subject for subject in report.subjects if subject.kind == "run").runs


def test_values_that_memory_does_not_hold_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is told to be unchecked, and kernels are checked all the same."""
    monkeypatch.setattr(graphs, "_core", SimpleNamespace(available_memory=lambda: 100))
    report = validate(model_from_text(TRANSPOSED))
    assert report.passed
    (decomposed,) = (s for s in report.subjects if s.kind == "decompose")
    assert decomposed.runs == 1  # over nothing
    assert "need" in decomposed.skipped
    assert "of 0 available" in decomposed.skipped
    assert any(subject.runs for subject in report.subjects if subject.kind == "kernel")


def test_large_constants_have_one_assignment_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first where there is room, else the least."""
    monkeypatch.setattr(graphs, "_LARGE", 0)
    monkeypatch.setattr(graphs, "_BYTES", 1 << 20)
    runs = {}
    for mib in (1 << 20, 4 * 6 + 1):
        core = SimpleNamespace(available_memory=lambda mib=mib: mib << 20)
        monkeypatch.setattr(graphs, "_core", core)
        check = graphs.GraphCheck(report := CheckReport(), 0)
        pipeline.compile_model(model_from_text(SCALED), Options(), check)
        assert report.passed
        (runs[mib],) = (extents for extents, _ in check.feeds())
    more, less = (math.prod(extents.symbols.values()) for extents in runs.values())
    assert less == 1 < more


def test_rows_of_several_shapes_are_of_extents_that_do_not_fit() -> None:
    """A first state of one element, say, that the others spread over more."""
    text = """g (float[12, 1, 5] x, float[1, n] s0) => (float[] r) {
        s, r = Scan<num_scan_inputs = 1, body = b (float[] u, float[1, 5] w) => (float[] v, float[] q) {
            v = Add(u, w)
            q = Tanh(u)
        }>(s0, x)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 20]> {text}')
    assert not validate(model).findings


def test_extents_that_memory_does_not_hold_are_none() -> None:
    facts = Facts()
    a, b = (facts.symbols.fresh(name) for name in "ab")
    for symbol in (a, b):
        facts.expect(224, Relation.LESS_EQUAL, symbol, lambda: "they are large")
    assert choose_extents(facts, [a, b], 4, 0, [(a, b)])
    assert not choose_extents(facts, [a, b], 4, 0, [(a, b, a, b)])


def test_a_table_of_what_a_table_gave() -> None:
    """The pass takes the place of the first one, too."""
    text = """g (int8[1, n] x) => (int8[1, n] z)
        <float half = {0.5}, float tenth = {0.1}, float one = {1.0}, int8 zero = {1}> {
        y = com.microsoft.QLinearLeakyRelu(x, half, , tenth, zero)
        z = com.microsoft.QLinearLeakyRelu(y, one, , half, zero)
    }"""
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 19, "com.microsoft": 1]> {text}'
    )
    assert not validate(model).findings


def test_weights_that_become_constants_are_packed_at_every_stage() -> None:
    """Of experts in 4 bits, by which onnxruntime's kernel then multiplies otherwise."""
    random = np.random.default_rng(0)
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[n, 32] x, float[n, 2] p) => (float[n, 32] y) {
            b = Transpose<perm = [0, 2, 1]>(t)
            y = com.microsoft.QMoE<expert_weight_bits = 4, k = 2>(x, p, a, s, "", b, s)
        }"""
    model = onnx.parser.parse_model(text)
    words = random.integers(0, 256, (2, 32, 16), np.uint8)
    scales = random.uniform(0.5, 1, (2, 32)).astype(np.float32)
    constants = {"a": words, "t": words.transpose(0, 2, 1).copy(), "s": scales}
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    dvm_graph.optimize(model, check=True)
