"""Reductions, softmax, losses and normalisations against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.decompose.reference import Case, Tensor, check

X = Tensor(("n", "m", "k"))
POSITIVE = Tensor(("n", "m", "k"), low=0.2, high=2)
INTEGERS = Tensor(("n", "m", "k"), "int32", -5, 5)
FEATURES = Tensor(("n", "m", 6))
CHANNELS = Tensor(("n", 4, "h", "w"))
SUMS = ("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
EXTREMES = ("ReduceMax", "ReduceMin")


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)


REDUCTIONS = [
    *(Case(op, [X, ints(1)]) for op in SUMS),
    # onnxruntime keeps an axis of these where it is empty.
    *(Case(op, [X, ints(-1, 0)], {"keepdims": 0}, empty=False) for op in SUMS),
    *(Case(op, [X]) for op in SUMS),
    *(Case(op, [X, ints(1)], empty=False) for op in (*EXTREMES, "ReduceMean")),
    *(Case(op, [X], {"keepdims": 0}, empty=False) for op in (*EXTREMES, "ReduceMean")),
    *(Case(op, [INTEGERS, ints(1)], empty=False) for op in (*EXTREMES, "ReduceMean", "ReduceSum")),
    Case("ReduceLogSum", [POSITIVE, ints(2)], empty=False),
    Case("ReduceProd", [POSITIVE, ints(0, 2)]),
    Case("ReduceSum", [X, ints()], {"noop_with_empty_axes": 1}),
    Case("ReduceSum", [X], {"axes": [1], "keepdims": 0}, opset=11),
    Case("ReduceMean", [X], {"axes": [-1]}, opset=13, empty=False),
    Case("ReduceMax", [Tensor(("n", 3), "bool"), ints(1)], label="ReduceMax-bool"),
    Case("ArgMax", [X], {"axis": 1}, empty=False),
    Case("ArgMin", [INTEGERS], {"axis": -1, "keepdims": 0}, empty=False),
    Case("ArgMax", [INTEGERS], {"axis": 1, "select_last_index": 1}, empty=False),
    Case("Hardmax", [Tensor(("n", "m"), low=0, high=9)], empty=False),
    *(
        Case(
            op,
            [Tensor(("n", 7), kind, 0, 3)],
            {"axis": axis, "select_last_index": last},
            empty=False,
        )
        for op in ("ArgMax", "ArgMin")
        for kind in ("float32", "int64")
        for axis in (0, 1)
        for last in (0, 1)
    ),
    Case("Hardmax", [Tensor(("n", 7), low=0, high=9)]),
    Case("CumSum", [X, np.array(1, np.int64)]),
    Case("CumSum", [X, np.array(-1, np.int64)], {"exclusive": 1, "reverse": 1}),
    Case("CumSum", [X, np.array(0, np.int64)], {"exclusive": 1}),
    Case("GlobalAveragePool", [CHANNELS], empty=False),
    Case("GlobalMaxPool", [CHANNELS], empty=False),
]
SOFTMAX = [
    Case("Softmax", [X]),
    Case("Softmax", [X], {"axis": 1}),
    Case("Softmax", [X], {"axis": 1}, opset=11),
    Case("LogSoftmax", [X], {"axis": -2}),
    Case("LogSoftmax", [X], opset=11),
]
LABELS = Tensor(("n", "h"), "int64", 0, 5)
SCORES = Tensor(("n", 5, "h"))
LOSSES = [
    Case(op, [SCORES, LABELS, *weights], {"reduction": reduction, **ignore}, empty=False)
    for op in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
    for reduction in ("none", "sum", "mean")
    for weights in ([], [floats(5)])
    for ignore in ({}, {"ignore_index": 2})
] + [
    Case("SoftmaxCrossEntropyLoss", [SCORES, LABELS], outputs=2, empty=False),
    Case("NegativeLogLikelihoodLoss", [Tensor(("n", 5)), Tensor(("n",), "int32", 0, 5)], empty=False),
]  # fmt: skip
NORMALIZATIONS = [
    Case("LayerNormalization", [FEATURES, floats(6), floats(6)]),
    Case("LayerNormalization", [FEATURES, floats(6)], {"epsilon": 0.1}, outputs=3),
    Case("LayerNormalization", [Tensor(("n", 4, 6)), floats(4, 6)], {"axis": 1}),
    Case("RMSNormalization", [FEATURES, floats(6)], opset=23),
    Case("GroupNormalization", [CHANNELS, floats(4), floats(4)], {"num_groups": 2}, empty=False),
    Case("GroupNormalization", [CHANNELS, floats(2), floats(2)], {"num_groups": 2}, opset=18,
         empty=False),
    Case("InstanceNormalization", [CHANNELS, floats(4), floats(4)], empty=False),
    Case("BatchNormalization", [CHANNELS, *(floats(4) for _ in range(4))]),
    Case("BatchNormalization", [CHANNELS, *(floats(4) for _ in range(4))], opset=9),
    Case("LpNormalization", [X], {"axis": 1, "p": 1}, empty=False),
    Case("LpNormalization", [X], empty=False),
    Case("MeanVarianceNormalization", [Tensor((3, 4, "h", 5))], empty=False),
    *(Case("LRN", [Tensor(("n", "c", "h", 5))], {"size": size}, opset=13) for size in (1, 3, 7)),
    Case("LRN", [Tensor(("n", 6, 3, "w"))], {"size": 5, "alpha": 0.5, "beta": 0.3, "bias": 2.0},
         opset=7),
    Case("GlobalLpPool", [Tensor(("n", "c", "h", 5))], opset=21, empty=False),
    *(Case("GlobalLpPool", [Tensor(("n", 3, "h"))], {"p": p}, opset=7, empty=False)
      for p in (1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("case", REDUCTIONS + SOFTMAX + LOSSES + NORMALIZATIONS, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check(case)


def test_half_floats_are_averaged_over_more_elements_than_they_can_count() -> None:
    check(Case("ReduceMean", [Tensor((1, 3001), "float16", 0, 1), ints(1)]))
    check(Case("LayerNormalization", [Tensor(("n", 3001), "float16"), np.ones(3001, np.float16)]))


def test_soft_maximum_of_nothing_but_minus_infinity_stays_there() -> None:
    x = np.array([[-np.inf, -np.inf], [-np.inf, 1]], np.float32)
    check(Case("ReduceLogSumExp", [x, ints(1)]))
