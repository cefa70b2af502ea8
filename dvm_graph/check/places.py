"""A compiled model as checks walk it: subgraphs with their kernels, and where values lie in buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dvm_graph.check.extents import Extents
from dvm_graph.cluster import FusedSubgraph, Launch
from dvm_graph.ir import Array, Value
from dvm_graph.ir.numeric import strided_indices
from dvm_graph.kernels.plan import KernelCall, LaunchStep, ModelPlan, PlanValue
from dvm_graph.kernels.value_table import Place, ValueTable
from dvm_graph.pipeline import Compiled
from dvm_graph.symbolic import DimTable


def calls_of(compiled: Compiled) -> Iterator[tuple[FusedSubgraph, KernelCall]]:
    """Subgraphs and what they were lowered to: the schedule and the plan have the same steps."""
    for step, lowered in zip(compiled.schedule.steps, compiled.plan.steps, strict=True):
        if isinstance(step, Launch) and isinstance(lowered, LaunchStep):
            for stage, calls in zip(step.stages, lowered.stages, strict=True):
                yield from zip(stage, calls, strict=True)


class Places:
    """Where values lie in the buffers of the plan."""

    def __init__(self, compiled: Compiled) -> None:
        self._scratch = ModelPlan(DimTable())
        self._table = ValueTable(compiled.schedule, self._scratch)
        self._numbers = {value.name: i for i, value in enumerate(compiled.plan.values)}

    def place(self, value: Value) -> Place | None:
        """None: the plan does not have the value."""
        place = self._table.place(value)
        number = self._numbers.get(self._scratch.values[place.buffer].name)
        return None if number is None else replace(place, buffer=number)


# -- which kernels are one


def identity(plan: ModelPlan, subgraph: FusedSubgraph, call: KernelCall) -> Any:
    numbers: dict[int, int] = {}
    calls = _call_key(plan, call, numbers)
    values = tuple(_value_key(plan.values[number]) for number in numbers)
    return calls, values, _subgraph_key(subgraph)


def _call_key(plan: ModelPlan, call: KernelCall, numbers: dict[int, int]) -> Any:
    kernel = call.plan
    accesses = tuple(
        replace(access, value=numbers.setdefault(access.value, len(numbers)))
        for access in kernel.accesses
    )
    same = replace(kernel, name="", origin=(), accesses=accesses)
    return same, call.guard, tuple(_call_key(plan, part, numbers) for part in call.fallback)


def _value_key(value: PlanValue) -> Any:
    panels = None if value.panels is None else value.panels.over(lambda _: 0)
    return value.dtype, value.shape, value.constant is None, panels


def _subgraph_key(subgraph: FusedSubgraph) -> Any:
    numbers: dict[Value, int] = {}

    def number(value: Value | None) -> Any:
        if value is None:
            return None
        if value.data is not None and value.data.size == 1:
            return value.data.tobytes(), value.dtype
        return numbers.setdefault(value, len(numbers)), value.dtype, value.shape

    nodes = tuple(
        (
            node.op,
            tuple(sorted((name, str(attr)) for name, attr in node.attrs.items())),
            tuple(map(number, node.inputs)),
            tuple(map(number, node.outputs)),
        )
        for node in subgraph.nodes
    )
    return nodes, tuple(map(number, subgraph.outputs))


def read(buffer: Array, place: Place, shape: tuple[int, ...], extents: Extents) -> Array:
    index = strided_indices(extents.dim(place.offset), shape, extents.dims(place.strides))
    result: Array = buffer.reshape(-1)[index]
    return result
