"""`dvm-graph check`: table, JSON and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner

from dvm_graph import pipeline
from dvm_graph.cli import main
from dvm_graph.ir import Graph
from tests.end_to_end.reference import model_from_text

TEXT = (
    "g (float[n,n] x) => (float[n,n] y){ e = Exp(x) t = Transpose<perm = [1, 0]>(e) y = Add(e, t) }"
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.onnx"
    onnx.save(model_from_text(TEXT), path)
    return str(path)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def drop(graph: Graph) -> bool:
        for node in [node for node in graph.nodes if node.op == "transpose"]:
            graph.replace_node(node, node.required(0))
        return True

    monkeypatch.setattr(pipeline, "eliminate_common", drop)


def test_a_right_model_passes(model: str) -> None:
    result = CliRunner().invoke(main, ["check", model])
    assert result.exit_code == 0, result.output
    assert "all right" in result.output
    assert "k0_" in result.output


@pytest.mark.usefixtures("broken")
def test_a_wrong_one_is_exit_status_1_and_says_where(model: str) -> None:
    result = CliRunner().invoke(main, ["check", model])
    assert result.exit_code == 1
    assert "eliminate_common: output y is wrong" in result.output
    answer = json.loads(CliRunner().invoke(main, ["check", model, "--json"]).stdout)
    assert answer["passed"] is False
    assert {finding["where"] for finding in answer["findings"]} == {"eliminate_common"}
