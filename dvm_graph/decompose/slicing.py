"""Parts of tensors and tensors of parts: Slice, Split, Concat, Pad.

Bounds are dims and may be symbolic; clamping is arithmetic on dims, so that a result's extent is
right for every extent of the operand, 0 included.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TypeAlias

from dvm_graph.decompose.arithmetic import dim_value, positions, scalar_of
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
    distinct_axes,
    elements,
    integers,
    normalize_axis,
    operand,
    present,
    required,
    text,
)
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.errors import ModelError
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import (
    add,
    ceildiv,
    floordiv,
    less,
    maximum,
    minimum,
    mul,
    neg,
    select,
    sub,
)
from dvm_graph.symbolic.facts import Relation

_LARGEST = (2**31 - 1, 2**63 - 1)
_ENDS = (*_LARGEST, -(2**31 - 1), -(2**31))
"""What exporters write for a bound beyond whatever extent there is, but for numbers of `_FAR` and more."""
_FAR = 2**62
_LONGEST_STEP = 2**40
"""Over an extent that is not known: strides of steps have to fit 64 bits."""


def clamped_range(start: Dim, end: Dim, step: int, extent: Dim) -> tuple[Dim, Dim]:
    """First position and count of start:end:step over an extent, by ONNX's rules.

    They are numpy's but for two: backwards from before the first element reads the first one, and
    backwards to the largest integer leaves nothing out, as in onnxruntime.
    """
    if step > 0:
        first = _clamp(_wrap(start, extent), 0, extent)
        last = extent if end in _LARGEST else _clamp(_wrap(end, extent), 0, extent)
        return first, maximum(0, ceildiv(sub(last, first), step))
    top = sub(extent, 1)
    first = minimum(_clamp(_wrap(start, extent), 0, top), top)  # -1 over an empty axis
    last = -1 if end in _LARGEST else _clamp(_wrap(end, extent), -1, top)
    return first, maximum(0, ceildiv(sub(first, last), -step))


def _wrap(position: Dim, extent: Dim) -> Dim:
    """Counts negative positions from the end; far out ones stay far out."""
    if isinstance(position, int):
        return position if position >= 0 or _is_far(position, extent) else add(position, extent)
    return select(less(position, 0), add(position, extent), position)


def _clamp(position: Dim, low: Dim, high: Dim) -> Dim:
    if isinstance(position, int) and _is_far(position, high):
        return high if position > 0 else low
    # The upper limit first: over an empty axis it lies below the lower one.
    return maximum(low, minimum(position, high))


def _is_far(position: int, extent: Dim) -> bool:
    """Beyond either end of an axis, where its extent does not tell."""
    return not isinstance(extent, int) and (position in _ENDS or abs(position) >= _FAR)


def _limited(step: int, extent: Dim) -> int:
    """The step, or a shorter one that is as far beyond the extent."""
    most = max(extent, 1) if isinstance(extent, int) else _LONGEST_STEP
    return max(-most, min(step, most))


@decomposition("Slice")
def slice_node(builder: Builder, node: Node, operands: Operands) -> Results:
    _assume_as_many(builder, node, operands[1:])
    x = required(node, operands, 0)
    starts = elements(operands, 1)
    ends = elements(operands, 2)
    if starts is None or ends is None:
        return _bound_slice(builder, node, operands)
    axes = integers(_or_default(operands, 3, range(len(starts))))
    steps = integers(_or_default(operands, 4, (1,) * len(starts)))
    if axes is None or steps is None:
        return _bound_slice(builder, node, operands)
    axes = distinct_axes(node, axes, x.rank)
    first: list[Dim] = [0] * x.rank
    strides = [1] * x.rank
    sizes = list(shape_of(x))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise ModelError(f"{node.op} {node.name!r}: a step of axis {axis} is 0")
        step = strides[axis] = _limited(step, sizes[axis])
        first[axis], sizes[axis] = clamped_range(start, end, step, sizes[axis])
    return [builder.slice(x, tuple(first), tuple(sizes), tuple(strides))]


def _assume_as_many(builder: Builder, node: Node, bounds: Operands) -> None:
    """Of starts, ends, axes and steps there are as many as of those whose number is known."""
    shapes = {value.shape for value in bounds if value is not None}
    counts = [shape[0] for shape in shapes if shape is not None and len(shape) == 1]
    some = {count for count in counts if isinstance(count, int)}
    if len(some) == 1:
        [count] = some
        for value in bounds:
            assume_count(builder, node, value, count)


def _bound_slice(builder: Builder, node: Node, operands: Operands) -> Results:
    """By bounds that only the run tells; along axes whose step it tells, too, elements are gathered."""
    x = required(node, operands, 0)
    starts, ends = (contents_of(builder, required(node, operands, index)) for index in (1, 2))
    if starts is None or ends is None:
        return None
    given = operand(operands, 4)
    steps = (1,) * len(starts) if given is None else contents_of(builder, given)
    axes = integers(_or_default(operands, 3, range(len(starts))))
    if steps is None or (axes is None and set(steps) != {1}):
        return None
    strides: list[int] = [1] * x.rank
    by_index: dict[int, Value] = {}
    dims: list[Dim | None] = [None] * (2 * x.rank)
    if axes is not None:
        for axis, extent in enumerate(shape_of(x)):
            dims[2 * axis : 2 * axis + 2] = 0, extent
        bounds = zip(starts, ends, distinct_axes(node, axes, x.rank), steps, strict=True)
        for at, (start, end, axis, step) in enumerate(bounds):
            if isinstance(step, int):
                strides[axis] = _limited(step, shape_of(x)[axis])
                dims[2 * axis : 2 * axis + 2] = _known_range(start, end, step, shape_of(x)[axis])
            else:
                assert given is not None
                by_index[axis] = scalar_of(builder, part(builder, given, 0, at, 1), DType.INT64)
                dims[2 * axis : 2 * axis + 2] = None, None
    operands = (shape_operand(builder, x), *operands[1:])
    extents = bound_extents(builder, node, operands, dims)
    for axis, step in by_index.items():
        first, count = extents[2 * axis : 2 * axis + 2]
        index = builder.mul(positions(builder, count, 0, 1), step)
        x = builder.gather(x, builder.add(index, dim_value(builder, first)), axis)
    firsts = [0 if axis in by_index else extents[2 * axis] for axis in range(x.rank)]
    counts = extents[1::2]
    for extent, first, count, stride in zip(shape_of(x), firsts, counts, strides, strict=True):
        _assume_inside(builder, node, extent, first, count, stride)
    return [builder.slice(x, tuple(firsts), counts, tuple(strides))]


def _assume_inside(
    builder: Builder, node: Node, extent: Dim, first: Dim, count: Dim, step: int
) -> None:
    """What the host operator makes sure of."""
    if first == 0 and count is extent:
        return
    ahead = sub(extent, first) if step > 0 else minimum(extent, add(first, 1))
    last = extent if step > 0 else maximum(0, sub(extent, 1))
    for value, most in ((count, ceildiv(maximum(ahead, 0), abs(step))), (first, last)):
        reason = f"{node.op} {node.name} stays inside"
        if isinstance(most, int):
            builder.facts.assume_range(value, 0, most, reason)
        elif not builder.facts.prove_less_equal(value, most).yes:
            builder.facts.expect(value, Relation.LESS_EQUAL, most, partial(str, reason))


def _known_range(
    start: Content, end: Content, step: int, extent: Dim
) -> tuple[Dim | None, Dim | None]:
    """First position and count where the bounds tell; backwards the first depends on whether there are any."""
    first, last = known(start), known(end)
    if first is None or step < 0:
        return None, None
    if last is None:
        return clamped_range(first, 0, step, extent)[0], None
    return clamped_range(first, last, step, extent)


def _or_default(operands: Operands, index: int, default: Sequence[int]) -> Sequence[Dim] | None:
    if operand(operands, index) is None:
        return default
    return elements(operands, index)


def part(builder: Builder, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
    """`x` with one axis cut down to `size` positions from `start`; those that are read are there."""
    extent, *others = shape_of(x)[axis], *shape_of(x)[:axis], *shape_of(x)[axis:][1:]
    is_read = all(builder.facts.bounds(other)[0] > 0 for other in others)
    if is_read and isinstance(start, int) and isinstance(size, int) and size > 0:
        end = max(start, start + (size - 1) * step) + 1
        builder.facts.assume_range(extent, end, None, "a part lies within its whole")
    starts: list[Dim] = [0] * x.rank
    steps, sizes = [1] * x.rank, list(shape_of(x))
    starts[axis], steps[axis], sizes[axis] = start, step, size
    return builder.slice(x, tuple(starts), tuple(sizes), tuple(steps))


@decomposition("Split")
def split(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    axis = normalize_axis(node, node.attrs.get("axis", 0), x.rank)
    extent = shape_of(x)[axis]
    count, given = len(node.outputs), operand(operands, 1)
    sizes: Sequence[Dim] | None
    if given is None or given.shape == (0,):
        starts, sizes = _even_parts(builder, node, extent)
    else:
        sizes = given.elements
        if sizes is None and given.data is not None:  # there may be many
            sizes = given.data.reshape(-1).tolist()
        if sizes is None:
            sizes = _bound_sizes(builder, node, x, given, axis)
        if sizes is None or len(sizes) != count:
            return None
        starts = list(itertools.accumulate(sizes, add, initial=0))
        builder.facts.assume_equal(starts.pop(), extent, f"the parts of {node.name} are the whole")
    pairs = zip(starts, sizes, strict=True)
    return [part(builder, x, axis, start, size) for start, size in pairs]


def _bound_sizes(
    builder: Builder, node: Node, x: Value, given: Value, axis: int
) -> Sequence[Dim] | None:
    """Sizes that only the run tells; where it gives none, those of equal parts."""
    if given.rank != 1 or given.dtype is not DType.INT64:
        return None
    contents, count = contents_of(builder, given), len(node.outputs)
    dims = [None] * count if contents is None else [known(content) for content in contents]
    operands = (shape_operand(builder, x), given)
    return bound_extents(builder, node, operands, dims, (axis, count))


def _even_parts(builder: Builder, node: Node, extent: Dim) -> tuple[list[Dim], list[Dim]]:
    """Starts and sizes of equal parts; the last one may be smaller where an attribute says how many they are.

    Raises:
        ShapeError: it comes out neither way.
    """
    count = len(node.outputs)
    chunk = ceildiv(extent, count)
    *starts, last = [mul(chunk, index) for index in range(count)]
    rest = sub(extent, last)
    if "num_outputs" not in node.attrs:
        builder.facts.assume_equal(rest, chunk, f"{node.name} has {count} equal parts")
    else:
        builder.facts.assume_range(rest, 0, None, f"{node.name} has {count} parts")
    return [*starts, last], [*[chunk] * (count - 1), rest]


@decomposition("Concat")
def concat(builder: Builder, node: Node, operands: Operands) -> Results:
    values = present(operands)
    axis = normalize_axis(node, int(node.attrs["axis"]), values[0].rank)
    return [values[0] if len(values) == 1 else builder.concat(values, axis)]


Reindex: TypeAlias = Callable[[Builder, Value, Dim], Value]


@decomposition("Pad")
@decomposition("Pad", domain=MICROSOFT)
def pad(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    amounts = elements(operands, 1)
    axes = integers(_or_default(operands, 3, range(x.rank)))
    if amounts is None or axes is None:
        return _bound_pad(builder, node, operands)
    if len(amounts) != 2 * len(axes):
        return None
    grown: list[tuple[int, Dim, Dim]] = []
    for index, axis in enumerate(distinct_axes(node, axes, x.rank)):
        before, after = amounts[index], amounts[index + len(axes)]
        if isinstance(before, int) and isinstance(after, int) and before == after == 0:
            continue
        extent, cut = shape_of(x)[axis], add(maximum(0, neg(before)), maximum(0, neg(after)))
        if cut != 0:
            size = add(extent, add(before, after))
            builder.facts.assume_range(size, 0, None, "negative pads cut no more than there is")
            rest = maximum(0, sub(extent, cut))
            x = part(builder, x, axis, maximum(0, neg(before)), rest)
            # What is cut away beyond the elements comes off the pad on the other side.
            lacking = maximum(0, sub(cut, extent))
            before, after = sub(before, lacking), sub(after, lacking)
        grown.append((axis, maximum(0, before), maximum(0, after)))
    for axis, before, after in sorted(grown, key=itemgetter(0), reverse=True):
        x = _grown(builder, node, operands, x, axis, before, after)
    return [x]


def _grown(
    builder: Builder, node: Node, operands: Operands, x: Value, axis: int, before: Dim, after: Dim
) -> Value:
    """`x` with pads of the node's mode, neither of which is negative.

    The last axis is the first to grow: what is behind the elements of others are whole rows then.
    """
    mode = text(node, "mode", "constant")
    if mode == "constant":
        return padded(builder, x, axis, before, after, _pad_value(builder, node, operands))
    if any(builder.facts.prove_less_equal(1, side).yes for side in (before, after)):
        builder.facts.assume_range(
            shape_of(x)[axis], 1, None, "pads repeat elements that are there"
        )
    return _pad_by_index(builder, x, axis, before, after, _REINDEX[mode])


def _bound_pad(builder: Builder, node: Node, operands: Operands) -> Results:
    """By pads that only the run tells."""
    x, pads = required(node, operands, 0), required(node, operands, 1)
    axes = integers(_or_default(operands, 3, range(x.rank)))
    if axes is not None:
        assume_count(builder, node, pads, 2 * len(axes))
    amounts = contents_of(builder, pads)
    if amounts is None:
        return None
    dims: list[Dim | None] = [None] * (4 * x.rank)
    if axes is not None:
        for axis, extent in enumerate(shape_of(x)):
            dims[4 * axis : 4 * axis + 4] = 0, extent, 0, 0
        for index, axis in enumerate(distinct_axes(node, axes, x.rank)):
            before, after = known(amounts[index]), known(amounts[index + len(axes)])
            cut = 0 if isinstance(before, int) and before >= 0 else None
            sides = [0 if side == 0 else None for side in (before, after)]
            dims[4 * axis : 4 * axis + 4] = cut, None, *sides
    bounds = (shape_operand(builder, x), pads, operand(operands, 3))
    repeats = text(node, "mode", "constant") != "constant"
    extents = bound_extents(builder, node, bounds, dims, (repeats,))
    for axis in reversed(range(x.rank)):
        first, count, before, after = extents[4 * axis : 4 * axis + 4]
        _assume_inside(builder, node, shape_of(x)[axis], first, count, 1)
        if (before, after) != (0, 0) or count is not shape_of(x)[axis]:
            x = part(builder, x, axis, first, count)
            x = _grown(builder, node, operands, x, axis, before, after)
    return [x]


def _pad_value(builder: Builder, node: Node, operands: Operands) -> Value:
    value = operand(operands, 2)
    dtype = required(node, operands, 0).dtype
    if value is None:
        return builder.scalar(0, dtype)
    both = value.dtype.is_float and dtype.is_float  # an attribute was one before the type was known
    return scalar_of(builder, value, dtype if both else value.dtype)


def padded(builder: Builder, x: Value, axis: int, before: Dim, after: Dim, value: Value) -> Value:
    """The value, x, and the value again, side by side; x without its first elements where `before` is negative."""
    if not builder.facts.prove_less_equal(0, before).yes:
        cut = maximum(0, neg(before))
        x = part(builder, x, axis, cut, sub(shape_of(x)[axis], cut))
        before = maximum(0, before)
    pieces = []
    for amount in (before, after):
        shape = list(shape_of(x))
        shape[axis] = amount
        pieces.append(builder.broadcast_to(value, tuple(shape)))
    return _between(builder, pieces[0], x, pieces[1], axis)


def _between(builder: Builder, front: Value, x: Value, back: Value, axis: int) -> Value:
    pieces = [piece for piece in (front, x, back) if piece is x or shape_of(piece)[axis] != 0]
    return pieces[0] if len(pieces) == 1 else builder.concat(pieces, axis)


def _pad_by_index(
    builder: Builder, x: Value, axis: int, before: Dim, after: Dim, reindex: Reindex
) -> Value:
    """What lies at position p outside of x is read from reindex(p); what is inside is written in place."""
    extent = shape_of(x)[axis]
    pads = []
    for first, count in ((neg(before), before), (extent, after)):
        index = reindex(builder, positions(builder, count, 0, 1, first), extent)
        pads.append(builder.gather(x, index, axis))
    return _between(builder, pads[0], x, pads[1], axis)


def _edge(builder: Builder, index: Value, extent: Dim) -> Value:
    index = builder.max(index, builder.scalar(0, DType.INT64))
    return builder.min(index, dim_value(builder, sub(extent, 1)))


def _reflect(builder: Builder, index: Value, extent: Dim) -> Value:
    """There and back again with period 2 * (extent - 1)."""
    period = maximum(1, mul(2, sub(extent, 1)))
    phase = builder.mod(index, dim_value(builder, period))
    return builder.min(phase, builder.sub(dim_value(builder, period), phase))


def _circular(builder: Builder, index: Value, extent: Dim) -> Value:
    return builder.mod(index, dim_value(builder, extent))


_REINDEX: dict[str, Reindex] = {"edge": _edge, "reflect": _reflect, "wrap": _circular}


@decomposition("CenterCropPad")
def center_crop_pad(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    wanted = required(node, operands, 1).elements
    if wanted is None:
        return None
    axes = distinct_axes(node, node.attrs.get("axes") or range(x.rank), x.rank)
    zero = builder.scalar(0, x.dtype)
    for axis, size in zip(axes, wanted, strict=True):
        missing = sub(size, shape_of(x)[axis])
        # floordiv rounds a crop's start down and a pad's front down alike, after the sign.
        cut = floordiv(maximum(0, neg(missing)), 2)
        x = part(builder, x, axis, cut, minimum(size, shape_of(x)[axis]))
        grow = maximum(0, missing)
        front = floordiv(grow, 2)
        x = padded(builder, x, axis, front, sub(grow, front), zero)
    return [x]
