"""Linear attention and convolutions with a state, whose bodies onnx gives, beside onnxruntime: a state is what a run hands on."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from tests.end_to_end.reference import session

Array = np.ndarray[Any, Any]


def model(
    op: str, attributes: dict[str, Any], inputs: dict[str, list[Any]], opset: int
) -> onnx.ModelProto:
    """An operator of two results over float32 tensors of these dims; one without dims is left out."""
    names = [name if dims else "" for name, dims in inputs.items()]
    node = helper.make_node(op, names, ["y", "state"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
            for name, dims in inputs.items()
            if dims
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "state")],
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def agrees(proto: onnx.ModelProto, shapes: list[dict[str, int]]) -> None:
    compiled, reference = dvm_graph.optimize(proto), session(proto)
    assert compiled.report().vendor_operators == ()
    generator = np.random.default_rng(0)
    for extents in shapes:
        feeds: dict[str, Array] = {}
        for info in proto.graph.input:
            dims = info.type.tensor_type.shape.dim
            shape = [extents[d.dim_param] if d.dim_param else d.dim_value for d in dims]
            drawn = generator.standard_normal(shape).astype(np.float32) / 2
            feeds[info.name] = -np.abs(drawn) if info.name == "decay" else drawn
        wanted = reference.run(None, feeds)
        for got, want in zip(compiled.run(feeds), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_attention(rule: str, state: bool, heads: tuple[int, int]) -> None:
    queries, keys = heads
    inputs = {
        "query": ["n", "t", queries * 8],
        "key": ["n", "t", keys * 8],
        "value": ["n", "t", keys * 6],
        "past": ["n", keys, 8, 6] if state else [],
        "decay": ["n", "t", keys * 8 if state else keys] if "gated" in rule else [],
        "beta": ["n", "t", keys] if "delta" in rule else [],
    }
    attributes = {"q_num_heads": queries, "kv_num_heads": keys, "update_rule": rule}
    proto = model("LinearAttention", attributes, inputs, 27)
    agrees(proto, [{"n": n, "t": t} for n, t in ((2, 5), (1, 1), (3, 37))])


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("opset", [27, 28])
def test_convolution(opset: int, state: bool, activation: str) -> None:
    """At opset 28, where operators of the body have newer forms, which onnx then gives no body of."""
    inputs = {
        "x": ["n", 6, "t"],
        "weight": [6, 1, 4],
        "bias": [6] if state else [],
        "past": ["n", 6, 3] if state else [],
    }
    proto = model("CausalConvWithState", {"activation": activation}, inputs, opset)
    agrees(proto, [{"n": n, "t": t} for n, t in ((2, 5), (1, 1), (3, 37))])
