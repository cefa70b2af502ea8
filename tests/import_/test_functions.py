"""Function bodies compute what the operator computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from dvm_graph.backend.conformance import node_tests
from dvm_graph.import_ import expand_function, infer_vendor, partition_model
from dvm_graph.ir import DType, Graph, Node
from dvm_graph.symbolic import Facts, Symbols
from tests.import_.models import load, parse


def expand(graph: Graph) -> list[Node]:
    (node,) = graph.nodes
    body = expand_function(node, node.inputs, graph)
    assert body is not None
    return body


def test_attributes_and_operands_are_put_in() -> None:
    graph = load(parse("g (float[n] x) => (float[n] y) { y = LeakyRelu <alpha = 0.5> (x) }", 16))
    body = expand(graph)
    constants = [v.data for node in body for v in node.inputs if v is not None and v.is_constant]
    assert 0.5 in [float(data.reshape(-1)[0]) for data in constants if data is not None]
    assert body[-1].output is graph.outputs[0]
    assert any(graph.inputs[0] in node.inputs for node in body)
    assert {node.origin for node in body} == {next(iter(graph.nodes)).origin}


def test_defaults_are_put_in() -> None:
    body = expand(load(parse("g (float[n] x) => (float[n] y) { y = Elu(x) }", 22)))
    constants = [v.data for node in body for v in node.inputs if v is not None and v.is_constant]
    assert 1.0 in [float(data.reshape(-1)[0]) for data in constants if data is not None]


def test_operators_without_a_body() -> None:
    graph = load(parse("g (float[n] x) => (float[n] y) { y = Sin(x) }"))
    (node,) = graph.nodes
    assert expand_function(node, node.inputs, graph) is None


def test_old_forms_expand_in_their_newest_form() -> None:
    graph = load(
        parse("g (float[n, m] x) => (float[n, 1] y) { y = ReduceSumSquare <axes = [1]> (x) }", 13)
    )
    body = expand(graph)
    axes = [v for v in body[-1].inputs if v is not None and v.dtype is DType.INT64]
    assert axes and axes[0].data is not None and axes[0].data.tolist() == [1]


NAMES = [
    "test_attention_4d", "test_attention_3d_gqa", "test_attention_4d_causal",
    "test_celu", "test_clip", "test_clip_default_min", "test_elu", "test_gelu_tanh_1",
    "test_greater_equal", "test_group_normalization_example", "test_hardswish",
    "test_layer_normalization_4d_axis1", "test_layer_normalization_default_axis",
    "test_logsoftmax_axis_1", "test_mish", "test_nllloss_NCd1_weight_ii", "test_nllloss_NC",
    "test_range_int32_type_negative_delta", "test_reduce_log_sum_exp_keepdims_example",
    "test_rms_normalization_2d_axis0", "test_rotary_embedding", "test_sce_mean_weight",
    "test_softmax_axis_0", "test_softplus", "test_dynamicquantizelinear",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_body_against_the_operators_own_test_data(name: str) -> None:
    (case,) = node_tests(f"^{name}$")
    assert case.model is not None and case.data_sets is not None
    symbols = Symbols()
    graph = load(case.model, symbols)
    body = expand(graph)
    facts = Facts(symbols)
    for node in body:
        infer_vendor(node, facts)
    model = partition_model(body, graph.inputs, graph.outputs, newest_opset=23)
    inputs, expected = case.data_sets[0]
    feeds = {value.name: array(data) for value, data in zip(graph.inputs, inputs, strict=True)}
    session = onnxruntime.InferenceSession(model)
    for got, wanted in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(got, array(wanted), rtol=case.rtol, atol=1e-5)


def array(data: Any) -> Any:
    return (
        onnx.numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(data)
    )
