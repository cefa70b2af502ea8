"""Looks up the strings of several columns by one call of the host.

    Requires: basic operators and calls. Ensures: what is looked up of columns of given strings is the columns of the strings; of
    the lookups of strings that need not wait for each other, those over given strings are one call, and those at places that are
    computed, too.

    a = StringPlaces(x) {"p"}; b = StringPlaces(y) {"q"}   =>   a, b = StringPlaces(x, y) {"p", "q"}

A call costs more than to look up a string, and rows come one by one. Lookups that refuse strings stay: they say which of them
did. So do those of which one may bind a dim that another rests on: places have the dims of what they are picked by, and what
is given rests on nothing.
"""

from __future__ import annotations

from dvm_graph.ir import Graph, Node, Value
from dvm_graph.symbolic.shape_functions import row_major


def join_lookups(graph: Graph) -> bool:
    """True if lookups were joined."""
    if not any(map(_looks_up, graph.nodes)):
        return False
    absorbed = [node for node in graph.sorted_nodes() if _takes_columns(graph, node)]
    alike: dict[tuple[int, bool], list[Node]] = {}
    waits: dict[Node, int] = {}
    for node in graph.sorted_nodes():
        above = [v.producer for v in node.inputs if v is not None and v.producer is not None]
        waits[node] = max((waits[p] + p.is_call for p in above), default=0)
        if _may_join(node, graph):
            alike.setdefault((waits[node], len(node.inputs) > 1), []).append(node)
    several = [nodes for nodes in alike.values() if len(nodes) > 1]
    for nodes in several:
        _join(graph, nodes)
    return bool(several or absorbed)


def _takes_columns(graph: Graph, node: Node) -> bool:
    """Whether a lookup at places that are a view of all places of given strings was made one of columns of these."""
    if not _looks_up(node) or len(node.inputs) != 2:
        return False
    places, strings = node.required(0), node.required(1)
    view = places.made_by("view")
    every = None if view is None else view.required(0).made_by("host")
    if view is None or every is None or every.attrs["op"] != "StringNumbers":
        return False
    columns = _columns(view) if every.inputs[0] is strings else None
    if columns is None:
        return False
    _, _, _, _, *rest = node.attrs["arguments"]
    graph.set_inputs(node, [strings])
    node.attrs["arguments"] = (1, *columns, *rest)
    _remove_unused(graph, every)
    return True


def _remove_unused(graph: Graph, node: Node) -> None:
    """With what reads it for nobody: of what counts all strings eliminate_dead would think that it tells their dims."""
    for value in node.outputs:
        for user in tuple(graph.users(value)):
            if user in graph and (not user.is_call or user.attrs.get("op") == "StringsAt"):
                _remove_unused(graph, user)
    if not any(graph.users(value) or graph.is_output(value) for value in node.outputs):
        graph.remove(node)


def _columns(view: Node) -> tuple[int, int, int] | None:
    """The first of the columns of a matrix that a view shows, of all its rows, how many, and of how many; 0: one, without its
    axis. None: it shows something else, or the run tells how many columns there are.
    """
    whole, shape = view.required(0).shape, view.output.shape
    start, strides = view.attrs["offset"], view.attrs["strides"]
    if not whole or shape is None or not isinstance(whole[-1], int) or not isinstance(start, int):
        return None
    rows = row_major(whole)[:-1]
    if shape[: len(rows)] != whole[:-1] or not all(
        own == stride or dim == 1 for own, stride, dim in zip(rows, strides, shape, strict=False)
    ):
        return None
    count = 0 if len(shape) == len(rows) else shape[-1]
    if len(shape) > len(whole) or not isinstance(count, int):
        return None
    if (count > 1 and strides[-1] != 1) or not 0 <= start <= whole[-1] - max(count, 1):
        return None
    return (start, count, whole[-1]) if count or len(shape) < len(whole) else None


def _looks_up(node: Node) -> bool:
    return bool(node.op == "host" and node.attrs["op"] == "StringPlaces")


def _may_join(node: Node, graph: Graph) -> bool:
    if not _looks_up(node) or node.attrs["arguments"][-1]:
        return False
    return len(node.inputs) > 1 or node.inputs[0] in graph.inputs


def _join(graph: Graph, nodes: list[Node]) -> None:
    first = nodes[0]
    results = [Value(graph.unique_name(v.name), v.dtype, v.shape) for n in nodes for v in n.outputs]
    words = tuple(word for node in nodes for word in node.attrs.get("words", ()))
    joined = Node(
        name=graph.unique_name(first.name),
        op=first.op,
        inputs=tuple(value for node in nodes for value in node.inputs),
        outputs=tuple(results),
        attrs={
            **first.attrs,
            "arguments": tuple(n for node in nodes for n in node.attrs["arguments"]),
            **({"words": words} if words else {}),
        },
        domain=first.domain,
        version=first.version,
        origin=tuple(dict.fromkeys(name for node in nodes for name in node.origin)),
        metadata=first.metadata,
        source=first.source,
    )
    graph.add(joined)
    for old, new in zip([v for n in nodes for v in n.outputs], results, strict=True):
        graph.replace_uses(old, new)
    for node in nodes:
        graph.remove(node)
