"""Strings and numbers as categories, beside onnxruntime: what is listed twice, not listed, NaN, and no text at all."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.end_to_end.categories import alone, assert_agrees, model_of

NAN = float("nan")
INFINITY = float("inf")


def objects(*items: Any) -> np.ndarray[Any, Any]:
    made = np.empty(len(items), object)
    made[:] = items
    return made


TEXTS = [
    objects("a", "b", "c", "", "é", "q", "nan", "a\0"),
    objects(NAN, None, 1, 1.5, b"a", "a", True),
    objects("a"),
    objects(),
    np.array(["a", "é", "qq"]),
    np.array([["a", "b"], ["q", ""]], object),
    np.array([["a", "b"], ["q", ""]], object).T,
    objects("a", "b", "c", "q")[::-1],
    np.array(["a", "b", "c", "q"], object)[::2],
    np.zeros((0, 2), object),
    np.array("b", object),
    np.zeros((2, 0), "U3"),
]
FLOATS = [1.0, 2.0, NAN, -0.0, 0.0, 5.0, INFINITY, -INFINITY, 1.5]
WORDS = ["a", "b", "nan", "", "é", "a", "1", "None"]


def numbers(dtype: type) -> list[np.ndarray[Any, Any]]:
    if dtype in (np.int64, np.int32):
        flat = np.array([1, 2, 3, -7, 0, 2**31 - 1, 5], dtype)
    else:
        flat = np.array(FLOATS, dtype)
    return [
        flat,
        flat[:0],
        flat[:4].reshape(2, 2).T,
        flat[1:2].reshape(1, 1, 1),
        flat[:1].reshape(()),
    ]


def tensor(values: list[Any], dtype: Any) -> Any:
    return numpy_helper.from_array(np.array(values, dtype))


def of_values(kind: str, count: int) -> dict[str, Any]:
    """Values of a kind, and what stands for others."""
    match kind:
        case "strings":
            return {"values_strings": [f"w{at}" for at in range(count)], "default_string": "none"}
        case "int64s":
            return {"values_int64s": [10 - at for at in range(count)], "default_int64": -5}
        case "floats":
            return {"values_floats": [at + 0.5 for at in range(count)], "default_float": NAN}
        case _:
            dtype = {"doubles": np.float64, "shorts": np.int16}[kind]
            given = [at * 3 for at in range(count)]
            return {"values_tensor": tensor(given, dtype), "default_tensor": tensor([9], dtype)}


KEYS: list[tuple[dict[str, Any], list[Any], int]] = [
    ({"keys_strings": WORDS}, TEXTS, len(WORDS)),
    ({"keys_int64s": [1, 2, -7, 1, 2**31 - 1]}, numbers(np.int64), 5),
    ({"keys_floats": [1.0, NAN, 2.0, NAN, 0.0, -INFINITY, 1.0]}, numbers(np.float32), 7),
]
"""Keys, of which some are listed twice, what is looked up, and how many there are."""


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("values", ["strings", "int64s", "floats"])
@pytest.mark.parametrize("at", range(len(KEYS)))
def test_labels_are_encoded(at: int, values: str, version: int) -> None:
    keys, feeds, count = KEYS[at]
    for feed in feeds:
        proto = alone("LabelEncoder", {**keys, **of_values(values, count)}, feed, version)
        assert_agrees(proto, {"x": feed})


@pytest.mark.parametrize(
    "keys, values, feeds",
    [
        ({"keys_strings": ["a", "b"]}, of_values("doubles", 2), TEXTS),
        ({"keys_strings": ["a", "b"]}, of_values("shorts", 2), TEXTS),
        ({"keys_tensor": tensor([1.0, NAN, 2.0, 1.0], np.float64)}, 4, numbers(np.float64)),
        ({"keys_tensor": tensor([1, 2], np.int64)}, of_values("doubles", 2), numbers(np.int64)),
        ({"keys_tensor": tensor(["a", "b"], object)}, 2, TEXTS[:3]),
    ],
)
def test_labels_are_encoded_by_tensors(keys: Any, values: Any, feeds: list[Any]) -> None:
    for each in [values] if isinstance(values, dict) else [of_values("strings", values)]:
        for feed in feeds:
            assert_agrees(alone("LabelEncoder", {**keys, **each}, feed, 4), {"x": feed})


@pytest.mark.parametrize(
    "values",
    [
        {"values_floats": [1.0, 2.0], "default_float": 3.0, "default_tensor": tensor([9], "f")},
        {"values_floats": [1.0, 2.0], "default_tensor": tensor([9], "f")},
        {"values_floats": [1.0, 2.0]},
        {"values_int64s": [1, 2]},
        {"values_strings": ["x", "y"]},
        {"values_tensor": tensor([1, 2], np.int64)},
    ],
)
def test_defaults_of_labels(values: dict[str, Any]) -> None:
    feed = objects("a", "q")
    assert_agrees(
        alone("LabelEncoder", {"keys_strings": ["a", "b"], **values}, feed, 4), {"x": feed}
    )


@pytest.mark.parametrize(
    "attributes",
    [
        {"keys_strings": ["a", "b"], "values_int64s": [1]},
        {"keys_strings": ["a"], "values_int64s": [1], "values_floats": [1.0]},
        {"keys_strings": ["a"]},
        {"keys_int64s": [1], "values_int64s": [1]},
    ],
)
def test_encoders_that_make_no_sense_are_refused(attributes: dict[str, Any]) -> None:
    assert_agrees(alone("LabelEncoder", attributes, objects("a"), 2), {"x": objects("a")})


@pytest.mark.parametrize("feed", [*TEXTS, *numbers(np.int64)], ids=repr)
def test_labels_by_position(feed: Any) -> None:
    for more in ({}, {"default_int64": -7, "default_string": "none"}):
        attributes = {"classes_strings": ["a", "b", "a", ""], **more}
        assert_agrees(alone("LabelEncoder", attributes, feed), {"x": feed})


@pytest.mark.parametrize("feed", [*TEXTS, *numbers(np.int64)], ids=repr)
def test_categories_are_mapped(feed: Any) -> None:
    attributes = {"cats_strings": ["a", "b", "a", "c"], "cats_int64s": [1, 2, 3, 1]}
    for more in ({}, {"default_int64": -7, "default_string": "none"}):
        assert_agrees(alone("CategoryMapper", {**attributes, **more}, feed), {"x": feed})


@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize(
    "attributes",
    [{"cats_strings": ["a", "b", "a"]}, {"cats_int64s": [1, 5, -(2**63), 1, 0]}],
    ids=str,
)
@pytest.mark.parametrize("dtype", [None, np.int64, np.float32, np.float64])
def test_categories_are_spread(attributes: dict[str, Any], dtype: Any, zeros: int) -> None:
    """What is cast to an integer, too; strings among numbers are nobody's, and the other way round."""
    of_text = "cats_strings" in attributes
    for feed in TEXTS if dtype is None else numbers(dtype):
        proto = alone("OneHotEncoder", {**attributes, "zeros": zeros}, feed)
        assert_agrees(proto, {"x": feed}, native=of_text == (dtype is None))


LABELS: list[dict[str, Any]] = [
    {"classlabels_strings": ["b", "a", "é"]},
    {"classlabels_strings": ["b", "a", "b"]},
    {"classlabels_int64s": [5, -1, 7]},
    {"classlabels_int64s": [5, -1, 5]},
]


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_scores_are_zipped(labels: dict[str, Any]) -> None:
    scores = np.array([[1, NAN, 3], [-0.0, INFINITY, 1e-40]], np.float32)
    for feed in (scores, scores[:0], scores[:1], scores[0], scores[:, :2], scores[:0, :2]):
        assert_agrees(alone("ZipMap", labels, feed), {"x": feed})


def test_what_is_no_string_is_refused() -> None:
    proto = alone("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, objects("a"), 2)
    feeds = [
        *(np.ones(1, np.float32), None, "a", ("a",), np.float32(1), 3, {"a": 1}),
        np.array([["a"]], object),
    ]
    assert_agrees(proto, *({"x": feed} for feed in feeds))


class NoText:
    """It breaks when it is asked for it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_what_has_no_text_is_refused() -> None:
    proto = alone("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, objects("a"), 2)
    compiled = dvm_graph.optimize(proto)
    for feed in (objects("a", NoText()), [NoText()]):
        with pytest.raises(dvm_graph.InputError, match="no text"):
            compiled.run({"x": feed})
    assert compiled.run({"x": objects("a")})[0].tolist() == [1]


def test_lists_of_strings_are_taken() -> None:
    proto = alone("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, objects("a"), 2)
    assert_agrees(proto, {"x": ["a", "b"]}, {"x": []}, {"x": [["a"]]})


def test_declared_extents_of_strings_hold() -> None:
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **KEYS[0][0])
    node.attribute.append(helper.make_attribute("values_int64s", list(range(len(WORDS)))))
    proto = model_of([node], {"x": (TensorProto.STRING, ["n", 2])}, ["y"], 2)
    feeds = [np.full(shape, "a", object) for shape in ((3, 2), (0, 2), (3, 1), (3,), (3, 2, 1))]
    assert_agrees(proto, *({"x": feed} for feed in feeds))


def test_strings_that_are_no_text_are_onnxruntimes() -> None:
    proto = alone(
        "LabelEncoder", {"keys_strings": [b"\xff", "a"], "values_int64s": [1, 2]}, objects("a"), 2
    )
    assert_agrees(proto, {"x": objects("a", "b")}, native=False)


def test_saved_models_know_their_words(tmp_path: Any) -> None:
    proto = alone(
        "LabelEncoder", {**KEYS[0][0], **of_values("strings", len(WORDS))}, objects("a"), 2
    )
    compiled = dvm_graph.optimize(proto)
    compiled.save(tmp_path / "m.dvm")
    feed = {"x": TEXTS[0]}
    (got,), (wanted,) = dvm_graph.load(tmp_path / "m.dvm").run(feed), compiled.run(feed)
    np.testing.assert_array_equal(got, wanted)


def test_strings_in_several_threads() -> None:
    proto = alone(
        "LabelEncoder", {**KEYS[0][0], **of_values("strings", len(WORDS))}, objects("a"), 2
    )
    compiled, failures = dvm_graph.optimize(proto), []
    feed = np.array(["a", "b", "q"] * 100, object)
    wanted = compiled.run({"x": feed})[0].tolist()

    def run() -> None:
        for _ in range(200):
            if compiled.run({"x": feed})[0].tolist() != wanted:
                failures.append(1)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
