"""`dvm-graph machine` and `calibrate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dvm_graph.cli import main
from dvm_graph.npu import machine


def test_every_number_is_printed_with_unit_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.VARIABLE, "zen2")
    data = json.loads(CliRunner().invoke(main, ["machine", "--json"]).stdout)
    assert data["name"] == "zen2"
    assert data["numbers"].keys() == machine.fields().keys()
    for name, number in data["numbers"].items():
        assert number["unit"] == machine.fields()[name].unit
        assert number["source"].startswith("zen2.toml: "), name
    text = CliRunner().invoke(main, ["machine"]).stdout
    assert all(name in text for name in machine.fields())
    assert "[bold]" not in text


def test_calibrating_says_where_the_numbers_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = tmp_path / "machine.json"
    family = machine.family("zen4")
    monkeypatch.setattr("dvm_graph.cli.machine.calibrate_machine", lambda: (family, kept))
    result = CliRunner().invoke(main, ["calibrate"])
    assert result.exit_code == 0
    assert f"kept in {kept}" in result.stdout


def test_a_machine_that_does_not_exist_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(machine.VARIABLE, "zen9")
    result = CliRunner().invoke(main, ["machine"])
    assert result.exit_code == 2
    assert "DVM_MACHINE is 'zen9'" in result.stderr
