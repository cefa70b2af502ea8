"""onnxruntime's `DynamicQuantizeLSTM` without vendor operators, against onnxruntime.

With no fewer threads than sequences that rounds the states of each sequence by a range of its own, as is done here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph.errors import StrictError

INPUTS, HIDDEN = 7, 12
MOST_SEQUENCES = 3
ONE_LEVEL = 1e-3
"""What a state's being rounded the other way changes: 1 / 255 of a range of less than 1, times a weight of less than 0.5."""


def quantized(
    direction: str = "forward",
    dtype: type[np.integer[Any]] = np.int8,
    *,
    columns: bool = False,
    zero: int = 0,
    bias: bool = True,
    states: bool = False,
    peepholes: bool = False,
    lengths: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """The operator over any number of steps and sequences; `columns`: a scale for each column."""
    generator = np.random.default_rng(0)
    count = 2 if direction == "bidirectional" else 1
    ends = np.iinfo(dtype)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, rows in (("w", INPUTS), ("r", HIDDEN)):
        shape = (count, rows, 4 * HIDDEN)
        arrays[name] = generator.integers(ends.min, ends.max + 1, shape).astype(dtype)
        scales = (count, 4 * HIDDEN) if columns else (count,)
        arrays[f"{name}_scale"] = generator.uniform(0.001, 0.004, scales).astype(np.float32)
        arrays[f"{name}_zero"] = np.full(scales, zero, dtype)
    if bias:
        arrays["b"] = generator.uniform(-0.5, 0.5, (count, 8 * HIDDEN)).astype(np.float32)
    if peepholes:
        arrays["p"] = generator.uniform(-0.5, 0.5, (count, 3 * HIDDEN)).astype(np.float32)
    inputs: dict[str, list[Any]] = {"x": ["t", "n", INPUTS]}
    if states:
        inputs |= {"h": [count, "n", HIDDEN], "c": [count, "n", HIDDEN]}
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    if lengths:
        infos.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["n"]))
    known = {*arrays, *(info.name for info in infos)}
    wanted = ["x", "w", "r", "b", "lengths", "h", "c", "p"]
    wanted += ["w_scale", "w_zero", "r_scale", "r_zero"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        [name if name in known else "" for name in wanted],
        ["y", "last_h", "last_c"],
        domain="com.microsoft",
        hidden_size=HIDDEN,
        direction=direction,
        **attributes,
    )
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.output]
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", infos, results, stored)
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def reference(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = MOST_SEQUENCES
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def feeds_of(model: onnx.ModelProto, steps: int, sequences: int) -> dict[str, Any]:
    generator = np.random.default_rng(steps)
    sizes = {"t": steps, "n": sequences}
    return {
        info.name: generator.uniform(
            -1, 1, [d.dim_value or sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for info in model.graph.input
    }


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"direction": "reverse"},
    "both": {"direction": "bidirectional", "states": True},
    "unsigned": {"dtype": np.uint8, "zero": 128},
    "far_zero": {"dtype": np.uint8, "zero": 17, "direction": "bidirectional"},
    "no_bias": {"bias": False},
    "columns": {"columns": True, "direction": "bidirectional"},
    "looking": {"peepholes": True, "states": True},
    "coupled": {"input_forget": 1, "clip": 0.7},
}


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str) -> None:
    model = quantized(**CASES[name])
    compiled, expected = dvm_graph.optimize(model, strict=True), reference(model)
    for steps, sequences in ((5, 1), (9, 3), (1, 2), (30, 2), (5, 1)):
        feeds = feeds_of(model, steps, sequences)
        pairs = zip(compiled.run(feeds), expected.run(None, feeds), strict=True)
        for got, want in pairs:
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=0, atol=ONE_LEVEL)


def test_a_sequence_does_not_hang_on_others() -> None:
    """But by the range of all rows, which both have here."""
    compiled = dvm_graph.optimize(quantized(), strict=True)
    x = feeds_of(quantized(), 20, 2)["x"]
    x[:, 1] = x[::-1, 0]
    both = compiled.run({"x": x})[0]
    for at in range(2):
        alone = compiled.run({"x": x[:, at : at + 1]})[0]
        np.testing.assert_allclose(both[:, :, at], alone[:, :, 0], rtol=1e-6, atol=1e-7)


def test_lengths_are_the_vendor_librarys() -> None:
    with pytest.raises(StrictError):
        dvm_graph.optimize(quantized(lengths=True), strict=True)
