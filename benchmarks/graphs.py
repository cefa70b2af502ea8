"""ONNX models of the operator datasets and of the memory-bound operators, as text, with every extent dynamic.

`benchmarks.torch_operators` has a function of the same name and the same parameters for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, parser

_HEADER = '<ir_version: 8, opset_import: ["" : 20]>\n'


def _chain(unary: str, binary: str, length: int = 10) -> str:
    """s9 of h, by two operators a step."""
    steps = range(length)
    lines = (f"t{i} = {unary}({f's{i - 1}' if i else 'h'}) s{i} = {binary}(t{i}, h)" for i in steps)
    return " ".join(lines)


GRAPHS: Mapping[str, str] = {
    "matmul": "(float[m, k] a, float[k, n] b) => (float[m, n] out) { out = MatMul(a, b) }",
    "matmul_constant": "(float[m, 640] a) => (float[m, 640] out) { out = MatMul(a, b) }",
    "addmm": (
        "(float[m, k] a, float[k, n] b, float[m, n] c) => (float[m, n] out) { out = Gemm(a, b, c) }"
    ),
    "layer_norm": (
        "(float[b, s, h] x, float[h] scale, float[h] bias) => (float[b, s, h] out)"
        "{ out = LayerNormalization<axis = -1>(x, scale, bias) }"
    ),
    "if_else_add": """(float a, float b, float[b, s, f] x, float[b, s, f] y) => (float[b, s, f] out) {
        taken = Greater(a, b)
        scaled = If (taken) <
            then_branch = twice () => (float[b, s, f] doubled) {
                two = Constant<value_float = 2.0>()
                doubled = Mul(x, two)
            },
            else_branch = four_times () => (float[b, s, f] quadrupled) {
                four = Constant<value_float = 4.0>()
                quadrupled = Mul(x, four)
            }
        >
        out = Add(scaled, y)
    }""",
    "branch_product": """(bool c, float[m, k] x, float[m, k] y, float[k, k] w) => (float[m, k] out) {
        squared = Mul(x, x)
        h = Tanh(squared)
        r = If (c) <
            then_branch = product () => (float[m, k] multiplied) { multiplied = MatMul(h, w) },
            else_branch = normal () => (float[m, k] softened) { softened = Softmax<axis = -1>(h) }
        >
        sum = Add(r, y)
        out = Relu(sum)
    }""",
    "branch_long": f"""(bool c, float[m, k] x, float[m, k] y) => (float[m, k] out) {{
        h = Mul(x, y)
        r = If (c) <
            then_branch = waves () => (float[m, k] wave) {{
                {_chain("Sigmoid", "Mul")}
                wave = Neg(s9)
            }},
            else_branch = slopes () => (float[m, k] slope) {{
                {_chain("Tanh", "Add")}
                slope = Abs(s9)
            }}
        >
        sum = Add(r, y)
        out = Relu(sum)
    }}""",
    "branch_reads": """(bool c, float[m, k] x, float[m, k] y, float[k, k] w) => (float[m, k] out) {
        h = Tanh(x)
        g = Mul(y, y)
        r = If (c) <
            then_branch = product () => (float[m, k] multiplied) { multiplied = MatMul(h, w) },
            else_branch = normal () => (float[m, k] divided) {
                axes = Constant<value_ints = [-1]>()
                raised = Exp(g)
                total = ReduceSum<keepdims = 1>(raised, axes)
                divided = Div(raised, total)
            }
        >
        sum = Add(r, x)
        out = Relu(sum)
    }""",
    "softmax": "(float[r, c] x) => (float[r, c] out) { out = Softmax<axis = -1>(x) }",
    "rms_norm": """(float[b, s, h] x, float[h] scale) => (float[b, s, h] out) {
        two = Constant<value_float = 2.0>()
        epsilon = Constant<value_float = 0.000001>()
        axes = Constant<value_ints = [-1]>()
        squares = Pow(x, two)
        mean = ReduceMean(squares, axes)
        shifted = Add(mean, epsilon)
        root = Sqrt(shifted)
        inverse = Reciprocal(root)
        normal = Mul(x, inverse)
        out = Mul(normal, scale)
    }""",
    "gelu_erf": """(float[r, c] x, float[c] bias) => (float[r, c] out) {
        shifted = Add(x, bias)
        out = Gelu(shifted)
    }""",
    "gelu_tanh": """(float[r, c] x, float[c] bias) => (float[r, c] out) {
        shifted = Add(x, bias)
        out = Gelu<approximate = "tanh">(shifted)
    }""",
    "residual_layer_norm": """(float[b, s, h] x, float[b, s, h] y, float[h] scale, float[h] bias)
        => (float[b, s, h] out) {
        sum = Add(x, y)
        out = LayerNormalization<axis = -1>(sum, scale, bias)
    }""",
    "broadcast": """(float[a, 1, c] x, float[1, b, 1] y, float[a, b, c] z) => (float[a, b, c] out) {
        scaled = Mul(z, y)
        out = Add(scaled, x)
    }""",
    "semiprime": """(float[n] x, float[n] y) => (float[n] out) {
        gate = Sigmoid(x)
        gated = Mul(gate, x)
        out = Add(gated, y)
    }""",
    "transpose": """(float[a, b, c] x, float[c, a, b] y) => (float[c, a, b] out) {
        turned = Transpose<perm = [2, 0, 1]>(x)
        out = Add(turned, y)
    }""",
    "outer_sum": """(float[r, c] x) => (float[c] out) {
        axes = Constant<value_ints = [0]>()
        out = ReduceSum<keepdims = 0>(x, axes)
    }""",
}


def write_graph(
    name: str, folder: Path, constants: Mapping[str, NDArray[Any]] | None = None
) -> Path:
    """Writes the model to `folder`; `constants` become its initializers."""
    model = parser.parse_model(f"{_HEADER}{name} {GRAPHS[name]}")
    for constant, array in (constants or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, constant))
    onnx.checker.check_model(model, full_check=True)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path
