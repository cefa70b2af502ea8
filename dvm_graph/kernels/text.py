"""The text form of a model plan: deterministic, for dumps and golden tests.

    dims
      s0 = symbol batch
      s1 = const 64
    values
      v0 = input x:f32[s0, s1]
    bindings
      batch = v0 axis 0
    launch, stage 0
      vector kernel exp.0 over [s0, s1]
        n0:f32{0 1} = load v0[s1, s2]
        n1:f32{0 1} = exp n0
        n2:f32{0 1} = store n1 v1[s1, s2]

`s` are dim slots, `v` values, `n` nodes; braces hold the axes along which a node varies, brackets
behind a value its strides along the axes of the domain (`-`: 0). Nothing reads this text back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dvm_graph.ir.printer import print_node
from dvm_graph.kernels.plan import (
    NO_SLOT,
    Access,
    Blocks,
    ControlStep,
    DimsStep,
    HostStep,
    KernelCall,
    KernelKind,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanNode,
    PlanValue,
    Slot,
    Step,
    VendorStep,
)

_INDENT = "  "


def print_plan(plan: ModelPlan) -> str:
    return "".join(f"{line}\n" for line in _lines(plan))


def _lines(plan: ModelPlan) -> Iterator[str]:
    yield "dims"
    for slot, (op, a, b) in enumerate(plan.dims.instructions):
        yield f"{_INDENT}s{slot} = {_instruction(plan, op, a, b)}"
    yield "values"
    for index, value in enumerate(plan.values):
        yield f"{_INDENT}v{index} = {_value(value)}"
    yield "bindings"
    for binding in plan.bindings:
        scaled = f" * {binding.scale} + {binding.shift}"
        affine = scaled if (binding.scale, binding.shift) != (1, 0) else ""
        symbol = plan.dims.symbols[binding.symbol]
        yield f"{_INDENT}{symbol}{affine} = v{binding.value} axis {binding.axis}"
    yield "checks"
    for check in plan.checks:
        yield f"{_INDENT}s{check.condition}: {check.message}"
    for step in plan.steps:
        yield from _step(step)


def _instruction(plan: ModelPlan, op: str, a: int, b: int) -> str:
    if op == "const":
        return f"const {a}"
    return f"symbol {plan.dims.symbols[a]}" if op == "symbol" else f"{op} s{a} s{b}"


def _value(value: PlanValue) -> str:
    text = f"{value.storage.value} {value.name}:{value.dtype.short}{_slots(value.shape)}"
    panels = value.panels
    if panels is None:
        return text
    if isinstance(panels, Blocks):
        sources = ", ".join(f"v{source}" for source in panels.sources)
        return f"{text} packs {sources} in blocks of {panels.block} of {panels.bits} bits"
    strides = ", ".join(map(str, panels.strides))
    sizes = f"[{panels.batch}, {panels.k}, {panels.n}]"
    how = " in bundles" if panels.bundles else " with transforms" if panels.transformed else ""
    return f"{text} packs v{panels.source}{sizes} strides ({strides}) offset {panels.offset}{how}"


def _step(step: Step) -> Iterator[str]:
    match step:
        case LaunchStep():
            for number, stage in enumerate(step.stages):
                yield f"launch, stage {number}" if number == 0 else f"stage {number}"
                for call in stage:
                    yield from _call(call, _INDENT)
        case VendorStep():
            yield f"vendor library {_values(step.inputs)} -> {_values(step.outputs)}"
            for node in step.nodes:
                yield _INDENT + print_node(node)
        case ControlStep():
            yield f"control {_values(step.inputs)} -> {_values(step.outputs)}"
            yield _INDENT + print_node(step.node)
            for body in step.bodies:
                dims = [f"{body.plan.dims.symbols[at]} = s{slot}" for at, slot in body.dims]
                yield f"{_INDENT}body{' where ' if dims else ''}{', '.join(dims)}"
                for line in print_plan(body.plan).splitlines():
                    yield 2 * _INDENT + line
        case HostStep():
            yield f"host operator {_values(step.inputs)} -> {_values(step.outputs)}"
            yield _INDENT + print_node(step.node)
        case DimsStep():
            yield f"host writes v{step.value} = {_slots(step.slots)}"


def _call(call: KernelCall, indent: str) -> Iterator[str]:
    plan = call.plan
    guard = f" if s{call.guard}" if call.guard != NO_SLOT else ""
    weighed = " where faster" if plan.weighed else ""
    yield f"{indent}{plan.kind.value} kernel {plan.name} over {_domain(plan)}{guard}{weighed}"
    inner = indent + _INDENT
    for index, node in enumerate(plan.nodes):
        yield f"{inner}n{index}:{node.dtype.short}{_axes(node.axes)} = {_node(plan, node)}"
    if call.fallback:
        yield f"{inner}else"
        for other in call.fallback:
            yield from _call(other, inner + _INDENT)


def _domain(plan: KernelPlan) -> str:
    roles = {plan.m_axis: "m ", plan.n_axis: "n ", plan.k_axis: "k ", plan.inner_k_axis: "inner k "}
    if plan.kind is KernelKind.VECTOR:
        roles = {}
    extents = (f"{roles.get(axis, '')}s{slot}" for axis, slot in enumerate(plan.extents))
    return f"[{', '.join(extents)}]"


def _node(plan: KernelPlan, node: PlanNode) -> str:
    parts = [node.op, *(f"n{operand}" for operand in node.inputs)]
    if node.access >= 0:
        parts.append(_access(plan.accesses[node.access]))
    if node.weights >= 0:
        parts.append(f"weights {_access(plan.accesses[node.weights])}")
    if node.reduce_axes:
        parts.append(f"over {_axes(node.reduce_axes)}")
    if node.op == "fill":
        parts.append(str(node.scalar if node.dtype.is_float else node.integer))
    if node.narrow_to is not None:
        parts.append(f"to {node.narrow_to.short}")
    if node.element is not None:
        parts.append(f"as {node.element.short}")
    if node.strides:
        parts.append(f"strides {_slots(node.strides)}")
    if node.window:
        parts.append(f"window {_slots(node.window)}")
    for name, slot in (("limit", node.limit), ("offset", node.offset)):
        if slot != NO_SLOT:
            parts.append(f"{name} s{slot}")
    return " ".join(parts)


def _access(access: Access) -> str:
    panels = " panels" if access.packed_panels else ""
    panels += " with transforms" if access.transformed else ""
    panels += f" of blocks of {access.block}" if access.block else ""
    offset = f" + s{access.offset}" if access.offset != NO_SLOT else ""
    return f"v{access.value}{_slots(access.strides)}{offset}{panels}"


def _axes(mask: int) -> str:
    return f"{{{' '.join(str(axis) for axis in range(mask.bit_length()) if mask >> axis & 1)}}}"


def _slots(slots: Sequence[Slot]) -> str:
    return f"[{', '.join('-' if slot == NO_SLOT else f's{slot}' for slot in slots)}]"


def _values(indices: Sequence[int]) -> str:
    return f"({', '.join(f'v{index}' for index in indices)})"
