"""Operators of onnxruntime's optimiser against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.decompose.reference import Case, Tensor, check, decomposed, vendor_operators
from tests.end_to_end.reference import assert_all_close, session

X = Tensor(("b", "s", 16))
H = Tensor(("b", "s", 16), "float16")
ROW = Tensor((16,))
IMAGE = Tensor(("b", 3, "h", "w"))
WEIGHTS = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)


def contrib(op: str, operands: Sequence[Any], *, label: str = "", **others: Any) -> Case:
    """Attributes are keywords, but for those of `Case`."""
    fields = {name: others.pop(name) for name in ("outputs", "empty", "omitted") if name in others}
    return Case(op, operands, others, domain="com.microsoft", label=label, **fields)


def halves(*tensors: Tensor | None) -> list[Tensor | None]:
    return [None if t is None else Tensor(t.shape, "float16", t.low, t.high) for t in tensors]


GELUS = [
    contrib("Gelu", [X]),
    contrib("BiasGelu", [X, ROW]),
    contrib("FastGelu", [X]),
    contrib("FastGelu", [X, ROW], label="FastGelu-bias"),
    contrib("QuickGelu", [X]),
    contrib("QuickGelu", [X], alpha=0.5),
    contrib("BiasGelu", halves(X, ROW), label="BiasGelu-f16"),
    contrib("QuickGelu", halves(X), label="QuickGelu-f16"),
]
_A, _B = Tensor(("b", "m", "k")), Tensor(("b", "k", "n"))
_AT, _BT = Tensor(("b", "k", "m")), Tensor(("b", "n", "k"))
PRODUCTS = [
    contrib("FusedMatMul", [_A, _B], alpha=0.25),
    contrib("FusedMatMul", [_AT, _B], transA=1),
    contrib("FusedMatMul", [_A, _BT], transB=1),
    contrib("FusedMatMul", [_AT, _BT], transA=1, transB=1, alpha=-2.0),
    contrib("FusedMatMul", [Tensor(("k", "m")), Tensor(("k", "n"))], transA=1),
    contrib("FusedMatMul", [Tensor(("k",)), Tensor(("n", "k"))], transA=1, transB=1, empty=False),
    contrib("FusedMatMul", [Tensor(("m", "b", "k")), _B], transBatchA=1),
    contrib("FusedMatMul", [Tensor(("k", "b", "m")), _B], transBatchA=1, transA=1),
    contrib("FusedMatMul", [_A, Tensor(("n", "b", "k"))], transBatchB=1, transB=1),
    contrib(
        "FusedMatMul",
        [Tensor(("m", 2, "b", "k")), Tensor(("n", 2, "b", "k"))],
        transBatchA=1, transBatchB=1, transB=1, label="FusedMatMul-rank4",
    ),
    contrib("FusedMatMul", halves(_A, _BT), transB=1, label="FusedMatMul-f16"),
    contrib("TransposeMatMul", [_AT, _B], transA=1, alpha=0.5),
    contrib("CDist", [Tensor(("m", "k")), Tensor(("n", "k"))], empty=False),
    contrib("CDist", [Tensor(("m", "k")), Tensor(("n", "k"))], metric="euclidean", empty=False),
    contrib("CDist", [Tensor(("m", 7), "float64"), Tensor((5, 7), "float64")], metric="euclidean", empty=False),
    *(
        contrib(
            "FusedGemm", [Tensor(("m", "k")), Tensor(("n", "k")), Tensor(("n",))],
            transB=1, alpha=0.5, beta=2.0, activation=name, label=f"FusedGemm-{name}", **attrs,
        )
        for name, attrs in (
            ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("Softplus", {}), ("Softsign", {}),
            ("LeakyRelu", {"activation_alpha": 0.3}), ("Elu", {"activation_alpha": 0.7}),
            ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        )
    ),
]  # fmt: skip
CONVOLUTIONS = [
    *(
        contrib("FusedConv", [IMAGE, WEIGHTS, np.float32([1, 2, 3, 4])], activation=name,
                pads=(1, 1, 1, 1), label=f"FusedConv-{name}", empty=False, **attrs)
        for name, attrs in (
            ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}),
            ("LeakyRelu", {"activation_params": (0.2,)}),
            ("Clip", {"activation_params": (-0.5, 0.75)}),
            ("HardSigmoid", {"activation_params": (0.3, 0.4)}),
        )
    ),
    contrib("FusedConv", [IMAGE, WEIGHTS, None, Tensor(("b", 4, "h", "w"))], activation="Relu",
            pads=(1, 1, 1, 1), label="FusedConv-addend", empty=False),
]  # fmt: skip
_SKIP = [X, X, ROW, ROW, ROW]
_RMS_SKIP = [X, X, ROW, ROW]
NORMALIZATIONS = [
    contrib("SkipLayerNormalization", _SKIP, label="SkipLayerNormalization"),
    contrib("SkipLayerNormalization", _SKIP[:3], epsilon=0.1),
    contrib("SkipLayerNormalization", [*_SKIP[:3], None, ROW], label="SkipLayerNormalization-bias"),
    contrib("SkipLayerNormalization", [X, Tensor(("s", 16)), ROW], label="SkipLayerNormalization-2d",
            empty=False),
    contrib("SkipLayerNormalization", [X, Tensor((1, "s", 16)), ROW], empty=False,
            label="SkipLayerNormalization-shared"),
    contrib("SkipLayerNormalization", _SKIP, outputs=4, omitted=(1, 2),
            label="SkipLayerNormalization-sum"),
    contrib("SkipLayerNormalization", halves(*_SKIP), outputs=4, omitted=(1, 2),
            label="SkipLayerNormalization-f16"),
    contrib("SkipSimplifiedLayerNormalization", _RMS_SKIP, label="SkipSimplified"),
    contrib("SkipSimplifiedLayerNormalization", _RMS_SKIP[:3], epsilon=0.1),
    contrib("SkipSimplifiedLayerNormalization", _RMS_SKIP, outputs=4, omitted=(1, 2),
            label="SkipSimplified-sum"),
    contrib("SkipSimplifiedLayerNormalization", halves(*_RMS_SKIP), outputs=4, omitted=(1, 2),
            label="SkipSimplified-f16"),
    Case("SimplifiedLayerNormalization", [X, ROW], {"epsilon": 0.1}),
    Case("SimplifiedLayerNormalization", [X, Tensor(("s", 16))], {"axis": 1}, empty=False),
    Case("SimplifiedLayerNormalization", [X, ROW], outputs=2, label="SimplifiedLN-2"),
    Case("SimplifiedLayerNormalization", halves(X, ROW), label="SimplifiedLN-f16"),
    Case("LayerNormalization", [X, ROW, ROW], opset=12),
]  # fmt: skip
_IDS = Tensor(("b", "s"), "int32", 0, 9)
_SEGMENTS = Tensor(("b", "s"), "int32", 0, 2)
_MASK = Tensor(("b", "s"), "int32", 0, 2)
_WORDS, _PLACES, _KINDS = Tensor((9, 16)), Tensor((12, 16)), Tensor((2, 16))
EMBEDDINGS = [
    contrib("EmbedLayerNormalization", [_IDS, _SEGMENTS, _WORDS, _PLACES, _KINDS, ROW, ROW, _MASK],
            outputs=3, label="Embed"),
    contrib("EmbedLayerNormalization", [_IDS, _SEGMENTS, _WORDS, _PLACES, _KINDS, ROW, ROW],
            outputs=2, label="Embed-no-mask"),
    contrib("EmbedLayerNormalization", [_IDS, None, _WORDS, _PLACES, None, ROW, ROW], epsilon=0.1, mask_index_type=0),
    contrib("EmbedLayerNormalization",
            [_IDS, None, _WORDS, _PLACES, None, ROW, ROW, _MASK, _IDS], outputs=3, label="Embed-ids"),
    contrib("EmbedLayerNormalization",
            [_IDS, None, _WORDS, _PLACES, None, ROW, ROW, None, Tensor((1, "s"), "int32", 0, 12)],
            label="Embed-shared-ids", mask_index_type=0, empty=False),
]  # fmt: skip
CASES = [*GELUS, *PRODUCTS, *CONVOLUTIONS, *NORMALIZATIONS, *EMBEDDINGS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check(case)


def test_a_row_is_at_no_distance_from_itself() -> None:
    """Where rounding leaves a square below 0, its root would be NaN."""
    rows = np.random.default_rng(0).standard_normal((64, 33)).astype(np.float32) * 100
    case = contrib("CDist", [Tensor(("m", 33)), rows], metric="euclidean")
    [apart] = dvm_graph.optimize(case.model()).run({"x0": rows})
    assert np.abs(np.diagonal(apart)).max() < 1


def test_an_activation_that_onnx_does_not_have_is_left_to_the_vendor() -> None:
    operands = [Tensor(("m", "k")), Tensor(("k", "n"))]
    case = contrib(
        "FusedGemm",
        operands,
        activation="ParametricSoftplus",
        activation_alpha=1.0,
        activation_beta=2.0,
    )
    assert vendor_operators(decomposed(case.model())) == ["FusedGemm"]


@pytest.mark.parametrize("op", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_a_skip_connection_of_another_batch(op: str) -> None:
    """One batch of it serves all; more of them than the input has are an error."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        "g (float[a, s, 4] x, float[b, s, 4] k, float[4] w) => (float[a, s, 4] y)"
        f"{{ y = com.microsoft.{op}(x, k, w) }}"
    )
    compiled = dvm_graph.optimize(model)
    generator = np.random.default_rng(0)
    x = generator.standard_normal((3, 2, 4)).astype(np.float32)
    feeds = {"x": x, "k": x[:1] * 0.5, "w": np.ones(4, np.float32)}
    assert_all_close(compiled.run(feeds), session(model).run(None, feeds))
    with pytest.raises(dvm_graph.ShapeError, match="b broadcasts to a"):
        compiled.run({**feeds, "x": x[:1], "k": x})
