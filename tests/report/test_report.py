"""Reports of real models: what they count, and that every question has an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import onnx.parser
import pytest

import dvm_graph
from dvm_graph.report import Report, SubgraphKind, Tensor
from dvm_graph.rules.verdicts import Verdict
from models import tiny_path


@cache
def report_of(name: str) -> Report:
    return dvm_graph.optimize(tiny_path(name)).report()


def small(text: str) -> dvm_graph.Model:
    header = '<ir_version: 10, opset_import: ["" : 21]> '
    return dvm_graph.optimize(onnx.parser.parse_model(header + text))


CHAIN = small(
    "g (float[n, 8] x, float[8, 4] w, int64[k] rows) => (float[k, 4] z)"
    " { [a] h = MatMul(x, w) [b] y = Relu(h) [c] z = Gather <axis = 0> (y, rows) }"
)


def test_counts_agree_with_a_run() -> None:
    model = dvm_graph.optimize(tiny_path("bert"))
    ids = np.ones((2, 5), np.int64)
    model.run({"input_ids": ids, "attention_mask": ids})
    report = model.report()
    launched, fallbacks = model.statistics.kernels_launched, model.statistics.fallbacks
    assert launched >= report.kernels + fallbacks
    assert (launched == report.kernels) == (fallbacks == 0)
    assert report.basic_operators > report.kernels
    assert report.symbols == ("batch", "seq")
    assert report.vendor_operators == ()


def test_every_operator_is_in_one_kernel() -> None:
    names = [o.name for s in report_of("bert").subgraphs for o in s.operators]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", ["bert", "llama", "mobilenet", "nonzero"])
def test_inputs_are_made_before_they_are_read(name: str) -> None:
    report = report_of(name)
    known = {tensor.name for tensor in report.inputs}
    for subgraph in report.subgraphs:
        assert {tensor.name for tensor in subgraph.inputs} <= known, subgraph.name
        known |= {tensor.name for tensor in subgraph.outputs}


@pytest.mark.parametrize("name", ["bert", "llama", "mobilenet", "nonzero"])
def test_why_always_has_an_answer(name: str) -> None:
    report = report_of(name)
    for subgraph in report.subgraphs:
        for producer in report.producers(subgraph):
            answer = report.why(producer.name, subgraph.name)
            reason = answer.partition("not fused: ")[2]
            assert reason.strip(), answer


def test_why_fused() -> None:
    assert "are fused: mix kernel" in CHAIN.report().why("a", "b")


def test_why_not_fused() -> None:
    answer = CHAIN.report().why("b", "c")
    assert "not fused" in answer
    assert "it has to be in memory" in answer


def test_why_vendor_operator() -> None:
    model = small("g (float[n, m, m] x) => (float[n] y) { [p] h = Det (x) [r] y = Relu(h) }")
    report = model.report()
    assert report.vendor_operators == ("Det (p)",)
    assert "vendor" in report.why("p", "r")


def test_unknown_name_suggests_close_ones() -> None:
    with pytest.raises(dvm_graph.InputError, match="did you mean node_gelu"):
        report_of("bert").why("node_linear_4", "nodegelu")


def test_kinds_and_names_of_a_small_model() -> None:
    mix, vector = CHAIN.report().subgraphs
    assert (mix.kind, vector.kind) == (SubgraphKind.MIX, SubgraphKind.VECTOR)
    assert mix.onnx_nodes == ("a", "b")
    assert mix.verdict is Verdict.PATTERN
    assert [str(tensor) for tensor in mix.inputs] == ["f32[n, 8]", "f32[8, 4]"]
    assert (mix.launch, mix.stage, vector.stage) == (0, 0, 1)


def test_text_and_json_say_the_same() -> None:
    report = report_of("bert")
    data = json.loads(json.dumps(report.to_dict()))
    assert data["kernels"] == report.kernels == len(data["subgraphs"])
    text = str(report)
    for subgraph in data["subgraphs"]:
        assert subgraph["name"] in text
    assert f"{report.kernels} kernels" in text


def test_a_repl_shows_a_line_and_a_notebook_a_table() -> None:
    report = report_of("bert")
    assert repr(report).startswith("<dvm_graph.Report: ")
    assert len(repr(report)) < 300
    page = report._repr_html_()
    assert page.count("<tr>") == len(report.subgraphs) + 1
    assert "<script" not in page


def test_words_are_explained_where_they_are_used() -> None:
    report = report_of("bert")
    words = [line.split()[0] for line in report.legend()]
    assert {"mix", "vector", "pattern"} <= set(words)
    assert "vendor" not in words


def test_a_model_of_vendor_operators_alone_says_so() -> None:
    model = small("g (float[n, m, m] x) => (float[n] y) { y = Det(x) }")
    assert str(model.report()).startswith("NOTHING IS COMPILED")


def test_what_is_computed_of_constants_at_every_run_is_flagged() -> None:
    """A constant that a fallback keeps from being folded would be such a kernel."""
    report = report_of("bert")
    assert not any(subgraph.is_constant for subgraph in report.subgraphs)
    weight = Tensor("weight.t", "f32", (3, 4))
    kernel = replace(report.subgraphs[0], inputs=(), constants=(weight,), outputs=(weight,))
    assert kernel.is_constant
    flagged = replace(report, subgraphs=(kernel,))
    assert "COMPUTED AT EVERY RUN" in str(flagged)
