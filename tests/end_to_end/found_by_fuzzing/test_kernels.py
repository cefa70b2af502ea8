"""Small models that random graphs once broke: views, copies and products as kernels."""

from __future__ import annotations

import warnings

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


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("rows", [1000, 1 << 18, (1 << 20) + 1])
def test_a_copy_to_scattered_places_fits_local_memory(dtype: str, rows: int) -> None:
    """The tiles of a kernel that only loads and stores were taken to need no local memory."""
    text = f"pairs ({dtype}[n, 1] x) => ({dtype}[n, 2] y) {{ y = Concat<axis = 1>(x, x) }}"
    x = (np.arange(rows) % 100).reshape(rows, 1).astype(dtype)
    (y,) = dvm_graph.optimize(model_from_text(text)).run({"x": x})
    assert_same_bits([y], [np.concatenate([x, x], axis=1)])


FLAT = """flat (float[n, 6] x) => (float[4] y)
<int64[1] all = {-1}, int64[1] start = {1}, int64[1] stop = {5}, int64[1] axis = {0}> {
    columns = Transpose<perm = [1, 0]>(x)
    flat = Reshape(columns, all)
    part = Slice(flat, start, stop, axis)
    y = Tanh(part)
}"""


@pytest.mark.parametrize("disabled", [(), ("absorb_views",)])
def test_a_slice_of_a_view_that_strides_cannot_say(disabled: tuple[str, ...]) -> None:
    """The slice was fused with the reshape, and read a buffer that nobody had written."""
    model = dvm_graph.optimize(model_from_text(FLAT), disable_passes=frozenset(disabled))
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    (y,) = model.run({"x": x})
    np.testing.assert_allclose(y, np.tanh(x.T.reshape(-1)[1:5]), rtol=1e-6)


@pytest.mark.parametrize(("k", "n"), [(0, 3), (3, 0), (0, 0)])
def test_a_constant_matrix_without_elements(k: int, n: int) -> None:
    """Its panels had no address, and were taken for missing."""
    model = model_from_text(
        f"empty (float[m, {k}] x) => (float[m, {n}] y) <float[{k}, {n}] w = {{}}> {{ y = MatMul(x, w) }}"
    )
    (y,) = dvm_graph.optimize(model).run({"x": np.ones((2, k), np.float32)})
    np.testing.assert_array_equal(y, np.zeros((2, n)))


@pytest.mark.parametrize("shape", [(2, 1, 3), (5, 7, 40), (64, 33, 129)])
@pytest.mark.parametrize("fuse", [True, False])
def test_what_a_store_computes_anew_is_not_written_over(shape: tuple[int, ...], fuse: bool) -> None:
    """The first result was written over the operand, and the sum computed from it again for the second."""
    model = model_from_text(
        """g (float16[a, b, c] x) => (float16[a, c, b] turned, float16[a, b, c] log)
        <float16[1] one = {15360}> {
            size = Abs(x)
            sum = Add(size, one)
            log = Log(sum)
            turned = Transpose<perm = [0, 2, 1]>(sum)
        }"""
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    turned, log = dvm_graph.optimize(model, fuse=fuse).run({"x": x})
    assert_same_bits([turned], [(abs(x) + np.float16(1)).transpose(0, 2, 1)])
    assert_all_close([log], [np.log(abs(x) + np.float16(1))])


def test_a_constant_that_the_compiler_finds_is_seen_through_a_view() -> None:
    """Nothing is infinite for a test that looks for neither infinity; the view had axes the kernel lacks."""
    model = model_from_text(
        """g (float[n, m] x) => (bool[2, k, m] y) <int64[3] two = {2, 1, 1}, int64[6] pads = {0, 1, 0, 0, 0, 0}> {
            i = IsInf<detect_negative = 0, detect_positive = 0>(x)
            e = Expand(i, two)
            y = Pad<mode = "edge">(e, pads)
        }"""
    )
    x = np.array([[np.inf, 1.0, 2.0]], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, np.zeros((2, 2, 3), bool))


@pytest.mark.parametrize("tail", ["y = Add(m, h)", "s = Relu(m) y = Sub(h, s)"])
def test_the_one_column_of_a_product_behind_the_next(tail: str) -> None:
    """Read at an extent of 1, it did not seem to vary along what the second product contracts."""
    model = model_from_text(
        f"""g (float[?, ?] x, float[k, 1] v, float[1, n] w) => (float[?, ?] y) {{
            p = MatMul(x, v)
            h = HardSigmoid(p)
            m = MatMul(p, w)
            {tail}
        }}"""
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        mine = dvm_graph.optimize(model, check=True)
    generator = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (3, 4, 5), (17, 2, 1), (40, 33, 70)):
        feeds = {
            name: generator.standard_normal(shape, np.float32)
            for name, shape in (("x", (m, k)), ("v", (k, 1)), ("w", (1, n)))
        }
        assert_all_close(mine.run(feeds), session(model).run(None, feeds), 8)


@pytest.mark.parametrize("number", [2.0, -0.0, float("nan")])
def test_products_of_one_number_share_its_rows(number: float) -> None:
    """Each read a node of its own, and the plan was refused."""
    model = model_from_text(
        f"""g (float[m] x, float[5, 7] u, float[5, 7] w) => (float[m, 7] y)
        <int64[1] five = {{5}}, float c = {{{number}}}> {{
            n = Shape(x) s = Concat<axis = 0>(n, five)
            a = Expand(c, s)
            p = MatMul(a, u) q = MatMul(a, w) y = Mul(p, q)
        }}"""
    )
    generator = np.random.default_rng(0)
    u, w = (generator.standard_normal((5, 7), np.float32) for _ in "uw")
    compiled = dvm_graph.optimize(model, strict=True)
    for rows in (1, 3, 0, 70):
        feeds = {"x": np.zeros(rows, np.float32), "u": u, "w": w}
        assert_all_close(compiled.run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("extent", ["3", "n"])
def test_views_of_a_square_that_end_in_one_loop(extent: str) -> None:
    """The fuser bound an axis to itself by way of another, and followed it for ever."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[{extent}, {extent}, {extent}, {extent}] x, float[{extent}] w) => (float[{extent}, {extent}, 1, 1] y)
        <int64[4] rows = {{0, 0, 1, -1}}, int64[1] axis = {{2}}> {{
            p = Mul(x, w)
            a = Reshape(p, rows) l = ReduceMax(a, axis)
            t = Transpose<perm = [0, 1, 3, 2]>(p) b = Reshape(t, rows) r = ReduceMax(b, axis)
            y = Mul(l, r)
        }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    generator = np.random.default_rng(0)
    feeds = {
        "x": generator.standard_normal((3, 3, 3, 3), np.float32),
        "w": generator.standard_normal(3, np.float32),
    }
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))
