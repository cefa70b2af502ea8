"""Col2Im beside onnxruntime, and beside its own definition where onnxruntime has another."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session


@dataclass(frozen=True)
class Blocks:
    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    image: Sequence[int]

    @property
    def places(self) -> list[int]:
        """Of blocks, along each axis."""
        count = len(self.kernel)
        return [
            (extent + before + after - dilation * (taps - 1) - 1) // stride + 1
            for extent, taps, stride, dilation, before, after in zip(
                self.image,
                self.kernel,
                self.strides,
                self.dilations,
                self.pads[:count],
                self.pads[count:],
                strict=True,
            )
        ]

    def model(self, *, known: bool) -> onnx.ModelProto:
        """Whose image is as large as a constant says, or as another input is."""
        count = len(self.kernel)
        attrs: dict[str, Any] = {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
        }
        nodes = [helper.make_node("Col2Im", ["x", "image", "block"], ["y"], name="blocks", **attrs)]
        inputs = [helper.make_tensor_value_info("x", 1, ["batch", "rows", "places"])]
        constants = [helper.make_tensor("block", 7, [count], self.kernel)]
        if known:
            constants.append(helper.make_tensor("image", 7, [count], self.image))
        else:
            nodes.insert(0, helper.make_node("Shape", ["like"], ["image"]))
            dims = [f"d{at}" for at in range(count)]
            inputs.append(helper.make_tensor_value_info("like", 1, dims))
        y = helper.make_tensor_value_info("y", 1, None)
        graph = helper.make_graph(nodes, "g", inputs, [y], constants)
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])

    def feeds(self, model: onnx.ModelProto, batch: int, channels: int) -> dict[str, Array]:
        shape = (batch, channels * int(np.prod(self.kernel)), int(np.prod(self.places)))
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        feeds = {"x": x, "like": np.zeros(self.image, np.float32)}
        return {info.name: feeds[info.name] for info in model.graph.input}

    def sums(self, x: Array) -> Array:
        """What each element of each block gives to its place."""
        count = len(self.kernel)
        batch, rows, _ = x.shape
        whole = map(sum, zip(self.image, self.pads[:count], self.pads[count:], strict=True))
        given = x.reshape(batch, -1, *self.kernel, *self.places)
        y = np.zeros((batch, rows // int(np.prod(self.kernel)), *whole), np.float32)
        for tap in np.ndindex(*self.kernel):
            for block in np.ndindex(*self.places):
                moves = zip(block, self.strides, tap, self.dilations, strict=True)
                place = tuple(b * s + t * d for b, s, t, d in moves)
                y[self.across(place)] += given[self.across(tap + block)]
        starts = zip(self.pads[:count], self.image, strict=True)
        inside = tuple(slice(start, start + size) for start, size in starts)
        cut: Array = y[self.across(inside)]
        return cut

    @staticmethod
    def across(at: tuple[Any, ...]) -> tuple[Any, ...]:
        """An index behind batch and channels."""
        return slice(None), slice(None), *at


def drawn(seed: int, count: int) -> Blocks:
    draw = random.Random(seed)
    while True:
        kernel = [draw.randint(1, 4) for _ in range(count)]
        beside = draw.random() < 0.3  # without overlaps
        strides = kernel if beside else [draw.randint(1, 5) for _ in range(count)]
        dilations = [1] * count if beside else [draw.randint(1, 3) for _ in range(count)]
        pads = [draw.choice((0, 0, 1, 2)) for _ in range(2 * count)]
        blocks = Blocks(kernel, strides, dilations, pads, [draw.randint(1, 14) for _ in kernel])
        if min(blocks.places) > 0:
            return blocks


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_drawn_blocks_of_planes(seed: int, known: bool) -> None:
    blocks = drawn(seed, 2)
    model = blocks.model(known=known)
    reference = session(model)
    for strict, (batch, channels) in itertools.product((False, True), ((2, 3), (1, 1), (0, 2))):
        feeds = blocks.feeds(model, batch, channels)
        actual = dvm_graph.optimize(model, strict=strict).run(feeds)
        assert_all_close(actual, reference.run(None, feeds), reduction_length=16)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_drawn_blocks_of_other_axes(seed: int, count: int) -> None:
    """Where onnxruntime adds up others, if there are pads or dilations (`docs/edge_values.md`)."""
    blocks = drawn(seed, count)
    model = blocks.model(known=seed % 2 == 0)
    feeds = blocks.feeds(model, 2, 3)
    actual = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(actual, [blocks.sums(feeds["x"])], reduction_length=64)


def test_onnxruntime_is_asked_where_many_parts_are_added() -> None:
    """And nowhere else: blocks that lie side by side are a view, which fuses with what is around."""
    for kernel, stride, left in ((3, 1, True), (3, 2, True), (8, 8, False), (16, 8, False)):
        blocks = Blocks([kernel] * 2, [stride] * 2, [1, 1], [0] * 4, [32, 48])
        report = dvm_graph.optimize(blocks.model(known=False)).report()
        assert bool(report.vendor_operators) == left, (kernel, stride)


@pytest.mark.parametrize("rows, places", [(17, 12), (18, 11), (18, 13)])
def test_blocks_that_are_none_of_the_image(rows: int, places: int) -> None:
    model = Blocks([3, 3], [3, 3], [1, 1], [0] * 4, [9, 12]).model(known=True)
    x = np.zeros((1, rows, places), np.float32)
    with pytest.raises(dvm_graph.DvmError, match="blocks"):
        dvm_graph.optimize(model, strict=True).run({"x": x})
