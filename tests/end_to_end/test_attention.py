"""Attention in one kernel, over awkward extents, masks and groups of heads, against numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, parser

import dvm_graph
from dvm_graph.options import FusionLimits
from tests.end_to_end.reference import session
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]

ALWAYS = FusionLimits(weigh_resident=False)
EXTENTS = (
    (1, 1, 1), (2, 1, 33), (1, 13, 64), (3, 14, 15), (2, 29, 31), (1, 65, 127), (1, 128, 257),
    (2, 0, 5), (2, 3, 0), (0, 4, 4),
)  # fmt: skip
"""Batch, queries, keys."""


@dataclass(frozen=True)
class Heads:
    """Query heads, heads of keys and values, sizes of keys and of values."""

    query: int
    shared: int
    size: int
    width: int


HEADS = (Heads(3, 3, 8, 8), Heads(4, 2, 31, 5), Heads(6, 1, 1, 33), Heads(2, 2, 64, 64))

MASKS = {
    "none": "masked = Identity(scores)",
    "additive": "masked = Add(scores, bias)",
    "boolean": "masked = Where(seen, scores, hidden)",
    "causal": """
        q_shape = Shape<start = 2, end = 3>(scores) k_shape = Shape<start = 3, end = 4>(scores)
        q_length = Squeeze(q_shape) k_length = Squeeze(k_shape)
        rows = Range(zero, q_length, one) columns = Range(zero, k_length, one)
        rows_of = Unsqueeze(rows, last) seen_causal = LessOrEqual(columns, rows_of)
        masked = Where(seen_causal, scores, hidden)""",
}


def attention(heads: Heads, mask: str, dtype: str = "float") -> ModelProto:
    """Rows without a key to see become zeros, as exports of torch write it."""
    group = heads.query // heads.shared
    q, k, v = heads.query * heads.size, heads.shared * heads.size, heads.shared * heads.width
    return parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
    g ({dtype}[b, s, {q}] q, {dtype}[b, t, {k}] k, {dtype}[b, t, {v}] v,
       {dtype}[b, 1, 1, t] bias, bool[b, 1, s, t] seen) => ({dtype}[b, s, {heads.query * heads.width}] y)
    <int64[4] q_heads = {{0, 0, {heads.query}, {heads.size}}},
     int64[4] k_heads = {{0, 0, {heads.shared}, {heads.size}}},
     int64[4] v_heads = {{0, 0, {heads.shared}, {heads.width}}},
     int64[1] axis = {{2}}, int64[1] last = {{-1}}, int64 zero = {{0}}, int64 one = {{1}},
     int64[5] groups = {{1, 1, {group}, 1, 1}},
     int64[4] all_k = {{0, {heads.query}, {heads.size}, -1}},
     int64[4] all_v = {{0, {heads.query}, -1, {heads.width}}},
     int64[3] flat = {{0, 0, {heads.query * heads.width}}},
     float lowest = {{-inf}}, float nothing = {{0}}, float half = {{0.5}}>
    {{
        hidden = Cast<to = {_NUMBER[dtype]}>(lowest) empty = Cast<to = {_NUMBER[dtype]}>(nothing)
        factor = Cast<to = {_NUMBER[dtype]}>(half)
        q_split = Reshape(q, q_heads) q_rows = Transpose<perm = [0, 2, 1, 3]>(q_split)
        k_split = Reshape(k, k_heads) k_rows = Transpose<perm = [0, 2, 3, 1]>(k_split)
        v_split = Reshape(v, v_heads) v_rows = Transpose<perm = [0, 2, 1, 3]>(v_split)
        k_grouped = Unsqueeze(k_rows, axis) k_wide = Expand(k_grouped, groups)
        v_grouped = Unsqueeze(v_rows, axis) v_wide = Expand(v_grouped, groups)
        k_full = Reshape<allowzero = 0>(k_wide, all_k) v_full = Reshape<allowzero = 0>(v_wide, all_v)
        raw = MatMul(q_rows, k_full) scores = Mul(raw, factor)
        {MASKS[mask]}
        weights = Softmax<axis = -1>(masked)
        unseen = IsNaN(weights) kept = Where(unseen, empty, weights)
        mixed = MatMul(kept, v_full)
        mixed_rows = Transpose<perm = [0, 2, 1, 3]>(mixed) y = Reshape(mixed_rows, flat)
    }}""")


_NUMBER = {"float": 1, "float16": 10, "double": 11, "bfloat16": 16}
_NUMPY = {
    "float": np.float32,
    "float16": np.float16,
    "double": np.float64,
    "bfloat16": ml_dtypes.bfloat16,
}


def draw(heads: Heads, extents: tuple[int, int, int], dtype: str, seed: int) -> dict[str, Array]:
    """Inputs; some queries see no key at all."""
    b, s, t = extents
    generator = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return generator.standard_normal(shape).astype(_NUMPY[dtype])

    seen = generator.random((b, 1, s, t)) < 0.7
    seen[:, :, s // 2 : s // 2 + 1] = False
    bias = np.where(generator.random((b, 1, 1, t)) < 0.3, -np.inf, 0.25).astype(_NUMPY[dtype])
    bias[b // 2 :] = -np.inf
    q, k = normal(b, s, heads.query * heads.size), normal(b, t, heads.shared * heads.size)
    v = normal(b, t, heads.shared * heads.width)
    return {"q": q, "k": k, "v": v, "bias": bias, "seen": seen}


def expected(heads: Heads, mask: str, feeds: dict[str, Array]) -> Array:
    """In float64, with keys and values repeated for every head."""
    wide = {name: x.astype(np.float64) for name, x in feeds.items() if x.dtype != bool}
    b, s, _ = wide["q"].shape
    t = wide["k"].shape[1]
    group = heads.query // heads.shared
    q = wide["q"].reshape(b, s, heads.query, heads.size).transpose(0, 2, 1, 3)
    k = wide["k"].reshape(b, t, heads.shared, heads.size).transpose(0, 2, 3, 1)
    v = wide["v"].reshape(b, t, heads.shared, heads.width).transpose(0, 2, 1, 3)
    scores = q @ np.repeat(k, group, 1) * 0.5
    if mask == "additive":
        scores = scores + wide["bias"]
    elif mask == "boolean":
        scores = np.where(feeds["seen"], scores, -np.inf)
    elif mask == "causal":
        scores = np.where(np.tri(s, t, dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    weights = np.divide(powers, total, out=np.zeros_like(powers), where=total > 0)
    mixed = weights @ np.repeat(v, group, 1)
    return mixed.transpose(0, 2, 1, 3).reshape(b, s, heads.query * heads.width)


def check(heads: Heads, mask: str, dtype: str = "float", **options: Any) -> None:
    model = dvm_graph.optimize(attention(heads, mask, dtype), limits=ALWAYS, strict=True, **options)
    for seed, extents in enumerate(EXTENTS):
        feeds = draw(heads, extents, dtype, seed)
        (got,) = model.run(feeds)
        want = expected(heads, mask, feeds).astype(_NUMPY[dtype])
        assert_close(got, want, reduction_length=max(heads.size * 4, extents[2]))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", HEADS, ids=str)
def test_equals_numpy(heads: Heads, mask: str) -> None:
    check(heads, mask)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "double"])
def test_other_dtypes(dtype: str) -> None:
    check(HEADS[1], "additive", dtype)


@pytest.mark.parametrize("local_bytes", [4096, 20000, 70000])
def test_little_local_memory(local_bytes: int) -> None:
    """Keys and values that do not stay, rows that hardly fit, and rows that do not."""
    check(HEADS[3], "boolean", local_bytes=local_bytes)


@pytest.mark.parametrize("mask", MASKS)
def test_the_scores_are_never_in_memory(mask: str) -> None:
    heads = HEADS[1]
    model = dvm_graph.optimize(attention(heads, mask), limits=ALWAYS, strict=True)
    feeds = draw(heads, (2, 40, 300), "float", 0)
    model.run(feeds)
    assert model.statistics.fallbacks == 0
    assert model.statistics.arena_bytes < 2 * heads.query * 40 * 300 * 4


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_scores_that_are_not_finite(dtype: str, guarded: bool) -> None:
    """Rows with NaN, +inf, or nothing but -inf give NaN, or 0 where exporters guard against it."""
    guard = "unseen = IsNaN(w) p = Where(unseen, empty, w)" if guarded else "p = Identity(w)"
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
    g ({dtype}[s, t] x, {dtype}[t, 7] v) => ({dtype}[s, 7] y) <{dtype} empty = {{0}}>
    {{ w = Softmax<axis = -1>(x) {guard} y = MatMul(p, v) }}""")
    model = dvm_graph.optimize(proto, limits=ALWAYS, strict=True)
    generator = np.random.default_rng(0)
    for keys in (1, 2, 15, 16, 17, 31, 64, 65, 257):
        x = generator.standard_normal((9, keys)).astype(_NUMPY[dtype])
        x[1], x[2], x[3] = -np.inf, np.inf, np.nan
        x[4, keys // 2], x[5, keys // 2], x[6, keys // 2] = np.nan, np.inf, -np.inf
        x[7, : keys // 2], x[7, -1] = -np.inf, np.nan
        x[8] = -np.finfo(x.dtype).max
        feeds = {"x": x, "v": generator.standard_normal((keys, 7)).astype(x.dtype)}
        assert_close(
            model.run(feeds)[0], session(proto).run(None, feeds)[0], reduction_length=4 * keys
        )


_WEIGHTS = "y, past, present, weights = Attention<qk_matmul_output_mode = 3>(q, k, v)"
_TURNS = f"""y, weights = Loop (two, on) <body = b (int64 turn, bool o) => (bool on2, float[] y, float[] weights) {{
  on2 = Identity(o) {_WEIGHTS}
}}>"""


@pytest.mark.parametrize("body", [_WEIGHTS, _TURNS])
def test_weights_of_queries_of_unknown_rank(body: str) -> None:
    """onnx's inference says of them that they have no axes."""
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 23]>
    g (float[] q, float[] k, float[] v) => (float[] y, float[] weights) <int64 two = {{2}}, bool on = {{1}}> {{ {body} }}""")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.ClearField("shape")
    random = np.random.default_rng(3)
    shapes = {"q": (2, 3, 4, 8), "k": (2, 3, 6, 8), "v": (2, 3, 6, 8)}
    feeds = {name: random.standard_normal(s, np.float32) for name, s in shapes.items()}
    expected = session(model).run(None, feeds)
    for mine, theirs in zip(dvm_graph.optimize(model).run(feeds), expected, strict=True):
        assert_close(mine, theirs)
