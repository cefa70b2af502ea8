"""Programs of dims against plain Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings

from dvm_graph.errors import ShapeError
from dvm_graph.symbolic import OPS, Check, DimTable, Relation, Symbols, dims, evaluate
from tests.symbolic.trees import Tree, UndefinedError, assignments, build, trees, value


@settings(max_examples=400, deadline=None)
@given(trees, trees, assignments)
def test_programs_compute_the_values_of_dims(
    first: Tree, second: Tree, assignment: dict[str, int]
) -> None:
    symbols = Symbols()
    table = DimTable()
    try:
        expected = [value(tree, assignment) for tree in (first, second)]
        slots = [table.slot(build(tree, symbols)) for tree in (first, second)]
    except (UndefinedError, ShapeError):
        assume(False)
        raise
    slots.append(table.predicate("le", *(build(tree, symbols) for tree in (first, second))))
    values = evaluate(table, [assignment[symbol.name] for symbol in table.symbols])
    assert [values[slot] for slot in slots] == [*expected, int(expected[0] <= expected[1])]


@pytest.mark.parametrize(
    ("relation", "holds"),
    [
        (Relation.EQUAL, lambda a, b: a == b),
        (Relation.LESS_EQUAL, lambda a, b: a <= b),
        (Relation.BROADCASTS, lambda a, b: a == b or a == 1 or b == 1),
        (Relation.BROADCASTS_TO, lambda a, b: a in (1, b)),
    ],
)
def test_checks(relation: Relation, holds: Callable[[int, int], bool]) -> None:
    symbols = Symbols()
    table = DimTable()
    slot = table.condition(Check(symbols.get("a"), relation, symbols.get("b"), "given"))
    for a, b in itertools.product(range(5), range(5)):
        assert evaluate(table, [a, b])[slot] == holds(a, b)


def test_programs_are_static_single_assignment() -> None:
    symbols = Symbols()
    a, b = symbols.get("a"), symbols.get("b")
    table = DimTable()
    table.slot(dims.maximum(dims.broadcast_dim(a, b), dims.floordiv(dims.mul(a, a), 3)))
    for index, (op, *operands) in enumerate(table.instructions):
        assert op in ("const", "symbol") or (op in OPS and all(o < index for o in operands))


def test_equal_parts_are_computed_once() -> None:
    symbols = Symbols()
    a, b = symbols.get("a"), symbols.get("b")
    table = DimTable()
    table.slot(dims.add(dims.floordiv(a, 2), b))
    size = len(table)
    table.slot(dims.add(dims.floordiv(a, 2), dims.mul(2, b)))
    assert [op for op, _, _ in table.instructions[size:]] == ["mul", "add"]
    assert table.slot(dims.floordiv(a, 2)) < size


def test_constants_are_folded() -> None:
    table = DimTable()
    slot = table.emit("mul", table.slot(6), table.slot(7))
    assert table.instructions[slot] == ("const", 42, 0)


def test_differences_need_no_product() -> None:
    symbols = Symbols()
    table = DimTable()
    table.slot(dims.sub(symbols.get("a"), symbols.get("b")))
    assert [op for op, _, _ in table.instructions] == ["symbol", "symbol", "sub"]
