"""Coverage, shown for all dims: every access of a plan touches what is there.

In: a `ModelPlan` and the facts of its model. Out: a `Coverage`: how many accesses there are, and which of them
nothing was shown about. Shown are, by proof over symbolic dims (`regions`):

  * stores to a value, of all calls together, write every element of it, and each once
  * a kernel, where its guard holds, writes what its fallback writes
  * a load, gather or window reads inside its value, and only what was written by then

What is not shown is no error: `verify` looks at it with numbers. And at every run C++ holds each access to its
value (vm/verify.h), and the `DimCheck`s of `check_at_run` say that as much is written to a value as it has.
"""

from __future__ import annotations

import functools
from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from dvm_graph.ir import Dim
from dvm_graph.kernels.plan import (
    NO_SLOT,
    PIXELS,
    WEIGHTS,
    Access,
    DimCheck,
    KernelCall,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanNode,
    Slot,
)
from dvm_graph.kernels.regions import Box, Regions, Step
from dvm_graph.symbolic import Facts, add, product


class _Parts:
    """What was written of a value, box by box: one object for the same boxes in the same order, of whatever value."""

    __slots__ = ("before", "box", "count")

    def __init__(self, before: _Parts | None = None, box: Box | None = None) -> None:
        self.before = before
        self.box = box
        self.count: int = 0 if before is None else before.count + 1

    def boxes(self) -> list[Box]:
        """The first one first."""
        found, at = [], self
        while at.before is not None and at.box is not None:
            found.append(at.box)
            at = at.before
        return found[::-1]


_Written: TypeAlias = MutableMapping[int, _Parts]
"""What kernels wrote of their values so far."""
_Store: TypeAlias = tuple[int, KernelPlan, PlanNode]
"""A value that is stored to, and by whom."""

_MOST_PARTS = 64
"""Of a value, in boxes; one that is joined from more, or does not become fewer, is left to numbers."""


@dataclass(slots=True)
class Coverage:
    """What was shown about the accesses of a plan."""

    accesses: int = 0
    open: list[str] = field(default_factory=list)
    """Those that nothing was shown about, in words."""
    unfilled: dict[int, Dim] = field(default_factory=dict)
    """Of them, values that may not be written wholly: how many elements are written."""


def prove_coverage(plan: ModelPlan, facts: Facts) -> Coverage:
    return _Prover(plan, facts).run()


def check_at_run(plan: ModelPlan, coverage: Coverage) -> None:
    """Has each run count what is written to values that were not shown to be written wholly."""
    for value, written in coverage.unfilled.items():
        described = plan.values[value]
        size = plan.dims.slot(product(plan.dims.dims()[slot] for slot in described.shape))
        condition = plan.dims.emit("eq", plan.dims.slot(written), size)
        reason = f"what the compiler made: kernels write {written} elements of {described.name}"
        plan.checks.append(DimCheck(condition, reason))


class _Prover:
    def __init__(self, plan: ModelPlan, facts: Facts) -> None:
        self._plan = plan
        self._dims = {**plan.dims.dims(), NO_SLOT: 0}
        self._regions = Regions(facts)
        self._guarded: dict[Slot, Regions | None] = {NO_SLOT: self._regions}
        self._guard: Slot = NO_SLOT
        """That of the kernel that is looked at: it holds."""
        self._coverage = Coverage()
        self._boxes: dict[tuple[object, ...], Box] = {}
        self._windows: dict[tuple[object, ...], tuple[bool, list[Box]]] = {}
        self._answers: dict[tuple[object, ...], bool] = {}
        self._nothing = _Parts()
        self._parts: dict[tuple[_Parts, Box], _Parts] = {}
        self._unions: dict[tuple[Slot, _Parts], Sequence[Box]] = {}
        self._sizes: dict[tuple[Slot, ...], Dim] = {}

    def run(self) -> Coverage:
        written: _Written = {}
        stores: list[_Store] = []
        for step in self._plan.steps:
            if isinstance(step, LaunchStep):
                for stage in step.stages:
                    results = [self._call(call, written, stores) for call in stage]
                    for result in results:
                        self._add(written, result)
        filled: dict[int, bool] = {}
        for value, plan, node in stores:
            if value not in filled:
                filled[value] = self._fills(value, written[value])
            self._count(filled[value], plan, node)
        return self._coverage

    def _call(self, call: KernelCall, before: _Written, stores: list[_Store]) -> _Written:
        """What a call writes whether or not its guard holds, which its fallback says."""
        if not call.fallback:
            return self._kernel(call.plan, before, stores)
        seen: _Written = ChainMap({}, before)  # no copy: what was written so far may be much
        result: _Written = {}
        inner: list[_Store] = []
        for part in call.fallback:
            more = self._call(part, seen, inner)
            self._add(seen, more)
            self._add(result, more)
        regions = self._where(call.guard)
        if regions is None:
            stores.extend(inner)
            return result
        own: list[_Store] = []
        with self._under(call.guard, regions):
            written = self._kernel(call.plan, before, own)
            for value, plan, node in own:
                self._count(
                    self._equal(value, written[value], result.get(value, self._nothing)), plan, node
                )
        for value, plan, node in inner:
            if value in written:
                stores.append((value, plan, node))
            else:
                self._count(self._fills(value, result[value]), plan, node)
        return {value: result.get(value, self._nothing) for value in written}

    def _where(self, guard: Slot) -> Regions | None:
        """What can be shown where the guard holds; None: the kernel never runs."""
        if guard not in self._guarded:
            self._guarded[guard] = self._regions.where(self._dims.get(guard, 1))
        return self._guarded[guard]

    @contextmanager
    def _under(self, guard: Slot, regions: Regions) -> Iterator[None]:
        before = self._regions, self._guard
        self._regions, self._guard = regions, guard
        yield
        self._regions, self._guard = before

    def _kernel(self, plan: KernelPlan, before: _Written, stores: list[_Store]) -> _Written:
        result: _Written = {}
        for node in plan.nodes:
            if node.access < 0:
                continue
            value = plan.accesses[node.access].value
            if node.op == "store":
                before_it = result.get(value, self._nothing)
                result[value] = self._after(before_it, self._box(plan, node))
                stores.append((value, plan, node))
            elif node.window:
                self._count(self._reads_window(plan, node, before), plan, node)
            else:
                self._count(self._reads(value, self._box(plan, node), before), plan, node)
        return result

    def _count(self, shown: bool, plan: KernelPlan, node: PlanNode) -> None:
        self._coverage.accesses += 1
        if not shown:
            name = self._plan.values[plan.accesses[node.access].value].name
            self._coverage.open.append(f"{node.op} of {name} in {plan.name}")

    # -- values

    def _size(self, value: int) -> Dim:
        shape = self._plan.values[value].shape
        known = self._sizes.get(shape)
        if known is None:
            known = self._sizes[shape] = product(self._dims[slot] for slot in shape)
        return known

    def _after(self, before: _Parts, box: Box) -> _Parts:
        known = self._parts.get((before, box))
        if known is None:
            known = self._parts[before, box] = _Parts(before, box)
        return known

    def _add(self, to: _Written, more: _Written) -> None:
        for value, parts in more.items():
            before = to.get(value)
            to[value] = (
                parts if before is None else functools.reduce(self._after, parts.boxes(), before)
            )

    def _is_whole(self, value: int, parts: _Parts) -> bool:
        key = (self._guard, parts, self._plan.values[value].shape)
        known = self._answers.get(key)
        if known is None:
            joined = self._union(parts) if parts.count <= _MOST_PARTS else ()
            known = len(joined) == 1 and self._regions.covers(joined[0], self._size(value))
            self._answers[key] = known
        return known

    def _union(self, parts: _Parts) -> Sequence[Box]:
        """Values are written part by part, and may be read after each: what was joined before is not again. Of what does
        not become a few boxes there is none.
        """
        left: list[_Parts] = []
        joined: Sequence[Box] | None = None
        while joined is None:
            joined = self._unions.get((self._guard, parts)) if parts.count else ()
            if joined is None and parts.before is not None:
                left.append(parts)
                parts = parts.before
        for each in reversed(left):
            assert each.box is not None
            if joined or each.count == 1:
                joined = self._regions.joined(joined, each.box)
            if len(joined) > _MOST_PARTS:
                joined = ()
            self._unions[self._guard, each] = joined
        return joined

    def _fills(self, value: int, parts: _Parts) -> bool:
        whole = self._is_whole(value, parts)
        if not whole:
            counts = (product(extent for extent, _ in box.steps) for box in parts.boxes())
            self._coverage.unfilled[value] = functools.reduce(add, counts)
        return whole

    def _equal(self, value: int, left: _Parts, right: _Parts) -> bool:
        if self._is_whole(value, left) and self._is_whole(value, right):
            return True
        first, second = self._union(left), self._union(right)
        return 0 < len(first) == len(second) and all(
            any(self._regions.same(box, other) for other in second) for box in first
        )

    def _reads(self, value: int, box: Box, before: _Written) -> bool:
        parts = before.get(value)
        if parts is not None and not self._is_whole(value, parts):
            return any(self._regions.same(box, part) for part in self._union(parts))
        return self._within(value, box)

    def _within(self, value: int, box: Box) -> bool:
        key = (self._guard, box, self._plan.values[value].shape)
        known = self._answers.get(key)
        if known is None:
            known = self._answers[key] = self._regions.within(box, self._size(value))
        return known

    # -- accesses

    def _box(self, plan: KernelPlan, node: PlanNode) -> Box:
        """What a load, store or gather touches."""
        access = plan.accesses[node.access]
        panels = self._plan.values[access.value].shape[1:] if access.packed_panels else ()
        walked = (node.op, node.axes, node.limit, node.offset, plan.extents)
        key = (self._guard, *walked, access.strides, access.offset, panels)
        known = self._boxes.get(key)
        if known is None:
            steps = self._steps(plan, node, access.strides)
            if node.op == "gather":
                steps.append((self._dims[node.limit], self._dims[node.offset]))
            if access.packed_panels:
                steps.append((product(self._dims[slot] for slot in panels), 1))
            make = self._regions.stored if node.op == "store" else self._regions.read
            known = self._boxes[key] = make(self._dims[access.offset], steps)
        return known

    def _steps(self, plan: KernelPlan, node: PlanNode, strides: Sequence[Slot]) -> list[Step]:
        return [
            (self._dims[plan.extents[axis]], self._dims[stride])
            for axis, stride in enumerate(strides)
            if node.axes >> axis & 1
        ]

    def _reads_window(self, plan: KernelPlan, node: PlanNode, before: _Written) -> bool:
        """Pixels, and the weights of taps, lie in their values; windows are numbered within the images, channels
        within a pixel.
        """
        accesses = [plan.accesses[i] for i in (node.access, node.weights) if i >= 0]
        places = [(access.strides, access.offset) for access in accesses]
        walked = (node.op, node.axes, node.window, node.strides, plan.extents)
        key = (self._guard, *walked, *places)
        known = self._windows.get(key)
        if known is None:
            known = self._windows[key] = self._window(plan, node, accesses)
        inside, reads = known
        return inside and all(
            self._reads(access.value, whole, before)
            for access, whole in zip(accesses, reads, strict=True)
        )

    def _window(
        self, plan: KernelPlan, node: PlanNode, accesses: Sequence[Access]
    ) -> tuple[bool, list[Box]]:
        """Whether channels and windows are numbered within what there is, and what each access reads whole."""
        size = {name: self._dims[slot] for name, slot in node.window_sizes.items()}
        pixels = product(size[name] for name in PIXELS)
        weights = product(size[name] for name in WEIGHTS)
        windows = product(size[f"out_{name}"] for name in ("depth", "height", "width"))
        windows = product((size["images"], windows))
        numbers = self._regions.read(0, self._steps(plan, node, node.strides))
        inside, reads = self._regions.within(numbers, windows), []
        of_group = (size["channels"], 1)  # channels that each result is made of
        parts = [(pixels, size["pixel"], [of_group]), (weights, size["weights"], [])]
        for access, (count, period, more) in zip(accesses, parts, strict=False):
            steps = [*self._steps(plan, node, access.strides), *more]
            inside = inside and self._regions.within(self._regions.read(0, steps), period)
            reads.append(self._regions.read(self._dims[access.offset], [(count, 1)]))
        return inside, reads
