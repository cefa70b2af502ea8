"""Models that are wrong, huge or odd: each compiles as onnxruntime does it, or is a `DvmError`."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph import _core, errors
from models import random_feeds, tiny_path
from tests.end_to_end.reference import assert_same_bits, model_from_text, session

F32, I64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[Any]],
    constants: dict[str, Any],
    outputs: Sequence[str] = ("y",),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Inputs are f32; constants int64."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, F32, dims) for name, dims in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


node = helper.make_node
ROWS = {"x": ["n"]}
MALFORMED = {
    "ends shorter than starts": model(
        [node("Slice", ["x", "s", "e", "a"], ["y"])], {"x": ["n", "k"]}, {"s": [0, 0], "e": [1], "a": [0, 1]}
    ),
    "steps of 0": model(
        [node("Slice", ["x", "s", "e", "s", "s"], ["y"])], ROWS, {"s": [0], "e": [1]}
    ),
    "an axis twice": model([node("Unsqueeze", ["x", "a"], ["y"])], ROWS, {"a": [0, 0]}),
    "a slice of an axis twice": model(
        [node("Slice", ["x", "s", "e", "a"], ["y"])], ROWS, {"s": [0, 1], "e": [3, 2], "a": [0, -1]}
    ),
    "pads of an axis twice": model(
        [node("Pad", ["x", "p", "", "a"], ["y"])], ROWS, {"p": [1, 1, 2, 2], "a": [0, 0]}
    ),
    "a crop of an axis twice": model(
        [node("CenterCropPad", ["x", "s"], ["y"], axes=[0, 0])], ROWS, {"s": [3, 4]}
    ),
    "an index deeper than its data": model(
        [node("GatherND", ["x", "i"], ["y"])], ROWS, {"i": [[0, 0, 0]]}
    ),
    "more batch axes than there are": model(
        [node("GatherND", ["x", "i"], ["y"], batch_dims=3)], ROWS, {"i": [[0]]}
    ),
    "a loss of rank 1": model(
        [node("NegativeLogLikelihoodLoss", ["x", "i"], ["y"])], ROWS, {"i": [0]}
    ),
    "fewer repeats than axes": model([node("Tile", ["x", "i"], ["y"])], {"x": ["n", "k"]}, {"i": [2]}),
    "pads of half an axis": model([node("Pad", ["x", "i"], ["y"])], ROWS, {"i": [2]}),
    "a type that the operator does not take": model([node("BitwiseAnd", ["x", "x"], ["y"])], ROWS, {}),
    "a type that its function does not take": model([node("Reciprocal", ["s"], ["y"]), node("Shape", ["x"], ["s"])], ROWS, {}),
    "a permutation of another rank": model([node("Transpose", ["x"], ["y"], perm=[1, 0])], ROWS, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_nodes(name: str) -> None:
    """Decompositions took operands for what the operator's definition says of their lengths."""
    with pytest.raises(dvm_graph.DvmError, match=MALFORMED[name].graph.node[0].op_type) as caught:
        dvm_graph.optimize(MALFORMED[name])
    assert not isinstance(caught.value, dvm_graph.CompileError)


def test_results_of_no_elements_that_no_array_has() -> None:
    """What numpy said of such extents came out as it was."""
    source = model([node("Expand", ["x", "s"], ["y"])], {"x": [0, 1, 4]}, {"s": [1, 2**59, 1]})
    compiled = dvm_graph.optimize(source)
    with pytest.raises(
        dvm_graph.ShapeError, match=r"no array of shape \[0, 576460752303423488, 4\]"
    ):
        compiled.run({"x": np.zeros((0, 1, 4), np.float32)})


def test_names_that_are_no_text() -> None:
    """onnxruntime may end the process over such a file."""
    data = model([node("Sin", ["x"], ["y"])], ROWS, {}).SerializeToString()
    with pytest.raises(dvm_graph.ModelError, match="which is no text"):
        dvm_graph.optimize(data.replace(b"Sin", b"S\xffn"))


CONSTANTS = {
    "a sum": model([node("Add", ["a", "b"], ["y"])], {}, {"a": [INT64_MAX], "b": [1]}),
    "a product": model([node("Mul", ["a", "a"], ["y"])], {}, {"a": [2**33]}),
    "a sum of dims": model(
        [node("Shape", ["x"], ["s"]), node("Add", ["s", "a"], ["c"]), node("Add", ["c", "a"], ["y"])],
        ROWS, {"a": [INT64_MAX]},
    ),
    "a sum over nothing": model([node("CumSum", ["a", "b"], ["y"])], {}, {"a": [], "b": 0}),
    "a slice with the largest step": model(
        [node("Slice", ["x", "s", "e", "a", "s"], ["y"])], ROWS,
        {"s": [INT64_MIN], "e": [INT64_MAX], "a": [0]},
    ),
    "a slice from the end with the largest step": model(
        [node("Slice", ["x", "s", "e", "a", "t"], ["y"])], ROWS,
        {"s": [INT64_MAX], "e": [INT64_MIN], "a": [0], "t": [INT64_MIN]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_integers_at_the_ends_of_their_type(name: str) -> None:
    """Numbers known when compiling were Python's, which do not wrap and do not fit the plan."""
    feeds = {i.name: np.arange(4, dtype=np.float32) for i in CONSTANTS[name].graph.input}
    expected = session(CONSTANTS[name]).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(CONSTANTS[name]).run(feeds), expected)


def test_a_quotient_that_does_not_fit_wraps() -> None:
    """onnxruntime divides as the machine does, which ends the process on some."""
    source = model([node("Div", ["a", "b"], ["y"])], {}, {"a": [INT64_MIN], "b": [-1]})
    assert dvm_graph.optimize(source).run({})[0].tolist() == [INT64_MIN]


def test_a_power_of_more_digits_than_memory_holds() -> None:
    source = model([node("Pow", ["a", "b"], ["y"])], {}, {"a": [[3] * 9] * 9, "b": [2**62 + 1]})
    result = dvm_graph.optimize(source).run({})[0]
    assert set(result.reshape(-1).tolist()) == {pow(3, 2**62 + 1, 2**64)}


# -- what would take for ever


def _calls(levels: int, per_level: int) -> onnx.ModelProto:
    """A function that calls the one below it, and so on down."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    functions = [helper.make_function("d", "f0", ["x"], ["y"], [node("Sin", ["x"], ["y"])], opsets)]
    for level in range(1, levels):
        names = ["x", *(f"t{i}" for i in range(per_level - 1)), "y"]
        pairs = itertools.pairwise(names)
        calls = [node(f"f{level - 1}", [a], [b], domain="d") for a, b in pairs]
        functions.append(helper.make_function("d", f"f{level}", ["x"], ["y"], calls, opsets))
    call = node(f"f{levels - 1}", ["x"], ["y"], domain="d")
    return model([call], ROWS, {}, functions=functions)


def test_functions_that_double_with_each_level() -> None:
    with pytest.raises(dvm_graph.LimitError, match=rf"{2**59} nodes .*max_nodes=2000000"):
        dvm_graph.optimize(_calls(60, 2))
    feeds = {"x": np.ones(3, np.float32)}
    expected = session(_calls(5, 2)).run(None, feeds)
    np.testing.assert_allclose(dvm_graph.optimize(_calls(5, 2)).run(feeds)[0], expected[0], 1e-5)
    with pytest.raises(dvm_graph.LimitError, match=r"16 nodes .*max_nodes=15"):
        dvm_graph.optimize(_calls(5, 2), max_nodes=15)


def test_functions_nested_deeper_than_onnx_expands() -> None:
    with pytest.raises(dvm_graph.ModelError, match="depth"):
        dvm_graph.optimize(_calls(150, 1))


def _chain(length: int) -> onnx.ModelProto:
    names = ["x", *(f"t{i}" for i in range(length - 1)), "y"]
    return model([node("Sin", [a], [b]) for a, b in itertools.pairwise(names)], ROWS, {})


@pytest.mark.parametrize("limit", [{"max_compile_seconds": 0}, {"max_compile_bytes": 0}])
def test_limits_name_themselves(limit: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory grows whenever it is asked for: what others gave back might do for all that is compiled."""
    monkeypatch.setattr("dvm_graph.symbolic.meter._private_bytes", itertools.count().__next__)
    ((name, value),) = limit.items()
    with pytest.raises(dvm_graph.LimitError, match=f"{name}={value}"):
        dvm_graph.optimize(_chain(2000), **limit)


def test_memory_that_control_groups_leave_is_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As runs do, compiling asks for what is left in every control group (npu/host/control_groups.h)."""
    less_than_freed = -(1 << 40)  # a compilation may live on pages that others gave back
    monkeypatch.setattr(_core, "available_memory", lambda: less_than_freed)
    with pytest.raises(dvm_graph.OutOfMemoryError, match="all memory that there was"):
        dvm_graph.optimize(_chain(2000))


def test_dims_that_multiply_and_add_up() -> None:
    """Dims of (n0 + ... + nk)**4: minutes, at 30 inputs, while they were multiplied out."""
    inputs = {f"x{i}": [f"n{i}"] for i in range(30)}
    nodes = [node("Concat", [*inputs], ["v0"], axis=0)]
    for i in range(2):
        nodes += [
            node("Unsqueeze", [f"v{i}", "last"], [f"a{i}"]),
            node("Unsqueeze", [f"v{i}", "first"], [f"b{i}"]),
            node("Mul", [f"a{i}", f"b{i}"], [f"c{i}"]),
            node("Reshape", [f"c{i}", "open"], [f"v{i + 1}"]),
        ]
    source = model(nodes, inputs, {"last": [1], "first": [0], "open": [-1]}, ["v2"])
    compiled = dvm_graph.optimize(source)
    feeds = {name: np.full(1, i % 3, np.float32) for i, name in enumerate(inputs)}
    assert_same_bits(compiled.run(feeds), session(source).run(None, feeds))


def test_as_many_parts_as_there_are_positions() -> None:
    names = [f"y{i}" for i in range(150)]
    source = model([node("Split", ["x"], names, num_outputs=150)], ROWS, {}, names)
    compiled = dvm_graph.optimize(source)
    for extent in (150, 300, 1500):
        feeds = {"x": np.arange(extent, dtype=np.float32)}
        assert_same_bits(compiled.run(feeds), session(source).run(None, feeds))


# -- what surrounds a model


def test_whatever_else_arises_is_a_defect_to_report(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Exception] = [KeyError("k"), RecursionError(), MemoryError(), RuntimeError("no")]
    expected = [dvm_graph.CompileError] * 2 + [dvm_graph.OutOfMemoryError, dvm_graph.CompileError]
    for error, kind in zip(raised, expected, strict=True):

        def fail(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr("dvm_graph.rescue.compile_model", fail)
        with pytest.raises(kind) as caught:
            dvm_graph.optimize(tiny_path("mmoe"), strict=True)
        assert caught.value.__cause__ is error


@pytest.mark.parametrize("form", [str, Path.read_bytes, onnx.load])
def test_copies_and_pickles_are_models(form: Any) -> None:
    first = dvm_graph.optimize(form(tiny_path("mmoe")), cores=1)
    feeds = random_feeds("mmoe", {"batch": 3})
    expected = first.run(feeds)
    for second in (copy.deepcopy(first), copy.copy(first), pickle.loads(pickle.dumps(first))):
        assert second.cores == 1
        assert_same_bits(second.run(feeds), expected)


def test_where_a_picture_cannot_be_written(tmp_path: Path) -> None:
    compiled = dvm_graph.optimize(model_from_text("g (float[n] x) => (float[n] y) { y = Sin(x) }"))
    with pytest.raises(dvm_graph.InputError, match="there is no folder"):
        compiled.visualize(tmp_path / "missing" / "model.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(dvm_graph.InputError, match="it is a folder"):
        compiled.visualize(tmp_path / "folder.svg")
    (tmp_path / "file").write_text("")
    with pytest.raises(dvm_graph.InputError, match="cannot write"):
        dvm_graph.optimize(tiny_path("mmoe"), dump=str(tmp_path / "file" / "stages"))


def test_every_error_that_users_may_catch_is_exported() -> None:
    raised = {name for name, kind in vars(errors).items() if isinstance(kind, type)}
    public = {name for name in raised if name.endswith(("Error", "Warning"))}
    assert public <= {*dvm_graph.__all__}
