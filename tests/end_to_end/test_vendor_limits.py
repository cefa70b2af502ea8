"""Extents over which onnxruntime ends the process: an error here, and the model goes on."""

from __future__ import annotations

import itertools
import json

import numpy as np
import onnx
import onnxruntime
import pytest

import dvm_graph
from tests.end_to_end.reference import assert_all_close, model_from_text, session

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
EXTENTS = [s for s in itertools.product((0, 2), repeat=3) if 0 in s]


@pytest.mark.parametrize("op", GATES)
def test_recurrent_operators_over_nothing(op: str) -> None:
    gates = GATES[op]
    model = model_from_text(
        f"""g (float[s, b, i] x, float[1, {4 * gates}, i] w, float[1, {4 * gates}, 4] r) => (float[s, 1, b, 4] y) {{
            y = {op} <hidden_size = 4> (x, w, r)
        }}"""
    )
    mine, reference = dvm_graph.optimize(model), session(model)
    generator = np.random.default_rng(0)

    def feeds(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
        shapes = {"x": shape, "w": (1, 4 * gates, shape[2]), "r": (1, 4 * gates, 4)}
        return {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}

    for shape in EXTENTS:
        given = feeds(shape)
        (y,) = mine.run(given)
        assert y.shape == (shape[0], 1, shape[1], 4)
        if y.size:  # a product over nothing is 0, as one with 0 is
            given |= {"x": np.zeros((*shape[:2], 1), np.float32), "w": given["r"][..., :1]}
            assert_all_close([y], reference.run(None, given), 5)
    given = feeds((2, 3, 5))
    assert_all_close(mine.run(given), reference.run(None, given), 5)


@pytest.mark.parametrize(("op", "functions"), [("GRU", ["Tanh"]), ("LSTM", ["Tanh", "Tanh"])])
def test_recurrent_operators_over_nothing_in_onnxruntime(op: str, functions: list[str]) -> None:
    """An activation whose parameters nobody names is left to it."""
    rows, names = 4 * GATES[op], json.dumps(["Affine", *functions])
    model = model_from_text(
        f"""g (float[s, b, 2] x, float[1, {rows}, 2] w, float[1, {rows}, 4] r) => (float[s, 1, b, 4] y) {{
            y = {op} <hidden_size = 4, activations = {names}> (x, w, r)
        }}"""
    )
    shapes = {"x": (2, 0, 2), "w": (1, rows, 2), "r": (1, rows, 4)}
    with pytest.raises(dvm_graph.ShapeError, match="ends the process"):
        dvm_graph.optimize(model).run({n: np.ones(s, np.float32) for n, s in shapes.items()})


@pytest.mark.parametrize("op", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize(
    ("auto_pad", "rows"), [("SAME_LOWER", 3), ("SAME_LOWER", 5), ("VALID", 4), ("VALID", 6)]
)
def test_dilated_windows_that_no_image_holds(op: str, auto_pad: str, rows: int) -> None:
    """Over a block of channels onnxruntime's optimised kernels divide by the rows that are left."""
    model = model_from_text(
        f"""g (float[n, 16, h, w] x) => (float[?, ?, ?, ?] y) {{
            y = {op}<auto_pad = "{auto_pad}", dilations = [4, 1], kernel_shape = [2, 1]>(x)
        }}"""
    )
    x = np.random.default_rng(0).standard_normal((1, 16, rows, 3))
    feeds = {"x": x.astype(np.float32)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model.SerializeToString()
    plain = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (wanted,) = plain.run(None, feeds)
    nodes = frozenset(node.name for node in model.graph.node)
    for vendor_nodes in (frozenset[str](), nodes):
        (y,) = dvm_graph.optimize(model, vendor_nodes=vendor_nodes).run(feeds)
        assert_all_close([y], [wanted], 2)


@pytest.mark.parametrize("frame", ["window", "length"])
def test_frames_without_elements(frame: str) -> None:
    """Beside them, frames of some elements, and a length of a number that the model names."""
    given = "window" if frame == "window" else "none, length"
    read = given.replace("none", "")
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, n, 1] x, float[w] window) => (float[] y)
        <int64 step = {{4}}, int64 length = {{{0 if frame == "length" else 4}}}> {{ y = STFT (x, step, {read}) }}"""
    )
    mine = dvm_graph.optimize(model)
    feeds = {"x": np.ones((1, 16, 1), np.float32), "window": np.ones(0, np.float32)}
    with pytest.raises(dvm_graph.ShapeError, match="ends the process"):
        mine.run(feeds)
    if frame == "window":
        feeds["window"] = np.ones(8, np.float32)
        assert_all_close(mine.run(feeds), session(model).run(None, feeds), 8)


@pytest.mark.parametrize("shape", ["[a, b, c]", "[]"])
def test_a_negative_number_of_batch_axes(shape: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> g (float{shape} x, int64{shape} i) => (float[] y) {{
            y = GatherND<batch_dims = -3>(x, i)
        }}"""
    )
    with pytest.raises(dvm_graph.ModelError, match="negative number of batch axes"):
        dvm_graph.optimize(model)
