"""Attention and MultiHeadAttention of onnxruntime, with projections, pasts and masks, and RotaryEmbedding.

A mask adds `mask_filter_value` to what it hides, so that a query without any visible key weighs all
alike; what lies behind a query in time is hidden for good. Left to the vendor library: pasts that share a buffer with the present, beams, packed forms, and scores as a result.
`contrib_group_query` has GroupQueryAttention.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

from dvm_graph.decompose.arithmetic import (
    is_of_columns,
    positions,
    spread,
    with_axis,
    without_axes,
)
from dvm_graph.decompose.attention import (
    are_pairs,
    grouped_product,
    merged_heads,
    rotated_heads,
    scaled_query,
    split_heads,
)
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.indexing import taken
from dvm_graph.decompose.matrix import multiplied
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.softmax import softmax
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, floordiv, mul, product, sub

_DEFAULT_FILTER = -10000.0


@decomposition("Attention", domain=MICROSOFT)
def attention(builder: Builder, node: Node, operands: Operands) -> Results:
    x, weights = required(node, operands, 0), required(node, operands, 1)
    if any(node.attrs.get(name, 0) for name in ("do_rotary", "past_present_share_buffer")):
        return None
    projected = multiplied(builder, x, weights)
    bias = operand(operands, 2)
    if bias is not None:
        is_of_columns(builder, node, projected, bias)
        projected = builder.add(projected, bias)
    return attended(
        builder,
        node,
        projected,
        mask=operand(operands, 3),
        past=operand(operands, 4),
        bias=operand(operands, 5),
    )


def attended(
    builder: Builder,
    node: Node,
    projected: Value,
    *,
    mask: Value | None,
    past: Value | None,
    bias: Value | None,
) -> Results:
    """Attention among queries, keys and values that lie side by side; and the present state.

    `projected` is [batch, sequence, query hidden + key hidden + value hidden], `past` is [2, batch,
    heads, past sequence, size], keys first, and `bias` broadcasts to the scores.
    """
    heads, hidden = int(node.attrs["num_heads"]), shape_of(projected)[2]
    sizes = node.attrs.get("qkv_hidden_sizes") or (floordiv(hidden, 3),) * 3
    starts: list[Dim] = [0, sizes[0], mul(2, sizes[0])]
    whole = add(starts[-1], sizes[-1])
    builder.facts.assume_equal(hidden, whole, "queries, keys and values side by side")
    query, key, value = (
        split_heads(builder, part(builder, projected, 2, start, size), heads)
        for start, size in zip(starts, sizes, strict=True)
    )
    length: Dim = 0
    if past is not None:
        length = shape_of(past)[3]
        builder.facts.assume_equal(shape_of(past)[0], 2, "a past has keys and values")
        old = [without_axes(builder, part(builder, past, 0, index, 1), (0,)) for index in (0, 1)]
        key, value = (builder.concat(pair, 2) for pair in zip(old, (key, value), strict=True))
    scores = _scores(builder, node, query, key, length, mask, bias)
    if scores is None:
        return None
    y = merged_heads(builder, grouped_product(builder, softmax(builder, scores, (3,)), value))
    if len(node.outputs) < 2:
        return [y]
    return [y, builder.concat([with_axis(builder, state, 0) for state in (key, value)], 0)]


@decomposition("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(builder: Builder, node: Node, operands: Operands) -> Results:
    """Keys and values of rank 4 are heads already, of another sequence."""
    query, key, value = required(node, operands, 0), operand(operands, 1), operand(operands, 2)
    past_key, past_value = operand(operands, 6), operand(operands, 7)
    shared_buffer = operand(operands, 8) is not None or operand(operands, 9) is not None
    if shared_buffer or len(node.outputs) > 3:
        return None
    if key is None or value is None or query.rank != 3 or key.rank != value.rank:
        return None
    if key.rank not in (3, 4) or (past_key is None) != (past_value is None):
        return None
    if key.rank == 4 and past_key is not None:
        return None
    query, key, value = _with_biases(builder, (query, key, value), operand(operands, 3))
    heads = int(node.attrs["num_heads"])
    query = split_heads(builder, query, heads)
    if key.rank == 3:
        key, value = (split_heads(builder, x, heads) for x in (key, value))
    builder.facts.assume_equal(shape_of(key)[1], heads, f"{node.name} has keys of all heads")
    are_pairs(builder, node, key, value)
    past: Dim = 0
    if past_key is not None and past_value is not None:
        are_pairs(builder, node, past_key, past_value)
        past = shape_of(past_key)[2]
        key, value = builder.concat([past_key, key], 2), builder.concat([past_value, value], 2)
    scores = _scores(builder, node, query, key, past, operand(operands, 4), operand(operands, 5))
    if scores is None:
        return None
    y = merged_heads(builder, grouped_product(builder, softmax(builder, scores, (3,)), value))
    return [y, key, value]


def _with_biases(builder: Builder, values: Sequence[Value], bias: Value | None) -> Sequence[Value]:
    """Queries, keys and values with their parts of the bias; heads have had theirs."""
    if bias is None:
        return values
    sizes = [product((*shape_of(value)[1:-2], shape_of(value)[-1])) for value in values]
    *starts, end = accumulate(sizes, add, initial=0)
    reason = "a bias for each query, key and value"
    builder.facts.assume_equal(shape_of(bias)[0], end, reason)
    return [
        builder.add(value, part(builder, bias, 0, start, size)) if value.rank == 3 else value
        for value, start, size in zip(values, starts, sizes, strict=True)
    ]


def _scores(
    builder: Builder,
    node: Node,
    query: Value,
    key: Value,
    past: Dim,
    mask: Value | None,
    bias: Value | None,
) -> Value | None:
    """Scaled products of queries and keys, with what masks and the bias add; None: another mask."""
    query = scaled_query(builder, query, node.attrs.get("scale") or None)
    scores = grouped_product(builder, query, builder.transpose(key, (0, 1, 3, 2)))
    terms = [] if bias is None else [spread(builder, bias, shape_of(scores))]
    length, total = shape_of(query)[2], shape_of(key)[2]
    hidden = node.attrs.get("mask_filter_value", _DEFAULT_FILTER)
    if mask is not None:
        visible = _visible(builder, mask, shape_of(query)[0], length, total)
        if visible is None:
            return None
        terms.append(_filtered(builder, visible, hidden, query.dtype))
    if node.attrs.get("unidirectional", 0):
        if not builder.facts.same(sub(total, past), length):
            return None  # queries of another sequence
        key_at = positions(builder, total, 3, 4)
        query_at = positions(builder, length, 2, 4, past)
        never = float("-inf")
        terms.append(_filtered(builder, builder.le(key_at, query_at), never, query.dtype))
    return reduce(builder.add, terms, scores)


def _filtered(builder: Builder, visible: Value, hidden: float, dtype: DType) -> Value:
    return builder.select(visible, builder.scalar(0, dtype), builder.scalar(hidden, dtype))


def _visible(builder: Builder, mask: Value, batch: Dim, length: Dim, total: Dim) -> Value | None:
    """Which keys a mask leaves, in a shape that broadcasts to the scores.

    A mask of rank 2 or 3 has a number for each key, or each key and query; one of rank 1 has the
    end of each sequence, and the starts behind all ends.
    """
    facts, shape = builder.facts, shape_of(mask)
    if mask.rank in (2, 3):
        wanted = (batch, total) if mask.rank == 2 else (batch, length, total)
        for dim, other in zip(shape, wanted, strict=True):
            facts.assume_equal(dim, other, "an attention mask has a number for each key")
        mask = builder.reshape(mask, (*wanted[:1], 1, *(wanted[1:-1] or (1,)), total))
        return builder.gt(mask, builder.scalar(0, mask.dtype))
    if mask.rank != 1:
        return None
    at = positions(builder, total, 3, 4)
    ends = builder.cast(mask, DType.INT64)
    if facts.same(shape[0], batch):
        return builder.lt(at, builder.reshape(ends, (batch, 1, 1, 1)))
    if not facts.same(shape[0], mul(2, batch)):
        return None
    ends, starts = (part(builder, ends, 0, first, batch) for first in (0, batch))
    ends, starts = (builder.reshape(bound, (batch, 1, 1, 1)) for bound in (ends, starts))
    return builder.bitwise_and(builder.lt(at, ends), builder.ge(at, starts))


@decomposition("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(builder: Builder, node: Node, operands: Operands) -> Results:
    """One position id is that of the first element, which the others count on from."""
    x, ids, cosine, sine = (required(node, operands, index) for index in range(4))
    half, flat, shape = shape_of(cosine)[1], x.rank == 3, shape_of(x)
    if node.attrs.get("is_packed_batching", 0) or not isinstance(half, int):
        return None
    if flat:
        partial = node.attrs.get("rotary_embedding_dim", 0)
        heads = int(node.attrs.get("num_heads", 0)) if partial else floordiv(shape[2], 2 * half)
        x = split_heads(builder, x, heads)
    if ids.rank == 1:
        ids = builder.add(builder.reshape(ids, (1, 1)), positions(builder, shape_of(x)[2], 1, 2))
    cosine, sine = (taken(builder, table, ids) for table in (cosine, sine))
    interleaved = bool(node.attrs.get("interleaved", 0))
    y = rotated_heads(builder, x, cosine, sine, 2 * half, interleaved=interleaved)
    return [merged_heads(builder, y) if flat else y]
