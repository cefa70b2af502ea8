"""Matrix products against numpy over extents around every block size of the host device.

Rows of 1,024 elements share sets of the L1 cache, so that A may be packed; 2,304 are more than one
block of k; B comes as an input, as a constant and transposed; a row, a column or a whole matrix may be
added. Elements are small integers, so that sums are exact in any order.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import dvm_graph

ROWS = (1, 2, 3, 5, 15, 29, 77, 131)
COLUMNS = (1, 31, 33, 200)
DEPTHS = (1, 17, 640, 1024, 2304)


def _integers(seed: int, shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def _model(k: int, n: int, b: str, added: str) -> tuple[bytes, np.ndarray]:
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
    if added == "row":
        initializers.append(numpy_helper.from_array(np.arange(n, dtype=np.float32), "addend"))
    elif added:
        columns = n if added == "matrix" else 1
        inputs.append(helper.make_tensor_value_info("addend", TensorProto.FLOAT, ["m", columns]))
    if added:
        nodes.append(helper.make_node("Add", ["c", "addend"], ["y"]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", n])
    graph = helper.make_graph(nodes, "product", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model.SerializeToString(), constant


@pytest.mark.parametrize("b", ["input", "constant", "transposed"])
@pytest.mark.parametrize("added", ["", "row", "column", "matrix"])
def test_product(b: str, added: str) -> None:
    for k, n in itertools.product(DEPTHS, COLUMNS):
        source, constant = _model(k, n, b, added)
        model = dvm_graph.optimize(source, cores=2)
        matrix = constant.T if b == "transposed" else constant
        for m in ROWS:
            a = _integers(m, (m, k))
            feeds = {"a": a} if b == "constant" else {"a": a, "b": constant}
            expected = a.astype(np.int64) @ matrix.astype(np.int64)
            if added == "row":
                expected += np.arange(n)
            elif added:
                feeds["addend"] = _integers(n, (m, n if added == "matrix" else 1))
                expected += feeds["addend"].astype(np.int64)
            [actual] = model.run(feeds)
            np.testing.assert_array_equal(actual, expected)


def test_sum_over_its_addend() -> None:
    """The sum takes the memory of the addend, which the first of several blocks of k reads."""
    k, n = 2304, 200
    model = dvm_graph.optimize(
        parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
            g (float[m, {k}] a, float[{k}, {n}] b, float[m, 3] c, float[3, {n}] d, float[{n}, 31] e,
                float[{n}, 31] f) => (float[m, 31] y, float[m, 31] z)
            {{ t = MatMul(a, b) p = MatMul(c, d) s = Add(p, t) y = MatMul(s, e) z = MatMul(s, f) }}"""),
        cores=2,
    )
    fixed = {"b": _integers(1, (k, n)), "d": _integers(2, (3, n))}
    fixed |= {name: _integers(3, (n, 31)) // 4 for name in "ef"}
    for m in ROWS:
        feeds = {**fixed, "a": _integers(m, (m, k)), "c": _integers(m, (m, 3))}
        a, b, c, d, e, f = (feeds[name].astype(np.int64) for name in "abcdef")
        results = model.run(feeds)
        if m == max(ROWS):
            assert "m_matmul_add" in model.disassemble(feeds)
        assert model.statistics.arena_bytes < 2 * m * n * 4 + 4096
        total = a @ b + c @ d
        for actual, expected in zip(results, (total @ e, total @ f), strict=True):
            np.testing.assert_array_equal(actual, expected)
