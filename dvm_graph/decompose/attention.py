"""Attention and RotaryEmbedding (opset 23 on).

Heads that share keys and values (GQA) get an extra axis that the product broadcasts over, so that
keys and values are never repeated in memory. All masks are combined into one condition; a query
that may see no key at all gets a row of zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from dvm_graph.decompose.arithmetic import dim_value, positions, scaled, spread, with_axis
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.slicing import padded, part
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import floordiv, maximum, mul, sub
from dvm_graph.symbolic.facts import Relation

_PRECISIONS = {1: DType.FLOAT32, 10: DType.FLOAT16, 11: DType.FLOAT64, 16: DType.BFLOAT16}
"""ONNX numbers of the types that `softmax_precision` may name."""


@dataclass(frozen=True, slots=True)
class _Masks:
    """What decides which keys a query sees."""

    allowed: Value | None
    """bool, broadcasts to the scores; None: every key."""
    bias: Value | None
    """Added to the scores."""


@decomposition("Attention")
def attention(builder: Builder, node: Node, operands: Operands) -> Results:
    query, key, value = (required(node, operands, index) for index in range(3))
    past_key, past_value = operand(operands, 4), operand(operands, 5)
    mode = int(node.attrs.get("qk_matmul_output_mode", 0))
    if (past_key is None) != (past_value is None):
        return None
    if node.version < 25 and len(node.outputs) > 3 and mode in (1, 2):
        return None  # numbered otherwise then; the function body knows
    flat = query.rank == 3
    if flat:
        shared = int(node.attrs["kv_num_heads"])
        query = split_heads(builder, query, int(node.attrs["q_num_heads"]))
        key, value = split_heads(builder, key, shared), split_heads(builder, value, shared)
    past: Dim = 0
    if past_key is not None and past_value is not None:
        past = shape_of(past_key)[2]
        key = builder.concat([past_key, key], 2)
        value = builder.concat([past_value, value], 2)
    are_pairs(builder, node, key, value)

    transposed = builder.transpose(key, (0, 1, 3, 2))
    raw = grouped_product(
        builder, scaled_query(builder, query, node.attrs.get("scale")), transposed
    )
    capped = softcapped(builder, raw, node.attrs.get("softcap", 0.0))
    masks = _masks(builder, node, operands, raw, past)
    biased = _masked(builder, capped, masks)
    weights = _weights(builder, node, biased, masks)
    y = grouped_product(builder, weights, value)
    if flat:
        y = merged_heads(builder, y)
    return [y, key, value, (raw, capped, biased, weights)[mode]]


def are_pairs(builder: Builder, node: Node, key: Value, value: Value) -> None:
    """Each key has a value: [batch, heads, sequence] are the same."""
    reason = f"{node.op} {node.name!r} has a value for each key"
    for dim, other in zip(shape_of(key)[:3], shape_of(value)[:3], strict=True):
        builder.facts.assume_equal(dim, other, reason)


def split_heads(builder: Builder, x: Value, heads: Dim) -> Value:
    """[batch, sequence, heads * size] as [batch, heads, sequence, size]."""
    batch, length, hidden = shape_of(x)
    x = builder.reshape(x, (batch, length, heads, floordiv(hidden, heads)))
    return builder.transpose(x, (0, 2, 1, 3))


def merged_heads(builder: Builder, x: Value) -> Value:
    """[batch, heads, sequence, size] as [batch, sequence, heads * size]."""
    batch, heads, length, size = shape_of(x)
    return builder.reshape(builder.transpose(x, (0, 2, 1, 3)), (batch, length, mul(heads, size)))


def scaled_query(builder: Builder, query: Value, scale: float | None) -> Value:
    """The query times the scale, by default the inverse root of the size of a head."""
    size = shape_of(query)[-1]
    if scale is None and not isinstance(size, int):
        return builder.mul(query, builder.rsqrt(dim_value(builder, size, query.dtype)))
    return scaled(builder, query, 1 / math.sqrt(max(size, 1)) if scale is None else scale)


def grouped_product(builder: Builder, left: Value, right: Value) -> Value:
    """left[b, h, ...] @ right[b, h // group, ...]."""
    batch, heads, rows, inner = shape_of(left)
    shared = shape_of(right)[1]
    builder.facts.assume_equal(batch, shape_of(right)[0], "queries of as many batches as keys")
    if builder.facts.same(heads, shared):
        return builder.matmul(left, right)
    left = builder.reshape(left, (batch, shared, floordiv(heads, shared), rows, inner))
    y = builder.matmul(left, with_axis(builder, right, 2))
    return builder.reshape(y, (batch, heads, rows, shape_of(right)[-1]))


def softcapped(builder: Builder, scores: Value, cap: float) -> Value:
    """`cap * tanh(scores / cap)`."""
    if cap == 0:
        return scores
    return scaled(builder, builder.tanh(scaled(builder, scores, 1 / cap)), cap)


def _masks(builder: Builder, node: Node, operands: Operands, scores: Value, past: Dim) -> _Masks:
    mask, valid = operand(operands, 3), operand(operands, 6)
    conditions: list[Value] = []
    bias: Value | None = None
    length, total = shape_of(scores)[-2:]
    if mask is not None:
        mask = spread(builder, _to_full_width(builder, node, mask, total), shape_of(scores))
        if mask.dtype is DType.BOOL:
            conditions.append(mask)
        else:
            bias = mask
    key = positions(builder, total, 3, 4)
    if valid is not None:
        batch = shape_of(valid)[0]
        valid = builder.reshape(builder.cast(valid, DType.INT64), (batch, 1, 1, 1))
        conditions.append(builder.lt(key, valid))
    query = positions(builder, length, 2, 4, past)
    if valid is not None:
        query = builder.add(query, builder.sub(valid, dim_value(builder, length)))
    conditions += _window_conditions(builder, node, query, key)
    return _Masks(reduce(builder.bitwise_and, conditions) if conditions else None, bias)


def _to_full_width(builder: Builder, node: Node, mask: Value, total: Dim) -> Value:
    """A mask over fewer keys than there are hides the others."""
    width = shape_of(mask)[-1]
    if builder.facts.same(width, total):
        return mask
    if not builder.facts.prove_less_equal(width, total).yes:
        reason = f"the mask of {node.op} {node.name!r} is of keys that there are"
        builder.facts.expect(width, Relation.LESS_EQUAL, total, lambda: reason)
    hidden = builder.scalar(False if mask.dtype is DType.BOOL else float("-inf"), mask.dtype)
    axis = mask.rank - 1
    wide = padded(builder, mask, axis, 0, maximum(0, sub(total, width)), hidden)
    return part(builder, wide, axis, 0, total)


def _window_conditions(builder: Builder, node: Node, query: Value, key: Value) -> Sequence[Value]:
    """Limits on how far from its own position a query sees."""
    conditions = []
    left, right = (int(node.attrs.get(f"{side}_window_size", -1)) for side in ("left", "right"))
    if node.attrs.get("is_causal", 0):
        conditions.append(builder.le(key, query))
    if left >= 0:
        reach = builder.sub(query, builder.scalar(left, DType.INT64))
        conditions.append(builder.ge(key, reach))
    if right >= 0:
        reach = builder.add(query, builder.scalar(right, DType.INT64))
        conditions.append(builder.le(key, reach))
    return conditions


def _masked(builder: Builder, scores: Value, masks: _Masks) -> Value:
    if masks.bias is not None:
        scores = builder.add(scores, builder.cast(masks.bias, scores.dtype))
    if masks.allowed is not None:
        hidden = builder.scalar(float("-inf"), scores.dtype)
        scores = builder.select(masks.allowed, scores, hidden)
    return scores


def _weights(builder: Builder, node: Node, scores: Value, masks: _Masks) -> Value:
    """Softmax over the keys; a row without any visible key becomes zeros instead of NaN."""
    dtype = scores.dtype
    x = builder.cast(scores, _PRECISIONS.get(node.attrs.get("softmax_precision", 0), dtype))
    axes = (3,)
    top = builder.reduce_max(x, axes)
    may_be_empty = masks.allowed is not None or masks.bias is not None
    if may_be_empty:
        nothing = builder.eq(top, builder.scalar(float("-inf"), x.dtype))
        top = builder.select(nothing, builder.scalar(0, x.dtype), top)
    powers = builder.exp(builder.sub(x, top))
    total = builder.reduce_sum(powers, axes)
    if may_be_empty:
        total = builder.select(nothing, builder.scalar(1, x.dtype), total)
    return builder.cast(builder.div(powers, total), dtype)


@decomposition("RotaryEmbedding")
def rotary_embedding(builder: Builder, node: Node, operands: Operands) -> Results:
    x, cosine, sine = (required(node, operands, index) for index in range(3))
    ids = operand(operands, 3)
    shape = shape_of(x)
    flat = x.rank == 3
    if flat:
        x = split_heads(builder, x, int(node.attrs["num_heads"]))
    size = shape_of(x)[-1]
    rotated = int(node.attrs.get("rotary_embedding_dim", 0)) or size
    if not isinstance(rotated, int):
        return None
    if ids is not None:
        ids = builder.cast(ids, DType.INT64)
        cosine, sine = (builder.gather(table, ids, 0) for table in (cosine, sine))
    interleaved = bool(node.attrs.get("interleaved", 0))
    y = rotated_heads(builder, x, cosine, sine, rotated, interleaved=interleaved)
    return [builder.reshape(builder.transpose(y, (0, 2, 1, 3)), shape) if flat else y]


def rotated_heads(
    builder: Builder, x: Value, cosine: Value, sine: Value, rotated: int, *, interleaved: bool
) -> Value:
    """Turns the first `rotated` elements of each head by tables [batch, sequence, rotated / 2]."""
    size = shape_of(x)[-1]
    cosine, sine = (with_axis(builder, table, 1) for table in (cosine, sine))
    y = _rotated(builder, part(builder, x, 3, 0, rotated), cosine, sine, interleaved)
    if rotated == size:
        return y
    return builder.concat([y, part(builder, x, 3, rotated, sub(size, rotated))], 3)


def _rotated(builder: Builder, x: Value, cosine: Value, sine: Value, interleaved: bool) -> Value:
    """Turns the pairs (first, second) of the last axis by an angle."""
    size = shape_of(x)[-1]
    half = floordiv(size, 2)
    step, second_start = (2, 1) if interleaved else (1, half)
    first = part(builder, x, 3, 0, half, step)
    second = part(builder, x, 3, second_start, half, step)
    cosine, sine = (spread(builder, table, shape_of(first)) for table in (cosine, sine))
    real = builder.sub(builder.mul(first, cosine), builder.mul(second, sine))
    imaginary = builder.add(builder.mul(first, sine), builder.mul(second, cosine))
    if not interleaved:
        return builder.concat([real, imaginary], 3)
    pairs = [with_axis(builder, value, 4) for value in (real, imaginary)]
    return builder.reshape(builder.concat(pairs, 4), shape_of(x))
