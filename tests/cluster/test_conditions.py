"""Models that tell apart what conditions of the fuser hold apart, against onnxruntime: without the condition some result is another.

Each is as small as it gets, so that a line of a table says what a condition is for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.end_to_end.reference import Feeds, assert_agrees

PRODUCTS: dict[str, tuple[str, Feeds]] = {
    "one column, read as rows and by what follows": (
        """g (float[m, 8] x, float[8, 1] w, float[1, 6] v) => (float[m, 6] y)
        { p = MatMul (x, w) q = MatMul (p, v) y = Add (q, p) }""",
        {"x": (70, 8), "w": (8, 1), "v": (1, 6)},
    ),
    "rows of two tensors": (
        """g (float[m, 8] x, float[m, 8] z, float[8, 6] w, float[8, 6] v) => (float[m, 6] y)
        { p = MatMul (x, w) q = MatMul (z, v) y = Add (p, q) }""",
        {"x": (70, 8), "z": (70, 8), "w": (8, 6), "v": (8, 6)},
    ),
    "reductions over rows and over columns": (
        """g (float[m, 8] x, float[8, n] w) => (float[m, n] y) <int64[1] rows = {-1}, int64[1] columns = {0}> {
            p = MatMul (x, w)
            a = ReduceMax (p, rows)
            b = ReduceMax (p, columns)
            c = Mul (a, b)
            y = Sub (p, c)
        }""",
        {"x": (70, 8), "w": (8, 70)},
    ),
    "rows of one head for all": (
        """g (float[s, 8] x, float[b, 8, 6] w) => (float[b, s, 6] y)
        { a = Sigmoid (x) y = MatMul (a, w) }""",
        {"x": (70, 8), "w": (3, 8, 6)},
    ),
    "columns that are heads of the next": (
        """g (float[t, s, 8] q, float[t, 8, b] k, float[b, t, 6] v) => (float[b, s, 6] y)
        { p = MatMul (q, k) a = Transpose <perm = [2, 1, 0]> (p) y = MatMul (a, v) }""",
        {"q": (5, 7, 8), "k": (5, 8, 3), "v": (3, 5, 6)},
    ),
    "heads that are rows of the next, by their weights": (
        """g (float[t, 8] q, float[s, 8, n] k, float[n, 6] v) => (float[t, s, 6] y)
        { p = MatMul (q, k) a = Transpose <perm = [1, 0, 2]> (p) y = MatMul (a, v) }""",
        {"q": (5, 8), "k": (7, 8, 3), "v": (3, 6)},
    ),
    "heads that are rows of the next": (
        """g (float[s, t, 8] q, float[s, 8, n] k, float[n, 6] v) => (float[t, s, 6] y)
        { p = MatMul (q, k) a = Transpose <perm = [1, 0, 2]> (p) y = MatMul (a, v) }""",
        {"q": (7, 5, 8), "k": (7, 8, 3), "v": (3, 6)},
    ),
    "sums of rows, backwards": (
        """g (float[m, 8] x, float[8, 6] w) => (float[m, 6] y)
        <int64[1] rows = {-1}, int64[1] start = {-1}, int64[1] end = {-9223372036854775807}, int64[1] axis = {0},
         int64[1] step = {-1}> {
            e = Exp (x)
            r = ReduceSum (e, rows)
            a = Div (e, r)
            p = MatMul (a, w)
            b = Slice (r, start, end, axis, step)
            y = Add (p, b)
        }""",
        {"x": (70, 8), "w": (8, 6)},
    ),
    "sums of rows, gathered": (
        """g (float[m, 8] x, float[8, 6] w, int64[m] index) => (float[m, 6] y) <int64[1] rows = {-1}> {
            e = Exp (x)
            r = ReduceSum (e, rows)
            a = Div (e, r)
            p = MatMul (a, w)
            b = Gather (r, index)
            y = Add (p, b)
        }""",
        {"x": (3, 8), "w": (8, 6), "index": np.array([2, 0, 0])},
    ),
    "a product of a product, and one of the same rows": (
        """g (float[m, 8] x, float[8, 8] u, float[8, 6] v, float[8, 6] w) => (float[m, 6] y)
        { a = MatMul (x, u) b = MatMul (a, v) c = MatMul (x, w) y = Add (b, c) }""",
        {"x": (70, 8), "u": (8, 8), "v": (8, 6), "w": (8, 6)},
    ),
    "rows, added to their product": (
        """g (float[m, 8] x, float[8, 8] w) => (float[m, 8] y)
        { a = Sigmoid (x) p = MatMul (a, w) y = Add (p, a) }""",
        {"x": (70, 8), "w": (8, 8)},
    ),
    "rows, added to their product across": (
        """g (float[8, 8] x, float[8, 8] w) => (float[8, 8] y)
        { a = Sigmoid (x) p = MatMul (a, w) t = Transpose (a) y = Add (p, t) }""",
        {"x": (8, 8), "w": (8, 8)},
    ),
    "a product, and its own rows gathered": (
        """g (float[m, 8] x, float[8, 6] w, int64[m] index) => (float[m, 6] y)
        { p = MatMul (x, w) a = Gather (p, index) b = Exp (a) y = Add (p, b) }""",
        {"x": (3, 8), "w": (8, 6), "index": np.array([2, 0, 0])},
    ),
    "a product, and its own rows backwards": (
        """g (float[m, 8] x, float[8, 6] w) => (float[m, 6] y)
        <int64[1] start = {-1}, int64[1] end = {-9223372036854775807}, int64[1] axis = {0}, int64[1] step = {-1}> {
            p = MatMul (x, w)
            a = Slice (p, start, end, axis, step)
            b = Exp (a)
            y = Add (p, b)
        }""",
        {"x": (70, 8), "w": (8, 6)},
    ),
    "a product, and rows gathered of others": (
        """g (float[m, 8] x, float[8, 6] w, float[k, 6] t, int64[m] index) => (float[m, 6] y)
        { p = MatMul (x, w) a = Gather (t, index) y = Add (p, a) }""",
        {"x": (3, 8), "w": (8, 6), "t": (4, 6), "index": np.array([3, 0, 1])},
    ),
    "a product, and others backwards": (
        """g (float[m, 8] x, float[8, 6] w, float[m, 6] z) => (float[m, 6] y)
        <int64[1] start = {-1}, int64[1] end = {-9223372036854775807}, int64[1] axis = {0}, int64[1] step = {-1}> {
            e = Exp (z)
            p = MatMul (x, w)
            a = Slice (e, start, end, axis, step)
            y = Add (p, a)
        }""",
        {"x": (70, 8), "w": (8, 6), "z": (70, 6)},
    ),
    "sums over columns": (
        """g (float[m, 8] x, float[8, n] w) => (float[n] y) <int64[1] first = {0}> {
            p = MatMul (x, w)
            y = ReduceSum <keepdims = 0> (p, first)
        }""",
        {"x": (70, 8), "w": (8, 70)},
    ),
    "shares of columns": (
        "g (float[m, 8] x, float[8, n] w) => (float[m, n] y) { p = MatMul (x, w) y = Softmax <axis = 0> (p) }",
        {"x": (70, 8), "w": (8, 70)},
    ),
    "sums of what else is added": (
        """g (float[m, 8] x, float[8, n] w, float[m, n] z) => (float[m, n] y) <int64[1] rows = {-1}> {
            r = ReduceSum (z, rows)
            p = MatMul (x, w)
            a = Add (p, z)
            y = Sub (a, r)
        }""",
        {"x": (70, 8), "w": (8, 70), "z": (70, 70)},
    ),
    "products of two widths of the same rows": (
        """g (float[m, 8] x, float[8, n] w, float[8, 1] v) => (float[m, n] y)
        { p = MatMul (x, w) q = MatMul (x, v) y = Mul (p, q) }""",
        {"x": (70, 8), "w": (8, 5), "v": (8, 1)},
    ),
    "sums, repeated": (
        """g (float[n, k] x, int64[2] extents) => (float[n, m] y) <int64[1] rows = {-1}>
        { r = ReduceSum (x, rows) y = Expand (r, extents) }""",
        {"x": (7, 5), "extents": np.array([7, 5])},
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_share_a_kernel_where_they_may(name: str) -> None:
    text, feeds = PRODUCTS[name]
    assert_agrees(text, feeds, strict=True)


RESHAPES: dict[str, tuple[Any, ...]] = {
    "to extents that do not divide those there were": (
        """g (float[4, 6] x, float[3, 8] z) => (float[3, 8] y) <int64[2] shape = {3, 8}>
        { a = Exp (x) r = Reshape (a, shape) y = Add (r, z) }""",
        {"x": (4, 6), "z": (3, 8)},
    ),
    "to an extent that does not divide": (
        """g (float[n, 6] x, float[m, 4] z) => (float[m, 4] y) <int64[2] shape = {-1, 4}>
        { a = Exp (x) r = Reshape (a, shape) y = Add (r, z) }""",
        {"x": (4, 6), "z": (6, 4)},
    ),
    "to parts that are shuffled, and back": (
        """g (float[n, 6] x) => (float[n, 6] y) <int64[3] parts = {0, 2, 3}, int64[2] whole = {0, 6}> {
            a = Exp (x)
            b = Reshape (a, parts)
            c = Transpose <perm = [0, 2, 1]> (b)
            d = Reshape (c, whole)
            y = Sub (d, a)
        }""",
        {"x": (4, 6)},
    ),
    "to as many rows as there were columns": (
        """g (float[n, m] x) => (float[m, n] y) {
            a = Exp (x)
            t = Transpose (a)
            s = Shape (t)
            r = Reshape (a, s)
            y = Sub (r, t)
        }""",
        {"x": (3, 5)},
        {"x": (4, 4)},
    ),
    "to parts that meet what is as long": (
        """g (float[n, 4] x, float[2, 1] z, float[2] v) => (float[n, 4] y) <int64[3] parts = {0, 2, 2}, int64[2] whole = {0, 4}> {
            a = Reshape (x, parts)
            b = Mul (a, z)
            c = Sub (b, v)
            y = Reshape (c, whole)
        }""",
        {"x": (3, 4), "z": (2, 1), "v": (2,)},
    ),
    "of one number for each": (
        """g (float[n, 1] x) => (float[n, n] y) <int64[1] flat = {-1}>
        { a = Exp (x) r = Reshape (a, flat) y = Sub (r, a) }""",
        {"x": (3, 1)},
    ),
}


@pytest.mark.parametrize("name", RESHAPES)
def test_axes_are_one_where_they_are_the_same(name: str) -> None:
    text, *runs = RESHAPES[name]
    assert_agrees(text, *runs, strict=True)


SIBLINGS: dict[str, tuple[str, Feeds]] = {
    "one needs the other": (
        """g (float[m, 8] x, float[8, 8] w, int64[m] index) => (float[m, 8] a, float[m, 8] y)
        { a = Exp (x) p = MatMul (a, w) b = Gather (p, index) y = Sub (x, b) }""",
        {"x": (3, 8), "w": (8, 8), "index": np.array([2, 0, 0])},
    ),
    "one sums": (
        """g (float[m, n] x) => (float[m, n] a, float[m, n] y) <int64[1] first = {0}> {
            a = Exp (x)
            r = ReduceSum (x, first)
            y = Sub (x, r)
        }""",
        {"x": (7, 7)},
    ),
    "one gathers": (
        """g (float[m, n] x, int64[m] index) => (float[m, n] a, float[m, n] y)
        { a = Exp (x) b = Gather (x, index) y = Neg (b) }""",
        {"x": (3, 5), "index": np.array([2, 0, 0])},
    ),
    "one is of more axes": (
        """g (float[m, n] x, float[k, 1, 1] z) => (float[m, n] a, float[k, m, n] y) { a = Exp (x) y = Mul (x, z) }""",
        {"x": (3, 3), "z": (3, 1, 1)},
    ),
    "one is turned": (
        """g (float[m, m] x) => (float[m, m] a, float[m, m] y) { a = Exp (x) t = Transpose (x) y = Sub (t, a) }""",
        {"x": (5, 5)},
    ),
    "both read it along other axes": (
        """g (float[m] x, float[n, m] z, float[m, n] v) => (float[n, m] a, float[m, n] y) <int64[1] last = {-1}> {
            a = Mul (z, x)
            c = Unsqueeze (x, last)
            y = Mul (v, c)
        }""",
        {"x": (5,), "z": (5, 5), "v": (5, 5)},
    ),
    "one number for both": (
        """g (float x, float[m] z, float[n] v) => (float[m] a, float[n] y) { a = Mul (z, x) y = Sub (v, x) }""",
        {"x": np.array(3, np.float32), "z": (5,), "v": (5,)},
    ),
    "as long as each other in some runs": (
        """g (float[m] x, float[m, n] z, float[m, k] v) => (float[m, n] a, float[m, k] y) <int64[1] last = {-1}> {
            c = Unsqueeze (x, last)
            a = Mul (z, c)
            y = Sub (v, c)
        }""",
        {"x": (5,), "z": (5, 4), "v": (5, 7)},
    ),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_readers_of_a_tensor_share_a_kernel_where_they_may(name: str) -> None:
    text, feeds = SIBLINGS[name]
    assert_agrees(text, feeds, strict=True)


CONCATS: dict[str, tuple[str, Feeds]] = {
    "within another, read by the host": (
        """g (float[n, 2] x, float[n, 3] z, float[n, 1] u) => (float[n, 6] y, int64[2, m] w) {
            c = Concat <axis = 1> (x, z)
            y = Concat <axis = 1> (c, u)
            w = NonZero (c)
        }""",
        {"x": (4, 2), "z": (4, 3), "u": (4, 1)},
    ),
    "within another, read as another shape": (
        """g (float[n, 2] x, float[n, 3] z, float[n, 1] u) => (float[n, 6] y, float[m] w) <int64[1] flat = {-1}> {
            c = Concat <axis = 1> (x, z)
            y = Concat <axis = 1> (c, u)
            r = Reshape (c, flat)
            w = Neg (r)
        }""",
        {"x": (4, 2), "z": (4, 3), "u": (4, 1)},
    ),
    "within another, gathered for others as well": (
        """g (float[n, 2] x, float[n, 3] z) => (float[n, 7] y, float[n, 2] w) <int64[2] index = {4, 0}> {
            c = Concat <axis = 1> (x, z)
            d = Gather <axis = 1> (c, index)
            y = Concat <axis = 1> (c, d)
            w = Neg (d)
        }""",
        {"x": (4, 2), "z": (4, 3)},
    ),
    "within another, gathered and given": (
        """g (float[n, 2] x, float[n, 3] z) => (float[n, 7] y, float[n, 2] d) <int64[2] index = {4, 0}> {
            c = Concat <axis = 1> (x, z)
            d = Gather <axis = 1> (c, index)
            y = Concat <axis = 1> (c, d)
        }""",
        {"x": (4, 2), "z": (4, 3)},
    ),
    "within another, as the index of its neighbour": (
        """g (int64[n] x, int64[m] z, int64[k] t) => (int64[l] y) {
            c = Concat <axis = 0> (x, z)
            d = Gather (t, c)
            y = Concat <axis = 0> (c, d)
        }""",
        {"x": np.array([1, 3]), "z": np.array([0]), "t": np.array([5, 6, 7, 8])},
    ),
    "within another, by its own numbers": (
        """g (int64[n] x, int64[m] z) => (int64[l] y) {
            c = Concat <axis = 0> (x, z)
            d = Gather (c, c)
            y = Concat <axis = 0> (c, d)
        }""",
        {"x": np.array([1, 2]), "z": np.array([0])},
    ),
    "within another, cut for it": (
        """g (float[n, 2] x, float[n, 3] z) => (float[n, 7] y)
        <int64[1] start = {1}, int64[1] end = {3}, int64[1] axis = {1}> {
            c = Concat <axis = 1> (x, z)
            d = Slice (c, start, end, axis)
            y = Concat <axis = 1> (c, d)
        }""",
        {"x": (4, 2), "z": (4, 3)},
    ),
    "within another, whose extents rest on it": (
        """g (int64[n] x, int64[m] z) => (int64[l] y) <int64[3] index = {2, 0, 1}, int64[1] flat = {-1}> {
            c = Concat <axis = 0> (x, z)
            d = Gather (c, index)
            p = NonZero (d)
            q = Reshape (p, flat)
            y = Concat <axis = 0> (c, d, q)
        }""",
        {"x": np.array([1, 0]), "z": np.array([7, 8])},
    ),
    "twice within another": (
        """g (float[n, 2] x, float[n, 3] z) => (float[n, 10] y) {
            c = Concat <axis = 1> (x, z)
            y = Concat <axis = 1> (c, c)
        }""",
        {"x": (4, 2), "z": (4, 3)},
    ),
    "within two others": (
        """g (float[n, 2] x, float[n, 3] z) => (float[n, 7] y, float[n, 8] w) {
            c = Concat <axis = 1> (x, z)
            y = Concat <axis = 1> (c, x)
            w = Concat <axis = 1> (z, c)
        }""",
        {"x": (4, 2), "z": (4, 3)},
    ),
}


@pytest.mark.parametrize("name", CONCATS)
def test_concats_lie_within_others_where_they_may(name: str) -> None:
    text, feeds = CONCATS[name]
    assert_agrees(text, feeds, strict=True)


ALIASES: dict[str, tuple[str, Feeds]] = {
    "an input given": ("g (float[n, 2] x) => (float[n, 2] y) { y = Identity (x) }", {"x": (4, 2)}),
    "an input given as another shape": (
        "g (float[n, 2] x) => (float[m] y) <int64[1] flat = {-1}> { y = Reshape (x, flat) }",
        {"x": (4, 2)},
    ),
    "given in two shapes": (
        """g (float[n, 2] x) => (float[n, 2] a, float[m] y) <int64[1] flat = {-1}> {
            a = Exp (x)
            y = Reshape (a, flat)
        }""",
        {"x": (4, 2)},
    ),
    "given in two other shapes": (
        """g (float[n, 2] x) => (float[m] y, float[2, n] w) <int64[1] flat = {-1}, int64[2] wide = {2, -1}> {
            a = Exp (x)
            y = Reshape (a, flat)
            w = Reshape (a, wide)
        }""",
        {"x": (4, 2)},
    ),
    "given, and joined as another shape": (
        """g (float[n, 2] x) => (float[m] y, float[n, 4] w) <int64[1] flat = {-1}> {
            a = Exp (x)
            y = Reshape (a, flat)
            w = Concat <axis = 1> (a, a)
        }""",
        {"x": (4, 2)},
    ),
    "the joined, given as another shape": (
        """g (float[n, 2] x) => (float[m] y, float[k] w) <int64[1] flat = {-1}> {
            a = Exp (x)
            c = Concat <axis = 1> (a, x)
            y = Reshape (c, flat)
            w = ReduceSum <keepdims = 0> (c, flat)
        }""",
        {"x": (4, 2)},
    ),
    "the joined, given in two shapes": (
        """g (float[n, 2] x) => (float[m] y, float[n, 4] c) <int64[1] flat = {-1}> {
            a = Exp (x)
            c = Concat <axis = 1> (a, x)
            y = Reshape (c, flat)
        }""",
        {"x": (4, 2)},
    ),
    "the joined, given in a shape that is told later than parts of it are made": (
        """g (float[n, 4] x) => (float[m, l] y) <int64[1] one = {1}, int64[1] two = {2}, int64[1] rest = {-1}, int64 first = {0}> {
            a = Exp (x)
            s = CumSum (a, first)
            c = Concat <axis = 0> (a, s)
            i = NonZero (x)
            e = Shape (i)
            k = Slice (e, one, two)
            t = Concat <axis = 0> (k, rest)
            y = Reshape (c, t)
        }""",
        {"x": np.array([[1, 0, 0, 2]], np.float32)},
    ),
    "one shape read by the host, one given": (
        """g (float[n, 2] x) => (float[m] y, int64[2, k] w) <int64[1] flat = {-1}, int64[2] wide = {2, -1}> {
            a = Relu (x)
            y = Reshape (a, flat)
            b = Reshape (a, wide)
            w = NonZero (b)
        }""",
        {"x": (4, 2)},
    ),
    "another shape of what the host makes": (
        """g (float[n, 2] x) => (int64[m] y, int64[2, k] w) <int64[1] flat = {-1}> {
            w = NonZero (x)
            y = Reshape (w, flat)
        }""",
        {"x": (4, 2)},
    ),
    "another shape, whose extents the host tells": (
        """g (float[n, 4] x) => (float[m, k] y, float[n, 4] w) <int64[1] rest = {-1}> {
            a = Relu (x)
            i = NonZero (a)
            c = Shape (i)
            d = ReduceMax <keepdims = 1> (c)
            e = Div (d, d)
            t = Concat <axis = 0> (e, rest)
            y = Reshape (a, t)
            w = Neg (a)
        }""",
        {"x": (4, 4)},
    ),
    "one result twice": (
        "g (float[n, 2] x) => (float[n, 2] y, float[n, 2] w) { y = Exp (x) w = Identity (y) }",
        {"x": (4, 2)},
    ),
}


@pytest.mark.parametrize("name", ALIASES)
def test_shapes_of_one_buffer_are_told_apart(name: str) -> None:
    text, feeds = ALIASES[name]
    assert_agrees(text, feeds, strict=True)


def test_a_random_number_is_one_for_all_who_read_it() -> None:
    text = """g (float[n] x) => (float[m] y) {
        r = RandomUniform <shape = [1], high = 1000.0> ()
        a = Add (x, r)
        c = Sub (a, r)
        y = Round (c)
    }"""
    assert_agrees(text, {"x": np.array([1, 2, 3], np.float32)})
