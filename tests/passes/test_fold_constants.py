"""Operators on constants are computed, where that is what a run would compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.import_ import compute_vendor
from dvm_graph.ir import DType, Node, Value
from dvm_graph.passes import (
    fold_constants,
)
from tests.decompose.reference import session
from tests.passes.sketch import Sketch


def test_constants_fold(sketch: Sketch) -> None:
    weights = sketch.graph.constant(np.arange(200, dtype=np.float32))
    result = sketch.build.op("add", sketch.input("b", 200), sketch.build.op("neg", weights))
    sketch.graph.outputs = [result]
    fold_constants(sketch.graph, compute_vendor)
    assert [node.op for node in sketch.graph.nodes] == ["add"]
    folded = result.producer.inputs[1]
    np.testing.assert_array_equal(folded.data, -np.arange(200))


def test_constants_fold_through_large_views(sketch: Sketch) -> None:
    """As projections of a table of relative positions."""
    table, weights = (np.random.default_rng(n).standard_normal((160, 160)) for n in range(2))
    rows, by = (sketch.graph.constant(a.astype(np.float32)) for a in (table, weights))
    turned = sketch.build.op("transpose", by, perm=(1, 0))
    product = sketch.build.op("matmul", sketch.build.op("transpose", rows, perm=(1, 0)), turned)
    result = sketch.build.op("add", sketch.input("b", 160), product)
    sketch.graph.outputs = [result]
    fold_constants(sketch.graph, compute_vendor)
    folded = result.producer.inputs[1]
    np.testing.assert_allclose(folded.data, table.T @ weights.T, rtol=1e-4, atol=1e-4)


def test_what_is_made_of_repeated_constants_is_kept_where_it_takes_more_memory(
    sketch: Sketch,
) -> None:
    weights = sketch.graph.constant(np.arange(4096, dtype=np.float32).reshape(1, 4096))
    repeated = sketch.build.op("broadcast_to", weights, shape=(128, 4096))
    result = sketch.build.op("neg", repeated)
    sketch.graph.outputs = [result]
    assert not fold_constants(sketch.graph, compute_vendor)
    assert [node.op for node in sketch.graph.sorted_nodes()] == ["broadcast_to", "neg"]


def test_views_that_strides_tell_are_kept_and_others_folded(sketch: Sketch) -> None:
    """The gates of recurrent weights in another order, and heads that are turned around."""
    weights = np.random.default_rng(0).standard_normal((64, 4, 32)).astype(np.float32)
    constant, build = sketch.graph.constant(weights), sketch.build
    turned = build.op("transpose", constant, perm=(1, 2, 0))
    rows = build.op("slice", turned, starts=(3, 0, 0), sizes=(4, 32, 64), steps=(-1, 1, 1))
    flat = build.op("reshape", rows, shape=(128, 64))
    halves = [
        build.op("slice", flat, starts=(start, 0), sizes=(64, 64), steps=(1, 1))
        for start in (64, 0)
    ]
    joined = build.op("concat", *halves, axis=0)
    fed = sketch.input("b", 128, 64)
    sketch.graph.outputs = [
        build.op("mul", sketch.input("c", 4, 32, 64), rows),
        build.op("add", fed, flat),
        build.op("sub", fed, joined),
    ]
    assert fold_constants(sketch.graph, compute_vendor)
    assert sorted(node.op for node in sketch.graph.needed_nodes()) == [
        *("add", "mul", "slice", "sub", "transpose")
    ]
    flattened = weights.transpose(1, 2, 0)[::-1].reshape(128, 64)
    added, subtracted = (value.producer.inputs[1] for value in sketch.graph.outputs[1:])
    np.testing.assert_array_equal(added.data, flattened)
    np.testing.assert_array_equal(subtracted.data, np.roll(flattened, 64, axis=0))


def test_views_that_no_strides_tell_are_kept_where_they_take_more_memory(sketch: Sketch) -> None:
    weights = sketch.graph.constant(np.arange(4096, dtype=np.float32).reshape(1, 64, 64))
    repeated = sketch.build.op("broadcast_to", weights, shape=(128, 64, 64))
    flat = sketch.build.op("reshape", repeated, shape=(128 * 64, 64))
    sketch.graph.outputs = [sketch.build.op("add", sketch.input("b", 128 * 64, 64), flat)]
    assert not fold_constants(sketch.graph, compute_vendor)


VENDOR_OF_CONSTANTS = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[n, 4] x) => (float[n, 4] y)
    <float[4] zeros = {0, 0, 0, 0}, float[3] u = {5, 6, 7}, int64 a = {1}, int64 b = {4}, int64 c = {1},
     int64[2] shape = {3, 1}>
    { r = Range(a, b, c) i = Reshape(r, shape) s = ScatterND(zeros, i, u) t = OP y = Add(x, t) }"""


@pytest.mark.parametrize("op", ["ScatterND(s, i, u)", "Identity(s)", "ScatterND(zeros, i, u)"])
def test_vendor_operators_of_constants_fold(op: str) -> None:
    model = onnx.parser.parse_model(VENDOR_OF_CONSTANTS.replace("OP", op))
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    (found,) = dvm_graph.optimize(model, strict=True).run({"x": x})
    np.testing.assert_array_equal(found, x + np.array([0, 5, 6, 7], np.float32))


def test_sums_of_the_vendor_are_rounded_where_they_fold() -> None:
    """Translation validation does not take that for another value."""
    generator = np.random.default_rng(3)
    columns = ", ".join(f"{x:.8f}" for x in generator.uniform(-2, 2, 2 * 12 * 9))
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 3, 1, 1] x) => (float[n, 3, 1, 1] y, float[2, 3, 1, 1] p)
        <float[2, 12, 9] c = {{{columns}}}, int64[2] size = {{4, 4}}, int64[2] block = {{2, 2}},
         int64[1] a = {{0}}, int64[1] b = {{1}}>
        {{ v = Col2Im(c, size, block) p = GlobalAveragePool(v) q = Slice(p, a, b) y = Add(x, q) }}"""
    )
    dvm_graph.optimize(model, check=True)


def test_what_is_drawn_at_random_does_not_fold() -> None:
    model = onnx.parser.parse_model(VENDOR_OF_CONSTANTS.replace("OP", "RandomUniformLike(s)"))
    mine = dvm_graph.optimize(model)
    x = np.zeros((1, 4), np.float32)
    assert not np.array_equal(mine.run({"x": x}), mine.run({"x": x}))


@pytest.mark.parametrize("op", ["RandomNormalLike(d)", "Bernoulli(d)", "ScatterND(d, i, u)"])
def test_what_vendor_operators_read_is_not_kept_whole(op: str, tmp_path: Path) -> None:
    """A number that is expanded stays one, whether what is made of it folds or not."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[1000, 1000] x) => (float[1000, 1000] y, float[1000, 1000] z)
        <float one = {1}, int64[2] shape = {1000, 1000}, int64[1, 2] i = {3, 4}, float[1] u = {5}>
        { d = Expand(one, shape) s = OP y = Add(x, s) z = Mul(x, d) }""".replace("OP", op)
    )
    path = tmp_path / "model.dvm"
    dvm_graph.optimize(model).save(path)
    assert path.stat().st_size < 1e5


def test_an_index_that_is_out_of_range_behind_a_vendor_operator_is_for_the_run() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2] x) => (float[2] y)
        <float one = {1}, int64[1] shape = {5000}, int64[2] k = {1, 9000}, int64[1, 1] i = {0},
         float[1] u = {5}>
        { d = Expand(one, shape) g1 = Gather(d, k) s = ScatterND(g1, i, u) y = Add(x, s) }"""
    )
    mine = dvm_graph.optimize(model)
    with pytest.raises(dvm_graph.ExecutionError, match=r"kernel .* index 9000 is out of range"):
        mine.run({"x": np.zeros(2, np.float32)})


def test_long_chains_of_constants_fold(sketch: Sketch) -> None:
    """Without a call of Python for each link."""
    value = sketch.build.op("broadcast_to", sketch.number(1.0), shape=(70, 70))
    for _ in range(1500):
        value = sketch.build.op("neg", value)
    node = Node("v", "vendor", (value,), (Value("w", DType.FLOAT32, (70, 70)),), {"op": "Det"})
    sketch.graph.add(node)
    sketch.graph.outputs = [node.output]
    assert fold_constants(sketch.graph, lambda node: [node.required(0).data])
    np.testing.assert_array_equal(sketch.graph.outputs[0].data, np.ones((70, 70)))


def test_what_the_vendor_refuses_does_not_fold() -> None:
    """An index out of range is for the run to tell, if anybody asks for the result."""
    model = onnx.parser.parse_model(
        VENDOR_OF_CONSTANTS.replace("int64 b = {4}", "int64 b = {9}")
        .replace("int64 c = {1}", "int64 c = {3}")
        .replace("OP", "Identity(s)")
    )
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(model).run({"x": np.zeros((1, 4), np.float32)})


ARRANGED_IN_EVERY_TURN = """<ir_version: 8, opset_import: ["" : 17]>
    g (int64 n, float[1, b, 32] x, float[1, b, 32] c) => (float[1, b, 32] y, float[1, b, 32] z)
    <int64[1] zero = {0}, int64[1] q = {32}, int64[1] t = {96}, int64[1] e = {128}>
    {
      y, z = Loop (n, "", x, c) <
        body = turn (int64 i, bool go, float[1, b, 32] h, float[1, b, 32] k) =>
          (bool on, float[1, b, 32] next, float[1, b, 32] cell) {
            on = Identity(go)
            w1 = Slice(w, zero, q, zero) w2 = Slice(w, t, e, zero) w3 = Slice(w, q, t, zero)
            w4 = Concat<axis = 0>(w1, w2, w3) w5 = Unsqueeze(w4, zero)
            r1 = Slice(r, zero, q, zero) r2 = Slice(r, t, e, zero) r3 = Slice(r, q, t, zero)
            r4 = Concat<axis = 0>(r1, r2, r3) r5 = Unsqueeze(r4, zero)
            all, next, cell = LSTM<hidden_size = 32>(h, w5, r5, "", "", h, k)
          }
      >
    }"""


def test_weights_that_turns_arrange_are_arranged_once() -> None:
    """As torch exports an LSTMCell in a scripted loop."""
    rng = np.random.default_rng(0)
    proto = onnx.parser.parse_model(ARRANGED_IN_EVERY_TURN)
    for name in ("w", "r"):
        array = rng.standard_normal((128, 32)).astype(np.float32)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    model, reference = dvm_graph.optimize(proto, strict=True), session(proto)
    bodies = [body for kernel in model.report().subgraphs for body in kernel.bodies]
    kernels = [kernel for body in bodies for kernel in body.subgraphs if kernel.is_kernel]
    copies = [k.name for k in kernels if all(operator.is_view for operator in k.operators)]
    assert len(copies) == 1, copies  # whether it goes on
    for turns, batch in ((0, 2), (1, 1), (5, 3)):
        feeds = {
            "n": np.array(turns),
            "x": rng.standard_normal((1, batch, 32)).astype(np.float32),
            "c": rng.standard_normal((1, batch, 32)).astype(np.float32),
        }
        for ours, theirs in zip(model.run(feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
