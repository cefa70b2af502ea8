"""Products and convolutions of quantised operands against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dvm_graph
from dvm_graph.import_ import cuts_sums_of_bytes
from tests.decompose.reference import Array, Case, Tensor, decomposed, vendor_operators
from tests.decompose.test_contrib_fused import contrib
from tests.decompose.test_contrib_quantized import I8, U8, check_quantized, scale, zero
from tests.end_to_end.reference import session

GENERATOR = np.random.default_rng(7)
COLUMNS = np.float32([0.01, 0.02, 0.03, 0.04, 0.05])
"""A scale for each of five columns."""


def integers(shape: Sequence[int], dtype: str = "int8") -> Array:
    """Weights; int8 of 7 bits where the reference cuts sums of two products by uint8 to 16."""
    limits = np.iinfo(dtype)
    all_bits = GENERATOR.integers(limits.min, int(limits.max) + 1, shape).astype(dtype)
    return all_bits >> cuts_sums_of_bytes() if dtype == "int8" else all_bits


def zeros(values: Sequence[int], dtype: str = "int8") -> Array:
    return np.array(values, dtype)


A = Tensor(("b", "n", 40), *U8)
W = integers((40, 5))
POINTS = zeros([0, 1, -2, 3, 100])


def onnx_operator(op: str, operands: Sequence[Any], label: str, **attrs: Any) -> Case:
    return Case(op, operands, attrs, label=f"{op}-{label}", empty=False)


def left(of: tuple[str, int, int] = U8) -> list[Any]:
    return [Tensor(("n", 40), *of), scale(0.02), zero(3, of[0])]


MATMULS = [
    onnx_operator("QLinearMatMul", [*left(), W, scale(0.01), zero(4, "int8"), scale(0.9), zero(99)],
                  "mixed"),
    onnx_operator("QLinearMatMul", [*left(I8), W, COLUMNS, POINTS, scale(0.9), zero(9, "int8")],
                  "columns"),
    onnx_operator("QLinearMatMul",
                  [A, np.float32([0.02]), zeros([3], "uint8"), Tensor(("b", 40, "m"), *U8), scale(0.01),
                   zero(128), np.float32([0.9]), zeros([99], "uint8")], "batch"),
]  # fmt: skip
IMAGE = Tensor(("n", 4, "h", 7), *U8)
KERNEL = integers((6, 4, 3, 3))
CHANNELS, BIAS = (
    np.float32([0.01, 0.02, 0.03, 0.04, 0.05, 0.06]),
    np.arange(6, dtype=np.int32) * 500,
)


def image(of: tuple[str, int, int] = U8) -> list[Any]:
    return [Tensor(("n", 4, "h", 7), *of), scale(0.02), zero(30, of[0])]


CONVOLUTIONS = [
    onnx_operator("QLinearConv", [*image(), KERNEL, scale(0.02), zero(0, "int8"), scale(2), zero(120)],
                  "plain", pads=(1, 1, 1, 1)),
    onnx_operator("QLinearConv",
                  [*image(), KERNEL, CHANNELS, zeros([0] * 6), scale(2), zero(120), BIAS],
                  "channels-bias", pads=(1, 0, 1, 2), strides=(2, 1)),
    onnx_operator("QLinearConv",
                  [*image(I8), integers((4, 1, 3, 3)), CHANNELS[:4], zeros([0] * 4), scale(1),
                   zero(-7, "int8"), BIAS[:4]], "depth-wise", group=4, pads=(1, 1, 1, 1)),
    onnx_operator("QLinearConv",
                  [*image(), integers((4, 2, 3, 3)), CHANNELS[:4], zeros([0] * 4), scale(2), zero(120),
                   BIAS[:4]], "groups", group=2, pads=(1, 1, 1, 1)),
    onnx_operator("QLinearConv",
                  [*image(), integers((6, 4, 1, 1), "uint8"), scale(0.01), zero(128), scale(1), zero(120)],
                  "points"),
    contrib("QLinearConv",
            [Tensor(("n", "h", 7, 4), *U8), scale(0.02), zero(30), KERNEL, CHANNELS, zeros([0] * 6),
             scale(2), zero(120), BIAS],
            channels_last=1, pads=(1, 1, 1, 1), empty=False, label="QLinearConv-channels-last"),
]  # fmt: skip
B = [scale(0.01), zero(4, "int8")]
INTEGERS = [
    onnx_operator("MatMulInteger", [A, W], "plain"),
    onnx_operator("MatMulInteger", [A, W, zero(3), POINTS], "columns"),
    onnx_operator(
        "ConvInteger",
        [image()[0], integers((4, 2, 3, 3)), zero(30)],
        "groups",
        group=2,
        pads=(1, 1, 1, 1),
    ),
    onnx_operator(
        "MatMulInteger", [Tensor(("n", 40), *I8), integers((40, 3)), zero(-3, "int8")], "i8"
    ),
]
GEMMS = [
    contrib("QGemm", [*left(), W, *B, BIAS[:5], scale(0.9), zero(99)], label="QGemm", empty=False),
    contrib("QGemm", [*left(), integers((5, 40)), COLUMNS, POINTS], transB=1, alpha=0.5,
            label="QGemm-float", empty=False),
    contrib("QGemm", [Tensor((40, "n"), *U8), scale(0.02), zero(3), W, *B, None, scale(0.9), zero(99)],
            transA=1, label="QGemm-transposed", empty=False),
]  # fmt: skip
TO_FLOAT = [
    contrib("MatMulIntegerToFloat", [A, W, scale(0.02), scale(0.01)], label="ToFloat", empty=False),
    contrib("MatMulIntegerToFloat",
            [A, W, scale(0.02), COLUMNS, zero(3), POINTS, Tensor((5,))], label="ToFloat-columns",
            empty=False),
    contrib("MatMulIntegerToFloat",
            [Tensor(("b", "n", 40), *I8), Tensor(("b", 40, "m"), *I8), scale(0.02), scale(0.01),
             zero(3, "int8"), zero(-4, "int8")], label="ToFloat-batch", empty=False),
    contrib("DynamicQuantizeMatMul", [Tensor(("b", "n", 40)), W, scale(0.01)], label="Dynamic",
            empty=False),
    contrib("DynamicQuantizeMatMul", [Tensor(("b", "n", 40), low=1, high=2), W, COLUMNS, POINTS, Tensor((5,))],
            label="Dynamic-columns", empty=False),
]  # fmt: skip
X = Tensor(("b", "s", 6), *U8)
QKV = integers((6, 24))
ATTENTIONS = [
    contrib("QAttention",
            [X, QKV, Tensor((24,)), scale(0.02), scale(0.01), None, zero(120), zero(3, "int8")],
            num_heads=2, empty=False, label="QAttention"),
    contrib("QAttention",
            [X, QKV, Tensor((24,)), scale(0.02), np.linspace(0.01, 0.03, 24, dtype=np.float32),
             Tensor(("b", "s"), "int32", 0, 2), zero(120), np.arange(24, dtype=np.int8)],
            num_heads=2, empty=False, label="QAttention-mask"),
    contrib("QAttention",
            [X, QKV, Tensor((24,)), scale(0.02), scale(0.01), None, zero(120), zero(3, "int8"),
             Tensor((2, "b", 2, "p", 4))],
            num_heads=2, unidirectional=1, outputs=2, empty=False, label="QAttention-past"),
]  # fmt: skip
CASES = [*MATMULS, *INTEGERS, *CONVOLUTIONS, *GEMMS, *TO_FLOAT, *ATTENTIONS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check_quantized(case)


def test_scales_of_rows_are_left_to_the_vendor() -> None:
    rows = np.ones(3, np.float32)
    operands = [Tensor((3, 40), *U8), rows, zeros([0] * 3, "uint8"), W, *B, scale(1), zero(0)]
    graph = decomposed(onnx_operator("QLinearMatMul", operands, "rows").model())
    assert vendor_operators(graph) == ["QLinearMatMul"]


@pytest.mark.parametrize("strict", [False, True])
def test_integers_that_are_both_computed_are_left_to_the_vendor(strict: bool) -> None:
    computed = Tensor((600, "m"), *I8)
    case = onnx_operator("MatMulInteger", [Tensor(("n", 600), *U8), computed], "computed")
    assert vendor_operators(decomposed(case.model(), strict=strict)) == ["MatMulInteger"]


def test_bytes_by_constants_are_multiplied_as_such() -> None:
    graph = decomposed(onnx_operator("MatMulInteger", [A, W], "constant").model())
    products = [node for node in graph.nodes if node.op == "matmul"]
    assert [value.dtype.short for value in products[0].inputs if value] == ["u8", "i8"]
    assert products[0].output.dtype.short == "i32"


@pytest.mark.parametrize("op", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul"])
def test_a_bias_is_added_to_products_by_several_matrices(op: str) -> None:
    """Which onnxruntime leaves out where each column has a scale."""
    dynamic = op == "DynamicQuantizeMatMul"
    x = Tensor((3, 40)) if dynamic else Tensor((3, 40), *U8)
    bias = np.arange(5, dtype=np.float32) + 1
    operands = [x, integers((2, 40, 5)), *([] if dynamic else [scale(0.02)]), COLUMNS]
    feeds = {"x0": x.draw(np.random.default_rng(0), {})}
    without, added = (
        dvm_graph.optimize(contrib(op, [*operands, *more], empty=False).model(), strict=True)
        for more in ([], [None] * (1 if dynamic else 2) + [bias])
    )
    (products,), (sums,) = without.run(feeds), added.run(feeds)
    np.testing.assert_array_equal(sums, products + bias)
    np.testing.assert_allclose(
        products, session(contrib(op, operands).model()).run(None, feeds)[0], 1e-4, 1e-3
    )
