"""Calls between basic operators: vendor and host operators on onnxruntime, control flow turn by turn.

In: a `vendor`, `host` or `control` operator and what its operands are known to be. Out: its results with error bounds.
Bodies of control flow are computed as the graph around them is: by their basic operators, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dvm_graph.check.bound_extents import EXTENTS, compute_extents
from dvm_graph.check.bounded import Bounded
from dvm_graph.check.extents import satisfied
from dvm_graph.check.oracle import run_vendor, stored
from dvm_graph.check.own_operators import OWN, compute_own
from dvm_graph.check.reference import Reference
from dvm_graph.errors import ShapeError
from dvm_graph.ir import Array, Graph, Node, Value
from dvm_graph.ir.control import Turns, bodies_of_turns, captures
from dvm_graph.symbolic import Symbol

_MOST_TURNS = 1 << 12
"""A body that does not end, on numbers drawn at random, ends here."""


def run_call(node: Node, reference: Reference) -> list[Bounded]:
    """The results of a call; those of a vendor operator are open where its operands are not exact.

    Raises:
        DvmError: onnxruntime refuses a vendor operator, numpy or a body the extents.
    """
    if node.op == "host" and node.attrs["op"] in EXTENTS:
        given = [
            None if value is None else stored(reference.operand(value), value.dtype)
            for value in node.inputs
        ]
        return [Bounded(compute_extents(node.attrs["op"], node.attrs["arguments"], given))]
    operands = [reference.operand(value) for value in node.inputs if value is not None]
    if node.op == "host" and node.attrs["op"] == "ConcatFromSequence":
        _expect_join(operands[0].value.item(), *node.attrs["arguments"])
    if node.op == "host" and node.attrs["op"] in OWN:
        values = [value for value in node.inputs if value is not None]
        arrays = [stored(reference.operand(value), value.dtype) for value in values]
        exact = all(map(_is_exact, operands))
        return [_foreign(array, exact) for array in compute_own(node, arrays)]
    if node.op != "control":
        exact = all(map(_is_exact, operands))
        return [_foreign(array, exact) for array in run_vendor(node, node.outputs, reference)]
    turns: Turns | None = node.attrs["turns"]
    if turns is None:
        taken = node.bodies[0 if operands[0].value.item() else 1]
        results = _run_body(taken, operands[1:], reference, first=True)
        return results if _is_exact(operands[0]) else list(map(_open, results))
    return _run_turns(node, Turns(*turns), operands, reference)


def _expect_join(parts: Sequence[Array], axis: int, stacks: int) -> None:
    """Extents beside the axis are equal; onnxruntime joins what has no elements with anything."""
    shapes = {part.shape if stacks else np.delete(part.shape, axis).tobytes() for part in parts}
    if len(shapes) > 1:
        raise ShapeError(f"{len(parts)} tensors of unlike extents are joined")


def _is_exact(operand: Bounded) -> bool:
    return not operand.is_number or not operand.errors.any()


def _open(result: Bounded) -> Bounded:
    """Nobody knows how far it moves with what it rests on."""
    if not result.is_number:
        return result
    return Bounded(result.value, np.full(result.value.shape, np.inf))


def _foreign(array: Array, exact: bool) -> Bounded:
    return Bounded(array) if exact else _open(Bounded(array))


def _run_turns(
    node: Node, turns: Turns, operands: Sequence[Bounded], around: Reference
) -> list[Bounded]:
    bodies, (first, _) = bodies_of_turns(node), captures(turns)
    around_turns = list(operands[first:])
    states = list(operands[turns.first : turns.first + turns.states])
    scanned = operands[turns.first + turns.states : first]
    most = len(scanned[0].value) if scanned else _MOST_TURNS
    if turns.most_turns >= 0:
        most = min(most, operands[turns.most_turns].value.item())
    goes_on = turns.goes_on < 0 or bool(operands[turns.goes_on].value.item())
    exact = all(_is_exact(operands[at]) for at in (turns.most_turns, turns.goes_on) if at >= 0)
    rows: list[list[Bounded]] = [[] for _ in turns.collected]
    turn = 0
    if turns.kept and turn < most and goes_on:
        around_turns += _run_body(node.bodies[-1], around_turns, around, first=True)
    while turn < most and goes_on:
        count = [Bounded(np.array(turn)), Bounded(np.array(goes_on))] if turns.counted else []
        read = [
            _row(tensor, most - 1 - turn if backward else turn)
            for tensor, backward in zip(scanned, turns.scanned, strict=True)
        ]
        given = [*count, *states, *read, *around_turns]
        body = bodies[-1 if turn == 0 else 0]
        results = _run_body(body, given, around, first=turn < len(bodies))
        if turns.counted:
            exact &= _is_exact(results[0])
            goes_on = bool(results.pop(0).value.item())
        states = results[: turns.states]
        for collected, row in zip(rows, results[turns.states :], strict=True):
            collected.append(row)
        turn += 1
    last = [*states, *(_stacked(bodies[0], turns, at, found) for at, found in enumerate(rows))]
    return last if exact else list(map(_open, last))


def _row(tensor: Bounded, at: int) -> Bounded:
    return Bounded(tensor.value[at], None if tensor.error is None else tensor.error[at])


def _stacked(body: Graph, turns: Turns, at: int, rows: list[Bounded]) -> Bounded:
    if len({row.value.shape for row in rows}) > 1:
        raise ShapeError("turns give rows of several shapes")
    if rows:
        ordered = rows[::-1] if turns.collected[at] else rows
        errors = np.stack([row.errors for row in ordered]) if ordered[0].is_number else None
        return Bounded(np.stack([row.value for row in ordered]), errors)
    row = body.outputs[turns.counted + turns.states + at]
    shape = (dim if isinstance(dim, int) else 0 for dim in row.shape or ())
    return Bounded(np.zeros((0, *shape), row.dtype.numpy))


def _run_body(
    body: Graph, operands: Sequence[Bounded], around: Reference, *, first: bool
) -> list[Bounded]:
    """`first`: in the turns that follow, what it assumes of extents is not looked at again."""
    reference = around.inside()
    for value, operand in zip(body.inputs, operands, strict=True):
        # Number and condition of a turn, in as many axes as declared.
        if operand.value.ndim == 0 and value.computable:
            shape = (1,) * value.rank
            error = None if operand.error is None else operand.error.reshape(shape)
            operand = Bounded(operand.value.reshape(shape), error)
        _know(reference, value, operand)
    facts = around.bodies.get(body) if first else None
    if facts is not None and not satisfied(facts, reference.extents, ()):
        raise ShapeError(f"{reference.extents} break what a body assumes")
    for node in body.sorted_nodes():
        if node.is_call:
            for value, result in zip(node.outputs, run_call(node, reference), strict=True):
                _know(reference, value, result)
        else:
            reference.known[node.output] = reference.result(node)
    return [reference.operand(value) for value in body.outputs]


def _know(reference: Reference, value: Value, known: Bounded) -> None:
    reference.known[value] = known
    for dim, extent in zip(value.shape or (), known.value.shape, strict=False):
        if isinstance(dim, Symbol):
            reference.extents.bind(dim, extent)
