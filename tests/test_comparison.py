"""Who is off where two engines differ: a referee in float64 decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import dvm_graph
from dvm_graph.check import float64_outputs
from dvm_graph.comparison import compare_model, compare_output, compare_result

SOURCE = parser.parse_model(
    """<ir_version: 9, opset_import: ["" : 20]>
    g (float[n, 3] x, float[n, 3] w) => (float[n, 3] y, int64[k, l] z)
    { s = Softmax(x) p = Mul(s, w) y = Exp(p) z = NonZero(x) }"""
).SerializeToString()


class _Off:
    """onnxruntime's session, whose first result is off by a number."""

    def __init__(self, by: float) -> None:
        self._session = onnxruntime.InferenceSession(SOURCE, providers=["CPUExecutionProvider"])
        self._by = by

    def run(self, names: None, feeds: Any) -> list[Any]:
        first, *rest = self._session.run(names, feeds)
        return [first + np.float32(self._by), *rest]


def test_who_is_closer_to_float64_is_right() -> None:
    model = dvm_graph.optimize(SOURCE)
    result = compare_model(model, SOURCE, None, {"n": 5}, 0, _Off(0.5))
    assert result.passed
    errors = result.outputs[0].float64_errors
    assert errors is not None
    assert errors[0] < 1e-5
    assert errors[1] == pytest.approx(0.5, abs=1e-5)
    assert "onnxruntime 0.5" in str(result)


def test_who_is_farther_from_float64_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    model = dvm_graph.optimize(SOURCE)
    run = dvm_graph.Model.run

    def wrong(*args: Any, **more: Any) -> list[Any]:
        first, *rest = run(*args, **more)
        return [first + 1, *rest]

    monkeypatch.setattr(dvm_graph.Model, "run", wrong)
    result = compare_model(model, SOURCE, None, {"n": 5}, 0, _Off(0.0))
    assert not result.passed
    assert [output.passed for output in result.outputs] == [False, True]


def test_the_referee_computes_in_float64() -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
    y, z = float64_outputs(SOURCE, {"x": x, "w": w})
    e = np.exp(x.astype(np.float64))
    expected = np.exp(e / e.sum(axis=1, keepdims=True) * w)
    np.testing.assert_allclose(y, expected, rtol=1e-14)
    assert z.tolist() == np.stack(np.nonzero(x)).tolist()


def test_maps_and_labels_are_compared() -> None:
    source = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
        g (float[n, 2] x) => (string[n] label, seq(map(string, float)) maps)
        {
            label, scores = ai.onnx.ml.LinearClassifier<coefficients: floats = [1.0, 2.0, -1.0, 0.5],
                intercepts: floats = [0.5, 0.25], classlabels_strings: strings = ["a", "b"]>(x)
            maps = ai.onnx.ml.ZipMap<classlabels_strings: strings = ["a", "b"]>(scores)
        }"""
    ).SerializeToString()
    result = dvm_graph.compare(source, dims={"n": 3})
    assert result.passed
    assert [output.shape for output in result.outputs] == [(3,), (3,)]
    assert "maps [3] list" in str(result)


@pytest.mark.parametrize(
    ("actual", "error", "passed"),
    [
        ([{"a": 1.0, "b": 2.00001}], 1e-5, True),
        ([{"a": 1.0, "b": 2.5}], 0.5, False),
        ([{"b": 2.0, "a": 1.0}], np.inf, False),
        ([{"a": 1.0, "b": 2.0}] * 2, np.inf, False),
        ([np.ones(2, np.float32)], np.inf, False),
        (None, np.inf, False),
    ],
)
def test_what_is_held_is_compared(actual: Any, error: float, passed: bool) -> None:
    result = compare_result("y", actual, [{"a": 1.0, "b": 2.0}])
    assert result.max_absolute_error == pytest.approx(error, rel=0.1)
    assert result.passed == passed


def test_sequences_and_nothing_are_compared() -> None:
    one, other = np.zeros((2, 3), np.float32), np.ones(4, np.int64)
    assert compare_result("y", [one, other], [one, other]).passed
    assert not compare_result("y", [one, other], [one, other + 1]).passed
    assert compare_result("y", [], []).passed
    assert compare_result("y", None, None).passed


def test_relative_errors_beside_nothing() -> None:
    zeros = np.zeros(3, np.float32)
    output = compare_output("y", zeros + np.float32(1e-8), zeros)
    assert output.passed
    assert output.max_relative_error == pytest.approx(1e-4)
