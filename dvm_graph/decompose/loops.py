"""Operators that are loops of others: SequenceMap, and Scan as it was in opset 8, over a batch of sequences. And Loops that
are no more than their turns one after the other.

In: the node and its operands. Out: ONNX nodes for it, a Loop among them, whose body holds that of the node; they read
the operands, write the node's results and are not added to any graph. Nothing where that does not express it.

    SequenceMap   over the places of the first sequence: the body for the tensors there, results at the ends of sequences
    Scan          over the batch: a Scan of opset 9 over the rows that the sequence has, results filled up with zeros
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.nodes import Nodes
from dvm_graph.import_.tensors import onnx_type_of
from dvm_graph.ir import DType, Graph, Node, Value

Operands = Sequence["Value | None"]


def as_loop(node: Node, operands: Operands, graph: Graph) -> list[Node] | None:
    """Nodes that stand for a SequenceMap or a Scan of opset 8; None: it is neither, or cannot be one."""
    if node.domain or not node.regions:
        return None
    if node.op == "SequenceMap":
        return _of_sequence_map(node, operands, graph)
    if node.op == "Scan" and node.version < 9:
        return _of_batch(node, operands, graph)
    return None


def few_turns(node: Node, operands: Operands, most: int) -> int:
    """The turns of a Loop that begins and has a constant number of them, no more than make `most` operators; else 0."""
    if node.domain or node.op != "Loop" or len(operands) < 2 or len(node.regions) != 1:
        return 0
    number, goes_on = operands[:2]
    if number is None or number.data is None or number.data.size != 1:
        return 0
    if goes_on is not None and (goes_on.data is None or not goes_on.data.all()):
        return 0
    turns = max(0, int(number.data.item()))
    return turns if turns * max(1, len(node.regions[0])) <= most else 0


class _Turn(Nodes):
    """The body of a Loop that reads some values of around."""

    def __init__(self, around: Nodes, states: int, captured: Operands) -> None:
        super().__init__(around.about, around.graph.new_region(f"{around.about.name}.turn"))
        self._around = around
        self._captured = captured
        self.number, self._goes_on = self.value("number"), self.value("goes_on")
        self.states = [self.value("state") for _ in range(states)]
        self.read = [None if value is None else self.value("read") for value in captured]

    def loop(
        self,
        turns: Value,
        states: Sequence[Value],
        results: Sequence[Value],
        outputs: Sequence[Value],
    ) -> None:
        """Adds the Loop, whose body gives `results`."""
        inside = [value for value in self.read if value is not None]
        outside = [value for value in self._captured if value is not None]
        self.graph.inputs = [self.number, self._goes_on, *self.states, *inside]
        self.settle()
        self.graph.outputs = [self._goes_on, *results]
        self.graph.output_names = tuple(value.name for value in self.graph.outputs)
        attrs = {"regions": ("body",), "captures": tuple(value.name for value in outside)}
        self._around.add("Loop", (turns, None, *states, *outside), outputs, attrs, (self.graph,))


def _of_sequence_map(node: Node, operands: Operands, graph: Graph) -> list[Node] | None:
    (region,) = node.regions
    own = node.own_operands
    if any(value.dtype is DType.OPAQUE for value in region.outputs):
        return None
    around = Nodes(node, graph)
    length = around.op("SequenceLength", operands[0])
    empty = [
        around.op("SequenceEmpty", dtype=onnx_type_of(value.dtype)) for value in region.outputs
    ]
    turn = _Turn(around, len(empty), operands)
    given = [
        turn.op("SequenceAt", inside, turn.number)
        if at < own and outside is not None and outside.holds is not None
        else inside
        for at, (inside, outside) in enumerate(zip(turn.read, operands, strict=True))
    ]
    made = [turn.value("made") for _ in region.outputs]
    branches = {
        "regions": ("then_branch", "else_branch"),
        "captures": tuple(value.name for value in region.inputs),
    }
    turn.add("If", (turn.constant(True), *given), made, branches, (region, region))
    results = [
        turn.op("SequenceInsert", state, value)
        for state, value in zip(turn.states, made, strict=True)
    ]
    turn.loop(length, empty, results, node.outputs)
    return around.nodes


def _of_batch(node: Node, operands: Operands, graph: Graph) -> list[Node] | None:
    (region,) = node.regions
    count = node.attrs["num_scan_inputs"]
    own = node.own_operands
    states = own - 1 - count
    scanned = operands[own - count]
    if scanned is None or any(value is None for value in operands[1:]):
        return None
    around = Nodes(node, graph)
    turns = around.op("Squeeze", around.op("Shape", scanned, start=0, end=1))
    most = around.op("Shape", scanned, start=1, end=2)
    turn = _Turn(around, 0, (*operands, most))
    length, *read, rows = turn.read
    given = [turn.op("Gather", value, turn.number, axis=0) for value in read[: own - 1]]
    left: Value | None = None
    if length is not None:
        kept = turn.op("Gather", length, turn.number, axis=0)
        kept = turn.op("Reshape", kept, turn.constant([1]))
        given[states:] = [turn.op("Slice", x, turn.constant([0]), kept) for x in given[states:]]
        left = turn.op("Sub", rows, kept)
    made = [turn.value("made") for _ in node.outputs]
    attrs = {name: node.attrs[name] for name in ("num_scan_inputs", "regions", "captures")}
    attrs["scan_input_directions"] = node.attrs.get("directions") or (0,) * count
    turn.add("Scan", (*given, *read[own - 1 :]), made, attrs, (region,))
    results = made[:states]
    for value in made[states:]:
        if left is not None:
            rest = turn.op("Concat", left, turn.op("Shape", value, start=1), axis=0)
            zeros = turn.op("CastLike", turn.op("ConstantOfShape", rest), value)
            value = turn.op("Concat", value, zeros, axis=0)
        results.append(value)
    turn.loop(turns, (), results, node.outputs)
    return around.nodes
