"""Regions of a value: which elements an affine access touches, as boxes over symbolic dims.

A *box* is an offset and steps, each an extent and a stride: the elements at `offset + sum of i * stride`, for all
`0 <= i < extent` of each step. Steps that follow each other without a gap are one, so a dense range has one step
of stride 1, however many axes it was stored along.

In: steps as an access has them. Out: boxes, their unions, and proofs that one lies within a value. Everything
holds for all extents that the facts allow; where no proof is found, the answer is "not shown", never "no".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dvm_graph.errors import ShapeError
from dvm_graph.ir import Dim
from dvm_graph.records import record
from dvm_graph.symbolic import Facts, Relation, add, mul, sub
from dvm_graph.symbolic.dims import equal
from dvm_graph.symbolic.expressions import BroadcastDim, Equal, Mul, Select
from dvm_graph.symbolic.intervals import bounds, nonnegative
from dvm_graph.symbolic.polynomial import content, difference, divide, polynomial, to_dim

Step: TypeAlias = tuple[Dim, Dim]
"""Extent and stride."""


@record(frozen=True, slots=True, eq=False)
class Box:
    """Boxes are not compared: different ones may be the same elements (`Regions.same`)."""

    offset: Dim
    steps: tuple[Step, ...]


class Regions:
    """Boxes, and what can be shown about them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._same = facts.same
        self._filled: dict[tuple[Dim, ...], Facts | None] = {}
        """What is known where some extents are not 0, as far as anybody asked."""
        self._broadcasts = {
            frozenset((check.left, check.right))
            for check in facts.checks
            if check.relation in (Relation.BROADCASTS, Relation.BROADCASTS_TO)
        }

    def where(self, condition: Dim) -> Regions | None:
        """The same where a condition, equal dims joined by and, holds; None: it never does."""
        facts = self._facts.branch()
        factors = condition.args if isinstance(condition, Mul) else (condition,)
        for factor in factors:
            if factor == 0:
                return None
            if isinstance(factor, Equal):
                left, right = factor.args
                try:
                    facts.assume_equal(left, right, "the guard of the kernel")
                except ShapeError:  # each may hold, but not with those before it
                    return None
        return Regions(facts)

    def read(self, offset: Dim, steps: Iterable[Step]) -> Box:
        """What is read; steps along which nothing moves are gone."""
        moving = [self._unbroadcast(*step) for step in steps]
        moving = [step for step in moving if not (self._same(step[1], 0) or self._same(step[0], 1))]
        return Box(offset, self._joined(moving))

    def stored(self, offset: Dim, steps: Iterable[Step]) -> Box:
        """What is written: as many elements as the extents multiply to, so that one box over all of a value is
        each element once.
        """
        return Box(offset, self._joined([step for step in steps if not self._same(step[0], 1)]))

    def covers(self, box: Box, size: Dim) -> bool:
        """The box is every element of a value of this size."""
        return self.dense(box, size) and self._same(box.offset, 0)

    def dense(self, box: Box, size: Dim) -> bool:
        """The box is as many elements, one behind the other."""
        if not box.steps:
            return self._same(size, 1)
        return len(box.steps) == 1 and self._same_steps(box.steps[0], (size, 1))

    def within(self, box: Box, size: Dim) -> bool:
        """No element of the box lies outside a value of this size; a box without elements is in any."""
        if self.covers(box, size) or self._nested(box, size):
            return True
        low = high = box.offset
        for extent, stride in box.steps:
            reach = mul(sub(extent, 1), stride)
            first, last = self._facts.bounds(stride)
            if first >= 0:
                high = add(high, reach)
            elif last <= 0:
                low = add(low, reach)
            else:
                return False
        return self._between(low, high, size, [extent for extent, _ in box.steps])

    def same(self, left: Box, right: Box) -> bool:
        return self._same(left.offset, right.offset) and self._paired(left, right) == []

    def union(self, boxes: Sequence[Box]) -> list[Box]:
        """The same elements in fewer boxes, where they lie side by side.

        Parts are written in the order in which they lie, mostly: then each follows what is joined so far.
        """
        none: list[Box] = []
        return functools.reduce(self.joined, boxes, none)

    def joined(self, boxes: Sequence[Box], box: Box) -> list[Box]:
        """A union, and one more box."""
        rest = list(boxes)
        while (found := self._neighbour(box, rest)) is not None:
            at, box = found
            del rest[at]
        return [*rest, box]

    def _neighbour(self, box: Box, others: Sequence[Box]) -> tuple[int, Box] | None:
        for at, other in enumerate(others):
            both = self._side_by_side(other, box) or self._side_by_side(box, other)
            if both is not None:
                return at, both
        return None

    # -- steps

    def _unbroadcast(self, extent: Dim, stride: Dim) -> Step:
        """The step of an operand that may be broadcast, `select(own == 1, 0, stride)` along an axis that its own
        extent broadcasts to, is that of its own extent: both move by nothing, or by all of it.
        """
        if not isinstance(stride, Select):
            return extent, stride
        condition, then, other = stride.args
        joined = extent.args if isinstance(extent, BroadcastDim) else (extent,)
        candidates = [*joined, *(condition.args if isinstance(condition, Equal) else ())]
        for own in candidates if then == 0 else ():
            if own != 1 and equal(own, 1) == condition and self._broadcasts_to(own, joined):
                return own, other
        return extent, stride

    def _broadcasts_to(self, own: Dim, joined: Sequence[Dim]) -> bool:
        """It is one of what was joined to an extent, or that is above 1 and checked to be what it broadcasts to."""
        if own in joined:
            return True
        (extent, *others) = joined
        known = frozenset((own, extent)) in self._broadcasts
        return not others and known and self._facts.bounds(extent)[0] > 1

    def _joined(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps of which one begins where another ends become one."""
        rest = list(steps)
        at = len(rest) - 1
        while at >= 0:
            extent, stride = rest[at]
            end = mul(extent, stride)
            for outer in reversed(range(len(rest))):  # mostly the one right before it
                more, between = rest[outer]
                if outer != at and self._same(between, end):
                    rest[at] = (mul(more, extent), stride)
                    del rest[outer]
                    at = len(rest) - 1
                    break
            else:
                at -= 1
        return tuple(rest)

    def _side_by_side(self, first: Box, second: Box) -> Box | None:
        """Both, where `second` begins where `first` ends along one of its steps."""
        different = self._paired(first, second)
        if different is None or len(different) > 1:
            return None
        gap = sub(second.offset, first.offset)
        if different:
            ((extent, stride), (more, _)) = different[0]
            if not self._same(gap, mul(extent, stride)):
                return None
            steps = [s for s in first.steps if s != (extent, stride)]
            return Box(first.offset, self._joined([*steps, (add(extent, more), stride)]))
        if self._facts.bounds(gap)[0] < 0:
            return None
        return Box(first.offset, self._joined([*first.steps, (2, gap)]))

    def _paired(self, first: Box, second: Box) -> list[tuple[Step, Step]] | None:
        """The steps in which two boxes differ, by strides; None: they are not alike."""
        left, right = list(first.steps), list(second.steps)
        for step in first.steps:
            same = next((other for other in right if self._same_steps(step, other)), None)
            if same is not None:
                left.remove(step)
                right.remove(same)
        if len(left) > 1 or len(right) > 1:
            return None
        if len(left) == len(right) == 1:
            return [(left[0], right[0])] if self._same(left[0][1], right[0][1]) else None
        if left:  # the other one has extent 1 along it
            return [(left[0], (1, left[0][1]))]
        return [((1, right[0][1]), right[0])] if right else []

    def _same_steps(self, left: Step, right: Step) -> bool:
        return self._same(left[0], right[0]) and self._same(left[1], right[1])

    # -- proofs

    def _nested(self, box: Box, size: Dim) -> bool:
        """Each step, from where the offset begins along it, ends before the next outer one goes on."""
        least = [0] * (len(box.steps) - 1) + [
            1
        ]  # an innermost stride of 0 would stay at one element of none
        strides = [stride for _, stride in box.steps]
        if not strides or not all(map(self._at_least, strides, least)):
            return False
        room, rest = size, polynomial(box.offset)
        for extent, stride in box.steps:
            start: Dim = 0
            if len(step := polynomial(stride)) == 1:
                quotient, rest = divide(rest, step)
                start = to_dim(quotient)
            ends = mul(add(start, extent), stride)
            if not (
                self._at_most(self._facts, 0, start) and self._at_most(self._facts, ends, room)
            ):
                return False
            room = stride
        return not rest

    def _between(self, low: Dim, high: Dim, size: Dim, extents: Sequence[Dim]) -> bool:
        """`0 <= low` and `high < size`, where no extent is 0."""
        last = sub(size, 1)
        if self._at_most(self._facts, 0, low) and self._at_most(self._facts, high, last):
            return True
        named = tuple(dict.fromkeys(e for e in extents if not isinstance(e, int) or e < 1))
        if named not in self._filled:
            self._filled[named] = self._with_elements(named)
        facts = self._filled[named]
        return facts is None or (self._at_most(facts, 0, low) and self._at_most(facts, high, last))

    def _with_elements(self, extents: Sequence[Dim]) -> Facts | None:
        """What is known where no extent is 0; None: one always is."""
        facts = self._facts.branch()
        for extent in extents:
            if facts.bounds(extent)[1] < 1:
                return None
            try:
                facts.assume_range(extent, 1, None, "it has elements")
            except ShapeError:  # it has none, as follows from an equality
                return None
        return facts

    def _at_least(self, a: Dim, number: int) -> bool:
        return self._at_most(self._facts, number, a)

    @staticmethod
    def _at_most(facts: Facts, a: Dim, b: Dim) -> bool:
        """Factors that both have and that are never negative count for nothing. What is known may replace a dim by
        an equal one that says less about it, so the dims are looked at as they are, too.
        """
        if facts.prove_less_equal(a, b).yes:
            return True
        gap = difference(b, a)
        number, common = content(gap)
        if any(bounds(atom)[0] < 0 and facts.bounds(atom)[0] < 0 for atom, _ in common):
            return False
        gap, _ = divide(gap, {common: number}) if number else (gap, {})
        return nonnegative(gap) or facts.prove_less_equal(0, to_dim(gap)).yes
