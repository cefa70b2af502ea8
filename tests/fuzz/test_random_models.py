"""A few hundred random models with fixed seeds; `python -m tests.fuzz` draws as many as one likes."""

from __future__ import annotations

import collections
from collections.abc import Callable

import pytest

from tests.fuzz.case import generate
from tests.fuzz.check import Finding, Phase, Report, Skipped, check, variants
from tests.fuzz.workers import run

SEED = 20
CHUNK = 50


@pytest.mark.parametrize("chunk", range(6))
def test_random_models_equal_onnxruntime(chunk: int) -> None:
    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        return check(generate(SEED, index), variants(index), phase)

    indices = range(chunk * CHUNK, (chunk + 1) * CHUNK)
    reports = dict(run([indices], work))
    found = {index: report for index, report in reports.items() if isinstance(report, Finding)}
    assert not found, "\n".join(
        f"python -m tests.fuzz --seed {SEED} --index {index} --shrink: {finding}"
        for index, finding in found.items()
    )
    ran = collections.Counter(isinstance(report, Skipped) for report in reports.values())
    assert ran[False] > 0.8 * CHUNK
