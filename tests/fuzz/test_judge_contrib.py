"""Which differences of onnxruntime's own operators are excused."""

from __future__ import annotations

from unittest import mock

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph.decompose import block_quantized
from tests.fuzz.case import Case, case_of
from tests.fuzz.few_bits import product_of_few_bits
from tests.fuzz.judge import Excuse, Reference, explained


def test_sums_by_levels_may_overflow_before_they_are_scaled() -> None:
    generator = np.random.default_rng(0)
    words = generator.integers(0, 256, (8, 1, 16), np.uint8)
    scales = np.full(8, 0.25, np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=32, N=8, block_size=32
    )
    model = case_of("g (float[r, 32] x) => (float[r, 8] y) { y = Neg(x) }", x=np.zeros(0)).model
    del model.graph.node[:]
    model.graph.node.append(node)
    for name, array in {"w": words, "s": scales}.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    x = generator.standard_normal((2, 32)).astype(np.float32)
    x[0, 3] = 1e38
    case = Case(model, ({"x": x},))
    theirs = Reference(model).run({"x": x})
    with mock.patch.object(block_quantized, "FEW_WEIGHTS", 0):
        (mine,) = dvm_graph.optimize(model).run({"x": x})
    assert np.isinf(mine[0]).any()
    assert np.isfinite(theirs[0]).all()
    assert explained(case, {"x": x}, [mine], theirs) is Excuse.DOCUMENTED
    mine[1, 0] += 1
    assert explained(case, {"x": x}, [mine], theirs) is None


def test_scales_that_a_run_gives_are_lost_where_rows_are_rounded_to_bytes() -> None:
    generator = np.random.default_rng(0)
    words = generator.integers(0, 256, (8, 1, 16), np.uint8)
    scales = generator.uniform(0.5, 2, 8).astype(np.float32)
    text = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[r, 32] x, float[8] s) => (float[r, 8] y)
    { y = com.microsoft.MatMulNBits<K = 32, N = 8, block_size = 32, accuracy_level = 4>(x, w, s) }"""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(words, "w"))
    feeds = {"x": generator.standard_normal((3, 32)).astype(np.float32), "s": scales}
    case = Case(model, (feeds,))
    theirs = Reference(model).run(feeds)
    (mine,) = dvm_graph.optimize(model).run(feeds)
    product = product_of_few_bits(feeds["x"], words, scales, K=32, N=8, block_size=32, bits=4)
    np.testing.assert_allclose(mine, product, rtol=1e-4, atol=1e-4)
    assert explained(case, feeds, [mine], theirs)
    assert explained(case, feeds, [mine * 2], theirs) is None


def test_tokens_of_no_strings_have_an_axis() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (string[n, m] x) => (string[n, m, k] y)
    { y = com.microsoft.Tokenizer<mark = 0, mincharnum = 1, pad_value = "#", tokenexp = ".">(x) }"""
    feeds = {"x": np.empty((4, 0), object)}
    case = Case(onnx.parser.parse_model(text), (feeds,))
    theirs = Reference(case.model).run(feeds)
    (mine,) = dvm_graph.optimize(case.model).run(feeds)
    assert explained(case, feeds, [mine], theirs) is Excuse.DOCUMENTED
    assert explained(case, feeds, [mine[:3]], theirs) is None
