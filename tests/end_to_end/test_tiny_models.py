"""Every checked-in export, run at many dims by one optimised model, against onnxruntime."""

from __future__ import annotations

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

import dvm_graph
from models import FAMILIES, random_feeds, tiny_path
from tests.end_to_end.reference import assert_all_close, session
from tests.models.family_dims import GRIDS

WITHOUT_VENDOR = (
    "bert", "gpt2", "llama", "llama_decode", "qwen3", "qwen3_decode", "mmoe", "vit",
    "resnet", "mobilenet", "convnext", "unet",
)  # fmt: skip
TERMS = 4096
"""Terms that one output of a tiny model sums, layer upon layer, to the order of magnitude."""


def test_every_export_is_here() -> None:
    assert set(GRIDS) == set(FAMILIES)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", GRIDS)
def test_equals_onnxruntime(name: str, padded: bool) -> None:
    model = dvm_graph.optimize(tiny_path(name))
    reference = session(str(tiny_path(name)))
    for seed, dims in enumerate(GRIDS[name]):
        feeds = random_feeds(name, dims, seed, padded=padded)
        assert_all_close(model.run(feeds), reference.run(None, feeds), TERMS)


@pytest.mark.parametrize("name", GRIDS)
def test_an_empty_batch(name: str) -> None:
    dims = {**GRIDS[name][-1], "batch": 0}
    feeds = random_feeds(name, dims)
    try:
        expected = session(str(tiny_path(name))).run(None, feeds)
    except (Fail, InvalidArgument, RuntimeException) as error:
        pytest.skip(f"onnxruntime does not run it: {error}")
    assert_all_close(dvm_graph.optimize(tiny_path(name)).run(feeds), expected)


@pytest.mark.parametrize("name", WITHOUT_VENDOR)
def test_needs_no_vendor_operator(name: str) -> None:
    dvm_graph.optimize(tiny_path(name), strict=True)
