"""Operators of other domains than ONNX's, against onnxruntime: vendor operators that nobody listed.

Those that are decomposed natively are cases of `tests/decompose`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph.errors import ModelError, StrictError, UnsupportedError
from tests.end_to_end.reference import Array, assert_all_close, session

TINY = Path(__file__).parents[2] / "models" / "tiny"
MICROSOFT = "com.microsoft"


def model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array] | None = None,
    outputs: Sequence[str] = ("y",),
    imports: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Every dim of every input is a symbol of its own."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}_{axis}" for axis in range(array.ndim)],
        )
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    versions = {"": 20, MICROSOFT: 1} if imports is None else imports
    opsets = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> None:
    actual = dvm_graph.optimize(proto).run(feeds)
    assert_all_close(actual, session(proto).run(None, feeds), reduction_length=100)


def node(op: str, inputs: str, outputs: str = "y", domain: str = MICROSOFT, **attrs: Any) -> Any:
    names = [name.strip("_") for name in inputs.split()]
    return helper.make_node(op, names, outputs.split(), domain=domain, **attrs)


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_results_join_the_kernels_around_them() -> None:
    nodes = [node("Neg", "x", "t", ""), node("Inverse", "t", "u"), node("Exp", "u", "y", "")]
    check(model(nodes, {"x": drawn(3, 4, 4)}), {"x": drawn(3, 4, 4)})


def test_results_whose_size_the_contents_decide() -> None:
    feeds = {
        name: np.array(value, np.float32) for name, value in zip("abc", (1, 9, 2), strict=True)
    }
    nodes = [node("Range", "a b c", "t"), node("Neg", "t", "y", "")]
    check(model(nodes, feeds), feeds)
    repeated = {"x": np.round(drawn(30) * 2)}
    check(model([node("Unique", "x", "y i c")], repeated, outputs=["y", "i", "c"]), repeated)


def test_a_quantized_lstm() -> None:
    generator = np.random.default_rng(1)
    weights = {
        "w": generator.integers(0, 255, (1, 3, 16)).astype(np.uint8),
        "r": generator.integers(0, 255, (1, 4, 16)).astype(np.uint8),
        "b": drawn(1, 32),
        "scale": np.array([0.01], np.float32),
        "zero": np.array([128], np.uint8),
    }
    lstm = node(
        "DynamicQuantizeLSTM", "x w r b _ _ _ _ scale zero scale zero", "y h", hidden_size=4
    )
    feeds = {"x": drawn(5, 2, 3)}
    check(model([lstm], feeds, weights, ["y", "h"]), feeds)


def test_strings() -> None:
    tokenizer = node("Tokenizer", "x", mark=0, mincharnum=1, pad_value="#", tokenexp="[a-z]+")
    feeds = {"x": np.array(["to be", "or"], object)}
    proto = model([tokenizer], feeds)
    (actual,) = dvm_graph.optimize(proto).run(feeds)
    np.testing.assert_array_equal(actual, session(proto).run(None, feeds)[0])


def test_operators_inside_of_branches() -> None:
    branches = {
        name: helper.make_graph([inner], name, [], [onnx.ValueInfoProto(name=inner.output[0])])
        for name, inner in (
            ("then_branch", node("Inverse", "x", "t")),
            ("else_branch", node("Neg", "x", "e", "")),
        )
    }
    choice = helper.make_node("If", ["c"], ["y"], **branches)
    for flag in (True, False):
        feeds = {"c": np.array(flag), "x": drawn(2, 3, 3)}
        check(model([choice], feeds), feeds)


def test_a_domain_that_the_model_does_not_import() -> None:
    feeds = {"x": drawn(3, 4, 4)}
    check(model([node("Inverse", "x")], feeds, imports={"": 17}), feeds)


def test_operators_that_onnxruntime_adds_to_old_opsets() -> None:
    feeds = {"x": drawn(2, 3, 16)}
    for op in ("LayerNormalization", "SimplifiedLayerNormalization"):
        nodes = [node(op, "x g", "y", "")]
        check(model(nodes, feeds, {"g": drawn(16)}, imports={"": 12}), feeds)


def test_what_onnxruntime_does_not_run_is_refused_by_name() -> None:
    feeds = {"x": drawn(2, 8)}
    with pytest.raises(ModelError, match="unknown operator 'Frobnicate'"):
        dvm_graph.optimize(model([node("Frobnicate", "x")], feeds))
    with pytest.raises(UnsupportedError, match="Rfft"):  # it has a schema, but runs on GPUs only
        dvm_graph.optimize(
            model([node("Rfft", "x", normalized=0, onesided=1, signal_ndim=1)], feeds)
        )
    with pytest.raises(StrictError, match="Inverse"):
        dvm_graph.optimize(model([node("Inverse", "x")], feeds), strict=True)


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mobilenet", "unet", "vit"])
def test_models_that_onnxruntime_has_optimized(name: str, level: str, tmp_path: Path) -> None:
    """`ALL` has convolutions in a layout of onnxruntime's own."""
    path = tmp_path / "optimized.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
    )
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(str(TINY / f"{name}.onnx"), options)
    assert any(entry.domain for entry in onnx.load(path).graph.node)
    result = dvm_graph.compare(str(path))
    assert result.passed, str(result)


@pytest.mark.parametrize("index", [(3,), (2, 2)])
def test_rows_of_computed_bytes_that_hold_several_numbers(index: tuple[int, ...]) -> None:
    """onnxruntime's inference takes each for one."""
    random = np.random.default_rng(2)
    rows = {"rows": random.integers(0, 256, (5, 32), np.uint8), "at": random.integers(0, 5, index)}
    nodes = [
        node("Max", "rows least", "raised", ""),
        node("GatherBlockQuantized", "raised at scales", "taken", block_size=16),
        node("Exp", "taken", "y", ""),
    ]
    constants = {"scales": drawn(5, 4) / 16, "least": np.array(3, np.uint8)}
    check(model(nodes, rows, constants), rows)


def test_a_mean_that_is_never_subtracted() -> None:
    """onnxruntime names it among the results, and computes none."""
    feeds = {"x": drawn(2, 3, 8), "skip": drawn(2, 3, 8), "scale": drawn(8)}
    nodes = [node("SkipSimplifiedLayerNormalization", "x skip scale", "y mean inverse")]
    check(model(nodes, feeds, outputs=("y", "inverse")), feeds)
    compiled = dvm_graph.optimize(model(nodes, feeds, outputs=("y", "mean")), strict=True)
    np.testing.assert_array_equal(compiled.run(feeds)[1], np.zeros((2, 3, 1), np.float32))


def test_a_weight_s_blocks_that_a_run_tells() -> None:
    random = np.random.default_rng(4)
    feeds = {"block": random.integers(0, 2, (40,), np.int32)}
    constants = {
        "x": drawn(2, 40),
        "packed": random.integers(0, 256, (3, 2, 16), np.uint8),
        "scales": drawn(3, 2),
        "zeros": drawn(3, 2),  # bytes are read otherwise there
    }
    nodes = [node("MatMulNBits", "x packed scales zeros block", K=40, N=3, bits=4, block_size=32)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(model(nodes, feeds, constants), feeds)
