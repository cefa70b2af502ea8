"""Operators of `ai.onnx.ml`, in which pipelines of scikit-learn are exported: those in front of networks.

Ensembles of trees are in `trees`, others are the vendor library's (`import_.ranks` knows the ranks of what they give). What a
schema leaves open is as onnxruntime has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.families import CLASSICAL
from dvm_graph.decompose.indexing import taken, unsigned_index
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.reductions import arg_of
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.softmax import softmax
from dvm_graph.decompose.strings import Words, class_labels, labelled
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product

_NUMBERS = (DType.FLOAT32, DType.FLOAT64, DType.INT32, DType.INT64)


@decomposition("Scaler", domain=CLASSICAL)
def scaler(builder: Builder, node: Node, operands: Operands) -> Results:
    """`(x - offset) * scale`, of each feature or of all alike."""
    x, facts = required(node, operands, 0), builder.facts
    offset, scale = (np.array(node.attrs.get(n, ()), np.float32) for n in ("offset", "scale"))
    if x.dtype not in _NUMBERS or x.rank not in (1, 2) or offset.size != scale.size:
        return None
    if x.dtype is not DType.FLOAT64:
        x = builder.cast(x, DType.FLOAT32)
    features = shape_of(x)[-1]
    if offset.size != 1 and not facts.prove_equal(features, offset.size).yes:
        if offset.size == 0 or facts.prove_equal(features, offset.size).no:
            return None
        facts.assume_equal(features, offset.size, f"{node.name} scales as many features")
    by, factor = (builder.constant(part.astype(x.dtype.numpy)) for part in (offset, scale))
    return [builder.cast(builder.mul(builder.sub(x, by), factor), DType.FLOAT32)]


@decomposition("ArrayFeatureExtractor", domain=CLASSICAL)
def array_feature_extractor(builder: Builder, node: Node, operands: Operands) -> Results:
    """Entries of the last axis, in rows, be it one: a vector has one."""
    x, index = required(node, operands, 0), required(node, operands, 1)
    if x.rank == 0 or index.dtype is not DType.INT64:
        return None
    *rows, features = shape_of(x)
    count = product(shape_of(index))
    if index.data is None:
        builder.facts.assume_range(count, 1, None, f"{node.name} extracts some features")
        index = unsigned_index(builder, builder.reshape(index, (count,)), features)
    elif not isinstance(features, int) or not _are_positions(index.data, features):
        return None
    else:
        index = builder.constant(np.asarray(index.data).reshape(-1))
    return [builder.reshape(taken(builder, x, index, x.rank - 1), (*(rows or (1,)), count))]


def _are_positions(index: np.ndarray[Any, Any], extent: int) -> bool:
    return index.size > 0 and index.min() >= 0 and index.max() < extent


@decomposition("Imputer", domain=CLASSICAL)
def imputer(builder: Builder, node: Node, operands: Operands) -> Results:
    """Other numbers for those that are a given one, or NaN: one for each feature, or the first for all alike."""
    x = required(node, operands, 0)
    kind = {DType.FLOAT32: "float", DType.INT64: "int64"}.get(x.dtype)
    if kind is None or x.rank not in (1, 2):
        return None
    given = np.array(node.attrs.get(f"imputed_value_{kind}s", ()), x.dtype.numpy)
    replaced = np.array(node.attrs.get(f"replaced_value_{kind}", 0), x.dtype.numpy)
    each = builder.facts.prove_equal(shape_of(x)[-1], given.size)
    if given.size == 0 or not (given.size == 1 or each.yes or each.no):
        return None
    other = builder.constant(given if each.yes else given[0])
    nothing = bool(np.isnan(replaced))
    missing = builder.isnan(x) if nothing else builder.eq(x, builder.constant(replaced))
    return [builder.select(missing, other, x)]


@decomposition("Normalizer", domain=CLASSICAL)
def normalizer(builder: Builder, node: Node, operands: Operands) -> Results:
    """Rows by the greatest of their numbers, by the sum of their magnitudes, or of their squares and each with its sign;
    those for which that is 0 as they are.
    """
    x, norm = required(node, operands, 0), text(node, "norm", "MAX")
    if x.dtype not in _NUMBERS or x.rank not in (1, 2) or norm not in ("MAX", "L1", "L2"):
        return None
    wide, last, x = x, (x.rank - 1,), builder.cast(x, DType.FLOAT32)
    zero, least = (builder.scalar(n, x.dtype) for n in (0, float(np.finfo(np.float32).min)))
    if norm == "MAX":
        some = builder.select(builder.isnan(x), least, x)
        totals = builder.max(builder.reduce_max(some, last), least)
        shares = builder.div(x, totals)
    elif norm == "L1":
        totals = builder.reduce_sum(builder.abs(x), last)
        shares = builder.div(x, totals)
    else:
        parts = builder.cast(builder.mul(wide, wide), x.dtype)
        totals = builder.reduce_sum(parts, last)
        roots = builder.sqrt(builder.div(parts, totals))
        shares = builder.select(builder.lt(x, zero), builder.neg(roots), roots)
    return [builder.select(builder.eq(totals, zero), x, shares)]


@decomposition("Binarizer", domain=CLASSICAL)
def binarizer(builder: Builder, node: Node, operands: Operands) -> Results:
    """Whether numbers are above a threshold; NaN is refused."""
    x = required(node, operands, 0)
    if x.dtype is not DType.FLOAT32:
        return None
    above = builder.gt(x, builder.scalar(node.attrs.get("threshold", 0), x.dtype))
    place = builder.cast(above, DType.INT64)
    place = builder.select(builder.isnan(x), builder.scalar(2, DType.INT64), place)
    return [builder.cast(builder.check_index(place, 2), x.dtype)]


@decomposition("FeatureVectorizer", domain=CLASSICAL)
def feature_vectorizer(builder: Builder, node: Node, operands: Operands) -> Results:
    """Rows side by side, each cut to so many features, or with zeros behind them."""
    widths = node.attrs.get("inputdimensions", ())
    if len(widths) != len(operands):
        return None
    parts = []
    for at, width in enumerate(widths):
        x = required(node, operands, at)
        if x.rank != 2 or not isinstance(shape_of(x)[1], int) or width < 1:
            return None
        rows, given = shape_of(x)
        x = builder.cast(x, DType.FLOAT32)
        parts.append(x if given <= width else part(builder, x, 1, 0, width))
        if given < width:
            zeros = builder.broadcast_to(builder.scalar(0, x.dtype), (rows, width - given))
            parts.append(zeros)
        reason = f"{node.name} has rows side by side"
        builder.facts.assume_equal(rows, shape_of(required(node, operands, 0))[0], reason)
    return [builder.concat(parts, 1)]


@decomposition("LinearRegressor", domain=CLASSICAL)
def linear_regressor(builder: Builder, node: Node, operands: Operands) -> Results:
    """`x @ coefficients.T + intercepts`, which are none where they are not one for each target."""
    y = _linear(builder, node, required(node, operands, 0), int(node.attrs.get("targets", 1)))
    return None if y is None or text(node, "post_transform", "NONE") != "NONE" else [y]


@decomposition("LinearClassifier", domain=CLASSICAL)
def linear_classifier(builder: Builder, node: Node, operands: Operands) -> Results:
    """The label of the class that scores highest, and scores, of a class for each intercept."""
    labels = class_labels(node, "classlabels_ints")
    classes, transform = len(node.attrs.get("intercepts", ())), text(node, "post_transform", "NONE")
    if not classes or labels is None or transform not in TRANSFORMS:
        return None
    if len(labels) != classes and classes > 1:
        return None
    x = as_floats(builder, required(node, operands, 0))
    scores = _linear(builder, node, x, classes)
    if scores is None:
        return None
    if classes == 1:
        return _by_sign(builder, node, scores, labels, transform)
    best = arg_of(builder, scores, 1, 1, greatest=True, last=False)
    label = labelled(builder, node, builder.reshape(best, shape_of(scores)[:1]), labels)
    return [label, TRANSFORMS[transform](builder, scores)]


def _by_sign(
    builder: Builder, node: Node, score: Value, labels: Words | NDArray[np.int64], transform: str
) -> Results:
    """One of two classes, and a share for each; of others 1 or 0, and the score, of which nothing is made."""
    positive = builder.gt(score, builder.scalar(0, score.dtype))
    place = builder.cast(builder.reshape(positive, shape_of(score)[:1]), DType.INT64)
    if len(labels) != 2:
        others = np.arange(2) if isinstance(labels, np.ndarray) else ["0", "1"]
        return [labelled(builder, node, place, others), score]
    shares = of_two(builder, score, logistic=transform == "LOGISTIC")
    return [labelled(builder, node, place, labels), shares]


def of_two(builder: Builder, score: Value, *, logistic: bool) -> Value:
    """What two classes have, of which the second has the score."""
    if logistic:
        pair = [builder.sigmoid(builder.neg(score)), builder.sigmoid(score)]
    else:
        pair = [builder.sub(builder.scalar(1, score.dtype), score), score]
    return builder.concat(pair, 1)


def as_floats(builder: Builder, x: Value) -> Value:
    """As classifiers read it."""
    wide = (DType.FLOAT64, DType.INT32, DType.INT64)
    return builder.cast(x, DType.FLOAT32) if x.dtype in wide else x


TRANSFORMS: Mapping[str, Callable[[Builder, Value], Value]] = {
    "NONE": lambda _, scores: scores,
    "LOGISTIC": lambda builder, scores: builder.sigmoid(scores),
    "SOFTMAX": lambda builder, scores: softmax(builder, scores, (1,)),
    "SOFTMAX_ZERO": lambda builder, scores: _softmax_zero(builder, scores),
}


def _softmax_zero(builder: Builder, scores: Value) -> Value:
    """Softmax, but that scores of 0 stay so."""
    greatest = builder.reduce_max(scores, (1,))
    some = builder.gt(builder.abs(scores), builder.scalar(1e-7, scores.dtype))
    weights = builder.select(
        some,
        builder.exp(builder.sub(scores, greatest)),
        builder.mul(scores, builder.exp(builder.neg(greatest))),
    )
    return builder.div(weights, builder.reduce_sum(weights, (1,)))


def _linear(builder: Builder, node: Node, x: Value, targets: int) -> Value | None:
    """Rows of `x @ coefficients.T + intercepts`; None: it has other features, or other elements."""
    weights, intercepts = (
        np.array(node.attrs.get(name, ()), np.float32) for name in ("coefficients", "intercepts")
    )
    if x.dtype is not DType.FLOAT32 or x.rank not in (1, 2) or targets < 1:
        return None
    features = shape_of(x)[-1]
    if weights.size == 0 or weights.size % targets != 0:
        return None
    if not builder.facts.prove_equal(features, weights.size // targets).yes:
        return None
    rows = x if x.rank == 2 else builder.reshape(x, (1, features))
    columns = np.ascontiguousarray(weights.reshape(targets, -1).T)
    y = builder.matmul(rows, builder.constant(columns))
    return builder.add(y, builder.constant(intercepts)) if intercepts.size == targets else y
