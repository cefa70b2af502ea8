"""Every architecture of the zoo, run at shapes that change, by one optimised model, against onnxruntime."""

from __future__ import annotations

import onnx
import pytest

import dvm_graph
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from models import ZOO, random_feeds, tiny_path
from tests.end_to_end.reference import assert_all_close, session
from tests.models.zoo_dims import grid
from tests.tolerances import assert_within_steps

TERMS = 4096
"""Terms that one output of a tiny model sums, layer upon layer, to the order of magnitude."""


@pytest.mark.parametrize("name", ZOO)
def test_equals_onnxruntime(name: str) -> None:
    model = dvm_graph.optimize(tiny_path(name), strict=True)
    reference = session(str(tiny_path(name)))
    for seed, dims in enumerate(grid(name)):
        feeds = random_feeds(name, dims, seed)
        actual, expected = model.run(feeds), reference.run(None, feeds)
        if not ZOO[name].quantized:
            assert_all_close(actual, expected, TERMS)
            continue
        for mine, theirs in zip(actual, expected, strict=True):
            assert_within_steps(mine, theirs, step=_last_step(name))


def _last_step(name: str) -> float:
    """Between two values that the results were dequantised to."""
    graph = onnx.load(tiny_path(name)).graph
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    scales = [node.input[1] for node in graph.node if node.op_type == "QuantizeLinear"]
    return float(constants[scales[-1]])


@pytest.mark.parametrize("name", ZOO)
def test_nothing_is_left_to_onnxruntime(name: str) -> None:
    graph = compile_model(tiny_path(name), Options()).graph
    assert [node.attrs["op"] for node in graph.nodes if node.op == "vendor"] == []
