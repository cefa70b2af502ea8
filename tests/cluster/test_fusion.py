"""What the fuser makes of known shapes of graphs: kernels, stages, verdicts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import parser

import dvm_graph
from dvm_graph.cluster import Launch, Schedule
from dvm_graph.ir import DType
from dvm_graph.options import FusionLimits, Options
from dvm_graph.pipeline import compile_model
from dvm_graph.rules import Verdict

TINY = Path(__file__).parents[2] / "models" / "tiny"
HEADER = '<ir_version: 8, opset_import: ["" : 20]>'


def schedule(source: object, options: Options | None = None) -> Schedule:
    return compile_model(source, options or Options()).schedule


def kernels(text: str, **limits: object) -> list[list[str]]:
    options = Options(limits=FusionLimits(**limits))
    made = schedule(parser.parse_model(f"{HEADER} {text}"), options)
    return [[node.op for node in subgraph.nodes] for subgraph in made.report.subgraphs]


def copies(source: str) -> list[str]:
    """What kernels move that do nothing else."""
    model = source if source.endswith(".onnx") else parser.parse_model(f"{HEADER} {source}")
    launches = [step for step in schedule(model).steps if isinstance(step, Launch)]
    subgraphs = [subgraph for step in launches for stage in step.stages for subgraph in stage]
    return [
        subgraph.nodes[0].required(0).name
        for subgraph in subgraphs
        if {node.op for node in subgraph.nodes} <= {"transpose", "reshape", "view"}
    ]


def test_layer_norm_with_residual_is_one_kernel() -> None:
    text = """g (float[b,s,8] x, float[b,s,8] r, float[8] w, float[8] v) => (float[b,s,8] y)
    { a = Add(x, r) y = LayerNormalization(a, w, v) }"""
    (made,) = kernels(text)
    assert made.count("reduce_sum") == 2
    assert made[0] == "add"


def test_softmax_is_one_kernel() -> None:
    (made,) = kernels("g (float[b,s] x) => (float[b,s] y) { y = Softmax(x) }")
    assert {"reduce_max", "exp", "reduce_sum", "reciprocal"} <= set(made)


def test_gelu_is_the_epilogue_of_a_product() -> None:
    text = """g (float[b,s,8] x, float[8,6] w, float[6] v) => (float[b,s,6] y)
    { p = MatMul(x, w) a = Add(p, v) y = Gelu(a) }"""
    (made,) = kernels(text)
    assert made[0] == "matmul"
    assert "erf" in made


def test_windows_over_one_image_share_its_transpose() -> None:
    text = """g (float[n,8,h,w] x, float[5,8,3,3] v, float[5,8,5,5] u) => (float[n,5,h,w] a, float[n,5,h,w] b)
    { a = Conv<pads=[1,1,1,1]>(x, v) b = Conv<pads=[2,2,2,2]>(x, u) }"""
    ops = [op for made in kernels(text) for op in made]
    images = [made for made in kernels(text) if made == ["transpose"]]
    assert ops.count("patches") == 2
    assert len(images) == 1


def test_rows_of_a_product_stay_for_softmax() -> None:
    text = """g (float[b,s,8] x, float[b,8,t] y) => (float[b,s,t] z)
    { p = MatMul(x, y) z = Softmax(p) }"""
    assert len(kernels(text)) == 1
    assert len(kernels(text, row_resident=False)) == 2


def test_a_consumer_refused_alone_is_judged_again_once_it_has_grown() -> None:
    """The difference needs the maximum first; only both together are an epilogue."""
    text = """g (float[b,s,8] x, float[8,6] w) => (float[b,s,6] y) <int64[1] a = {-1}>
    { p = MatMul(x, w) m = ReduceMax(p, a) y = Sub(p, m) }"""
    (made,) = kernels(text)
    assert made == ["matmul", "reduce_max", "sub"]


ATTENTION = """g (float[b,h,s,8] q, float[b,h,t,8] k, float[b,h,t,6] v{more}) => (float[b,h,s,6] y{out})
    {{ r = Transpose<perm = [0,1,3,2]>(k) p = MatMul(q, r) w = Softmax(p) {last} }}"""


def test_two_products_share_a_kernel_where_rows_stay() -> None:
    text = ATTENTION.format(more="", out="", last="y = MatMul(w, v)")
    (made,) = kernels(text)
    assert made.count("matmul") == 2
    assert len(kernels(text, max_operand_width=13)) == 2
    assert len(kernels(text, row_resident=False)) == 3


def test_scores_that_others_read_lie_in_memory() -> None:
    returned = ATTENTION.format(more="", out=", float[b,h,s,t] w", last="y = MatMul(w, v)")
    assert len(kernels(returned)) == 2
    wanted = ATTENTION.format(more="", out=", float[b,h,s,t] z", last="y = MatMul(w, v) z = Neg(w)")
    assert [made.count("matmul") for made in kernels(wanted)].count(2) == 0


def test_scores_as_the_right_operand_lie_in_memory() -> None:
    text = ATTENTION.format(more=", float[b,h,6,s] u", out="", last="x = MatMul(u, w) y = Relu(v)")
    text = text.replace("float[b,h,s,6] y", "float[b,h,t,6] y, float[b,h,6,t] x")
    assert all(made.count("matmul") < 2 for made in kernels(text))


def test_scores_of_one_head_are_not_computed_for_every_head() -> None:
    """The second product has batch axes that its A operand lacks."""
    text = """g (float[s,8] q, float[8,t] k, float[b,t,6] v) => (float[b,s,6] y)
    { p = MatMul(q, k) w = Softmax(p) y = MatMul(w, v) }"""
    assert [made.count("matmul") for made in kernels(text)] == [1, 1]


def test_three_products_are_not_one_kernel() -> None:
    text = """g (float[s,8] x, float[8,8] a, float[8,8] b, float[8,8] c) => (float[s,8] y)
    { p = MatMul(x, a) q = MatMul(p, b) y = MatMul(q, c) }"""
    assert sorted(made.count("matmul") for made in kernels(text)) == [1, 2]


GATED = """g (float[s,8] x, float[8,6] a, float[{k},6] b{more}) => (float[s,6] y{out})
    {{ p = MatMul(x, a) g = Sigmoid(p) q = MatMul({rows}, b) y = Mul(g, q) }}"""


def test_products_of_the_same_rows_that_meet_are_one_kernel() -> None:
    text = GATED.format(rows="x", k=8, more="", out="")
    (made,) = kernels(text)
    assert made.count("matmul") == 2
    assert len(kernels(text, max_products=1)) == 2


def test_products_of_other_rows_are_two_kernels() -> None:
    for k, more in ((8, ", float[s,8] z"), (5, ", float[s,5] z")):
        assert len(kernels(GATED.format(rows="z", k=k, more=more, out=""))) == 2


def test_products_that_repeat_their_rows_otherwise_are_two_kernels() -> None:
    """The one reads as many matrices of rows as there are, the other maybe the same one for all of a batch."""
    text = """g (float[b,s,8] x, float[b,8,6] a, float[c,8,6] d) => (float[i,s,6] y)
    { p = MatMul(x, a) g = Sigmoid(p) q = MatMul(x, d) y = Mul(g, q) }"""
    assert [made.count("matmul") for made in kernels(text)] == [1, 1]
    assert [made.count("matmul") for made in kernels(text.replace("[c", "[b"))] == [2]


def test_a_product_that_others_read_has_a_kernel_of_its_own() -> None:
    text = GATED.format(rows="x", k=8, more="", out=", float[s,6] q")
    assert len(kernels(text)) == 2


def test_what_computes_the_rows_of_several_products_is_stored() -> None:
    text = """g (float[s,8] x, float[8,6] a, float[8,6] b) => (float[s,6] y)
    { w = Softmax(x) p = MatMul(w, a) g = Sigmoid(p) q = MatMul(w, b) y = Mul(g, q) }"""
    assert sorted(made.count("matmul") for made in kernels(text)) == [0, 2]


def test_the_fallback_of_products_of_the_same_rows_is_one_for_each() -> None:
    text = """g (float[s,8] x, float[8,6] a, float[8,6] b, float[8,6] c) => (float[s,6] y)
    { p = MatMul(x, a) q = MatMul(x, b) r = MatMul(x, c) t = Mul(p, q) y = Add(t, r) }"""
    (subgraph,) = schedule(parser.parse_model(f"{HEADER} {text}")).report.subgraphs
    assert [[n.op for n in part.nodes].count("matmul") for part in subgraph.fallback] == [1, 1, 1]


def test_groups_of_heads_share_keys_without_copies() -> None:
    text = """g (float[b,4,s,8] q, float[b,2,8,t] k, float[b,2,t,8] v) => (float[b,4,s,8] y)
    <int64[1] axis = {2}, int64[5] wide = {1,1,2,1,1}, int64[4] ks = {0,4,8,-1}, int64[4] vs = {0,4,-1,8}>
    { ku = Unsqueeze(k, axis) ke = Expand(ku, wide) kk = Reshape(ke, ks)
      vu = Unsqueeze(v, axis) ve = Expand(vu, wide) vv = Reshape(ve, vs)
      p = MatMul(q, kk) w = Softmax(p) y = MatMul(w, vv) }"""
    (made,) = kernels(text)
    assert made.count("matmul") == 2


def test_a_limit_cuts_an_epilogue() -> None:
    text = """g (float[s,8] x, float[8,6] w) => (float[s,6] y)
    { p = MatMul(x, w) a = Exp(p) c = Neg(a) y = Sin(c) }"""
    assert kernels(text, max_epilogue=2) == [["matmul", "exp", "neg"], ["sin"]]


def test_no_cycle_through_a_reduction_over_other_axes() -> None:
    """a feeds b directly and through a gather; one kernel would need its own result."""
    text = """g (float[s,8] x, int64[s] i) => (float[s,8] y)
    { a = Exp(x) c = Gather<axis = 0>(a, i) y = Add(a, c) }"""
    made = kernels(text)
    assert len(made) == 2


def test_bytes_lie_between_kernels_where_floats_are_made_of_them() -> None:
    """The product's epilogue could take in what dequantises its result, but would store four times as many bytes."""
    text = """g (float[b,s,8] x, float[8,6] w, float[t] r, float[t,b,s,6] z) => (float[t,b,s,6] y)
    <float s = {0.1}, uint8 o = {3}>
    { p = MatMul(x, w) q = QuantizeLinear(p, s, o) d = DequantizeLinear(q, s, o) y = Add(d, z) }"""
    made = schedule(parser.parse_model(f"{HEADER} {text}"))
    producer, reader = made.report.subgraphs
    assert [value.dtype for value in producer.outputs] == [DType.UINT8]
    assert [node.op for node in reader.nodes] == ["cast", "sub", "mul", "add"]


def test_kernels_that_read_the_same_points_are_one() -> None:
    text = "g (float[s,8] x) => (float[s,8] y, float[s,8] z) { y = Sin(x) z = Cos(x) }"
    assert kernels(text) == [["sin", "cos"]]


def test_kernels_over_other_points_of_a_tensor_are_two() -> None:
    text = """g (float[s,8] x, float[t,s,8] w) => (float[s,8] y, float[t,s,8] z)
    { y = Sin(x) z = Add(x, w) }"""
    assert len(kernels(text)) == 2


SHARED = """g (float[1,20] x, float[{b},20] p, float[{c},20] q) => (float[{b},20] y, float[{c},20] z)
    {{ y = Add(x, p) z = Mul(x, q) }}"""


def test_kernels_that_read_a_tensor_by_broadcast_are_one() -> None:
    assert kernels(SHARED.format(b="b", c="b")) == [["add", "mul"]]
    assert len(kernels(SHARED.format(b="b", c=7))) == 1  # if b is 7
    assert len(kernels(SHARED.format(b=5, c=7))) == 2


def test_kernels_that_read_a_tensor_by_broadcast_are_speculated_on() -> None:
    made = schedule(parser.parse_model(f"{HEADER} {SHARED.format(b='b', c='c')}"))
    (subgraph,) = made.report.subgraphs
    assert [str(guard) for guard in subgraph.guards] == ["(b==c)"]
    assert [[node.op for node in part.nodes] for part in subgraph.fallback] == [["add"], ["mul"]]


def test_kernels_that_share_one_number_are_two() -> None:
    text = """g (float x, float[b] p, float[b] q) => (float[b] y, float[b] z)
    { y = Add(x, p) z = Mul(x, q) }"""
    made = schedule(parser.parse_model(f"{HEADER} {text}"))
    assert len(made.report.subgraphs) == 2
    assert "they read no tensor at the same points" in [d.reason for d in made.report.decisions]


def test_kernels_one_of_which_waits_for_the_other_are_two() -> None:
    text = """g (float[s,8] x, int64[s] i) => (float[s,8] z)
    { y = Sin(x) c = Gather<axis = 0>(y, i) e = Exp(c) z = Add(x, e) }"""
    assert len(kernels(text)) == 2


def test_no_kernel_only_moves_data_in_rotary_embedding() -> None:
    for name in ("llama", "qwen3"):
        for subgraph in schedule(str(TINY / f"{name}.onnx")).report.subgraphs:
            ops = {node.op for node in subgraph.nodes}
            assert ops - {"transpose", "reshape", "view", "broadcast_to"}, subgraph.name


def test_a_concat_of_a_concat_is_written_once() -> None:
    text = """g (float[a,2] x, float[c,3] y, float[d,5] p) => (float[e,5] z)
    { u = Exp(x) v = Exp(y) j = Concat<axis = 1>(u, v) q = Neg(p) z = Concat<axis = 0>(q, j) }"""
    assert all(ops[0] != "reshape" for ops in kernels(text))
    assert len(kernels(text)) == 3


def test_repeated_pads_of_an_image_copy_it_once() -> None:
    """Those of rows lie beside those of columns, out of which they read."""
    for mode in ("edge", "reflect", "wrap"):
        text = f"""g (float[n,2,h,w] x) => (float[n,2,a,b] y)
        <int64[8] p = {{0,0,1,2,0,0,2,1}}> {{ y = Pad<mode = "{mode}">(x, p) }}"""
        assert len(copies(text)) == 1


def test_a_gather_of_a_concat_that_tells_the_extent_of_another_reads_its_own() -> None:
    text = """g (float[a,2] x, float[c,2] y, int64[i] i) => (float[e,2] z)
    { u = Exp(x) v = Exp(y) j = Concat<axis = 0>(u, v) w = Gather(j, i) t = NonZero(w)
      k = Transpose(t) f = Cast<to = 1>(k) z = Concat<axis = 0>(w, j, f) }"""
    assert "j" in copies(text)


def test_a_decoder_copies_only_what_was_in_the_cache() -> None:
    """And the new values: their heads are columns of one matrix product, which stores them side by side."""
    moved = copies(str(TINY / "llama_decode.onnx"))
    past = [f"past_{part}_{layer}" for part in ("key", "value") for layer in (0, 1)]
    assert sorted(moved) == ["linear_2", "linear_9", *past]


def test_unknown_equality_is_speculated_on() -> None:
    text = "g (float[b] x, float[c] y) => (float[d] z) { a = Exp(x) z = Add(a, y) }"
    made = schedule(parser.parse_model(f"{HEADER} {text}"))
    (subgraph,) = made.report.subgraphs
    assert len(subgraph.guards) == 1
    assert [len(part.nodes) for part in subgraph.fallback] == [1, 1]
    (decision,) = [d for d in made.report.decisions if d.verdict is Verdict.SPECULATE]
    assert decision.symbols == ("b", "c")


def test_what_a_guard_says_holds_for_all_of_a_kernel() -> None:
    """Bytes are widened where they are read, though whether they are as many as the other operand's only a run tells."""
    model = parser.parse_model(f"""{HEADER} g (float[b,8] x, uint8[c,8] q) => (float[d,8] z)
    <float s = {{0.5}}, uint8 o = {{3}}> {{ f = DequantizeLinear(q, s, o) z = Mul(x, f) }}""")
    (subgraph,) = schedule(model).report.subgraphs
    assert [node.op for node in subgraph.nodes] == ["cast", "sub", "mul", "mul"]
    assert len(subgraph.guards) == 1
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    q = np.arange(60, 100, dtype=np.uint8).reshape(5, 8)
    optimized = dvm_graph.optimize(model)
    for rows, others in ((5, 5), (5, 1), (1, 5), (1, 1)):
        (z,) = optimized.run({"x": x[:rows], "q": q[:others]})
        np.testing.assert_array_equal(z, x[:rows] * ((q[:others].astype(np.float32) - 3) * 0.5))


def test_the_fallback_of_a_prologue_has_none() -> None:
    """Not even where the rows of the result stay in local memory, too, and a view takes the store."""
    text = """g (float[b,64] x, float[64] s, float[64,32] w, float[32] t) => (float[32,b] y) {
        a = LayerNormalization(x, s) p = MatMul(a, w)
        q = LayerNormalization(p, t) y = Transpose<perm = [1, 0]>(q) }"""
    (subgraph,) = schedule(parser.parse_model(f"{HEADER} {text}")).report.subgraphs
    assert subgraph.weighed
    before, product = ([node.op for node in part.nodes] for part in subgraph.fallback)
    assert "matmul" not in before and before.count("rsqrt") == 1
    assert "matmul" in product and product.count("rsqrt") == 1


def test_every_refusal_has_a_reason() -> None:
    made = schedule(str(TINY / "bert.onnx"))
    assert made.report.decisions
    assert all(decision.reason for decision in made.report.decisions)


def test_bert_shares_stages_and_absorbs_all_transposes() -> None:
    made = schedule(str(TINY / "bert.onnx"))
    assert not any(
        subgraph.nodes[-1].op == "transpose"
        for subgraph in made.report.subgraphs
        if len(subgraph.nodes) == 1
    )
    launches = [step for step in made.steps if isinstance(step, Launch)]
    assert len(launches) == 1
    widths = [len(stage) for stage in launches[0].stages]
    assert sum(width >= 3 for width in widths) >= 2  # queries, keys and values of both layers
    for subgraph in made.report.subgraphs:
        ops = [node.op for node in subgraph.nodes]
        assert set(ops) - {"transpose", "reshape", "view"}, "a kernel that only moves data"


def decisions(text: str, **limits: object) -> dict[Verdict, list[str]]:
    options = Options(fuse=False, limits=FusionLimits(**limits))
    made: dict[Verdict, list[str]] = {}
    for decision in schedule(parser.parse_model(f"{HEADER} {text}"), options).report.decisions:
        made.setdefault(decision.verdict, []).append(f"{decision.subject}: {decision.reason}")
    return made


def test_stacking_has_a_reason() -> None:
    side_by_side = "g (float[b] x) => (float[b] y, float[b] z, float[b] w) { y = Abs(x) z = Exp(x) w = Log(x) }"
    (together,) = decisions(side_by_side)[Verdict.PARALLEL]
    assert together.endswith("independent: one stage")
    cut = decisions(side_by_side, max_parallel=2)
    assert [text.count(",") for text in cut[Verdict.PARALLEL]] == [1]
    assert any("limits.max_parallel" in text for text in cut[Verdict.SEQUENCE])
    chain = "g (float[b] x) => (float[b] y) { a = Abs(x) c = Exp(a) y = Log(c) }"
    assert Verdict.SEPARATE not in decisions(chain)
    (apart,) = decisions(chain, max_sequence=2)[Verdict.SEPARATE]
    assert "limits.max_sequence" in apart


def stages(text: str, **limits: object) -> list[list[str]]:
    """The operators that store, by stage, each kernel an operator."""
    options = Options(fuse=False, limits=FusionLimits(**limits))
    made = schedule(parser.parse_model(f"{HEADER} {text}"), options)
    return [
        [subgraph.nodes[-1].op for subgraph in stage]
        for step in made.steps
        if isinstance(step, Launch)
        for stage in step.stages
    ]


def test_a_vector_kernel_that_waits_for_nothing_runs_just_before_its_readers() -> None:
    text = """g (float[b] x, float[b] y) => (float[b] z, float[b] w)
    { n = Neg(y) a = Abs(x) c = Exp(a) d = Log(c) w = Sqrt(y) z = Add(d, n) }"""
    assert stages(text) == [["abs", "sqrt"], ["exp"], ["neg", "log"], ["add"]]
    # No room later: it stays where it is, and no stage is left without kernels.
    assert stages(text, max_parallel=1) == [
        [op] for op in ("neg", "abs", "exp", "log", "sqrt", "add")
    ]
    product = """g (float[b,4] x, float[4,4] w, float[b,4] y) => (float[b,4] z)
    { p = MatMul(x, w) a = Abs(y) c = Exp(a) z = Add(c, p) }"""
    assert stages(product) == [["matmul", "abs"], ["exp"], ["add"]]


def test_a_cache_is_copied_just_before_it_is_read_through_a_join() -> None:
    text = """g (float[s,4] x, float[t,4] past, float[4,4] w) => (float[u,4] present, float[u,4] z)
    { p = MatMul(x, w) k = Exp(p) present = Concat<axis = 0>(past, k) z = Abs(present) }"""
    made = stages(text)
    copied = next(i for i, stage in enumerate(made) if "reshape" in stage)
    assert made[0] == ["matmul"]
    assert made[copied + 1] == ["abs"]


def test_the_schedule_is_deterministic() -> None:
    first, second = (schedule(str(TINY / "llama.onnx")) for _ in range(2))
    assert [s.name for s in first.report.subgraphs] == [s.name for s in second.report.subgraphs]
    assert first.report.decisions == second.report.decisions
