"""Operators that rearrange axes, and those that ask for shapes.

Nothing here computes elements: everything ends in views. Target shapes are read from the known
elements of shape tensors, or bound in the run (`extents`); where not even their ranks are known the node is
left to the vendor.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.arithmetic import dim_value, with_axis
from dvm_graph.decompose.extents import (
    Content,
    assume_count,
    bound_extents,
    contents_of,
    known,
    shape_operand,
)
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.operands import (
    constant_scalar,
    distinct_axes,
    elements,
    integers,
    normalize_axes,
    normalize_axis,
    required,
    text,
)
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.reshaping import reshaped
from dvm_graph.decompose.slicing import part
from dvm_graph.decompose.squeezing import axes_of_one, names_no_axes
from dvm_graph.ir import Dim, Node, Shape, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import floordiv, mul, product
from dvm_graph.symbolic.facts import Relation
from dvm_graph.symbolic.shape_functions import broadcast_shapes


@decomposition("Reshape")
def reshape(builder: Builder, node: Node, operands: Operands) -> Results:
    x, target = required(node, operands, 0), required(node, operands, 1)
    zero_copies = not node.attrs.get("allowzero", 0)
    if target.elements is None:
        contents = contents_of(builder, target)
        if contents is None:
            return None
        dims = _reshaped_dims(builder, shape_of(x), contents, zero_copies)
        given = (shape_operand(builder, x), target)
        return [builder.reshape(x, bound_extents(builder, node, given, dims, [not zero_copies]))]
    wanted = target.elements
    shape = reshaped(node, shape_of(x), wanted, builder.facts, zero_copies=zero_copies)
    return [builder.reshape(x, shape)]


def _reshaped_dims(
    builder: Builder, shape: Shape, contents: Sequence[Content], zero_copies: bool
) -> list[Dim | None]:
    """Dims of the result that are known whatever the others of the target are."""
    if len(contents) == 1:
        return [product(shape)]
    dims: list[Dim | None] = []
    for axis, content in enumerate(contents):
        dim = known(content)
        if zero_copies and isinstance(dim, int) and dim == 0 and axis < len(shape):
            dim = shape[axis]
        elif dim is not None and builder.facts.bounds(dim)[0] < 1:
            dim = shape[axis] if zero_copies and axis < len(shape) and dim is shape[axis] else None
        dims.append(dim)
    return dims


@decomposition("Flatten")
def flatten(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    shape, axis = shape_of(x), node.attrs.get("axis", 1)
    if axis != x.rank:  # behind the last one
        axis = normalize_axis(node, axis, x.rank)
    return [builder.reshape(x, (product(shape[:axis]), product(shape[axis:])))]


@decomposition("Squeeze")
def squeeze(builder: Builder, node: Node, operands: Operands) -> Results:
    """Without axes, and with none among them, every dim of 1 goes; a dim that may or may not be 1 leaves
    the rank open.
    """
    x = required(node, operands, 0)
    shape = shape_of(x)
    if names_no_axes(operands):
        axes, open_ = axes_of_one(shape, builder.facts)
        if open_:
            return None  # see `squeezing`
    else:
        known = integers(elements(operands, 1))
        if known is None:
            return None
        axes = normalize_axes(node, known, x.rank)
    return [builder.reshape(x, tuple(dim for i, dim in enumerate(shape) if i not in axes))]


@decomposition("ExpandDims", domain=MICROSOFT)
def expand_dims(builder: Builder, node: Node, operands: Operands) -> Results:
    x, axis = required(node, operands, 0), constant_scalar(required(node, operands, 1))
    if axis is None:
        return None
    return [with_axis(builder, x, normalize_axis(node, axis, x.rank + 1))]


@decomposition("Unsqueeze")
def unsqueeze(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    known = integers(elements(operands, 1))
    if known is None:
        return None
    rank = x.rank + len(known)
    axes = distinct_axes(node, known, rank)
    dims = iter(shape_of(x))
    return [builder.reshape(x, tuple(1 if axis in axes else next(dims) for axis in range(rank)))]


@decomposition("Transpose")
def transpose(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    perm = node.attrs.get("perm", tuple(reversed(range(x.rank))))
    return [builder.transpose(x, tuple(normalize_axis(node, int(axis), x.rank) for axis in perm))]


@decomposition("Expand")
def expand(builder: Builder, node: Node, operands: Operands) -> Results:
    """Broadcasts both ways: a 1 in the wanted shape keeps the operand's dim."""
    x, target = required(node, operands, 0), required(node, operands, 1)
    if target.elements is None:
        contents = contents_of(builder, target)
        if contents is None:
            return None
        dims = _expanded_dims(builder, shape_of(x), contents)
        given = (shape_operand(builder, x), target)
        return [builder.broadcast_to(x, bound_extents(builder, node, given, dims))]
    shape = broadcast_shapes(node, (shape_of(x), tuple(target.elements)), builder.facts)
    return [builder.broadcast_to(x, shape)]


def _expanded_dims(builder: Builder, shape: Shape, contents: Sequence[Content]) -> list[Dim | None]:
    """Dims of the result that are known whatever the others of the target are."""
    rank = max(len(shape), len(contents))
    own = (*(1,) * (rank - len(shape)), *shape)
    wanted = (*(1,) * (rank - len(contents)), *map(known, contents))
    dims: list[Dim | None] = []
    for dim, other in zip(own, wanted, strict=True):
        if builder.facts.prove_one(dim).yes:
            dims.append(other)
        elif builder.facts.prove_one(dim).no or other == 1 or dim is other:
            dims.append(dim)
        else:
            dims.append(None)
    return dims


@decomposition("Tile")
def tile(builder: Builder, node: Node, operands: Operands) -> Results:
    """[a, b] tiled by (p, q) is [p, a, q, b] broadcast, reshaped to [p*a, q*b]."""
    x, counts = required(node, operands, 0), required(node, operands, 1)
    assume_count(builder, node, counts, x.rank)
    repeats = counts.elements
    if repeats is None:
        contents = contents_of(builder, counts)
        if contents is None or len(contents) != x.rank:
            return None
        given = (shape_operand(builder, x), counts)
        repeats = bound_extents(builder, node, given, [known(content) for content in contents])
    single: list[Dim] = []
    spread: list[Dim] = []
    for dim, count in zip(shape_of(x), repeats, strict=True):
        if not (isinstance(count, int) and count == 1):
            single.append(1)
            spread.append(count)
        single.append(dim)
        spread.append(dim)
    wide = builder.broadcast_to(builder.reshape(x, tuple(single)), tuple(spread))
    shape = tuple(product(pair) for pair in zip(shape_of(x), repeats, strict=True))
    return [builder.reshape(wide, shape)]


@decomposition("DepthToSpace")
def depth_to_space(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    batch, channels, height, width = shape_of(x)
    block = int(node.attrs["blocksize"])
    depth = floordiv(channels, block * block)
    if text(node, "mode", "DCR") == "DCR":
        split, perm = (batch, block, block, depth, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, perm = (batch, depth, block, block, height, width), (0, 1, 4, 2, 5, 3)
    y = builder.transpose(builder.reshape(x, split), perm)
    return [builder.reshape(y, (batch, depth, product((height, block)), product((width, block))))]


@decomposition("SpaceToDepth")
def space_to_depth(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if text(node, "mode", "DCR") != "DCR":
        return None
    batch, channels, height, width = shape_of(x)
    block = int(node.attrs["blocksize"])
    rows, columns = floordiv(height, block), floordiv(width, block)
    reason = f"{node.op} {node.name!r} cuts whole blocks"
    for axis, blocks in ((2, rows), (3, columns)):
        whole = mul(blocks, block)
        if not builder.facts.same(shape_of(x)[axis], whole):
            # Nothing is cut off, but rows of blocks are strides then, whatever the extent.
            builder.facts.expect(whole, Relation.EQUAL, shape_of(x)[axis], lambda: reason)
            x = part(builder, x, axis, 0, whole)
    y = builder.reshape(x, (batch, channels, rows, block, columns, block))
    y = builder.transpose(y, (0, 3, 5, 1, 2, 4))
    return [builder.reshape(y, (batch, product((channels, block * block)), rows, columns))]


@decomposition("Shape")
def shape_node(builder: Builder, node: Node, operands: Operands) -> Results:
    shape = shape_of(required(node, operands, 0))
    dims = shape[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return [builder.dims(dims, (len(dims),))]


@decomposition("Size")
def size(builder: Builder, node: Node, operands: Operands) -> Results:
    return [dim_value(builder, product(shape_of(required(node, operands, 0))))]
