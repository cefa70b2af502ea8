"""Matrix products against numpy over extents around every block size of the host device.

Rows of 1,024 elements share sets of the L1 cache, so that A may be packed; 2,304 are more than one
block of k; B comes as an input, as a constant and transposed; an addition may follow. Elements are
small integers, so that sums are exact in any order.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph

ROWS = (1, 2, 3, 5, 15, 29, 77, 131)
COLUMNS = (1, 31, 33, 200)
DEPTHS = (1, 17, 640, 1024, 2304)


def _integers(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def _model(k: int, n: int, b: str, added: bool) -> tuple[bytes, np.ndarray]:
    constant = _integers(k * n, (n, k) if b == "transposed" else (k, n))
    inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["m", k])]
    initializers = []
    if b == "constant":
        initializers.append(numpy_helper.from_array(constant, "b"))
    else:
        inputs.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, constant.shape))
    nodes = []
    if b == "transposed":
        nodes.append(helper.make_node("Transpose", ["b"], ["bt"], perm=[1, 0]))
    operand = "bt" if b == "transposed" else "b"
    nodes.append(helper.make_node("MatMul", ["a", operand], ["c" if added else "y"]))
    if added:
        bias = np.arange(n, dtype=np.float32)
        initializers.append(numpy_helper.from_array(bias, "bias"))
        nodes.append(helper.make_node("Add", ["c", "bias"], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", n])
    graph = helper.make_graph(nodes, "product", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model.SerializeToString(), constant


@pytest.mark.parametrize("b", ["input", "constant", "transposed"])
@pytest.mark.parametrize("added", [False, True])
def test_product(b: str, added: bool) -> None:
    for k, n in itertools.product(DEPTHS, COLUMNS):
        source, constant = _model(k, n, b, added)
        model = dvm_graph.optimize(source, cores=2)
        matrix = constant.T if b == "transposed" else constant
        for m in ROWS:
            a = _integers(m, (m, k))
            feeds = {"a": a} if b == "constant" else {"a": a, "b": constant}
            expected = a.astype(np.int64) @ matrix.astype(np.int64)
            if added:
                expected += np.arange(n)
            [actual] = model.run(feeds)
            np.testing.assert_array_equal(actual, expected)
