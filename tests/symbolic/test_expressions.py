"""Sums, products and their texts against sympy's, which puts them in the same normal form."""

from __future__ import annotations

import os
import pickle
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event, Thread
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from dvm_graph.symbolic import Dim, Symbols, dims, parse_dim
from dvm_graph.symbolic.expressions import _MAKING, Add, Expression, FloorDiv, Mul, Opaque, Pow
from dvm_graph.symbolic.polynomial import polynomial
from tests.symbolic.trees import NAMES, Tree

_SYMBOLS = Symbols()
_MEANING = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}
_leaves = st.one_of(st.sampled_from(NAMES), st.integers(-12, 12))
_trees: st.SearchStrategy[Tree] = st.recursive(
    _leaves, lambda trees: st.tuples(st.sampled_from(tuple(_MEANING)), trees, trees), max_leaves=12
)


def _dim(tree: Tree) -> Dim:
    if isinstance(tree, tuple):
        return getattr(dims, tree[0])(_dim(tree[1]), _dim(tree[2]))
    return tree if isinstance(tree, int) else _SYMBOLS.get(tree)


def _by_sympy(tree: Tree) -> Any:
    if isinstance(tree, tuple):
        return _MEANING[tree[0]](_by_sympy(tree[1]), _by_sympy(tree[2]))
    if isinstance(tree, int):
        return sympy.Integer(tree)
    return sympy.Symbol(tree, integer=True, nonnegative=True)


def _operands(form: Any) -> set[str]:
    return {str(arg) for arg in form.args}


@settings(max_examples=500, deadline=None)
@given(_trees)
def test_sums_and_products_are_those_of_sympy(tree: Tree) -> None:
    dim, expected = _dim(tree), _by_sympy(tree)
    assert str(dim) == str(expected)
    if isinstance(dim, Expression) and dim.args:
        assert type(dim).__name__ == type(expected).__name__
        assert _operands(dim) == _operands(expected)


@settings(max_examples=300, deadline=None)
@given(_trees, _trees)
def test_equal_are_those_that_sympy_holds_equal(first: Tree, second: Tree) -> None:
    a, b = _dim(first), _dim(second)
    assert (a == b) is (_by_sympy(first) == _by_sympy(second))
    if a == b:
        assert hash(a) == hash(b)
        assert str(a) == str(b)


@settings(max_examples=200, deadline=None)
@given(_trees)
def test_texts_are_read_again(tree: Tree) -> None:
    """As what has the same terms: `2*(a + b)*c` is read as `(2*a + 2*b)*c`."""
    assert polynomial(parse_dim(str(_dim(tree)), _SYMBOLS)) == polynomial(_dim(tree))


A, B = (_SYMBOLS.get(name) for name in "ab")


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (dims.floordiv(dims.add(A, 1), B), "((a + 1)//b)"),
        (dims.mul(2, dims.mod(A, B)), "2*(a%b)"),
        (dims.mod(dims.mul(A, B), dims.add(A, 2)), "((a*b)%(a + 2))"),
        (dims.floordiv(dims.neg(A), B), "((-a)//b)"),
        (dims.floordiv(7, dims.mul(A, A)), "(7//(a**2))"),
        (dims.equal(A, dims.add(B, -3)), "(a==(b - 3))"),
        (dims.less(-1, dims.sub(A, B)), "((-1)<(a - b))"),
        (dims.maximum(dims.sub(A, B), 0), "Max(0, a - b)"),
        (dims.broadcast_dim(A, B), "broadcast(a, b)"),
        (dims.select(dims.equal(A, 1), 0, B), "Select((1==a), 0, b)"),
        (dims.sub(2, A), "2 - a"),
        (dims.add(dims.mul(A, dims.add(A, B)), dims.mul(B, B)), "a*(a + b) + b**2"),
    ],
)
def test_texts_of_forms(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_orders_do_not_depend_on_how_an_expression_was_made() -> None:
    total = dims.add(dims.add(B, 3), dims.mul(A, A))
    assert total.args == dims.add(dims.mul(A, A), dims.add(3, B)).args == (3, B, Pow(A, 2))
    scaled = dims.mul(dims.mul(B, 6), A)
    assert scaled.args == (6, A, B)
    assert isinstance(total, Add)
    assert isinstance(scaled, Mul)


def test_there_is_one_of_each() -> None:
    """Also where several threads make it at once, and of models that know nothing of each other."""
    together = Barrier(8)

    def made(_: int) -> list[Expression]:
        together.wait()
        symbols = Symbols()
        a, b = symbols.get("one_of_a"), symbols.get("one_of_b")
        return [a, Add(1, a), Mul(a, b), Pow(b, 2), Opaque(Add(a, b), (0, 9)), FloorDiv(b, a)]

    with ThreadPoolExecutor(8) as pool:
        each = list(pool.map(made, range(8)))
    assert all(len(set(map(id, alike))) == 1 for alike in zip(*each, strict=True))
    assert len({*each[0]}) == 6


def test_a_child_makes_them_whatever_its_parent_was_at() -> None:
    held = Event()

    def hold() -> None:
        with _MAKING:
            held.set()
            time.sleep(0.1)

    thread = Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)  # where it waits for a thread that it has not
        Add(1, Symbols().get("of_a_child"))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()


def test_copies_are_equal() -> None:
    dim = dims.floordiv(dims.add(dims.mul(A, B), dims.opaque(dims.add(A, 3))), 4)
    copy = pickle.loads(pickle.dumps(dim))
    assert copy == dim
    assert hash(copy) == hash(dim)
