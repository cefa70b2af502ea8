"""What a part does in f16 itself, against numpy, which rounds each f16 operation; and what it does in f32."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import parser

import dvm_graph
from dvm_graph.errors import InputError
from dvm_graph.npu.spec import find_spec
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]
PART = "ascend910b2"
HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
PAIR = "g (float16[n] x, float16[n] y) => (float16[n] o)"
BINARY = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Min": np.minimum,
    "Max": np.maximum,
}
COMPARE = {
    "Equal": np.equal, "Less": np.less, "LessOrEqual": np.less_equal, "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip


@functools.cache
def model(graph: str, device: str = PART, queues: str = "in_order") -> dvm_graph.Model:
    return dvm_graph.optimize(parser.parse_model(HEAD + graph), device=device, queues=queues)


def pairs() -> tuple[Array, Array]:
    """Every pair of f16 numbers that are odd in some way, and random ones."""
    info = np.finfo(np.float16)
    odd = [0.0, 0.5, 1.0, 1 + float(info.eps), 3.0, 0.1, 2048.0, 2049.0, float(info.max), 6e-8]
    odd += [float(info.tiny), float(info.smallest_subnormal), np.inf]
    x = np.array([*odd, *(-number for number in odd), np.nan], np.float16)
    bits = np.random.default_rng(3).integers(0, 1 << 16, (2, 4000), np.uint16).view(np.float16)
    left, right = (grid.reshape(-1) for grid in np.meshgrid(x, x))
    return np.concatenate([left, bits[0]]), np.concatenate([right, bits[1]])


def same(actual: Array, expected: Array) -> None:
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("op", BINARY)
def test_binary(op: str) -> None:
    x, y = pairs()
    part = model(f"{PAIR} {{ o = {op}(x, y) }}")
    text = part.disassemble({"x": x, "y": y})
    assert f"v_{op.lower()}_f16" in text and "_f32" not in text
    with np.errstate(all="ignore"):
        same(part.run({"x": x, "y": y})[0], BINARY[op](x, y))


@pytest.mark.parametrize("op", COMPARE)
def test_comparisons_and_choices(op: str) -> None:
    x, y = pairs()
    part = model(f"{PAIR} {{ c = {op}(x, y) n = Neg(x) a = Abs(y) o = Where(c, n, a) }}")
    text = part.disassemble({"x": x, "y": y})
    for name in ("v_select_f16", "v_neg_f16", "v_abs_f16"):
        assert name in text
    assert "_f32" not in text
    with np.errstate(all="ignore"):
        same(part.run({"x": x, "y": y})[0], np.where(COMPARE[op](x, y), -x, np.abs(y)))


def test_each_result_is_rounded() -> None:
    """The paper's if-else-add, with a factor that f16 lacks."""
    graph = f"{PAIR} {{ f = Constant<value_float=0.1>() h = Cast<to=10>(f) t = Mul(x, h) o = Add(t, y) }}"
    x, y = pairs()
    part = model(graph)
    assert "_f32" not in part.disassemble({"x": x, "y": y})
    with np.errstate(all="ignore"):
        same(part.run({"x": x, "y": y})[0], x * np.float16(0.1) + y)


def test_rows_columns_and_numbers_are_broadcast() -> None:
    graph = (
        "g (float16[m,n] x, float16[n] r, float16[m,1] c) => (float16[m,n] o, float16[m] p)"
        " { s = Add(x, r) o = Mul(c, s) a = Constant<value_ints=[-1]>() p = ReduceMax<keepdims=0,axes=[-1]>(o) }"
    ).replace(" a = Constant<value_ints=[-1]>()", "")
    random = np.random.default_rng(1)
    x, r, c = (
        random.standard_normal(shape).astype(np.float16) for shape in ((37, 131), 131, (37, 1))
    )
    given = {"x": x, "r": r, "c": c}
    part = model(graph)
    assert "v_reduce_max_f16" in part.disassemble(given)
    expected = c * (x + r)
    for queues in ("in_order", "adversarial"):
        o, p = model(graph, PART, queues).run(given)
        same(o, expected)
        same(p, expected.max(axis=-1))


def test_what_is_moved_stays_as_it_is() -> None:
    graph = (
        "g (float16[m,n] x, int64[k] i) => (float16[n,m] t, float16[k,n] o)"
        " { t = Transpose<perm=[1,0]>(x) o = Gather(x, i) }"
    )
    bits = np.random.default_rng(2).integers(0, 1 << 16, (45, 70), np.uint16)
    x, i = bits.view(np.float16), np.array([3, -1, 44, -45, 3])
    part = model(graph)
    assert "_f32" not in part.disassemble({"x": x, "i": i})
    t, o = part.run({"x": x, "i": i})
    same(t.view(np.uint16), bits.T)
    same(o.view(np.uint16), bits[i])
    with pytest.raises(dvm_graph.errors.DvmError, match="45"):
        part.run({"x": x, "i": np.array([45])})


@pytest.mark.parametrize(
    "body",
    [
        "e = Exp(x) o = Add(e, y)",
        "s = Add(x, y) o = Tanh(s)",
        "s = Mul(x, y) o = Div(s, x)",
        "s = Add(x, y) o = ReduceSum<keepdims=1>(s)",
    ],
)
def test_chains_with_what_is_done_in_f32_are_rounded_once(body: str) -> None:
    """As on the host, which has f32 only."""
    graph = f"{PAIR} {{ {body} }}"
    random = np.random.default_rng(4)
    given = {name: random.standard_normal(301).astype(np.float16) for name in "xy"}
    text = model(graph).disassemble(given)
    assert "v_cast_to_f32_f16" in text and "v_cast_from_f32_f16" in text
    assert "v_add_f16" not in text and "v_mul_f16" not in text
    (expected,) = model(graph, "").run(given)
    (actual,) = model(graph).run(given)
    assert_close(actual, expected, reduction_length=301)


def test_numbers_that_f16_has_not() -> None:
    """A bound beyond its largest number, of a model that means none, is none."""
    graph = (
        f"{PAIR} {{ w = Cast<to=1>(x) b = Constant<value_float=1e9>() m = Min(w, b) h = Cast<to=10>(m)"
        " o = Add(h, y) }"
    )
    x, y = pairs()
    with np.errstate(all="ignore"):
        same(model(graph).run({"x": x, "y": y})[0], x.clip(max=np.inf) + y)


def test_bf16_is_cast_and_computed_in_f32() -> None:
    graph = "g (bfloat16[n] x, bfloat16[n] y) => (bfloat16[n] o) { s = Add(x, y) o = Mul(s, y) }"
    random = np.random.default_rng(5)
    x, y = (random.standard_normal(300).astype(ml_dtypes.bfloat16) for _ in "xy")
    part = model(graph)
    text = part.disassemble({"x": x, "y": y})
    assert "d_load_stored_bf16" in text and "v_cast_to_f32_bf16" in text and "v_add_f32" in text
    wide = (x.astype(np.float32) + y.astype(np.float32)) * y.astype(np.float32)
    same(part.run({"x": x, "y": y})[0], wide.astype(ml_dtypes.bfloat16))


def test_half_the_bytes_and_twice_the_elements() -> None:
    """Tiles of f16 hold twice the elements of f32 ones, and the unit needs half the cycles."""
    dims = {"n": 1 << 24}
    graph = "g ({0}[n] x, {0}[n] y) => ({0}[n] o) {{ s = Add(x, y) t = Mul(s, x) o = Sub(t, y) }}"
    busy = {}
    for dtype in ("float16", "float"):
        found = dvm_graph.optimize(parser.parse_model(HEAD + graph.format(dtype))).simulate(
            dims=dims, npu=PART
        )
        busy[dtype] = found.device_seconds
    assert busy["float16"] == pytest.approx(busy["float"] / 2, rel=0.1)


def test_a_part_says_what_it_does_in_f16(tmp_path: Path) -> None:
    number = 'source = ["A"], confidence = "low"'
    head = 'name = "mine"\nbase = "ascend910b2"\n[sources]\nA = "a remark of nobody in particular"\n[f16]\n'
    path = tmp_path / "mine.toml"
    path.write_text(f"{head}v_add = {{ value = false, {number} }}\n", encoding="utf-8")
    x, y = pairs()
    text = model(f"{PAIR} {{ o = Add(x, y) }}", str(path)).disassemble({"x": x, "y": y})
    assert "v_add_f32" in text
    path = tmp_path / "odd" / "mine.toml"
    path.parent.mkdir()
    path.write_text(f"{head}v_cast_to_f32 = {{ value = false, {number} }}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"in f16, but has no f16\.v_cast_to_f32"):
        find_spec(path)
    path = tmp_path / "unknown" / "mine.toml"
    path.parent.mkdir()
    path.write_text(f"{head}v_exp = {{ value = true, {number} }}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"f16\.v_exp is no number of a part"):
        find_spec(path)
