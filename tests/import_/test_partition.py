"""Vendor partitions: what goes in through import comes out as a model that computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from dvm_graph.errors import UnsupportedError
from dvm_graph.import_ import infer_vendor, opset_probes, partition_model, partition_opset
from dvm_graph.ir import DType, Graph
from dvm_graph.symbolic import Facts, Symbols
from tests.import_.models import load, nodes_by_op, parse
from tests.import_.test_importer import IF, LOOP

X = np.array([0.5, -2.0, 3.0], np.float32)


def whole(graph: Graph) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(
        partition_model(graph.sorted_nodes(), graph.inputs, graph.outputs)
    )


def infer_all(graph: Graph, symbols: Symbols) -> None:
    facts = Facts(symbols)
    for node in graph.sorted_nodes():
        infer_vendor(node, facts)


def run(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return list(session.run(None, feeds))


MODELS: list[tuple[str, int, dict[str, Any]]] = [
    (IF, 20, {"c": np.array(True), "x": X}),
    (IF, 13, {"c": np.array(False), "x": X}),
    (LOOP, 20, {"trips": np.array(3), "go": np.array(True), "x": X, "k": X[::-1].copy()}),
    (
        "g (float[1, n] x) => (float[n] y) { t = Squeeze <axes = [0]> (x)\n"
        " y = Clip <min = -1.0, max = 1.0> (t) }",
        7,
        {"x": X[None]},
    ),
    (
        "g (float[a, b] x) => (float[a, b] y) { t = Softmax <axis = 0> (x)\n y = Neg(t) }",
        11,
        {"x": np.outer(X, X)},
    ),
    (
        "g (float[n] x) => (float[m] y) <float[3] w = {1, 2, 3}> { t = Add(x, w)\n"
        ' s = Constant <value_ints: ints = [1]> ()\n y = Slice(t, s, e, "", s)\n'
        " u = Identity(s) }".replace(
            "y = Slice", "e = Constant <value_ints: ints = [3]> ()\n y = Slice"
        ),
        13,
        {"x": X},
    ),
]


@pytest.mark.parametrize(("text", "opset", "feeds"), MODELS, ids=range(len(MODELS)))
def test_whole_models(text: str, opset: int, feeds: dict[str, Any]) -> None:
    model = parse(text, opset)
    model.ir_version = 8
    symbols = Symbols()
    graph = load(model, symbols)
    infer_all(graph, symbols)
    for expected, got in zip(run(model, feeds), run(whole(graph), feeds), strict=True):
        np.testing.assert_array_equal(expected, got)


def test_a_part_takes_its_inputs_under_the_graphs_names() -> None:
    symbols = Symbols()
    graph = load(parse(IF), symbols)
    infer_all(graph, symbols)
    node = nodes_by_op(graph)["If"]
    inputs = [value for value in node.inputs if value is not None]
    model = onnx.ModelProto.FromString(partition_model([node], inputs, node.outputs))
    assert [info.name for info in model.graph.input] == ["c", "t", "x"]
    feeds = {"c": np.array(True), "t": X, "x": X}
    np.testing.assert_array_equal(run(model, feeds)[0], X + X)


def test_renamed_values_reach_into_subgraphs() -> None:
    symbols = Symbols()
    graph = load(parse(LOOP), symbols)
    infer_all(graph, symbols)
    for value in (*graph.inputs, *graph.outputs):
        value.name = f"renamed/{value.name}"
    feeds = dict(MODELS[2][2])
    renamed = {f"renamed/{name}": array for name, array in feeds.items()}
    for expected, got in zip(run(parse(LOOP), feeds), run(whole(graph), renamed), strict=True):
        np.testing.assert_array_equal(expected, got)


def test_opset_that_the_vendor_can_run() -> None:
    (node,) = load(parse("g (float[n] x) => (int32[n] y) { y = Cast <to = 6> (x) }", 25)).nodes
    assert partition_opset([node]) == 25
    assert partition_opset([node], newest=19) == 19
    (softmax,) = load(parse("g (float[n] x) => (float[n] y) { y = Softmax(x) }", 11)).nodes
    assert partition_opset([softmax], newest=20) == 11
    assert partition_opset([softmax, node]) == 11
    (attention,) = load(
        parse("g (float[n, s, 4] x) => (float[n] y)"
              " { y = Attention <q_num_heads = 1, kv_num_heads = 1> (x, x, x) }", 23)
    ).nodes  # fmt: skip
    assert partition_opset([softmax, attention]) is None
    with pytest.raises(UnsupportedError, match="up to 20"):
        partition_model([attention], [], attention.outputs, newest_opset=20)


# -- inference


def infer(text: str, opset: int = 20) -> tuple[Any, Symbols]:
    symbols = Symbols()
    graph = load(parse(text, opset), symbols)
    infer_all(graph, symbols)
    return graph.outputs[0], symbols


def test_symbols_pass_through() -> None:
    value, symbols = infer("g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
    assert value.shape == (symbols.get("n"), 4)
    assert value.dtype is DType.FLOAT32


def test_contents_of_constants_count() -> None:
    value, symbols = infer(
        "g (float[n, 4] x) => (float[a, b, c] y) <int64[3] s = {0, 2, 2}> { y = Reshape(x, s) }"
    )
    assert value.shape == (symbols.get("n"), 2, 2)


def test_moved_attributes_do_not_disturb() -> None:
    value, symbols = infer(
        "g (float[n, 1] x) => (float[n] y) { y = Squeeze <axes = [1]> (x) }", opset=9
    )
    assert value.shape == (symbols.get("n"),)


def test_contents_that_are_dims_count() -> None:
    symbols = Symbols()
    graph = load(
        parse("g (float[k] v, int64[2] s) => (float[a, b] y) { y = Expand(v, s) }"), symbols
    )
    n = symbols.get("n")
    graph.inputs[1].elements = (n, 7)
    graph.inputs[0].shape = (1,)
    infer_all(graph, symbols)
    assert graph.outputs[0].shape == (n, 7)


def test_dims_that_only_the_run_tells_are_fresh_symbols() -> None:
    value, symbols = infer("g (float[n, m] x) => (int64[r, c] y) { y = NonZero(x) }")
    assert value.dtype is DType.INT64
    assert value.shape[0] == 2
    assert value.shape[1] in symbols.order
    assert value.shape[1] not in (symbols.get("n"), symbols.get("m"))


def test_resize_keeps_its_rank() -> None:
    value, _ = infer(
        'g (float[n, 3, h, w] x, float[4] s) => (float[a, b, c, d] y) { y = Resize(x, "", s) }'
    )
    assert len(value.shape) == 4


def test_branches_that_differ_give_fresh_dims() -> None:
    value, symbols = infer(
        "g (bool c, float[n] x, float[m] z) => (float[k] y) { y = If (c) <"
        " then_branch = p () => (float[n] a) { a = Neg(x) },"
        " else_branch = q () => (float[m] b) { b = Neg(z) } > }"
    )
    assert len(value.shape) == 1
    assert value.shape[0] not in (symbols.get("n"), symbols.get("m"))


def test_sequences_stay_opaque_with_their_type() -> None:
    value, _ = infer("g (float[n] x) => (seq(float) y) { y = SequenceConstruct(x, x) }")
    assert value.dtype is DType.OPAQUE
    assert onnx.TypeProto.FromString(value.opaque_type).HasField("sequence_type")


def test_declared_rank_counts_where_inference_finds_none() -> None:
    symbols = Symbols()
    text = "g (float[n, m] x, int64[k] s) => (float[a, b, c] y) { y = Reshape(x, s) }"
    graph = load(parse(text), symbols)
    infer_all(graph, symbols)
    assert graph.outputs[0].rank == 3
    assert set(graph.outputs[0].shape or ()) <= set(symbols.order)


def test_probes_go_down_from_the_newest_opset() -> None:
    probes = list(opset_probes())
    versions = [version for version, _ in probes]
    assert versions == list(range(onnx.defs.onnx_opset_version(), 6, -1))
    assert run(onnx.ModelProto.FromString(probes[-1][1]), {"x": X[:1]})[0] == X[0]
