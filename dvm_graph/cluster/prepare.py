"""Brings a graph of basic operators into the form that clustering wants.

  * A view, what counts along an axis, a dims scalar or a small computation of scalars is repeated for each of its users, so
    that each kernel can take in its own; but not for windows and gathers that can take in none.
  * Each operand of a concat gets a reshape of its own: the place where it is stored into the result.
    A concat that only another one uses, or gathers for it, has its place already.
  * A graph output that is an input, a constant or another output becomes a copy, if kernels can
    hold it.

Invariants: no value changes; afterwards the result of a relayout or of a strided view has one use, or windows and gathers
of what is stored.
"""

from __future__ import annotations

from dvm_graph.cluster.groups import kind_of
from dvm_graph.cluster.node_axes import WINDOWS
from dvm_graph.ir import OPERATORS, Graph, Kind, Node, Value, shape_of
from dvm_graph.rules import PartKind

_MAX_SCALAR_CHAIN = 8
"""Operators in a computation of scalars that is repeated for each user."""
_REPEATED = frozenset({Kind.MAP, Kind.SOURCE, Kind.VIEW})
"""Kinds of those."""


def prepare(graph: Graph) -> None:
    """Rewrites the graph in place."""
    _copy_outputs(graph)
    _place_concat_operands(graph)
    _repeat_cheap(graph)


def _identity(graph: Graph, value: Value, origin: tuple[str, ...]) -> Value:
    result = Value(graph.unique_name(f"{value.name}.copy"), value.dtype, value.shape)
    name = graph.unique_name(f"copy.{value.name}")
    attrs = {"shape": shape_of(value)}
    graph.add(Node(name, "reshape", (value,), (result,), attrs, origin=origin))
    return result


def _copy_outputs(graph: Graph) -> None:
    seen: set[Value] = set()
    inputs = set(graph.inputs)
    outputs = []
    for value in graph.outputs:
        if value.computable and (value in seen or value in inputs or value.is_constant):
            value = _identity(graph, value, ())
        seen.add(value)
        outputs.append(value)
    graph.outputs = outputs


def _place_concat_operands(graph: Graph) -> None:
    for node in list(graph.nodes):
        if node.op == "concat":
            operands = [v for v in node.inputs if v is not None]
            in_place = {v for v in operands if _joins_only(graph, v, node)}
            placed = [v if v in in_place else _identity(graph, v, node.origin) for v in operands]
            graph.set_inputs(node, placed)


def _joins_only(graph: Graph, value: Value, outer: Node) -> bool:
    """The value is a concat, and one place in `outer` is its only use, but for gathers of it that are other parts there:
    so are pads that repeat what lies beside them. They read it where it is, and nothing that the extents of `outer` rest
    on waits for them.
    """
    if value.producer is None or value.producer.op != "concat" or graph.is_output(value):
        return False
    gathers = [user for user in graph.users(value) if user is not outer]
    return outer.inputs.count(value) == 1 and all(
        user.op == "gather"
        and user.inputs.count(value) == 1
        and user.inputs[0] is value
        and list(graph.users(user.output)) == [outer]
        and not graph.is_output(user.output)
        for user in gathers
    )


def _repeat_cheap(graph: Graph) -> None:
    scalars = _scalar_chains(graph)
    for node in reversed(graph.sorted_nodes()):
        if kind_of(node) is PartKind.VIEW or node.op == "iota" or node in scalars:
            _repeat(graph, node)


def _repeat(graph: Graph, node: Node) -> None:
    """One copy of the operator for every use but one (that as graph output comes first), and but those that read what is
    stored.
    """
    value = node.output
    if sum(graph.uses(value).values()) <= 1 and not graph.is_output(value):
        return
    uses = [
        (user, index)
        for user in graph.users(value)
        for index, operand in enumerate(user.inputs)
        if operand is value
    ]
    repeated = [use for use in uses if not _reads_stored(node, *use)]
    if len(repeated) == len(uses) and not graph.is_output(value):
        repeated = repeated[1:]
    for user, index in repeated:
        inputs = list(user.inputs)
        inputs[index] = _clone(graph, node)
        graph.set_inputs(user, inputs)


def _reads_stored(node: Node, user: Node, index: int) -> bool:
    """Whether no kernel of the user can take in the operator: a transpose of an image that is read by windows, a reshape
    that makes the axis of which the user gathers.
    """
    if node.op == "transpose" and user.op in WINDOWS and index == 0:
        return True
    if node.op != "reshape" or user.op != "gather" or index != 0:
        return False
    return shape_of(node.output)[user.attrs["axis"]] not in shape_of(node.required(0))


def _clone(graph: Graph, node: Node) -> Value:
    value = node.output
    result = Value(graph.unique_name(value.name), value.dtype, value.shape, elements=value.elements)
    clone = Node(
        graph.unique_name(node.name),
        node.op,
        node.inputs,
        (result,),
        node.attrs,
        origin=node.origin,
        metadata=node.metadata,
    )
    graph.add(clone)
    return result


def _scalar_chains(graph: Graph) -> set[Node]:
    """Operators on single elements that rest on constants and dims alone, a few at most."""
    lengths: dict[Value, int] = {}
    chains: set[Node] = set()
    for node in graph.sorted_nodes():
        if OPERATORS[node.op].kind not in _REPEATED:
            continue
        shape = node.output.shape or ()
        if node.op == "concat" or shape != (1,) * len(shape):
            continue
        length = 1
        for value in node.inputs:
            if value is None or value.is_constant:
                continue
            if value not in lengths:
                break
            length += lengths[value]
        else:
            if length <= _MAX_SCALAR_CHAIN:
                lengths[node.output] = length
                chains.add(node)
    return chains
