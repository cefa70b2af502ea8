"""The test command: counts what passes, survives what crashes."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from click.testing import CliRunner
from onnx.backend.test.case import node

from dvm_graph.backend import __main__ as command
from dvm_graph.backend.conformance import Outcome, Status, node_tests, run_tests
from tests.backend.vendor_backend import VendorBackend


def by_name(names: list[str], **arguments: float) -> dict[str, Outcome]:
    for name in names:  # of these operators alone: to compute the data of all tests takes long
        import_module(f"{node.__name__}.{name.split('_')[1]}")
    tests = {test.name: test for test in node._NodeTestCases}
    chosen = [tests[name] for name in names]
    outcomes = list(run_tests(chosen, jobs=2, backend=VendorBackend, **arguments))
    assert sorted(outcome.name for outcome in outcomes) == sorted(names)
    return {outcome.name: outcome for outcome in outcomes}


def test_names_are_all_of_onnx() -> None:
    names = [test.name for test in node_tests()]
    assert len(names) > 1500 and names == sorted(set(names))
    assert [test.name for test in node_tests("^test_add$")] == ["test_add"]


def test_each_outcome() -> None:
    names = ["test_abs", "test_acos", "test_add", "test_sign", "test_sub", "test_sub_example"]
    outcomes = by_name(names)
    assert outcomes["test_add"] == Outcome("test_add", Status.PASSED, "", ())
    assert outcomes["test_add"].without_vendor
    assert outcomes["test_sub"].status is Status.PASSED
    assert outcomes["test_sub"].vendor_operators == ("Sub",)
    assert not outcomes["test_sub"].without_vendor
    assert outcomes["test_acos"].status is Status.SKIPPED
    assert outcomes["test_acos"].reason == "no arc today"
    assert outcomes["test_sign"].status is Status.FAILED
    assert "Mismatched elements" in outcomes["test_sign"].reason
    assert outcomes["test_abs"].status is Status.CRASHED
    assert outcomes["test_sub_example"].status is Status.PASSED


def test_a_test_that_hangs_is_stopped() -> None:
    outcomes = by_name(["test_ceil", "test_sub"], timeout=3)
    assert outcomes["test_ceil"].status is Status.CRASHED
    assert "no result" in outcomes["test_ceil"].reason
    assert outcomes["test_sub"].status is Status.PASSED


SAMPLE = [
    Outcome("test_b", Status.CRASHED, "the process ended with -6"),
    Outcome("test_a", Status.PASSED, "", ()),
    Outcome("test_c", Status.PASSED, "", ("Conv",)),
    Outcome("test_d", Status.FAILED, "off by one", ()),
    Outcome("test_e", Status.SKIPPED, "no such operator"),
]


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.setattr(command, "run_tests", lambda tests, jobs: iter(SAMPLE))
    monkeypatch.setattr(command, "node_tests", lambda pattern: ["x"] if pattern != "zzz" else [])
    return CliRunner()


def test_json_output(sampled: CliRunner) -> None:
    result = sampled.invoke(command.main, ["--json"])
    found = json.loads(result.stdout)
    assert result.exit_code == 1  # a crash
    assert [found[key] for key in ("tests", "passed", "failed", "skipped", "crashed")] == [
        5,
        2,
        1,
        1,
        1,
    ]
    assert found["passed_without_vendor_operators"] == 1
    assert [test["name"] for test in found["outcomes"]] == sorted(o.name for o in SAMPLE)


def test_text_output(sampled: CliRunner) -> None:
    result = sampled.invoke(command.main, [])
    assert "crashed  test_b: the process ended with -6" in result.stdout
    assert "test_d" not in result.stdout
    verbose = sampled.invoke(command.main, ["--verbose"]).stdout
    assert "failed   test_d: off by one" in verbose and "skipped  test_e" in verbose
    assert "test_a" not in verbose


def test_filters_that_make_no_sense(sampled: CliRunner) -> None:
    assert sampled.invoke(command.main, ["--filter", "("]).exit_code == 2
    assert sampled.invoke(command.main, ["--filter", "zzz"]).exit_code == 2
