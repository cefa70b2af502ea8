"""Tiles of small tensors that are only turned: as much as the three loops of an instruction go over."""

from __future__ import annotations

import itertools
import math
import random
import re

import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph

_EXTENTS = (1, 2, 3, 4, 8, 11, 16, 33)
_MOST = 8192
"""Elements that fit the least first-level cache, so that tiles are cut for the cores alone."""
_FEW = 16


def _transpose(order: tuple[int, ...]) -> onnx.ModelProto:
    dims = [f"d{axis}" for axis in range(len(order))]
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"], perm=order)],
        "turned",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("rank", [3, 4, 5, 6])
def test_tiles_hold_the_innermost_loops(rank: int) -> None:
    draw = random.Random(rank)
    orders = list(itertools.permutations(range(rank)))
    for order in draw.sample(orders, min(len(orders), 24)):
        model = dvm_graph.optimize(_transpose(order))
        for _ in range(8):
            shape = draw.choices(_EXTENTS, k=rank)
            if math.prod(shape) > _MOST:
                continue
            innermost = math.prod(shape[axis] for axis in order[-3:])
            for listing in model.listings({f"d{axis}": n for axis, n in enumerate(shape)}):
                tiles = re.search(r"^  tiles (\d+) ", listing.text, re.MULTILINE)
                assert tiles is not None
                held = math.prod(shape) / int(tiles[1])
                assert held >= min(innermost, _FEW), (order, shape, listing.text)
