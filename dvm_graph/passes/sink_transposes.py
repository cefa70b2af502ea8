"""Moves transposes from channels-last to channels-first order behind what does not care for the order.

    Requires: basic operators with shapes. Ensures: no element-wise operator, reduction, concat, slice, gather along one
    axis, or reshape that keeps channels and places apart reads transposes of this order alone, where its other operands
    follow for free.

    y = relu(transpose(x, (0, 3, 1, 2)) + bias)   =>   y = transpose(relu(x + bias'), (0, 3, 1, 2))

Convolutions and pools compute on channels-last images and transpose their results. Such a transpose
moves on until it meets the one before the next convolution; `simplify` cancels the two, and all between
stays channels-last.

What moves is [batch, places..., channels...] read as [batch, channels..., places...], with any number of axes for
either: a reshape may split, join or drop axes among the places or among the channels (a signal as an image of one row, a
shuffle of channels), and a transpose may permute the channels' axes. It starts with one axis of channels behind at
least two of places: other transposes stay where the model has them.
"""

from __future__ import annotations

from dvm_graph.ir import OPERATORS, Dim, Graph, Kind, Node, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product


def sink_transposes(graph: Graph, facts: Facts) -> bool:
    """True if some transpose moved."""
    return _Sinking(graph, facts).run()


def _to_first(channels: int, rank: int) -> tuple[int, ...]:
    """[batch, places..., channels...] read as [batch, channels..., places...]."""
    places = rank - 1 - channels
    return (0, *range(1 + places, rank), *range(1, 1 + places))


class _Sinking:
    """One sweep in topological order: what was moved is met again by its users."""

    def __init__(self, graph: Graph, facts: Facts) -> None:
        self._graph = graph
        self._builder = Builder(graph, facts)
        self._channels: dict[Value, int] = {}
        """Of results that transposes were moved to: how many axes the channels have."""

    def run(self) -> bool:
        changed = False
        for node in self._graph.sorted_nodes():
            if node.op != "reshape" and not self._reads_moved(node):
                continue
            with self._builder.scope(node):
                result = self._sunk(node)
            if result is None:
                continue
            changed = True
            self._graph.replace_uses(node.output, result)
            above = [value.producer for value in node.inputs if value is not None]
            self._graph.remove(node)
            for transpose in above:
                if transpose is not None and self._unused(transpose):
                    self._graph.remove(transpose)
        return changed

    def _reads_moved(self, node: Node) -> bool:
        """Whether some operand may be such a transpose; reshapes see further."""
        return "transpose" in [
            value.producer.op
            for value in node.inputs
            if value is not None and value.producer is not None
        ]

    def _unused(self, node: Node) -> bool:
        if node not in self._graph or node.op != "transpose":
            return False
        return not (self._graph.users(node.output) or self._graph.is_output(node.output))

    def _sunk(self, node: Node) -> Value | None:
        """The node's result as a transpose of what it computes channels-last."""
        kind = OPERATORS[node.op].kind
        if kind is Kind.MAP:
            return self._below_map(node)
        if node.op == "concat":
            return self._below_concat(node)
        if node.op == "reshape":
            return self._below_reshape(node)
        found = self._source(node.inputs[0]) if node.inputs else None
        if found is None:
            return None
        if kind is Kind.REDUCE:
            return self._below_reduce(node, *found)
        match node.op:
            case "transpose":
                return self._below_transpose(node, *found)
            case "slice":
                return self._below_slice(node, *found)
            case "gather":
                return self._below_gather(node, *found)
        return None

    def _source(self, value: Value | None) -> tuple[Value, int] | None:
        """The channels-last value that this one is the transpose of, and how many axes its channels have."""
        node = None if value is None else value.producer
        if value is None or node is None or node.op != "transpose":
            return None
        channels = self._channels.get(value)
        if channels is None and value.rank >= 4:
            channels = 1 if tuple(node.attrs["perm"]) == _to_first(1, value.rank) else None
        source = node.inputs[0]
        return None if channels is None or source is None else (source, channels)

    def _moved(self, inner: Value, channels: int) -> Value:
        result = self._builder.transpose(inner, _to_first(channels, inner.rank))
        self._channels[result] = channels
        return result

    def _below_map(self, node: Node) -> Value | None:
        """Operands are such transposes, or keep their order of elements when transposed."""
        operands = [value for value in node.inputs if value is not None]
        sources = [self._source(value) for value in operands]
        found = {(source[0].rank, source[1]) for source in sources if source is not None}
        if len(found) != 1:
            return None
        ((rank, channels),) = found
        moved = [
            self._moved_for_free(value, rank, channels) if source is None else source[0]
            for value, source in zip(operands, sources, strict=True)
        ]
        if any(value is None for value in moved):
            return None
        known = [value for value in moved if value is not None]
        return self._moved(self._builder.op(node.op, *known, **node.attrs), channels)

    def _moved_for_free(self, value: Value, rank: int, channels: int) -> Value | None:
        """A channels-first operand as channels-last, if only axes of extent 1 change places."""
        if value.rank == 0:
            return value
        if value.rank > rank or value.shape is None:
            return None
        shape = (*(1,) * (rank - value.rank), *value.shape)
        to_last = (0, *range(1 + channels, rank), *range(1, 1 + channels))
        order = [axis for axis in to_last if not self._builder.facts.same(shape[axis], 1)]
        if order != sorted(order):
            return None
        return self._builder.reshape(value, tuple(shape[axis] for axis in to_last))

    def _below_reduce(self, node: Node, source: Value, channels: int) -> Value:
        perm = _to_first(channels, source.rank)
        axes = tuple(sorted(perm[axis] for axis in node.attrs["axes"]))
        return self._moved(self._builder.op(node.op, source, axes=axes), channels)

    def _below_concat(self, node: Node) -> Value | None:
        found = [self._source(value) for value in node.inputs]
        sources = [one[0] for one in found if one is not None]
        counts = {one[1] for one in found if one is not None}
        if len(sources) < len(found) or len(counts) != 1:
            return None
        (channels,) = counts
        perm = _to_first(channels, sources[0].rank)
        return self._moved(self._builder.concat(sources, perm[node.attrs["axis"]]), channels)

    def _below_slice(self, node: Node, source: Value, channels: int) -> Value:
        perm = _to_first(channels, source.rank)
        attrs: dict[str, tuple[Dim, ...]] = {}
        for name in ("starts", "sizes", "steps"):
            numbers = dict(zip(perm, node.attrs[name], strict=True))
            attrs[name] = tuple(numbers[axis] for axis in range(source.rank))
        return self._moved(self._builder.slice(source, **attrs), channels)

    def _below_gather(self, node: Node, source: Value, channels: int) -> Value | None:
        """Along one axis, by a list of numbers."""
        index = node.required(1)
        if index.rank != 1:
            return None
        axis = _to_first(channels, source.rank)[node.attrs["axis"]]
        return self._moved(self._builder.gather(source, index, axis), channels)

    def _below_transpose(self, node: Node, source: Value, channels: int) -> Value | None:
        """Where it permutes axes of the channels only."""
        perm = tuple(node.attrs["perm"])
        behind = range(1 + channels, source.rank)
        if perm[0] != 0 or perm[1 + channels :] != tuple(behind):
            return None
        places = len(behind)
        inner = (*range(1 + places), *(axis + places for axis in perm[1 : 1 + channels]))
        return self._moved(self._builder.transpose(source, inner), channels)

    def _below_reshape(self, node: Node) -> Value | None:
        """Where channels and places stay apart: [n, c, h, w] to [n, c, h * w] or [n, 2, c / 2, h, w].

        Whatever reshapes lie between, as those of a norm of groups: [n, 2, c / 2, h, w] to [n, 2, c / 2 * h * w] to
        [n, c, h, w].
        """
        value = node.required(0)
        while (between := value.made_by("reshape")) is not None:
            value = between.required(0)
        found, shape = self._source(value), node.output.shape
        if found is None or shape is None or found[0].shape is None or len(shape) < 3:
            return None
        source, channels = found
        batch, own = found[0].shape[0], product(found[0].shape[-channels:])
        facts = self._builder.facts
        if not facts.same_shape((batch,), shape[:1]):
            return None
        # As many elements leave as enter, so that the places are the same where batch and channels are.
        for count in range(1, len(shape) - 1):
            if facts.same(own, product(shape[1 : 1 + count])):
                last = (shape[0], *shape[1 + count :], *shape[1 : 1 + count])
                return self._moved(self._builder.reshape(source, last), count)
        return None
