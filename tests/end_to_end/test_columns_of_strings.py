"""Columns of strings that are looked up: by one call of the host, and where they lie in what was fed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from tests.end_to_end.categories import assert_agrees
from tests.end_to_end.test_texts import TEXT, WORDS, drawn, text_model

ABOUT: dict[str, Any] = {
    "keys_strings": ["a", "é", ""],
    "values_int64s": [3, 1, 4],
    "domain": "ai.onnx.ml",
}
CONSTANTS = {
    "first": np.array([0]), "last": np.array([-1]), "two": np.array([1, 2]), "one": np.array(1), "apart": np.array([2, 0]),
    "start": np.array([1]), "end": np.array([3]), "axis": np.array([1]), "step": np.array([2]), "flat": np.array([-1]),
}  # fmt: skip
CUTS: dict[str, list[onnx.NodeProto]] = {
    "one": [helper.make_node("Gather", ["x", "first"], ["c"], axis=1)],
    "the last": [helper.make_node("Gather", ["x", "last"], ["c"], axis=1)],
    "without its axis": [helper.make_node("Gather", ["x", "one"], ["c"], axis=1)],
    "two": [helper.make_node("Gather", ["x", "two"], ["c"], axis=1)],
    "apart": [helper.make_node("Gather", ["x", "apart"], ["c"], axis=1)],
    "a slice": [helper.make_node("Slice", ["x", "start", "end", "axis"], ["c"])],
    "every other": [helper.make_node("Slice", ["x", "first", "end", "axis", "step"], ["c"])],
    "features": [
        helper.make_node("ArrayFeatureExtractor", ["x", "two"], ["c"], domain="ai.onnx.ml")
    ],
    "flat": [
        helper.make_node("Gather", ["x", "first"], ["b"], axis=1),
        helper.make_node("Reshape", ["b", "flat"], ["c"]),
    ],
    "parts": [helper.make_node("Split", ["x"], ["b", "c", "d"], axis=1, num_outputs=3)],
    "turned": [
        helper.make_node("Transpose", ["x"], ["b"], perm=[1, 0]),
        helper.make_node("Slice", ["b", "first", "start", "axis"], ["c"]),
    ],
}


@pytest.mark.parametrize("dims", [["n", 3], ["n", "k"], [4, "k"]])
@pytest.mark.parametrize("name", CUTS)
def test_columns_are_looked_up_where_they_lie(name: str, dims: list[Any]) -> None:
    nodes = [*CUTS[name], helper.make_node("LabelEncoder", ["c"], ["y"], **ABOUT)]
    read = {operand for node in nodes for operand in node.input}
    constants = {n: v for n, v in CONSTANTS.items() if n in read}
    model = text_model(nodes, {"x": (TEXT, dims)}, ["y"], constants)
    feeds = [{"x": drawn(4, 3)}, {"x": drawn(4, 3).T.copy().T}]
    if dims[0] == "n":
        feeds += [{"x": drawn(1, 3)}, {"x": drawn(0, 3)}]
    if name not in ("turned", "parts"):  # there is no such column
        feeds += [{"x": drawn(4, 0)}]
    known = name != "features" or dims[1] == 3  # which are there is for onnxruntime to say
    assert_agrees(model, *feeds, native=known)
    if dims == ["n", 3] and name not in ("apart", "every other", "turned", "flat"):
        assert "StringNumbers" not in str(dvm_graph.optimize(model).report())


def test_columns_that_the_model_does_not_have() -> None:
    nodes = [
        helper.make_node("Gather", ["x", "first"], ["c"], axis=1),
        helper.make_node("LabelEncoder", ["c"], ["y"], **ABOUT),
    ]
    model = text_model(nodes, {"x": (TEXT, ["n", 3])}, ["y"], {"first": CONSTANTS["first"]})
    assert_agrees(model, {"x": drawn(2, 4)}, {"x": drawn(2, 2)}, {"x": drawn(2, 3)})


def test_columns_are_looked_up_by_one_call() -> None:
    """Given ones by one, those that are taken from others by another; what refuses strings by itself."""
    nodes = [helper.make_node("LabelEncoder", [name], [f"y{name}"], **ABOUT) for name in "abc"]
    nodes.append(helper.make_node("Concat", ["a", "b"], ["d"], axis=0))
    nodes.append(helper.make_node("Concat", ["b", "c"], ["e"], axis=0))
    nodes += [helper.make_node("LabelEncoder", [name], [f"y{name}"], **ABOUT) for name in "de"]
    nodes.append(
        helper.make_node(
            "OneHotEncoder", ["a"], ["z"], domain="ai.onnx.ml", zeros=0, cats_strings=WORDS
        )
    )
    inputs: dict[str, tuple[int, list[Any] | None]] = {name: (TEXT, [f"n{name}"]) for name in "abc"}
    model = text_model(nodes, inputs, ["ya", "yb", "yc", "yd", "ye", "z"])
    feeds = [{n: drawn(size + at, seed=at) for at, n in enumerate("abc")} for size in (0, 1, 5)]
    assert_agrees(model, *feeds)
    compiled = dvm_graph.optimize(model)
    names = [
        step.name for step in compiled.profile(feeds[1]).typical.host if step.category == "host"
    ]
    assert len([name for name in names if name.startswith("StringPlaces")]) == 3
