"""SequenceMap, and Scan of opset 8 over batches of sequences of any lengths, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.test_sequences import agrees, assert_same, normal

MAPPED = """g (seq(float[a, b]) s, seq(float[a, b]) t, float[k] w) => (seq(float[c, d]) y, seq(float[e]) z) {
  y, z = SequenceMap(s, t, w) <
    body = each (float[a, b] one, float[a, b] two, float[k] three) => (float[c, d] u, float[e] v) {
      sum = Add(one, two)
      u = Tanh(sum)
      axes = Constant<value_ints = [0]>()
      m = ReduceMax<keepdims = 0>(u, axes)
      v = Add(m, three)
    }
  >
}"""


def test_sequence_map() -> None:
    def parts(*rows: int) -> list[Any]:
        return [normal(n, 3) for n in rows]

    w = normal(3)
    agrees(MAPPED, *({"s": parts(*n), "t": parts(*n), "w": w} for n in ((2, 4, 1), (5,), ())))


def scan(*, lengths: bool, directions: tuple[int, ...]) -> onnx.ModelProto:
    """A state and two scanned tensors, one result that is collected, over a batch."""
    floats = TensorProto.FLOAT
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "a"], ["sa"]),
            helper.make_node("Mul", ["sa", "b"], ["next"]),
            helper.make_node("Tanh", ["next"], ["out"]),
        ],
        "body",
        [helper.make_tensor_value_info(name, floats, ["h"]) for name in ("s", "a", "b")],
        [helper.make_tensor_value_info(name, floats, ["h"]) for name in ("next", "out")],
    )
    node = helper.make_node(
        "Scan",
        ["lens" if lengths else "", "x", "p", "q"],
        ["last", "all"],
        body=body,
        num_scan_inputs=2,
        directions=directions,
    )
    inputs = [
        helper.make_tensor_value_info("x", floats, ["batch", "h"]),
        helper.make_tensor_value_info("p", floats, ["batch", "rows", "h"]),
        helper.make_tensor_value_info("q", floats, ["batch", "rows", "h"]),
    ]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lens", TensorProto.INT64, ["batch"]))
    outputs = [
        helper.make_tensor_value_info("last", floats, ["batch", "h"]),
        helper.make_tensor_value_info("all", floats, ["batch", "rows", "h"]),
    ]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)


@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("directions", [(0, 0), (1, 0)])
def test_scan_of_opset_8(lengths: bool, directions: tuple[int, ...]) -> None:
    proto = scan(lengths=lengths, directions=directions)
    model, reference = dvm_graph.optimize(proto, strict=not lengths), session(proto)
    for batch, rows, h in ((3, 5, 4), (1, 7, 2), (4, 1, 3), (3, 5, 4)):
        feeds = {"x": normal(batch, h), "p": normal(batch, rows, h), "q": normal(rows, batch, h)}
        feeds["q"] = feeds["q"].transpose(1, 0, 2).copy()
        if lengths:
            feeds["lens"] = np.array([rows - at % rows for at in range(batch)], np.int64)
        for got, want in zip(model.run(feeds), reference.run(None, feeds), strict=True):
            assert_same(got, want)
