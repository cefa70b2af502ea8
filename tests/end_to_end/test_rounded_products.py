"""Products of accuracy level 4, whose left operand is rounded to bytes, against numpy in float64 and onnxruntime."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import Array, assert_all_close, session
from tests.end_to_end.test_block_products import DOMAIN, Weights

GENERATOR = np.random.default_rng(5)


def model_of(
    weights: Weights, before: str = "Identity", dtype: int = TensorProto.FLOAT, rank: int = 2
) -> onnx.ModelProto:
    node, tensors = weights.node("w", "a", "y")
    node.attribute.append(helper.make_attribute("accuracy_level", 4))
    if dtype != TensorProto.FLOAT:
        (scales,) = (tensor for tensor in tensors if tensor.name.endswith("scales"))
        scales.CopyFrom(
            onnx.numpy_helper.from_array(weights.scales.astype(np.float16), scales.name)
        )
    info = helper.make_tensor_value_info
    lead = [f"m{axis}" for axis in range(rank - 1)]
    graph = helper.make_graph(
        [helper.make_node(before, ["x"], ["a"]), node],
        "g",
        [info("x", dtype, [*lead, weights.k])],
        [info("y", dtype, [*lead, weights.n])],
        tensors,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


MOST = 256
"""Elements that onnxruntime rounds together."""


def rounded(x: Array, block: int) -> Array:
    """As onnxruntime rounds: levels of -127 to 127 in each block of a row."""
    result, block = np.zeros(x.shape), min(block, MOST)
    for row in np.ndindex(x.shape[:-1]):
        for first in range(0, x.shape[-1], block):
            part = x[row][first : first + block].astype(np.float32)
            most = np.abs(part).max()
            if most > 0:
                levels = np.rint(part * (np.float32(127) / most))
                result[row][first : first + block] = levels.astype(np.float64) * (
                    most / np.float32(127)
                )
    return result


def check(
    weights: Weights, rows: tuple[int, ...], before: str = "Identity", **options: Any
) -> None:
    model = dvm_graph.optimize(model_of(weights, before), strict=True, **options)
    for m in rows:
        x = GENERATOR.standard_normal((m, weights.k)).astype(np.float32)
        assert "m_matmul_rounded_blocks" in model.disassemble({"x": x})
        left = rounded(np.maximum(x, 0) if before == "Relu" else x, weights.block)
        wanted = (left @ weights.matrix).astype(np.float32)
        assert_all_close(model.run({"x": x}), [wanted], reduction_length=weights.k)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(
    "bits, block", [*itertools.product((2, 4, 8), (32, 128)), (4, 256), (8, 256), (4, 1024)]
)
@pytest.mark.parametrize("level", _core.simd_levels())
def test_equals_float64(level: str, block: int, bits: int, zeros: bool) -> None:
    for k, n in ((100, 5), (512, 70), (1200, 33)):
        check(Weights(k, n, block, zeros, bits), (1, 2, 3, 5, 9, 70), simd=level)


def test_the_shortest_blocks() -> None:
    for bits in (4, 8):
        check(Weights(200, 40, 16, True, bits), (1, 7))


@pytest.mark.parametrize("block", [16, 256])
def test_blocks_of_2_bits_by_which_onnxruntime_does_not_round(block: int) -> None:
    model = model_of(Weights(600, 40, block, True, 2))
    x = GENERATOR.standard_normal((3, 600)).astype(np.float32)
    got = dvm_graph.optimize(model, strict=True).run({"x": x})
    assert_all_close(got, session(model).run(None, {"x": x}), reduction_length=600)


@pytest.mark.parametrize("zeros", [False, True])
def test_blocks_of_k_and_small_local_memory(zeros: bool) -> None:
    for local in (1 << 14, 1 << 17):
        check(Weights(5000, 96, 32, zeros), (1, 40, 129), local_bytes=local)
        check(Weights(96, 300, 128, zeros), (1, 40, 129), "Relu", local_bytes=local)


def test_the_operand_may_be_computed_in_the_kernel() -> None:
    check(Weights(320, 96, 32, True), (1, 7, 50), "Relu")


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_equals_onnxruntime(bits: int, dtype: int, rank: int) -> None:
    """Where it rounds, too: not on every CPU, and in float16 not everywhere."""
    weights = Weights(320, 130, 32, True, bits)
    if dtype == TensorProto.FLOAT16:
        weights.scales = weights.scales.astype(np.float16).astype(np.float32)
    model = model_of(weights, dtype=dtype, rank=rank)
    x = GENERATOR.standard_normal((3, 2, 320)[3 - rank :]).astype(
        helper.tensor_dtype_to_np_dtype(dtype)
    )
    (got,) = dvm_graph.optimize(model, strict=True).run({"x": x})
    (wanted,) = session(model).run(None, {"x": x})
    largest = np.abs(wanted.astype(np.float64)).max()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=largest / 127)


def test_numbers_that_are_small_or_not_finite() -> None:
    """Blocks without a number that counts are zeros; what is not finite makes its row NaN."""
    weights = Weights(96, 40, 32, False)
    x = np.zeros((4, 96), np.float32)
    x[0, 40] = 1e-38
    x[1, 3] = np.inf
    x[2, 95] = np.nan
    x[3, 32:64] = np.linspace(-3e38, 3e38, 32)
    (got,) = dvm_graph.optimize(model_of(weights), strict=True).run({"x": x})
    np.testing.assert_array_equal(got[0], 0)
    assert np.isnan(got[1:3]).all()
    wanted = rounded(x[3:], 32) @ weights.matrix
    largest = np.abs(wanted).max()
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(
            got[3] / 1e30, wanted[0].astype(np.float32) / 1e30, atol=largest / 1e36
        )


def test_other_levels_do_not_round() -> None:
    model = model_of(Weights(96, 40, 32, True))
    for attribute in model.graph.node[1].attribute:
        if attribute.name == "accuracy_level":
            attribute.i = 1
    text = dvm_graph.optimize(model, strict=True).disassemble({"x": np.ones((2, 96), np.float32)})
    assert "m_matmul_rounded_blocks" not in text


@pytest.mark.parametrize("level", _core.simd_levels())
def test_saved_for_panels_of_another_width(level: str, tmp_path: Path) -> None:
    weights = Weights(200, 50, 32, True)
    dvm_graph.optimize(model_of(weights), strict=True).save(tmp_path / "m.dvm")
    model = dvm_graph.load(tmp_path / "m.dvm", simd=level)
    x = GENERATOR.standard_normal((5, 200)).astype(np.float32)
    wanted = (rounded(x, 32) @ weights.matrix).astype(np.float32)
    assert_all_close(model.run({"x": x}), [wanted], reduction_length=200)


@pytest.mark.parametrize("before", ["Identity", "Tanh"])
def test_checks_by_itself(before: str) -> None:
    dvm_graph.optimize(model_of(Weights(96, 40, 32, True), before), strict=True, check=True)


# -- models that do not ask for it, by the option


@pytest.mark.parametrize(
    "bits, block", [*itertools.product((2, 4, 8), (16, 32, 256)), (4, 1024), (8, 512)]
)
def test_products_of_any_level_round_by_option(bits: int, block: int) -> None:
    weights = Weights(600, 600, block, True, bits)
    model = model_of(weights)
    del model.graph.node[1].attribute[-1]
    x = GENERATOR.standard_normal((3, 600)).astype(np.float32)
    (got,) = dvm_graph.optimize(model, strict=True, precision="i8").run({"x": x})
    wanted = (rounded(x, block) @ weights.matrix).astype(np.float32)
    assert_all_close([got], [wanted], reduction_length=600)


def dequantized(k: int, n: int, block: int, dtype: int, node: onnx.NodeProto) -> onnx.ModelProto:
    """A product with what a DequantizeLinear makes of constants."""
    numbers = GENERATOR.integers(-8, 8, (k, n))
    scales = (GENERATOR.random((k // block, n)) + 0.5).astype(np.float32)
    info = helper.make_tensor_value_info
    unpack = helper.make_node("DequantizeLinear", ["b", "s"], ["w"], axis=0, block_size=block)
    graph = helper.make_graph(
        [unpack, node],
        "g",
        [info("x", TensorProto.FLOAT, ["m", k])],
        [info("y", TensorProto.FLOAT, ["m", n])],
        [
            helper.make_tensor("b", dtype, (k, n), numbers.reshape(-1)),
            onnx.numpy_helper.from_array(scales, "s"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("dtype", [TensorProto.INT4, TensorProto.INT8])
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_dequantized_weights_round_by_option(op: str, dtype: int) -> None:
    model = dequantized(1024, 512, 64, dtype, helper.make_node(op, ["x", "w"], ["y"]))
    x = GENERATOR.standard_normal((5, 1024)).astype(np.float32)
    graph = onnx.helper.make_model(model.graph, opset_imports=model.opset_import, ir_version=10)
    graph.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1024, 512]))
    weights = session(graph).run(["w"], {"x": x})[0].astype(np.float64)
    for left, options in ((x, {}), (rounded(x, 64), {"precision": "i8"})):
        got = dvm_graph.optimize(model, **options).run({"x": x})
        wanted = (left.astype(np.float64) @ weights).astype(np.float32)
        assert_all_close(got, [wanted], reduction_length=1024)


def test_compare_judges_by_the_bounds_of_the_option() -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = dequantized(1024, 512, 32, TensorProto.INT4, node)
    result = dvm_graph.compare(model, dims={"m": 9}, precision="i8")
    assert result.passed and result.precision == "i8"
