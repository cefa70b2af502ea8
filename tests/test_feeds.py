"""Random inputs follow what a model does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper, parser

import dvm_graph
from dvm_graph.feeds import random_feeds

MODEL = parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 20]>
    g (int64[b, s] ids, int32[b, s] attention_mask, int64[b, s] position_ids, int64 sr, uint8[b] byte,
       float[b] x, bool[b] flag)
      => (float[b, s, 2] y, int32[b, s] m, int64 r, float[b] z, bool[b] f)
    {
        wide = Cast<to = 7>(ids)
        words = Gather(table, wide)
        where = Gather(places, position_ids)
        y = Add(words, where)
        m = Neg(attention_mask)
        r = Neg(sr)
        bytes = Cast<to = 1>(byte)
        z = Add(bytes, x)
        f = Not(flag)
    }"""
)
for _name, _rows in (("table", 37), ("places", 5)):
    _array = np.ones((_rows, 2), np.float32)
    MODEL.graph.initializer.append(numpy_helper.from_array(_array, _name))


def _feeds(seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    return random_feeds(dvm_graph.optimize(MODEL), {"b": 60, "s": 9}, seed)


def test_vocabularies_are_used_whole() -> None:
    ids = _feeds()["ids"]
    assert ids.shape == (60, 9)
    assert set(np.unique(ids)) == set(range(37))


def test_positions_count_up_within_their_table() -> None:
    assert _feeds()["position_ids"][1].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]


def test_masks_are_ones_with_a_tail_of_zeros() -> None:
    mask = _feeds()["attention_mask"]
    assert (np.diff(mask, axis=1) <= 0).all()
    assert mask[:, 0].all()
    assert not mask.all()


def test_the_rest_follows_name_and_dtype() -> None:
    feeds = _feeds()
    assert feeds["sr"] == 16000
    assert feeds["byte"].max() > 127
    assert set(np.unique(feeds["flag"])) == {False, True}
    assert feeds["x"].std() == pytest.approx(1, abs=0.5)


def test_seeds() -> None:
    first, again, other = _feeds(1), _feeds(1), _feeds(2)
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["ids"] != other["ids"]).any()


def test_the_model_takes_them() -> None:
    assert dvm_graph.compare(MODEL, dims={"b": 3, "s": 5}).passed


OVER_GENERAL = {
    "(float[b, d] x, float[64, 8] w) => (float[b, n] y) { y = MatMul(x, w) }": (
        {},
        {"b": 2, "d": 64},
    ),
    "(float[b, past] p, float[b, new] x, float[b, total] mask) => (float[b, u] y)"
    "{ a = Concat<axis=1>(p, x) y = Mul(a, mask) }": (
        {"past": 7},
        {"b": 2, "past": 7, "new": 2, "total": 9},
    ),
    "(float[b, n] x, float[c, m] y) => (float[d, k] z) { z = Sub(x, y) }": (
        {"b": 3, "m": 5},
        {"b": 3, "n": 5, "c": 3, "m": 5},
    ),
    "(float[a] x, float[b] y, float[c] z, float[6] w) => (float[d] p, float[e] q)"
    "{ k = Concat<axis=0>(x, y) p = Sub(k, z) q = Sub(x, w) }": (
        {},
        {"a": 6, "b": 2, "c": 8},
    ),
    "(float[a] x, float[b] y, float[c] z) => (float[d] p)"
    "{ k = Sub(x, y) l = Sub(y, z) p = Sub(k, l) }": ({"c": np.int64(3)}, {"a": 3, "b": 3, "c": 3}),
}
"""Models whose inputs declare more dims than operators leave free: what is given, and what has to follow."""


@pytest.mark.parametrize("graph", OVER_GENERAL)
def test_dims_follow_what_operators_demand(graph: str, tmp_path: Path) -> None:
    given, wanted = OVER_GENERAL[graph]
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]>\nagraph {graph}')
    model = dvm_graph.optimize(proto)
    assert model.default_dims(given) == wanted
    assert dvm_graph.compare(proto, dims=given).passed
    model.save(tmp_path / "m.dvm")
    assert dvm_graph.load(tmp_path / "m.dvm").default_dims(given) == wanted


@pytest.mark.parametrize("extent", [2.5, "3", None])
def test_extents_are_whole_numbers(extent: Any) -> None:
    model = dvm_graph.optimize(MODEL)
    with pytest.raises(dvm_graph.InputError, match="extents are whole numbers"):
        model.default_dims({"b": extent})


def test_what_is_given_stays() -> None:
    proto = parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]>\n'
        "agraph (float[b, d] x, float[64, 8] w) => (float[b, n] y) { y = MatMul(x, w) }"
    )
    assert dvm_graph.optimize(proto).default_dims({"d": 3}) == {"b": 2, "d": 3}
