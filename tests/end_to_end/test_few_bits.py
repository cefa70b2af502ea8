"""MatMulNBits as it is documented, against numpy: onnxruntime fails at some such weights, or makes of them what it finds in
memory.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph.ir.numeric import few_bits
from tests.end_to_end.test_control_flow import normal

Array = np.ndarray[Any, Any]
SIZE = 16
GENERATOR = np.random.default_rng(7)


def _operands(bits: int, k: int, n: int, points: str, groups: str, bias: bool) -> dict[str, Array]:
    blocks = -(-k // SIZE)

    def drawn(*shape: int) -> Array:
        return GENERATOR.integers(0, 256, shape).astype(np.uint8)

    found = {
        "words": drawn(n, blocks, SIZE * bits // 8),
        "scales": GENERATOR.uniform(0.1, 1, (n, blocks)).astype(np.float32),
    }
    if points == "packed":
        found["points"] = drawn(n, -(-blocks * bits // 8))
    elif points == "whole":
        found["points"] = GENERATOR.uniform(0, 2**bits, (n, blocks)).astype(np.float32)
    in_order = np.arange(k) // SIZE
    if groups == "any":
        found["groups"] = GENERATOR.integers(0, blocks, k).astype(np.int32)
    elif groups:
        found["groups"] = GENERATOR.permutation(in_order).astype(np.int32)
        found["groups"] = in_order.astype(np.int32) if groups == "in order" else found["groups"]
    if bias:
        found["bias"] = normal(n)
    return found


def _reference(x: Array, bits: int, operands: dict[str, Array]) -> Array:
    n, blocks = operands["scales"].shape
    k = x.shape[-1]
    groups = operands.get("groups", np.arange(k) // SIZE)
    points = operands.get("points", np.full((n, blocks), 1 << bits - 1))
    if points.dtype == np.uint8:
        points = few_bits(points, bits)[:, :blocks]
    levels = few_bits(operands["words"].reshape(n, -1), bits)[:, :k].astype(np.float64)
    weights = (levels - points[:, groups]) * operands["scales"][:, groups]
    y: Array = x.astype(np.float64) @ weights.T + operands.get("bias", 0)
    return y


def _model(bits: int, k: int, n: int, operands: dict[str, Array], constant: bool) -> Any:
    names = ["x", "words", "scales", *("points", "groups", "bias")]
    given = [name if name == "x" or name in operands else "" for name in names]
    sizes = {"K": k, "N": n, "bits": bits, "block_size": SIZE}
    node = helper.make_node("MatMulNBits", given, ["y"], domain="com.microsoft", **sizes)
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in operands.items()}
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["b", "m", k]),
            *(
                helper.make_tensor_value_info(name, types[name], array.shape)
                for name, array in operands.items()
                if not constant
            ),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["b", "m", n])],
        [numpy_helper.from_array(a, name) for name, a in operands.items() if constant],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _assert_runs(bits: int, k: int, n: int, operands: dict[str, Array], constant: bool) -> None:
    model = dvm_graph.optimize(_model(bits, k, n, operands, constant), strict=True)
    for rows in (1, 3):
        x = normal(2, rows, k)
        (got,) = model.run({"x": x} | ({} if constant else operands))
        want = _reference(x, bits, operands)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * float(np.abs(want).max()))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("groups", ["", "in order", "shuffled", "any"])
@pytest.mark.parametrize("points", ["", "packed", "whole"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_as_documented(bits: int, points: str, groups: str, constant: bool) -> None:
    for k, bias in product((64, 40), (False, True)):
        _assert_runs(bits, k, 5, _operands(bits, k, 5, points, groups, bias), constant)


@pytest.mark.parametrize("groups", ["", "in order", "shuffled"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_many_weights(bits: int, groups: str) -> None:
    k, n = 1040, 300
    operands = _operands(bits, k, n, "packed", groups, True)
    _assert_runs(bits, k, n, operands, True)
    if groups:
        model = dvm_graph.optimize(_model(bits, k, n, operands, True))
        assert not model.report().vendor_operators


@pytest.mark.parametrize("bias", [False, True])
def test_weights_that_are_not_there(bias: bool) -> None:
    operands = {"words": np.zeros((5, 0, 8), np.uint8), "scales": np.zeros((0,), np.float32)}
    if bias:
        operands["bias"] = normal(5)
    model = dvm_graph.optimize(_model(4, 64, 5, operands, True), strict=True)
    (got,) = model.run({"x": np.full((2, 3, 64), np.nan, np.float32)})
    np.testing.assert_array_equal(got, np.zeros((2, 3, 5)) + operands.get("bias", 0))


def test_what_onnxruntime_finds_in_memory_is_no_witness() -> None:
    operands = _operands(2, 64, 5, "", "in order", False)
    dvm_graph.optimize(_model(2, 64, 5, operands, True), check=True)


@pytest.mark.parametrize("block", [-1, 4])
def test_a_block_that_does_not_exist_is_refused(block: int) -> None:
    operands = _operands(4, 64, 5, "packed", "in order", False)
    operands["groups"][3] = block
    model = _model(4, 64, 5, operands, True)
    feeds = {"x": normal(2, 3, 64)}
    with pytest.raises(Exception, match="out of valid range"):
        onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    with pytest.raises(dvm_graph.errors.DvmError):
        dvm_graph.optimize(model).run(feeds)
