"""Operators that read each other's results at other points than those they compute: against onnxruntime.

Each of these was once fused by a rule that looked at a value, not at what is read of it through views, or that
took two groups of operators for independent.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session

PRODUCTS = {
    "transposed": (
        """g (float[n, 6] a, float[n, 3] b) => (float[5, 3] y) {
            p = MatMul(a, w) t = Transpose<perm = [1, 0]>(p) y = MatMul(t, b) }""",
        {"a": (8, 6), "b": (8, 3), "w": (6, 5)},
    ),
    "Gemm of a transposed operand": (
        """g (float[n, 6] a, float[n, 3] b) => (float[5, 3] y) {
            p = MatMul(a, w) y = Gemm<transA = 1>(p, b) }""",
        {"a": (8, 6), "b": (8, 3), "w": (6, 5)},
    ),
    "1x1 convolution": (
        """g (float[batch, 3, s, 6] a) => (float[batch, 2, s, 8] y) {
            p = MatMul(a, w) y = Conv<kernel_shape = [1, 1]>(p, k) }""",
        {"a": (1, 3, 8, 6), "w": (6, 8), "k": (2, 3, 1, 1)},
    ),
    "transposed, of one column": (
        """g (float[n, 8] a, float[n, 1] b) => (float[8, 1] y) {
            p = MatMul(a, w) t = Transpose<perm = [1, 0]>(p) y = MatMul(t, b) }""",
        {"a": (64, 8), "b": (64, 1), "w": (8, 8)},
    ),
    "element-wise, then transposed": (
        """g (float[n, 6] a, float[n, 3] b) => (float[5, 3] y) {
            p = MatMul(a, w) q = Relu(p) t = Transpose<perm = [1, 0]>(q) y = MatMul(t, b) }""",
        {"a": (8, 6), "b": (8, 3), "w": (6, 5)},
    ),
    "transposed, then element-wise": (
        """g (float[n, 6] a, float[n, 3] b) => (float[5, 3] y) {
            p = MatMul(a, w) q = Transpose<perm = [1, 0]>(p) t = Relu(q) y = MatMul(t, b) }""",
        {"a": (8, 6), "b": (8, 3), "w": (6, 5)},
    ),
    "square": (
        """g (float[n, n] a, float[n, n] b, float[n, n] w) => (float[n, n] y) {
            p = MatMul(a, w) q = Transpose<perm = [1, 0]>(p) t = Relu(q) y = MatMul(t, b) }""",
        {"a": (7, 7), "b": (7, 7), "w": (7, 7)},
    ),
    "batched": (
        """g (float[c, 3, n, 6] a, float[c, 3, n, 4] b, float[c, 3, 6, 5] w) => (float[c, 3, 5, 4] y) {
            p = MatMul(a, w) t = Transpose<perm = [0, 1, 3, 2]>(p) y = MatMul(t, b) }""",
        {"a": (2, 3, 8, 6), "b": (2, 3, 8, 4), "w": (2, 3, 6, 5)},
    ),
    "batch and rows exchanged": (
        """g (float[h, s, 6] a, float[h, 6, 5] w, float[5, 4] v) => (float[s, h, 4] y) {
            p = MatMul(a, w) t = Transpose<perm = [1, 0, 2]>(p) y = MatMul(t, v) }""",
        {"a": (3, 8, 6), "w": (3, 6, 5), "v": (5, 4)},
    ),
    "broadcast product, pooled": (
        """g (float[3, s, s] a, float[3, s, s] b) => (float[1, 2, s, s] y)
        <int64[1] first = {0}> {
            p = MatMul(a, b) q = Unsqueeze(p, first) y = Conv<kernel_shape = [1, 1]>(q, k) }""",
        {"a": (3, 8, 8), "b": (3, 8, 8), "k": (2, 3, 1, 1)},
    ),
    "of one filled operand": (
        """g (float[n, m] x) => (float[n, m] y) {
            s = Shape(x) t = Shape<start = 1, end = 2>(x) u = Concat<axis = 0>(t, t)
            z = ConstantOfShape<value = float[1] {2.5}>(u) y = MatMul(x, z) }""",
        {"x": (3, 7)},
    ),
    "of two filled operands": (
        """g (float[n, n] x) => (float[n, n] y) {
            s = Shape(x) z = ConstantOfShape<value = float[1] {0.5}>(s) p = MatMul(z, z)
            y = Add(p, x) }""",
        {"x": (5, 5)},
    ),
}

SIBLINGS = {
    "reversed": (
        """g (float[n, 4] x) => (float[n, 4] y)
        <int64[1] start = {-1}, int64[1] end = {-9223372036854775808}, int64[1] axis = {0}, int64[1] step = {-1}> {
            r = Relu(x) p = Slice(r, start, end, axis, step) y = Add(p, x) }""",
        {"x": (5, 4)},
    ),
    "transposed and regrouped": (
        """g (float[4, 6] x) => (float[4, 6] y) <int64[2] shape = {4, 6}> {
            r = Relu(x) t = Transpose<perm = [1, 0]>(r) p = Reshape(t, shape) y = Add(p, x) }""",
        {"x": (4, 6)},
    ),
    "averages": (
        """g (float[c, 4, h, w] x) => (float[c, 4, h, w] y) {
            r = Relu(x) p = AveragePool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r) y = Add(p, x) }""",
        {"x": (1, 4, 6, 8)},
    ),
    "maxima": (
        """g (float[c, 4, h, w] x) => (float[c, 4, h, w] y) {
            r = Relu(x) p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r) y = Mul(p, x) }""",
        {"x": (1, 4, 6, 8)},
    ),
    "depth-wise": (
        """g (float[c, 4, h, w] x) => (float[c, 4, h, w] y) {
            r = Relu(x) p = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], group = 4>(r, k)
            y = Add(p, x) }""",
        {"x": (1, 4, 6, 8), "k": (4, 1, 3, 3)},
    ),
    "by index": (
        """g (float[n, 4] x, int64[m] at) => (float[m, 4] z, float[n, 4] y) {
            r = Relu(x) z = Gather(r, at) y = Neg(x) }""",
        {"x": (5, 4), "at": (3,)},
    ),
    "a third one between": (
        """g (float[n, n] x) => (float[n, n] y) {
            r = Relu(x) p = MatMul(r, x) y = Add(p, x) }""",
        {"x": (5, 5)},
    ),
}

CONCATS = {
    "empty first": (
        """g (float[1, 3] x) => (float[1, 3] y) {
            c = Concat<axis = 0>(e, x) y = Add(x, c) }""",
        {"x": (1, 3), "e": (0, 3)},
    ),
    "empty last": (
        """g (float[1, 3] x) => (float[1, 3] y) {
            c = Concat<axis = 0>(x, e) y = Mul(c, c) }""",
        {"x": (1, 3), "e": (0, 3)},
    ),
    "empty in other places": (
        """g (float[1, 3] x) => (float[1, 3] y) {
            c = Concat<axis = 0>(x, e) d = Concat<axis = 0>(e, x) y = Add(c, d) }""",
        {"x": (1, 3), "e": (0, 3)},
    ),
    "empty beside columns": (
        """g (float[n, 1] x) => (float[n, 1] y) {
            w = Shape<start = 0, end = 1>(x) z = Constant<value_ints = [0]>()
            s = Concat<axis = 0>(w, z) f = ConstantOfShape(s) c = Concat<axis = 1>(f, x, f)
            r = Relu(c) y = Sub(r, x) }""",
        {"x": (4, 1), "e": (1, 0)},
    ),
}


def values(name: str, shape: tuple[int, ...]) -> Array:
    if name == "at":
        return np.arange(np.prod(shape), dtype=np.int64)[::-1].copy()
    return np.random.default_rng(len(name) + sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "options",
    [
        dvm_graph.Options(),
        dvm_graph.Options(fuse=False),
        dvm_graph.Options(fallbacks="always"),
        dvm_graph.Options(fallbacks="operators"),
    ],
    ids=("fused", "unfused", "fallbacks", "operators"),
)
@pytest.mark.parametrize("case", [*PRODUCTS, *SIBLINGS, *CONCATS])
def test_what_is_read_is_what_was_meant(case: str, options: dvm_graph.Options) -> None:
    text, shapes = (PRODUCTS | SIBLINGS | CONCATS)[case]
    arrays = {name: values(name, shape) for name, shape in shapes.items()}
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\n{text}')
    inputs = {value.name for value in model.graph.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name)
        for name, array in arrays.items()
        if name not in inputs
    )
    feeds = {name: array for name, array in arrays.items() if name in inputs}
    expected = session(model).run(None, feeds)
    actual = dvm_graph.optimize(model, options).run(feeds)
    assert_all_close(actual, expected, 64)
