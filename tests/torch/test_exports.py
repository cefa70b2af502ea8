"""Exports anew through torch and compares with the torch module itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import models
from models.exporting import build_case
from tests.tolerances import assert_close

# The longest sum in a tiny model: 256 intermediate values of a feed-forward layer, through two layers.
REDUCTION_LENGTH = 2 * 256

CASES = [
    ("bert", {"batch": 1, "seq": 1}),
    ("bert", {"batch": 3, "seq": 77}),
    ("llama_decode", {"batch": 2, "past_seq": 9}),
    ("crnn", {"batch": 2, "width": 77}),
    ("vad", {"batch": 2, "frames": 19}),
    ("swin", {"batch": 2}),
    ("if_else_add", {"batch": 2, "seq": 3, "features": 5}),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exports")
    names = {name for name, _ in CASES}
    return {name: models.export(name, models.Size.TINY, folder / f"{name}.onnx") for name in names}


@pytest.mark.parametrize(("name", "dims"), CASES)
def test_fresh_export_equals_torch(
    exported: dict[str, Path], name: str, dims: dict[str, int]
) -> None:
    feeds = models.random_feeds(exported[name], dims, seed=3, padded=True)
    case = build_case(name, models.Size.TINY)
    tensors = {key: torch.from_numpy(value) for key, value in feeds.items()}
    with torch.no_grad():
        result = case.module(**case.arguments(tensors))
    expected = [result] if isinstance(result, torch.Tensor) else flatten(result)
    actual = onnxruntime.InferenceSession(str(exported[name])).run(None, feeds)
    for got, wanted in zip(actual, expected, strict=True):
        assert_close(got, wanted.numpy(), reduction_length=REDUCTION_LENGTH)


def flatten(result: object) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(result)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def test_checked_in_file_is_what_the_exporter_writes(exported: dict[str, Path]) -> None:
    dims = {"batch": 2, "seq": 11}
    feeds = models.random_feeds("bert", dims, padded=True)
    fresh, checked_in = (
        onnxruntime.InferenceSession(str(path)).run(None, feeds)
        for path in (exported["bert"], models.tiny_path("bert"))
    )
    for got, wanted in zip(fresh, checked_in, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_only_the_requested_dims_stay_dynamic(tmp_path: Path) -> None:
    path = models.export("bert", models.Size.TINY, tmp_path / "batch.onnx", dims=("batch",))
    dims = onnx.load(path).graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "batch" and dims[1].dim_value > 1


def test_size_that_a_family_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no size 'base'"):
        models.export("nonzero", models.Size.BASE, tmp_path / "nonzero.onnx")
