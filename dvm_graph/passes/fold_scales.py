"""Folds constant factors behind products into their constant weights.

    Requires: basic operators with shapes. Ensures: no product of f32 or f64 by constant weights that nobody else reads is
    multiplied by a moderate constant for each of its results, right away or behind additions of such constants and views.

    (matmul(x, w) - mean) * factor + shift   =>   matmul(x, w * factor) + (shift - mean * factor)

So batch normalization behind a convolution leaves one row to add, which the cube unit does in passing, as it begins with the
biases of networks whose exporter has folded them. This pass reassociates: results may differ in the last bits, as those of
the normalization by itself do. So products of whole numbers stay as they are, whose sums are exact, and so do constants so large
that adding them rounds, or of which weights would lose bits. Large weights stay as well: they are read from their files by pages, and
a factor is as nothing beside so long a product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.ir import DType, Graph, Node, Shape, Value
from dvm_graph.passes.collect_scales import MODERATE
from dvm_graph.records import record
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.folding import contents

_PRODUCTS = frozenset({"matmul", "depthwise"})
"""Whose second operand is the weights, and whose results lie along the last axis of both."""
_STEPS = frozenset({"add", "sub", "mul", "div"})
_FACTORS = frozenset({"mul", "div"})
_VIEWS = frozenset({"reshape", "transpose"})

_MOST_BYTES = 1 << 24
"""Of weights: those of convolutions have less."""
_MOST_LINKS = 16
"""Of a chain, from each of its steps: normalizations have five."""
_PIECE = 1 << 14
"""Elements that are looked at together."""

Row = NDArray[Any]
"""Constants that broadcast to a value, with as many axes: f64 until they become part of the graph."""


@record(frozen=True, slots=True)
class _Affine:
    """`source * factor + shift`."""

    source: Value
    factor: Row
    shift: Row

    def behind(self, factor: Row, shift: Row) -> _Affine:
        """Of this, multiplied and added to."""
        both = np.broadcast_arrays(self.factor * factor, self.shift * factor + shift)
        return _Affine(self.source, *both)


def fold_scales(graph: Graph, facts: Facts) -> bool:
    """True if a factor became part of weights."""
    builder = Builder(graph, facts)
    changed = False
    for node in reversed(graph.sorted_nodes()):  # the last step of a chain comes first
        if node.op not in _STEPS or node not in graph or not _may_scale_product(node):
            continue
        folded = _folded(node, builder)
        if folded is not None:
            graph.replace_node(node, folded)
            changed = True
    return changed


def _may_scale_product(node: Node) -> bool:
    """Whether there may be a product before this step, with a factor between; False: certainly none."""
    scales = False
    for _ in range(_MOST_LINKS):
        scales |= node.op in _FACTORS
        computed = [value for value in node.inputs if value is not None and value.data is None]
        if len(computed) != 1:  # some may be made of constants
            return True
        before = computed[0].producer
        if before is None or before.op in _PRODUCTS:
            return before is not None and scales
        if before.op not in _STEPS and before.op not in _VIEWS:
            return False
        node = before
    return False


def _folded(last: Node, builder: Builder) -> Value | None:
    """What a chain of steps and views makes of a product, with its factors in the weights; None: there are none."""
    chain = _step(last, builder.facts)
    views = list[Node]()
    for _ in range(_MOST_LINKS):
        node = None if chain is None else chain.source.producer
        if chain is None or node is None or not builder.graph.sole_use(chain.source):
            return None
        if node.op in _PRODUCTS:
            if (chain.factor == 1).all():
                return None
            with builder.scope(last):
                return _rebuilt(node, chain, views, builder)
        if node.op in _VIEWS:
            views.append(node)
            chain = _before(node, chain)
        else:
            step = _step(node, builder.facts)
            chain = step and step.behind(chain.factor, chain.shift)
    return None


def _rebuilt(
    product: Node, chain: _Affine, views: Sequence[Node], builder: Builder
) -> Value | None:
    if ((chain.factor == 0) & (chain.shift == 0)).any():  # zeros of the sign of what is multiplied
        return None
    y = _scaled(product, chain.factor, builder)
    if y is None:
        return None
    if chain.shift.any():
        y = builder.add(y, builder.constant(chain.shift.astype(y.dtype.numpy)))
    return _viewed(y, views, builder)


def _viewed(value: Value, views: Sequence[Node], builder: Builder) -> Value:
    """`views` from the last one on."""
    for view in reversed(views):
        with builder.scope(view):
            value = builder.op(view.op, value, **view.attrs)
    return value


def _step(node: Node, facts: Facts) -> _Affine | None:
    """What an operator does to an operand by constants, one for all or one for each element along the last axis."""
    if node.op not in _STEPS or node.output.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    x, by = node.required(0), contents(node.required(1))
    if by is None and node.op in ("add", "mul"):
        x, by = node.required(1), contents(x)
    if by is None or x.shape is None or node.output.shape is None:
        return None
    if by.size != math.prod(by.shape[-1:]) or not facts.same_shape(x.shape, node.output.shape):
        return None
    number = by.astype(np.float64).reshape((1,) * (len(x.shape) - 1) + (-1,))
    if node.op == "sub":
        number = -number
    if node.op == "div":
        with np.errstate(divide="ignore"):
            number = 1 / number
    if not (np.abs(number) <= MODERATE).all():  # nor NaN
        return None
    if node.op in ("add", "sub"):
        return _Affine(x, np.ones_like(number), number)
    return _Affine(x, number, np.zeros_like(number))


def _known_extents(shape: Shape | None) -> tuple[int, ...] | None:
    """None: some are not known before the run."""
    extents = tuple(extent for extent in shape or () if isinstance(extent, int))
    return None if shape is None or len(extents) < len(shape) else extents


def _before(view: Node, chain: _Affine) -> _Affine | None:
    """The same, of what the view reads."""
    rows = [_row_before(view, row) for row in (chain.factor, chain.shift)]
    if rows[0] is None or rows[1] is None:
        return None
    return _Affine(view.required(0), rows[0], rows[1])


def _row_before(view: Node, row: Row) -> Row | None:
    """A row of what a view makes as one of what it reads; of a reshape, where the last axes have it, however they are split."""
    if view.op == "transpose":
        turned: Row = row.transpose(np.argsort(view.attrs["perm"]))
        return turned
    before, behind = view.required(0).shape, view.output.shape
    assert before is not None and behind is not None
    own, split = _last_axes(behind, row.size), _last_axes(before, row.size)
    if own is None or split is None or row.shape[row.ndim - len(own) :] != own:
        return None
    whole: Row = row.reshape((1,) * (len(before) - len(split)) + split)
    return whole


def _last_axes(shape: Shape, elements: int) -> tuple[int, ...] | None:
    """The extents of those that together have so many elements."""
    extents = tuple[int, ...]()
    while math.prod(extents) != elements:
        extent = shape[-1 - len(extents)] if len(extents) < len(shape) else None
        if not isinstance(extent, int):
            return None
        extents = (extent, *extents)
    return extents


def _scaled(product: Node, factor: Row, builder: Builder) -> Value | None:
    """The product by weights that have the factors; None: they cannot have them."""
    weights, views = product.required(1), list[Node]()
    extents = _known_extents(weights.shape)
    while weights.data is None:
        node = weights.producer
        if node is None or node.op not in _VIEWS or not builder.graph.sole_use(weights):
            return None
        views.append(node)
        weights = node.required(0)
    if extents is None or not builder.graph.sole_use(weights):
        return None
    by = _of_weights(factor, extents)
    if by is None:
        return None
    for view in views:
        source = _known_extents(view.required(0).shape)
        if source is None:
            return None
        turned = view.op == "transpose"
        by = by.transpose(np.argsort(view.attrs["perm"])) if turned else np.reshape(by, source)
    scaled = _multiplied(np.asarray(weights.data), by)
    if scaled is None:
        return None
    with builder.scope(product):
        weights = _viewed(builder.constant(scaled), views, builder)
        return builder.op(product.op, product.required(0), weights, **product.attrs)


def _multiplied(weights: Row, by: Row) -> Row | None:
    """None: they are too large, all whole numbers, or some would lose bits."""
    if weights.nbytes > _MOST_BYTES:
        return None
    scaled = np.empty(weights.shape, weights.dtype)
    least = np.finfo(weights.dtype).tiny
    whole = True
    pieces = np.nditer(
        (weights, np.broadcast_to(by, weights.shape), scaled),
        flags=("external_loop", "buffered", "zerosize_ok"),
        op_flags=[["readonly"], ["readonly"], ["writeonly"]],
        order="C",
        buffersize=_PIECE,
    )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"), pieces:
        for own, factors, product in pieces:
            np.multiply(own, factors, out=product, dtype=product.dtype, casting="same_kind")
            whole = whole and bool((own == np.rint(own)).all())
            sizes = np.abs(product)
            if not sizes.max() < np.inf:
                return None
            if sizes.min() >= least:  # as is mostly so
                continue
            lost = (sizes < least) & (np.abs(own) >= least) & (factors != 0)
            if lost.any():
                return None
    return None if whole else scaled


def _of_weights(factor: Row, extents: tuple[int, ...]) -> Row | None:
    """A row of results as one of weights [batch..., steps, results], broadcast to them; None: these have no such axis."""
    if factor.shape[-2:-1] != (1,):
        return None
    extra = max(factor.ndim - len(extents), 0)
    own = factor.shape[extra:]
    if math.prod(own) != factor.size:
        return None
    known = extents[len(extents) - len(own) :]
    if any(extent not in (1, of) for extent, of in zip(own, known, strict=True)):
        return None
    return np.broadcast_to(factor.reshape(own), extents)
