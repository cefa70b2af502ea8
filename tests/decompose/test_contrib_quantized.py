"""Operators on quantised tensors against onnxruntime: equal, or one quantisation step apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dvm_graph
from tests.decompose.evaluate import evaluate
from tests.decompose.reference import Array, Case, Tensor, decomposed, session, vendor_operators
from tests.decompose.test_contrib_fused import contrib
from tests.tolerances import assert_within_steps

U8, I8 = ("uint8", 0, 256), ("int8", -128, 128)


def scale(value: float) -> Array:
    return np.array(value, np.float32)


def zero(value: int, dtype: str = "uint8") -> Array:
    return np.array(value, dtype)


def binary(op: str, of: tuple[str, int, int], points: tuple[int, int, int], label: str) -> Case:
    a, b, c = (zero(point, of[0]) for point in points)
    left, right = Tensor(("n", "m"), *of), Tensor(("m",), *of)
    operands = [left, scale(0.02), a, right, scale(0.013), b, scale(0.03), c]
    return contrib(op, operands, label=f"{op}-{label}", empty=False)


def unary(
    op: str,
    *middle: Any,
    shape: tuple[int | str, ...] = ("n", "m"),
    label: str = "",
    of: tuple[str, int, int] = U8,
    y: float = 0.01,
    **attrs: Any,
) -> Case:
    point = 120 if of is U8 else -3
    operands = [Tensor(shape, *of), scale(0.04), zero(point, of[0]), *middle]
    operands += [scale(y), zero(point + 1, of[0])]
    return contrib(op, operands, label=f"{op}-{of[0]}-{label}", empty=False, **attrs)


IMAGE, LAST = ("n", 3, "h", "w"), ("n", "h", "w", 3)
ELEMENTWISE = [
    *(
        binary(op, of, points, f"{of[0]}-{index}")
        for op in ("QLinearAdd", "QLinearMul")
        for of, choices in ((U8, [(128, 100, 90), (0, 0, 0)]), (I8, [(0, 0, 0), (-5, 7, 11)]))
        for index, points in enumerate(choices)
    ),
    *(unary(op, of=of) for op in ("QLinearSigmoid", "QLinearLeakyRelu") for of in (U8, I8)),
    unary("QLinearLeakyRelu", alpha=0.3, label="alpha"),
    *(
        unary("QLinearSoftmax", shape=("n", "m", 5), axis=axis, opset=opset, y=1 / 256, of=of,
              label=f"{axis}-{opset}")
        for axis, opset, of in ((-1, 13, U8), (1, 13, I8), (1, 12, U8), (2, 12, I8))
    ),
    contrib("QLinearWhere",
            [Tensor(("n", "m"), "bool"), Tensor(("n", "m"), *U8), scale(0.1), zero(3),
             Tensor(("m",), *U8), scale(0.2), zero(9), scale(0.15), zero(20)],
            label="QLinearWhere", empty=False),
    contrib("QLinearConcat",
            [scale(0.1), zero(10), Tensor(("n", 2), *U8), scale(0.1), zero(10),
             Tensor(("n", "m"), *U8), scale(0.17), zero(128)],
            axis=1, label="QLinearConcat", empty=False),
]  # fmt: skip
POOLS = [
    unary("QLinearAveragePool", shape=("n", 3, 7, "w"), kernel_shape=(3, 2), y=0.03, label="plain"),
    unary("QLinearAveragePool", shape=("n", 3, 7, 8), kernel_shape=(3, 3), strides=(2, 2),
          pads=(1, 1, 1, 1), y=0.03, of=I8, label="pads"),
    unary("QLinearAveragePool", shape=("n", 3, 7, 8), kernel_shape=(3, 3), pads=(1, 1, 1, 1),
          count_include_pad=1, y=0.03, label="counted"),
    unary("QLinearAveragePool", shape=("n", 7, 8, 3), kernel_shape=(2, 2), channels_last=1, y=0.03,
          label="channels-last"),
    *(
        unary("QLinearGlobalAveragePool", shape=shape, channels_last=last, y=0.02, of=of, label=str(last))
        for shape, last in ((IMAGE, 0), (LAST, 1))
        for of in (U8, I8)
    ),
    contrib("NhwcMaxPool", [Tensor(("n", 6, "w", 3), *U8)], kernel_shape=(2, 1), strides=(2, 1),
            label="NhwcMaxPool", empty=False),
]  # fmt: skip
LINEAR = [
    contrib("DequantizeLinear", [Tensor(("n", "m"), *U8), scale(0.1), zero(7)], label="Dequantize"),
    contrib("DequantizeLinear", [Tensor((2, "m"), *I8), np.float32([0.1, 0.3]), np.int8([1, -4])],
            axis=0, label="Dequantize-axis"),
    contrib("DequantizeLinear", [Tensor(("n",), "uint16", 0, 65535), scale(0.1), zero(7, "uint16")],
            label="Dequantize-u16"),
    contrib("QuantizeLinear", [Tensor(("n", "m")), scale(0.03), zero(7)], label="Quantize"),
    contrib("QuantizeLinear", [Tensor(("n", "m")), scale(0.0001), zero(7, "int16")],
            label="Quantize-i16"),
    contrib("QuantizeLinear", [Tensor((2, "m")), np.float32([0.1, 0.03]), np.uint8([1, 40])], axis=0,
            label="Quantize-axis"),
]  # fmt: skip


def embeddings(
    of: tuple[str, int, int], point: int, label: str, *, segments: bool = True, mask: bool = True
) -> Case:
    """Words, places and kinds, factors and terms: tables, then scales, then zero points."""
    ids, kinds = Tensor(("b", "s"), "int32", 0, 9), Tensor(("b", "s"), "int32", 0, 2)
    tables = [Tensor(shape, *of) for shape in ((9, 16), (12, 16), (2, 16), (16,), (16,))]
    scales = [scale(0.02 + 0.01 * at) for at in range(5)]
    zeros = [zero(point + at, of[0]) for at in range(5)]
    operands: list[Any] = [ids, kinds, *tables, kinds if mask else None, *scales, *zeros]
    if not segments:
        for at in (1, 4, 10, 15):
            operands[at] = None
    return contrib("QEmbedLayerNormalization", operands, outputs=2, label=f"QEmbed-{label}")


EMBEDDINGS = [
    embeddings(U8, 120, "u8"),
    embeddings(I8, -3, "i8", mask=False),
    embeddings(U8, 0, "words-and-places", segments=False),
]
CASES = [*ELEMENTWISE, *POOLS, *LINEAR, *EMBEDDINGS]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check_quantized(case)


def check_quantized(case: Case) -> None:
    """Decomposed, and compiled with and without fusion, and as it runs by default."""
    model = case.model()
    graph = decomposed(model, strict=True)
    assert not vendor_operators(graph)
    compiled = [
        *(dvm_graph.optimize(model, strict=True, fuse=fuse) for fuse in (True, False)),
        dvm_graph.optimize(model),
    ]
    reference = session(model)
    for seed, dims in enumerate(case.extents()):
        generator = np.random.default_rng(seed)
        feeds = {
            f"x{index}": value.draw(generator, dims)
            for index, value in enumerate(case.operands)
            if isinstance(value, Tensor)
        }
        expected = reference.run(None, feeds)
        for actual in (evaluate(graph, feeds), *(each.run(feeds) for each in compiled)):
            for mine, theirs in zip(actual, expected, strict=True):
                assert_within_steps(mine, theirs, reduction_length=100)
