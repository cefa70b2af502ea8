"""Random models: what is loaded does what was saved, to the bit and to the error."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dvm_graph
from tests.fuzz.case import generate
from tests.fuzz.check import Finding, Kind, Phase, Report, Skipped
from tests.fuzz.workers import run

SEED, CHUNK = 77, 75


def results_of(model: dvm_graph.Model, feeds: dict[str, Any]) -> list[Any] | str:
    try:
        return model.run(feeds)
    except dvm_graph.DvmError as error:
        return f"{type(error).__name__}: {error}"


def same(one: Any, other: Any) -> bool:
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if not isinstance(one, np.ndarray) or one.dtype == object:
        return bool(np.all(one == other))
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def work(index: int, phase: Callable[[Phase], None]) -> Report:
    case = generate(SEED, index)
    phase(Phase.OPTIMIZE)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        try:
            model = dvm_graph.optimize(case.data)
        except dvm_graph.DvmError as error:
            return Skipped(str(error))
        phase(Phase.RUN)
        path = Path(folder) / "model.dvm"
        model.save(path)
        loaded = dvm_graph.load(path)
    if loaded.report() != model.report() or loaded.get_outputs() != model.get_outputs():
        return Finding(Kind.MISMATCH, "another report", case.operators)
    for environment, feeds in enumerate(case.feeds):
        one, other = results_of(model, feeds), results_of(loaded, feeds)
        if not same(one, other):
            return Finding(
                Kind.MISMATCH, f"{other!r:.200}", case.operators, environment=environment
            )
    return None


@pytest.mark.parametrize("chunk", range(2))
def test_random_models(chunk: int) -> None:
    reports = dict(run([range(chunk * CHUNK, (chunk + 1) * CHUNK)], work))
    found = {index: report for index, report in reports.items() if isinstance(report, Finding)}
    assert not found, found
    assert sum(isinstance(report, Skipped) for report in reports.values()) < 0.1 * CHUNK
