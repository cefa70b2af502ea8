"""onnx's node tests: those that docs/conformance.md lists do not pass, the others do.

A sample of the others here; `make conformance` runs all.
"""

from __future__ import annotations

from pathlib import Path

from dvm_graph.backend.__main__ import named_tests
from dvm_graph.backend.conformance import Status, node_tests, run_tests

KNOWN = named_tests(Path(__file__).parents[2] / "docs" / "conformance.md")
LEAST = 1750
"""Tests that have to pass."""
EVERY = 40
DEPENDS_ON_THE_MACHINE = "strnormalizer"
"""These pass where a locale is installed."""


def test_enough_pass() -> None:
    names = {test.name for test in node_tests()}
    assert names >= KNOWN or len(names) != 1884  # other versions of onnx have other tests
    assert len(names) - len(KNOWN) >= LEAST


def test_the_list_is_right() -> None:
    """Of those that it does not name, a sample."""
    tests = {test.name: test for test in node_tests()}
    sample = sorted(tests.keys() - KNOWN)[::EVERY]
    listed = [name for name in sorted(KNOWN) if DEPENDS_ON_THE_MACHINE not in name]
    outcomes = list(run_tests([tests[name] for name in (*sample, *listed)], jobs=1))
    passed = {outcome.name for outcome in outcomes if outcome.status is Status.PASSED}
    assert sorted(passed) == sample
    assert not [o for o in outcomes if o.status is Status.CRASHED]
