"""Who is off where two engines differ: a referee in float64 decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import dvm_graph
from dvm_graph.check import float64_outputs
from dvm_graph.comparison import compare_model, compare_output

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


def test_relative_errors_beside_nothing() -> None:
    zeros = np.zeros(3, np.float32)
    output = compare_output("y", zeros + np.float32(1e-8), zeros)
    assert output.passed
    assert output.max_relative_error == pytest.approx(1e-4)
