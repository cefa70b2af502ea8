"""The axes of one operator: the atoms of its result and of each operand.

In: a basic operator with shapes. Out: a `NodeAxes` over fresh atoms of an `AxisSpace`.

Invariants: where an operand's layout shares atoms with the result, reading the operand at a point of
the result's iteration space is what the operator means. An operand without a layout (`None`) is read
from memory in a way that atoms cannot say: a slice, a strided view, a reshape that does not regroup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dvm_graph.cluster.axes import Atom, AxisSpace, Layout
from dvm_graph.ir import OPERATORS, Kind, Node, Shape, shape_of
from dvm_graph.symbolic import floordiv

WINDOWS = frozenset({"pool_max", "pool_sum", "depthwise", "patches"})
"""Operators that read images by windows; `patches` is a view that only a matmul can read."""


@dataclass(slots=True)
class NodeAxes:
    """The axes of one operator."""

    result: Layout
    operands: tuple[Layout | None, ...]
    maybe: tuple[tuple[int, ...], ...]
    """Per operand, the axes that are broadcast only for some sizes (extent 1, or that of the
    result; which one is UNKNOWN)."""
    memory: tuple[bool, ...]
    """Per operand: it has to come from memory, no computation can feed it inside a kernel."""
    reduced: tuple[Atom, ...] = ()
    domain: tuple[Atom, ...] = ()
    """Atoms the operator iterates over, if more than those of its result."""


def describe(node: Node, space: AxisSpace) -> NodeAxes:
    """The axes of a basic operator, over fresh atoms."""
    special = _SPECIAL.get(node.op)
    if special is not None:
        return special(node, space)
    if OPERATORS[node.op].kind is Kind.REDUCE:
        return _reduce(node, space)
    return _map(node, space)


def _aligned(
    shape: Shape, result: Layout, extents: Shape, space: AxisSpace
) -> tuple[Layout, tuple[int, ...]]:
    """Layout of an operand that broadcasts to a result, and its maybe-broadcast axes."""
    if shape == extents:
        return result, ()
    skip = len(result) - len(shape)
    layout = []
    maybe = []
    for axis, extent in enumerate(shape):
        atoms, whole = result[skip + axis], extents[skip + axis]
        if not space.equal(extent, whole):
            if space.is_one(extent):
                atoms = ()
            else:
                maybe.append(axis)
        layout.append(atoms)
    return tuple(layout), tuple(maybe)


def _map(node: Node, space: AxisSpace) -> NodeAxes:
    extents = shape_of(node.output)
    result = space.layout(extents)
    layouts, maybes = [], []
    for value in node.inputs:
        if value is not None:
            layout, maybe = _aligned(shape_of(value), result, extents, space)
            layouts.append(layout)
            maybes.append(maybe)
    return NodeAxes(result, tuple(layouts), tuple(maybes), (False,) * len(layouts))


def _reduce(node: Node, space: AxisSpace) -> NodeAxes:
    operand = space.layout(shape_of(node.required(0)))
    axes = frozenset(node.attrs["axes"])
    result = tuple(() if axis in axes else atoms for axis, atoms in enumerate(operand))
    reduced = tuple(atom for axis in sorted(axes) for atom in operand[axis])
    domain = tuple(atom for atoms in operand for atom in atoms)
    return NodeAxes(result, (operand,), ((),), (False,), reduced, domain)


def _matmul(node: Node, space: AxisSpace) -> NodeAxes:
    a, b = shape_of(node.required(0)), shape_of(node.required(1))
    extents = shape_of(node.output)
    m = (space.atom(extents[-2]),)
    n = (space.atom(extents[-1], rigid=True),)
    k = (space.atom(a[-1], rigid=True),)
    batch = space.layout(extents[:-2])
    a_batch, a_maybe = _aligned(a[:-2], batch, extents[:-2], space)
    b_batch, b_maybe = _aligned(b[:-2], batch, extents[:-2], space)
    domain = (*(atom for atoms in batch for atom in atoms), *m, *n, *k)
    return NodeAxes(
        (*batch, m, n),
        ((*a_batch, m, k), (*b_batch, k, n)),
        (a_maybe, b_maybe),
        (True, True),
        domain=domain,
    )


def _reshape(node: Node, space: AxisSpace) -> NodeAxes:
    operand = space.layout(shape_of(node.required(0)))
    result = space.layout(shape_of(node.output))
    mark = space.mark()
    flat_operand = [atom for atoms in operand for atom in atoms]
    flat_result = [atom for atoms in result for atom in atoms]
    if space.unify(flat_operand, flat_result) is None:
        return NodeAxes(result, (operand,), ((),), (False,))
    space.rollback(mark)
    return NodeAxes(result, (None,), ((),), (True,))


def _transpose(node: Node, space: AxisSpace) -> NodeAxes:
    operand = space.layout(shape_of(node.required(0)))
    result = tuple(operand[axis] for axis in node.attrs["perm"])
    return NodeAxes(result, (operand,), ((),), (False,))


def _broadcast_to(node: Node, space: AxisSpace) -> NodeAxes:
    extents = shape_of(node.output)
    result = space.layout(extents)
    layout, maybe = _aligned(shape_of(node.required(0)), result, extents, space)
    return NodeAxes(result, (layout,), (maybe,), (bool(maybe),))


def _strided(node: Node, space: AxisSpace) -> NodeAxes:
    return NodeAxes(space.layout(shape_of(node.output)), (None,), ((),), (True,))


def _gather(node: Node, space: AxisSpace) -> NodeAxes:
    source, index = shape_of(node.required(0)), shape_of(node.required(1))
    axis: int = node.attrs["axis"]
    result = space.layout(shape_of(node.output))
    gathered = (space.atom(source[axis], rigid=True),)
    before, middle = result[:axis], result[axis : axis + len(index)]
    after = result[axis + len(index) :]
    return NodeAxes(result, ((*before, gathered, *after), middle), ((), ()), (True, False))


def _window(node: Node, space: AxisSpace) -> NodeAxes:
    count = len(node.inputs)
    extents = shape_of(node.output)
    result = space.layout(extents)
    if node.op == "patches":  # what becomes the k axis of a matmul is one even where it is short
        result = (*result[:-1], (space.atom(extents[-1]),))
    elif node.op == "depthwise":
        groups: int = node.attrs["groups"]
        split = space.layout((groups, floordiv(extents[-1], groups)))
        result = (*result[:-1], tuple(atom for atoms in split for atom in atoms))
    return NodeAxes(result, (None,) * count, ((),) * count, (True,) * count)


def _unpack_blocks(node: Node, space: AxisSpace) -> NodeAxes:
    count = len(node.inputs)
    result = tuple((space.atom(extent),) for extent in shape_of(node.output))
    return NodeAxes(result, (None,) * count, ((),) * count, (True,) * count)


def _source(node: Node, space: AxisSpace) -> NodeAxes:
    return NodeAxes(space.layout(shape_of(node.output)), (), (), ())


_SPECIAL: dict[str, Callable[[Node, AxisSpace], NodeAxes]] = {
    "matmul": _matmul,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "view": _strided,
    "slice": _strided,
    "gather": _gather,
    **dict.fromkeys(WINDOWS, _window),
    "unpack_blocks": _unpack_blocks,
    "iota": _source,
    "dims": _source,
}
