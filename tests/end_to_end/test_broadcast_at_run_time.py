"""Dims of different names that may be equal, or 1: which of them it is shows at run time only."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.end_to_end.reference import assert_agrees, assert_all_close, model_from_text

BODIES = {
    "sum": "y = Add(a, b)",
    "chain": "p = Exp(a) q = Tanh(b) r = Mul(p, q) s = Add(r, a) y = Sub(s, b)",
    "reduced": "p = Add(a, b) y = ReduceSum<keepdims = 1>(p, last)",
    "reduced first": "p = ReduceMax<keepdims = 1>(a, last) y = Mul(p, b)",
    "softmax": "p = Add(a, b) q = Softmax<axis = -1>(p) y = Mul(q, b)",
    "select": "p = Less(a, b) y = Where(p, a, b)",
    "transposed": "p = Transpose<perm = [1, 0]>(a) q = Transpose<perm = [1, 0]>(b) y = Mul(p, q)",
    "shared": "p = Add(a, b) q = Exp(p) r = ReduceMean<keepdims = 1>(p, last) y = Sub(q, r)",
}
EXTENTS = [
    ((4, 7), (4, 7)), ((1, 7), (4, 7)), ((4, 1), (4, 7)), ((4, 7), (1, 7)), ((4, 7), (4, 1)),
    ((4, 1), (1, 7)), ((1, 7), (4, 1)), ((1, 1), (4, 7)), ((4, 7), (1, 1)), ((1, 1), (1, 1)),
    ((0, 7), (1, 7)), ((1, 7), (0, 7)), ((65, 33), (65, 1)), ((1, 33), (65, 33)),
]  # fmt: skip


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("body", BODIES)
def test_equals_the_reference_whatever_is_broadcast(body: str, fuse: bool) -> None:
    proto = model_from_text(
        f"""g (float[m, n] a, float[p, q] b) => (float[r, s] y) <int64[1] last = {{-1}}> {{
            {BODIES[body]}
        }}"""
    )
    model = dvm_graph.optimize(proto, fuse=fuse)
    reference = ReferenceEvaluator(proto)
    generator = np.random.default_rng(0)
    for left, right in EXTENTS:
        feeds = {
            "a": generator.uniform(-2, 2, left).astype(np.float32),
            "b": generator.uniform(-2, 2, right).astype(np.float32),
        }
        assert_all_close(model.run(feeds), reference.run(None, feeds), reduction_length=64)


@pytest.mark.parametrize("fuse", [True, False])
def test_batches_of_a_matrix_product(fuse: bool) -> None:
    proto = model_from_text(
        """g (float[m, n, i, k] a, float[p, q, k, j] b, float[u, v, i, j] c) => (float[r, s, i, j] y) {
            p = MatMul(a, b)
            q = Add(p, c)
            y = Softmax<axis = -1>(q)
        }"""
    )
    model = dvm_graph.optimize(proto, fuse=fuse)
    reference = ReferenceEvaluator(proto)
    generator = np.random.default_rng(0)
    for left, right, mask in (
        ((2, 3), (2, 3), (2, 3)),
        ((1, 3), (2, 1), (2, 1)),
        ((2, 1), (1, 3), (1, 1)),
        ((2, 3), (1, 1), (1, 3)),
        ((1, 1), (1, 1), (2, 3)),
        ((1, 1), (1, 1), (1, 1)),
    ):
        for i, j, k in ((4, 5, 6), (1, 17, 33), (16, 1, 1)):
            feeds = {
                "a": generator.uniform(-1, 1, (*left, i, k)).astype(np.float32),
                "b": generator.uniform(-1, 1, (*right, k, j)).astype(np.float32),
                "c": generator.uniform(-1, 1, (*mask, i, j)).astype(np.float32),
            }
            assert_all_close(model.run(feeds), reference.run(None, feeds), reduction_length=64)


@pytest.mark.parametrize("fuse", [True, False])
def test_dims_that_do_not_broadcast(fuse: bool) -> None:
    proto = model_from_text("g (float[m, n] a, float[p, q] b) => (float[r, s] y) { y = Add(a, b) }")
    model = dvm_graph.optimize(proto, fuse=fuse)
    ones = np.ones((4, 3), np.float32)
    with pytest.raises(dvm_graph.ShapeError):
        model.run({"a": ones, "b": np.ones((4, 2), np.float32)})
    assert model.run({"a": ones, "b": np.ones((1, 3), np.float32)})[0].shape == (4, 3)


def test_rows_and_the_first_of_them() -> None:
    """Of a single row, the first none broadcast with it; of several, as many as there are."""
    assert_agrees(
        """g (float[n] x, float[m] z) => (float[k] y) <int64[1] first = {0}, int64[1] two = {2}> {
            s = Shape (z) e = Mul (s, two)
            a = Exp (x) b = Slice (a, first, e)
            y = Sub (a, b)
        }""",
        *({"x": (n,), "z": (m,)} for n in (0, 1, 2, 5) for m in (0, 1, 3) if n < 2 or n <= 2 * m),
        strict=True,
    )


@pytest.mark.parametrize("fallbacks", ["if_needed", "always", "operators"])
def test_two_that_read_one_by_broadcast_equal_the_reference(fallbacks: str) -> None:
    """One kernel where they iterate over as much, whatever they are called; two elsewhere."""
    proto = model_from_text(
        """g (float[1, n] a, float[m, n, k] b, float[p, n, k] c, float[n, k] d) => (float[m, n, k] y, float[p, n, k] z) {
            t = Transpose<perm = [1, 0]>(a) s = Exp(b)
            e = Add(t, s) y = Tanh(e)
            f = Mul(t, c) g = Add(f, d) z = Sub(g, c)
        }"""
    )
    model = dvm_graph.optimize(proto, fallbacks=fallbacks)
    assert model.report().kernels == 1
    reference = ReferenceEvaluator(proto)
    generator = np.random.default_rng(1)
    for m, p, n, k in (
        (3, 3, 5, 7),
        (3, 4, 5, 7),
        (1, 6, 5, 1),
        (6, 1, 33, 40),
        (0, 2, 3, 3),
        (2, 2, 0, 3),
    ):
        shapes = {"a": (1, n), "b": (m, n, k), "c": (p, n, k), "d": (n, k)}
        feeds = {
            name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()
        }
        assert_all_close(model.run(feeds), reference.run(None, feeds))
