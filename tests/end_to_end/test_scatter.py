"""ScatterElements and ScatterND, which the host carries out, against onnxruntime bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end.test_host_operators import ONNX_TYPES, _drawn

REDUCTIONS = ("none", "add", "mul", "max", "min")
NUMBERS = [kind for kind in ONNX_TYPES if kind not in ("float16", "bfloat16", "bool")]
SHAPES = ((5,), (3, 4), (2, 3, 4), (1, 1), (4, 0), (2, 1, 3, 2))


def model(op: str, kind: str, index: type[Any], rank: int, **attributes: Any) -> onnx.ModelProto:
    """Over any extents; what is scattered is used twice, so that nothing may be written over it."""
    element = helper.np_dtype_to_tensor_dtype(np.dtype(ONNX_TYPES[kind]))

    def info(name: str, number: int, dims: list[str] | None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, number, dims)

    integers = helper.np_dtype_to_tensor_dtype(np.dtype(index))
    ranks = {
        "ScatterElements": (rank, rank),
        "ScatterND": (attributes.pop("tuples"), attributes.pop("updates")),
    }
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node(op, ["same", "i", "u"], ["y"], **attributes),
    ]
    inputs = [
        info("x", element, [f"x{axis}" for axis in range(rank)]),
        info("i", integers, [f"i{axis}" for axis in range(ranks[op][0])]),
        info("u", element, [f"u{axis}" for axis in range(ranks[op][1])]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", element, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def assert_equal(proto: onnx.ModelProto, *runs: dict[str, Any]) -> None:
    compiled, reference = dvm_graph.optimize(proto, strict=True), session(proto)
    for feeds in runs:
        before = feeds["x"].copy()
        (got,), (want,) = compiled.run(feeds), reference.run(None, feeds)
        assert got.dtype == want.dtype and got.shape == want.shape
        assert got.tobytes() == want.tobytes()
        assert feeds["x"].tobytes() == before.tobytes()


def kinds_of(reduction: str) -> list[str]:
    return [*NUMBERS, "float16", "bool"] if reduction == "none" else NUMBERS


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_elements(reduction: str, index: type[Any]) -> None:
    for kind in kinds_of(reduction):
        for shape in SHAPES:
            for axis in {0, len(shape) - 1, -1}:
                rng = np.random.default_rng(len(shape) + axis)
                runs = []
                for most in (2, 7):
                    drawn = [int(rng.integers(0, extent + 1)) for extent in shape]
                    drawn[axis] = most if shape[axis] else 0
                    i = rng.integers(-shape[axis], max(shape[axis], 1), drawn).astype(index)
                    updates = _drawn(rng, kind, drawn)
                    runs.append({"x": _drawn(rng, kind, shape), "i": i, "u": updates})
                attributes = {"axis": axis, "reduction": reduction, "tuples": 0, "updates": 0}
                proto = model("ScatterElements", kind, index, len(shape), **attributes)
                assert_equal(proto, *runs)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_slices(reduction: str) -> None:
    """At places of their own where order would count, which onnxruntime's threads do not keep."""
    for kind in kinds_of(reduction):
        for shape in SHAPES:
            for depth in range(len(shape) + 1):
                rng = np.random.default_rng(len(shape) + depth)
                places = np.stack(
                    [np.arange(int(np.prod(shape[:depth])))]
                    if not depth
                    else np.unravel_index(np.arange(int(np.prod(shape[:depth]))), shape[:depth]),
                    -1,
                )[:, :depth].astype(np.int64)
                rng.shuffle(places)
                runs = []
                for count in (len(places), len(places) // 2, 0):
                    i = places[:count].copy()
                    i -= np.array(shape[:depth], np.int64) * rng.integers(0, 2, i.shape)
                    updates = _drawn(rng, kind, (len(i), *shape[depth:]))
                    runs.append({"x": _drawn(rng, kind, shape), "i": i, "u": updates})
                ranks = {"tuples": 2, "updates": 1 + len(shape) - depth}
                proto = model("ScatterND", kind, np.int64, len(shape), reduction=reduction, **ranks)
                assert_equal(proto, *runs)


@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_what_does_not_fit_is_refused(op: str) -> None:
    elements = op == "ScatterElements"
    attributes = {"tuples": 2, "updates": 1}
    compiled = dvm_graph.optimize(model(op, "float", np.int64, 2, **attributes), strict=True)
    x, i = np.zeros((3, 4), np.float32), np.array([[2, 3], [-3, -4]])
    u = np.ones((2, 2) if elements else 2, np.float32)
    if elements:
        i[:] = [[2, -3], [0, 1]]
    feeds = {"x": x, "i": i, "u": u}
    wanted = session(model(op, "float", np.int64, 2, **attributes)).run(None, feeds)[0]
    np.testing.assert_array_equal(compiled.run(feeds)[0], wanted)
    for bad in (i + 3, i - 7):
        with pytest.raises(dvm_graph.InputError, match="lies outside of an axis"):
            compiled.run(feeds | {"i": bad})
    with pytest.raises(dvm_graph.ShapeError, match="do not fit"):
        compiled.run(feeds | {"u": u[:1]})
    with pytest.raises(dvm_graph.ShapeError, match="do not fit"):
        compiled.run(feeds | {"i": np.zeros((2, 5), np.int64)})
    np.testing.assert_array_equal(compiled.run(feeds)[0], wanted)


def test_the_first_form() -> None:
    """Scatter, which became ScatterElements."""
    proto = onnx.parser.parse_model(
        """<ir_version: 4, opset_import: ["" : 9]>
        g (float[n, m] x, int64[a, b] i, float[a, b] u) => (float[n, m] y)
        { y = Scatter<axis = 1>(x, i, u) }"""
    )
    random = np.random.default_rng(0)
    feeds = {
        "x": random.standard_normal((3, 5)).astype(np.float32),
        "i": np.array([[4, 0], [1, 3], [2, 4]]),
        "u": random.standard_normal((3, 2)).astype(np.float32),
    }
    (mine,) = dvm_graph.optimize(proto, strict=True).run(feeds)
    np.testing.assert_array_equal(mine, session(proto).run(None, feeds)[0])
