"""Calls between basic operators: vendor and host operators on onnxruntime, control flow turn by turn.

In: a `vendor`, `host` or `control` operator and what its operands are known to be. Out: arrays for its results. Bodies of
control flow are computed as the graph around them is: by their basic operators, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from dvm_graph.check.bounded import Bounded
from dvm_graph.check.extents import Extents
from dvm_graph.check.oracle import run_vendor, stored
from dvm_graph.check.reference import Reference
from dvm_graph.ir import Graph, Node, Value
from dvm_graph.ir.control import Turns, captures

Array: TypeAlias = np.ndarray[Any, Any]
_MOST_TURNS = 1 << 12
"""A body that does not end, on numbers drawn at random, ends here."""


def run_call(node: Node, reference: Reference) -> list[Array]:
    """The results of a call.

    Raises:
        DvmError: onnxruntime refuses a vendor operator.
    """
    if node.op != "control":
        return run_vendor(node, node.outputs, reference)
    operands = [reference.operand(value) for value in node.inputs if value is not None]
    turns: Turns | None = node.attrs["turns"]
    if turns is None:
        taken = node.bodies[0 if operands[0].value.item() else 1]
        results = _run_body(taken, operands[1:], reference.extents)
    else:
        results = _run_turns(node.bodies[0], Turns(*turns), operands, reference.extents)
    return [
        stored(result, value.dtype) for result, value in zip(results, node.outputs, strict=True)
    ]


def _run_turns(
    body: Graph, turns: Turns, operands: Sequence[Bounded], extents: Extents
) -> list[Bounded]:
    first, _ = captures(turns)
    states = list(operands[turns.first : turns.first + turns.states])
    scanned = operands[turns.first + turns.states : first]
    most = len(scanned[0].value) if scanned else _MOST_TURNS
    if turns.most_turns >= 0:
        most = min(most, operands[turns.most_turns].value.item())
    goes_on = turns.goes_on < 0 or bool(operands[turns.goes_on].value.item())
    rows: list[list[Array]] = [[] for _ in turns.collected]
    turn = 0
    while turn < most and goes_on:
        count = [Bounded(np.array(turn)), Bounded(np.array(goes_on))] if turns.counted else []
        read = [
            Bounded(tensor.value[most - 1 - turn if backward else turn])
            for tensor, backward in zip(scanned, turns.scanned, strict=True)
        ]
        results = _run_body(body, [*count, *states, *read, *operands[first:]], extents)
        if turns.counted:
            goes_on = bool(results.pop(0).value.item())
        states = results[: turns.states]
        for collected, row in zip(rows, results[turns.states :], strict=True):
            collected.append(row.value)
        turn += 1
    return [*states, *(_stacked(body, turns, at, found) for at, found in enumerate(rows))]


def _stacked(body: Graph, turns: Turns, at: int, rows: list[Array]) -> Bounded:
    if rows:
        return Bounded(np.stack(rows[::-1] if turns.collected[at] else rows))
    row = body.outputs[turns.counted + turns.states + at]
    shape = (dim if isinstance(dim, int) else 0 for dim in row.shape or ())
    return Bounded(np.zeros((0, *shape), row.dtype.numpy))


def _run_body(body: Graph, operands: Sequence[Bounded], around: Extents) -> list[Bounded]:
    extents = Extents(around.symbols)
    reference = Reference(extents)
    for value, operand in zip(body.inputs, operands, strict=True):
        scalar = (
            operand.value.ndim == 0
        )  # number and condition of a turn, in as many axes as declared
        _know(
            reference,
            value,
            Bounded(operand.value.reshape((1,) * value.rank)) if scalar else operand,
        )
    for node in body.sorted_nodes():
        if node.is_call:
            for value, array in zip(node.outputs, run_call(node, reference), strict=True):
                _know(reference, value, Bounded(array))
        else:
            reference.known[node.output] = Bounded(reference.result(node).value)
    return [reference.operand(value) for value in body.outputs]


def _know(reference: Reference, value: Value, known: Bounded) -> None:
    reference.known[value] = known
    for dim, extent in zip(value.shape or (), known.value.shape, strict=False):
        if not isinstance(dim, int) and dim.is_Symbol:
            reference.extents.bind(dim, extent)
