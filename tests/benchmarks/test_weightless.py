"""Models without weights: simulated from shapes alone, and their work is that of the published sizes."""

from __future__ import annotations

import pytest

import dvm_graph
from benchmarks.weightless import DECODERS, MODELS, decoder, weightless

LAYERS = 2


@pytest.mark.parametrize("name", DECODERS)
def test_work_is_that_of_the_sizes(name: str) -> None:
    d = DECODERS[name]
    model = dvm_graph.optimize(decoder(name, LAYERS), strict=True)
    batch, seq = 2, 96
    found = model.simulate({"batch": batch, "seq": seq})
    projections = d.width * (2 * d.heads + 2 * d.groups) * d.head + 3 * d.width * d.inner
    weights = LAYERS * projections + d.width * d.vocabulary
    attention = LAYERS * 2 * seq * d.heads * d.head
    assert sum(stage.flops for stage in found.stages) == 2 * batch * seq * (weights + attention)
    assert not found.vendor_calls
    assert found.device_seconds > 2 * batch * seq * weights / found.peak()


def test_an_encoder_and_a_recommender() -> None:
    batch, seq, width = 3, 40, 768
    found = dvm_graph.optimize(weightless("bert-base"), strict=True).simulate(
        {"batch": batch, "seq": seq}
    )
    weights = 12 * (4 * width**2 + 2 * width * 3072)
    assert sum(stage.flops for stage in found.stages) == 2 * batch * seq * (
        weights + 12 * 2 * seq * width
    )
    found = dvm_graph.optimize(weightless("mmoe"), strict=True).simulate({"batch": batch})
    weights = 8 * (47104 * 512 + 512 * 256) + 2 * (47104 * 8 + 256 * 128 + 128)
    assert sum(stage.flops for stage in found.stages) == 2 * batch * weights
    assert set(MODELS) == {"bert-base", "mmoe", *DECODERS}


def test_sizes_are_those_of_the_names() -> None:
    for name, billions in (("llama-3.1-8b", 8.0), ("qwen3-14b", 14.8)):
        d = DECODERS[name]
        projections = d.width * (2 * d.heads + 2 * d.groups) * d.head + 3 * d.width * d.inner
        total = d.layers * projections + 2 * d.width * d.vocabulary
        assert total / 1e9 == pytest.approx(billions, rel=0.01)
