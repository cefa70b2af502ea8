"""A few mutants of each kind, and what they are made of."""

from __future__ import annotations

import pytest

from tests.fuzz.check import Finding
from tests.fuzz.damage import damaged_structure
from tests.fuzz.mutate import CHECKS, check_bytes, mutant
from tests.fuzz.workers import run

COUNTS = {"bytes": 200, "structure": 40, "options": 150, "feeds": 150}


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


def test_children_leave_out_no_item() -> None:
    """Each child that took over from another lost one."""
    reports = run([range(4100)], lambda index, phase: None)
    assert [index for index, _ in reports] == list(range(4100))


def test_a_model_that_onnx_infers_nothing_of_is_judged() -> None:
    """A set that a contrib operator is of, but nobody imports: onnxruntime knows it all the same."""
    report = check_bytes(15, 13849, lambda phase: None)
    assert not isinstance(report, Finding)
