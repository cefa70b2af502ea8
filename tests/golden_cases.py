"""The golden files, and the models they are made of: small ones as ONNX text, and tiny exports.

Every file under tests/golden is `<folder>/<case>.txt` with a row in `GOLDEN`; what has none fails a
test. `make golden` rewrites the files.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

from models import tiny_path

_HEADER = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>\n'


def _numbers(count: int) -> str:
    """The contents of a constant: no two rows alike."""
    return "{" + ", ".join(str(i % 7 * 0.25 - 0.5) for i in range(count)) + "}"


TEXTS: dict[str, str] = {
    "layer_norm": """
g (float[b, s, 64] x, float[64] gain, float[64] bias) => (float[b, s, 64] y)
{
  [norm] y = LayerNormalization <axis = -1, epsilon = 0.00001> (x, gain, bias)
}
""",
    "softmax": """
g (float[b, s] x) => (float[b, s] y)
{
  [soft] y = Softmax <axis = -1> (x)
}
""",
    "gelu": """
g (float[n] x) => (float[n] y)
{
  [gelu] y = Gelu <approximate = "none"> (x)
}
""",
    "shape_chain": """
g (float[b, s, 8] x) => (float[b, s, 2, 4] y)
<int64[1] first = {0}, int64[1] second = {1}, int64[2] heads = {2, 4}>
{
  [shape] dims = Shape (x)
  [pick_b] batch = Gather (dims, first)
  [pick_s] length = Gather (dims, second)
  [join] target = Concat <axis = 0> (batch, length, heads)
  [split_heads] y = Reshape (x, target)
}
""",
    "slice_and_pad": """
g (float[n, 8] x) => (float[n, 9] y)
<int64[1] start = {1}, int64[1] stop = {8}, int64[1] axis = {1}, int64[4] pads = {0, 2, 0, 0}>
{
  [cut] part = Slice (x, start, stop, axis)
  [pad] y = Pad (part, pads)
}
""",
    "constant_addend": f"""
g (float[n, 1] x) => (float[n, 72] y)
<float[1, 72] w = {_numbers(72)}, float[72] c = {_numbers(72)}>
{{
  [apply] y = Gemm <beta: float = 0.5> (x, w, c)
}}
""",
    "branches": """
g (bool c, float[n, m] x, float[m, m] w) => (float[n, m] y)
{
  [before] h = Tanh (x)
  [branch] r = If (c) <
    then_branch = then () => (float[n, m] a) { [product] a = MatMul (h, w) },
    else_branch = other () => (float[n, m] b) { [soft] b = Softmax <axis = -1> (h) }
  >
  [behind] y = Relu (r)
}
""",
    "decoder": """
g (int64 n, float[b, s, 8] m, float[b, 1, 8] x, float[8, 8] w, float[8] c) => (float[b, 1, 8] y)
{
  [steps] y = Loop (n, "", x) <
    body = turn (int64 i, bool go, float[b, 1, 8] h) => (bool on, float[b, 1, 8] t) {
      [go_on] on = Identity (go)
      [keys] k = MatMul (m, w)
      [bias] a = Add (k, c)
      [turn] v = Transpose <perm = [0, 2, 1]> (a)
      [scores] p = MatMul (h, v)
      [soft] q = Softmax <axis = -1> (p)
      [mix] r = MatMul (q, m)
      [shift] t = Add (r, c)
    }
  >
}
""",
    "transposes": """
g (float[n, m] x) => (float[n, m] y)
<float eight = {8}>
{
  [forth] t = Transpose <perm = [1, 0]> (x)
  [back] u = Transpose <perm = [1, 0]> (t)
  [scale] y = Div (u, eight)
}
""",
    "heads": f"""
g (float[b, s, 8] x) => (float[b, 2, s, 4] y)
<float[8, 8] w = {_numbers(64)}, int64[4] split = {{0, 0, 2, 4}}>
{{
  [linear] h = MatMul (x, w)
  [reshape] r = Reshape (h, split)
  [transpose] t = Transpose <perm = [0, 2, 1, 3]> (r)
  [relu] y = Relu (t)
}}
""",
    "view_chain": """
g (float[b, s, 8] x) => (float[s, 2] y)
<int64[1] start = {2}, int64[1] stop = {4}, int64[1] axis = {2}, int64[1] batch = {0}, int64[1] one = {1}>
{
  [transpose] t = Transpose <perm = [1, 0, 2]> (x)
  [cut] c = Slice (t, start, stop, axis)
  [first] f = Slice (c, batch, one, one)
  [drop] d = Squeeze (f, one)
  [neg] y = Neg (d)
}
""",
    "twice": """
g (float[n] x) => (float[n] y)
{
  [left] a = Exp (x)
  [right] b = Exp (x)
  [sum] y = Mul (a, b)
}
""",
    "mlp": f"""
g (float[n, 8] x) => (float[n, 4] z)
<float[8, 16] w = {_numbers(128)}, float[16] c = {_numbers(16)}, float[16, 4] v = {_numbers(64)}>
{{
  [up] h = MatMul (x, w)
  [bias] a = Add (h, c)
  [gelu] g = Gelu (a)
  [down] z = MatMul (g, v)
}}
""",
    "matmul_bias_gelu": f"""
g (float[n, 8] x) => (float[n, 16] z)
<float[8, 16] w = {_numbers(128)}, float[16] c = {_numbers(16)}>
{{
  [linear] h = MatMul (x, w)
  [bias] a = Add (h, c)
  [gelu] z = Gelu (a)
}}
""",
    "deep_product": """
g (float[m, k] a, float[k, 8] b) => (float[m, 8] y)
{
  [product] c = MatMul (a, b)
  [relu] y = Relu (c)
}
""",
    "attention": """
g (float[b, h, s, 16] q, float[b, h, t, 16] k, float[b, h, t, 16] v) => (float[b, h, s, 16] y)
<float scale = {0.25}>
{
  [turn] kt = Transpose <perm = [0, 1, 3, 2]> (k)
  [scores] p = MatMul (q, kt)
  [scaled] r = Mul (p, scale)
  [soft] a = Softmax <axis = -1> (r)
  [mix] y = MatMul (a, v)
}
""",
    "guarded_attention": """
g (float[b, s, t] r, float[b, t, 16] v) => (float[b, s, 16] y)
<float zero = {0}>
{
  [soft] a = Softmax <axis = -1> (r)
  [empty] n = IsNaN (a)
  [guard] p = Where (n, zero, a)
  [mix] y = MatMul (p, v)
}
""",
    "scaled_product": """
g (float[b, s, 16] q, float[b, t, 16] k) => (float[b, s, t] y)
<float part = {0.5}>
{
  [bias] c = Add (q, q)
  [scale_q] a = Mul (c, part)
  [scale_k] d = Mul (k, part)
  [turn] kt = Transpose <perm = [0, 2, 1]> (d)
  [scores] y = MatMul (a, kt)
}
""",
    "normalized_product": """
g (float[b, 2] x) => (float[b, 3] y)
<float[2, 3] w = {1.5, 2, 3, 4, 5, 6}, float[3] mean = {0.5, 1, 2}, float[3] factor = {2, 0.5, 4}, float[3] shift = {1, -1, 0.25}>
{
  [product] a = MatMul (x, w)
  [center] d = Sub (a, mean)
  [scale] k = Mul (d, factor)
  [shift] s = Add (k, shift)
  [bound] y = Relu (s)
}
""",
    "quantised_silu": """
g (uint8[b, s] x) => (uint8[b, s] y)
<float scale = {0.0625}, uint8 zero = {128}>
{
  [widen] d = DequantizeLinear (x, scale, zero)
  [gate] s = Sigmoid (d)
  [multiply] m = Mul (d, s)
  [round] y = QuantizeLinear (m, scale, zero)
}
""",
    "rotary": """
g (float[b, s, 8] x, float[s, 4] angle) => (float[b, s, 8] y)
<int64[1] start = {0}, int64[1] half = {4}, int64[1] end = {8}, int64[1] axis = {2}>
{
  [left] x1 = Slice (x, start, half, axis)
  [right] x2 = Slice (x, half, end, axis)
  [minus] n = Neg (x2)
  [turn] r = Concat <axis = 2> (n, x1)
  [twice] a = Concat <axis = 1> (angle, angle)
  [cos] c = Cos (a)
  [sin] z = Sin (a)
  [p] xc = Mul (x, c)
  [q] rz = Mul (r, z)
  [sum] y = Add (xc, rz)
}
""",
    "gather": """
g (float[v, 32] table, int64[n] ids) => (float[n, 32] y)
{
  [look_up] rows = Gather <axis = 0> (table, ids)
  [negate] y = Neg (rows)
}
""",
    "resize": """
g (float[n, 24, h, w] x) => (float[n, 24, h2, w] y) <float[4] s = {1.0, 1.0, 2.0, 1.0}>
{
  [relu] r = Relu (x)
  [double] y = Resize <mode = "linear"> (r, , s)
}
""",
    "unknown_broadcast": """
g (float[n, 8] x, float[m, 8] w) => (float[p, 8] y)
{
  [exp] e = Exp (x)
  [add] y = Add (e, w)
}
""",
    "vendor": """
g (float[n, m, m] x) => (float[n] y)
{
  [before] a = Exp (x)
  [volume] h = Det (a)
  [after] y = Relu (h)
}
""",
    "convolutions": f"""
g (float[n, 2, h, w] x) => (float[n, 3, i, j] y)
<float[3, 2, 1, 2] k = {_numbers(12)}, float[3] c = {_numbers(3)}, float[3, 1, 3, 3] d = {_numbers(27)}>
{{
  [first] p = Conv <pads = [0, 1, 0, 1]> (x, k, c)
  [relu] q = Relu (p)
  [each] r = Conv <group = 3, pads = [1, 1, 1, 1], strides = [2, 2]> (q, d)
  [pool] y = MaxPool <kernel_shape = [2, 2]> (r)
}}
""",
    "encoder": f"""
g (float[n, 1, t] x) => (float[n, 4, u] y)
<float[4, 1, 3] k = {_numbers(12)}, float[4] c = {_numbers(4)}>
{{
  [encode] p = Conv <pads = [1, 1], strides = [2]> (x, k, c)
  [relu] y = Relu (p)
}}
""",
    "channels_by_their_means": f"""
g (uint8[b, c, 3] x) => (float[b, c, 3] y)
<float scale = {{0.0625}}, uint8 zero = {{128}}, float[3, 3] w = {_numbers(9)}, int64[1] first = {{1}}>
{{
  [widen] d = DequantizeLinear (x, scale, zero)
  [mean] m = ReduceMean (d, first)
  [gate] g = MatMul (m, w)
  [scale] y = Mul (d, g)
}}
""",
    "reduce_chain": """
g (float[n, 4096] x) => (float[n] y)
<int64[1] last = {1}>
{
  [square] q = Mul (x, x)
  [sum] y = ReduceSum <keepdims = 0> (q, last)
}
""",
    "add_f16": """
g (float16[32, n] x, float16[32, n] w) => (float16[32, n] y)
{
  [add] y = Add (x, w)
}
""",
}

TINY = ("bert", "llama")

PASS_CASES: dict[str, tuple[str, ...]] = {
    "import_onnx": ("attention", "vendor"),
    "decompose": ("layer_norm", "softmax", "gelu", "shape_chain", "slice_and_pad", "attention"),
    "fold_constants": ("constant_addend",),
    "lift_invariants": ("decoder",),
    "fill_branches": ("branches",),
    "turn_products": ("encoder",),
    "sink_transposes": ("convolutions",),
    "simplify": ("transposes", "heads"),
    "fold_scales": ("normalized_product",),
    "collect_scales": ("scaled_product",),
    "sink_divisions": ("attention", "guarded_attention"),
    "sink_concats": ("rotary",),
    "tabulate": ("quantised_silu",),
    "absorb_views": ("view_chain",),
    "eliminate_common": ("twice",),
    "copy_widened": ("channels_by_their_means",),
    "eliminate_dead": ("view_chain",),
    "cluster": ("vendor",),
    "split_clusters": ("softmax", "attention", "gather"),
    "stack": ("softmax", "mlp", "attention", "gather", "unknown_broadcast", "vendor", "rotary"),
    "lower_kernels": ("convolutions", "layer_norm", "heads", "unknown_broadcast"),
}
"""By stage of the compiler."""

LISTINGS: dict[str, dict[str, int]] = {
    "layer_norm": {"b": 3, "s": 77},
    "softmax": {"b": 100, "s": 129},
    "matmul_bias_gelu": {"n": 77},
    "deep_product": {"m": 2, "k": 20011},
    "gather": {"n": 50, "v": 1000},
    "resize": {"n": 2, "h": 5, "w": 9},
    "convolutions": {"n": 2, "h": 5, "w": 9},
    "reduce_chain": {"n": 3},
    "add_f16": {"n": 1000},
}
"""Models whose bytecode is listed, and for which dims."""

STEPS: dict[str, dict[str, int]] = {
    "softmax": {"b": 100, "s": 129},
    "layer_norm": {"b": 3, "s": 77},
    "add_f16": {"n": 1000},
    "matmul_bias_gelu": {"n": 77},
}
"""Models whose tile code is listed step by step."""

DEVICES = (
    "zen2",
    "zen4",
    "zen5",
    "icelake-server",
    "sapphire-rapids",
    "client-avx2",
    "neoverse",
    "ascend910b2",
)
"""Whose choices of blocks and tiles are kept as tables."""
PARTS = ("ascend910b2", "ascend910b3")
"""Whose choices of products on cube units with local memories are."""

GOLDEN: dict[str, tuple[str, ...]] = {
    **PASS_CASES,
    "report": ("bert", "mlp", "unknown_broadcast", "vendor"),
    "disassembly": tuple(LISTINGS),
    "tile_code": tuple(STEPS),
    "choices": (*DEVICES, *(f"products_{part}" for part in PARTS)),
}


def model(name: str) -> onnx.ModelProto | Path:
    """A model of `TEXTS`, or the path of a tiny export."""
    return onnx.parser.parse_model(_HEADER + TEXTS[name]) if name in TEXTS else tiny_path(name)
