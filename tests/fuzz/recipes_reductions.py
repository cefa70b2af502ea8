"""Reductions, normalisations, losses."""

from __future__ import annotations

import numpy as np

from tests.fuzz.contents import Contents
from tests.fuzz.growth import FLOATS, Growth, RefusedError, Value
from tests.fuzz.operands import along, maybe
from tests.fuzz.registry import REDUCTION, into_domain, recipe, types

REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)


@recipe(*REDUCTIONS, kind=REDUCTION, weight=2)
def reduce(g: Growth, op: str) -> Value:
    dtypes = types(op, g.opset)
    x = g.ranked(dtypes, 0 if g.chance(0.1) else 1, 6)
    if op == "ReduceLogSum":
        x = into_domain(g, "Log", x)
    axes = None
    if x.rank and g.chance(0.85):
        axes = g.some(range(x.rank), 1)
        axes = [a - x.rank if g.opset >= 11 and g.chance(0.3) else a for a in axes]
    attributes = {"keepdims": g.choose((None, 0, 1, 0))}
    if g.chance(0.1):
        attributes["noop_with_empty_axes"] = g.choose((0, 1))
        axes = None if g.chance(0.5) else axes
    return g.emit(op, [x], attributes, {"axes": axes})


@recipe("ArgMax", "ArgMin", kind=REDUCTION)
def arg(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 5)
    attributes = {
        "axis": g.choose((None, *range(x.rank))),
        "keepdims": g.choose((None, 0, 1)),
        "select_last_index": g.choose((None, 0, 1)),
    }
    return g.emit(op, [x], attributes)


@recipe("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", kind=REDUCTION, weight=2)
def softmax(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 5)
    axis = g.rng.randint(0 if g.opset < 11 else -x.rank, x.rank - 1)
    named = g.chance(0.85) or x.rank == 1  # of which there is no axis 1, the default of old
    return g.emit(op, [x], {"axis": axis if named else None, "p": g.choose((None, 1, 2))})


@recipe("CumSum", "CumProd", kind=REDUCTION)
def cumulate(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 4)
    axis = g.integers(g.rng.randint(-x.rank, x.rank - 1), g.choose((np.int64, np.int32)))
    return g.emit(op, [x, axis], {"exclusive": g.choose((None, 1)), "reverse": g.choose((None, 1))})


@recipe("TopK", kind=REDUCTION)
def top_k(g: Growth) -> Value:
    x = g.ranked(types("TopK", g.opset), 1, 4)
    axis = g.rng.randint(-x.rank if g.opset >= 11 else 0, x.rank - 1)
    if min(x.at(axis)) == 0:
        raise RefusedError
    k = g.rng.randint(1, min(x.at(axis)))
    attributes = {
        "axis": axis,
        "largest": g.choose((None, 0, 1)),
        "sorted": 1 if g.chance(0.5) else None,
    }
    if g.opset < 10:
        return g.emit("TopK", [x], {**attributes, "k": k}, outputs=2)
    return g.emit("TopK", [x, g.integers([k])], attributes, outputs=2)


@recipe("LayerNormalization", "RMSNormalization", kind=REDUCTION, weight=2)
def layer_norm(g: Growth, op: str) -> Value:
    x = g.ranked([d for d in types(op, g.opset) if d in FLOATS], 1, 5)
    axis = g.choose((-1, -1, g.rng.randint(-x.rank, x.rank - 1)))
    rest = [s[axis:] for s in x.shapes]
    scale = g.fresh(x.dtype, rest)
    bias = g.fresh(x.dtype, rest) if op == "LayerNormalization" and g.chance(0.6) else None
    operands = [scale, bias] if op == "LayerNormalization" else [scale]
    outputs = g.choose((1, 1, 1, 3)) if op == "LayerNormalization" else 1
    return g.emit(
        op,
        [x, *operands],
        {"axis": axis, "epsilon": g.choose((None, 0.1)), "stash_type": g.choose((None, 1))},
        outputs=outputs,
    )


@recipe("BatchNormalization", "InstanceNormalization", kind=REDUCTION)
def batch_norm(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 3 if op[0] == "I" else 2, 5)
    shape = along(x, (1,))
    scale, bias, mean = (g.fresh(x.dtype, shape) for _ in range(3))
    if op == "InstanceNormalization":
        return g.emit(op, [x, scale, bias], {"epsilon": g.choose((None, 0.1))})
    variance = g.fresh(x.dtype, shape, Contents(positive=True))
    attributes = {
        "epsilon": g.choose((None, 0.1)),
        "momentum": g.choose((None, 0.5)),
        "spatial": g.choose((None, 1)),
    }
    outputs = 1
    if g.opset >= 14 and g.chance(0.3):
        attributes["training_mode"] = g.choose((0, 1))
        outputs = g.choose((1, 3)) if attributes["training_mode"] else 1
    return g.emit(op, [x, scale, bias, mean, variance], attributes, outputs=outputs)


@recipe("GroupNormalization", kind=REDUCTION)
def group_norm(g: Growth) -> Value:
    x = g.ranked(types("GroupNormalization", g.opset), 3, 4)
    if not x.fixed(1):
        raise RefusedError
    channels = x.at(1)[0]
    groups = g.choose([f for f in range(1, channels + 1) if channels % f == 0])
    scale, bias = (
        g.fresh(x.dtype, [(channels if g.opset >= 21 else groups,)] * g.breadth) for _ in range(2)
    )
    attributes = {
        "num_groups": groups,
        "epsilon": g.choose((None, 0.1)),
        "stash_type": g.choose((None, 1)),
    }
    return g.emit("GroupNormalization", [x, scale, bias], attributes)


@recipe("MeanVarianceNormalization", kind=REDUCTION)
def mean_variance(g: Growth) -> Value:
    x = g.ranked(types("MeanVarianceNormalization", g.opset), 4, 4)
    axes = g.some(range(4), 1) if g.chance(0.5) else None
    return g.emit("MeanVarianceNormalization", [x], {"axes": axes})


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", kind=REDUCTION)
def loss(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 2, 4)
    if not min(x.at(1)):
        raise RefusedError
    shape = [(s[0], *s[2:]) for s in x.shapes]
    labels = g.fresh(g.choose((7, 7, 6)), shape, Contents(low=(0,) * g.breadth, high=x.at(1)))
    weights = maybe(g, lambda: g.fresh(x.dtype, along(x, (1,)), Contents(positive=True)))
    attributes = {
        "reduction": g.choose((None, "none", "mean", "sum")),
        "ignore_index": g.choose((None, 0)),
    }
    outputs = g.choose((1, 2)) if op == "SoftmaxCrossEntropyLoss" else 1
    return g.emit(op, [x, labels, weights], attributes, outputs=outputs)


@recipe("Det", kind=REDUCTION)
def det(g: Growth) -> Value:
    n = g.choose((1, 2, 3))
    return g.emit("Det", [g.fresh(1, [g.choose(((n, n), (2, n, n)))] * g.breadth)])
