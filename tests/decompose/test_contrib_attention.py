"""Attention of onnxruntime against onnxruntime: all operands and attributes that are not left to it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.decompose.reference import Case, Tensor, check, decomposed, vendor_operators
from tests.decompose.test_contrib_fused import contrib, halves

HEADS, SIZE = 2, 4
HIDDEN = HEADS * SIZE
X = Tensor(("b", "s", 6))
WEIGHTS, BIAS = Tensor((6, 3 * HIDDEN)), Tensor((3 * HIDDEN,))
PAST = Tensor((2, "b", HEADS, "p", SIZE))


def mask(*shape: int | str) -> Tensor:
    return Tensor(shape, "int32", 0, 2)


FLAGS = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)


def projected(
    *operands: Tensor | None, label: str = "", past: bool = False, **attrs: object
) -> Case:
    return contrib(
        "Attention", [X, WEIGHTS, *operands], num_heads=HEADS, outputs=1 + past, empty=False,
        label=f"Attention-{label}", **attrs,
    )  # fmt: skip


ATTENTIONS = [
    projected(BIAS, label="plain"),
    projected(None, label="no-bias"),
    projected(BIAS, label="scale", scale=0.3),
    projected(BIAS, label="causal", unidirectional=1),
    projected(BIAS, mask("b", "s"), label="mask-2d"),
    projected(BIAS, mask("b", "s"), label="mask-2d-causal", unidirectional=1),
    projected(BIAS, mask("b", "s"), label="mask-filter", mask_filter_value=-5.0),
    projected(BIAS, mask("b", "s", "s"), label="mask-3d"),
    projected(BIAS, mask("b", "s", "s"), label="mask-3d-causal", unidirectional=1),
    projected(BIAS, Tensor(("b",), "int32", 1, 4), label="ends"),
    projected(BIAS, None, PAST, label="past", past=True),
    projected(BIAS, None, PAST, label="past-causal", past=True, unidirectional=1),
    projected(BIAS, None, None, label="present", past=True),
    projected(BIAS, None, None, Tensor(("b", HEADS, "s", "s")), label="bias"),
    projected(BIAS, mask("b", "s"), None, Tensor((1, 1, "s", "s")), label="shared-bias"),
    contrib("Attention", [X, Tensor((6, 2 * HIDDEN + 6)), Tensor((2 * HIDDEN + 6,))],
            num_heads=HEADS, qkv_hidden_sizes=(HIDDEN, HIDDEN, 6), empty=False, label="Attention-sizes"),
    contrib("Attention", halves(X, WEIGHTS, BIAS), num_heads=HEADS, empty=False,
            label="Attention-f16"),
]  # fmt: skip
Q, K, V = Tensor(("b", "s", HIDDEN)), Tensor(("b", "l", HIDDEN)), Tensor(("b", "l", 6))
SELF = Tensor(("b", "s", HIDDEN))
PAST_KEY = Tensor(("b", HEADS, "p", SIZE))


def heads(*operands: Tensor | None, label: str = "", outputs: int = 1, **attrs: object) -> Case:
    return contrib(
        "MultiHeadAttention", operands, num_heads=HEADS, outputs=outputs, empty=False,
        label=f"MultiHead-{label}", **attrs,
    )  # fmt: skip


MULTI_HEAD = [
    heads(Q, K, V, label="plain"),
    heads(Q, K, V, label="scale", scale=0.3),
    heads(Q, K, V, Tensor((2 * HIDDEN + 6,)), label="bias"),
    heads(Q, K, V, None, mask("b", "l"), label="mask-2d"),
    heads(Q, K, V, None, mask("b", "s", "l"), label="mask-3d"),
    heads(Q, K, V, None, Tensor(("b",), "int32", 1, 4), label="ends"),
    heads(Q, K, V, None, None, Tensor(("b", HEADS, "s", "l")), label="bias-of-scores"),
    heads(Q, K, V, None, mask("b", "l"), Tensor((1, 1, "s", "l")), label="shared-bias-and-mask"),
    heads(SELF, SELF, SELF, label="causal", unidirectional=1),
    heads(SELF, SELF, SELF, None, mask("b", "s"), label="mask-causal", unidirectional=1),
    heads(SELF, SELF, SELF, None, None, None, PAST_KEY, PAST_KEY, label="past", outputs=3),
    heads(SELF, SELF, SELF, BIAS, None, None, PAST_KEY, PAST_KEY, label="past-causal", outputs=3,
          unidirectional=1),
    heads(SELF, SELF, SELF, label="present", outputs=3),
    heads(Q, Tensor(("b", HEADS, "l", SIZE)), Tensor(("b", HEADS, "l", SIZE)), label="heads-given"),
    heads(Q, Tensor(("b", HEADS, "l", SIZE)), Tensor(("b", HEADS, "l", SIZE)), Tensor((3 * HIDDEN,)),
          label="heads-given-bias"),
    heads(*halves(Q, K, V), label="f16"),
]  # fmt: skip
_COS, _SIN = Tensor((16, 2), low=-1, high=1), Tensor((16, 2), low=-1, high=1)
_IDS = Tensor(("b", "s"), "int64", 0, 16)
ROTARY = [
    *(
        contrib("RotaryEmbedding", [x, ids, _COS, _SIN], interleaved=interleaved, empty=False,
                label=f"Rotary-{len(x.shape)}-{len(ids.shape)}-{interleaved}")
        for x in (Q, Tensor(("b", HEADS, "s", SIZE)))
        for ids in (_IDS, Tensor((1,), "int64", 0, 9))
        for interleaved in (0, 1)
    ),
    contrib("RotaryEmbedding", [Tensor(("b", "s", 12)), _IDS, _COS, _SIN], num_heads=2,
            rotary_embedding_dim=4, empty=False, label="Rotary-partial"),
    contrib("RotaryEmbedding", [Q, _IDS, _COS, _SIN], scale=0.5, empty=False, label="Rotary-scale"),
    contrib("RotaryEmbedding", [*halves(Q), _IDS, *halves(_COS, _SIN)], empty=False,
            label="Rotary-f16"),
]  # fmt: skip
CASES = [*ATTENTIONS, *MULTI_HEAD, *ROTARY]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    "case",
    [
        heads(Q, K, V, label="cross-causal", unidirectional=1),
        heads(Tensor(("b", "s", HEADS, 3, SIZE)), label="packed"),
    ],
    ids=str,
)
def test_what_is_left_to_the_vendor(case: Case) -> None:
    assert vendor_operators(decomposed(case.model())) == ["MultiHeadAttention"]
