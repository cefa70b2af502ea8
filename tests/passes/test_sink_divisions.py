"""A softmax is divided behind the product that reads it, or once for each row."""

from __future__ import annotations

from typing import Any

import pytest

from dvm_graph.ir import DType, Value
from dvm_graph.passes import (
    sink_divisions,
)
from tests.passes.sketch import Sketch


def _mixed_by_softmax(
    sketch: Sketch,
    keys: int | str = "t",
    columns: int | str = 8,
    guard: float | None = None,
    axis: int = 2,
    centred: bool = True,
    dtype: DType = DType.FLOAT32,
) -> Value:
    """matmul(softmax(x), v); returns the softmax."""
    build = sketch.build
    x, v = sketch.input("b", "s", keys, dtype=dtype), sketch.input("b", keys, columns, dtype=dtype)
    powers = build.exp(build.sub(x, build.reduce_max(x, (axis,))) if centred else x)
    softmax = build.div(powers, build.reduce_sum(powers, (axis,)))
    weights = softmax
    if guard is not None:
        weights = build.select(build.isnan(softmax), sketch.number(guard, dtype), softmax)
    sketch.graph.outputs = [build.matmul(weights, v)]
    return softmax


@pytest.mark.parametrize(("keys", "columns"), [("t", 8), (9, 8), ("t", "t")])
def test_divisions_sink_behind_products(
    sketch: Sketch, keys: int | str, columns: int | str
) -> None:
    _mixed_by_softmax(sketch, keys, columns)
    assert sink_divisions(sketch.graph, sketch.facts)
    assert not sink_divisions(sketch.graph, sketch.facts)
    scale = sketch.graph.outputs[0].producer
    assert scale is not None and scale.op == "mul"
    product, factor = (value.producer for value in scale.inputs)
    assert product is not None and product.op == "matmul"
    assert product.inputs[0].producer.op == "exp"
    assert factor is not None and factor.output.shape[-1] == 1
    assert "div" not in sketch.operators()


@pytest.mark.parametrize("guard", [0.0, -0.0])
def test_guards_against_rows_of_nan_sink_too(sketch: Sketch, guard: float) -> None:
    _mixed_by_softmax(sketch, guard=guard)
    assert sink_divisions(sketch.graph, sketch.facts)
    select = sketch.graph.outputs[0].producer
    assert select is not None and select.op == "select"
    assert select.inputs[0].producer.inputs[0].producer.op == "reduce_sum"
    assert "div" not in sketch.operators()


@pytest.mark.parametrize(
    "made",
    [
        {"keys": 8},  # as many elements in the result
        {"columns": "c"},  # maybe more
        {"guard": 1.0},  # adds up what v holds
    ],
    ids=str,
)
def test_divisions_before_products_are_one_for_each_row(
    sketch: Sketch, made: dict[str, Any]
) -> None:
    _mixed_by_softmax(sketch, **made)
    assert sink_divisions(sketch.graph, sketch.facts)
    product = sketch.graph.outputs[0].producer
    assert product is not None and product.op == "matmul"
    operators = sketch.operators()
    assert "div" not in operators and operators.count("reciprocal") == 1
    (once,) = [node for node in sketch.graph.nodes if node.op == "reciprocal"]
    assert once.output.shape is not None and once.output.shape[-1] == 1


@pytest.mark.parametrize(
    "made",
    [
        {"axis": 1},  # no number for each row
        {"centred": False},  # could overflow
        {"dtype": DType.FLOAT16},
    ],
    ids=str,
)
def test_divisions_that_stay(sketch: Sketch, made: dict[str, Any]) -> None:
    _mixed_by_softmax(sketch, **made)
    assert not sink_divisions(sketch.graph, sketch.facts)


@pytest.mark.parametrize("guard", [None, 0.0])
def test_divisions_whose_result_others_use_do_not_sink(sketch: Sketch, guard: float | None) -> None:
    softmax = _mixed_by_softmax(sketch, guard=guard)
    sketch.graph.outputs.append(softmax)
    assert sink_divisions(sketch.graph, sketch.facts)
    product, quotient = (value.producer for value in sketch.graph.outputs)
    assert product is not None and product.op == "matmul"
    assert quotient is not None and quotient.op == "mul"
