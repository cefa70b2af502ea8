"""Images stay channels-last between convolutions, whatever they pass on the way."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from tests.end_to_end.reference import assert_all_close, model_from_text, session

_BETWEEN = {
    "halves": """
        low, high = Split <axis = 1, num_outputs = 2> (a)
        sum = Add (high, low)
        b = Concat <axis = 1> (low, sum)""",
    "shuffle": """
        split = Reshape (a, apart)
        turned = Transpose <perm = [0, 2, 1, 3, 4]> (split)
        b = Reshape (turned, together)""",
    "reflected": 'b = Pad <mode = "reflect"> (a, pads)',
    "upside": "b = Slice (a, first, last, axis, step)",
}


def _model(between: str) -> onnx.ModelProto:
    return model_from_text(f"""
        g (float[n, 3, 6, 5] x, float[4, 3, 3, 3] k, float[2, 4, 3, 3] l) => (float[p, 2, q, r] y)
        <int64[5] apart = {{0, 2, 2, 6, 5}}, int64[4] together = {{0, 4, 6, 5}},
         int64[8] pads = {{0, 0, 1, 2, 0, 0, 2, 1}}, int64[1] first = {{-1}}, int64[1] last = {{-99}},
         int64[1] axis = {{2}}, int64[1] step = {{-1}}> {{
        c = Conv <pads = [1, 1, 1, 1]> (x, k)
        a = Relu (c)
        {between}
        y = Conv <pads = [1, 1, 1, 1]> (b, l)
    }}""")


@pytest.mark.parametrize("name", _BETWEEN)
def test_one_transpose_enters_and_one_leaves(name: str) -> None:
    model = _model(_BETWEEN[name])
    graph = compile_model(model.SerializeToString(), Options()).graph
    generator = np.random.default_rng(0)
    shapes = {"x": (2, 3, 6, 5), "k": (4, 3, 3, 3), "l": (2, 4, 3, 3)}
    feeds = {
        key: generator.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()
    }
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 36)
    first = [
        node
        for node in graph.nodes
        if node.op == "transpose" and tuple(node.attrs["perm"]) == (0, 3, 1, 2)
    ]
    last = [
        node
        for node in graph.nodes
        if node.op == "transpose" and tuple(node.attrs["perm"]) == (0, 2, 3, 1)
    ]
    assert all(graph.is_output(node.output) for node in first)
    assert all(node.inputs[0] in graph.inputs for node in last)


def test_signals_stay_channels_last_between_convolutions() -> None:
    model = model_from_text("""
        g (float[n, 3, w] x) => (float[n, 2, r] y)
        <float[4, 3, 3] k = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9},
         float[2, 4, 1] l = {1,2,3,4,5,6,7,8}, float[4, 1] s = {1,2,3,4}> {
        c = Conv (x, k)
        d = PRelu (c, s)
        e = Add (c, d)
        y = Conv (e, l)
    }""")
    graph = compile_model(model.SerializeToString(), Options()).graph
    images = [node for node in graph.nodes if node.op in ("transpose", "view")]
    assert len(images) <= 3, [str(node) for node in images]  # in, out, and the weights of one tap
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 9)).astype(np.float32)}
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 36)
