"""Another machine's numbers change how kernels are cut, and never what they compute."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from dvm_graph.npu.machine import VARIABLE, families
from models import tiny_path
from tests.tolerances import assert_close

DIMENSIONS = {
    "bert": {"batch": 3, "seq": 37},
    "llama": {"batch": 3, "seq": 37},
    "mobilenet": {"batch": 3, "height": 37, "width": 33},
    "unet": {"batch": 1, "height": 32, "width": 48},
}


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("name", DIMENSIONS)
def test_answers_stay_right(name: str, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, family)
    assert dvm_graph.compare(tiny_path(name), dims=DIMENSIONS[name]).passed


@pytest.mark.parametrize(("family", "packs"), [("zen4", False), ("cascadelake", True)])
def test_row_major_operands_are_packed_where_reading_them_in_place_is_slow(
    family: str, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, family)
    shapes: dict[str, list[str | int | None]] = {"a": ["m", 64], "b": [64, 96], "c": ["m", 96]}
    a, b, c = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "b"], ["c"])], "product", [a, b], [c]
    )
    model = dvm_graph.optimize(
        helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    )
    rows = 30  # a few register blocks of any vector unit
    assert any("d_pack_b" in str(kernel) for kernel in model.listings({"m": rows})) == packs
    random = np.random.default_rng(0)
    feeds = {"a": random.random((rows, 64), np.float32), "b": random.random((64, 96), np.float32)}
    expected = (feeds["a"].astype(np.float64) @ feeds["b"].astype(np.float64)).astype(np.float32)
    assert_close(model.run(feeds)[0], expected, reduction_length=64)
