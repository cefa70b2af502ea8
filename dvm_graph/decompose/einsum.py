"""Einsum as transposes, reductions and matrix products.

Operands are contracted pairwise from the left. Labels of a pair fall into four groups: in both
operands and needed later (batch), in both and not (contracted), in one only. An extent of 1 stands for
any: where it is contracted with another one, the other operand is summed over that label alone. A label
repeated within one operand (a diagonal) is left to the vendor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dvm_graph.decompose.matrix import product_of
from dvm_graph.decompose.operands import present
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.ir import Dim, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product
from dvm_graph.symbolic.shape_functions import broadcast_shapes

_ELLIPSIS = "..."


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor whose axes carry labels."""

    value: Value
    labels: tuple[str, ...]

    def dim(self, label: str) -> Dim:
        return shape_of(self.value)[self.labels.index(label)]


@decomposition("Einsum")
def einsum(builder: Builder, node: Node, operands: Operands) -> Results:
    values = present(operands)
    equation = str(node.attrs["equation"]).replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(values):
        return None
    ranks = [
        value.rank - len(text.replace(_ELLIPSIS, ""))
        for text, value in zip(texts, values, strict=True)
    ]
    free = max(
        (rank for rank, text in zip(ranks, texts, strict=True) if _ELLIPSIS in text), default=0
    )
    labels = [_expand(text, rank) for text, rank in zip(texts, ranks, strict=True)]
    if any(len(set(names)) != len(names) for names in labels):
        return None
    output = _expand(right, free) if arrow else _implicit_output(labels, free)
    terms = [_Term(value, names) for value, names in zip(values, labels, strict=True)]
    result = _only_needed(builder, terms[0], _needed(terms[1:], output))
    for index in range(1, len(terms)):
        needed = _needed(terms[index + 1 :], output)
        result = _contracted(builder, node, result, terms[index], needed)
    return [_arranged(builder, result, output)]


def _expand(text: str, free: int) -> tuple[str, ...]:
    """Labels of a term; the axes of an ellipsis are numbered from the right."""
    before, dots, after = text.partition(_ELLIPSIS)
    middle = tuple(str(index) for index in reversed(range(free))) if dots else ()
    return (*before, *middle, *after)


def _implicit_output(labels: Sequence[Sequence[str]], free: int) -> tuple[str, ...]:
    names = [name for term in labels for name in term]
    once = sorted(name for name in set(names) if names.count(name) == 1 and name.isalpha())
    return (*(str(index) for index in reversed(range(free))), *once)


def _needed(later: Sequence[_Term], output: Sequence[str]) -> set[str]:
    return set(output).union(*(term.labels for term in later))


def _only_needed(builder: Builder, term: _Term, needed: set[str]) -> _Term:
    """Sums over the labels that nobody else has."""
    axes = tuple(i for i, label in enumerate(term.labels) if label not in needed)
    if not axes:
        return term
    value = builder.reduce_sum(term.value, axes)
    kept = tuple(label for label in term.labels if label in needed)
    dims = tuple(term.dim(label) for label in kept)
    return _Term(builder.reshape(value, dims), kept)


def _narrowed(builder: Builder, term: _Term, other: _Term, needed: set[str]) -> _Term:
    """Without the labels to contract that are 1 here and not in the other term."""
    spread = {label for label in other.labels if label not in needed and other.dim(label) != 1}
    kept = tuple(label for label in term.labels if label not in spread or term.dim(label) != 1)
    if kept == term.labels:
        return term
    return _Term(builder.reshape(term.value, tuple(term.dim(label) for label in kept)), kept)


def _stretched(
    builder: Builder, node: Node, left: _Term, right: _Term, needed: set[str]
) -> tuple[_Term, _Term]:
    """With equal extents of the labels to contract, where only a run knows whether one of them is 1."""
    both = [label for label in left.labels if label in right.labels and label not in needed]
    shapes = [tuple(term.dim(label) for label in both) for term in (left, right)]
    extents = dict(zip(both, broadcast_shapes(node, shapes, builder.facts), strict=True))

    def stretched(term: _Term) -> _Term:
        dims = tuple(extents.get(label, term.dim(label)) for label in term.labels)
        return _Term(builder.broadcast_to(term.value, dims), term.labels)

    return stretched(left), stretched(right)


def _contracted(builder: Builder, node: Node, left: _Term, right: _Term, needed: set[str]) -> _Term:
    left, right = _narrowed(builder, left, right, needed), _narrowed(builder, right, left, needed)
    left = _only_needed(builder, left, needed | set(right.labels))
    right = _only_needed(builder, right, needed | set(left.labels))
    left, right = _stretched(builder, node, left, right, needed)
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in needed]
    inner = [label for label in shared if label not in needed]
    rows = [label for label in left.labels if label not in shared]
    columns = [label for label in right.labels if label not in shared]
    if not inner:
        labels = (*batch, *rows, *columns)
        factors = [_spread(builder, term, labels) for term in (left, right)]
        return _Term(builder.mul(factors[0], factors[1]), labels)
    a = _matrix(builder, left, batch, rows, inner)
    b = _matrix(builder, right, batch, inner, columns)
    y = product_of(builder, a, b)
    dims = (
        *shape_of(y)[: len(batch)],
        *(left.dim(label) for label in rows),
        *(right.dim(label) for label in columns),
    )
    return _Term(builder.reshape(y, dims), (*batch, *rows, *columns))


def _matrix(
    builder: Builder, term: _Term, batch: list[str], rows: list[str], columns: list[str]
) -> Value:
    """The term as [batch..., product of rows, product of columns]."""
    order = [term.labels.index(label) for label in (*batch, *rows, *columns)]
    value = builder.transpose(term.value, tuple(order))
    dims = (
        *(term.dim(label) for label in batch),
        product([term.dim(label) for label in rows]),
        product([term.dim(label) for label in columns]),
    )
    return builder.reshape(value, dims)


def _spread(builder: Builder, term: _Term, labels: Sequence[str]) -> Value:
    """The term with its axes in the order of `labels`, extent 1 where it has none."""
    own = [label for label in labels if label in term.labels]
    value = builder.transpose(term.value, tuple(term.labels.index(label) for label in own))
    dims = tuple(term.dim(label) if label in own else 1 for label in labels)
    return builder.reshape(value, dims)


def _arranged(builder: Builder, term: _Term, output: Sequence[str]) -> Value:
    term = _only_needed(builder, term, set(output))
    return _spread(builder, term, output)
