"""Matrix products with fewer tiles than cores, split along k: against numpy in float64 and onnxruntime.

Elements are -1, 0 or 1, so that sums are exact in any order and in every storage dtype, unless a test says otherwise.
Depths are no multiples of a piece; 20,011 is a prime.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray

import dvm_graph
from dvm_graph import _core
from tests.end_to_end.reference import assert_all_close, assert_same_bits, parsed, session

Array = NDArray[Any]

SHAPES = ((1, 1, 150_001), (1, 32, 20_011), (4, 16, 16_384), (14, 31, 20_011), (3, 70, 20_010))
"""(m, n, k)."""


def signs(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(dtype)


def run_split(proto: onnx.ModelProto, feeds: dict[str, Array], **options: Any) -> list[Array]:
    """The outputs; the product was done in pieces, the same way at every run."""
    compiled = dvm_graph.optimize(proto, **{"cores": 12, **options})
    dims = {
        dim.dim_param: extent
        for value in proto.graph.input
        for dim, extent in zip(
            value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True
        )
        if dim.dim_param
    }
    text = "".join(listing.text for listing in compiled.listings(dims))
    assert "m_matmul" in text and "workspace" in text
    outputs = list(compiled.run(feeds))
    assert_same_bits(list(compiled.run(feeds)), outputs)
    return outputs


@pytest.mark.parametrize("b", ["input", "constant", "transposed"])
@pytest.mark.parametrize("m, n, k", SHAPES)
def test_operand_b(b: str, m: int, n: int, k: int) -> None:
    left, right = signs(1, m, k), signs(2, k, n)
    feeds = {"a": left}
    if b == "constant":
        text, constants = (
            f"g (float[m, {k}] a) => (float[m, {n}] y) {{ y = MatMul(a, b) }}",
            {"b": right},
        )
    else:
        constants = {}
        text = "g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul(a, b) }"
        feeds["b"] = right
    if b == "transposed":
        text = """g (float[m, k] a, float[n, k] b) => (float[m, n] y) {
            t = Transpose<perm = [1, 0]>(b) y = MatMul(a, t) }"""
        feeds["b"] = np.ascontiguousarray(right.T)
    [y] = run_split(parsed(text, **constants), feeds)
    np.testing.assert_array_equal(y, left.astype(np.float64) @ right.astype(np.float64))


@pytest.mark.parametrize("constant", [False, True])
def test_batch(constant: bool) -> None:
    left, right = signs(1, 2, 3, 9_001), signs(2, 2, 9_001, 20)
    if constant:
        text = "g (float[b, m, 9001] a) => (float[b, m, 20] y) { y = MatMul(a, b) }"
        proto, feeds = parsed(text, b=right), {"a": left}
    else:
        text = "g (float[b, m, k] a, float[b, k, n] b) => (float[b, m, n] y) { y = MatMul(a, b) }"
        proto, feeds = parsed(text), {"a": left, "b": right}
    [y] = run_split(proto, feeds)
    np.testing.assert_array_equal(y, left.astype(np.float64) @ right.astype(np.float64))


@pytest.mark.parametrize("cores", [2, 3, 16])
def test_epilogue(cores: int) -> None:
    """Operators and a second output behind the sum; elements have a normal distribution."""
    k = 20_011
    generator = np.random.default_rng(3)
    feeds = {
        name: generator.standard_normal(shape).astype(np.float32)
        for name, shape in {"a": (4, k), "b": (k, 16), "r": (4, 16)}.items()
    }
    proto = parsed(
        """g (float[m, k] a, float[k, 16] b, float[m, 16] r) => (float[m, 16] y, float[m, 16] c) {
            c = MatMul(a, b) s = Add(c, bias) t = Relu(s) y = Add(t, r) }""",
        bias=generator.standard_normal(16).astype(np.float32),
    )
    outputs = run_split(proto, feeds, cores=cores)
    assert_all_close(outputs, session(proto).run(None, feeds), k)


@pytest.mark.parametrize("m, n, k", [(4, 16, 16_384), (1, 32, 20_011)])
def test_row_values_of_a(m: int, n: int, k: int) -> None:
    """Sums over whole rows of A, which the epilogue uses: each piece would have its own."""
    left, right = signs(1, m, k, dtype=np.float16) + np.float16(0.5), signs(2, k, n)
    proto = parsed(
        """g (float16[m, k] a, float[k, n] b) => (float[m, n] y) {
            wide = Cast<to = 1>(a) total = ReduceSum(wide, last)
            c = MatMul(wide, b) y = Mul(c, total) }""",
        last=np.array([-1]),
    )
    outputs = dvm_graph.optimize(proto, cores=5).run({"a": left, "b": right})
    expected = (left.astype(np.float64) @ right) * left.astype(np.float64).sum(-1, keepdims=True)
    assert_all_close(list(outputs), [expected.astype(np.float32)], 2 * k)


def test_one_core_and_many() -> None:
    """The sums are in another order, not of other terms."""
    text = "g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul(a, b) }"
    feeds = {"a": signs(1, 4, 16_411), "b": signs(2, 16_411, 16)}
    alone = list(dvm_graph.optimize(parsed(text), cores=1).run(feeds))
    assert_same_bits(run_split(parsed(text), feeds), alone)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("constant", [False, True])
def test_narrow_storage(dtype: Any, constant: bool) -> None:
    left, right = signs(1, 4, 20_011, dtype=dtype), signs(2, 20_011, 16, dtype=dtype)
    name = "float16" if dtype is np.float16 else "bfloat16"
    if constant:
        text = f"g ({name}[m, 20011] a) => ({name}[m, 16] y) {{ y = MatMul(a, b) }}"
        proto, feeds = parsed(text, b=right), {"a": left}
    else:
        text = f"g ({name}[m, k] a, {name}[k, n] b) => ({name}[m, n] y) {{ y = MatMul(a, b) }}"
        proto, feeds = parsed(text), {"a": left, "b": right}
    expected = (left.astype(np.float64) @ right.astype(np.float64)).astype(dtype)
    np.testing.assert_array_equal(run_split(proto, feeds)[0], expected)


@pytest.mark.skipif(
    _core.simd_levels()[0] not in _core.bf16_levels(), reason="the CPU does not multiply bf16"
)
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("k", [60_010, 60_011])
def test_rounded_operands(constant: bool, k: int) -> None:
    left, right = signs(1, 4, k), signs(2, k, 16)
    if constant:
        text = f"g (float[m, {k}] a) => (float[m, 16] y) {{ y = MatMul(a, b) }}"
        proto, feeds = parsed(text, b=right), {"a": left}
    else:
        text = "g (float[m, k] a, float[k, n] b) => (float[m, n] y) { y = MatMul(a, b) }"
        proto, feeds = parsed(text), {"a": left, "b": right}
    [y] = run_split(proto, feeds, precision="bf16")
    np.testing.assert_array_equal(y, left.astype(np.float64) @ right.astype(np.float64))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float"])
def test_a_product_that_no_block_of_fits_is_split(dtype: str) -> None:
    """Rows of half types are widened in local memory, all of k; more tiles than cores, so nothing else splits it."""
    proto = parsed(
        f"""g ({dtype}[a, b, c] x, {dtype}[a, b, c] y) => ({dtype}[a] z) {{
            p = Einsum<equation = "abc,abc->a">(x, y) z = Neg(p)
        }}"""
    )
    kind = {"float": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    x, y = (signs(seed, 3, 131, 1021, dtype=kind) for seed in (1, 2))
    compiled = dvm_graph.optimize(proto, cores=1)
    (z,) = compiled.run({"x": x, "y": y})
    exact = -np.einsum("abc,abc->a", x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_array_equal(
        np.asarray(z).astype(np.float64), exact.astype(kind).astype(np.float64)
    )
