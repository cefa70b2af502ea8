"""Divides by the sums of a softmax behind the matrix product that reads it, and once for each row.

    Requires: basic operators with shapes. Ensures: no f32 or f64 product reads a softmax that nobody else
    does, if its keys may be more than its columns; other softmaxes of these types along the last axis multiply.

    matmul(div(e, sum(e)), v)  =>  mul(matmul(e, v), reciprocal(max(sum(e), 1)))
    div(e, sum(e))             =>  mul(e, reciprocal(sum(e)))

where e = exp(x - max(x)) and max and sum go along the contracted axis: the divisor is one number for each
row, and the result has fewer elements in it than e where the keys are more than the columns. So it is with
exporters' guard against rows without a key, select(isnan(p), number, p) for p = div(e, sum(e)): either all of
a row are NaN or none is. Where x has a NaN or +inf in the row, or nothing but -inf, so has e a NaN, and with
it the sum and every quotient; else the elements of e lie in [0, 1], one of them is 1, and the sum is finite
and at least 1. So `isnan` asks the sum, and where the number is 0 the select stands behind the product, too.

The sum is at least 1 unless there is no key: then the product is 0, and so must the result be; hence the
maximum. Before the division results are larger by the sum, which is at most the number of keys: they overflow
only at the very end of the range, and shorter formats are left alone. This pass reassociates: results may
differ in the last bits. A guarded row is 0 also where a value is not finite, which makes every other row NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from dvm_graph.ir import DType, Graph, Node, Value, shape_of
from dvm_graph.symbolic import Answer, Facts
from dvm_graph.symbolic.builder import Builder

_TYPES = (DType.FLOAT32, DType.FLOAT64)


@dataclass(frozen=True, slots=True)
class _Softmax:
    """An operand that is `weights / total`."""

    weights: Value
    total: Value
    division: Node
    guard: Node | None
    """What replaces rows of NaN by 0."""


def sink_divisions(graph: Graph, facts: Facts) -> bool:
    """True if a division was moved or replaced."""
    builder = Builder(graph, facts)
    changed = False
    for node in graph.sorted_nodes():
        if node.op == "matmul" and node.output.dtype in _TYPES:
            changed |= _sink(node, builder)
    for node in graph.sorted_nodes():
        if node.op == "div" and node.output.dtype in _TYPES:
            changed |= _divide_once(node, builder)
    return changed


def _sink(node: Node, builder: Builder) -> bool:
    softmax = _softmax(node.required(0), node, builder.graph)
    if softmax is None or not _pays(softmax.weights, node.output, builder.facts):
        return False
    with builder.scope(softmax.division):
        one = builder.scalar(1, softmax.total.dtype)
        factor = builder.reciprocal(builder.max(softmax.total, one))
    with builder.scope(node):
        result = builder.mul(
            builder.op("matmul", softmax.weights, node.required(1), **node.attrs), factor
        )
    if softmax.guard is not None:
        test = softmax.guard.required(0).producer
        assert test is not None
        with builder.scope(test):
            empty = builder.isnan(softmax.total)
        with builder.scope(softmax.guard):
            result = builder.select(empty, builder.scalar(0, result.dtype), result)
    builder.graph.replace_node(node, result)
    return True


def _divide_once(division: Node, builder: Builder) -> bool:
    """Divisions take many times as long as multiplications."""
    weights, total = division.required(0), division.required(1)
    if not _is_softmax(weights, total):
        return False
    with builder.scope(division):
        result = builder.mul(weights, builder.reciprocal(total))
    builder.graph.replace_node(division, result)
    return True


def _pays(weights: Value, result: Value, facts: Facts) -> bool:
    """There are more keys than columns, as far as is known: a symbol is more than a number."""
    keys, columns = shape_of(weights)[-1], shape_of(result)[-1]
    if not isinstance(columns, int):
        return facts.prove_less_equal(columns, keys).answer is Answer.YES
    return facts.prove_less_equal(keys, columns).answer is not Answer.YES


def _softmax(operand: Value, user: Node, graph: Graph) -> _Softmax | None:
    quotient, users = operand, {user}
    guard = _guard(operand)
    if guard is not None:
        test = guard.required(0)
        if not (_only_used_by(operand, {user}, graph) and _only_used_by(test, {guard}, graph)):
            return None
        assert test.producer is not None
        quotient, users = guard.required(2), {guard, test.producer}
    division = quotient.made_by("div")
    if division is None or not _only_used_by(quotient, users, graph):
        return None
    weights, total = division.required(0), division.required(1)
    if not _is_softmax(weights, total):
        return None
    return _Softmax(weights, total, division, guard)


def _guard(value: Value) -> Node | None:
    """The select of select(isnan(p), 0, p)."""
    select = value.made_by("select")
    if select is None:
        return None
    test, number = select.required(0).made_by("isnan"), select.required(1)
    if test is None or test.inputs[0] is not select.inputs[2]:
        return None
    zero = number.data is not None and number.data.size == 1 and not number.data.any()
    return select if zero and value.rank == select.required(2).rank else None


def _is_softmax(weights: Value, total: Value) -> bool:
    """Whether the quotient is one."""
    return _folds(total, "reduce_sum", weights) and _is_softmax_power(weights)


def _is_softmax_power(weights: Value) -> bool:
    """exp(x - max(x)), the maximum of each row."""
    exp = weights.made_by("exp")
    difference = None if exp is None else exp.required(0).made_by("sub")
    if difference is None:
        return False
    return _folds(difference.required(1), "reduce_max", difference.required(0))


def _folds(value: Value, op: str, source: Value) -> bool:
    """`value` holds one number for each row of `source`."""
    fold = value.made_by(op)
    return (
        fold is not None and fold.inputs[0] is source and fold.attrs["axes"] == (source.rank - 1,)
    )


def _only_used_by(value: Value, users: set[Node], graph: Graph) -> bool:
    return not graph.is_output(value) and graph.users(value) <= users
