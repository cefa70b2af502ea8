"""Strings that are moved, joined and looked up, beside onnxruntime: of inputs, of constants, and of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.end_to_end.categories import assert_agrees, model_of

WORDS = ["a", "b", "c", "é", ""]
CONSTANT = np.array([["a", "q", "b"], ["é", "", "a\0"]], object)
NUMBERS: dict[str, list[int]] = {
    "shape": [-1],
    "columns": [0, 3, 1],
    "perm": [2, 0],
    "starts": [1],
    "ends": [9],
    "axis": [1],
    "steps": [2],
    "size": [2, 1, 3],
    "repeats": [1, 2],
    "parts": [1, 2],
}
MOVES: dict[str, list[Any]] = {
    "Identity": [("Identity", ["x"], {})],
    "Reshape": [("Reshape", ["x", "shape"], {})],
    "rows": [("Reshape", ["x", "columns"], {})],
    "Flatten": [("Flatten", ["x"], {"axis": 1})],
    "Transpose": [("Transpose", ["x"], {"perm": [1, 0]})],
    "Gather": [("Gather", ["x", "perm"], {"axis": 1})],
    "one column": [("Gather", ["x", "axis"], {"axis": 1})],
    "Slice": [("Slice", ["x", "starts", "ends", "axis", "steps"], {})],
    "Unsqueeze": [("Unsqueeze", ["x", "axis"], {})],
    "Squeeze": [("Unsqueeze", ["x", "axis"], {}), ("Squeeze", ["m0", "axis"], {})],
    "Expand": [("Unsqueeze", ["x", "axis"], {}), ("Expand", ["m0", "size"], {})],
    "Tile": [("Tile", ["x", "repeats"], {})],
    "Split": [("Split", ["x", "parts"], {"axis": 1})],
    "features": [("ArrayFeatureExtractor", ["x", "perm"], {})],
    "two": [("Concat", ["x", "z"], {"axis": 0})],
    "two sideways": [("Concat", ["z", "x"], {"axis": 1})],
    "itself": [("Concat", ["x", "x"], {"axis": 1})],
    "constant": [("Concat", ["x", "constant", "z"], {"axis": 0})],
    "constants": [("Concat", ["constant", "constant"], {"axis": 0})],
    "nested": [
        ("Concat", ["x", "constant"], {"axis": 0}),
        ("Transpose", ["m0"], {"perm": [1, 0]}),
        ("Concat", ["m1", "m1"], {"axis": 1}),
        ("Gather", ["m2", "perm"], {"axis": 1}),
        ("Concat", ["m3", "m3"], {"axis": 0}),
    ],
}


def moving(steps: list[Any], encoder: str) -> onnx.ModelProto:
    """The steps, and what an encoder makes of their last result."""
    nodes, last = [], ""
    for at, (op, operands, attributes) in enumerate(steps):
        last = f"m{at}"
        domain = "ai.onnx.ml" if op == "ArrayFeatureExtractor" else ""
        results = [last, "rest"] if op == "Split" else [last]
        nodes.append(helper.make_node(op, operands, results, domain=domain, **attributes))
    outputs = [last]
    if encoder:
        about = {
            "numbers": {"values_int64s": [3, 1, 4, 1, 5], "default_int64": -1},
            "floats": {"values_floats": [0.5, 1.5, 2.5, 3.5, 4.5]},
            "strings": {"values_strings": ["p", "q", "p", "r", "s"]},
            "spread": {"cats_strings": WORDS},
        }[encoder]
        op = "OneHotEncoder" if encoder == "spread" else "LabelEncoder"
        if encoder != "spread":
            about["keys_strings"] = WORDS
        nodes.append(helper.make_node(op, [last], ["y"], domain="ai.onnx.ml", **about))
        outputs = ["y"]
    text = TensorProto.STRING
    version = 1 if encoder == "spread" else 2
    proto = model_of(nodes, {"x": (text, ["n", 3]), "z": (text, ["n", 3])}, outputs, version)
    held = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in NUMBERS.items()]
    held.append(numpy_helper.from_array(CONSTANT, "constant"))
    read = {name for node in nodes for name in node.input}
    proto.graph.initializer.extend(tensor for tensor in held if tensor.name in read)
    if "z" not in read:
        del proto.graph.input[1]
    if "x" not in read:
        del proto.graph.input[0]
    return proto


def fed(rows: int, proto: onnx.ModelProto) -> dict[str, Any]:
    drawn = np.random.default_rng(rows).choice(np.array([*WORDS, "zz"], object), (2, rows, 3))
    return {port.name: drawn["xz".index(port.name)] for port in proto.graph.input}


@pytest.mark.parametrize("encoder", ["", "numbers", "floats", "strings", "spread"])
@pytest.mark.parametrize("name", MOVES)
def test_strings_are_moved(name: str, encoder: str) -> None:
    proto = moving(MOVES[name], encoder)
    rows = (2,) if name == "Expand" else (1, 4, 0)
    assert_agrees(proto, *(fed(n, proto) for n in rows))


FED = {
    "things": np.array([["a", None, 3], [1.5, b"a", float("nan")]], object),
    "text": np.array([["a", "", "é"], ["zz", "b", "c"]]),
    "turned": np.array([["a", "", "é"], ["zz", "b", "c"]], object).T[:, ::-1].repeat(2, 1)[:, 1:],
    "bytes": np.array([[b"a", "é".encode(), b""]], "S4"),
    "list": [["a", None, 3]],
}


@pytest.mark.parametrize("encoder", ["", "numbers"])
@pytest.mark.parametrize("name", ["Identity", "Transpose", "two"])
@pytest.mark.parametrize("kind", FED)
def test_what_is_fed_as_strings_is_text(kind: str, name: str, encoder: str) -> None:
    """And no result is what was fed."""
    proto, given = moving(MOVES[name], encoder), FED[kind]
    assert_agrees(proto, {port.name: given for port in proto.graph.input})
    if not encoder:
        (y,) = dvm_graph.optimize(proto).run({port.name: given for port in proto.graph.input})
        assert isinstance(y, np.ndarray)
        assert y is not given
        assert all(type(text) is str for text in y.reshape(-1))


def test_bytes_that_are_no_text_are_no_word() -> None:
    proto = moving(MOVES["Identity"], "numbers")
    assert_agrees(proto, {"x": np.array([[b"\xff", b"a", b"\xc3"]], "S4")})


def test_numbers_are_no_strings() -> None:
    proto = moving(MOVES["Identity"], "")
    with pytest.raises(dvm_graph.InputError):
        dvm_graph.optimize(proto).run({"x": np.ones((2, 3))})


def test_rows_of_strings_are_gathered_whole() -> None:
    """Onnxruntime gathers the first of each."""
    proto = moving([("Gather", ["x", "perm"], {"axis": 0})], "")
    x = fed(4, proto)["x"]
    (y,) = dvm_graph.optimize(proto).run({"x": x})
    np.testing.assert_array_equal(y, x[[2, 0]])


def test_labels_are_moved_and_looked_up_as_places() -> None:
    """Nobody makes the strings."""
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        coefficients=[1.0, -1.0, 0.5, 2.0, 0.25, -1.0],
        intercepts=[0.1, 0.2, 0.3],
        classlabels_strings=["b", "q", "a"],
    )
    nodes = [
        node,
        helper.make_node("Concat", ["label", "label"], ["both"], axis=0),
        helper.make_node(
            "LabelEncoder",
            ["both"],
            ["y"],
            domain="ai.onnx.ml",
            keys_strings=["a", "b"],
            values_strings=["x", "b"],
        ),
        helper.make_node(
            "LabelEncoder",
            ["y"],
            ["number"],
            domain="ai.onnx.ml",
            keys_strings=["b", "_Unused"],
            values_int64s=[5, 7],
        ),
    ]
    proto = model_of(nodes, {"x": (TensorProto.FLOAT, ["n", 2])}, ["number", "label"], 2)
    x = np.random.default_rng(0).standard_normal((9, 2)).astype(np.float32)
    assert_agrees(proto, {"x": x}, {"x": x[:1]}, {"x": x[:0]})
    del proto.graph.output[1]
    assert "String" not in str(dvm_graph.optimize(proto).report())


@pytest.mark.parametrize("encoder", ["", "numbers"])
@pytest.mark.parametrize("name", ["Transpose", "two", "Reshape", "Identity"])
def test_extents_that_no_dim_is_told_by(name: str, encoder: str) -> None:
    proto = moving(MOVES[name], encoder)
    for port in proto.graph.input:
        port.type.tensor_type.shape.dim[0].dim_param = "n//2"
    assert_agrees(proto, fed(4, proto), fed(1, proto))


def test_extents_of_two_strings_contradict_each_other() -> None:
    proto = moving(MOVES["two sideways"], "numbers")
    feed = fed(4, proto)
    assert_agrees(proto, feed, {**feed, "z": feed["z"][:3]})


@pytest.mark.parametrize("dims", [["n", "n"], ["n", 1], [2, "j"], ["j", "j"]])
def test_extents_are_those_of_the_feed_where_nothing_reads_the_strings(dims: list[Any]) -> None:
    """Only how many numbers there are, which dims tell: those that contradict what is fed do not."""
    about = {"keys_strings": ["a"], "values_int64s": [1], "domain": "ai.onnx.ml"}
    nodes = [
        helper.make_node("LabelEncoder", ["x"], ["a"], **about),
        helper.make_node("LabelEncoder", ["z"], ["b"], **about),
        helper.make_node("Shape", ["a"], ["s"]),
        helper.make_node("Shape", ["b"], ["t"]),
        helper.make_node("Add", ["s", "t"], ["y"]),
    ]
    text = TensorProto.STRING
    proto = model_of(nodes, {"x": (text, ["n", "k"]), "z": (text, dims)}, ["y"], 2)
    x = np.full((2, 3), "a", object)
    for shape in [(1, 1), (2, 1), (2, 2), (3, 1)]:
        assert_agrees(proto, {"x": x, "z": np.full(shape, "a", object)})


@pytest.mark.parametrize("index", [[3], [-1], [5]])
def test_strings_that_are_not_there_are_refused(index: list[int]) -> None:
    proto = model_of(
        [helper.make_node("Gather", ["x", "i"], ["y"], axis=0)],
        {"x": (TensorProto.STRING, ["n"]), "i": (TensorProto.INT64, ["k"])},
        ["y"],
    )
    assert_agrees(proto, {"x": np.array(["a", "b", "c"], object), "i": np.array(index)})


def test_branches_of_strings() -> None:
    """Which are onnxruntime's."""

    def branch(number: int) -> onnx.GraphProto:
        node = helper.make_node("Gather", ["s", f"at{number}"], [f"r{number}"], axis=0)
        out = helper.make_tensor_value_info(f"r{number}", TensorProto.STRING, None)
        held = [numpy_helper.from_array(np.array([number], np.int64), f"at{number}")]
        return helper.make_graph([node], f"b{number}", [], [out], held)

    nodes = [
        helper.make_node("Identity", ["x"], ["s"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch(0), else_branch=branch(1)),
    ]
    inputs = {"x": (TensorProto.STRING, ["n"]), "c": (TensorProto.BOOL, [])}
    proto, x = model_of(nodes, inputs, ["y"]), np.array(["a", "b"], object)
    feeds = [{"x": x, "c": np.array(c)} for c in (True, False)]
    assert_agrees(proto, *feeds, native=False)
