"""A few mutants of each kind, and what they are made of."""

from __future__ import annotations

import pytest

from tests.fuzz.check import Finding
from tests.fuzz.damage import damaged_structure
from tests.fuzz.mutate import CHECKS, mutant
from tests.fuzz.workers import run

COUNTS = {"bytes": 100, "structure": 30, "options": 100, "feeds": 30}


@pytest.mark.parametrize("kind", COUNTS)
def test_a_few_mutants(kind: str) -> None:
    reports = run([range(COUNTS[kind])], lambda index, phase: CHECKS[kind](0, index, phase))
    found = [(index, report) for index, report in reports if isinstance(report, Finding)]
    assert not found, f"python -m tests.fuzz.mutate {kind} --start {found[0][0]} --count 1"


def test_a_mutant_is_a_function_of_its_number() -> None:
    first, second = (
        damaged_structure(rng, case.model).SerializeToString(deterministic=True)
        for rng, case in (mutant("structure", 3, 5) for _ in range(2))
    )
    assert first == second
