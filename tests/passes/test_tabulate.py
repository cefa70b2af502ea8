"""Functions of a byte become tables, whose entries are what the operators give for each byte."""

from __future__ import annotations

import numpy as np
import pytest

from dvm_graph.ir import DType, Value
from dvm_graph.passes import eliminate_dead, tabulate
from tests.passes.sketch import Sketch

BYTES = (DType.UINT8, DType.INT8)


def _dequantised(sketch: Sketch, x: Value, scale: float = 0.5, zero: int = 3) -> Value:
    real = sketch.build.cast(x, DType.FLOAT32)
    return sketch.build.mul(
        sketch.build.sub(real, sketch.number(float(zero))), sketch.number(scale)
    )


def _quantised(sketch: Sketch, x: Value, dtype: DType, scale: float = 0.25) -> Value:
    build, limits = sketch.build, np.iinfo(dtype.numpy)
    steps = build.round(build.div(x, sketch.number(scale)))
    low, high = sketch.number(float(limits.min)), sketch.number(float(limits.max))
    return build.cast(build.max(build.min(steps, high), low), dtype)


def _tabulated(sketch: Sketch, output: Value) -> bool:
    sketch.graph.outputs = [output]
    changed = tabulate(sketch.graph, sketch.facts)
    eliminate_dead(sketch.graph)
    return changed


@pytest.mark.parametrize("source", BYTES)
@pytest.mark.parametrize("target", BYTES)
def test_a_function_of_a_byte_is_a_table(sketch: Sketch, source: DType, target: DType) -> None:
    real = _dequantised(sketch, sketch.input("b", 7, dtype=source))
    product = sketch.build.mul(real, sketch.build.max(real, sketch.number(0)))
    assert _tabulated(sketch, _quantised(sketch, product, target))
    assert sketch.operators() == ["lookup"]
    table = sketch.graph.outputs[0].producer
    assert table is not None and sketch.graph.outputs[0].dtype is target
    limits = np.iinfo(target.numpy)
    for byte, entry in zip(np.arange(256).astype(source.numpy), table.attrs["table"], strict=True):
        x = (float(byte) - 3) / 2
        assert entry == min(max(round(x * max(x, 0) * 4), limits.min), limits.max)


def test_functions_of_tables_are_tables_of_their_source(sketch: Sketch) -> None:
    x = sketch.input("b", dtype=DType.UINT8)
    first = _quantised(sketch, sketch.build.abs(_dequantised(sketch, x)), DType.INT8)
    second = sketch.build.mul(_dequantised(sketch, first), _dequantised(sketch, x))
    assert _tabulated(sketch, _quantised(sketch, second, DType.UINT8))
    assert sketch.operators() == ["lookup"]
    assert sketch.graph.outputs[0].producer.inputs == (x,)  # type: ignore[union-attr]


def test_what_others_read_stays(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", dtype=DType.UINT8))
    product = sketch.build.mul(real, sketch.build.sigmoid(sketch.build.neg(real)))
    result = _quantised(sketch, product, DType.INT8)
    sketch.graph.outputs = [result, real]
    assert tabulate(sketch.graph, sketch.facts)
    eliminate_dead(sketch.graph)
    assert sorted(sketch.operators()) == ["cast", "lookup", "mul", "sub"]


def test_what_is_rounded_beside_its_reader_stays(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", dtype=DType.UINT8))
    sketch.graph.outputs = [_quantised(sketch, real, DType.INT8), real]
    assert not tabulate(sketch.graph, sketch.facts)


def test_what_only_tables_read_goes(sketch: Sketch) -> None:
    """Tables together take the place of what each of them would leave to the others."""
    real = _dequantised(sketch, sketch.input("b", dtype=DType.UINT8))
    sketch.graph.outputs = [_quantised(sketch, real, DType.INT8, scale) for scale in (0.25, 0.5, 1)]
    assert tabulate(sketch.graph, sketch.facts)
    eliminate_dead(sketch.graph)
    assert sketch.operators() == ["lookup"] * 3


def test_functions_of_two_tensors_stay(sketch: Sketch) -> None:
    x, y = (_dequantised(sketch, sketch.input("b", dtype=DType.UINT8)) for _ in range(2))
    assert not _tabulated(sketch, _quantised(sketch, sketch.build.add(x, y), DType.UINT8))


def test_scales_along_an_axis_stay(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", 2, dtype=DType.UINT8))
    scales = sketch.build.constant(np.float32([0.5, 2]))
    result = _quantised(sketch, sketch.build.mul(real, scales), DType.UINT8)
    assert not _tabulated(sketch, result)


def test_results_that_are_broadcast_stay(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", dtype=DType.UINT8))
    wide = sketch.build.add(real, sketch.build.constant(np.float32([[1]])))
    assert not _tabulated(sketch, _quantised(sketch, wide, DType.UINT8))


def test_a_few_operators_stay(sketch: Sketch) -> None:
    x = sketch.input("b", dtype=DType.UINT8)
    assert not _tabulated(sketch, sketch.build.add(x, sketch.number(1, DType.UINT8)))


def test_casts_that_machines_disagree_about_stay(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", dtype=DType.UINT8))
    beyond = sketch.build.cast(sketch.build.exp(sketch.build.exp(real)), DType.INT8)
    assert not _tabulated(sketch, beyond)


def test_functions_behind_such_casts_are_tables_of_what_these_give(sketch: Sketch) -> None:
    real = _dequantised(sketch, sketch.input("b", dtype=DType.UINT8))
    beyond = sketch.build.cast(sketch.build.exp(sketch.build.exp(real)), DType.INT8)
    behind = sketch.build.abs(_dequantised(sketch, beyond))
    assert _tabulated(sketch, _quantised(sketch, behind, DType.UINT8))
    assert sketch.operators() == ["cast", "sub", "mul", "exp", "exp", "cast", "lookup"]
    table = sketch.graph.outputs[0].producer
    assert table is not None and table.inputs == (beyond,)
    levels = np.abs((np.arange(256).astype(np.int8).astype(np.float64) - 3) / 2) * 4
    assert table.attrs["table"] == tuple(np.clip(np.rint(levels), 0, 255).astype(int))


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_half_types_round_at_casts_alone(sketch: Sketch, dtype: DType) -> None:
    """As kernels do, which hold them in more."""
    half = sketch.build.cast(_dequantised(sketch, sketch.input("b", dtype=DType.UINT8)), dtype)
    third = sketch.build.mul(half, sketch.number(1 / 3, dtype))
    single = sketch.build.cast(third, DType.FLOAT32)
    assert _tabulated(sketch, _quantised(sketch, single, DType.INT8, scale=1 / 64))
    table = sketch.graph.outputs[0].producer
    assert table is not None
    factor = np.array(1 / 3, dtype.numpy).astype(np.float32)
    products = ((np.arange(256, dtype=np.float32) - 3) / 2).astype(dtype.numpy) * factor
    levels = np.clip(np.rint(products * 64), -128, 127)
    assert table.attrs["table"] == tuple(levels.astype(int))
