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


def test_sum_over_its_addend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum takes the memory of the addend, which the first of several blocks of k reads."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")  # on others, k may be one block
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
            assert "m_matmul_clamp" in model.disassemble(feeds)
        assert model.statistics.arena_bytes < 2 * m * n * 4 + 4096
        total = a @ b + c @ d
        for actual, expected in zip(results, (total @ e, total @ f), strict=True):
            np.testing.assert_array_equal(actual, expected)


BOUNDS = {
    "y = Relu(p)": lambda p, c: np.maximum(p, 0),
    "y = Clip(p, low, high)": lambda p, c: np.clip(p, -3, 6),
    "t = Max(p, high) y = Min(low, t)": lambda p, c: np.full_like(p, -3),
    "t = Min(p, low) u = Max(high, t) y = Relu(u)": lambda p, c: np.full_like(p, 6),
    "s = Add(p, c) y = Relu(s)": lambda p, c: np.maximum(p + c, 0),
    "s = Add(c, p) t = Relu(s) y = Mul(t, t)": lambda p, c: np.maximum(p + c, 0) ** 2,
    "t = Relu(p) y = Sub(t, c)": lambda p, c: np.maximum(p, 0) - c,
    "t = Relu(p) y = Concat <axis = 1> (t, c)": lambda p, c: np.hstack([np.maximum(p, 0), c]),
    "t = Relu(p) y = Sub(t, p)": lambda p, c: np.maximum(p, 0) - p,
}


@pytest.mark.parametrize("nodes", BOUNDS)
def test_bounded_product(nodes: str) -> None:
    """What keeps a product or a sum within bounds, also where others read it or what it is made from."""
    low, high = numpy_helper.from_array(np.float32(-3)), numpy_helper.from_array(np.float32(6))
    low.name, high.name = "low", "high"
    for k, n in itertools.product((1, 17, 2304), COLUMNS):
        model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
            g (float[m, {k}] a, float[m, {n}] c) => (float[m, q] y) {{ p = MatMul(a, b) {nodes} }}""")
        constant = _integers(k * n, (k, n))
        model.graph.initializer.extend([numpy_helper.from_array(constant, "b"), low, high])
        compiled = dvm_graph.optimize(model, cores=2)
        for m in ROWS:
            feeds = {"a": _integers(m, (m, k)), "c": _integers(n, (m, n))}
            [actual] = compiled.run(feeds)
            product = (feeds["a"].astype(np.int64) @ constant.astype(np.int64)).astype(np.float32)
            np.testing.assert_array_equal(actual, BOUNDS[nodes](product, feeds["c"]))


def test_bounded_product_over_what_others_read() -> None:
    """It may take the memory of a value that a node beside the product reads in the same kernel."""
    k, n = 40, 200
    model = dvm_graph.optimize(
        parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
            g (float[m, {k}] a, float[{k}, {n}] b, float[m, 3] c, float[3, {n}] d, float[{n}, 31] e,
                float[{n}, 31] f) => (float[m, 31] y, float[m, 31] z)
            {{ t = MatMul(c, d) q = Abs(t) p = MatMul(a, b) r = Relu(p) s = Sub(r, q)
               y = MatMul(r, e) z = MatMul(s, f) }}"""),
        cores=2,
    )
    fixed = {"b": _integers(1, (k, n)), "d": _integers(2, (3, n))}
    fixed |= {name: _integers(3, (n, 31)) // 4 for name in "ef"}
    for m in ROWS:
        feeds = {**fixed, "a": _integers(m, (m, k)), "c": _integers(m, (m, 3))}
        a, b, c, d, e, f = (feeds[name].astype(np.int64) for name in "abcdef")
        r = np.maximum(a @ b, 0)
        for actual, expected in zip(model.run(feeds), (r @ e, (r - abs(c @ d)) @ f), strict=True):
            np.testing.assert_array_equal(actual, expected)


def test_bounded_product_needs_no_vector_instruction() -> None:
    """Also where it is stored among others; NaN passes the bounds."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[m, 17] a, float[m, 3] c) => (float[m, 43] y)
        { p = MatMul(a, b) t = Clip(p, low, high) y = Concat <axis = 1> (c, t) }""")
    constants = {"b": _integers(1, (17, 40)), "low": np.float32(0), "high": np.float32(6)}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()
    )
    compiled = dvm_graph.optimize(model, cores=2)
    feeds = {"a": _integers(2, (100, 17)), "c": _integers(3, (100, 3))}
    feeds["a"][5, 7] = np.nan
    [actual] = compiled.run(feeds)
    expected = np.clip(feeds["a"] @ constants["b"], 0, 6)
    np.testing.assert_array_equal(actual, np.hstack([feeds["c"], expected]))
    assert np.isnan(actual[5, 3:]).all()
    text = compiled.disassemble(feeds)
    assert "clamp (#0, #6)" in text
    assert "v_" not in text.replace("d_store_view", "").replace("d_load_view", "")
