"""Channels of quantised images that are scaled by what a product makes of their means, as onnxruntime has them.

Scales are powers of two, so that levels are the same in whatever order sums are computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import dvm_graph
from dvm_graph import _core

Array = np.ndarray[Any, Any]
SHAPES = ((1, 28, 28), (2, 7, 5), (3, 1, 1), (8, 14, 14), (0, 4, 4))
GENERATOR = np.random.default_rng(11)


def _model(channels: int, kind: str, depthwise: bool) -> onnx.ModelProto:
    convolve = "Conv<pads = [2, 2, 2, 2], group = CHANNELS>(a, b)" if depthwise else "Relu(a)"
    text = f"""<ir_version: 8, opset_import: ["" : 18]>
    g ({kind}[n, CHANNELS, h, w] x) => (float[n, CHANNELS, h, w] y) {{
        a = DequantizeLinear(x, sx, zero)
        b = DequantizeLinear(k, sk, zk)
        c = {convolve}
        q = QuantizeLinear(c, sc, zero)
        d = DequantizeLinear(q, sc, zero)
        m = ReduceMean(d, spatial)
        p = Conv(m, weights)
        g = HardSigmoid(p)
        y = Mul(d, g)
    }}""".replace("CHANNELS", str(channels))
    model = onnx.parser.parse_model(text)
    constants: dict[str, Array] = {
        "sx": np.array(2**-5, np.float32), "sk": np.array(2**-7, np.float32), "sc": np.array(2**-2, np.float32),
        "zero": np.array(3, kind), "zk": np.array(0, np.int8), "spatial": np.array([2, 3]),
        "k": GENERATOR.integers(-100, 101, (channels, 1, 5, 5)).astype(np.int8),
        "weights": GENERATOR.standard_normal((channels, channels, 1, 1), np.float32) / 1024,
    }  # fmt: skip
    for name, array in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.mark.parametrize("depthwise", [True, False])
@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [3, 16, 120, 672])
def test_equals_onnxruntime(channels: int, kind: str, depthwise: bool) -> None:
    model = _model(channels, kind, depthwise)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ways: list[dict[str, Any]] = [{"simd": level} for level in _core.simd_levels()]
    compiled = [dvm_graph.optimize(model, **way) for way in (*ways, {"cores": 1})]
    limits = np.iinfo(kind)
    for n, h, w in SHAPES:
        x = GENERATOR.integers(limits.min, limits.max + 1, (n, channels, h, w)).astype(kind)
        (wanted,) = session.run(None, {"x": x})
        for program in compiled:
            (got,) = program.run({"x": x})
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_levels_are_what_is_stored() -> None:
    """For the multiplication that follows the product, and no floats that were made of them; of all channels at a time, where
    they are few: of some, several cores would write to each line.
    """
    program = dvm_graph.optimize(_model(120, "uint8", True))
    feeds = {"x": np.zeros((8, 120, 28, 28), np.uint8)}
    listing = program.disassemble(feeds)
    of_means = listing[listing.index("reduce_sum") :]
    of_means = of_means[: of_means.index("\nend")]
    assert "in 120\n" not in of_means
    assert "d_store_u8" in of_means or "d_store_view_u8" in of_means
    stored = [line for line in of_means.splitlines() if " p" in line and " = v" in line]
    assert not any(f"[0, {4 * 8 * 28 * 28 * 120})" in line for line in stored)
