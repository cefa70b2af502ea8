"""`If`, `Loop` and `Scan` as `control` operators: their bodies become programs of their own.

In: an operator, its operands and what was deduced of it (`regions`). Out: the `control` operator, or nothing
where its bodies are not to be compiled: where a type is not known, or neither one that kernels compute with nor a
sequence or optional value of such, and where the vendor library would have to be called in every turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.regions import BodyResults, Deduced, Operands, ResultType
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.ir.control import Turns, captures
from dvm_graph.symbolic.builder import Builder

CONTROL = "control"


def build_control(
    builder: Builder,
    node: Node,
    operands: Operands,
    deduced: Deduced,
    unread: frozenset[int] = frozenset(),
) -> list[Value] | None:
    """The results of the operator with compiled bodies; None: that is not for its bodies.

    Nobody reads the results `unread`. States that no body reads either are left out: what is given for
    them stands for their results, whatever types turns would give them.
    """
    types = [*deduced.types[: len(deduced.types) - len(deduced.collected)], *deduced.collected]
    if not deduced.bodies:
        return None
    useless = unread & _unread_states(node, operands, deduced) if node.op != "If" else frozenset()
    left_out = deduced.unchanged | useless
    native = [
        type_.native or at in useless or (node.op == "If" and type_.of_open_rank)
        for at, type_ in enumerate(types)
    ]
    if not all(native) or not _compilable(node, operands, deduced.bodies, len(types)):
        return None
    own = node.own_operands
    ordered = _rows_first(builder, node, operands)
    kept: Sequence[Value] = ()
    if left_out:
        ordered, own, kept = _settled(node, ordered, own, deduced, useless)
        types = [type_ for at, type_ in enumerate(types) if at not in left_out]
    given = [
        value
        for index, value in enumerate(ordered)
        if value is not None and (index < own or not value.is_constant)
    ]
    turns = _turns(node, operands, len(kept))
    results = add_control(builder, node, given, deduced.bodies, turns, types)
    for at, value in zip(sorted(left_out), kept, strict=True):
        results.insert(at, value)
    return _rows_in_place(builder, node, results)


def _unread_states(node: Node, operands: Operands, deduced: Deduced) -> frozenset[int]:
    """Which states of a Loop or Scan its body neither reads nor hands on: the first is 0."""
    first, _, states = _states(node)
    graph = deduced.bodies[0].graph
    inputs, unread = iter(graph.inputs[first:]), set()
    for at, value in enumerate(operands[first:][:states]):
        if at in deduced.unchanged and (value is None or value.is_constant):
            continue  # is no input of the body
        if not _reads(graph, next(inputs)):
            unread.add(at)
    return frozenset(unread - deduced.unchanged)


def _states(node: Node) -> tuple[int, int, int]:
    """How many operands of a Loop or Scan lie before its states, how many results of its body do, and how many
    states there are.
    """
    if node.op == "Loop":
        return 2, 1, node.own_operands - 2
    return 0, 0, node.own_operands - int(node.attrs["num_scan_inputs"])


def _settled(
    node: Node, operands: Operands, own: int, deduced: Deduced, useless: frozenset[int]
) -> tuple[Operands, int, Sequence[Value]]:
    """The operands with the states that no turn changes behind all others, as what the body reads of around it, how
    many are before those, and these states. The body is made to read them there, and gives them no more. Of states
    that are `useless` it gets none; what is given for them is among these states only.
    """
    graph = deduced.bodies[0].graph
    first, skipped, states = _states(node)
    before = first
    inputs, moved = list(graph.inputs), []
    for state in range(states):
        value = operands[first + state]
        if state in useless:
            inputs.pop(before)
        elif state not in deduced.unchanged:
            before += 1
        elif value is not None and not value.is_constant:
            moved.append(inputs.pop(before))
    graph.inputs = [*inputs, *moved]
    dropped = deduced.unchanged | useless
    given = [at for at in range(len(graph.outputs)) if at - skipped not in dropped]
    graph.outputs = [graph.outputs[at] for at in given]
    graph.output_names = tuple(graph.output_names[at] for at in given)
    kept = {at - first: v for at, v in enumerate(operands) if v and at - first in dropped}
    left = [v for at, v in enumerate(operands) if at - first not in dropped]
    read = [value for at, value in kept.items() if at not in useless]
    return [*left, *read], own - len(kept), list(kept.values())


def add_control(
    builder: Builder,
    node: Node,
    operands: Sequence[Value],
    bodies: Sequence[BodyResults],
    turns: Turns | None,
    types: Sequence[ResultType],
    strands: str | None = None,
) -> list[Value]:
    """The results of a `control` operator that stands for an ONNX node; what no body reads is left out. For `strands` see
    `ir.control`.
    """
    first, first_inside = captures(turns)
    unread = [
        at
        for at in range(len(operands) - first)
        if not any(_reads(body.graph, body.graph.inputs[first_inside + at]) for body in bodies)
    ]
    for body in bodies:
        inputs = enumerate(body.graph.inputs)
        body.graph.inputs = [value for i, value in inputs if i - first_inside not in unread]
        builder.facts.bodies[body.graph] = body.facts
    control = Node(
        name=builder.graph.unique_name(node.name),
        op=CONTROL,
        inputs=tuple(value for i, value in enumerate(operands) if i - first not in unread),
        outputs=tuple(
            Value(
                builder.graph.unique_name(f"{node.name}.result"),
                type_.dtype,
                type_.shape,
                holds=type_.holds,
            )
            for type_ in types
        ),
        attrs={"op": node.op, "turns": turns} | ({} if strands is None else {"strands": strands}),
        origin=node.origin,
        metadata=node.metadata,
        bodies=tuple(body.graph for body in bodies),
    )
    builder.graph.add(control)
    return list(control.outputs)


def _reads(body: Graph, value: Value) -> bool:
    return body.is_output(value) or bool(body.users(value))


def _compilable(
    node: Node, operands: Operands, bodies: Sequence[BodyResults], results: int
) -> bool:
    own = node.own_operands
    given = [*operands[:own], *(v for v in operands[own:] if v is not None and not v.is_constant)]
    if results != len(node.outputs) or not all(v is None or v.native for v in given):
        return False  # bodies have the constants around them as their own, of whatever type
    if node.op != "If" and any(not value.native for body in bodies for value in body.values):
        return False
    if node.op == "Loop" and bodies[0].values[0].dtype is not DType.BOOL:
        return False  # whether it goes on
    if node.op != "If":
        return not any(calls_vendor(body.graph) for body in bodies)
    return not all(
        body.graph.nodes and all(inner.op == "vendor" for inner in body.graph.nodes)
        for body in bodies
    )


def calls_vendor(graph: Graph) -> bool:
    """Whether it has a vendor operator, or some body inside has."""
    return any(node.op == "vendor" or any(map(calls_vendor, node.bodies)) for node in graph.nodes)


def _turns(node: Node, operands: Operands, unchanged: int) -> Turns | None:
    """How the operands are laid out, where rows lie along the first axes; so many states are none of them."""
    if node.op == "If":
        return None
    own = node.own_operands
    if node.op == "Loop":
        most_turns, goes_on = (value is not None for value in operands[:2])
        states = own - 2 - unchanged
        collected = (False,) * (len(node.outputs) - own + 2)
        return Turns(True, most_turns - 1, most_turns if goes_on else -1, states, (), collected)
    scanned = node.attrs["num_scan_inputs"]
    states = own - scanned
    return Turns(
        False,
        -1,
        -1,
        states - unchanged,
        _flags(node, "scan_input_directions", scanned),
        _flags(node, "scan_output_directions", len(node.outputs) - states),
    )


def _flags(node: Node, attribute: str, count: int) -> tuple[bool, ...]:
    return tuple(map(bool, node.attrs.get(attribute) or (0,) * count))


def _axes(node: Node, attribute: str, values: Sequence[Value | None]) -> list[int]:
    given = node.attrs.get(attribute) or (0,) * len(values)
    return [axis % value.rank for axis, value in zip(given, values, strict=True) if value]


def _rows_first(builder: Builder, node: Node, operands: Operands) -> Operands:
    """The operands of a Scan with the scanned axes first; of others as they are."""
    if node.op != "Scan":
        return operands
    end = node.own_operands
    start = end - node.attrs["num_scan_inputs"]
    scanned = [value for value in operands[start:end] if value is not None]
    axes = _axes(node, "scan_input_axes", scanned)
    moved = [
        builder.op("transpose", value, perm=(axis, *(i for i in range(value.rank) if i != axis)))
        for value, axis in zip(scanned, axes, strict=True)
    ]
    return [*operands[:start], *moved, *operands[end:]]


def _rows_in_place(builder: Builder, node: Node, results: Sequence[Value]) -> list[Value]:
    """The results with what was collected along the first axis where a Scan wants it."""
    if not node.attrs.get("scan_output_axes"):
        return list(results)
    first = len(results) - len(node.attrs["scan_output_axes"])
    collected = results[first:]
    moved = [
        builder.op("transpose", value, perm=(*range(1, axis + 1), 0, *range(axis + 1, value.rank)))
        for value, axis in zip(collected, _axes(node, "scan_output_axes", collected), strict=True)
    ]
    return [*results[:first], *moved]
