"""Kernels held to their operators: right models pass, kernels that are wrong on purpose are named."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dvm_graph
from dvm_graph import pipeline
from dvm_graph.check import kernels, validate
from dvm_graph.errors import MiscompileError
from dvm_graph.kernels import lower
from dvm_graph.kernels.plan import KernelPlan
from dvm_graph.symbolic import floordiv
from models import tiny_path
from tests.end_to_end.reference import model_from_text

SOFTMAX = (
    "g (float[b,s,6] x, float[6,n] w) => (float[b,s,n] y)"
    "{ p = MatMul(x, w) r = Relu(p) y = Softmax<axis = -1>(r) }"
)


@pytest.mark.parametrize("name", ["bert", "unet", "nonzero", "llama_decode"])
def test_models_are_what_they_mean(name: str) -> None:
    report = validate(tiny_path(name))
    assert report.findings == []
    assert all(subject.runs or subject.skipped for subject in report.subjects)
    assert sum(subject.open for subject in report.subjects) < 0.05 * sum(
        subject.elements for subject in report.subjects
    )


def test_extents_that_shape_arithmetic_divides_by_are_not_0() -> None:
    text = """g (float[n] x) => (int64[1] y) <int64[1] k = {12}>
    { s = Shape(x) y = Div(k, s) }"""
    report = validate(model_from_text(text))
    assert report.findings == []
    assert [s.skipped for s in report.subjects if s.kind == "kernel"] == [""]


def test_equal_kernels_are_checked_once() -> None:
    report = validate(tiny_path("bert"))
    assert max(subject.copies for subject in report.subjects) > 1


def test_a_broken_kernel_is_named_with_its_rule_and_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = lower.lower_subgraph

    def wrong(*args: Any) -> KernelPlan:
        plan = right(*args)
        nodes = [
            replace(node, op="reduce_min") if node.op == "reduce_sum" else node
            for node in plan.nodes
        ]
        return replace(plan, nodes=tuple(nodes))

    monkeypatch.setattr(lower, "lower_subgraph", wrong)
    with pytest.raises(MiscompileError, match=r"k0_matmul\w+: .* is wrong in") as caught:
        dvm_graph.optimize(model_from_text(SOFTMAX), check=True)
    assert "fused by: pattern, cube epilogue" in str(caught.value)
    assert "ONNX nodes: MatMul:p, Relu:r, Softmax:y" in str(caught.value)


def test_a_store_outside_of_its_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a concat that is written at the start of the buffer, over another part."""
    text = (
        "g (float[b,4] x, float[b,3] y) => (float[b,7] z)"
        "{ e = Exp(x) f = Neg(y) z = Concat<axis = 1>(e, f) }"
    )
    model = model_from_text(text)
    assert validate(model).findings == []
    right = lower.lower_subgraph

    def wrong(*args: Any) -> KernelPlan:
        plan = right(*args)
        return replace(plan, accesses=tuple(replace(a, offset=-1) for a in plan.accesses))

    monkeypatch.setattr(lower, "lower_subgraph", wrong)
    monkeypatch.setattr(pipeline, "verify_plan", lambda plan, facts, most_samples: None)
    assert validate(model).findings


def test_what_is_wrong_for_nan_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """`x >= y` as `not (x < y)`."""
    model = model_from_text(
        "g (float[b,4] x, float[b,4] y) => (bool[b,4] z) { z = GreaterOrEqual(x, y) }"
    )
    assert validate(model).findings == []
    right = lower.lower_subgraph

    def wrong(*args: Any) -> KernelPlan:
        plan = right(*args)
        *loads, compare, store = plan.nodes
        inverted = replace(compare, op="logical_not", inputs=(len(loads),))
        stored = replace(store, inputs=(len(loads) + 1,))
        return replace(plan, nodes=(*loads, replace(compare, op="lt"), inverted, stored))

    monkeypatch.setattr(lower, "lower_subgraph", wrong)
    (finding,) = validate(model).findings
    assert "z is wrong in" in finding.problem


def test_what_is_wrong_at_large_extents_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that begins at another row where there are 64 rows or more."""
    model = model_from_text("g (float[b,4] x) => (float[b,4] y) { y = Neg(x) }")
    right = lower.lower_subgraph

    def wrong(*args: Any) -> KernelPlan:
        plan = right(*args)
        dims, facts = args[3:5]
        late = dims.slot(floordiv(facts.symbols.get("b"), 64))
        load, store = plan.accesses
        return replace(plan, accesses=(replace(load, offset=late), store))

    monkeypatch.setattr(lower, "lower_subgraph", wrong)
    monkeypatch.setattr(pipeline, "verify_plan", lambda plan, facts, most_samples: None)
    assert validate(model, larger=False).findings == []
    assert validate(model).findings


@pytest.mark.parametrize("name", ["bert", "unet"])
def test_kernels_run_through_several_tiles(name: str) -> None:
    """Most of what is compared is from extents that no tile holds."""
    small, large = (validate(tiny_path(name), larger=larger) for larger in (False, True))
    elements = [
        sum(subject.elements for subject in report.subjects if subject.kind == "kernel")
        for report in (small, large)
    ]
    assert elements[1] > 20 * elements[0] and elements[1] > 1 << 18


def test_an_accepted_model_runs(tmp_path: Path) -> None:
    model = dvm_graph.optimize(tiny_path("if_else_add"), check=True)
    assert model.get_inputs()


@pytest.mark.parametrize(
    "text",
    [
        """g (bool[M, K, 1, n, K] x, int64[4] starts) => (bool[a, b, c, d, e] y)
        <int64[4] lows = {0, 4, 3, 3}, int64[4] ends = {9223372036854775807, 5, 11, -9223372036854775808},
         int64[4] axes = {0, -4, 3, 4}, int64[4] steps = {1, 1, 3, -2}>
        { moved = Add (starts, lows) y = Slice (x, moved, ends, axes, steps) }""",
        """g (float[n, n, m, 1] x) => (float[a, b, c, 0] y)
        <int64[4] repeats = {3, 1, 2, 0}> { wide = Tile (x, repeats) y = Reciprocal (wide) }""",
    ],
)
def test_a_check_takes_little_memory(text: str) -> None:
    """Be it that few small extents satisfy what the model assumes, or that long axes hold nothing."""
    tracemalloc.start()
    try:
        assert validate(model_from_text(text)).passed
        assert tracemalloc.get_traced_memory()[1] < 1 << 29
    finally:
        tracemalloc.stop()


def test_large_kernels_run_at_few_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two of them, and once with special numbers."""
    most = {
        s.name: s.runs for s in validate(model_from_text(SOFTMAX)).subjects if s.kind == "kernel"
    }
    for name in ("_MOST_POINTS", "_MOST_PRODUCTS"):
        monkeypatch.setattr(kernels, name, -1)
    report = validate(model_from_text(SOFTMAX))
    assert report.passed
    few = {s.name: s.runs for s in report.subjects if s.kind == "kernel"}
    assert few.keys() == most.keys()
    assert set(few.values()) == {3}
    assert min(most.values()) > 3
