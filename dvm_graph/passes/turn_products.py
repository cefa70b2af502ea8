"""Turns products of images over where their results are read channels-first.

    Requires: basic operators with shapes. Ensures: no product of patches along one axis of images of one channel, which has
    at least as many results as a patch has elements, and an image not known to have few places, is transposed to
    [batch, results, places...] and read so by all; nor one of an image whose channels lie in planes, and of whose few results
    each is a place of its own.

    y = transpose(matmul(patches(x), w) + bias, (0, 3, 1, 2))
    =>  y = reshape(matmul(transpose(w, (1, 0)), view(x, (b, k, places), (n, 1, stride))) + reshape(bias, (-1, 1)))

A convolution multiplies patches by weights, and its results lie channels-last; that is what the next convolution reads.
Without one, every result would be turned over on its way to memory. Patches of one channel along one axis are a strided
view of the image, so that their transpose is one, too: instead of the results the patches are turned over, which are fewer.
Places are columns of the product then, those of each image for themselves: few do not pay for weights that are no panels.

    y = transpose(reshape(transpose(reshape(matmul(transpose(x, (0, 2, 3, 1)), w), (b, h, w, i, j, n)), (0, 1, 3, 2, 4, 5)), (b, h i, w j, n)), (0, 3, 1, 2))
    =>  y = reshape(transpose(reshape(matmul(transpose(w, (1, 0)), reshape(x, (b, c, h w))), (b, i, j, n, h, w)), (0, 3, 4, 1, 5, 2)), (b, n, h i, w j))

A transposed convolution whose kernel is its stride gives each pixel a block of i x j outputs. The few numbers of such a block fill no vector as
columns of a product, and would be put into their planes one by one; as its rows they are planes, which are interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dvm_graph.ir import OPERATORS, Dim, Graph, Kind, Node, Value, shape_of
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, maximum, mul, neg, product, sub

_TO_FIRST = (0, 3, 1, 2)
_PASSED = frozenset({"concat", "reshape", "slice", "gather", "broadcast_to"})
"""What keeps the order of axes that it reads, besides element-wise operators and reductions."""
_LEAST_PLACES = 128
"""Of the windows in an image: fewer do not pay for a product for each image, where patches of all images are the rows of one and weights
lie in panels (docs/performance/notes.md, operators of images).
"""
_TO_LAST = (0, 2, 3, 1)
_FEW_RESULTS = 16
"""Of one pixel: with 32 it depends on the extents which way takes longer (docs/performance/notes.md, operators of images)."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """What pixels give by themselves, each a block of outputs."""

    image: Value
    """[batch, channels, height, width]."""
    weights: Value
    """[channels, rows * columns * outputs]."""
    rows: int
    columns: int
    outputs: int


@dataclass(frozen=True, slots=True)
class _Line:
    """Patches along one axis of images of one channel."""

    image: Value
    """[batch, extent, neighbours]: the places beside each other that all taps share."""
    taps: int
    stride: int
    dilation: int
    pad: Dim
    """Negative where the first window begins behind the first element."""
    size: Dim
    """Positions along the axis."""

    @property
    def places(self) -> Dim:
        """Of the windows in an image."""
        return mul(self.size, shape_of(self.image)[2])


def turn_products(graph: Graph, facts: Facts) -> bool:
    """True if some product was turned over."""
    builder = Builder(graph, facts)
    changed = False
    for node in graph.sorted_nodes():
        if node.op != "transpose" or tuple(node.attrs["perm"]) != _TO_FIRST:
            continue
        with builder.scope(node):
            turned = _turned(node, builder)
        if turned is not None:
            changed = True
            graph.replace_node(node, turned)
    return changed


def _turned(transpose: Node, builder: Builder) -> Value | None:
    """The result of the transpose, without one; None: it is no such product, or better off as it is."""
    graph = builder.graph
    value, behind = transpose.required(0), list[Node]()
    while (operator := _per_result(value, graph)) is not None:
        behind.append(operator)
        value = operator.required(0)
    if not value.dtype.is_float or not graph.sole_use(value):
        return None
    if (blocks := _blocks(value, graph)) is not None:
        if _is_read_channels_last(transpose.output, graph):
            return None
        return _with_behind(builder, _in_planes(builder, blocks, shape_of(value)), behind, 2)
    matmul = value.made_by("matmul")
    if matmul is None:
        return None
    patches, weights = matmul.required(0), matmul.required(1)
    window = patches.made_by("patches")
    if window is None or not graph.sole_use(patches):
        return None
    line, results = _line(window, builder), shape_of(weights)[1]
    if line is None or not isinstance(results, int) or results < line.taps:
        return None
    if builder.facts.prove_less_equal(line.places, _LEAST_PLACES - 1).yes:
        return None
    if _is_read_channels_last(transpose.output, graph):
        return None
    result = builder.matmul(builder.transpose(weights, (1, 0)), _columns(builder, line))
    return builder.reshape(_with_behind(builder, result, behind, 1), shape_of(transpose.output))


def _with_behind(builder: Builder, result: Value, behind: Sequence[Node], places: int) -> Value:
    """What was computed of the results, the last one first, of those that have so many axes of places now."""
    for operator in reversed(behind):
        others = [operand for operand in operator.inputs[1:] if operand is not None]
        columns = (_as_column(builder, operand, places) for operand in others)
        result = builder.op(operator.op, result, *columns, **operator.attrs)
    return result


def _blocks(value: Value, graph: Graph) -> _Blocks | None:
    """None: it is not [batch, places..., outputs] of such, of few results and an image in planes."""
    flat = value
    while (reshape := flat.made_by("reshape")) is not None:
        if not graph.sole_use(flat):
            return None
        flat = reshape.required(0)
    turned = flat.made_by("transpose")
    if turned is None or flat is value or not graph.sole_use(flat):
        return None
    dealt = turned.required(0).made_by("reshape")
    matmul = None if dealt is None else dealt.required(0).made_by("matmul")
    if dealt is None or matmul is None or not graph.sole_use(dealt.output):
        return None
    to_last, weights = matmul.required(0).made_by("transpose"), matmul.required(1)
    if to_last is None or tuple(to_last.attrs["perm"]) != _TO_LAST or weights.rank != 2:
        return None
    results, outputs = shape_of(weights)[1], shape_of(value)[3]
    if not isinstance(results, int) or not isinstance(outputs, int) or results > _FEW_RESULTS:
        return None
    image = to_last.required(0)
    block = _block(shape_of(dealt.output), tuple(turned.attrs["perm"]), outputs)
    places = shape_of(matmul.output)[:3]
    if shape_of(dealt.output)[:3] != places or shape_of(value)[0] != places[0]:
        return None
    if block is None or not graph.sole_use(matmul.output) or _is_made_last(image):
        return None
    return _Blocks(image, weights, *block, outputs)


def _block(shape: Sequence[Dim], perm: Sequence[int], outputs: int) -> tuple[int, int] | None:
    """Rows and columns of a block, where [batch, height, width, ...] becomes [batch, height, rows, width, columns, outputs] with or without axes of
    extent 1, none of those behind the width passing another.
    """
    dealt = [axis for axis in perm if axis > 2 and shape[axis] != 1]
    if dealt != sorted(dealt) or [axis for axis in perm if axis < 3] != [0, 1, 2]:
        return None
    extents = [1, 1]
    between = perm.index(1), perm.index(2)
    for axis in dealt:
        extent, at = shape[axis], perm.index(axis)
        if not isinstance(extent, int) or at < between[0]:
            return None
        extents[at > between[1]] *= extent
    rows, rest = extents
    return (rows, rest // outputs) if rest % outputs == 0 and rows * rest > outputs else None


def _in_planes(builder: Builder, blocks: _Blocks, shape: Sequence[Dim]) -> Value:
    """[batch, outputs, height, width], of the shape channels-last."""
    batch, channels, height, width = shape_of(blocks.image)
    pixels = builder.reshape(blocks.image, (batch, channels, mul(height, width)))
    y = builder.matmul(builder.transpose(blocks.weights, (1, 0)), pixels)
    y = builder.reshape(y, (batch, blocks.rows, blocks.columns, blocks.outputs, height, width))
    y = builder.transpose(y, (0, 3, 4, 1, 5, 2))
    return builder.reshape(y, (shape[0], blocks.outputs, *shape[1:3]))


def _is_made_last(value: Value) -> bool:
    """Whether it was computed channels-last, or of what was."""
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop().producer
        if node is None:
            continue
        if node.op == "transpose":
            if tuple(node.attrs["perm"]) == _TO_FIRST:
                return True
            continue
        if node.op in _PASSED or OPERATORS[node.op].kind is Kind.MAP:
            above = [x for x in node.inputs if x is not None and x not in seen]
            seen.update(above)
            waiting += above
    return False


def _per_result(value: Value, graph: Graph) -> Node | None:
    """The element-wise operator that makes a value of one and of numbers for each result, or a single one."""
    node = value.producer
    if node is None or OPERATORS[node.op].kind is not Kind.MAP or not graph.sole_use(value):
        return None
    others = node.inputs[1:]
    return node if all(other is not None and other.rank <= 1 for other in others) else None


def _as_column(builder: Builder, value: Value, places: int) -> Value:
    return builder.reshape(value, (*shape_of(value), *(1,) * places)) if value.rank == 1 else value


def _line(patches: Node, builder: Builder) -> _Line | None:
    """None: they are no strided view of padded images."""
    image, attrs = patches.required(0), patches.attrs
    if not builder.facts.same(shape_of(image)[-1], 1):
        return None  # and images of one channel have one group, those of volumes another axis
    batch, height, width = shape_of(image)[:3]
    axis = 1 if builder.facts.same(height, 1) and attrs["kernel"][0] == 1 else 0
    other = 1 - axis
    still = attrs["kernel"][other] == 1 and attrs["strides"][other] == 1
    extent, across = (height, width) if axis == 0 else (width, height)
    if not still or not builder.facts.same_shape((attrs["size"][other],), (across,)):
        return None
    if attrs["pads"][other] != 0 or (
        attrs["strides"][axis] != 1 and not builder.facts.same(across, 1)
    ):
        return None
    return _Line(
        image=builder.reshape(image, (batch, extent, across)),
        taps=attrs["kernel"][axis],
        stride=attrs["strides"][axis],
        dilation=attrs["dilations"][axis],
        pad=attrs["pads"][axis],
        size=attrs["size"][axis],
    )


def _columns(builder: Builder, line: _Line) -> Value:
    """Patches as columns: [batch, taps, places]."""
    batch, extent, across = shape_of(line.image)
    reach = add(mul(add(line.size, -1), line.stride), line.dilation * (line.taps - 1) + 1)
    before, cut = maximum(0, line.pad), maximum(0, neg(line.pad))
    behind = maximum(0, sub(reach, add(extent, line.pad)))
    zero = builder.scalar(0, line.image.dtype)
    pieces = [
        line.image if amount is None else builder.broadcast_to(zero, (batch, amount, across))
        for amount in (before, None, behind)
        if amount != 0
    ]
    room = builder.concat(pieces, 1) if len(pieces) > 1 else line.image
    return builder.op(
        "view",
        room,
        shape=(batch, line.taps, line.places),
        strides=(product(shape_of(room)[1:]), mul(line.dilation, across), line.stride),
        offset=mul(cut, across),
    )


def _is_read_channels_last(value: Value, graph: Graph) -> bool:
    """Whether a transpose reads it, or what is computed of it in its order."""
    waiting, seen = [value], {value}
    while waiting:
        for node in graph.users(waiting.pop()):
            if node.op == "transpose":
                return True
            passed = node.op in _PASSED or OPERATORS[node.op].kind in (Kind.MAP, Kind.REDUCE)
            if passed and node.output not in seen:
                seen.add(node.output)
                waiting.append(node.output)
    return False
