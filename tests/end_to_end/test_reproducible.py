"""Same input, same bits, wherever the outputs lie."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import dvm_graph
from tests.end_to_end.reference import assert_same_bits


def test_sums_beside_a_streamed_output() -> None:
    """Stores around the caches begin where a line does; sums of the same rows do not depend on that."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[r, c] x) => (float[r, c] y, float[r, 1] z) <float one = {1}, int64[1] last = {-1}> {
      y = Add(x, one) t = Mul(x, x) z = ReduceSum(t, last)
    }""")
    model = dvm_graph.optimize(proto)
    rows, columns = 1001, 16_411  # 66 MB
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    y, z = model.run({"x": x})
    np.testing.assert_array_equal(y, x + np.float32(1))
    for shift in (0, 1, 5, 15):
        memory = np.empty(x.size + 32, np.float32)
        start = -memory.ctypes.data % 64 // 4 + shift
        given = memory[start : start + x.size].reshape(x.shape)
        sums = np.empty_like(z)
        model.run({"x": x}, outputs={"y": given, "z": sums})
        assert_same_bits([given, sums], [y, z])


@pytest.mark.parametrize("columns", [67, 129, 150, 255, 301])
@pytest.mark.parametrize("shift", [0, 3, 15])
def test_streamed_rows_that_meet_within_a_line(columns: int, shift: int) -> None:
    """One instruction alone and joined ones; what lies beside the output is not touched."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
    g (float[r, c] x) => (float[r, c] y, float[r, c] z) <int64[1] last = {-1}, float two = {2}> {
      y = Softmax(x) m = ReduceMean(x, last) d = Sub(x, m) z = Mul(d, two)
    }""")
    model = dvm_graph.optimize(proto)
    rows = 12_000_000 // columns
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32)
    given = {}
    for name in "yz":
        memory = np.full(x.size + 64, np.float32(7))
        start = -memory.ctypes.data % 64 // 4 + 16 + shift
        given[name] = memory[start : start + x.size].reshape(x.shape)
    model.run({"x": x}, outputs=given)
    powers = np.exp(x - x.max(-1, keepdims=True))
    expected = {
        "y": powers / powers.sum(-1, keepdims=True),
        "z": 2 * (x - x.mean(-1, keepdims=True)),
    }
    for name, array in given.items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5)
        whole = array.base
        assert isinstance(whole, np.ndarray)
        inside = (array.ctypes.data - whole.ctypes.data) // 4
        beside = np.concatenate([whole[:inside], whole[inside + x.size :]])
        np.testing.assert_array_equal(beside, np.float32(7))
