"""TensorScatter, and the Scatter of old models, against onnxruntime bit by bit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from tests.decompose.reference import Array, session

TYPES = (np.float32, np.float16, np.int64, np.bool_, np.float64, np.uint8)


def writing(
    rank: int, axis: int, mode: str, dtype: type[np.generic], *, told: bool
) -> onnx.ModelProto:
    """A cache and an update of any extents, and from where each batch is written."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [
        helper.make_tensor_value_info(name, element, [f"{name}{at}" for at in range(rank)])
        for name in ("cache", "update")
    ]
    if told:
        inputs.append(helper.make_tensor_value_info("begin", 7, ["batch"]))
    names = [info.name for info in inputs]
    node = helper.make_node("TensorScatter", names, ["y"], name="write", axis=axis, mode=mode)
    y = helper.make_tensor_value_info("y", element, None)
    graph = helper.make_graph([node], "g", inputs, [y])
    return helper.make_model(graph, ir_version=11, opset_imports=[helper.make_opsetid("", 24)])


def ends(run: Any) -> list[Array] | None:
    """None: it is refused."""
    try:
        return list(run())
    except Exception:  # of whichever engine
        return None


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("seed", range(30))
def test_drawn_caches(seed: int, mode: str) -> None:
    """A place too few, or too many, is drawn, too: what onnxruntime refuses is refused."""
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    rank = draw.randint(2, 4)
    axis = draw.randrange(1, rank)
    shape = [draw.randint(1, 3) for _ in range(rank)]
    shape[axis] = draw.randint(1, 6)
    length = draw.randint(1, shape[axis])
    dtype = draw.choice(TYPES)
    shapes = {"cache": shape, "update": [*shape[:axis], length, *shape[axis + 1 :]]}
    feeds: dict[str, Array] = {
        name: generator.integers(0, 99, extents).astype(dtype) for name, extents in shapes.items()
    }
    last = 30 if mode == "circular" else shape[axis] - length + 1
    if told := draw.random() < 0.8:
        feeds["begin"] = generator.integers(-draw.choice((0, 0, 1)), last + 1, shape[0])
    model = writing(rank, axis - draw.choice((0, rank)), mode, dtype, told=told)
    compiled, reference = dvm_graph.optimize(model, strict=True), session(model)
    before = feeds["cache"].copy()
    wanted, given = ends(lambda: reference.run(None, feeds)), ends(lambda: compiled.run(feeds))
    assert (wanted is None) == (given is None)
    if wanted and given:
        np.testing.assert_array_equal(given[0], wanted[0])
    np.testing.assert_array_equal(feeds["cache"], before)


@pytest.mark.parametrize("batch, room", [(0, 3), (2, 3), (2, 0)])
def test_nothing_to_write(batch: int, room: int) -> None:
    model = writing(3, 1, "circular", np.float32, told=True)
    feeds: dict[str, Array] = {
        "cache": np.ones((batch, room, 2), np.float32),
        "update": np.ones((batch, 0, 2), np.float32),
        "begin": np.zeros(batch, np.int64),
    }
    (got,) = dvm_graph.optimize(model, strict=True).run(feeds)
    np.testing.assert_array_equal(got, feeds["cache"])


@pytest.mark.parametrize(
    "update, begin",
    [((3, 2, 2), (0, 0)), ((2, 2, 1), (0, 0)), ((2, 5, 2), (0, 0)), ((2, 2, 2), (0, 0, 0))],
)
def test_updates_that_do_not_fit(update: tuple[int, ...], begin: tuple[int, ...]) -> None:
    model = writing(3, 1, "linear", np.float32, told=True)
    feeds: dict[str, Array] = {
        "cache": np.ones((2, 4, 2), np.float32),
        "update": np.ones(update, np.float32),
        "begin": np.array(begin),
    }
    with pytest.raises(dvm_graph.DvmError):
        dvm_graph.optimize(model, strict=True).run(feeds)


def test_scatter_of_the_first_operator_sets() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 4, opset_import: ["" : 9]>'
        "g (float[a, b] x, int64[c, d] i, float[c, d] u) => (float[a, b] y)"
        "{ y = Scatter<axis = 1>(x, i, u) }"
    )
    generator = np.random.default_rng(0)
    feeds = {
        "x": generator.standard_normal((3, 7)).astype(np.float32),
        "i": generator.permuted(np.tile(np.arange(-7, 0), (2, 1)), axis=1)[:, :4],
        "u": generator.standard_normal((2, 4)).astype(np.float32),
    }
    (got,) = dvm_graph.optimize(model, strict=True).run(feeds)
    np.testing.assert_array_equal(got, session(model).run(None, feeds)[0])
