"""Softmax and its kin, and the losses built on them."""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.arithmetic import along_axis, dim_value, positions, with_axis, without_axes
from dvm_graph.decompose.operands import normalize_axis, operand, required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import maximum, minimum, product
from dvm_graph.symbolic.facts import Relation


def softmax(builder: Builder, x: Value, axes: Sequence[int]) -> Value:
    """exp(x) / sum(exp(x)) over axes; the maximum is taken off first, against overflow."""
    weights = builder.exp(builder.sub(x, builder.reduce_max(x, axes)))
    return builder.div(weights, builder.reduce_sum(weights, axes))


def log_softmax(builder: Builder, x: Value, axes: Sequence[int]) -> Value:
    """log(softmax(x))."""
    centred = builder.sub(x, builder.reduce_max(x, axes))
    total = builder.reduce_sum(builder.exp(centred), axes)
    return builder.sub(centred, builder.log(total))


@decomposition("Softmax", "LogSoftmax")
def softmax_node(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axes: tuple[int, ...]
    if node.version < 13:
        # Before opset 13 the axes from `axis` on count as one.
        axes = tuple(range(normalize_axis(node, node.attrs.get("axis", 1), x.rank), x.rank))
    else:
        axes = (normalize_axis(node, node.attrs.get("axis", -1), x.rank),)
    function = softmax if node.op == "Softmax" else log_softmax
    return [function(builder, x, axes)]


@decomposition("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(builder: Builder, node: Node, operands: Operands) -> Results:
    scores = required(node, operands, 0)
    log_probabilities = log_softmax(builder, scores, (1,))
    return [_likelihood_loss(builder, node, log_probabilities, operands), log_probabilities]


@decomposition("NegativeLogLikelihoodLoss")
def negative_log_likelihood(builder: Builder, node: Node, operands: Operands) -> Results:
    return [_likelihood_loss(builder, node, required(node, operands, 0), operands)]


def _likelihood_loss(
    builder: Builder, node: Node, log_probabilities: Value, operands: Operands
) -> Value:
    """-weight[label] * log_probability[label], reduced as the node says.

    The label's entry is picked by comparing with the class numbers rather than by a gather, so that
    it fuses with the softmax before it and an ignored label may be any number. Others have to be of a class, as onnxruntime's
    gather has it.
    """
    labels = builder.cast(required(node, operands, 1), DType.INT64)
    weights = operand(operands, 2)
    rank, dtype = log_probabilities.rank, log_probabilities.dtype
    batch, class_count, *places = shape_of(log_probabilities)
    for dim, own in zip(shape_of(labels), (batch, *places), strict=True):
        builder.facts.assume_equal(dim, own, f"{node.name} has a label for each row of scores")
    reason = (
        f"{node.name} has a class for the labels"  # where there is none, nobody looks at labels
    )
    some = minimum(1, product(shape_of(labels)))
    if not builder.facts.prove_less_equal(some, class_count).yes:
        builder.facts.expect(some, Relation.LESS_EQUAL, class_count, lambda: reason)
    labels = with_axis(builder, labels, 1)
    zero = builder.scalar(0, dtype)
    ignored = node.attrs.get("ignore_index")
    if ignored is not None:
        counts = builder.ne(labels, builder.scalar(int(ignored), DType.INT64))
        labels = builder.select(counts, labels, builder.scalar(0, DType.INT64))

    def of_label(of_classes: Value, count: Dim) -> Value:
        classes = positions(builder, count, 1, rank)
        chosen = builder.eq(classes, builder.check_index(labels, count))
        if ignored is not None:
            chosen = builder.bitwise_and(chosen, counts)
        return builder.reduce_sum(builder.select(chosen, of_classes, zero), (1,))

    picked = of_label(log_probabilities, class_count)
    weight: Value | None = None
    if weights is not None:  # of more classes, too: those are never chosen
        weight = of_label(along_axis(builder, weights, 1, rank), shape_of(weights)[0])
        picked = builder.mul(picked, weight)
    elif ignored is not None:
        weight = builder.cast(counts, dtype)
    loss = without_axes(builder, builder.neg(picked), (1,))

    reduction = text(node, "reduction", "mean")
    if reduction == "none":
        return loss
    total = _sum_all(builder, loss)
    if reduction == "sum":
        return total
    if weight is not None:
        return builder.div(total, _sum_all(builder, weight))
    count = maximum(1, product(shape_of(loss)))  # of nothing the mean is 0
    return builder.div(total, dim_value(builder, count, dtype))


def _sum_all(builder: Builder, x: Value) -> Value:
    return builder.reshape(builder.reduce_sum(x, tuple(range(x.rank))), ())
