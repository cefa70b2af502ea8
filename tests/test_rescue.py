"""The net under the compiler: what it fails at runs on onnxruntime, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import dvm_graph
from dvm_graph.decompose import registry
from dvm_graph.kernels import lower
from tests.end_to_end.reference import Array, model_from_text, session

SOURCE = model_from_text(
    "g (float[n, m] x, float[m, 3] w) => (float[n, m] b, float[n, 3] y)"
    "{ a = Exp(x) b = Neg(a) c = MatMul(x, w) y = Tanh(c) }"
)
for proto in SOURCE.graph.node:
    proto.name = proto.op_type.lower()
FEEDS = {
    "x": np.linspace(-1, 1, 10, dtype=np.float32).reshape(2, 5),
    "w": np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3),
}


def rescued(
    source: Any = SOURCE, words: str = "", feeds: dict[str, Array] = FEEDS
) -> dvm_graph.Model:
    """The model, which runs as onnxruntime runs it."""
    with pytest.warns(dvm_graph.RescueWarning, match=words):
        model = dvm_graph.optimize(source)
    reference = session(source if isinstance(source, onnx.ModelProto) else str(source))
    for result, expected in zip(model.run(feeds), reference.run(None, feeds), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    assert "NOT COMPILED" in str(model.report())
    return model


def fail_at(name: str, error: type[dvm_graph.DvmError]) -> Any:
    real = lower.lower_subgraph

    def lower_subgraph(subgraph: Any, *arguments: Any) -> Any:
        if any(node.op == name for node in subgraph.nodes):
            raise error(f"cannot lower {name}")
        return real(subgraph, *arguments)

    return lower_subgraph


@pytest.mark.parametrize("error", [dvm_graph.CompileError, dvm_graph.UnsupportedError])
def test_nodes_at_fault_go_to_the_vendor_library(
    monkeypatch: pytest.MonkeyPatch, error: type[dvm_graph.DvmError]
) -> None:
    monkeypatch.setattr(lower, "lower_subgraph", fail_at("exp", error))
    model = rescued(words="exp, neg on onnxruntime: cannot lower exp")
    assert model.report().vendor_operators == ("Exp (exp)", "Neg (neg)")
    assert model.statistics.kernels_launched == 1


def test_a_decomposition_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise dvm_graph.ShapeError("no such shape")

    find = registry.find
    monkeypatch.setattr(
        "dvm_graph.decompose.walk.find", lambda node: broken if node.op == "Tanh" else find(node)
    )
    assert rescued(words="tanh").report().vendor_operators == ("Tanh (tanh)",)


def test_a_file_that_is_missing_is_nobodys_defect(tmp_path: Path) -> None:
    """onnxruntime has an exception of its own for it, which nobody knew."""
    with pytest.raises(dvm_graph.ModelError, match=r"cannot read model .*gone.*No such file"):
        dvm_graph.optimize(tmp_path / "gone.onnx")


def test_nobody_is_to_blame(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: Any) -> Any:
        raise dvm_graph.CompileError("a defect")

    monkeypatch.setattr("dvm_graph.pipeline.cluster", broken)
    with pytest.warns(dvm_graph.RescueWarning), pytest.raises(dvm_graph.CompileError):
        dvm_graph.optimize(SOURCE)  # even the whole model passes through what is broken
    monkeypatch.undo()
    monkeypatch.setattr("dvm_graph.pipeline.simplify", broken)
    onnx.save(SOURCE, tmp_path / "model.onnx")
    for source in (SOURCE, tmp_path / "model.onnx"):
        model = rescued(source, words="the whole model on onnxruntime: a defect")
        assert model.report().vendor_operators == ("Model (the whole model)",)


def test_opsets_that_are_too_old() -> None:
    source = helper.make_model(
        SOURCE.graph, opset_imports=[helper.make_opsetid("", 4)], ir_version=4
    )
    del source.graph.node[:2], source.graph.node[1], source.graph.output[0]
    source.graph.node.append(helper.make_node("Reshape", ["c"], ["y"], shape=[-1, 3]))
    model = rescued(source, words="opset 4")
    assert [str(port) for port in model.get_inputs()] == [
        "x tensor(float)[n, m]",
        "w tensor(float)[m, 3]",
    ]
    with pytest.raises(dvm_graph.InputError, match="x is float64"):
        model.run({**FEEDS, "x": FEEDS["x"].astype(np.float64)})
    with pytest.raises(dvm_graph.ExecutionError, match="onnxruntime failed"):
        model.run({**FEEDS, "w": FEEDS["w"].T.copy()})
    model.run(FEEDS)


def test_errors_come_out_where_nobody_runs_the_model() -> None:
    source = onnx.ModelProto()
    source.CopyFrom(SOURCE)
    source.graph.node[0].op_type = "Expp"
    with pytest.raises(dvm_graph.ModelError, match="Expp"):
        dvm_graph.optimize(source)


@pytest.mark.filterwarnings("ignore::dvm_graph.errors.RescueWarning")
def test_strict_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "lower_subgraph", fail_at("exp", dvm_graph.CompileError))
    with pytest.raises(dvm_graph.CompileError, match="cannot lower exp"):
        dvm_graph.optimize(SOURCE, strict=True)


def test_vendor_nodes_are_left_to_the_vendor_library() -> None:
    model = dvm_graph.optimize(SOURCE, vendor_nodes={"matmul"})
    assert model.report().vendor_operators == ("MatMul (matmul)",)
    for result, expected in zip(model.run(FEEDS), session(SOURCE).run(None, FEEDS), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(dvm_graph.InputError, match="set of names"):
        dvm_graph.optimize(SOURCE, vendor_nodes="matmul")


@pytest.mark.parametrize("op", ["Sum", "Max", "Concat<axis = 0>"])
def test_onnxruntime_is_not_asked_for_what_ends_its_process(op: str) -> None:
    """An operand that is left out between others of any number."""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) {{ y = {op}(x, , x) }}'
    )
    with pytest.raises(dvm_graph.ModelError, match=r"operand 1 .* is left out"):
        dvm_graph.optimize(model)
