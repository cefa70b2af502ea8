"""Attention, of the standard and of onnxruntime, and what goes with it: rotated positions, caches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.operands import add_contrib, contrib, contrib_results, extents, maybe
from tests.fuzz.registry import CONTRIB, GATHER, OTHER, PRODUCT, recipe, types

FLOAT, FLOAT16, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
INT8, UINT8 = TensorProto.INT8, TensorProto.UINT8
BFLOAT16, BOOL, INT32, INT64 = (
    *(TensorProto.BFLOAT16, TensorProto.BOOL),
    *(TensorProto.INT32, TensorProto.INT64),
)


def _shapes(*dims: int | Sequence[int]) -> list[Shape]:
    """One for each environment: numbers as they are, or one for each."""
    breadth = next(len(dim) for dim in dims if not isinstance(dim, int))
    return [tuple(d if isinstance(d, int) else d[e] for d in dims) for e in range(breadth)]


@recipe("Attention", kind=PRODUCT, weight=2)
def attention(g: Growth) -> Value:
    dtype = g.choose((FLOAT, FLOAT, FLOAT16, DOUBLE, BFLOAT16))
    batch, queries, keys = g.choose((1, 2)), extents(g), extents(g)
    if g.chance(0.4):
        keys = queries
    shared = g.choose((1, 2))
    heads, width, wide = shared * g.choose((1, 2, 3)), g.choose((4, 8)), g.choose((4, 8))
    flat = g.chance(0.3)

    def states(heads: int, length: Sequence[int], width: int) -> Value:
        if flat:
            return g.fresh(dtype, _shapes(batch, length, heads * width))
        return g.fresh(dtype, _shapes(batch, heads, length, width))

    q, k, v = states(heads, queries, width), states(shared, keys, width), states(shared, keys, wide)
    past, totals, before = [None, None], list(keys), None
    if g.chance(0.3):
        before = extents(g)
        totals = [a + b for a, b in zip(before, keys, strict=True)]
        past = [
            g.fresh(dtype, _shapes(batch, shared, before, width)),
            g.fresh(dtype, _shapes(batch, shared, before, wide)),
        ]
    shape = g.choose(
        (
            _shapes(queries, totals),
            _shapes(batch, 1, queries, totals),
            _shapes(1, heads, queries, totals),
        )
    )
    mask = g.fresh(g.choose((dtype, BOOL)), shape) if g.chance(0.4) else None
    valid = None
    if g.opset >= 24 and before is None and g.chance(0.2):
        most = Contents(low=(1,) * g.breadth, high=tuple(n + 1 for n in keys))
        valid = g.fresh(INT64, [(batch,)] * g.breadth, most)
    given = before is not None
    attributes = {
        "is_causal": g.choose((None, 0, 1)),
        "scale": g.choose((None, 0.5)),
        "softcap": g.choose((None, None, 2.0)),
        "q_num_heads": heads if flat else None,
        "kv_num_heads": shared if flat else None,
        "qk_matmul_output_mode": g.choose((None, 0, 1, 2, 3)),
        "softmax_precision": g.choose((None, None, FLOAT)),
        "left_window_size": g.choose((None, None, 0, 2)),
        "right_window_size": g.choose((None, None, 0, 2)),
    }
    outputs, hide = (3, ()) if given else (1, ())
    if g.chance(0.2):
        outputs, hide = 4, () if given else (1, 2)
    operands = [q, k, v, mask, *past, *([valid] if valid else [])]
    return g.emit("Attention", operands, attributes, outputs=outputs, hide=hide)


@recipe("RotaryEmbedding", kind=OTHER)
def rotary(g: Growth) -> Value:
    dtype = g.choose(types("RotaryEmbedding", g.opset))
    lengths, heads, width = extents(g), g.choose((1, 3)), g.choose((4, 8))
    part = g.choose((0, width, width // 2))
    flat = g.chance(0.4)
    x = g.fresh(
        dtype, _shapes(2, lengths, heads * width) if flat else _shapes(2, heads, lengths, width)
    )
    half = (part or width) // 2
    places, table = None, _shapes(2, lengths, half)
    if g.chance(0.4):
        places = g.fresh(
            INT64, _shapes(2, lengths), Contents(low=(0,) * g.breadth, high=(5,) * g.breadth)
        )
        table = [(5, half)] * g.breadth
    cosine, sine = (g.fresh(dtype, table) for _ in range(2))
    attributes = {
        "interleaved": g.choose((None, 0, 1)),
        "num_heads": heads if flat else None,
        "rotary_embedding_dim": part or None,
    }
    return g.emit("RotaryEmbedding", [x, cosine, sine, places], attributes)


@recipe("TensorScatter", kind=GATHER)
def written_cache(g: Growth) -> Value:
    cache = g.ranked(types("TensorScatter", g.opset), 2, 4)
    axis = g.rng.randint(1, cache.rank - 1)
    if not cache.fixed(axis) or not cache.at(axis)[0]:
        raise RefusedError
    room = cache.at(axis)[0]
    count = g.rng.randint(1, room)
    update = g.fresh(cache.dtype, [(*s[:axis], count, *s[axis + 1 :]) for s in cache.shapes])
    ring = g.chance(0.4)
    ends = Contents(low=(0,) * g.breadth, high=(room if ring else room - count + 1,) * g.breadth)
    where = g.fresh(INT64, [(s[0],) for s in cache.shapes], ends) if g.chance(0.7) else None
    attributes = {
        "axis": g.choose((axis, axis - cache.rank)),
        "mode": "circular" if ring else g.choose((None, "linear")),
    }
    return g.emit("TensorScatter", [cache, update, where], attributes)


# -- onnxruntime's


def _whole(g: Growth, low: int, high: int, *dims: int | Sequence[int]) -> Value:
    """int32 from `low` to below `high`."""
    shapes = [tuple(dims)] * g.breadth if all(isinstance(d, int) for d in dims) else _shapes(*dims)
    return g.fresh(INT32, shapes, Contents(low=(low,) * g.breadth, high=(high,) * g.breadth))


def _declined(g: Growth, *names: str) -> dict[str, int | None]:
    """Attributes of which a processor takes the default alone, said or left out."""
    return {name: g.choose((None, None, 0)) for name in names}


@recipe(*contrib("MultiHeadAttention"), kind=CONTRIB, weight=2)
def multi_head_attention(g: Growth, op: str) -> Value:
    batch, queries, keys = g.choose((1, 2)), extents(g), extents(g)
    heads, width, wide = g.choose((1, 2, 3)), g.choose((4, 8)), g.choose((4, 8))
    q = g.fresh(FLOAT, _shapes(batch, queries, heads * width))
    way, past = g.choose(("flat", "flat", "heads", "past", "cached")), [None, None]
    totals = list(keys)
    if way in ("flat", "past"):
        k = g.fresh(FLOAT, _shapes(batch, keys, heads * width))
        v = g.fresh(FLOAT, _shapes(batch, keys, heads * wide))
    else:
        k = g.fresh(FLOAT, _shapes(batch, heads, keys, width))
        v = g.fresh(FLOAT, _shapes(batch, heads, keys, wide))
    if way == "past":
        wide = width
        keys = queries
        k, v = (g.fresh(FLOAT, _shapes(batch, keys, heads * width)) for _ in range(2))
        before = extents(g)
        totals = [a + b for a, b in zip(before, keys, strict=True)]
        past = [g.fresh(FLOAT, _shapes(batch, heads, before, width)) for _ in range(2)]
    bias = None
    if way in ("flat", "past") and g.chance(0.4):
        bias = g.fresh(FLOAT, [(heads * (2 * width + wide),)] * g.breadth)
    padding = None
    if g.chance(0.3):
        padding = _whole(g, 0, 2, batch, totals) if g.chance(0.6) else _whole(g, 1, 3, batch)
    added = None
    if g.chance(0.4):
        shape = _shapes(g.choose((1, batch)), g.choose((1, heads)), queries, totals)
        added = g.fresh(FLOAT, shape)
    results: list[Any] = [(FLOAT, _shapes(batch, queries, heads * wide))]
    if way == "past" or (way == "flat" and g.chance(0.3)):
        results += [
            (FLOAT, _shapes(batch, heads, totals, width)),
            (FLOAT, _shapes(batch, heads, totals, wide)),
        ]
    if g.chance(0.15):
        results += [None] * (3 - len(results))
        results.append((FLOAT, _shapes(batch, heads, queries, totals)))
    attributes = {
        "num_heads": heads,
        "scale": g.choose((None, 0.5)),
        "unidirectional": g.choose((None, 0, 1)),
        "mask_filter_value": g.choose((None, -1000.0)),
    }
    return contrib_results(g, op, [q, k, v, bias, padding, added, *past], results, **attributes)[0]


@recipe(*contrib("Attention"), kind=CONTRIB, weight=1.5)
def packed_attention(g: Growth, op: str) -> Value:
    batch, length, size = g.choose((1, 2)), extents(g), g.choose((4, 6))
    heads, width = g.choose((1, 2)), g.choose((4, 8))
    hidden = heads * width
    wide = hidden * g.choose((1, 1, 2))
    x = g.fresh(FLOAT, _shapes(batch, length, size))
    weights = g.fresh(FLOAT, [(size, 2 * hidden + wide)] * g.breadth)
    bias = maybe(g, lambda: g.fresh(FLOAT, [(2 * hidden + wide,)] * g.breadth), 0.8)
    past, totals = None, list(length)
    if wide == hidden and g.chance(0.3):
        before = extents(g)
        totals = [a + b for a, b in zip(before, length, strict=True)]
        past = g.fresh(FLOAT, _shapes(2, batch, heads, before, width))
    mask = None
    if g.chance(0.5):
        mask = g.choose(
            (
                lambda: _whole(g, 0, 2, batch, totals),
                lambda: _whole(g, 1, 3, batch),
                lambda: _whole(g, 0, 2, batch, length, totals),
            )
        )()
    added = maybe(g, lambda: g.fresh(FLOAT, _shapes(batch, heads, length, totals)), 0.3)
    results: list[Any] = [(FLOAT, _shapes(batch, length, wide))]
    if past is not None or (wide == hidden and g.chance(0.2)):
        results.append((FLOAT, _shapes(2, batch, heads, totals, width)))
    attributes = {
        "num_heads": heads,
        "scale": g.choose((None, 0.5)),
        "unidirectional": g.choose((None, 0, 1)),
        "mask_filter_value": g.choose((None, -1000.0)),
        "qkv_hidden_sizes": [hidden, hidden, wide] if wide != hidden or g.chance(0.2) else None,
        **_declined(g, "do_rotary", "rotary_embedding_dim", "past_present_share_buffer"),
    }
    return contrib_results(g, op, [x, weights, bias, mask, past, added], results, **attributes)[0]


@recipe(*contrib("QAttention"), kind=CONTRIB)
def quantised_attention(g: Growth, op: str) -> Value:
    batch, length, size = g.choose((1, 2)), extents(g), g.choose((4, 8))
    heads, width = g.choose((1, 2)), 4
    hidden = heads * width
    x = g.fresh(TensorProto.UINT8, _shapes(batch, length, size))
    kind, low = g.choose(((np.int8, -9), (np.uint8, 0)))
    drawn = np.random.default_rng(g.numpy_seed()).integers(low, 9, (size, 3 * hidden))
    weights = g.constant(drawn.astype(kind))
    bias = g.fresh(FLOAT, [(3 * hidden,)] * g.breadth)
    a, b = (g.constant(np.array(s, np.float32)) for s in (0.1, 0.05))
    mask = maybe(
        g, lambda: _whole(g, 1, 3, batch) if g.chance(0.5) else _whole(g, 0, 2, batch, length)
    )
    zeros = [g.constant(np.array(2, np.uint8)), g.constant(np.array(0, kind))]
    operands: list[Value | None] = [x, weights, bias, a, b, mask]
    operands += zeros if g.chance(0.7) else [None, None]
    results: list[Any] = [(FLOAT, _shapes(batch, length, hidden))]
    if mask is None and g.chance(0.4):
        before = extents(g)
        totals = [m + n for m, n in zip(before, length, strict=True)]
        operands.append(g.fresh(FLOAT, _shapes(2, batch, heads, before, width)))
        results.append((FLOAT, _shapes(2, batch, heads, totals, width)))
    attributes = {
        "num_heads": heads,
        "unidirectional": g.choose((None, 0, 1)),
        "scale": g.choose((None, 0.5)),
        "mask_filter_value": g.choose((None, -1000.0)),
        **_declined(g, "do_rotary", "past_present_share_buffer"),
    }
    return contrib_results(g, op, operands, results, **attributes)[0]


@recipe(*contrib("GroupQueryAttention"), kind=CONTRIB, weight=2)
def group_query_attention(g: Growth, op: str) -> Value:
    """Of prompts and of single tokens behind a cache of as many for every batch, or of fewer."""
    dtype = g.choose((FLOAT, FLOAT, FLOAT16))
    batch, shared = g.choose((1, 2)), g.choose((1, 2))
    heads, width = shared * g.choose((1, 2)), g.choose((8, 16))
    first = g.chance(0.5)
    length = g.choose((1, 3, 6)) if first else g.choose((1, 1, 1 if batch > 1 else 3))
    before = 0 if first else g.choose((1, 4, 7))
    total = before + length
    packed = g.chance(0.3)

    def fresh(*dims: int) -> Value:
        return g.fresh(dtype, [dims] * g.breadth)

    if packed:
        states: list[Value | None] = [
            fresh(batch, length, (heads + 2 * shared) * width),
            None,
            None,
        ]
    else:
        states = [fresh(batch, length, n * width) for n in (heads, shared, shared)]
    past: list[Value | None] = [None, None]
    cached, room, cache = dtype, width, {}
    scales: list[Value | None] = [None, None]
    remembers = not first or g.chance(0.3)
    if remembers and g.chance(0.2):
        bits, kind = g.choose((4, 8)), g.choose(("PER_TENSOR", "PER_CHANNEL"))
        cached, room = (INT8, width) if bits == 8 else (UINT8, width // 2)
        cache = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
        shape = (1,) if kind == "PER_TENSOR" else (1, shared, 1, width)
        scales = [g.fresh(FLOAT, [shape] * g.breadth, Contents(positive=True)) for _ in range(2)]
    if remembers:
        past = [g.fresh(cached, [(batch, shared, before, room)] * g.breadth) for _ in range(2)]
    lengths = np.full(batch, total - 1, np.int32)
    if batch > 1 and length == 1 and g.chance(0.4):
        lengths[0] = max(0, total - 2)
    seqlens = g.constant(lengths)
    rotates, tables = g.choose((None, 0, 1)), [None, None]
    if rotates:
        tables = [fresh(total + 1, width // 2) for _ in range(2)]
    added = (
        fresh(g.choose((1, batch)), g.choose((1, heads)), length, total) if g.chance(0.2) else None
    )
    sink = fresh(heads) if g.chance(0.2) else None
    results: list[Any] = [(dtype, [(batch, length, heads * width)] * g.breadth)]
    results += [(cached, [(batch, shared, total, room)] * g.breadth)] * 2
    scores = g.choose((None, None, 0, 1, 2))
    if scores:
        results.append((dtype, [(batch, heads, length, total)] * g.breadth))
    places = None
    if rotates and g.chance(0.3):
        places = g.constant(np.tile(np.arange(before, total), (batch, 1)))
    attributes = {
        **_declined(g, "sliding_window_cache"),
        **cache,
        "qk_output": scores,
        "num_heads": heads,
        "kv_num_heads": shared,
        "scale": g.choose((None, 0.5)),
        "softcap": g.choose((None, None, 2.0)),
        "causal": g.choose((None, 1)),
        "do_rotary": rotates,
        "rotary_interleaved": g.choose((None, 0, 1)) if rotates else None,
        "local_window_size": g.choose((None, None, 1, 3)),
        "smooth_softmax": g.choose((None, None, 0, 1)) if sink is None else None,
    }
    last = g.constant(np.array(total, np.int32))
    operands = [*states, *past, seqlens, last, *tables, places, added, sink]
    operands += scales
    return contrib_results(g, op, operands, results, **attributes)[0]


@recipe(*contrib("RotaryEmbedding"), kind=CONTRIB)
def rotary_by_places(g: Growth, op: str) -> Value:
    dtype = g.choose((FLOAT, FLOAT, FLOAT16))
    lengths, heads, width = extents(g), g.choose((1, 3)), g.choose((4, 8))
    flat = g.chance(0.5)
    shapes = _shapes(2, lengths, heads * width) if flat else _shapes(2, heads, lengths, width)
    x, most = g.fresh(dtype, shapes), max(lengths) + 2
    ends = Contents(low=(0,) * g.breadth, high=(2,) * g.breadth)
    places = g.fresh(INT64, [(1,)] * g.breadth, ends)
    if g.chance(0.6):
        places = g.fresh(
            INT64, _shapes(2, lengths), Contents(low=(0,) * g.breadth, high=(most,) * g.breadth)
        )
    partial = flat and g.chance(0.3)
    half = width // 4 if partial else width // 2
    cosine, sine = (g.fresh(dtype, [(most, half)] * g.breadth) for _ in range(2))
    attributes = {
        "interleaved": g.choose((None, 0, 1)),
        "num_heads": heads if flat and (partial or g.chance(0.5)) else None,
        "rotary_embedding_dim": width // 2 if partial else None,
        "scale": g.choose((None, 1.0)),
        **_declined(g, "is_packed_batching"),
    }
    if flat and attributes["num_heads"] is None:  # heads as wide as the tables say
        assert math.prod((heads, width)) % (2 * half) == 0
    return add_contrib(g, op, [x, places, cosine, sine], x, **attributes)


@recipe(*contrib("EmbedLayerNormalization"), kind=CONTRIB)
def embedded(g: Growth, op: str) -> Value:
    lengths, size, words = extents(g), g.choose((4, 8)), 7
    ids = _whole(g, 0, words, 2, lengths)
    segments = maybe(g, lambda: _whole(g, 0, 2, 2, lengths))

    def table(rows: int | None) -> Value:
        shape = (size,) if rows is None else (rows, size)
        return g.fresh(FLOAT, [shape] * g.breadth)

    most = max(lengths) + 1
    tables = [table(words), table(most), table(2) if segments else None]
    mask = maybe(g, lambda: _whole(g, 0, 2, 2, lengths))
    places = maybe(g, lambda: _whole(g, 0, most, 2, lengths), 0.3)
    results: list[Any] = [(FLOAT, _shapes(2, lengths, size)), (INT32, [(2,)] * g.breadth)]
    if g.chance(0.4):
        results.append((FLOAT, _shapes(2, lengths, size)))
    kind = 1 if mask is not None and g.chance(0.2) else None
    operands = [ids, segments, *tables, table(None), table(None), mask, places]
    epsilon = g.choose((None, 0.1))
    return contrib_results(g, op, operands, results, epsilon=epsilon, mask_index_type=kind)[0]
