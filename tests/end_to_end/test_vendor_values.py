"""Values that kernels cannot hold, and sizes that only vendor operators tell: as onnxruntime has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.end_to_end.reference import Array, assert_same_bits, session

X = (np.arange(12, dtype=np.float32) - 5) % 7 - 3
CLASSICAL = "ai.onnx.ml"
FLAGS = np.array([True, False, True, False, True, False])


def model(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    dims: Mapping[str, list[Any]] | None = None,
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """Inputs typed by their feeds, of any extents; outputs without a type."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(feed.dtype),
            (dims or {}).get(name, [None] * feed.ndim),
        )
        for name, feed in feeds.items()
    ]
    graph = helper.make_graph(
        list(nodes),
        "g",
        inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def assert_as_onnxruntime(
    source: onnx.ModelProto, *feeds: Mapping[str, Any], **options: Any
) -> dvm_graph.Model:
    """Same bits, at the shapes of all feeds in turn."""
    mine = dvm_graph.optimize(source, **options)
    reference = session(source)
    for feed in feeds:
        results = mine.run(feed)
        expected = reference.run(None, dict(feed))
        arrays = [np.asarray(array) for array in results]
        assert_same_bits(arrays, [np.asarray(array) for array in expected])
    return mine


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def doubling_loop() -> onnx.NodeProto:
    """v := v + v, n times; the body declares no shape."""
    body = helper.make_graph(
        [node("Identity", "c", "c2"), node("Add", "v v", "v2")],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            onnx.ValueInfoProto(name="v"),
        ],
        [helper.make_tensor_value_info("c2", TensorProto.BOOL, []), onnx.ValueInfoProto(name="v2")],
    )
    return node("Loop", "n t x", "r", body=body)


def reshaped(x: Array, *shape: int) -> dict[str, Array]:
    return {"x": x, "s": np.array(shape, np.int64)}


RELU = node("Relu", "r", "y")


@pytest.mark.parametrize(
    ("nodes", "dims", "constants", "feeds"),
    [
        ([doubling_loop(), RELU], {}, {"n": np.int64(3), "t": True},
         [{"x": X.reshape(3, 4)}, {"x": X[:5].reshape(5, 1)}]),
        ([node("Reshape", "x s", "r"), RELU, node("Exp", "r", "e")], {"x": ["a", "b"]}, {},
         [reshaped(X.reshape(2, 6), 3, 4), reshaped(X.reshape(3, 4), 12),
          reshaped(X.reshape(1, 12), 1, 2, 6, 1)]),
        ([node("Squeeze", "x", "r"), RELU], {}, {},
         [{"x": X.reshape(1, 12)}, {"x": X.reshape(2, 6)}, {"x": X[:1].reshape(1, 1)}]),
        ([node("SequenceConstruct", "x x", "q"), node("SequenceAt", "q i", "r"), RELU], {},
         {"i": np.int64(1)}, [{"x": X.reshape(2, 6)}]),
        ([node("Compress", "x c", "r"), RELU], {}, {}, [{"x": X[:6].reshape(2, 3), "c": FLAGS}]),
    ],
    ids=("loop", "reshape", "squeeze", "sequence", "compress"),
)  # fmt: skip
def test_ranks_that_only_the_run_tells(
    nodes: list[onnx.NodeProto],
    dims: dict[str, list[Any]],
    constants: dict[str, Any],
    feeds: list[dict[str, Array]],
) -> None:
    outputs = ["y", "e"] if any("e" in n.output for n in nodes) else ["y"]
    assert_as_onnxruntime(model(nodes, feeds[0], dims, constants, outputs), *feeds)


def test_kernels_go_on_where_the_rank_is_known_again() -> None:
    nodes = [
        node("Reshape", "x s", "a"),
        node("Neg", "a", "b"),
        node("Flatten", "b", "c", axis=0),
        node("Exp", "c", "y"),
    ]
    feeds = [reshaped(X.reshape(3, 4), 2, 6), reshaped(X.reshape(12, 1), 2, 3, 2)]
    mine = dvm_graph.optimize(model(nodes, feeds[0]))
    for feed in feeds:
        (result,) = mine.run(feed)
        np.testing.assert_allclose(result, np.exp(-X).reshape(1, 12), rtol=1e-5)
    assert mine.statistics.kernels_launched == 1


def test_inputs_of_unknown_rank() -> None:
    source = model([node("Neg", "x", "y")], {"x": X})
    source.graph.input[0].type.tensor_type.ClearField("shape")
    mine = assert_as_onnxruntime(source, {"x": X}, {"x": X.reshape(3, 4)}, {"x": np.array(X[0])})
    with pytest.raises(dvm_graph.InputError, match="x is float64, but the model wants float32"):
        mine.run({"x": X.astype(np.float64)})


@pytest.mark.parametrize(
    ("nodes", "constants", "feeds", "dims"),
    [
        ([node("NonZero", "x", "z"), node("GatherElements", "z i", "y", axis=1)], {},
         {"x": X.reshape(3, 4), "i": np.array([[0, 1], [1, 0]])}, {"x": ["n", "m"], "i": [2, 2]}),
        ([node("Compress", "x c", "q", axis=0), node("GatherND", "q i", "y")], {},
         {"x": X.reshape(3, 4), "c": FLAGS[:3], "i": np.array([[0, 1], [1, 0]])},
         {"x": ["n", "m"], "i": [2, 2]}),
        ([node("TopK", "x k", "v w", axis=0), node("GatherElements", "v i", "y", axis=0)], {},
         {"x": X.reshape(3, 4), "k": np.array([2]), "i": np.array([[-1, 1, 0, 0]])},
         {"x": ["n", "m"], "i": [1, 4]}),
        ([node("NonZero", "x", "z"), node("Slice", "z b e a", "y")],
         {"b": [-1], "e": [-(2**62)], "a": [1]}, {"x": X.reshape(3, 4)}, {}),
    ],
    ids=("NonZero", "Compress", "TopK", "Slice"),
)  # fmt: skip
def test_sizes_known_once_the_result_is_there(
    nodes: list[onnx.NodeProto],
    constants: dict[str, Any],
    feeds: dict[str, Array],
    dims: dict[str, list[Any]],
) -> None:
    assert_as_onnxruntime(model(nodes, feeds, dims, constants), feeds)


def test_strings_bind_no_dims() -> None:
    words = np.array(["a", "b", "c"], object)
    others = np.array(["a", "x", "c"], object)
    nodes = [node("Equal", "x z", "e"), node("Not", "e", "y")]
    source = model(nodes, {"x": words, "z": words}, {"x": ["n"], "z": ["n"]})
    assert_as_onnxruntime(source, {"x": words, "z": others}, {"x": words[:1], "z": others[1:2]})


def test_a_constant_of_strings_as_output() -> None:
    nodes = [node("Identity", "w", "v"), node("Exp", "x", "y")]
    source = model(
        nodes, {"x": X}, constants={"w": np.array(["a", "bc"], object)}, outputs=("w", "v", "y")
    )
    w, v, _ = dvm_graph.optimize(source).run({"x": X})
    assert list(w) == list(v) == ["a", "bc"]


def body(nodes: list[onnx.NodeProto], inputs: str, outputs: str) -> onnx.GraphProto:
    """A body that declares nothing but its names, where it may."""
    scalars = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    takes = [
        helper.make_tensor_value_info(name, scalars[name], [])
        if name in scalars
        else onnx.ValueInfoProto(name=name)
        for name in inputs.split()
    ]
    gives = [onnx.ValueInfoProto(name=name) for name in outputs.split()]
    return helper.make_graph(nodes, "body", takes, gives)


def test_kernels_go_on_behind_a_loop() -> None:
    """v keeps its shape; u grows; what is collected has one entry a turn."""
    loop = node(
        "Loop", "n t x x", "v u w",
        body=body(
            [node("Identity", "c", "c2"), node("Add", "v x", "v2"), node("Concat", "u x", "u2", axis=0),
             node("Neg", "v", "e")],
            "i c v u", "c2 v2 u2 e",
        ),
    )  # fmt: skip
    nodes = [loop, node("Add", "v x", "y"), node("Exp", "u", "z"), node("ReduceMax", "w", "m")]
    feeds = [
        {"x": X.reshape(a, b), "n": np.array(n)}
        for a, b, n in [(3, 4, 2), (2, 6, 0), (12, 1, 5), (1, 12, 1)]
    ]
    source = model(nodes, feeds[0], constants={"t": True}, outputs=("y", "z"))
    mine, reference = dvm_graph.optimize(source), session(source)
    assert mine.report().vendor_operators == ()
    for feed in feeds:
        for result, expected in zip(mine.run(feed), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_kernels_go_on_behind_an_if() -> None:
    """Branches of one rank and two extents, and an operator that cannot move into them."""
    odd: dict[str, Any] = {"domain": CLASSICAL, "imputed_value_floats": [9.0, 8.0]}
    choice = node(
        "If", "c", "r",
        then_branch=body([node("Concat", "x x", "a", axis=0)], "", "a"),
        else_branch=body([node("Imputer", "x", "b", **odd)], "", "b"),
    )  # fmt: skip
    nodes = [choice, node("Imputer", "r", "t", **odd), node("Sub", "r t", "y")]
    feeds = [{"x": X.reshape(3, 4), "c": np.array(c)} for c in (True, False)]
    source = model(nodes, feeds[0])
    source.opset_import.append(helper.make_opsetid(CLASSICAL, 1))
    mine = assert_as_onnxruntime(source, *feeds)
    assert set(mine.report().vendor_operators) == {f"Imputer (Imputer:{n})" for n in "bt"}
    assert mine.report().kernels == 1


def test_kernels_go_on_behind_a_scan() -> None:
    scan = node(
        "Scan", "s x", "t o", num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[1],
        body=body([node("Add", "a e", "a2"), node("Identity", "a2", "g")], "a e", "a2 g"),
    )  # fmt: skip
    nodes = [scan, node("Neg", "t", "y"), node("Sub", "o x", "z")]
    feeds = [
        {"x": X.reshape(3, 4), "s": np.ones(3, np.float32)},
        {"x": X.reshape(2, 6), "s": np.ones(2, np.float32)},
    ]
    mine = assert_as_onnxruntime(model(nodes, feeds[0], outputs=("y", "z")), *feeds)
    assert mine.report().vendor_operators == ()
    assert mine.report().find("Neg:y")[0].is_kernel and mine.report().find("Sub:z")[0].is_kernel
