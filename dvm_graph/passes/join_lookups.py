"""Looks up the strings of several columns by one call of the host.

    Requires: basic operators and calls. Ensures: of the lookups of strings that need not wait for each other, those over given
    strings are one call, and those at places that are computed, too.

    a = StringPlaces(x) {"p"}; b = StringPlaces(y) {"q"}   =>   a, b = StringPlaces(x, y) {"p", "q"}

A call costs more than to look up a string, and rows come one by one. Lookups that refuse strings stay: they say which of them
did. So do those of which one may bind a dim that another rests on: places have the dims of what they are picked by, and what
is given rests on nothing.
"""

from __future__ import annotations

from dvm_graph.ir import Graph, Node, Value


def join_lookups(graph: Graph) -> bool:
    """True if lookups were joined."""
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
    return bool(several)


def _may_join(node: Node, graph: Graph) -> bool:
    if node.op != "host" or node.attrs["op"] != "StringPlaces" or node.attrs["arguments"][-1]:
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
