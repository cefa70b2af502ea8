"""Factors of operands of products end in one place."""

from __future__ import annotations

import pytest

from dvm_graph.ir import DType, Value
from dvm_graph.passes import (
    collect_scales,
)
from tests.passes.sketch import Sketch


def _scaled_product(
    sketch: Sketch, computed: bool, factors: tuple[float, float], dtype: DType = DType.FLOAT32
) -> Value:
    q, k = sketch.input("b", "s", 8, dtype=dtype), sketch.input("b", "t", 8, dtype=dtype)
    build = sketch.build
    if computed:
        q = build.exp(q)
    q, k = (
        build.mul(x, sketch.number(f, dtype)) if f != 1 else x
        for x, f in zip((q, k), factors, strict=True)
    )
    sketch.graph.outputs = [build.matmul(q, build.transpose(k, (0, 2, 1)))]
    return sketch.graph.outputs[0]


def test_factors_go_to_the_operand_that_is_computed(sketch: Sketch) -> None:
    _scaled_product(sketch, True, (0.5, 0.25))
    assert collect_scales(sketch.graph, sketch.facts)
    assert sorted(sketch.operators()) == ["exp", "matmul", "mul", "transpose"]
    product = sketch.graph.outputs[0].producer
    assert product is not None and product.op == "matmul"
    scale = product.inputs[0].producer
    assert scale is not None and scale.op == "mul"
    assert scale.inputs[1].data == 0.125
    assert not collect_scales(sketch.graph, sketch.facts)


@pytest.mark.parametrize("factors", [(0.5, 0.25), (0.125, 1), (1, 0.125)])
def test_factors_go_behind_a_product_of_what_is_in_memory(
    sketch: Sketch, factors: tuple[float, float]
) -> None:
    _scaled_product(sketch, False, factors)
    assert collect_scales(sketch.graph, sketch.facts)
    assert sketch.operators() == ["transpose", "matmul", "mul"]
    scale = sketch.graph.outputs[0].producer
    assert scale is not None
    assert scale.inputs[1].data == 0.125


@pytest.mark.parametrize(
    ("computed", "factors", "dtype"),
    [
        (True, (0.5, 1), DType.FLOAT32),  # part of what computes it
        (False, (0.5, 0.5), DType.FLOAT16),  # could overflow
        (False, (1e9, 1e-9), DType.FLOAT32),
        (False, (0.0, 1), DType.FLOAT32),
        (False, (float("inf"), 1), DType.FLOAT32),
    ],
)
def test_factors_that_stay(
    sketch: Sketch, computed: bool, factors: tuple[float, float], dtype: DType
) -> None:
    _scaled_product(sketch, computed, factors, dtype)
    assert not collect_scales(sketch.graph, sketch.facts)


def test_a_scaled_operand_that_others_use_stays(sketch: Sketch) -> None:
    product = _scaled_product(sketch, False, (0.5, 1))
    assert product.producer is not None
    sketch.graph.outputs.append(product.producer.inputs[0])
    assert not collect_scales(sketch.graph, sketch.facts)
