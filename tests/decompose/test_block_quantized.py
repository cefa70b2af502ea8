"""MatMulNBits, MatMulBnb4 and GatherBlockQuantized against onnxruntime: all widths, with and without zero points, biases and whole
blocks.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.decompose.reference import Array, Case, Tensor, check, decomposed, vendor_operators
from tests.decompose.test_contrib_fused import contrib

N = 5
GENERATOR = np.random.default_rng(3)


def of_bits(bits: int, k: int, size: int, points: str = "", dtype: str = "float32", bias: bool = False,
            flat: bool = False) -> Case:  # fmt: skip
    blocks = -(-k // size)

    def drawn(*shape: int) -> Array:
        return GENERATOR.integers(0, 256, shape).astype(np.uint8)

    operands: list[Any] = [Tensor(("b", "m", k), dtype), drawn(N, blocks, size * bits // 8)]
    scales = GENERATOR.uniform(0.01, 0.1, (N, blocks)).astype(dtype)
    operands.append(scales.reshape(-1) if flat else scales)
    if points == "packed":
        zeros = drawn(N, -(-blocks * bits // 8))
        operands.append(zeros.reshape(-1) if flat else zeros)
    elif points == "float":
        operands.append(GENERATOR.uniform(0, 2**bits, (N, blocks)).astype(dtype))
    if bias:
        operands += [None] * (5 - len(operands)) + [Tensor((N,), dtype)]
    label = f"MatMulNBits-{bits}-{k}-{size}-{points}-{dtype}-{bias}-{flat}"
    return contrib(
        "MatMulNBits", operands, K=k, N=N, bits=bits, block_size=size, label=label, empty=False
    )


def rows_of_bits(bits: int, size: int, points: bool, dtype: str = "float32", index: str = "int64",
                 lead: tuple[int, ...] = ()) -> Case:  # fmt: skip
    """Indices beyond both ends give zeros."""
    blocks = 6
    shape = (N, *lead)
    operands: list[Any] = [
        GENERATOR.integers(0, 256, (*shape, blocks * size * bits // 8)).astype(np.uint8),
        Tensor(("a", "b"), index, -N - 2, N + 2),
        GENERATOR.uniform(0.01, 0.1, (*shape, blocks)).astype(dtype),
    ]
    if points:
        zeros = GENERATOR.integers(0, 256, (*shape, -(-blocks * bits // 8)))
        operands.append(zeros.astype(np.uint8))
    return contrib(
        "GatherBlockQuantized",
        operands,
        bits=bits,
        block_size=size,
        gather_axis=0,
        quantize_axis=len(lead) + 1,
        label=f"GatherBlockQuantized-{bits}-{size}-{points}-{dtype}-{index}-{len(lead)}",
    )


def rows_of_elements(kind: str, size: int, points: bool, lead: tuple[int, ...] = ()) -> Case:
    """As the quantiser of onnxruntime writes them: of types of 4 bits."""
    blocks, dtype = 3, np.dtype(getattr(ml_dtypes, kind))
    shape = (N, *lead)
    low = -8 if kind == "int4" else 0

    def drawn(*extents: int) -> Array:
        return np.asarray(GENERATOR.integers(low, low + 16, extents).astype(dtype))

    operands: list[Any] = [
        drawn(*shape, blocks * size),
        Tensor(("a", "b"), "int64", -N - 2, N + 2),
        GENERATOR.uniform(0.01, 0.1, (*shape, blocks)).astype(np.float32),
        *([drawn(*shape, blocks)] if points else []),
    ]
    attrs = {"block_size": size, "gather_axis": 0, "quantize_axis": len(lead) + 1}
    label = f"GatherBlockQuantized-{kind}-{size}-{points}-{len(lead)}"
    return contrib("GatherBlockQuantized", operands, **attrs, label=label)


def of_bnb(kind: int, k: int, size: int, dtype: str = "float32", n: int = N) -> Case:
    packed = GENERATOR.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    scales = GENERATOR.uniform(0.01, 0.1, -(-n * k // size)).astype(dtype)
    operands = [Tensor(("b", "m", k), dtype), packed, scales]
    label = f"MatMulBnb4-{kind}-{k}-{size}-{dtype}"
    attrs = {"K": k, "N": n, "block_size": size, "quant_type": kind}
    return contrib("MatMulBnb4", operands, **attrs, label=label, empty=False)


CASES = [
    *(rows_of_elements(kind, 16, zeros) for kind in ("int4", "uint4") for zeros in (False, True)),
    rows_of_elements("int4", 32, True, (3,)),
    *(of_bnb(kind, k, size) for kind in (0, 1) for k, size in ((64, 16), (48, 32), (33, 64))),
    of_bnb(1, 64, 32, "float16"),
    *(rows_of_bits(bits, 16, points) for bits in (2, 4, 8) for points in (False, True)),
    rows_of_bits(4, 32, True, "float16", "int32"),
    rows_of_bits(4, 16, True, lead=(3,)),
    *(of_bits(bits, 64, 32, points) for bits in (2, 4, 8) for points in ("", "packed")),
    of_bits(4, 48, 32),
    of_bits(4, 100, 16, "packed", bias=True),
    of_bits(4, 96, 32, "packed", flat=True),
    of_bits(4, 64, 32, "float"),
    of_bits(4, 64, 32, dtype="float16"),
    of_bits(8, 80, 16, bias=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_onnxruntime(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_weights_of_a_language_model_stay_packed(bits: int) -> None:
    k, n, size = 512, 1024, 32
    packed = GENERATOR.integers(0, 256, (n, k // size, size * bits // 8)).astype(np.uint8)
    scales = np.ones((n, k // size), np.float32)
    case = contrib(
        "MatMulNBits", [Tensor(("m", k)), packed, scales], K=k, N=n, bits=bits, block_size=size
    )
    graph = decomposed(case.model())
    (unpack,) = (node for node in graph.nodes if node.op == "unpack_blocks")
    levels = unpack.required(0).data
    assert levels is not None and levels.nbytes == k * n * bits // 8


def test_many_weights_that_stand_for_numbers_of_a_list_stay_packed() -> None:
    case = of_bnb(1, 512, 64, n=1024)
    assert vendor_operators(decomposed(case.model())) == ["MatMulBnb4"]
    assert not vendor_operators(decomposed(case.model(), strict=True))
