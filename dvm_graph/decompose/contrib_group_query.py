"""GroupQueryAttention of onnxruntime: heads that share keys, and a cache that sequences fill to lengths of their own.

New keys and values of a sequence follow those that it has cached, so that where they lie in the
present depends on the sequence: they are gathered, while the past is read as it lies, in one kernel that writes the present.
Queries see keys up to their own position, which hides what lies behind the end of a sequence.

Left to the vendor library: quantised caches and those of the size of a window, padded queries, given
positions, and a total length that no dim of the model tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dvm_graph.decompose.arithmetic import (
    dim_value,
    filled,
    is_of_columns,
    positions,
    shifted,
    spread,
    widened,
)
from dvm_graph.decompose.attention import (
    are_pairs,
    grouped_product,
    merged_heads,
    rotated_heads,
    scaled_query,
    softcapped,
    split_heads,
)
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.indexing import taken
from dvm_graph.decompose.normalization import over_root_mean_square
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, maximum, mul, product, sub

_POSITION_IDS, _BIAS, _SINK, _KEY_NORM, _QUERY_LENGTHS = 9, 10, 11, 15, 16
"""Positions of operands."""
_LEFT_TO_VENDOR = (_POSITION_IDS, 12, 13, _QUERY_LENGTHS)


@dataclass(frozen=True, slots=True)
class _Cache:
    """How the cached sequences grow."""

    old: Dim
    """Positions of the past."""
    new: Dim
    """Positions that each sequence gets."""
    total: Dim
    """Positions that queries may see."""
    present: Dim
    """Positions of the present."""
    start: Value | None
    """Of each sequence, [batch]: the position of its first new key; None: 0."""


@decomposition("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(builder: Builder, node: Node, operands: Operands) -> Results:
    attrs = node.attrs
    total = required(node, operands, 6).elements
    if total is None or any(operand(operands, index) is not None for index in _LEFT_TO_VENDOR):
        return None
    if attrs.get("sliding_window_cache", 0) or attrs.get("qk_output", 0):
        return None
    if not attrs.get("causal", 1):
        return None
    query, key, value = heads = _split(builder, node, operands)
    past = [operand(operands, 3), operand(operands, 4)]
    builder.facts.assume_equal(shape_of(query)[2], shape_of(key)[2], "each query has a key")
    are_pairs(builder, node, key, value)
    cache = _cache(builder, (key, value), past, required(node, operands, 5), total[0])
    if cache is None:
        return None
    heads = _normalized(builder, node, heads, operands)
    if attrs.get("do_rotary", 0):
        tables = [required(node, operands, index) for index in (7, 8)]
        heads = _turned(builder, node, heads, cache, tables)
    query, key, value = heads
    key, value = (
        _appended(builder, cache, old, new) for old, new in zip(past, (key, value), strict=True)
    )
    seen_key, seen_value = (part(builder, x, 2, 0, cache.total) for x in (key, value))
    weights = _weights(builder, node, operands, cache, query, seen_key)
    return [merged_heads(builder, grouped_product(builder, weights, seen_value)), key, value]


def _split(builder: Builder, node: Node, operands: Operands) -> Sequence[Value]:
    """Queries, keys and values as [batch, heads, sequence, size]; they may be packed in one tensor."""
    query, key, value = required(node, operands, 0), operand(operands, 1), operand(operands, 2)
    heads, shared = int(node.attrs["num_heads"]), int(node.attrs["kv_num_heads"])
    if key is not None and value is not None:
        counts = (heads, shared, shared)
        pairs = zip((query, key, value), counts, strict=True)
        return [split_heads(builder, x, count) for x, count in pairs]
    packed = split_heads(builder, query, heads + 2 * shared)
    bounds = ((0, heads), (heads, shared), (heads + shared, shared))
    return [part(builder, packed, 1, start, count) for start, count in bounds]


def _cache(
    builder: Builder,
    pair: Sequence[Value],
    past: Sequence[Value | None],
    lengths: Value,
    total: Dim,
) -> _Cache | None:
    batch, heads, new, _ = shape_of(pair[0])
    if past[0] is None:
        builder.facts.assume_equal(total, new, "without a past, all keys are new")
        return _Cache(0, new, new, new, None)
    valid = shifted(builder, builder.cast(builder.reshape(lengths, (batch,)), DType.INT64), 1)
    # A first prompt may be padded: then its valid length is less than that of the new keys.
    start = builder.sub(valid, dim_value(builder, new))
    start = builder.max(start, builder.scalar(0, DType.INT64))
    old = shape_of(past[0])[2]
    for cached, x in zip(past, pair, strict=True):
        wanted = (batch, heads, old, shape_of(x)[3])
        for dim, extent in zip(wanted if cached is None else shape_of(cached), wanted, strict=True):
            builder.facts.assume_equal(
                dim, extent, "cached keys and values are as the new ones are"
            )
    return _Cache(old, new, total, maximum(old, total), start)


def _start(builder: Builder, cache: _Cache, rank: int) -> Value:
    """The first new position, [batch, 1, ...]."""
    if cache.start is None:
        return builder.scalar(0, DType.INT64)
    return builder.reshape(cache.start, (*shape_of(cache.start), *(1,) * (rank - 1)))


def _query_positions(builder: Builder, cache: _Cache, axis: int, rank: int) -> Value:
    new = positions(builder, cache.new, axis, rank)
    return new if cache.start is None else builder.add(new, _start(builder, cache, rank))


def _normalized(
    builder: Builder, node: Node, heads: Sequence[Value], operands: Operands
) -> Sequence[Value]:
    """Queries and keys over the root mean square of each head, where there are weights for that."""
    result = list(heads)
    for index, side in enumerate("qk"):
        weight = operand(operands, _KEY_NORM - 1 + index)
        if weight is not None:
            epsilon = node.attrs.get("qk_norm_epsilon", 1e-6)
            epsilon = node.attrs.get(f"{side}_norm_epsilon", epsilon)
            x = widened(builder, heads[index])
            y, _ = over_root_mean_square(builder, x, (3,), epsilon)
            is_of_columns(builder, node, x, weight)
            y = builder.mul(y, widened(builder, weight))
            result[index] = builder.cast(y, heads[index].dtype)
    return result


def _turned(
    builder: Builder, node: Node, heads: Sequence[Value], cache: _Cache, tables: Sequence[Value]
) -> Sequence[Value]:
    """Queries and keys with rotary embeddings of their positions."""
    at = _query_positions(builder, cache, 1, 2)
    cosine, sine = (taken(builder, table, at) for table in tables)
    rotated = 2 * int(shape_of(cosine)[2])
    interleaved = bool(node.attrs.get("rotary_interleaved", 0))
    query, key = (
        rotated_heads(builder, x, cosine, sine, rotated, interleaved=interleaved) for x in heads[:2]
    )
    return [query, key, heads[2]]


def _appended(builder: Builder, cache: _Cache, past: Value | None, new: Value) -> Value:
    """The present: of each sequence the cached ones, then the new ones, then zeros. Where the past has a position, those of
    sequences that are shorter are new ones.
    """
    if past is None:
        return new
    start = _start(builder, cache, 3)
    at = positions(builder, cache.old, 2, 3)
    cached = builder.lt(at, start)
    cached = builder.reshape(cached, (*shape_of(cached), 1))
    old = builder.select(cached, past, _new_ones(builder, cache, new, at))
    beyond = sub(cache.present, cache.old)
    behind = builder.reshape(builder.iota((beyond,), 0, cache.old, 1), (1, 1, beyond))
    return builder.concat([old, _new_ones(builder, cache, new, behind)], 2)


def _new_ones(builder: Builder, cache: _Cache, new: Value, at: Value) -> Value:
    """[batch, heads, positions, size]: what the new ones have for positions [1, 1, positions]; zeros in front and behind."""
    batch, heads, _, size = shape_of(new)
    index = builder.sub(at, _start(builder, cache, 3))
    end = dim_value(builder, cache.new)
    inside = builder.bitwise_and(
        builder.ge(index, builder.scalar(0, DType.INT64)), builder.lt(index, end)
    )
    index = builder.select(inside, index, end)  # a row of zeros
    rows = builder.concat([new, filled(builder, 0.0, new.dtype, (batch, heads, 1, size))], 2)
    length = add(cache.new, 1)
    row = builder.iota((batch, heads, 1), 0, 0, mul(heads, length))
    row = builder.add(row, builder.iota((batch, heads, 1), 1, 0, length))
    flat = builder.reshape(rows, (product((batch, heads, length)), size))
    return builder.gather(flat, builder.add(row, index), 0)


def _weights(
    builder: Builder, node: Node, operands: Operands, cache: _Cache, query: Value, key: Value
) -> Value:
    """Softmax over the keys up to each query's own position, which always is one."""
    dtype, attrs = query.dtype, node.attrs
    query = scaled_query(builder, query, attrs.get("scale") or None)
    scores = grouped_product(builder, query, builder.transpose(key, (0, 1, 3, 2)))
    scores = softcapped(builder, scores, attrs.get("softcap", 0.0))
    bias, sink = operand(operands, _BIAS), operand(operands, _SINK)
    if bias is not None:
        scores = builder.add(scores, spread(builder, bias, shape_of(scores)))
    key_at = positions(builder, cache.total, 3, 4)
    query_at = _query_positions(builder, cache, 2, 4)
    visible = builder.le(key_at, query_at)
    window = int(attrs.get("local_window_size", -1))
    if window > 0:
        near = builder.gt(shifted(builder, key_at, window), query_at)
        visible = builder.bitwise_and(visible, near)
    scores = builder.select(visible, scores, builder.scalar(float("-inf"), dtype))
    top = builder.reduce_max(scores, (3,))
    if sink is not None:
        sink = builder.reshape(sink, (1, int(attrs["num_heads"]), 1, 1))
    elif attrs.get("smooth_softmax", -1) == 1:
        sink = builder.scalar(0, dtype)
    if sink is not None:
        top = builder.max(top, sink)
    powers = builder.exp(builder.sub(scores, top))
    sums = builder.reduce_sum(powers, (3,))
    if sink is not None:
        sums = builder.add(sums, builder.exp(builder.sub(sink, top)))
    return builder.div(powers, sums)
