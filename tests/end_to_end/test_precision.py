"""Operands of 16 bits: float16 and bfloat16 tensors, and products that round f32 operands to bfloat16.

The reference is numpy in float64 over operands that ml_dtypes rounded, so what is left are the order of
the sums in f32 and, of 16-bit results, the last rounding.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from numpy.typing import NDArray

import dvm_graph
from dvm_graph import _core
from dvm_graph.comparison import compare_output
from dvm_graph.errors import InputError
from tests.end_to_end.reference import parsed
from tests.tolerances import assert_close

Array = NDArray[Any]

BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
NAMES = {BF16: "bfloat16", F16: "float16", np.dtype(np.float32): "float"}
ROUNDING = {BF16: 2.0**-8, F16: 2.0**-11}
"""Half a unit in the last place, relative."""

ROWS = (1, 2, 13, 15, 29, 130)
SIZES = ((1, 1), (2, 31), (3, 33), (31, 17), (32, 32), (33, 15), (65, 63), (257, 70))
"""k odd and even, n around the lanes and panels."""

needs_bf16 = pytest.mark.skipif(
    _core.simd_levels()[0] not in _core.bf16_levels(),
    reason="the CPU has no products of bfloat16",
)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def rounded(array: Array) -> Array:
    return array.astype(BF16).astype(np.float64)


def run(proto: onnx.ModelProto, feeds: dict[str, Array], **options: Any) -> Array:
    return dvm_graph.optimize(proto, **options).run(feeds)[0]


def run_bf16(proto: onnx.ModelProto, feeds: dict[str, Array], **options: Any) -> Array | None:
    """None: an error, as it has to be where the CPU does not multiply bf16."""
    if _core.simd_levels()[0] in _core.bf16_levels():
        return run(proto, feeds, precision="bf16", **options)
    with pytest.raises(InputError, match="AVX512-BF16"):
        dvm_graph.optimize(proto, precision="bf16")
    return None


def assert_product(got: Array | None, a: Array, b: Array) -> None:
    """`got` is the product of the rounded operands but for the order of an f32 sum."""
    if got is None:
        return
    a, b = rounded(a), rounded(b)
    bound = np.abs(a) @ np.abs(b) * a.shape[-1] * 2.0**-24
    assert (np.abs(got - a @ b) <= bound + 1e-30).all()


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("k, n", SIZES)
def test_product_with_a_constant(m: int, k: int, n: int) -> None:
    a, w = normal(1, m, k), normal(2, k, n)
    proto = parsed(f"g (float[m, {k}] a) => (float[m, {n}] y) {{ y = MatMul(a, w) }}", w=w)
    assert_product(run_bf16(proto, {"a": a}), a, w)


@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("transposed", [False, True])
def test_product_of_two_inputs(m: int, transposed: bool) -> None:
    text = "g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul(a, b) }"
    if transposed:
        text = """g (float[k, m] a, float[n, k] b) => (float[m, n] y) {
            at = Transpose<perm = [1, 0]>(a) bt = Transpose<perm = [1, 0]>(b) y = MatMul(at, bt) }"""
    proto = parsed(text)
    for k, n in SIZES:
        a, b = normal(1, m, k), normal(2, k, n)
        feeds = {"a": a.T.copy(), "b": b.T.copy()} if transposed else {"a": a, "b": b}
        assert_product(run_bf16(proto, feeds), a, b)


@pytest.mark.parametrize("local_bytes", [None, 24 << 10])
def test_batched_product_in_blocks(local_bytes: int | None) -> None:
    a, w = normal(1, 3, 40, 1001), normal(2, 3, 1001, 65)
    proto = parsed(
        "g (float[3, m, 1001] a) => (float[3, m, 65] y) { y = MatMul(a, w) }",
        w=w,
    )
    assert_product(run_bf16(proto, {"a": a}, local_bytes=local_bytes), a, w)


def test_prologue_and_epilogue_stay_f32() -> None:
    a, w, bias = normal(1, 37, 65), normal(2, 65, 33), normal(3, 33)
    proto = parsed(
        """g (float[m, 65] a) => (float[m, 33] y) {
            r = Relu(a) p = MatMul(r, w) q = Add(p, bias) y = Mul(q, q) }""",
        w=w,
        bias=bias,
    )
    got = run_bf16(proto, {"a": a})
    if got is not None:
        want = (rounded(np.maximum(a, 0)) @ rounded(w) + bias) ** 2
        assert np.allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seq, other", [(1, 1), (1, 40), (17, 33), (64, 64), (70, 129)])
def test_attention(seq: int, other: int) -> None:
    """One kernel of two products, whose weights are rounded for the second before they are divided by their sum."""
    q, k, v = normal(1, 2, 3, seq, 16), normal(2, 2, 3, other, 16), normal(3, 2, 3, other, 16)
    proto = parsed(
        """g (float[b, 3, s, 16] q, float[b, 3, t, 16] k, float[b, 3, t, 16] v)
            => (float[b, 3, s, 16] y) {
            kt = Transpose<perm = [0, 1, 3, 2]>(k) scores = MatMul(q, kt)
            weights = Softmax<axis = -1>(scores) y = MatMul(weights, v) }"""
    )
    got = run_bf16(proto, {"q": q, "k": k, "v": v})
    if got is None:
        return
    scores = rounded(q) @ rounded(k).swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    total = weights.sum(axis=-1, keepdims=True)
    want = rounded(weights.astype(np.float32)) @ rounded(v) / total
    weights /= total
    # A weight next to the middle of two bf16 may be rounded either way.
    assert np.abs(got - want).max() <= 2.0**-8 * np.abs(weights @ np.abs(v)).max()
    mean = np.abs(got - want).mean()
    assert mean <= 2.0**-13 * np.abs(want).mean() + 1e-7


@pytest.mark.parametrize("channels, size", [(3, 9), (16, 7), (5, 1)])
def test_convolution(channels: int, size: int) -> None:
    x, w = normal(1, 2, channels, size, size), normal(2, 33, channels, 3, 3)
    proto = parsed(
        f"g (float[n, {channels}, h, w] x) => (float[n, 33, h, w] y) "
        "{ y = Conv<pads = [1, 1, 1, 1]>(x, f) }",
        f=w,
    )
    got = run_bf16(proto, {"x": x})
    if got is None:
        return
    padded = np.pad(rounded(x), ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + size, j : j + size], rounded(w)[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    assert np.allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("k", [64, 128])
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("resident", [True, False])
def test_behind_a_product_that_rounds_to_bytes(k: int, rows: int, resident: bool) -> None:
    """It reads its weights packed, which no product in bf16 does: the two are kernels of their own."""
    n, generator = 33, np.random.default_rng(k)
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
    g (float[m, {k}] a, uint8[{n}, {k // 64}, 32] w, float[{n}, {k // 64}] s, float[{n}, 5] b) => (float[m, 5] z)
    {{ y = com.microsoft.MatMulNBits<K={k}, N={n}, bits=4, block_size=64, accuracy_level=4>(a, w, s)
       t = Tanh(y) z = MatMul(t, b) }}""")
    feeds = {
        "w": generator.integers(0, 256, (n, k // 64, 32)).astype(np.uint8),
        "s": generator.random((n, k // 64)).astype(np.float32) / 16,
    }
    for name, array in feeds.items():  # constants
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        (given,) = (value for value in model.graph.input if value.name == name)
        model.graph.input.remove(given)
    a, b = normal(k, rows, k), normal(2, n, 5)
    limits = dvm_graph.FusionLimits(weigh_resident=resident)
    got = run_bf16(model, {"a": a, "b": b}, limits=limits)
    if got is None:
        return
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"a": a, "b": b})
    assert_close(got, expected, ml_dtypes.bfloat16, n)


def test_double_products_are_not_rounded() -> None:
    a, w = normal(1, 7, 33).astype(np.float64), normal(2, 33, 9).astype(np.float64)
    proto = parsed("g (double[m, 33] a) => (double[m, 9] y) { y = MatMul(a, w) }", w=w)
    got = run_bf16(proto, {"a": a})
    assert got is None or np.allclose(got, a @ w, rtol=1e-13, atol=1e-13)


def test_special_values_survive() -> None:
    a = np.array([[1, np.inf, 0], [np.nan, 0, 1], [-np.inf, 1, 1], [3e38, 3.4e38, 0]], np.float32)
    w = np.eye(3, dtype=np.float32)
    proto = parsed("g (float[m, 3] a) => (float[m, 3] y) { y = MatMul(a, w) }", w=w)
    got = run_bf16(proto, {"a": a})
    if got is not None:
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got, (rounded(a) @ rounded(w)).astype(np.float32))


@pytest.mark.parametrize("k", [1, 33, 1000])
def test_error_against_f32_is_that_of_the_operands(k: int) -> None:
    """The row for bf16 of the table of tolerances, against onnxruntime without any rounding."""
    a, w = normal(1, 40, k), normal(2, k, 50)
    proto = parsed(f"g (float[m, {k}] a) => (float[m, 50] y) {{ y = MatMul(a, w) }}", w=w)
    got = run_bf16(proto, {"a": a})
    if got is not None:
        want = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"a": a})[0]
        assert_close(got, want, BF16, k)
        assert (got != want).any()


def test_compare_judges_by_the_bounds_of_bf16() -> None:
    w = normal(2, 64, 50)
    proto = parsed("g (float[m, 64] a) => (float[m, 50] y) { y = MatMul(a, w) }", w=w)
    if not _core.bf16_levels():
        return
    result = dvm_graph.compare(proto, dims={"m": 30}, precision="bf16")
    assert result.passed and result.precision == "bf16"
    assert 1e-4 < result.outputs[0].max_relative_error < 1e-2
    plain = dvm_graph.compare(proto, dims={"m": 30})
    assert plain.passed and plain.outputs[0].max_relative_error < 1e-6
    actual, expected = np.float32([100.0, 1.0]), np.float32([100.0, 2.0])
    assert compare_output("y", actual, expected, "bf16").passed
    assert not compare_output("y", actual, expected).passed
    assert not compare_output("y", actual, np.float32([100.0, 9.0]), "bf16").passed


def test_unknown_precision() -> None:
    with pytest.raises(InputError, match="one of f32, stored, bf16, i8"):
        dvm_graph.Options(precision="fp16")


def test_levels_without_the_instructions_refuse() -> None:
    proto = parsed("g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul(a, b) }")
    for level in set(_core.simd_levels()) - set(_core.bf16_levels()):
        with pytest.raises(InputError, match="AVX512-BF16"):
            dvm_graph.optimize(proto, precision="bf16", simd=level)
        with pytest.raises(InputError, match="AVX512-BF16"):
            dvm_graph.optimize(proto, precision="stored", simd=level)


# -- float16 and bfloat16 tensors, multiplied in f32


@needs_bf16
def test_products_of_stored_bf16_multiply_these_and_others_f32() -> None:
    """Of the two products in each model one has operands of f32, which nothing is to be taken from."""
    a, b = normal(1, 17, 66), normal(2, 66, 35)
    text = "g (float[m, k] a, float[k, n] b) => (float[m, n] y, bfloat16[m, n] z) {"
    text += " y = MatMul(a, b) p = Cast<to = 16>(a) q = Cast<to = 16>(b) z = MatMul(p, q) }"
    model = dvm_graph.optimize(parsed(text), precision="stored")
    y, z = model.run({"a": a, "b": b})
    np.testing.assert_allclose(y, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    want = rounded(a) @ rounded(b)
    assert (np.abs(z.astype(np.float64) - want) <= ROUNDING[BF16] * np.abs(want) + 1e-3).all()
    listing = model.disassemble({"a": a, "b": b})
    products = [line.split()[0] for line in listing.splitlines() if "m_matmul" in line]
    assert set(products) == {"m_matmul_bundles_bf16", "m_matmul_f32"}


@pytest.mark.parametrize("precision", ["f32", pytest.param("stored", marks=needs_bf16)])
@pytest.mark.parametrize("dtype", [F16, BF16], ids=NAMES.get)
@pytest.mark.parametrize("m", ROWS)
@pytest.mark.parametrize("k, n", SIZES)
def test_half_weights(dtype: np.dtype[Any], m: int, k: int, n: int, precision: str) -> None:
    a, w = normal(1, m, k).astype(dtype), normal(2, k, n).astype(dtype)
    name = NAMES[dtype]
    proto = parsed(f"g ({name}[m, {k}] a) => ({name}[m, {n}] y) {{ y = MatMul(a, w) }}", w=w)
    got = run(proto, {"a": a}, precision=precision)
    assert got.dtype == dtype
    want = a.astype(np.float64) @ w.astype(np.float64)
    sums = np.abs(a.astype(np.float64)) @ np.abs(w.astype(np.float64)) * k * 2.0**-24
    # Half a unit of the result, at a number that may have been rounded up to the next power of two.
    bound = ROUNDING[dtype] * (np.abs(want) + sums) + sums + 2.0**-25
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


@pytest.mark.parametrize("simd", _core.simd_levels())
@pytest.mark.parametrize("dtype", [F16, BF16], ids=NAMES.get)
def test_half_weights_at_every_level(dtype: np.dtype[Any], simd: str) -> None:
    """Whole numbers, so that every sum is exact."""
    rng = np.random.default_rng(0)
    a, w = (rng.integers(-2, 3, shape).astype(dtype) for shape in ((19, 31), (31, 37)))
    name = NAMES[dtype]
    proto = parsed(f"g ({name}[m, 31] a) => ({name}[m, 37] y) {{ y = MatMul(a, w) }}", w=w)
    got = run(proto, {"a": a}, simd=simd)
    np.testing.assert_array_equal(
        got.astype(np.float32), a.astype(np.float32) @ w.astype(np.float32)
    )


def test_half_weights_take_half_the_memory() -> None:
    """And are read as they are: no panels of f32."""
    w = normal(1, 640, 640).astype(F16)
    proto = parsed("g (float16[m, 640] a) => (float16[m, 640] y) { y = MatMul(a, w) }", w=w)
    listing = dvm_graph.optimize(proto).disassemble({"a": np.ones((1, 640), F16)})
    assert "m_matmul_widen_f16" in listing
    assert f"in [0, {640 * 640 * 2})" in listing


@pytest.mark.parametrize("length", [0, 1, 7, 8, 15, 16, 17, 31, 33, 4097])
def test_element_wise_float16_as_onnxruntime(length: int) -> None:
    """Inf, NaN, subnormals and ties too; onnxruntime computes in float16, we round once at the end."""
    x = np.random.default_rng(3).integers(0, 1 << 16, length).astype(np.uint16).view(F16)
    proto = parsed("g (float16[n] x) => (float16[n] y) { y = Relu(x) }")
    proto.opset_import[0].version = 14
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    want = session.run(None, {"x": x})[0]
    got = run(proto, {"x": x})
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
    np.testing.assert_array_equal(got[~np.isnan(x)], want[~np.isnan(x)])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=NAMES.get)
@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 33, 4097, 1 << 17])
def test_every_half_survives_a_chain(dtype: np.dtype[Any], length: int) -> None:
    """x * 3 - 1 in f32, rounded once, of random bits; also in tiles and around the caches."""
    x = np.random.default_rng(5).integers(0, 1 << 16, length).astype(np.uint16).view(dtype)
    name = NAMES[dtype]
    three, one = np.array(3, dtype), np.array(1, dtype)
    proto = parsed(
        f"g ({name}[n] x) => ({name}[n] y) {{ t = Mul(x, three) y = Sub(t, one) }}",
        three=three,
        one=one,
    )
    got = run(proto, {"x": x})
    with np.errstate(all="ignore"):
        wide = x.astype(np.float32) * np.float32(3) - np.float32(1)
        want = wide.astype(dtype)
        # The device may fuse the product and the difference.
        fused = (x.astype(np.float64) * 3 - 1).astype(np.float32).astype(dtype)
    same = (got == want) | (got == fused) | (np.isnan(got) & np.isnan(want))
    assert same.all()
