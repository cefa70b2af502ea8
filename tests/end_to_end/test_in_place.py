"""Values written over those that their kernels read for the last time: residuals, broadcasts, folds, views.

Kernels are kept small, so that most values go through memory; what is also an output has to stay.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import dvm_graph
from tests.end_to_end.reference import assert_all_close, assert_same_bits, session

SHAPES = ((1, 1), (2, 17), (33, 64), (129, 257), (7, 2049), (1100, 2003))
"""The last is larger than what is stored through the caches."""

BODIES = {
    "residuals": "a = Tanh(x) b = Add(a, x) c = Exp(a) d = Mul(b, c) e = Sub(d, a) y = Max(e, b)",
    "broadcasts": "a = Add(x, q) b = Mul(p, a) c = Sub(q, b) d = Div(c, two) y = Add(p, d)",
    "twice": "a = Sigmoid(x) b = Mul(a, a) c = Add(b, b) d = Sub(b, c) y = Tanh(d)",
    "folds": """a = Tanh(x) h = ReduceMax <keepdims = 1> (a, last) b = Sub(a, h) c = Exp(b)
        s = ReduceSum <keepdims = 1> (c, last) d = Div(c, s) y = Add(d, a)""",
    "columns": """a = Tanh(x) h = ReduceMax <keepdims = 0> (a, first) b = Sub(a, h) c = Neg(b)
        y = Mul(c, a)""",
    "views": """a = Tanh(x) t = Transpose <perm = [1, 0]> (a) u = Exp(t)
        v = Transpose <perm = [1, 0]> (u) b = Add(v, a) y = Mul(b, a)""",
}


@pytest.mark.parametrize("outputs", ["y", "y, b"])
@pytest.mark.parametrize("most", [1, 2, 200])
@pytest.mark.parametrize("name", BODIES)
def test_equals_onnxruntime(name: str, most: int, outputs: str) -> None:
    results = ", ".join(f"float[r, c] {output}" for output in outputs.split(", "))
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[r, c] x, float[r, 1] p, float[c] q) => ({results})
        <int64[1] first = {{0}}, int64[1] last = {{-1}}, float two = {{2}}> {{ {BODIES[name]} }}""")
    limits = dvm_graph.FusionLimits(max_operators=most)
    mine = dvm_graph.optimize(model, strict=True, limits=limits)
    reference = session(model)
    generator = np.random.default_rng(0)
    first = None
    for rows, columns in (*SHAPES, SHAPES[2]):
        shapes = {"x": (rows, columns), "p": (rows, 1), "q": (columns,)}
        feeds = {k: generator.standard_normal(s, dtype=np.float32) for k, s in shapes.items()}
        if (rows, columns) == SHAPES[2]:
            feeds = first = first or feeds
        given = {k: array.copy() for k, array in feeds.items()}
        got = mine.run(feeds)
        assert_all_close(got, reference.run(None, feeds), reduction_length=columns)
        assert_same_bits(list(feeds.values()), list(given.values()))
