"""Unification of axis atoms."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dvm_graph.cluster.axes import AxisSpace
from dvm_graph.symbolic import Facts, Symbols


@pytest.fixture
def space() -> AxisSpace:
    return AxisSpace(Facts(Symbols()))


def test_equal_extents_become_one_atom(space: AxisSpace) -> None:
    s = space.facts.symbols.get("s")
    a, b = space.atom(s), space.atom(s)
    assert space.unify([a], [b]) is None
    assert space.resolve([a]) == space.resolve([b])


def test_a_multiple_is_split(space: AxisSpace) -> None:
    b, s = (space.facts.symbols.get(name) for name in "bs")
    rows, batch, sequence = space.atom(b * s), space.atom(b), space.atom(s)
    assert space.unify([rows], [batch, sequence]) is None
    assert space.resolve([rows]) == space.resolve([batch, sequence])
    assert len(space.resolve([rows])) == 2


def test_a_rigid_atom_is_not_split(space: AxisSpace) -> None:
    columns = space.atom(768, rigid=True)
    heads, depth = space.atom(12), space.atom(64)
    assert space.unify([columns], [heads, depth]) is not None


def test_different_extents_do_not_merge(space: AxisSpace) -> None:
    s, t = (space.atom(space.facts.symbols.get(name)) for name in "st")
    assert space.unify([s], [t]) is not None


def test_rollback_leaves_no_trace(space: AxisSpace) -> None:
    whole, inner = space.atom(12), space.atom(4)
    mark = space.mark()
    assert space.unify([whole], [inner]) is not None
    space.rollback(mark)
    assert space.resolve([whole]) == (whole,)
    assert space.resolve([inner]) == (inner,)


def test_rollback_undoes_chains_that_were_cut_short(space: AxisSpace) -> None:
    """Chains of bindings longer than Python's stack, made and followed behind a mark, and taken back."""
    s = space.facts.symbols.get("s")
    atoms = [space.atom(s) for _ in range(5000)]
    assert space.unify(atoms[:1], atoms[1:2]) is None
    mark = space.mark()
    for left, right in itertools.pairwise(atoms[1:]):
        assert space.unify([left], [right]) is None
        assert space.resolve(atoms[:1]) == space.resolve([right])
    assert len(set(space.resolve(atoms))) == 1
    space.rollback(mark)
    assert space.resolve(atoms) == (atoms[1], *atoms[1:])


def test_an_extent_of_one_has_no_atom(space: AxisSpace) -> None:
    one, several = space.layout((1, space.facts.symbols.get("s")))
    assert one == () and len(several) == 1


@given(st.lists(st.integers(2, 5), min_size=1, max_size=5), st.data())
def test_regrouped_axes_unify(extents: list[int], data: st.DataObject) -> None:
    """Two groupings of one flat sequence always have a common refinement."""
    space = AxisSpace(Facts(Symbols()))
    sides = []
    for _ in range(2):
        cuts = [data.draw(st.booleans()) for _ in extents[1:]]
        groups = [[extents[0]]]
        for cut, extent in zip(cuts, extents[1:], strict=True):
            if cut:
                groups.append([extent])
            else:
                groups[-1].append(extent)
        sides.append([space.atom(math.prod(group)) for group in groups])
    if space.unify(*sides) is not None:
        return  # prime factors can hide a refinement; it must fail as a whole, not wrongly
    assert space.resolve(sides[0]) == space.resolve(sides[1])
    for side in sides:
        for atom in side:
            parts = [space.extent(part) for part in space.resolve([atom])]
            assert math.prod(parts) == space.extent(atom)


@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 9]), min_size=1, max_size=4),
    st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.data()), max_size=3),
)
def test_sequences_that_share_atoms_end(
    extents: list[int], wanted: list[tuple[list[int], st.DataObject]]
) -> None:
    """A flat square and its transpose have the same atoms in another order: one bound to the other is free no more."""
    space = AxisSpace(Facts(Symbols()))
    atoms = [space.atom(extent) for extent in extents]
    for chosen, data in wanted:
        left = [atoms[at % len(atoms)] for at in chosen]
        right = data.draw(st.permutations(left))
        before = [space.resolve([atom]) for atom in atoms]
        mark = space.mark()
        if space.unify(left, right) is None:
            assert space.resolve(left) == space.resolve(right)
        else:
            space.rollback(mark)
            assert [space.resolve([atom]) for atom in atoms] == before
        for atom, extent in zip(atoms, extents, strict=True):
            assert math.prod(space.extent(part) for part in space.resolve([atom])) == extent
