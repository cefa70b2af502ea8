"""Lowers subgraphs of one structure once: the plan of the first serves the others, over their values.

In: subgraphs whose `pattern` says that they are equal but for names (`cluster.repeats`). What lowering asks about
values besides that (where they lie, what constants hold) goes through `Questions`, which notes each answer; where
the same questions get the same answers about another subgraph's values, its plan is the same but for the buffers.

Invariants: a plan is renamed only where lowering would give that plan: it depends on the structure, on facts and
options, which are those of the model, and on the answers, which are compared. Buffers are numbered in the order in
which lowering would ask for them, and different ones stay different.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from dvm_graph.cluster import FusedSubgraph
from dvm_graph.cluster.repeats import Renaming, renaming
from dvm_graph.ir import DType, Value
from dvm_graph.kernels.operands import scalar_of
from dvm_graph.kernels.plan import Blocks, KernelPlan, Panels
from dvm_graph.kernels.registers import is_saturated
from dvm_graph.kernels.value_table import Place, ValueTable
from dvm_graph.records import record

_Make: TypeAlias = Callable[[ValueTable, Panels, Value], int]
"""How a table of values gets the buffer of a constant matrix operand."""


class Questions:
    """The table of values, and a note of everything it was asked."""

    def __init__(self, table: ValueTable) -> None:
        self._table = table
        self.asked: list[tuple[Callable[..., bool], Value, Any, Any]] = []
        """How an answer is compared, the value, what else was said, and the answer."""

    def place(self, value: Value) -> Place:
        answer = self._table.place(value)
        self.asked.append((_Again.same_place, value, None, answer))
        return answer

    def number(self, value: Value) -> int:
        answer = self._table.number(value)
        self.asked.append((_Again.same_number, value, None, answer))
        return answer

    def panels(self, panels: Panels, source: Value) -> int:
        return self._made(ValueTable.panels, panels, source)

    def columns(self, panels: Panels, source: Value) -> int:
        return self._made(ValueTable.columns, panels, source)

    def _made(self, make: _Make, panels: Panels, source: Value) -> int:
        answer = make(self._table, panels, source)
        self.asked.append((_Again.same_made, source, (make, panels), answer))
        return answer

    def blocks(self, unpacked: Value) -> tuple[int, Blocks]:
        answer = self._table.blocks(unpacked)
        self.asked.append((_Again.same_blocks, unpacked, None, answer))
        return answer

    def table(self, looked_up: Value) -> int:
        """The buffer of the bytes that a `lookup` picks from."""
        answer = self._table.table(looked_up)
        self.asked.append((_Again.same_table, looked_up, None, answer))
        return answer

    def scalar(self, value: Value) -> Any | None:
        """The number that every element of a constant is."""
        answer = scalar_of(value)
        self.asked.append((_Again.same_scalar, value, None, answer))
        return answer

    def is_saturated(self, value: Value, target: DType) -> bool:
        answer = is_saturated(value, target)
        self.asked.append((_Again.same_bounds, value, target, answer))
        return answer


@record(frozen=True, slots=True)
class _Lowered:
    subgraph: FusedSubgraph
    plan: KernelPlan
    questions: Questions


class LoweredRepeats:
    """The plan of the first subgraph of each structure."""

    def __init__(self, table: ValueTable) -> None:
        self._table = table
        self._first: dict[object, _Lowered] = {}

    def lower(
        self, subgraph: FusedSubgraph, name: str, lower: Callable[[Questions], KernelPlan]
    ) -> KernelPlan:
        """The plan of a subgraph: that of the first one of its structure, or what `lower` makes."""
        key = subgraph.pattern, subgraph.kind
        first = self._first.get(key)
        if first is not None:
            names = renaming(first.subgraph.nodes, subgraph.nodes)
            plan = _Again(self._table, names).plan(first, name, subgraph.origin)
            if plan is not None:
                return plan
        questions = Questions(self._table)
        plan = lower(questions)
        self._first.setdefault(key, _Lowered(subgraph, plan, questions))
        return plan


class _Again:
    """Asks once more what was asked about a subgraph, about the values of another one."""

    def __init__(self, table: ValueTable, names: Renaming) -> None:
        self._table, self._names = table, names
        self._buffers: dict[int, int] = {}

    def plan(self, first: _Lowered, name: str, origin: tuple[str, ...]) -> KernelPlan | None:
        """The plan over the other values; None: some answer is another."""
        for same, value, more, answer in first.questions.asked:
            if not same(self, self._names[value], more, answer):
                return None
        buffers = self._buffers
        if len(set(buffers.values())) < len(buffers):
            return None
        accesses = tuple([replace(old, value=buffers[old.value]) for old in first.plan.accesses])
        return replace(first.plan, name=name, accesses=accesses, origin=origin)

    def same_place(self, value: Value, _: None, answer: Place) -> bool:
        place = self._table.place(value)
        lies = place.offset, place.strides
        return self._pairs(answer.buffer, place.buffer) and lies == (answer.offset, answer.strides)

    def same_number(self, value: Value, _: None, answer: int) -> bool:
        return self._pairs(answer, self._table.number(value))

    def same_made(self, source: Value, how: tuple[_Make, Panels], answer: int) -> bool:
        make, panels = how
        own = replace(panels, source=self._buffers[panels.source])
        return self._pairs(answer, make(self._table, own, source))

    def same_blocks(self, unpacked: Value, _: None, answer: tuple[int, Blocks]) -> bool:
        buffer, blocks = self._table.blocks(unpacked)
        old_buffer, old = answer
        constants = zip(old.sources, blocks.sources, strict=True)
        same = (old.block, len(old.sources)) == (blocks.block, len(blocks.sources))
        return same and all(self._pairs(*pair) for pair in (*constants, (old_buffer, buffer)))

    def same_table(self, looked_up: Value, _: None, answer: int) -> bool:
        return self._pairs(answer, self._table.table(looked_up))

    def same_scalar(self, value: Value, _: None, answer: Any | None) -> bool:
        scalar = scalar_of(value)
        return scalar is answer or (
            scalar == answer and repr(scalar) == repr(answer)
        )  # -0 is not 0

    def same_bounds(self, value: Value, target: DType, answer: bool) -> bool:
        return is_saturated(value, target) is answer

    def _pairs(self, old: int, new: int) -> bool:
        return self._buffers.setdefault(old, new) == new
