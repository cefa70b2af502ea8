"""Judging changes nothing: the same question has the same answer, and axes are what they were."""

from __future__ import annotations

import pytest

from dvm_graph.cluster import split
from dvm_graph.cluster.meeting import GroupMeeting
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from dvm_graph.rules import Ruling, Verdict, judge
from models import tiny_path


@pytest.mark.parametrize("name", ["llama", "mobilenet", "swin"])
def test_judging_leaves_no_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Verdict] = []

    def twice(meeting: GroupMeeting, pattern: str = "") -> Ruling:
        atoms = range(len(meeting.space._extents))
        before = [meeting.space.resolve((atom,)) for atom in atoms]
        first = judge(meeting, pattern)
        assert [meeting.space.resolve((atom,)) for atom in atoms] == before
        assert judge(meeting, pattern) == first
        judged.append(first.verdict)
        return first

    monkeypatch.setattr(split, "judge", twice)
    compile_model(tiny_path(name), Options())
    assert {Verdict.PATTERN, Verdict.SEQUENCE} <= set(judged)
