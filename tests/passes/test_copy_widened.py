"""What widens narrow integers is copied for readers behind another product, and for no others."""

from __future__ import annotations

import pytest

from dvm_graph.ir import DType, Value
from dvm_graph.passes import copy_widened
from tests.passes.sketch import Sketch


def _dequantised(sketch: Sketch, x: Value) -> Value:
    real = sketch.build.cast(x, DType.FLOAT32)
    return sketch.build.mul(sketch.build.sub(real, sketch.number(3)), sketch.number(0.5))


def _gate(sketch: Sketch, x: Value) -> Value:
    """A product of what the rows of x add up to."""
    weights = sketch.input(8, 8)
    return sketch.build.matmul(sketch.build.reduce_sum(x, (0,)), weights)


def _copies(sketch: Sketch, *outputs: Value) -> int:
    """How often each operator is there behind the pass, whose graph has to be sound."""
    sketch.graph.outputs = list(outputs)
    changed = copy_widened(sketch.graph)
    casts = sketch.operators().count("cast")
    assert changed == (casts > 1)
    return casts


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.UINT16, DType.INT16])
def test_a_reader_behind_a_product_has_its_own(sketch: Sketch, dtype: DType) -> None:
    x = sketch.input("b", 8, dtype=dtype)
    real = _dequantised(sketch, x)
    scaled = sketch.build.mul(real, _gate(sketch, real))
    assert _copies(sketch, scaled) == 2
    (product,) = (node for node in sketch.graph.nodes if node.op == "matmul")
    assert scaled.producer is not None
    copy, gate = (scaled.producer.required(index) for index in range(2))
    assert gate is product.output and copy is not real
    assert copy.producer is not None and copy.producer.op == "mul"
    assert sketch.graph.users(copy) == {scaled.producer}
    assert copy.shape == real.shape and copy.name != real.name


def test_readers_behind_as_many_products_share_one(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", 8, dtype=DType.UINT8))
    gate = _gate(sketch, real)
    assert _copies(sketch, sketch.build.mul(real, gate), sketch.build.add(real, gate)) == 2


def test_what_one_kernel_reads_is_copied_with_what_leads_to_it(sketch: Sketch) -> None:
    """The last multiplication is read behind the product alone, so that it is no reason to keep the others."""
    real = _dequantised(sketch, sketch.input("b", 8, dtype=DType.UINT8))
    gate = _gate(sketch, real)
    half = sketch.build.mul(real, sketch.number(0.25))
    assert _copies(sketch, sketch.build.mul(half, gate)) == 2


def test_what_leads_to_a_copy_is_copied_with_it(sketch: Sketch) -> None:
    """Readers behind two products and behind three: no copy is for both, though the first one moved what leads to the second."""
    build = sketch.build
    real = _dequantised(sketch, sketch.input("b", 8, dtype=DType.UINT8))
    half = build.mul(real, sketch.number(0.25))
    once = build.mul(real, _gate(sketch, real))
    twice = build.mul(half, _gate(sketch, once))
    thrice = build.mul(half, _gate(sketch, twice))
    assert _copies(sketch, thrice) == 4
    unread = [node.output for node in sketch.graph.nodes if not sketch.graph.users(node.output)]
    assert unread == [thrice]


def test_readers_of_one_kernel_share_what_they_read(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", 8, dtype=DType.UINT8))
    total = sketch.build.reduce_sum(real, (0,))
    assert _copies(sketch, sketch.build.mul(real, total)) == 1


def test_what_is_stored_anyway_is_read(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", 8, dtype=DType.UINT8))
    scaled = sketch.build.mul(real, _gate(sketch, real))
    assert _copies(sketch, scaled, real) == 1
    product = sketch.build.matmul(real, sketch.build.transpose(_gate(sketch, real), (1, 0)))
    assert _copies(sketch, product) == 1


@pytest.mark.parametrize("dtype", [DType.INT32, DType.FLOAT32])
def test_wide_numbers_are_no_narrow_ones(sketch: Sketch, dtype: DType) -> None:
    x = sketch.input("b", 8, dtype=dtype)
    real = sketch.build.mul(sketch.build.cast(x, DType.FLOAT32), sketch.number(0.5))
    assert _copies(sketch, sketch.build.mul(real, _gate(sketch, real))) <= 1
