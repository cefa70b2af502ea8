"""What is beyond the limits of kernels runs all the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import dvm_graph
from dvm_graph.ir.operators import MAX_AXES
from tests.end_to_end.test_vendor_values import assert_as_onnxruntime, model, node


@pytest.mark.parametrize("rank", [MAX_AXES - 1, MAX_AXES, MAX_AXES + 1, 13])
def test_many_axes(rank: int) -> None:
    """Reversed, so that no two axes merge; a broadcast beside it, a gather and a reduction behind."""
    x = np.random.default_rng(rank).standard_normal((2,) * rank, dtype=np.float32)
    z = x[tuple(slice(1 + axis % 2) for axis in range(rank))]
    nodes = [
        node("Transpose", "x", "t"),
        node("Add", "t z", "a"),
        node("Gather", "a i", "y", axis=rank // 2),
        node("ReduceMax", "a", "m", axes=list(range(0, rank, 2)), keepdims=0),
    ]
    feeds = {"x": x, "z": z, "i": np.array([[0, 1], [1, 0]])}
    source = model(nodes, feeds, outputs=("y", "m"))
    source.opset_import[0].version = 17
    mine = assert_as_onnxruntime(source, feeds)
    assert bool(mine.report().vendor_operators) == (rank >= MAX_AXES)


@pytest.mark.parametrize("count", [39, 41, 300])
def test_many_outputs_of_one_value(count: int) -> None:
    names = [f"y{i}" for i in range(count)]
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    nodes = [helper.make_node("Abs", ["x"], [name]) for name in names]
    results = dvm_graph.optimize(model(nodes, {"x": x}, outputs=names)).run({"x": x})
    assert len(results) == count
    for result in results:
        np.testing.assert_array_equal(result, np.abs(x))
