"""Element-wise operators, pools, concats and embeddings of quantised tensors: onnxruntime's QLinear operators, and what
its tools make of embeddings.

A quantised tensor stands for (q - zero point) * scale. What an operator computes, it computes in float32
on the differences, which are exact there. So a result is the one that onnxruntime gives, or the next to
it where the exact one lies half-way between two numbers: then the order of a few roundings decides.

Beside operators that run on the vendor library they do so, too: what is quantised from end to end is
one call of it then.
"""

from __future__ import annotations

from collections.abc import Callable

from dvm_graph.decompose.activations import leaky
from dvm_graph.decompose.arithmetic import mean
from dvm_graph.decompose.casts import quantized
from dvm_graph.decompose.contrib_fused import embedded
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.operands import normalize_axis, operand, required
from dvm_graph.decompose.pooling import averaged, max_pool
from dvm_graph.decompose.quantized_operands import as_scalar, centred
from dvm_graph.decompose.registry import Operands, Results, decomposition, unless
from dvm_graph.decompose.softmax import softmax
from dvm_graph.ir import Node, Value
from dvm_graph.symbolic.builder import Builder


def beside_vendor_operators(node: Node, operands: Operands) -> bool:
    """Whether the vendor library computes an operand."""
    del node
    producers = [value.producer for value in operands if value is not None]
    return any(producer is not None and producer.op == "vendor" for producer in producers)


def _dequantized(builder: Builder, node: Node, operands: Operands, at: int) -> Value:
    """The number that the operand at a position stands for; scale and zero point follow it."""
    x = centred(builder, required(node, operands, at), operand(operands, at + 2))
    return builder.mul(x, as_scalar(builder, required(node, operands, at + 1)))


def _requantized(builder: Builder, node: Node, operands: Operands, at: int, y: Value) -> Value:
    """A number by the scale at a position, around the zero point behind it."""
    scale, zero_point = required(node, operands, at), operand(operands, at + 1)
    target = required(node, operands, 0).dtype
    if zero_point is not None:
        zero_point, target = as_scalar(builder, zero_point), zero_point.dtype
    return quantized(builder, builder.div(y, as_scalar(builder, scale)), zero_point, target)


def _left_to_vendor(node: Node, operands: Operands) -> bool:
    """Whether it is safe there: where it spreads operands over nothing, onnxruntime ends the process."""
    shapes = [required(node, operands, at).shape for at in (0, 3)]
    some = all(isinstance(dim, int) and dim for shape in shapes for dim in shape or (0,))
    return (some or shapes[0] == shapes[1]) and beside_vendor_operators(node, operands)


@decomposition("QLinearAdd", "QLinearMul", domain=MICROSOFT)
@unless(_left_to_vendor)
def binary(builder: Builder, node: Node, operands: Operands) -> Results:
    left, right = (_dequantized(builder, node, operands, at) for at in (0, 3))
    y = builder.add(left, right) if node.op == "QLinearAdd" else builder.mul(left, right)
    return [_requantized(builder, node, operands, 6, y)]


@decomposition("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
@unless(beside_vendor_operators)
def activation(builder: Builder, node: Node, operands: Operands) -> Results:
    x = _dequantized(builder, node, operands, 0)
    y = builder.sigmoid(x) if node.op == "QLinearSigmoid" else leaky(builder, node, x)
    return [_requantized(builder, node, operands, 3, y)]


@decomposition("QLinearSoftmax", domain=MICROSOFT)
@unless(beside_vendor_operators)
def quantized_softmax(builder: Builder, node: Node, operands: Operands) -> Results:
    """Before opset 13, whose number is an attribute, the axes from `axis` on count as one."""
    x = _dequantized(builder, node, operands, 0)
    axis = normalize_axis(node, node.attrs.get("axis", -1), x.rank)
    end = x.rank if node.attrs["opset"] < 13 else axis + 1
    y = softmax(builder, x, range(axis, end))
    return [_requantized(builder, node, operands, 3, y)]


@decomposition("QLinearAveragePool", domain=MICROSOFT)
@unless(beside_vendor_operators)
def quantized_average_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    def pool(x: Value) -> Results:
        return averaged(builder, node, x, beyond=True)

    last = bool(node.attrs.get("channels_last", 0))
    y = _by_channels(builder, _dequantized(builder, node, operands, 0), pool, last)
    return None if y is None else [_requantized(builder, node, operands, 3, y)]


@decomposition("NhwcMaxPool", domain=MICROSOFT)
@unless(beside_vendor_operators)
def max_pool_of_last_channels(builder: Builder, node: Node, operands: Operands) -> Results:
    def pool(x: Value) -> Results:
        return max_pool(builder, node, [x])

    y = _by_channels(builder, required(node, operands, 0), pool, last=True)
    return None if y is None else [y]


def _by_channels(
    builder: Builder, x: Value, function: Callable[[Value], Results], last: bool
) -> Value | None:
    """What a function of images with the channels first makes of others."""
    if not last:
        results = function(x)
        return None if results is None else results[0]
    inner = range(1, x.rank - 1)
    results = function(builder.transpose(x, (0, x.rank - 1, *inner)))
    if results is None or results[0] is None:
        return None
    return builder.transpose(results[0], (0, *(axis + 1 for axis in inner), 1))


@decomposition("QLinearGlobalAveragePool", domain=MICROSOFT)
@unless(beside_vendor_operators)
def quantized_global_average_pool(builder: Builder, node: Node, operands: Operands) -> Results:
    x = _dequantized(builder, node, operands, 0)
    first = 1 if node.attrs.get("channels_last", 0) else 2
    y = mean(builder, x, range(first, first + x.rank - 2))
    return [_requantized(builder, node, operands, 3, y)]


@decomposition("QLinearConcat", domain=MICROSOFT)
@unless(beside_vendor_operators)
def quantized_concat(builder: Builder, node: Node, operands: Operands) -> Results:
    """Scale and zero point come first, then triples of a tensor and its own."""
    parts = [_dequantized(builder, node, operands, at) for at in range(2, len(operands), 3)]
    axis = normalize_axis(node, node.attrs["axis"], parts[0].rank)
    parts = [_requantized(builder, node, operands, 0, part) for part in parts]
    return [builder.concat(parts, axis)]


@decomposition("QLinearWhere", domain=MICROSOFT)
@unless(beside_vendor_operators)
def quantized_where(builder: Builder, node: Node, operands: Operands) -> Results:
    then, other = (_dequantized(builder, node, operands, at) for at in (1, 4))
    y = builder.select(required(node, operands, 0), then, other)
    return [_requantized(builder, node, operands, 7, y)]


@decomposition("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embeddings(builder: Builder, node: Node, operands: Operands) -> Results:
    """Tables, factors and terms have scales at one row of operands, and zero points at another."""

    def plain(part: Value, at: int) -> Value:
        x = centred(builder, part, operand(operands, 11 + at))
        return builder.mul(x, as_scalar(builder, required(node, operands, 6 + at)))

    return embedded(builder, node, operands, None, plain)[:2]
