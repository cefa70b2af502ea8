"""Products with weights of a few bits that stay packed, against float64: every level, blocks of all sizes, few and many rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from dvm_graph import _core
from dvm_graph.decompose import block_quantized
from tests.end_to_end.reference import Array, assert_all_close, session

DOMAIN = "com.microsoft"
GENERATOR = np.random.default_rng(4)


@pytest.fixture(autouse=True)
def few_are_many() -> Iterator[None]:
    """So that small matrices stay packed, too."""
    with mock.patch.object(block_quantized, "FEW_WEIGHTS", 0):
        yield


class Weights:
    """Of a product, as onnxruntime's quantiser packs them, and what they stand for."""

    def __init__(self, k: int, n: int, block: int, zeros: bool, bits: int = 4) -> None:
        self.k, self.n, self.block, self.bits = k, n, block, bits
        self.blocks = -(-k // block)
        levels = GENERATOR.integers(0, 1 << bits, (n, self.blocks, block)).astype(np.uint8)
        self.scales = GENERATOR.uniform(0.01, 0.1, (n, self.blocks)).astype(np.float32)
        self.packed = self._bytes(levels)
        in_byte = 8 // bits
        whole_bytes = -(-self.blocks // in_byte) * in_byte
        points = GENERATOR.integers(0, 1 << bits, (n, whole_bytes)).astype(np.uint8)
        self.points = self._bytes(points) if zeros else None
        middle = float(1 << (bits - 1))
        zero = points[:, : self.blocks, None].astype(np.float64) if zeros else middle
        whole = (levels - zero) * self.scales[..., None].astype(np.float64)
        self.matrix = whole.reshape(n, -1)[:, :k].T

    def _bytes(self, levels: Array) -> Array:
        """The lowest bits first, along the last axis."""
        parts = [
            levels[..., at :: 8 // self.bits] << self.bits * at for at in range(8 // self.bits)
        ]
        return np.asarray(np.bitwise_or.reduce(parts))

    def node(self, name: str, a: str, y: str) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
        constants = {"levels": self.packed, "scales": self.scales}
        if self.points is not None:
            constants["points"] = self.points
        tensors = [
            numpy_helper.from_array(array, f"{name}.{key}") for key, array in constants.items()
        ]
        attrs = {"K": self.k, "N": self.n, "bits": self.bits, "block_size": self.block}
        operands = [a, *(tensor.name for tensor in tensors)]
        return helper.make_node("MatMulNBits", operands, [y], domain=DOMAIN, **attrs), tensors


def model_of(*layers: Weights, between: str = "Relu") -> onnx.ModelProto:
    """Products, one after the other, with an element-wise operator behind each."""
    nodes, constants, last = [], [], "x"
    for number, weights in enumerate(layers):
        node, tensors = weights.node(f"w{number}", last, f"p{number}")
        last = f"y{number}"
        nodes += [node, helper.make_node(between, [f"p{number}"], [last])]
        constants += tensors
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, ["m", layers[0].k])],
        [info(last, TensorProto.FLOAT, ["m", layers[-1].n])],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(layers: list[Weights], rows: tuple[int, ...], **options: Any) -> None:
    model = dvm_graph.optimize(model_of(*layers), strict=True, **options)
    for m in rows:
        x = GENERATOR.standard_normal((m, layers[0].k)).astype(np.float32)
        assert "m_matmul_blocks" in model.disassemble({"x": x})
        check_run(model, layers, x)


def check_run(model: dvm_graph.Model, layers: list[Weights], x: Array) -> None:
    wanted, length = x.astype(np.float64), 1
    for weights in layers:
        wanted = np.maximum(wanted @ weights.matrix, 0)
        length += weights.k
    assert_all_close(model.run({"x": x}), [wanted.astype(np.float32)], reduction_length=length)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block", [16, 32, 128, 256])
@pytest.mark.parametrize("level", _core.simd_levels())
def test_equals_float64(level: str, block: int, bits: int, zeros: bool) -> None:
    for k, n in ((100, 5), (512, 70), (1200, 33)):
        check([Weights(k, n, block, zeros, bits)], (1, 2, 3, 5, 9, 70), simd=level)


@pytest.mark.parametrize("zeros", [False, True])
def test_blocks_of_k_and_small_local_memory(zeros: bool) -> None:
    layers = [Weights(5000, 96, 32, zeros), Weights(96, 300, 128, zeros)]
    for local in (1 << 14, 1 << 17):
        check(layers, (1, 40, 129), local_bytes=local)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_equals_onnxruntime(bits: int) -> None:
    for zeros in (False, True):
        weights = Weights(320, 130, 32, zeros, bits)
        model = model_of(weights)
        x = GENERATOR.standard_normal((3, 320)).astype(np.float32)
        got = dvm_graph.optimize(model, strict=True).run({"x": x})
        assert_all_close(got, session(model).run(None, {"x": x}), reduction_length=320)


@pytest.mark.parametrize("k", [100, 1300])
@pytest.mark.parametrize(("block", "bits"), [(1 << 10, 2), (1 << 17, 4), (1 << 17, 8)])
def test_long_blocks(block: int, bits: int, k: int) -> None:
    """They are several of a scale."""
    check([Weights(k, 5, block, True, bits)], (1, 3))


@pytest.mark.parametrize(("block", "bits"), [(8, 2), (300, 4)])
def test_blocks_that_the_cube_unit_does_not_read(block: int, bits: int) -> None:
    weights = Weights(100, 5, block, True, bits)
    model = dvm_graph.optimize(model_of(weights), strict=True)
    check_run(model, [weights], GENERATOR.standard_normal((3, 100)).astype(np.float32))


def test_an_infinite_row_meets_levels_that_are_zeros() -> None:
    weights = Weights(64, 20, 32, True)
    x = np.zeros((1, 64), np.float32)
    x[0, 5] = np.inf
    model = dvm_graph.optimize(model_of(weights, between="Identity"), strict=True)
    (got,) = model.run({"x": x})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(got, (x @ weights.matrix).astype(np.float32))


def test_equal_layers_share_a_kernel() -> None:
    layers = [Weights(64, 64, 32, False) for _ in range(4)]
    model = dvm_graph.optimize(model_of(*layers), strict=True)
    check_run(model, layers, GENERATOR.standard_normal((7, 64)).astype(np.float32))
    assert model.statistics.kernels_compiled == 1


@pytest.mark.parametrize("level", _core.simd_levels())
def test_saved_for_panels_of_another_width(level: str, tmp_path: Path) -> None:
    layers = [Weights(200, 50, 32, True, 8), Weights(50, 40, 16, False, 2)]
    dvm_graph.optimize(model_of(*layers), strict=True).save(tmp_path / "m.dvm")
    model = dvm_graph.load(tmp_path / "m.dvm", simd=level)
    check_run(model, layers, GENERATOR.standard_normal((5, 200)).astype(np.float32))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_checks_by_itself(bits: int) -> None:
    dvm_graph.optimize(model_of(Weights(96, 40, 32, True, bits)), strict=True, check=True)


@pytest.mark.skipif(
    _core.simd_levels()[0] not in _core.bf16_levels(), reason="this CPU does not multiply bf16"
)
def test_bf16_products_do_not_round_levels() -> None:
    check([Weights(200, 50, 32, True)], (1, 20), precision="bf16")
