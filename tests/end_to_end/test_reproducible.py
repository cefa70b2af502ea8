"""Same input, same bits, wherever the outputs lie."""

from __future__ import annotations

import numpy as np
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
