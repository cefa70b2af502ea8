"""Lowers a schedule of fused subgraphs to the plan of the model.

In: a `Schedule`. Out: a `ModelPlan`: dims as integer programs, buffers, and the steps of the executor.

Invariants: every symbol that a dim needs is bound by an input or by the result of a vendor operator;
names of kernels are unique and number them in the order of the schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from dvm_graph.cluster import (
    ControlCall,
    FusedSubgraph,
    HostCall,
    HostDims,
    Launch,
    Schedule,
)
from dvm_graph.cluster import Step as ScheduledStep
from dvm_graph.errors import CompileError, UnsupportedError
from dvm_graph.ir import Dim, Graph, Node, Value, read_from_around
from dvm_graph.kernels.lower_subgraph import lower_subgraph
from dvm_graph.kernels.plan import (
    NO_SLOT,
    BodyPlan,
    ControlStep,
    DimCheck,
    DimsStep,
    HostStep,
    KernelCall,
    LaunchStep,
    ModelPlan,
    Slot,
    Step,
    SymbolBinding,
    VendorStep,
)
from dvm_graph.kernels.repeats import LoweredRepeats
from dvm_graph.kernels.value_table import ValueTable
from dvm_graph.options import Options
from dvm_graph.symbolic import DimTable, Facts, solve, tells_extents_of_feed
from dvm_graph.symbolic.dims import logical_and, symbols_of

Bodies: TypeAlias = Mapping[Graph, ModelPlan]
"""Plans of the bodies of control flow."""


def lower_kernels(
    schedule: Schedule, facts: Facts, options: Options, bodies: Bodies = MappingProxyType({})
) -> ModelPlan:
    """The plan of the whole model, or of a body of control flow in it."""
    return _ModelLowering(schedule, facts, options, bodies).run()


class _ModelLowering:
    def __init__(self, schedule: Schedule, facts: Facts, options: Options, bodies: Bodies) -> None:
        self._schedule, self._facts, self._options = schedule, facts, options
        self._bodies = bodies
        self._graph = schedule.graph
        self._plan = ModelPlan(DimTable())
        self._values = ValueTable(schedule, self._plan)
        self._repeats = LoweredRepeats(self._values)
        self._bound: set[Any] = set()
        self._kernels = 0

    def run(self) -> ModelPlan:
        plan = self._plan
        plan.inputs = tuple(self._values.number(value) for value in self._graph.inputs)
        for value in self._graph.inputs:
            self._bind(value)
        for step in self._schedule.steps:
            plan.steps.append(self._step(step))
        plan.outputs = tuple(self._values.number(value) for value in self._graph.outputs)
        plan.output_names = self._graph.output_names
        for check in self._facts.checks:
            plan.checks.append(DimCheck(plan.dims.condition(check), str(check)))
        self._check_around()
        outside = self._facts.outside
        plan.given = [i for i, symbol in enumerate(plan.dims.symbols) if symbol in outside]
        return plan

    def _check_around(self) -> None:
        """What the graph around a body assumes of the symbols that the body knows: its kernels rest on that, too."""
        known = set(self._plan.dims.symbols)
        around = self._facts.around
        for check in () if around is None else around.conditions():
            if symbols_of(check.left) | symbols_of(check.right) <= known:
                self._plan.checks.append(DimCheck(self._plan.dims.condition(check), str(check)))

    def _step(self, step: ScheduledStep) -> Step:
        if isinstance(step, Launch):
            return LaunchStep(tuple(self._stage(stage) for stage in step.stages))
        if isinstance(step, HostDims):
            slots = tuple(self._plan.dims.slot(dim) for dim in step.node.attrs["elements"])
            return DimsStep(self._values.number(step.node.output), slots)
        if isinstance(step, ControlCall):
            return self._control(step.node)
        if isinstance(step, HostCall):
            return self._host(step.node)
        return self._vendor(step.nodes)

    def _stage(self, stage: Iterable[FusedSubgraph]) -> tuple[KernelCall, ...]:
        return tuple(self._call(subgraph) for subgraph in stage)

    def _call(self, subgraph: FusedSubgraph) -> KernelCall:
        name = f"k{self._kernels}_{subgraph.name}"
        self._kernels += 1
        try:
            plan = self._repeats.lower(
                subgraph,
                name,
                lambda values: lower_subgraph(
                    subgraph, name, values, self._plan.dims, self._facts, self._options
                ),
            )
        except (CompileError, UnsupportedError) as error:
            error.nodes = tuple(name for node in subgraph.nodes for name in node.origin)
            raise
        fallback = tuple(self._call(part) for part in subgraph.fallback)
        return KernelCall(plan, self._guard(subgraph), fallback)

    def _guard(self, subgraph: FusedSubgraph) -> Slot:
        if subgraph.fallback and self._options.fallbacks == "always":
            return self._plan.dims.slot(0)
        condition: Dim = 1
        for guard in subgraph.guards:
            condition = logical_and(condition, guard)
        return NO_SLOT if condition == 1 else self._plan.dims.slot(condition)

    def _vendor(self, nodes: tuple[Node, ...]) -> VendorStep:
        inside = set(nodes)
        outputs = [
            value
            for node in nodes
            for value in node.outputs
            if self._graph.is_output(value)
            or any(user not in inside for user in self._graph.users(value))
            or self._binds(value)
        ]
        step = VendorStep(
            nodes,
            tuple(self._values.number(value) for value in read_from_around(nodes)),
            tuple(self._values.number(value) for value in outputs),
        )
        for value in outputs:
            self._bind(value)
        return step

    def _control(self, node: Node) -> ControlStep:
        bodies = []
        for graph in node.bodies:
            body = self._bodies[graph]
            given = [(at, self._plan.dims.slot(body.dims.symbols[at])) for at in body.given]
            bodies.append(BodyPlan(body, tuple(given)))
        step = ControlStep(
            node,
            tuple(self._values.number(value) for value in node.inputs if value is not None),
            tuple(self._values.number(value) for value in node.outputs),
            tuple(bodies),
            node.attrs["turns"],
            self._strands(node),
        )
        for value in node.outputs:
            self._bind(value)
        return step

    def _strands(self, node: Node) -> Slot:
        for body in map(self._bodies.__getitem__, node.bodies):
            for symbol in body.dims.symbols:
                if str(symbol) == node.attrs.get("strands"):
                    return body.dims.slot(symbol)
        return NO_SLOT

    def _host(self, node: Node) -> HostStep:
        tells = tells_extents_of_feed(node)
        wanted = [
            tells
            or self._graph.is_output(value)
            or bool(self._graph.users(value))
            or self._binds(value)
            for value in node.outputs
        ]
        outputs = [value for value, wants in zip(node.outputs, wanted, strict=True) if wants]
        step = HostStep(
            node,
            tuple(self._values.number(value) for value in node.inputs if value is not None),
            tuple(self._values.number(value) for value in outputs),
            tuple(value is not None for value in node.inputs),
            tuple(wanted),
        )
        for value in outputs:
            self._bind(value)
        return step

    # -- symbols

    def _binds(self, value: Value) -> bool:
        """Some dim of the value is a symbol without a value so far."""
        return value.computable and any(
            symbol not in self._bound
            for dim in value.shape or ()
            if not isinstance(dim, int)
            for symbol in symbols_of(dim)
        )

    def _bind(self, value: Value) -> None:
        if not value.computable:
            return
        for axis, dim in enumerate(value.shape or ()):
            solution = solve(dim)
            if solution is None or solution.symbol in self._bound:
                continue
            self._bound.add(solution.symbol)
            slot = self._plan.dims.symbol(solution.symbol)
            number = self._values.number(value)
            self._plan.bindings.append(
                SymbolBinding(slot, number, axis, solution.scale, solution.shift)
            )
