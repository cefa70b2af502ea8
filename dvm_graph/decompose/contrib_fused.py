"""What onnxruntime's optimiser makes of activations, products, convolutions and normalisations.

Its fused operators come apart again into the operators they were made of, which fuse with whatever
is around them. Halves are summed and normalised in float32, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from dvm_graph.decompose.activations import gelu_of
from dvm_graph.decompose.arithmetic import filled, is_of_columns, positions, scaled, spread, widened
from dvm_graph.decompose.convolution import convolution
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.indexing import taken
from dvm_graph.decompose.matrix import gemm, multiplied
from dvm_graph.decompose.normalization import (
    normalized_by_mean_square,
    scaled_and_shifted,
    standardized,
)
from dvm_graph.decompose.operands import operand, required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition, find
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder

_ACTIVATION_PARAMETERS: Mapping[str, Sequence[str]] = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
}
"""Names of what a FusedConv lists by position."""


@decomposition("Gelu", "BiasGelu", domain=MICROSOFT)
def gelu(builder: Builder, node: Node, operands: Operands) -> Results:
    return [gelu_of(builder, _biased(builder, node, operands), tanh=False)]


@decomposition("FastGelu", domain=MICROSOFT)
def fast_gelu(builder: Builder, node: Node, operands: Operands) -> Results:
    return [gelu_of(builder, _biased(builder, node, operands), tanh=True)]


def _biased(builder: Builder, node: Node, operands: Operands) -> Value:
    x, bias = required(node, operands, 0), operand(operands, 1)
    is_of_columns(builder, node, x, bias)
    return x if bias is None else builder.add(x, bias)


# -- products


@decomposition("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(builder: Builder, node: Node, operands: Operands) -> Results:
    """`alpha * A' @ B'`; `transBatch` moves the first axis behind the batch, before `trans`."""
    sides = [
        _turned(builder, node, required(node, operands, index), side)
        for index, side in enumerate("AB")
    ]
    return [scaled(builder, multiplied(builder, *sides), node.attrs.get("alpha", 1.0))]


def _turned(builder: Builder, node: Node, x: Value, side: str) -> Value:
    axes = list(range(x.rank))
    if node.attrs.get(f"transBatch{side}", 0) and x.rank > 2:
        axes = [*axes[1:-1], 0, axes[-1]]
    if node.attrs.get(f"trans{side}", 0) and x.rank > 1:
        axes[-2:] = reversed(axes[-2:])
    return builder.transpose(x, axes)


@decomposition("FusedGemm", domain=MICROSOFT)
def fused_gemm(builder: Builder, node: Node, operands: Operands) -> Results:
    parameters = {
        name.removeprefix("activation_"): value
        for name, value in node.attrs.items()
        if name.startswith("activation_")
    }
    return _activated(builder, node, gemm(builder, node, operands), parameters)


@decomposition("CDist", domain=MICROSOFT)
def distances(builder: Builder, node: Node, operands: Operands) -> Results:
    """How far each row of A is from each of B, as a product, or its square: what rounding leaves below 0 is 0."""
    metric = text(node, "metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        return None
    a, b = required(node, operands, 0), required(node, operands, 1)
    if a.rank != 2 or b.rank != 2:
        return None
    lengths = [builder.reduce_sum(builder.mul(rows, rows), (1,)) for rows in (a, b)]
    crossed = builder.transpose(b, (1, 0))
    y = scaled(builder, multiplied(builder, a, crossed), -2.0)
    y = builder.add(builder.add(y, lengths[0]), builder.transpose(lengths[1], (1, 0)))
    y = builder.max(y, builder.scalar(0, y.dtype))
    return [builder.sqrt(y) if metric == "euclidean" else y]


@decomposition("FusedConv", domain=MICROSOFT)
def fused_convolution(builder: Builder, node: Node, operands: Operands) -> Results:
    """A convolution, to which a fourth operand of its own shape may be added first."""
    results = convolution(builder, node, operands[:3])
    addend = operand(operands, 3)
    if results is not None and addend is not None and results[0] is not None:
        results = [builder.add(results[0], addend)]
    names = _ACTIVATION_PARAMETERS.get(text(node, "activation", ""), ())
    listed = node.attrs.get("activation_params", ())
    if len(listed) not in (0, len(names)):
        return None
    return _activated(builder, node, results, dict(zip(names, listed, strict=False)))


def _activated(
    builder: Builder, node: Node, results: Results, parameters: Mapping[str, float]
) -> Results:
    """An ONNX activation, by its name, over the only result."""
    name = text(node, "activation", "")
    if results is None or not name:
        return results
    call = replace(node, op=name, domain="", attrs=dict(parameters), regions=())
    activation = find(call)
    return None if activation is None else activation(builder, call, results)


# -- normalisations


@decomposition("SimplifiedLayerNormalization")
def simplified_layer_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    """By the mean square of the axes from `axis` on. Of domain ai.onnx, but onnxruntime's own."""
    x, scale = required(node, operands, 0), required(node, operands, 1)
    y, inverse = normalized_by_mean_square(builder, node, widened(builder, x))
    return [_in_one_rounding(builder, y, scale, None), inverse]


@decomposition("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    gamma, beta = required(node, operands, 2), operand(operands, 3)
    total = _sum_of(builder, node, operands, bias=4)
    is_of_columns(builder, node, total, gamma, beta)
    y, average, inverse = standardized(
        builder, total, (total.rank - 1,), node.attrs.get("epsilon", 1e-12)
    )
    y = _in_one_rounding(builder, y, gamma, beta)
    return [y, average, inverse, builder.cast(total, gamma.dtype)]


@decomposition("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    builder: Builder, node: Node, operands: Operands
) -> Results:
    gamma = required(node, operands, 2)
    total = _sum_of(builder, node, operands, bias=3)
    is_of_columns(builder, node, total, gamma)
    y, inverse = normalized_by_mean_square(builder, node, total)
    y = _in_one_rounding(builder, y, gamma, None)
    mean = filled(builder, 0.0, inverse.dtype, shape_of(inverse))  # that none is subtracted
    return [y, mean, inverse, builder.cast(total, gamma.dtype)]


def _sum_of(builder: Builder, node: Node, operands: Operands, bias: int) -> Value:
    """The input, the skip connection, which may lack a batch, and the bias."""
    x, skip, vector = (
        required(node, operands, 0),
        required(node, operands, 1),
        operand(operands, bias),
    )
    for dim, own in zip(shape_of(skip)[-2:], shape_of(x)[-2:], strict=True):
        builder.facts.assume_equal(
            dim, own, f"the operands of {node.op} {node.name!r} have the same rows"
        )
    is_of_columns(builder, node, x, vector)
    terms = [x, spread(builder, skip, shape_of(x)), vector]
    return reduce(builder.add, [widened(builder, term) for term in terms if term is not None])


def _in_one_rounding(builder: Builder, y: Value, scale: Value, shift: Value | None) -> Value:
    """Scaled and shifted in the type of the statistics, then in the type of the scale."""
    wide = [None if value is None else widened(builder, value) for value in (scale, shift)]
    return builder.cast(scaled_and_shifted(builder, y, *wide), scale.dtype)


@decomposition("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(builder: Builder, node: Node, operands: Operands) -> Results:
    def plain(part: Value, _at: int) -> Value:
        return part

    return embedded(builder, node, operands, operand(operands, 8), plain)


def embedded(
    builder: Builder,
    node: Node,
    operands: Operands,
    places: Value | None,
    plain: Callable[[Value, int], Value],
) -> list[Value]:
    """The sum of word, position and segment embeddings, normalised; how many words a mask keeps; the sum.

    `plain`: what parts of the operand at a position stand for.
    """
    words, word_table, position_table = (required(node, operands, i) for i in (0, 2, 3))
    segments, segment_table = operand(operands, 1), operand(operands, 4)
    batch, length = shape_of(words)
    if places is None:
        places = positions(builder, length, 1, 2)
    parts = [
        plain(taken(builder, word_table, words), 2),
        plain(taken(builder, position_table, places), 3),
    ]
    if segments is not None and segment_table is not None:
        for dim, own in zip(shape_of(segments), (batch, length), strict=True):
            builder.facts.assume_equal(dim, own, f"{node.name} has a segment for each word")
        parts.append(plain(taken(builder, segment_table, segments), 4))
    total = reduce(builder.add, [widened(builder, part) for part in parts])
    gamma, beta = (plain(required(node, operands, at), at) for at in (5, 6))
    y, _, _ = standardized(builder, total, (2,), node.attrs.get("epsilon", 1e-12))
    y = _in_one_rounding(builder, y, gamma, beta)
    return [y, _kept(builder, operand(operands, 7), batch), builder.cast(total, gamma.dtype)]


def _kept(builder: Builder, mask: Value | None, batch: Dim) -> Value:
    """How many elements of each row of a mask are 1; 0 without a mask."""
    if mask is None:
        return filled(builder, 0, DType.INT32, (batch,))
    ones = builder.cast(builder.eq(mask, builder.scalar(1, mask.dtype)), DType.INT32)
    return builder.reshape(builder.reduce_sum(ones, (1,)), (batch,))
