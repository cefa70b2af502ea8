"""Small models that random graphs once broke: losses over classes."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    assert_same_bits,
    model_from_text,
    session,
)


def test_the_mean_loss_over_nothing_is_0() -> None:
    model = model_from_text(
        "loss (float[n, 4] x, int64[n] t) => (float y) { y = NegativeLogLikelihoodLoss(x, t) }"
    )
    (y,) = dvm_graph.optimize(model).run(
        {"x": np.zeros((0, 4), np.float32), "t": np.zeros(0, np.int64)}
    )
    assert y == 0


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("rows", [2, 0])
def test_a_weighted_mean_loss_over_nothing_is_none(op: str, rows: int) -> None:
    """0 divided by the sum of weights, unlike the mean without weights, as in onnxruntime."""
    model = model_from_text(
        f"g (float[n, 3] x, int64[n] t) => (float y) <float[3] w = {{0, 0, 1}}> {{ y = {op}(x, t, w) }}"
    )
    feeds = {"x": np.ones((rows, 3), np.float32), "t": np.arange(rows)}
    (y,) = dvm_graph.optimize(model).run(feeds)
    assert np.isnan(y)
    if rows or op == "NegativeLogLikelihoodLoss":  # onnxruntime cannot reshape the empty scores
        assert np.isnan(session(model).run(None, feeds)[0])


@pytest.mark.parametrize("weights", [1, 2, 5])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_weights_of_more_classes_than_there_are(op: str, weights: int) -> None:
    """They were summed over all classes where there is one score, which broadcast."""
    model = model_from_text(
        f"""g (float[n, c] x, int64[n] t, float[w] s) => (float[n] y) {{
            y = {op}<reduction = "none">(x, t, s)
        }}""",
        opset=15,
    )
    generator = np.random.default_rng(0)
    for classes in range(1, weights + 1):
        feeds = {
            "x": generator.standard_normal((4, classes)).astype(np.float32),
            "t": generator.integers(0, classes, 4),
            "s": generator.random(weights).astype(np.float32) + 1,
        }
        assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_a_loss_is_spread_into_a_product() -> None:
    """The product's operand was asked for its last axis, and a scalar has none."""
    model = model_from_text(
        """g (float[n, c, d] x, int64[n, d] t) => (float y) <int64[1] three = {3}> {
            loss = NegativeLogLikelihoodLoss<reduction = "sum">(x, t)
            row = Expand(loss, three)
            y = MatMul(row, row)
        }"""
    )
    feeds = {
        "x": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        "t": np.array([[0, 2], [1, 1]], np.int64),
    }
    expected = session(model).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(model).run(feeds), expected)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_labels_without_a_class(reduction: str) -> None:
    """Nobody looked at them where there is none to compare them with, and the loss was 0."""
    result = "[n]" if reduction == "none" else ""
    model = model_from_text(
        f"""g (float[n, c] x, int64[n] t) => (float{result} y) {{
            y = NegativeLogLikelihoodLoss<reduction = "{reduction}">(x, t)
        }}"""
    )
    compiled, reference = dvm_graph.optimize(model, check=True), session(model)
    for rows, classes in ((2, 3), (0, 0)):
        feeds = {"x": np.ones((rows, classes), np.float32), "t": np.zeros(rows, np.int64)}
        assert_all_close(compiled.run(feeds), reference.run(None, feeds))
    feeds = {"x": np.ones((2, 0), np.float32), "t": np.zeros(2, np.int64)}
    with pytest.raises(Exception, match="GatherElements"):
        reference.run(None, feeds)
    with pytest.raises(dvm_graph.ShapeError, match="class"):
        compiled.run(feeds)
