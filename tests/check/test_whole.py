"""What lies between kernels: right kernels in a wrong order, and values in each other's place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph import pipeline
from dvm_graph.check import validate
from dvm_graph.cluster import Launch, Schedule
from dvm_graph.errors import CompileError, ShapeError
from dvm_graph.ir import Shape
from dvm_graph.kernels.value_table import Place, ValueTable
from dvm_graph.symbolic import Facts, holdings
from tests.end_to_end.reference import model_from_text

CHAIN = (
    "g (float[n,m] x) => (float[n,m] y)"
    "{ s = Softmax<axis = 0>(x) t = Softmax<axis = 1>(s) y = Softmax<axis = 0>(t) }"
)
JOINED = (
    "g (float[b,4] x, float[b,3] y) => (float[b,7] z, float[b,7] w)"
    "{ e = Softmax<axis = 1>(x) f = Softmax<axis = 1>(y) z = Concat<axis = 1>(e, f) w = Neg(z) }"
)


def test_stages_in_a_wrong_order_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_from_text(CHAIN)
    assert validate(model).findings == []
    right = pipeline.stack

    def wrong(*args: Any) -> Schedule:
        schedule = right(*args)
        launch = schedule.steps[-1]
        assert isinstance(launch, Launch)
        assert len(launch.stages) > 1
        schedule.steps[-1] = Launch(launch.stages[1:] + launch.stages[:1])
        return schedule

    monkeypatch.setattr(pipeline, "stack", wrong)
    with pytest.raises(CompileError, match="is wrong"):  # the plan's verifier sees it first
        validate(model, fuse=False)
    monkeypatch.setattr(pipeline, "verify_plan", lambda plan, facts, most_samples: None)
    findings = validate(model, fuse=False).findings
    assert {finding.where for finding in findings} == {"whole run"}


def test_parts_of_a_concat_in_each_others_place_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that write what they should, where nobody expects it."""
    model = model_from_text(JOINED)
    assert validate(model).findings == []
    right = ValueTable.place

    def wrong(self: ValueTable, value: Any) -> Place:
        place = right(self, value)
        return replace(place, offset=place.offset - 3) if place.offset == 4 else place

    monkeypatch.setattr(ValueTable, "place", wrong)
    monkeypatch.setattr(pipeline, "verify_plan", lambda plan, facts, most_samples: None)
    findings = validate(model).findings
    assert findings
    assert {finding.where for finding in findings} == {"whole run"}


def test_what_lies_in_sequences_need_not_fit_at_any_extents() -> None:
    """What a Loop collects over no turns has no rows, beside which a row does not fit."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 15]>
        g (int64 turns, bool few, int64[1, 1] x, int64[1, 2] row) => (int64[p, q] y)
        <int64 one = {1}> {
            last, rows = Loop(turns, "", x) <body = b (int64 i, bool c, int64[1, 1] s) => (bool d, int64[1, 1] t, int64[2] r) {
                r = Shape(x) d = Identity(c) t = Neg(s)
            }>
            all = SequenceConstruct(rows)
            chosen = If(few) <
                then_branch = t () => (seq(int64[p, q]) v) { v = SequenceInsert(all, row, one) },
                else_branch = e () => (seq(int64[p, q]) u) { u = SequenceErase(all) }
            >
            y = ConcatFromSequence<axis = 1>(chosen)
        }"""
    )
    feeds = {
        "turns": np.array(0),
        "few": np.array(True),
        "x": np.zeros((1, 1), np.int64),
        "row": np.array([[4, 5]]),
    }
    with pytest.raises(ShapeError):
        dvm_graph.optimize(model).run(feeds)
    assert validate(model, feeds=feeds).passed


def test_wrong_extents_of_what_lies_in_sequences_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_from_text(
        """g (float[n,m] x, float[k,m] y, int64 i) => (float[a,b] z) {
            s = SequenceConstruct(x, y) e = SequenceAt(s, i) z = Neg(e) }"""
    )
    feeds = {
        "x": np.ones((2, 3), np.float32),
        "y": np.ones((4, 3), np.float32),
        "i": np.array(1),
    }
    assert validate(model, feeds=feeds).passed

    def wrong(a: Shape | None, b: Shape | None, facts: Facts) -> Shape | None:
        return a

    monkeypatch.setattr(holdings, "common", wrong)
    findings = validate(model, feeds=feeds).findings
    assert {finding.where for finding in findings} == {"decompose"}
