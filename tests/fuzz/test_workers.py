"""Crashes and what never returns, among cases that are checked in other processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from tests.fuzz.check import Finding, Kind, Phase, Report, Skipped
from tests.fuzz.workers import OTHER, run


def reports(work: Callable[[int, Callable[[Phase], None]], Report], count: int) -> list[Report]:
    return [report for _, report in sorted(run([range(count)], work), key=lambda pair: pair[0])]


def test_a_crash_is_a_finding_and_the_cases_behind_it_are_checked() -> None:
    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        phase(Phase.REFERENCE if index == 3 else Phase.OPTIMIZE)
        if index in (1, 3):
            os.kill(os.getpid(), signal.SIGSEGV)
        return None

    first, crashed, third, blamed, last = reports(work, 5)
    assert first is third is last is None
    assert isinstance(crashed, Finding)
    assert crashed.kind is Kind.CRASH
    assert "SIGSEGV in optimize" in crashed.message
    assert isinstance(blamed, Skipped)


def test_a_crash_in_another_way_to_compile_is_told_apart() -> None:
    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        phase(Phase.OTHERWISE)
        os.kill(os.getpid(), signal.SIGSEGV)
        return None

    (crashed,) = reports(work, 1)
    assert isinstance(crashed, Finding)
    assert crashed.variant == OTHER


def test_what_never_returns_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.workers.CPU_SECONDS", 0)

    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        phase(Phase.RUN)
        while index == 0:
            pass
        return None

    endless, other = reports(work, 2)
    assert isinstance(endless, Finding)
    assert endless.kind is Kind.HANG
    assert other is None
