"""Axis atoms: how the axes of values become the axes of one kernel domain.

Purpose: decide whether operators can share an iteration space, and what it is. Every axis of every
value is a sequence of *atoms*, outermost first; the extent of the axis is the product of theirs, and
an axis of extent 1 has none. Operators relate atoms: element-wise operators share them, a transpose
permutes axes, a reshape regroups the flat sequence, a reduction drops some. Two operators share a
kernel where the atoms of the value between them *unify*: equal extents become one atom, and an atom
whose extent is a provable multiple of another's is split in two.

Invariants: bindings are only ever added, and `rollback` takes back all since a `mark`, so a failed
attempt leaves no trace. Chains of bindings are cut short as they are followed, so that a long chain
of operators costs no more for each than a short one. A *rigid* atom is never split (the m, n and k axes of the cube unit, a
gathered axis).

What it does not do: decide whether sharing is wanted; see `rules`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from dvm_graph.ir import Dim
from dvm_graph.symbolic import Facts, floordiv, product

Atom: TypeAlias = int
Atoms: TypeAlias = tuple[Atom, ...]
Layout: TypeAlias = tuple[Atoms, ...]
"""One sequence of atoms for each axis of a value."""


class AxisSpace:
    """The atoms of a graph and their bindings."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._extents: list[Dim] = []
        self._bindings: list[Atoms | None] = []
        self._rigid: list[bool] = []
        self._trail: list[tuple[Atom, Atoms | None]] = []
        """What was bound, and to what before."""

    # -- making atoms

    def atom(self, extent: Dim, rigid: bool = False) -> Atom:
        self._extents.append(extent)
        self._bindings.append(None)
        self._rigid.append(rigid)
        return len(self._extents) - 1

    def layout(self, shape: Sequence[Dim]) -> Layout:
        """New axes, whose atoms are one each, or none where the extent is provably 1."""
        layout: list[Atoms] = []
        for extent in shape:
            one = extent == 1 if isinstance(extent, int) else self.facts.same(extent, 1)
            layout.append(() if one else (self.atom(extent),))
        return tuple(layout)

    # -- reading

    def extent(self, atom: Atom) -> Dim:
        return self._extents[atom]

    def resolve(self, atoms: Sequence[Atom]) -> Atoms:
        """The free atoms that these stand for."""
        bindings = self._bindings
        if len(atoms) == 1:  # most axes have one
            binding = bindings[atoms[0]]
            if binding is None:
                return atoms if type(atoms) is tuple else tuple(atoms)
            if len(binding) == 1 and bindings[binding[0]] is None:  # most that are bound
                return binding
            return self._follow(atoms[0], binding)
        result: list[Atom] = []
        for atom in atoms:
            binding = bindings[atom]
            if binding is None:
                result.append(atom)
            elif len(binding) == 1 and bindings[binding[0]] is None:
                result += binding
            else:
                result += self._follow(atom, binding)
        return tuple(result)

    def _follow(self, atom: Atom, binding: Atoms) -> Atoms:
        """What a bound atom stands for, to which the atoms on the way are bound from now on."""
        chain = [atom]
        free = binding
        while len(free) == 1 and (further := self._bindings[free[0]]) is not None:
            chain.append(free[0])
            free = further
        if len(free) > 1:
            free = self.resolve(free)
        for link in chain:
            if self._bindings[link] != free:
                self._bind(link, free)
        return free

    def extent_of(self, atoms: Sequence[Atom]) -> Dim:
        """Of an axis of these atoms."""
        return product([self._extents[atom] for atom in self.resolve(atoms)])

    def flat(self, layout: Sequence[Atoms]) -> Atoms:
        """All free atoms of a layout, outermost first."""
        return self.resolve([atom for axis in layout for atom in axis])

    def is_one(self, extent: Dim) -> bool:
        if isinstance(extent, int):
            return extent == 1
        return self.facts.same(extent, 1)

    def equal(self, left: Dim, right: Dim) -> bool:
        if left is right:
            return True
        if isinstance(left, int) and isinstance(right, int):
            return left == right
        return self.facts.same(left, right)

    def divides(self, divisor: Dim, dividend: Dim) -> bool:
        if isinstance(divisor, int) and isinstance(dividend, int):
            return divisor > 0 and dividend % divisor == 0
        return self.facts.divides(divisor, dividend)

    # -- binding

    def mark(self) -> int:
        return len(self._trail)

    def rollback(self, mark: int) -> list[tuple[Atom, Atoms]]:
        """Takes back all bindings since a mark, and gives them to who may want to `redo` them."""
        taken: list[tuple[Atom, Atoms]] = []
        while len(self._trail) > mark:
            atom, before = self._trail.pop()
            binding = self._bindings[atom]
            assert binding is not None, atom
            taken.append((atom, binding))
            self._bindings[atom] = before
        return taken

    def redo(self, taken: list[tuple[Atom, Atoms]]) -> None:
        """Binds again what `rollback` took back last."""
        for atom, binding in reversed(taken):
            self._bind(atom, binding)

    def unify(self, left: Sequence[Atom], right: Sequence[Atom]) -> tuple[Dim, Dim] | None:
        """Makes two sequences of atoms one, given that the products of their extents are equal.

        Returns None, or the two extents that could not be matched; bindings made on the way stay
        until the caller rolls back.
        """
        first, second = self.resolve(left), self.resolve(right)
        if first == second or (
            len(first) == len(second) == 1 and self._make_one(first[0], second[0])
        ):
            return None
        a, b = list(first), list(second)
        for end in (-1, 0):
            while a and b and self._match(a, b, end):
                pass
        if not a and not b:
            return None
        a, b = list(self.resolve(a)), list(self.resolve(b))
        for rest in (a, b):
            if not (a and b):
                while rest and self.is_one(self._extents[rest[-1]]):
                    self._bind_to_nothing(rest.pop())
        if not a and not b:
            return None
        return self.extent_of(a), self.extent_of(b)

    def bind_assumed(self, left: Atom, right: Atom) -> bool:
        """Makes two free atoms one though their extents may differ: a guard has to say so."""
        if self._rigid[left]:
            left, right = right, left
        if self._rigid[left]:
            return False
        self._bind(left, (right,))
        return True

    def identify(self, left: Atom, right: Atom) -> bool:
        """Makes two free atoms of provably equal extents one, even if both are rigid."""
        if left == right:
            return True
        if not self.equal(self._extents[left], self._extents[right]):
            return False
        if self._rigid[left]:
            left, right = right, left
        self._bind(left, (right,))
        return True

    def unify_layouts(self, left: Layout, right: Layout) -> tuple[Dim, Dim] | None:
        """`unify` axis by axis; both layouts are of one shape."""
        for a, b in zip(left, right, strict=True):
            mismatch = self.unify(a, b)
            if mismatch is not None:
                return mismatch
        return None

    def _match(self, a: list[Atom], b: list[Atom], end: int) -> bool:
        """Matches the free atoms at one end of two sequences; False: cannot."""
        x, y = a[end], b[end]
        if not (self._bindings[x] is None is self._bindings[y]):  # by a match before
            for atoms in (a, b):
                atoms[:] = self.resolve(atoms)
            return True
        if x == y:
            a.pop(end)
            b.pop(end)
            return True
        if self.equal(self._extents[x], self._extents[y]):
            if not self._make_one(x, y):
                return False
            a.pop(end)
            b.pop(end)
            return True
        return self._split(a, b, end) or self._split(b, a, end)

    def _make_one(self, x: Atom, y: Atom) -> bool:
        """Makes two free atoms one; False: their extents may differ, or both are rigid."""
        extents = self._extents
        if extents[x] != extents[y] and not self.equal(extents[x], extents[y]):
            return False
        if not self._rigid[x]:
            self._bind(x, (y,))
        elif not self._rigid[y]:
            self._bind(y, (x,))
        else:
            return False
        return True

    def _split(self, longer: list[Atom], shorter: list[Atom], end: int) -> bool:
        """Splits the atom at the end of `longer` so that one part is that of `shorter`."""
        whole, part = longer[end], shorter[end]
        if self._rigid[whole] or self._extents[whole] == 0 or self.is_one(self._extents[whole]):
            return False
        if self.is_one(self._extents[part]):  # what is left would be as long
            if self._rigid[part]:
                return False
            self._bind_to_nothing(shorter.pop(end))
            return True
        if not self.divides(self._extents[part], self._extents[whole]):
            return False
        rest = self.atom(floordiv(self._extents[whole], self._extents[part]))
        self._bind(whole, (rest, part) if end == -1 else (part, rest))
        longer[end] = rest
        shorter.pop(end)
        return True

    def _bind(self, atom: Atom, to: Atoms) -> None:
        self._trail.append((atom, self._bindings[atom]))
        self._bindings[atom] = to

    def _bind_to_nothing(self, atom: Atom) -> None:
        if not self._rigid[atom]:
            self._bind(atom, ())
