"""What is beyond the limits of kernels runs all the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import dvm_graph
from dvm_graph.ir.operators import MAX_AXES
from tests.end_to_end.reference import model_from_text
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


@pytest.mark.parametrize("shape", ["size", "constant"])
@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (2**32 + 5, 2**32 + 11, 1),
        (-5, 2**63 - 1, 1),
        (-(2**32), 2**31 + 7, 1),
        (2**32 + 11, 2**32 + 5, -2),
        (-(2**32) - 1, -(2**32) - 9, -1),
        (0, 2**63 - 1, 2**32),
        (-1, -(2**63), -(2**32)),
    ],
)
def test_parts_of_an_axis_that_32_bits_do_not_count(
    shape: str, start: int, end: int, step: int
) -> None:
    """No memory holds it, and nothing has to: it repeats one element."""
    extent = 6 << 30
    text = f"""g (int8[n] x, int8[1] y, int64[1] begin) => (int8[m] z, int8[k] same)
    <int64[1] many = {{{1 << 30}}}, int64[1] constant = {{{extent}}}, int64[1] starts = {{{start}}},
      int64[1] ends = {{{end}}}, int64[1] axes = {{0}}, int64[1] steps = {{{step}}}>
    {{ s = Shape(x) size = Mul(s, many) w = Expand(y, {shape}) z = Slice(w, starts, ends, axes, steps)
      same = Slice(w, begin, ends, axes, steps) }}"""
    feeds = {"x": np.zeros(6, np.int8), "y": np.array([7], np.int8), "begin": np.array([start])}
    results = dvm_graph.optimize(model_from_text(text), strict=True).run(feeds)
    for result in results:
        np.testing.assert_array_equal(result, np.full(len(range(extent)[start:end:step]), 7))
