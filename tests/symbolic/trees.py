"""Random dim expressions as trees, with plain Python as their independent meaning.

A tree is an int, a symbol name, or (operator, tree, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from hypothesis import strategies as st

from dvm_graph.symbolic import Dim, Symbols, dims

Tree: TypeAlias = Any
NAMES = ("a", "b", "c")


class UndefinedError(Exception):
    """A division by zero, or extents that do not broadcast."""


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise UndefinedError
    return a // b


def _truncate(a: int, b: int) -> int:
    quotient = _divide(abs(a), abs(b))
    return quotient if a * b >= 0 else -quotient


def _broadcast(a: int, b: int) -> int:
    if a != b and 1 not in (a, b):
        raise UndefinedError
    return b if a == 1 else a


MEANING: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": _divide,
    "ceildiv": lambda a, b: -_divide(-a, b),
    "truncdiv": _truncate,
    "mod": lambda a, b: a - b * _divide(a, b),
    "minimum": min,
    "maximum": max,
    "equal": lambda a, b: int(a == b),
    "not_equal": lambda a, b: int(a != b),
    "less": lambda a, b: int(a < b),
    "less_equal": lambda a, b: int(a <= b),
    "broadcast_dim": _broadcast,
    "select": lambda c, a, b: a if c else b,
}
_COMPARISONS = ("equal", "not_equal", "less", "less_equal")
_ARITHMETIC = tuple(name for name in MEANING if name not in ("select", "broadcast_dim"))


def value(tree: Tree, assignment: Mapping[str, int]) -> int:
    """What a tree is for values of the symbols.

    Raises:
        UndefinedError: it is nothing.
    """
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return assignment[tree]
    return MEANING[tree[0]](*(value(operand, assignment) for operand in tree[1:]))


def build(tree: Tree, symbols: Symbols) -> Dim:
    """The dim that a tree describes."""
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return symbols.get(tree)
    return getattr(dims, tree[0])(*(build(operand, symbols) for operand in tree[1:]))


def _extend(trees: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    condition = st.tuples(st.sampled_from(_COMPARISONS), trees, trees)
    return st.one_of(
        st.tuples(st.sampled_from(("add", "sub", "mul")), trees, trees),
        st.tuples(st.sampled_from(_ARITHMETIC), trees, trees),
        st.tuples(st.just("select"), condition, trees, trees),
        st.tuples(st.just("broadcast_dim"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
    )


leaves = st.one_of(st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(-4, 12))
trees = st.recursive(leaves, _extend, max_leaves=7)
assignments = st.fixed_dictionaries({name: st.integers(0, 9) for name in NAMES})
