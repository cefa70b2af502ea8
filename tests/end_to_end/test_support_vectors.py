"""Support vector machines beside onnxruntime: kernel functions, votes, probabilities, labels, transforms, one class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.categories import alone, assert_agrees

KERNELS: dict[str, dict[str, Any]] = {
    "RBF": {"kernel_type": "RBF", "kernel_params": [0.2, 0.0, 3.0]},
    "LINEAR": {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]},
    "POLY": {"kernel_type": "POLY", "kernel_params": [0.3, 0.5, 3.0]},
    "square": {"kernel_type": "POLY", "kernel_params": [0.3, 0.0, 2.0]},
    "power": {"kernel_type": "POLY", "kernel_params": [0.3, 0.5, 1.5]},
    "SIGMOID": {"kernel_type": "SIGMOID", "kernel_params": [0.1, -0.2, 3.0]},
    "none": {},
}
TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]
FEATURES = 5
RTOL = 2e-5


def rows(nan: bool = True) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(3).standard_normal((37, FEATURES)).astype(np.float32)
    x[3] = 0
    if nan:
        x[5, 2] = np.nan
    return x


def feeds(x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [x, x[:1], x[:0], x[0]]


def numbers(*shape: int, seed: int = 0) -> list[float]:
    drawn = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return [float(number) for number in drawn.reshape(-1)]


def vectors(counts: list[int]) -> dict[str, Any]:
    count, classes = sum(counts), len(counts)
    return {
        "vectors_per_class": counts,
        "support_vectors": numbers(count, FEATURES),
        "coefficients": numbers(classes - 1, count, seed=1),
        "rho": numbers(classes * (classes - 1) // 2, seed=2),
    }


def labels(kind: str, count: int) -> dict[str, Any]:
    if kind == "strings":
        return {"classlabels_strings": [f"c{at}" for at in range(count)][::-1]}
    return {
        "classlabels_ints": [7 - at for at in range(count)] if kind == "ints" else [*range(count)]
    }


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kernel", KERNELS)
def test_regressors(kernel: str, one_class: int) -> None:
    attributes = {
        **KERNELS[kernel],
        "support_vectors": numbers(9, FEATURES),
        "coefficients": numbers(9, seed=1),
        "rho": [0.25],
        "n_supports": 9,
        "one_class": one_class,
    }
    for x in feeds(rows(nan=kernel != "power")):
        assert_agrees(fixed("SVMRegressor", attributes, x, 1), {"x": x}, rtol=RTOL)


def fixed(op: str, attributes: dict[str, Any], x: np.ndarray[Any, Any], results: int) -> Any:
    """Of rows whose features are known."""
    proto = alone(op, attributes, x, results=results)
    dim = proto.graph.input[0].type.tensor_type.shape.dim[-1]
    dim.Clear()
    dim.dim_value = x.shape[-1]
    return proto


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressors_without_vectors(one_class: int, transform: str) -> None:
    """What is transformed is nothing."""
    attributes = {"coefficients": numbers(FEATURES), "rho": [0.25], "one_class": one_class}
    attributes |= {"n_supports": 0, **KERNELS["RBF"], "post_transform": transform}
    for x in feeds(rows()):
        assert_agrees(fixed("SVMRegressor", attributes, x, 1), {"x": x}, rtol=RTOL)


@pytest.mark.parametrize("kind", ["places", "ints", "strings"])
@pytest.mark.parametrize("counts", [[3, 4], [3, 4, 2], [1, 3, 0, 2, 5], [1] * 12], ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifiers_vote(kernel: str, counts: list[int], kind: str) -> None:
    attributes = {**KERNELS[kernel], **vectors(counts), **labels(kind, len(counts))}
    x = rows(nan=kernel != "power")
    for feed in feeds(x) if kind == "strings" else [x]:
        native = kernel != "power" or len(counts) == 2
        proto = fixed("SVMClassifier", attributes, feed, 2)
        assert_agrees(proto, {"x": feed}, native=native, rtol=RTOL)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("counts", [[3, 4], [3, 4, 2], [1] * 12], ids=str)
@pytest.mark.parametrize("probabilities", [False, True])
def test_scores_of_classifiers(probabilities: bool, counts: list[int], transform: str) -> None:
    pairs = len(counts) * (len(counts) - 1) // 2
    attributes = {**KERNELS["RBF"], **vectors(counts), **labels("ints", len(counts))}
    attributes["post_transform"] = transform
    if probabilities:
        attributes |= {"prob_a": numbers(pairs, seed=5), "prob_b": numbers(pairs, seed=6)}
    for x in feeds(rows()):
        assert_agrees(fixed("SVMClassifier", attributes, x, 2), {"x": x}, rtol=1e-4)


@pytest.mark.parametrize("far", [50.0, -50.0, 1e4])
def test_probabilities_of_pairs_that_are_sure(far: float) -> None:
    attributes = {**KERNELS["LINEAR"], **vectors([3, 4, 2]), **labels("ints", 3)}
    attributes |= {"prob_a": [far, -far, far], "prob_b": [0.0, 0.1, 0.2]}
    x = rows()
    assert_agrees(fixed("SVMClassifier", attributes, x, 2), {"x": x}, rtol=1e-4)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("sign", ["positive", "mixed"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("probabilities", [False, True])
def test_classifiers_without_vectors(
    probabilities: bool, classes: int, sign: str, transform: str
) -> None:
    coefficients = np.array(numbers(classes, FEATURES), np.float32)
    if sign == "positive":
        coefficients = np.abs(coefficients) / 4
    attributes = {"coefficients": coefficients.reshape(-1).tolist(), "rho": [0.25, 9.0]}
    attributes |= {**KERNELS["RBF"], "post_transform": transform, **labels("strings", classes)}
    if probabilities:
        attributes |= {"prob_a": [1.0] * 3, "prob_b": [1.0] * 3}
    for x in feeds(rows()):
        assert_agrees(fixed("SVMClassifier", attributes, x, 2), {"x": x}, rtol=RTOL)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_classifiers_of_other_numbers(dtype: Any) -> None:
    x = (rows(nan=False) * 3).astype(dtype)
    attributes = {**KERNELS["RBF"], **vectors([3, 4]), **labels("ints", 2)}
    assert_agrees(fixed("SVMClassifier", attributes, x, 2), {"x": x}, rtol=RTOL)


@pytest.mark.parametrize(
    "change",
    [
        {"coefficients": numbers(5)},
        {"rho": [0.1]},
        {"prob_a": [1.0]},
        {"vectors_per_class": [3, 4]},
        {"post_transform": "PROBIT"},
    ],
    ids=str,
)
def test_machines_that_do_not_fit_are_onnxruntimes(change: dict[str, Any]) -> None:
    attributes = {**KERNELS["RBF"], **vectors([3, 4, 2]), **labels("ints", 3), **change}
    x = rows(nan=False)
    assert_agrees(fixed("SVMClassifier", attributes, x, 2), {"x": x}, native=False, rtol=RTOL)


@pytest.mark.parametrize("op", ["SVMClassifier", "SVMRegressor"])
@pytest.mark.parametrize("kernel", ["RBF", "LINEAR"])
def test_sums_of_large_terms(kernel: str, op: str) -> None:
    """What is left of coefficients that cancel, beside float64; distances and products are exact in float32."""
    generator = np.random.default_rng(7)
    x, near = (generator.integers(-4, 5, (count, FEATURES)) for count in (37, 40))
    drawn = generator.standard_normal(40) * 1e6
    coefficients = (drawn - drawn.mean()).astype(np.float32)
    gamma = 2.0**-7
    squares = np.square(x[:, None] - near).sum(-1).astype(np.float64)
    of_pairs = np.exp(-gamma * squares) if kernel == "RBF" else x.astype(np.float64) @ near.T
    exact = of_pairs @ coefficients.astype(np.float64) + 0.25
    attributes: dict[str, Any] = {"kernel_type": kernel, "kernel_params": [gamma, 0.0, 0.0]}
    attributes |= {"support_vectors": [*map(float, near.reshape(-1))], "rho": [0.25]}
    attributes["coefficients"] = [*map(float, coefficients)]
    attributes |= (
        {"n_supports": 40}
        if op == "SVMRegressor"
        else {"vectors_per_class": [20, 20], **labels("places", 2)}
    )
    feed = x.astype(np.float32)
    scores = dvm_graph.optimize(fixed(op, attributes, feed, 1 if op == "SVMRegressor" else 2)).run(
        {"x": feed}
    )[-1]
    np.testing.assert_allclose(scores[:, -1], exact, rtol=1e-6)
