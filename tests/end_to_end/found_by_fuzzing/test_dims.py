"""Small models that random graphs once broke: names of dims and extents, and who tells them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    assert_same_bits,
    model_from_text,
    session,
)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_vendor_operator_of_which_only_the_size_is_used(count: int) -> None:
    model = model_from_text(
        """g (float[n] x) => (float[m] y) {
            found = NonZero(x)
            size = Shape(found)
            axis = Constant<value_int = 1>()
            length = Gather(size, axis)
            zero = Constant<value_int = 0>()
            numbers = Range(zero, length, axis)
            y = Cast<to = 1>(numbers)
        }"""
    )
    x = np.array([1.0] * count + [0.0, 0.0], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, np.arange(count, dtype=np.float32))


@pytest.mark.parametrize("text", ["a*b", "a+b", "-a", "a//2", "a*a", "a - a//2", "2*a + 1"])
def test_dims_of_inputs_from_which_nothing_can_be_solved(text: str) -> None:
    """Their symbols had no value, and every run failed; to onnxruntime such a text is a name."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        names (float["{text}", n] x, float["{text}", n] z) => (float["{text}", m] y)
        {{ s = Add(x, z) t = Transpose<perm = [1, 0]>(s) y = MatMul(s, t) }}"""
    )
    optimized = dvm_graph.optimize(model)
    for rows in (5, 1, 3):
        feeds = {name: np.ones((rows, 2), np.float32) for name in ("x", "z")}
        assert_all_close(optimized.run(feeds), session(model).run(None, feeds))


def test_a_dim_that_other_inputs_determine_is_no_name() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        names (float["a//2"] x, float[a] z) => (float[m] y) { y = Concat<axis = 0>(x, z) }"""
    )
    optimized = dvm_graph.optimize(model)
    ones = np.ones(9, np.float32)
    assert optimized.run({"x": ones[:4], "z": ones})[0].shape == (13,)
    assert optimized.run({"x": ones[:3], "z": ones})[0].shape == (12,)  # which contradicts the name


def test_the_contents_of_a_sum_of_nothing() -> None:
    """How long its rows are was left to numpy, which cannot tell where there are none."""
    model = model_from_text(
        """empty () => (int64[a, b, c] y)
        <int64 two = {-2}, int64 one = {1}, int64[2] axes = {1, 2}>
        { r = Range(two, two, one) u = Unsqueeze(r, axes) y = MatMul(u, u) }"""
    )
    assert_same_bits(dvm_graph.optimize(model).run({}), session(model).run(None, {}))


DISPUTED = {
    "same": (
        'y = ConvTranspose<auto_pad = "SAME_UPPER", output_padding = [1, 1], strides = [2, 3]>(x, w)',
        21,
    ),
    "dilated": (
        'y, at = MaxPool<auto_pad = "SAME_UPPER", dilations = [2, 2], kernel_shape = [1, 2]>(x)',
        21,
    ),
    "named": ("s = Cast<to = 8>(x) p = Slice(s, one, six, two, one) y = Cast<to = 1>(p)", 10),
}


@pytest.mark.parametrize("case", DISPUTED)
def test_extents_of_which_onnx_says_otherwise_than_onnxruntime(case: str) -> None:
    """Every run failed: what onnx infers was held to be true of vendor operators."""
    body, opset = DISPUTED[case]
    model = model_from_text(
        f"""g (float[a, 1, c, d] x) => (float[e, f, g, h] y)
        <float[1, 1, 1, 3] w = {{1, -2, 3}}, int64[1] one = {{1}}, int64[1] two = {{2}},
        int64[1] six = {{6}}> {{ {body} }}""",
        opset=opset,
    )
    compiled = dvm_graph.optimize(model)
    for shape in ((2, 1, 5, 4), (1, 1, 1, 1), (1, 1, 7, 2)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert_same_bits(compiled.run({"x": x}), session(model).run(None, {"x": x}))


def test_what_only_strings_tell_of_dims_is_not_counted_on() -> None:
    """Every run failed: nobody sees the shape of strings, so nothing tells what M*M is."""
    model = model_from_text(
        """g (float[n, "M*M"] x, string[M] names) => (float[n, a] y, float[M] z) {
            y = Relu(x)
            z = Cast<to = 1>(names)
        }"""
    )
    compiled = dvm_graph.optimize(model)
    for m in (0, 1, 3):
        feeds = {"x": np.ones((2, m * m), np.float32), "names": np.array(["1"] * m, object)}
        assert_same_bits(compiled.run(feeds), session(model).run(None, feeds))


def test_extents_below_zero_of_what_a_reshape_stands_for() -> None:
    """Two of them multiplied gave a result elements that nothing wrote: the plan was refused over dims that no run has."""
    model = model_from_text(
        """g (int64[3] s, bool[e, f] u, float[a, b, c, d] x) => (bool[p, q, r] v, float[g, h] y) {
            v = Expand(u, s)
            z = AveragePool<kernel_shape = [3, 3]>(x)
            y = Flatten(z)
        }"""
    )
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    generator = np.random.default_rng(3)
    for shape in ((1, 2, 2, 2), (2, 3, 5, 4), (3, 1, 3, 3)):
        feeds = {
            "s": np.array([2, 3, 1]),
            "u": generator.random((3, 4)) < 0.5,
            "x": generator.standard_normal(shape, np.float32),
        }
        assert_all_close(mine.run(feeds), reference.run(None, feeds))


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(("end", "other"), [(-(2**63), -4), (2**63 - 1, -4), (-(2**63), 2**63 - 1)])
def test_extents_chosen_among_the_ends_of_integers(end: int, other: int, rows: int) -> None:
    """Of which the difference is none."""
    model = model_from_text(
        f"""g (float[n, 1] x) => (int64[1] v, float[m, 1] y)
        <int64 first = {{0}}, int64 five = {{5}}, int64[1] a = {{{end}}}, int64[1] b = {{{other}}},
         int64[1] zero = {{0}}> {{
            s = Shape(x) n = Gather(s, first) few = Less(n, five)
            v = Where(few, a, b)
            y = Slice(x, zero, v, zero)
        }}"""
    )
    feeds = {"x": np.arange(rows, dtype=np.float32).reshape(rows, 1)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_an_extent_that_is_given_is_not_told_by_later_ones() -> None:
    """A Reshape behind made the product of its extents what stood for the one of its operand."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 8]>
        g (float[t, b, 1] x, float[2, 12, 1] w, float[2, 12, 4] r, float[n, 2, 1, 4] z, bool c, int64[4] s, float[k] v)
            => (float[i, j, k, l] y, float[] o, float[m] a) <int64[4] more = {0, -1, 1, 1}, float[1] three = {3}> {
            o = If (c) <
                else_branch = other () => (float[] p) { p = Add(z, z) },
                then_branch = one () => (float[e, 2, 1, 4] q) {
                    q = GRU<direction = "bidirectional", hidden_size = 4, linear_before_reset = 1>(x, w, r)
                }
            >
            e = Add(more, s) y = Reshape(v, e)
            a = Add(v, three)
        }"""
    )
    generator = np.random.default_rng(0)
    shapes = {"x": (1, 1, 1), "w": (2, 12, 1), "r": (2, 12, 4), "z": (1, 2, 1, 4), "v": (6,)}
    feeds = {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    feeds |= {"c": np.array(True), "s": np.array([2, 0, 0, 0])}
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_a_buffer_that_is_written_before_its_extents_are_known() -> None:
    """A concat's first part was stored in a result whose shape the host told behind it."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[k, 1, c] x, int64[1] r, int64[3] s) => (int64[1, 7, 2] y)
        <int64[1] less = {-1}, int64[1] n = {13}, int64[1] zero = {0}, int64[3] more = {0, -1, 2}> {
            a = Add(less, r) flat = Reshape(x, a) v, i = TopK(flat, n)
            p = Concat<axis = -1>(r, i) q = Unsqueeze(p, zero)
            t = Add(more, s) y = Reshape(q, t)
        }"""
    )
    x = np.random.default_rng(0).standard_normal((5, 1, 3), np.float32)
    feeds = {"x": x, "r": np.array([0]), "s": np.array([0, 0, 0])}
    mine = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_same_bits(mine, session(model).run(None, feeds))
