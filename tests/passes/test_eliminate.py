"""Dead operators, and equal operators and constants."""

from __future__ import annotations

import numpy as np
import pytest

from dvm_graph.ir import DType
from dvm_graph.passes import (
    eliminate_common,
    eliminate_dead,
)
from tests.passes.sketch import Sketch


def test_dead_operators_go(sketch: Sketch) -> None:
    x = sketch.input("s")
    sketch.build.op("neg", sketch.build.op("exp", x))
    kept = sketch.build.op("sin", x)
    sketch.graph.outputs = [kept]
    assert eliminate_dead(sketch.graph)
    assert [node.op for node in sketch.graph.nodes] == ["sin"]
    assert not eliminate_dead(sketch.graph)


def test_equal_operators_are_computed_once(sketch: Sketch) -> None:
    x = sketch.input("s")
    total = sketch.build.op("add", sketch.build.op("exp", x), sketch.build.op("exp", x))
    sketch.graph.outputs = [total]
    assert eliminate_common(sketch.graph)
    assert total.producer is not None
    assert total.producer.inputs[0] is total.producer.inputs[1]


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 5000])
def test_equal_constants_are_one(sketch: Sketch, size: int) -> None:
    data = np.arange(size, dtype=np.float32) - 1
    data[-1:] = np.nan
    x, first, second = sketch.input("s", size), data, data.copy()
    weights = [sketch.graph.constant(array) for array in (first, second)]
    parts = [sketch.build.op(op, x, w) for op, w in zip(("add", "mul"), weights, strict=True)]
    sketch.graph.outputs = parts
    assert eliminate_common(sketch.graph)
    kept = [part.producer.inputs[1] for part in parts if part.producer is not None]
    assert kept == [weights[0], weights[0]]
    assert not eliminate_common(sketch.graph)


@pytest.mark.parametrize("at", [0, 1, 2500, 4999])
def test_constants_that_differ_in_a_bit_are_two(sketch: Sketch, at: int) -> None:
    first = np.zeros(5000, np.float32)
    second, third = first.copy(), first.view(np.int32)
    second[at] = -0.0
    x, i = sketch.input("s", 5000), sketch.build.cast(sketch.input("s", 5000), DType.INT32)
    sketch.graph.outputs = [
        sketch.build.op("add", operand, sketch.graph.constant(data))
        for operand, data in ((x, first), (x, second), (x, first.reshape(1, 5000)), (i, third))
    ]
    assert not eliminate_common(sketch.graph)


def test_operators_with_other_attributes_stay(sketch: Sketch) -> None:
    x = sketch.input("s", "t")
    a = sketch.build.op("reduce_sum", x, axes=(0,))
    b = sketch.build.op("reduce_sum", x, axes=(1,))
    sketch.graph.outputs = [a, b]
    assert not eliminate_common(sketch.graph)
