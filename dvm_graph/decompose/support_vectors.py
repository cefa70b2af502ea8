"""Support vector machines of `ai.onnx.ml`: what a row is to each vector, as products and functions, and pairs of classes that
vote.

What the schemas leave open is as onnxruntime has it: without vectors, coefficients are rows to multiply by, and results of
a regressor stay as they are, whatever its post transform. Where a row is infinitely far along a feature, classes meet NaN that
a sum over their own vectors only would not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.classical import TRANSFORMS, as_floats, of_two
from dvm_graph.decompose.families import CLASSICAL
from dvm_graph.decompose.host import add_host
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.reductions import arg_of
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.strings import Words, class_labels, labelled
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder

_Floats = NDArray[np.float32]
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_SURE = 1e-7
"""Probabilities of pairs are no closer to 0 and 1."""


@dataclass(frozen=True, slots=True)
class _Machine:
    vectors: _Floats
    """[vectors, features]; none where it is linear."""
    coefficients: _Floats
    rho: _Floats
    kernel: str
    gamma: float
    shift: float
    degree: float


def _machine(node: Node, count: int, rows: int) -> _Machine | None:
    """Of so many vectors and rows of coefficients; None: the attributes do not fit."""
    vectors, coefficients, rho, params = (
        np.array(node.attrs.get(name, ()), np.float32)
        for name in ("support_vectors", "coefficients", "rho", "kernel_params")
    )
    kernel = text(node, "kernel_type", "LINEAR")
    if kernel not in _KERNELS or params.size != 3 or count < 0 or not rho.size:
        return None
    if not count:
        kernel, vectors = "LINEAR", vectors[:0]
    elif not vectors.size or vectors.size % count:
        return None
    if not coefficients.size or coefficients.size % rows:
        return None
    gamma, shift, degree = map(float, params)
    return _Machine(
        vectors.reshape(count, -1) if count else vectors.reshape(0, 0),
        coefficients.reshape(rows, -1),
        rho,
        kernel,
        gamma,
        shift,
        degree,
    )


def _rows(builder: Builder, x: Value, features: int) -> Value | None:
    """None: they have other features, or nobody knows."""
    if x.dtype is not DType.FLOAT32 or x.rank not in (1, 2):
        return None
    if not builder.facts.prove_equal(shape_of(x)[-1], features).yes:
        return None
    return x if x.rank == 2 else builder.reshape(x, (1, features))


def _products(builder: Builder, rows: Value, others: _Floats) -> Value:
    """[rows, others], of the type of the rows."""
    others = np.ascontiguousarray(others.T.astype(rows.dtype.numpy))
    return builder.matmul(rows, builder.constant(others))


def _sums(builder: Builder, near: Value, coefficients: _Floats, rho: _Floats) -> Value:
    """[rows, sums]: added up as float64, for what is left of numbers of a machine may be a millionth of them."""
    y = _products(builder, builder.cast(near, DType.FLOAT64), coefficients)
    y = builder.add(y, builder.constant(rho.astype(np.float64)))
    return builder.cast(y, DType.FLOAT32)


def _nearness(builder: Builder, rows: Value, machine: _Machine) -> Value:
    """[rows, vectors]: the kernel function of each pair."""
    if machine.kernel == "RBF":
        count, features = machine.vectors.shape
        apart = builder.sub(
            builder.reshape(rows, (shape_of(rows)[0], features, 1)),
            builder.constant(np.ascontiguousarray(machine.vectors.T)),
        )
        squares = builder.reduce_sum(builder.mul(apart, apart), (1,))
        squares = builder.cast(builder.reshape(squares, (shape_of(rows)[0], count)), DType.FLOAT64)
        return builder.exp(builder.mul(squares, builder.scalar(-machine.gamma, squares.dtype)))
    y = _products(builder, rows, machine.vectors)
    if machine.kernel == "LINEAR":
        return y
    y = builder.mul(y, builder.scalar(machine.gamma, y.dtype))
    y = builder.add(y, builder.scalar(machine.shift, y.dtype))
    if machine.kernel == "SIGMOID":
        return builder.tanh(y)
    if machine.degree in (2, 3):
        square = builder.mul(y, y)
        return square if machine.degree == 2 else builder.mul(square, y)
    return builder.pow(y, builder.scalar(machine.degree, y.dtype))


@decomposition("SVMRegressor", domain=CLASSICAL)
def svm_regressor(builder: Builder, node: Node, operands: Operands) -> Results:
    machine = _machine(node, int(node.attrs.get("n_supports", 0)), 1)
    if machine is None:
        return None
    count, features = machine.vectors.shape
    if count and machine.coefficients.shape[1] != count:
        return None
    features = features if count else machine.coefficients.shape[1]
    rows = _rows(builder, required(node, operands, 0), features)
    if rows is None:
        return None
    near = _nearness(builder, rows, machine) if count else rows
    y = _sums(builder, near, machine.coefficients, machine.rho[:1])
    if node.attrs.get("one_class", 0):
        one, zero = (builder.scalar(number, y.dtype) for number in (1, 0))
        y = builder.select(builder.gt(y, zero), one, builder.neg(one))
    return [y]


@decomposition("SVMClassifier", domain=CLASSICAL)
def svm_classifier(builder: Builder, node: Node, operands: Operands) -> Results:
    labels = class_labels(node, "classlabels_ints")
    transform = TRANSFORMS.get(text(node, "post_transform", "NONE"))
    counts = np.array(node.attrs.get("vectors_per_class", ()), np.int64)
    if labels is None or len(labels) < 2 or transform is None or (counts < 0).any():
        return None
    count, classes = int(counts.sum()), len(labels)
    machine = _machine(node, count, classes - 1 if count else classes)
    if machine is None:
        return None
    features = (machine.vectors if count else machine.coefficients).shape[1]
    rows = _rows(builder, as_floats(builder, required(node, operands, 0)), features)
    if rows is None:
        return None
    if not count:
        scores = builder.add(
            _products(builder, rows, machine.coefficients), builder.constant(machine.rho[:1])
        )
        label = _of_greatest(builder, node, scores, machine, labels)
        return [label, transform(builder, scores)]
    pairs = classes * (classes - 1) // 2
    fits = counts.size == classes and machine.coefficients.shape[1] == count
    if not fits or machine.rho.size < pairs:
        return None
    if classes > 2 and machine.kernel == "POLY" and not machine.degree.is_integer():
        return None  # roots of negative numbers are NaN, to their classes alone
    near = _nearness(builder, rows, machine)
    scores = _sums(builder, near, _of_pairs(machine.coefficients, counts), machine.rho[:pairs])
    label = labelled(builder, node, _voted(builder, scores, classes), labels)
    if not _has_probabilities(node):
        if classes > 2:
            return [label, transform(builder, scores)]
        if transform is TRANSFORMS["NONE"]:
            return [label, builder.concat([builder.neg(scores), scores], 1)]
        return [label, of_two(builder, scores, logistic=transform is TRANSFORMS["LOGISTIC"])]
    shares = _probabilities(builder, node, scores, classes)
    return None if shares is None else [label, transform(builder, shares)]


def _has_probabilities(node: Node) -> bool:
    return bool(node.attrs.get("prob_a"))


def _of_greatest(
    builder: Builder,
    node: Node,
    scores: Value,
    machine: _Machine,
    labels: Words | NDArray[np.int64],
) -> Value:
    """The class that scores highest; of two the second, where that is enough."""
    best = arg_of(builder, scores, 1, 1, greatest=True, last=False)
    if len(labels) == 2 and not _has_probabilities(node):
        first, second = (part(builder, scores, 1, at, 1) for at in (0, 1))
        is_first = builder.eq(best, builder.scalar(0, best.dtype))
        greatest = builder.select(is_first, first, second)
        if (machine.coefficients >= 0).all():
            enough = builder.ge(greatest, builder.scalar(0.5, scores.dtype))
        else:
            enough = builder.gt(greatest, builder.scalar(0, scores.dtype))
        best = builder.select(enough, builder.scalar(1, best.dtype), best)
    return labelled(builder, node, builder.reshape(best, shape_of(scores)[:1]), labels)


def _of_pairs(coefficients: _Floats, counts: NDArray[np.int64]) -> _Floats:
    """[pairs, vectors]: each class has a row of coefficients for each other one, without itself."""
    ends = np.cumsum(counts)
    of_class = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    rows = []
    for i in range(counts.size):
        for j in range(i + 1, counts.size):
            row = np.zeros(coefficients.shape[1], np.float32)
            row[of_class[i]] = coefficients[j - 1, of_class[i]]
            row[of_class[j]] = coefficients[i, of_class[j]]
            rows.append(row)
    return np.array(rows)


def _voted(builder: Builder, scores: Value, classes: int) -> Value:
    """The first class with most votes: of a pair the first has the vote where the score is positive."""
    positive = builder.gt(scores, builder.scalar(0, scores.dtype))
    rows = shape_of(scores)[:1]
    if classes == 2:
        place = builder.cast(builder.reshape(positive, rows), DType.INT64)
        return builder.sub(builder.scalar(1, place.dtype), place)
    first, second = np.triu_indices(classes, 1)
    pairs = np.arange(first.size)
    gained, given = np.zeros((classes, first.size), np.float32), np.zeros(classes, np.float32)
    gained[first, pairs], gained[second, pairs] = 1, -1
    np.add.at(given, second, 1)
    votes = _products(builder, builder.cast(positive, scores.dtype), gained)
    votes = builder.add(votes, builder.constant(given))
    best = arg_of(builder, votes, 1, 1, greatest=True, last=False)
    return builder.reshape(best, rows)


def _probabilities(builder: Builder, node: Node, scores: Value, classes: int) -> Value | None:
    """[rows, classes], of the probabilities of pairs."""
    a, b = (np.array(node.attrs.get(name, ()), np.float32) for name in ("prob_a", "prob_b"))
    pairs = shape_of(scores)[1]
    if a.size != b.size or a.size < pairs:
        return None
    one = builder.scalar(1, scores.dtype)
    y = builder.mul(scores, builder.constant(a[:pairs]))
    y = builder.sub(one, builder.sigmoid(builder.add(y, builder.constant(b[:pairs]))))
    least, most = (
        builder.constant(np.array(bound, np.float32))
        for bound in (_SURE, np.float32(1) - np.float32(_SURE))
    )
    y = builder.select(builder.lt(y, least), least, y)
    y = builder.select(builder.lt(most, y), most, y)
    types = [(DType.FLOAT32, (shape_of(scores)[0], classes))]
    return add_host(builder, node, [y], [classes], types, "CoupledProbabilities")[0]
