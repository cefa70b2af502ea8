"""Transposes of rows of few elements, as weights of convolutions are: every permutation equals numpy's, in every type."""

from __future__ import annotations

import itertools
import re

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph

SHAPES = [(70, 40, 9), (33, 5, 3), (40, 70, 25), (3, 64, 4), (19, 66, 7), (1, 40, 9), (20, 0, 9)]


def transpose(perm: tuple[int, ...], dtype: type) -> onnx.ModelProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    axes = ["p", "q", "r", "s"][: len(perm)]
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"], perm=perm)],
        "g",
        [helper.make_tensor_value_info("x", element, axes)],
        [helper.make_tensor_value_info("y", element, [axes[axis] for axis in perm])],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.float16])
@pytest.mark.parametrize("perm", [*itertools.permutations(range(3)), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_short_rows(perm: tuple[int, ...], dtype: type) -> None:
    model = dvm_graph.optimize(transpose(perm, dtype), strict=True)
    generator = np.random.default_rng(0)
    for shape in SHAPES:
        x = generator.integers(0, 100, (*shape, 3)[: len(perm)]).astype(dtype)
        np.testing.assert_array_equal(model.run({"x": x})[0], x.transpose(perm))


def test_tiles_hold_rows_of_the_input_as_they_lie() -> None:
    """A line is read by one tile, not by one for each element of a short row."""
    model = dvm_graph.optimize(transpose((2, 1, 0), np.float32))
    listing = model.disassemble({"x": np.zeros((512, 256, 9), np.float32)})
    assert re.search(r"tiles of \d+ in 256", listing)
    assert not re.search(r"tiles of \d+ in 9\b", listing)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.bool_, np.float16])
@pytest.mark.parametrize("few", [2, 3, 4, 5])
@pytest.mark.parametrize("first", [False, True])
def test_pixels_of_few_colours(dtype: type, few: int, first: bool) -> None:
    """Between planes and pixels, of as many as some vectors and a rest, within a larger image too."""
    perm = (0, 2, 1) if first else (1, 0, 2)
    model = dvm_graph.optimize(transpose(perm, dtype), strict=True)
    generator = np.random.default_rng(few)
    for pixels in (1, 15, 16, 64, 100, 1037, 5000):
        shape = (3, pixels, few) if first else (few, pixels, 1)
        for each in (shape, (shape[0], shape[2], shape[1])):
            x = generator.integers(0, 100, each).astype(dtype)
            np.testing.assert_array_equal(model.run({"x": x})[0], x.transpose(perm))
