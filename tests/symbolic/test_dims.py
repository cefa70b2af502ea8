"""Arithmetic of dims against plain Python."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings

from dvm_graph.errors import ShapeError
from dvm_graph.symbolic import Dim, Symbols, dims, to_sympy
from dvm_graph.symbolic.expressions import Expression
from dvm_graph.symbolic.intervals import bounds, nonnegative
from dvm_graph.symbolic.polynomial import exact_quotient, polynomial, to_dim
from tests.symbolic.trees import Tree, UndefinedError, assignments, build, trees, value

_SYMBOLS = Symbols()
A, B, C = (_SYMBOLS.get(name) for name in "abc")


def _built(tree: Tree) -> Dim:
    try:
        return build(tree, _SYMBOLS)
    except ShapeError:
        assume(False)


def _expected(tree: Tree, assignment: dict[str, int]) -> int:
    try:
        return value(tree, assignment)
    except UndefinedError:
        assume(False)
        raise


@settings(max_examples=400, deadline=None)
@given(trees, assignments)
def test_simplified_expressions_keep_their_value(tree: Tree, assignment: dict[str, int]) -> None:
    expected = _expected(tree, assignment)
    dim = _built(tree)
    values = {_SYMBOLS.get(name): number for name, number in assignment.items()}
    assert dims.substitute(dim, values) == expected


@settings(max_examples=200, deadline=None)
@given(trees, assignments)
def test_sympy_has_the_same_value(tree: Tree, assignment: dict[str, int]) -> None:
    expected = _expected(tree, assignment)
    expression = to_sympy(dims.opaque(_built(tree)))
    assert (
        expression.subs({to_sympy(_SYMBOLS.get(n)): v for n, v in assignment.items()}) == expected
    )


@settings(max_examples=300, deadline=None)
@given(trees, assignments)
def test_bounds_hold_every_value(tree: Tree, assignment: dict[str, int]) -> None:
    expected = _expected(tree, assignment)
    dim = _built(tree)
    low, high = bounds(dim)
    assert low <= expected <= high
    if nonnegative(polynomial(dim)):
        assert expected >= 0


@settings(max_examples=200, deadline=None)
@given(trees)
def test_numbers_are_python_ints(tree: Tree) -> None:
    dim = _built(tree)
    assert type(dim) is int or isinstance(dim, Expression)


@settings(max_examples=200, deadline=None)
@given(trees, trees)
def test_exact_quotient_undoes_a_product(first: Tree, second: Tree) -> None:
    left, right = polynomial(_built(first)), polynomial(_built(second))
    assume(left and right)
    product = polynomial(to_dim(left) * to_dim(right))
    assert exact_quotient(product, right) == left


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (dims.floordiv(dims.product([A, B, 768]), dims.product([A, 12])), 64 * B),
        (dims.floordiv(dims.add(A, 2), 2), dims.add(dims.floordiv(A, 2), 1)),
        (dims.floordiv(dims.floordiv(A, 2), 3), dims.floordiv(A, 6)),
        (dims.floordiv(dims.mul(4, A), 6), dims.floordiv(dims.mul(2, A), 3)),
        (dims.floordiv(dims.mod(A, 4), 4), 0),
        (dims.mod(dims.add(dims.mul(8, A), 3), 8), 3),
        (dims.ceildiv(dims.mul(8, A), 8), A),
        (dims.minimum(A, dims.add(A, B)), A),
        (dims.maximum(0, dims.sub(A, dims.minimum(1, A))), dims.sub(A, dims.minimum(1, A))),
        (dims.maximum(0, dims.sub(A, dims.floordiv(A, 2))), dims.sub(A, dims.floordiv(A, 2))),
        (dims.sub(A, dims.minimum(1, A)), dims.maximum(0, dims.sub(A, 1))),
        (dims.sub(A, dims.maximum(0, dims.sub(A, 3))), dims.minimum(3, A)),
        (dims.add(dims.maximum(0, dims.sub(A, 1)), dims.minimum(1, A)), A),
        (dims.add(dims.minimum(A, B), dims.maximum(B, A)), dims.add(A, B)),
        (dims.mul(2, dims.add(dims.minimum(A, 3), dims.maximum(3, A))), 2 * A + 6),
        (dims.minimum(dims.minimum(A, B), A), dims.minimum(A, B)),
        (dims.equal(dims.add(A, 1), 0), 0),
        (dims.equal(A, -1), 0),
        (dims.less_equal(0, A), 1),
        (dims.broadcast_dim(A, 1), A),
        (dims.broadcast_dim(A, 7), 7),
        (dims.broadcast_dim(A, dims.add(B, 2)), dims.add(B, 2)),
        (dims.broadcast_dim(A, B), dims.broadcast_dim(B, A)),
        (dims.broadcast_dim(dims.broadcast_dim(A, B), A), dims.broadcast_dim(A, B)),
        (dims.not_equal(dims.less(A, 5), 0), dims.less(A, 5)),
        (dims.product([A, 0, B]), 0),
        (dims.sub(dims.mul(A, B), dims.mul(B, A)), 0),
        (dims.truncdiv(A, 3), dims.floordiv(A, 3)),
        (dims.truncdiv(A, B), dims.floordiv(A, B)),
        (dims.truncdiv(dims.sub(A, 2), 3), dims.floordiv(dims.maximum(dims.sub(A, 2), 0), 3)),
    ],
)
def test_simplifies(dim: Dim, expected: Dim) -> None:
    assert dim == expected


def test_extents_that_do_not_broadcast() -> None:
    with pytest.raises(ShapeError, match="2 and 3"):
        dims.broadcast_dim(2, 3)


def test_division_by_zero() -> None:
    assert dims.floordiv(0, 0) == 0
    with pytest.raises(ShapeError, match="divides 3 by 0"):
        dims.floordiv(3, 0)


def test_fresh_symbols_are_new() -> None:
    symbols = Symbols()
    first, second = symbols.fresh("n"), symbols.fresh("n")
    assert first != second
    assert [symbol.name for symbol in symbols.order] == ["n", "n_1"]


@pytest.mark.parametrize("degree", [1, 8, 40])
def test_bounds_of_numbers_beyond_floats(degree: int) -> None:
    huge = 10**400
    free = dims.opaque(dims.product([A] * 30))  # nothing bounds it from above
    dim = dims.product([dims.minimum(dims.add(huge, A), free), *[dims.add(A, 1)] * degree])
    for sign in (1, -1):
        low, high = bounds(dims.mul(sign * huge, dim))
        for number in (0, 1, 2**40):
            result = sign * huge * min(huge + number, number**30) * (number + 1) ** degree
            assert low <= result <= high


_FREE = dims.opaque(dims.product([A] * 30))
"""Nothing bounds it from above."""
QUOTIENTS = [
    *((dims.add(A, 5), dims.sub(B, 2)), (dims.sub(A, 5), dims.sub(B, 2)), (dims.sub(A, 5), B)),
    *((dims.sub(5, A), dims.add(B, 1)), (A, dims.sub(B, 1)), (5, dims.sub(2, B)), (-5, B)),
    *((_FREE, dims.add(B, 1)), (dims.neg(_FREE), dims.add(B, 2)), (dims.sub(_FREE, 3), B)),
    *((A, dims.add(_FREE, 1)), (dims.sub(A, 5), dims.add(_FREE, 1)), (-3, _FREE), (_FREE, 3)),
    *((dims.sub(_FREE, 9), dims.add(_FREE, 2)), (dims.minimum(A, 2), B), (-1, dims.minimum(B, 2))),
]


@pytest.mark.parametrize(("top", "divisor"), QUOTIENTS)
def test_bounds_of_quotients_and_remainders(top: Dim, divisor: Dim) -> None:
    quotient, remainder = dims.floordiv(top, divisor), dims.mod(top, divisor)
    ends = [*bounds(quotient), *bounds(remainder)]
    for a, b in itertools.product(range(8), repeat=2):
        x, y = (dims.substitute(dim, {A: a, B: b}) for dim in (top, divisor))
        if y or not x:
            q, r = (x // y, x % y) if y else (0, 0)
            assert ends[0] <= q <= ends[1]
            assert ends[2] <= r <= ends[3]


def test_bounds_are_near() -> None:
    difference = dims.opaque(dims.sub(A, 2))
    assert bounds(dims.mul(difference, difference))[0] == 0
    assert bounds(dims.mod(difference, 4)) == (0, 3)
    assert bounds(dims.mod(dims.minimum(A, 2), B)) == (0, 2)
    assert bounds(dims.floordiv(A, dims.add(B, 1))) == bounds(A)
    assert bounds(dims.floordiv(dims.minimum(A, 7), dims.add(B, 2))) == (0, 3)
    assert bounds(dims.opaque(dims.minimum(A, 7))) == (0, 7)


@pytest.mark.parametrize("shift", range(-7, 3))
@pytest.mark.parametrize("divisor", [1, 2, 5])
def test_division_towards_zero(shift: int, divisor: int) -> None:
    quotient = dims.truncdiv(dims.add(A, shift), divisor)
    for a in range(12):
        assert dims.substitute(quotient, {A: a}) == int((a + shift) / divisor)
