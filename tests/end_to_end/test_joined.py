"""Element-wise chains and row reductions, whose instructions run strip by strip, at extents around a strip's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

import dvm_graph
from tests.end_to_end.reference import assert_all_close, session

ROWS = (1, 2, 7, 33)
COLUMNS = (1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 192, 255, 257, 384, 1000, 2049, 4099)

BODIES = {
    "layer_norm": "y = LayerNormalization <axis = -1> (x, scale, bias)",
    "softmax": "y = Softmax <axis = -1> (x)",
    "log_softmax": "y = LogSoftmax <axis = -1> (x)",
    "gelu_erf": "t = Add(x, bias) y = Gelu(t)",
    "gelu_tanh": 't = Add(x, bias) y = Gelu <approximate = "tanh"> (t)',
    "gelu_plain": "y = Gelu(x)",
    "gelu_shifted": "t = Add(x, unit) y = Gelu(t)",
    "gelu_cube": """two = Mul(x, half) square = Mul(x, x) cube = Mul(square, x) t = Mul(cube, unit)
        u = Add(x, t) v = Mul(u, half) w = Tanh(v) z = Add(w, unit) y = Mul(two, z)""",
    "silu": "s = Sigmoid(x) y = Mul(x, s)",
    "silu_sum": "t = Add(x, bias) s = Sigmoid(t) y = Mul(t, s)",
    "silu_shifted": "t = Add(x, unit) s = Sigmoid(t) y = Mul(t, s)",
    "silu_times": "s = Sigmoid(x) t = Mul(x, s) y = Mul(t, scale)",
    "square_sum": "t = Mul(x, x) s = ReduceSum <keepdims = 1> (t, axis) y = Div(x, s)",
    "range": """high = ReduceMax <keepdims = 1> (x, axis) low = ReduceMin <keepdims = 1> (x, axis)
        width = Sub(high, low) one = CastLike(1.0, x) w = Add(width, one)
        t = Sub(x, low) u = Div(t, w) v = Mul(u, scale) y = Add(v, x)""",
    "turned": "t = Sub(bias, x) u = Exp(t) v = Div(scale, u) w = Sub(x, v) y = Mul(w, w)",
    "used_again": "t = Mul(x, scale) u = Add(t, bias) v = Mul(u, t) w = Sub(t, v) y = Max(w, u)",
}


@pytest.mark.parametrize("name", BODIES)
def test_equals_onnxruntime(name: str) -> None:
    body = BODIES[name].replace("CastLike(1.0, x)", "CastLike(unit, x)")
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g (float[r, c] x, float[c] scale, float[c] bias) => (float[r, c] y)
        <int64[1] axis = {{-1}}, float unit = {{1}}, float half = {{0.5}}> {{ {body} }}""")
    mine = dvm_graph.optimize(model, strict=True)
    reference = session(model)
    generator = np.random.default_rng(0)
    for rows in ROWS:
        for columns in COLUMNS:
            x = generator.standard_normal((rows, columns), dtype=np.float32)
            scale, bias = generator.uniform(0.5, 2, (2, columns)).astype(np.float32)
            feeds = {"x": x, "scale": scale, "bias": bias}
            assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=columns)


DIVISORS = [
    3.0,
    -7.0,
    1e-3,
    0.0107977539,
    1 + 2.0**-23,
    2 - 2.0**-23,
    1.7e18,
    1e-18,
    1e-30,
    3e38,
    1e-40,
    np.inf,
]


def test_quotients_are_rounded_once() -> None:
    """By any number, of all floats alike: those that division by a reciprocal could get wrong among them."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n] x, float by) => (float[n] y) { q = Div(x, by) y = Neg(q) }""")
    mine = dvm_graph.optimize(model, strict=True)
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    near = np.random.default_rng(1).integers(0x3F000000, 0x42000000, 1 << 20, dtype=np.uint32)
    special = np.array([0, -0.0, 1e-45, -1e-45, 1e-38, np.inf, -np.inf, np.nan], np.float32)
    for x in (
        bits.view(np.float32),
        near.view(np.float32),
        np.tile(special, 40),
        near[:77].view(np.float32),
    ):
        for by in np.float32(DIVISORS):
            with np.errstate(all="ignore"):
                wanted = -(x / by)
            got = mine.run({"x": x, "by": by})[0]
            assert "joined" in mine.disassemble({"x": x, "by": by})
            same = (got.view(np.uint32) == wanted.view(np.uint32)) | (
                np.isnan(got) & np.isnan(wanted)
            )
            assert same.all(), (by, x[~same][:4], got[~same][:4], wanted[~same][:4])
