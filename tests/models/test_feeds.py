from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import models


def test_same_seed_same_feeds_and_other_seed_other_feeds() -> None:
    dims = {"batch": 2, "seq": 9}
    first, again = (models.random_feeds("bert", dims, seed=5) for _ in range(2))
    other = models.random_feeds("bert", dims, seed=6)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["input_ids"], other["input_ids"])


def test_tokens_stay_inside_the_vocabulary() -> None:
    ids = models.random_feeds("llama", {"batch": 16, "seq": 512})["input_ids"]
    assert ids.dtype == np.int64 and ids.min() >= 0 and 500 < ids.max() < 512


def test_masks_are_ones_unless_padding_is_asked_for() -> None:
    dims = {"batch": 64, "seq": 5}
    assert models.random_feeds("bert", dims)["attention_mask"].all()
    mask = models.random_feeds("bert", dims, padded=True)["attention_mask"]
    assert set(np.unique(mask)) == {0, 1}
    assert mask[:, 0].all() and (np.diff(mask, axis=1) <= 0).all()


def test_dim_expressions_and_positions_follow_the_cache_length() -> None:
    feeds = models.random_feeds("llama_decode", {"batch": 2, "past_seq": 6})
    assert feeds["attention_mask"].shape == (2, 7)
    assert feeds["past_key_0"].shape[2] == 6
    assert (feeds["position_ids"] == 6).all()


def test_zero_extents_are_allowed() -> None:
    feeds = models.random_feeds("bert", {"batch": 0, "seq": 0}, padded=True)
    assert feeds["attention_mask"].shape == (0, 0)


def test_missing_dim_is_named() -> None:
    with pytest.raises(ValueError, match="'seq'"):
        models.random_feeds("bert", {"batch": 2})


def test_unknown_model_is_named() -> None:
    with pytest.raises(ValueError, match="unknown model 'alexnet'"):
        models.tiny_path("alexnet")


def test_model_without_metadata_is_judged_by_dtype_and_name(tmp_path: Path) -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (float16[n] x, bool[n] flag, int32[m] token, int64[n] position) => (float16[n] y) {
            y = Identity(x)
        }
    """
    path = tmp_path / "plain.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    feeds = models.random_feeds(path, {"n": 6, "m": 11})
    assert [feeds[name].dtype.name for name in feeds] == ["float16", "bool", "int32", "int64"]
    assert feeds["token"].shape == (11,) and set(np.unique(feeds["token"])) <= {0, 1}
    assert feeds["position"].tolist() == [0, 1, 2, 3, 4, 5]
