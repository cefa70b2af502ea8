"""Tensors that `Tile` repeats along any of their axes: results, and how few elements a tile moves where rows are short."""

from __future__ import annotations

import math
import random
import re

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph import _core

_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 20, 33, 64, 100)
_REPEATS = (1, 1, 2, 3, 4, 7, 12)
_MOST = 200_000
_TYPES = (np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8, np.float16, np.bool_)
_FEW = 2000
"""Elements of a tile: 120 where each holds three loops of short rows."""


def _tile(rank: int, dtype: type[np.generic], repeats: tuple[int, ...] = ()) -> onnx.ModelProto:
    """By numbers that are a constant, or an input."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    dims = [f"d{axis}" for axis in range(rank)]
    graph = helper.make_graph(
        [helper.make_node("Tile", ["x", "r"], ["y"])],
        "repeated",
        [helper.make_tensor_value_info("x", kind, dims)],
        [helper.make_tensor_value_info("y", kind, [None] * rank)],
    )
    if repeats:
        graph.initializer.append(numpy_helper.from_array(np.array(repeats), "r"))
    else:
        graph.input.append(helper.make_tensor_value_info("r", onnx.TensorProto.INT64, [rank]))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dtype", _TYPES)
def test_repeats(dtype: type[np.generic], simd: str) -> None:
    draw, numbers = random.Random(len(simd)), np.random.default_rng(0)
    for rank in range(1, 6):
        model = dvm_graph.optimize(_tile(rank, dtype), simd=simd, cores=2)
        for _ in range(12):
            shape, repeats = draw.choices(_EXTENTS, k=rank), draw.choices(_REPEATS, k=rank)
            if math.prod(shape) * math.prod(repeats) > _MOST:
                continue
            x = numbers.integers(0, 100, shape).astype(dtype)
            y = model.run({"x": x, "r": np.array(repeats)})[0]
            np.testing.assert_array_equal(y, np.tile(x, repeats), f"{shape} {repeats}")


def test_tiles_hold_long_rows() -> None:
    x, repeats = np.zeros((64, 3, 20, 2), np.float32), (1, 2, 7, 3)
    text = dvm_graph.optimize(_tile(4, np.float32, repeats), cores=2).disassemble({"x": x})
    tiles = re.search(r"^  tiles (\d+) ", text, re.MULTILINE)
    assert tiles is not None
    assert x.size * math.prod(repeats) / int(tiles[1]) >= _FEW
