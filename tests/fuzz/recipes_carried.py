"""Sequences and optionals in control flow: carried by `Loop`, given by `If`, mapped by `SequenceMap`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from tests.fuzz.bodies import (
    CARRIED,
    alike,
    condition,
    grown,
    made_inside,
    not_too_deep,
    operand,
    region_of,
    step,
)
from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.recipes_sequences import (
    empty,
    item_like,
    made_by,
    made_somehow,
    optional_of,
    taken_apart,
)
from tests.fuzz.registry import SEQUENCE, recipe

BOOL, INT64 = TensorProto.BOOL, TensorProto.INT64


@recipe("SequenceMap", kind=SEQUENCE, weight=2)
def mapped(g: Growth) -> Value:
    """Each element of a sequence, with that of another one or a tensor, to one or two others."""
    not_too_deep(g)
    held, items = made_somehow(g)
    first = items[0]
    same = all(item.shapes == first.shapes for item in items)
    shapes = first.shapes if same else [None] * g.breadth
    if first.dtype not in CARRIED:
        raise RefusedError
    body = g.inside()
    body.values = []  # a function's body reads nothing around it
    given, inside = [held], [operand(body, first.dtype, shapes)]
    beside = None
    if g.chance(0.4):
        others = [g.fresh(item.dtype, item.shapes) for item in items if item.known]
        given.append(made_by(g, "SequenceConstruct", others, of=first))
        beside = operand(body, first.dtype, shapes)
        inside.append(beside)
    if g.chance(0.4):
        x = g.pick(CARRIED)
        given.append(x)
        inside.append(operand(body, x.dtype, x.shapes))
    after = step(body, inside[0], beside)
    results = [(after, [Value("", item.dtype, item.shapes) for item in items])]
    if same and g.chance(0.5):
        found = made_inside(body, grown(body), after)
        results.append((found, [Value("", found.dtype, found.shapes)] * len(items)))
    region = region_of(body, inside, [value for value, _ in results])
    made = g.add("SequenceMap", given, [(0, [None] * g.breadth)] * len(results), {"body": region})
    place = g.rng.randrange(len(results))
    return taken_apart(g, _as(made[place], held), results[place][1])


def _as(made: Value, held: Value) -> Value:
    return replace(made, holds=held.holds)


@recipe("SequenceInsert", kind=SEQUENCE)
def inserted(g: Growth) -> Value:
    """A Loop that makes a sequence longer at each turn."""
    not_too_deep(g)
    x = g.pick(CARRIED)
    counts, turns = _turns(g, (0, 1, 2, 3))
    held = empty(g, x)
    if g.chance(0.5):
        held = made_by(g, "SequenceInsert", [held, x], of=x)
        counts = [n + 1 for n in counts]
    body = g.inside()
    number, go_on, before, carried = _states(body, held, x)
    ahead = body.emit("Identity", [go_on])
    after = step(body, carried)
    new = made_inside(body, step(body, after), after)
    kind = g.choose((np.int64, np.int32))
    at = g.choose((None, body.integers(0, kind), number))
    longer = made_by(body, "SequenceInsert", [before, new, at], of=x)
    region = region_of(body, [number, go_on, before, carried], [ahead, longer, after])
    results = [(0, [None] * g.breadth), (x.dtype, x.shapes)]
    made, _ = g.add("Loop", [turns, None, held, x], results, {"body": region})
    return _of_alike(g, _as(made, held), x, counts)


@recipe("SequenceErase", kind=SEQUENCE)
def erased(g: Growth) -> Value:
    """A Loop that takes something out of a sequence at each turn."""
    not_too_deep(g)
    x = g.pick(CARRIED)
    items = [x, *(g.fresh(x.dtype, x.shapes) for _ in range(g.choose((0, 1, 2, 3))))]
    held = made_by(g, "SequenceConstruct", items, of=x)
    counts, turns = _turns(g, range(len(items) + 1))
    body = g.inside()
    number, go_on, before, carried = _states(body, held, x)
    ahead = body.emit("Identity", [go_on])
    place = body.integers(g.choose((0, -1)), g.choose((np.int64, np.int32)))
    (one,) = body.add("SequenceAt", [before, place], [(x.dtype, x.shapes)])
    after = step(body, carried, one)
    last = g.choose((None, place))
    shorter = made_by(body, "SequenceErase", [before, last], of=x)
    region = region_of(body, [number, go_on, before, carried], [ahead, shorter, after])
    results = [(0, [None] * g.breadth), (x.dtype, x.shapes)]
    made, total = g.add("Loop", [turns, None, held, x], results, {"body": region})
    if g.chance(0.4):
        return total
    return _of_alike(g, _as(made, held), x, [len(items) - n for n in counts])


@recipe("SequenceAt", kind=SEQUENCE)
def branched(g: Growth) -> Value:
    """Branches that give sequences: one as it is, changed, or made anew."""
    not_too_deep(g)
    x = g.pick(CARRIED)
    items = [x, g.fresh(x.dtype, x.shapes)]
    held = made_by(g, "SequenceConstruct", items, of=x)
    branches, least = {}, 2
    for name in ("then_branch", "else_branch"):
        body = g.inside()
        way = g.rng.random()
        if way < 0.4:
            new = step(body, g.choose(items))
            made = made_by(body, "SequenceInsert", [held, new, body.integers(1)], of=x)
        elif way < 0.7:
            made, least = made_by(body, "SequenceErase", [held], of=x), 1
        else:
            new = alike(body, x)
            made, least = made_by(body, "SequenceConstruct", [new], of=x), 1
        branches[name] = region_of(body, [], [made])
    results: list[tuple[int, Sequence[Shape | None]]] = [(0, [None] * g.breadth)]
    (made,) = g.add("If", [condition(g)], results, branches)
    return _of_alike(g, _as(made, held), x, [least] * g.breadth, known=False)


@recipe("OptionalHasElement", kind=SEQUENCE)
def perhaps(g: Growth) -> Value:
    """An optional value that only a run tells to be empty, and what is computed of it then, or else."""
    not_too_deep(g)
    if not 18 <= g.opset <= 27:
        raise RefusedError  # for want of operators that onnxruntime has
    x = g.pick(CARRIED)
    if g.chance(0.2):  # a tensor is there
        return g.add("OptionalHasElement", [x], [(BOOL, [()] * g.breadth)])[0]
    held = optional_of(g, x)
    if g.chance(0.8):
        branches = {}
        full = g.chance(0.5)
        for name, filled in (("then_branch", full), ("else_branch", not full)):
            body = g.inside()
            given = step(body, x)
            branches[name] = region_of(body, [], [optional_of(body, given, filled)])
        (made,) = g.add("If", [condition(g)], [(0, [None] * g.breadth)], branches)
        held = _as(made, held)
    (has,) = g.add("OptionalHasElement", [held], [(BOOL, [()] * g.breadth)])
    if g.chance(0.2):
        return has
    taken, other = g.inside(), g.inside()
    (inner,) = taken.add("OptionalGetElement", [held], [(x.dtype, x.shapes)])
    one = made_inside(taken, step(taken, inner), inner)
    two = made_inside(other, alike(other, x))
    regions = {
        "then_branch": region_of(taken, [], [one]),
        "else_branch": region_of(other, [], [two]),
    }
    return g.add("If", [has], [(x.dtype, x.shapes)], regions)[0]


def _turns(g: Growth, counts: Sequence[int]) -> tuple[list[int], Value]:
    """How many turns a Loop takes in each environment."""
    found = [g.choose(counts)] * g.breadth
    if g.chance(0.4):
        found = [g.choose(counts) for _ in found]
    fixed = Contents(low=tuple(found), high=tuple(found))
    return found, g.fresh(INT64, [()] * g.breadth, fixed)


def _states(body: Growth, held: Value, x: Value) -> tuple[Value, Value, Value, Value]:
    """The inputs of a Loop's body that carries a sequence and a tensor."""
    number, go_on = (operand(body, dtype, [()] * body.breadth) for dtype in (INT64, BOOL))
    before = replace(held, name=body.name("b"), shapes=(None,) * body.breadth)
    return number, go_on, before, operand(body, x.dtype, x.shapes)


def _of_alike(g: Growth, made: Value, x: Value, counts: list[int], known: bool = True) -> Value:
    """A tensor made of a sequence of so many that are alike, or of at least so many."""
    way = g.rng.random()
    if way < 0.2:
        return g.add("SequenceLength", [made], [(INT64, [()] * g.breadth)])[0]
    if not all(counts):
        raise RefusedError
    if way < 0.6:
        place = g.choose((0, -1, min(counts) - 1))
        at = g.extents(place, g.choose((np.int64, np.int32)))
        return g.add("SequenceAt", [made, at], [(x.dtype, x.shapes)])[0]
    if way < 0.7:
        new = item_like(g, x) if g.chance(0.5) else x
        made = made_by(g, "SequenceInsert", [made, new], of=x)
        return g.add("SequenceAt", [made, g.integers(-1)], [(new.dtype, new.shapes)])[0]
    axis, new_axis = 0, 1
    if x.rank and g.chance(0.5):
        axis, new_axis = g.rng.randrange(x.rank), 0
    shapes: list[Shape | None] = []
    for shape, count in zip(x.shapes, counts, strict=True):
        own = tuple(shape or ())
        extent = None if not known else count if new_axis else count * (own[axis] or 0)
        shapes.append((*own[:axis], extent, *own[axis + 1 - new_axis :]))
    attributes = {"axis": axis, "new_axis": new_axis}
    return g.add("ConcatFromSequence", [made], [(x.dtype, shapes)], attributes)[0]
