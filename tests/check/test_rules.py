"""Fusion rules that answer wrongly: the kernels that they make are found, with the rule."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from dvm_graph.check import validate
from dvm_graph.cluster import split
from dvm_graph.cluster.meeting import GroupMeeting
from dvm_graph.errors import CompileError
from dvm_graph.rules import judge
from tests.end_to_end.reference import model_from_text

BROKEN = {
    "a product reads columns of what another one computes by rows": (
        ("computes_rows", True),
        "g (float[n,6] a, float[n,3] b, float[6,5] w) => (float[5,3] y)"
        "{ p = MatMul(a, w) t = Transpose<perm = [1, 0]>(p) y = MatMul(t, b) }",
        "cube prologue",
        ("MatMul:p", "Transpose:t", "MatMul:y"),
    ),
    "a gather reads what its own kernel is about to compute": (
        ("needs_memory", False),
        "g (float[n,6] x, int64[k] i) => (float[k,6] y){ e = Exp(x) y = Gather<axis = 0>(e, i) }",
        "vector",
        ("Exp:e", "Gather:y"),
    ),
    "a reversed slice, too": (
        ("needs_memory", False),
        "g (float[n,4] x) => (float[n,4] y) <int64[1] start = {-1}, int64[1] end = {-1000},"
        " int64[1] axis = {0}, int64[1] step = {-1}>"
        "{ r = Relu(x) s = Slice(r, start, end, axis, step) y = Add(s, x) }",
        "view load",
        ("Relu:r", "Slice:s", "Add:y"),
    ),
}


class Lying:
    """A meeting that tells the rules the same answer to one question, whatever is true."""

    def __init__(self, meeting: GroupMeeting, question: str, answer: bool) -> None:
        self._meeting, self._question, self._answer = meeting, question, answer

    def __getattr__(self, name: str) -> Any:
        if name == self._question:
            return lambda: self._answer
        return getattr(self._meeting, name)


def complaints(model: onnx.ModelProto) -> list[str]:
    """Of the check, or of the verifier of plans, which may see it first."""
    try:
        return [str(finding) for finding in validate(model).findings]
    except CompileError as error:
        return [f"CompileError: {error} {error.nodes}"]


@pytest.mark.parametrize("name", BROKEN)
def test_a_rule_that_always_holds_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (question, answer), text, pattern, origin = BROKEN[name]
    model = model_from_text(text)
    assert validate(model).findings == []
    monkeypatch.setattr(
        split, "judge", lambda meeting, pattern: judge(Lying(meeting, question, answer), pattern)
    )
    (first, *_) = complaints(model)
    if not first.startswith("CompileError"):
        assert ", ".join(origin) in first
        assert pattern in first
