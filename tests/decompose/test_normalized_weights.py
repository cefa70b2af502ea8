"""Weights that exporters leave to be normalized are constants to what reads them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import dvm_graph
from tests.decompose.reference import decomposed, session
from tests.tolerances import assert_close

MODEL = """<ir_version: 8, opset_import: ["" : 18]>
g (float[n, 8, h, 9] x) => (float[n, 16, a, b] y)
<float[16, 1, 1, 1] g, float[16, 8, 3, 3] v>
{
  norm = ReduceL2 <keepdims: int = 1> (v, axes)
  unit = Div (v, norm)
  w = Mul (unit, g)
  WEIGHTS
  y = Conv <pads: ints = [1, 1, 1, 1]> (x, weights)
}"""


@pytest.mark.parametrize(
    "weights",
    [
        "weights = Identity (w)",
        "flat = Reshape (w, rows)\n weights = Reshape (flat, whole)",
        "turned = Transpose <perm: ints = [3, 2, 1, 0]> (w)\n"
        "weights = Transpose <perm: ints = [3, 2, 1, 0]> (turned)",
    ],
)
def test_they_are_computed_once(weights: str) -> None:
    model = onnx.parser.parse_model(MODEL.replace("WEIGHTS", weights))
    random = np.random.default_rng(0)
    constants = {
        "g": random.uniform(1, 2, (16, 1, 1, 1)).astype(np.float32),
        "v": random.standard_normal((16, 8, 3, 3)).astype(np.float32),
        "axes": np.array([1, 2, 3]),
        "rows": np.array([16, -1]),
        "whole": np.array([16, 8, 3, 3]),
    }
    del model.graph.initializer[:]
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in constants.items())
    graph = decomposed(model)
    assert {"div", "mul", "sqrt"}.isdisjoint(node.op for node in graph.nodes)
    mine = dvm_graph.optimize(model, strict=True)
    assert not any(subgraph.is_constant for subgraph in mine.report().subgraphs)
    for n, h in ((1, 7), (2, 20)):
        x = random.standard_normal((n, 8, h, 9)).astype(np.float32)
        (expected,) = session(model).run(None, {"x": x})
        (found,) = mine.run({"x": x})
        assert_close(found, expected)
