"""Subgraphs that repeat are worked out once: what comes out is what working each out would give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import dvm_graph
from dvm_graph.cluster import FusedSubgraph
from dvm_graph.cluster.repeats import Fallback, Repeats
from dvm_graph.kernels.plan import KernelPlan
from dvm_graph.kernels.repeats import LoweredRepeats, Questions
from dvm_graph.options import Options
from dvm_graph.pipeline import Done, compile_model
from models import tiny_path
from tests.end_to_end.reference import model_from_text

MODELS = ["bert", "llama", "mobilenet", "swin", "shufflenet", "yolo_int8"]


def texts(name: str) -> list[str]:
    kept: list[str] = []

    def keep(done: Done) -> None:
        if done.name in ("split_clusters", "lower_kernels"):
            kept.append(done.text())

    compile_model(tiny_path(name), Options(), keep)
    return kept


def complete_each(
    self: Repeats, subgraph: FusedSubgraph, fallback: Callable[[], Fallback], *how: object
) -> FusedSubgraph:
    return replace(subgraph, fallback=fallback())


def lower_each(
    self: LoweredRepeats,
    subgraph: FusedSubgraph,
    name: str,
    lower: Callable[[Questions], KernelPlan],
) -> KernelPlan:
    return lower(Questions(self._table))


@pytest.mark.parametrize("name", MODELS)
def test_repeats_give_what_each_would(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    once = texts(name)
    monkeypatch.setattr(Repeats, "complete", complete_each)
    monkeypatch.setattr(LoweredRepeats, "lower", lower_each)
    assert texts(name) == once


def test_layers_of_a_transformer_share_patterns() -> None:
    schedule = compile_model(tiny_path("bert"), Options()).schedule
    subgraphs = schedule.report.subgraphs
    patterns = {subgraph.pattern for subgraph in subgraphs}
    assert len(patterns) < len(subgraphs)
    for subgraph in subgraphs:
        own = [part.pattern for part in subgraph.fallback]
        twin = next(other for other in subgraphs if other.pattern is subgraph.pattern)
        assert own == [part.pattern for part in twin.fallback]
        assert {node for part in subgraph.fallback for node in part.nodes} <= set(subgraph.nodes)


ZEROS = """
zeros (float[n] a, float[n] b) => (float[n] x, float[n] y)
<float plus = {0.0}, float minus = {-0.0}>
{
    x = Mul(a, plus)
    y = Mul(b, minus)
}
"""


def test_constants_that_compare_equal_are_not_one() -> None:
    """Both products have one structure; what their constants hold is asked of each."""
    model = dvm_graph.optimize(model_from_text(ZEROS), strict=True)
    one = np.ones(3, np.float32)
    x, y = model.run({"a": one, "b": one})
    assert not np.signbit(x).any()
    assert np.signbit(y).all()


SHARED = """
shared (float[n] a, float[n] b, float[n] c) => (float[n] x, float[n] y, float[n] z)
{
    x = Sub(a, b)
    y = Sub(c, c)
    z = Sub(b, a)
}
"""


def test_buffers_that_differ_stay_different() -> None:
    model = dvm_graph.optimize(model_from_text(SHARED), strict=True)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(5).astype(np.float32) for name in "abc"}
    x, y, z = model.run(feeds)
    np.testing.assert_array_equal(x, feeds["a"] - feeds["b"])
    np.testing.assert_array_equal(y, np.zeros(5))
    np.testing.assert_array_equal(z, feeds["b"] - feeds["a"])
