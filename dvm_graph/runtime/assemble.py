"""Assembling: a model plan becomes a program of the C++ core.

In: a `ModelPlan` and the options of the device. Out: a `Program`. Constant matrices are packed here,
once, into the panels that the device's cube unit reads; other constants are used where they lie.
No decisions are made: the plan is handed over as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from dvm_graph import _core
from dvm_graph.errors import CompileError
from dvm_graph.import_ import rank_of_strings
from dvm_graph.ir import DType, read_from_around
from dvm_graph.kernels.plan import (
    ControlStep,
    DimsStep,
    HostStep,
    KernelCall,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanNode,
    VendorStep,
)
from dvm_graph.options import Options
from dvm_graph.runtime.contents import Contents, PackedArrays
from dvm_graph.runtime.program import Port, Program
from dvm_graph.runtime.recipe import Call, Recipe, make_program
from dvm_graph.runtime.vendor_model import VendorThreads

if TYPE_CHECKING:
    from dvm_graph.runtime.vendor import VendorPartition


def assemble(
    plan: ModelPlan,
    options: Options,
    *,
    release_packed: bool = False,
    packed: PackedArrays | None = None,
) -> Program:
    """The program of a plan, on the host device that the options ask for.

    `release_packed` gives up the contents of constants that only live on as packed panels (shape and
    dtype stay), so that weights are not in memory twice. The plan cannot be assembled again then. `packed`: panels that
    programs of these options share, where constants of theirs are the same arrays.

    Raises:
        UnsupportedError: onnxruntime refuses a vendor partition.
        What `make_program` raises.
    """
    return _assemble(
        plan,
        options,
        Contents([plan, *_plans_inside(plan)], release_packed=release_packed, packed=packed),
    )


def _assemble(
    plan: ModelPlan,
    options: Options,
    contents: Contents,
    *,
    is_body: bool = False,
    in_branch: bool = False,
) -> Program:
    inside = [
        _assemble(
            body.plan, options, contents, is_body=True, in_branch=in_branch or step.turns is None
        )
        for step in plan.steps
        if isinstance(step, ControlStep)
        for body in step.bodies
    ]
    return make_program(
        recipe_of(plan, options),
        options,
        lambda threads: [
            _partition(plan, step, threads, in_branch) for step in _vendor_steps(plan)
        ],
        partial(contents.fill, plan),
        inside,
        is_body=is_body,
    )


def bodies_of(plan: ModelPlan) -> list[ModelPlan]:
    """The plans of the bodies of its control flow, numbered as recipes do."""
    return [
        body.plan for step in plan.steps if isinstance(step, ControlStep) for body in step.bodies
    ]


def _plans_inside(plan: ModelPlan) -> Iterator[ModelPlan]:
    for body in bodies_of(plan):
        yield body
        yield from _plans_inside(body)


def recipe_of(plan: ModelPlan, options: Options) -> Recipe:
    """What the builder is told of a plan."""
    names = [plan.values[index].name for index in plan.inputs]
    return Recipe(
        list(_calls(plan, options)),
        _ports(plan, plan.inputs, names),
        _ports(plan, plan.outputs, plan.output_names),
    )


def _calls(plan: ModelPlan, options: Options) -> Iterator[Call]:
    hints = list(_hint_checks(plan, options))
    yield "set_dims", ([str(symbol) for symbol in plan.dims.symbols], plan.dims.instructions)
    for value in plan.values:
        dtype = DType.OPAQUE if value.opaque else value.dtype
        yield "add_value", (value.name, dtype.short, value.storage.value, value.shape)
    yield from _Steps().calls(plan)
    if options.fallbacks == "operators":
        yield "take_apart", ()
    for b in plan.bindings:
        yield "add_binding", (b.symbol, b.value, b.axis, b.scale, b.shift)
    for condition, message in [*((c.condition, c.message) for c in plan.checks), *hints]:
        yield "add_check", (condition, message)
    yield "set_ports", (plan.inputs, plan.outputs)


def _ports(plan: ModelPlan, indices: Sequence[int], names: Sequence[str]) -> tuple[Port, ...]:
    missing = [index for index in indices if not 0 <= index < len(plan.values)]
    if missing:
        raise CompileError(f"malformed model plan: no value {missing[0]}, used by the caller")
    values = [plan.values[index] for index in indices]
    return tuple(
        Port(n, v.dtype, v.opaque, v.element, rank_of_strings(v.opaque_type) if v.opaque else None)
        for n, v in zip(names, values, strict=True)
    )


def _hint_checks(plan: ModelPlan, options: Options) -> Iterator[tuple[int, str]]:
    """Conditions for the ranges that the user promised."""
    dims = plan.dims
    for symbol in tuple(dims.symbols):
        if str(symbol) not in options.dim_hints:
            continue
        low, high = options.dim_hints[str(symbol)]
        message = f"the hint that {symbol} is in {low}..{high}"
        yield dims.predicate("le", low, symbol), message
        yield dims.predicate("le", symbol, high), message


class _Steps:
    """Calls for the steps of a plan; kernels, calls, partitions and bodies are numbered as the builder does."""

    def __init__(self) -> None:
        self._kernels = count()
        self._calls = count()
        self._partitions = count()
        self._bodies = count()

    def calls(self, plan: ModelPlan) -> Iterator[Call]:
        for step in plan.steps:
            if isinstance(step, LaunchStep):
                for at, stage in enumerate(step.stages):
                    numbers = []
                    for call in stage:
                        numbers.append((yield from self._call(call)))
                    yield "add_launch", (numbers, at > 0)
            elif isinstance(step, DimsStep):
                yield "add_dims_write", (step.value, step.slots)
            elif isinstance(step, ControlStep):
                bodies = [(next(self._bodies), body.dims) for body in step.bodies]
                ports = (step.inputs, step.outputs)
                yield "add_control", (step.name, bodies, *ports, step.turns, step.strands)
            elif isinstance(step, HostStep):
                attrs, ports = step.node.attrs, (step.inputs, step.outputs)
                about = (step.name, attrs["op"], attrs["arguments"], attrs.get("words", ()))
                yield "add_host", (*about, *ports, step.given, step.wanted)
            elif step.outputs:
                number = next(self._partitions)
                yield "add_vendor", (step.name, number, step.inputs, step.outputs)

    def _call(self, call: KernelCall) -> Generator[Call, None, int]:
        fallback = []
        for inner in call.fallback:
            fallback.append((yield from self._call(inner)))
        yield _kernel(call.plan)
        yield "add_call", (next(self._kernels), call.guard, fallback)
        return next(self._calls)


_NODE_FIELDS = operator.attrgetter(*_core.NODE_FIELDS)
_ACCESS_FIELDS = operator.attrgetter(*_core.ACCESS_FIELDS)
_DTYPES = [
    at for at, name in enumerate(_core.NODE_FIELDS) if "DType" in PlanNode.__annotations__[name]
]


def _node(node: PlanNode) -> _core.Record:
    """As the core takes it: dtypes by their names, and none by none."""
    fields: list[Any] = list(_NODE_FIELDS(node))
    for at in _DTYPES:
        fields[at] = "" if fields[at] is None else fields[at].short
    return tuple(fields)


def _kernel(plan: KernelPlan) -> Call:
    return "add_kernel", (
        plan.name,
        plan.kind.value,
        plan.extents,
        [_node(node) for node in plan.nodes],
        [_ACCESS_FIELDS(access) for access in plan.accesses],
        (plan.m_axis, plan.n_axis, plan.k_axis, plan.inner_k_axis),
        plan.weighed,
        plan.origin,
    )


def _vendor_steps(plan: ModelPlan) -> list[VendorStep]:
    """Those whose results anybody reads, which all have unless a pass is disabled."""
    return [step for step in plan.steps if isinstance(step, VendorStep) and step.outputs]


def _partition(
    plan: ModelPlan, step: VendorStep, threads: VendorThreads, in_branch: bool
) -> VendorPartition:
    from dvm_graph.runtime.partitions import make_partition

    results = {value.name: value for node in step.nodes for value in node.outputs}
    names = [plan.values[index].name for index in step.outputs]
    if len(read_from_around(step.nodes)) != len(step.inputs):
        raise CompileError(f"a vendor partition reads other values than {step.inputs}")
    outputs = [results[name] for name in names]
    return make_partition(step.nodes, outputs, threads, in_branch=in_branch)
