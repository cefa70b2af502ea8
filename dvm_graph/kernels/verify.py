"""The plan verifier: what `lower_kernels` made is held to the contract of `kernels/plan.h`.

In: a `ModelPlan`. Out: nothing; a `CompileError` names the kernel, its ONNX nodes and what is wrong. Every kernel is
looked at, whether it runs at first or as a fallback.

What must hold, by structure, for all dims:

  * operands of a node come earlier and vary along no axes that the node does not have or fold
  * B operands of matrix products are loads that vary along none of the rows; A operands and what computes them do not
    vary along the columns; an inner product's columns are what the other one contracts
  * whatever is read was written by an earlier stage, or by an earlier call of the same fallback; what a kernel
    writes, its fallback writes
  * no two calls of a stage write the same value, unless each writes a part of it
  * where a step begins, the run knows the shapes of all values that its kernels touch

And for all dims, by proof (`coverage`): what is read was written before, nothing lies outside its value, every
result is written wholly, and a fallback writes what its kernel writes. Plans of which that is not shown are followed
element by element for the dims of `samples`, but for accesses of more than `_MOST_ELEMENTS` elements, and are held to
it by numbers at each run.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import islice
from typing import NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dvm_graph.cluster.node_axes import WINDOWS
from dvm_graph.errors import CompileError, ShapeError
from dvm_graph.kernels.coverage import check_at_run, prove_coverage
from dvm_graph.kernels.plan import (
    NO_SLOT,
    PIXELS,
    WEIGHTS,
    Access,
    ControlStep,
    DimsStep,
    HostStep,
    KernelCall,
    KernelKind,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanNode,
    Slot,
    Step,
    Storage,
    VendorStep,
    all_calls,
)
from dvm_graph.symbolic import Facts, evaluate

_MOST_ELEMENTS = 1 << 12
"""Of an access, and of a value, that are followed element by element."""
_EXTENTS = ((2, 3, 5, 7), (1, 1, 1, 1), (4, 4, 4, 4))
"""Of the symbols in turn, where `verify_plan` looks at elements."""
_ADDRESSED = ("load", "store", "gather")
_ACCESSING = WINDOWS.union(_ADDRESSED)

Written: TypeAlias = MutableMapping[int, NDArray[np.bool_] | None]
"""The elements of values that are written so far; None: all, of a value too large to follow."""

_LAST_ADDRESS = 2**56
"""Beyond it nothing is walked, so that sums of addresses fit 64 bits."""


def verify_plan(
    plan: ModelPlan, facts: Facts | None = None, most_samples: int = len(_EXTENTS)
) -> None:
    """Raises a CompileError where the plan breaks its contract; `facts` are what may be assumed of its dims."""
    held: set[tuple[object, ...]] = set()
    for call in all_calls(plan.steps):
        key = _structure(call.plan)
        if key not in held:
            _KernelVerifier(call.plan).run()
            held.add(key)
    _follow(plan, None)
    _check_shapes(plan)
    coverage = None if facts is None else prove_coverage(plan, facts)
    if coverage is not None and not coverage.open:
        return
    for dims in islice(samples(plan), most_samples):
        _follow(plan, dims)
    if coverage is not None:
        check_at_run(plan, coverage)


def samples(plan: ModelPlan) -> Iterator[list[int]]:
    """Values of the dim slots for a few extents of the symbols that the checks of the plan allow."""
    for extents in _EXTENTS:
        symbols = [extents[i % len(extents)] for i in range(len(plan.dims.symbols))]
        try:
            dims = evaluate(plan.dims, symbols)
        except ShapeError:
            continue
        if all(dims[check.condition] for check in plan.checks) and all(
            dims[slot] >= 0 for slot in _sizes(plan, dims)
        ):
            yield dims


def _sizes(plan: ModelPlan, dims: Sequence[int]) -> Iterator[Slot]:
    """Extents of values, and of the kernels that run: of what a reshape stands for there may be no value."""
    for value in plan.values:
        yield from value.shape
    for call in all_calls(plan.steps):
        if call.guard == NO_SLOT or dims[call.guard]:
            yield from call.plan.extents


def _refuse(plan: KernelPlan, complaint: str) -> NoReturn:
    nodes = f" ({', '.join(plan.origin)})" if plan.origin else ""
    error = CompileError(f"the plan of kernel {plan.name}{nodes} is wrong: {complaint}")
    error.nodes = plan.origin
    raise error


# -- one kernel


def _structure(plan: KernelPlan) -> tuple[object, ...]:
    """Everything that `_KernelVerifier` looks at; nodes by identity: plans of repeated layers share them."""
    axes = plan.m_axis, plan.n_axis, plan.k_axis, plan.inner_k_axis
    strides = tuple([access.strides for access in plan.accesses])
    return id(plan.nodes), plan.kind, len(plan.extents), axes, strides


class _KernelVerifier:
    """The contract of a kernel by itself, by structure alone."""

    def __init__(self, plan: KernelPlan) -> None:
        self._plan = plan
        self._bits = (1 << len(plan.extents)) - 1

    def run(self) -> None:
        for at, node in enumerate(self._plan.nodes):
            if (node.axes | node.reduce_axes) & ~self._bits:
                self._refuse(at, "has no such axis")
            self._check_operands(at, node)
            self._check_accesses(at, node)
        self._check_products()

    def _refuse(self, at: int, complaint: str) -> NoReturn:
        _refuse(self._plan, f"node {at}, {self._plan.nodes[at].op}, {complaint}")

    def _check_operands(self, at: int, node: PlanNode) -> None:
        if node.axes & node.reduce_axes:
            self._refuse(at, "varies along an axis that it folds")
        allowed = node.axes | node.reduce_axes
        for i in node.inputs:
            if not 0 <= i < at:
                self._refuse(at, "rests on a node behind it")
            operand = self._plan.nodes[i]
            if node.op == "matmul":
                continue
            if operand.axes & ~allowed:
                self._refuse(at, f"loses axes of its operand {i}")
            if operand.op == "patches":
                self._refuse(at, "reads patches, which only products can")

    def _check_accesses(self, at: int, node: PlanNode) -> None:
        accesses = [node.access] if node.op in _ACCESSING else []
        accesses += [node.weights] if node.op in ("depthwise", "lookup") else []
        for access in accesses:
            if not 0 <= access < len(self._plan.accesses):
                self._refuse(at, "accesses nothing")
            for axis, stride in enumerate(self._plan.accesses[access].strides):
                if stride != NO_SLOT and not node.axes >> axis & 1:
                    self._refuse(at, "follows axes along which it does not vary")

    def _check_products(self) -> None:
        plan = self._plan
        products = [at for at, node in enumerate(plan.nodes) if node.op == "matmul"]
        if plan.kind is KernelKind.VECTOR:
            if products:
                _refuse(plan, "a vector kernel holds a product")
            return
        inner = [at for at in products if plan.nodes[at].axes >> plan.k_axis & 1]
        outer = [at for at in products if at not in inner]
        if not outer or len(inner) != (plan.inner_k_axis >= 0) or min(len(outer) - 1, len(inner)):
            _refuse(plan, f"it has {len(outer)} products and {len(inner)} inner ones")
        for at in outer:
            self._check_product(at, plan.n_axis, plan.k_axis)
            first, other = plan.nodes[outer[0]], plan.nodes[at]
            if first.inputs[0] != other.inputs[0] or first.axes != other.axes:
                self._refuse(at, "has other rows than the first product")
        for at in inner:
            self._check_product(at, plan.k_axis, plan.inner_k_axis)
            if at not in self._ancestors(outer[0]):
                _refuse(plan, "the inner product is no part of the A operand of the other one")

    def _check_product(self, at: int, n_axis: int, k_axis: int) -> None:
        """The product `at` has rows along m, columns along `n_axis`, and contracts `k_axis`."""
        nodes = self._plan.nodes
        m, n, k = 1 << self._plan.m_axis, 1 << n_axis, 1 << k_axis
        a, b = nodes[at].inputs
        if not nodes[at].axes & n or nodes[at].axes & k:
            self._refuse(at, "has other columns")
        if nodes[b].op != "load":
            self._refuse(at, "has a B operand that is not in memory")
        if nodes[b].axes & m:
            self._refuse(at, "has a B operand that varies along its rows")
        if (nodes[a].axes | nodes[b].axes) & ~(nodes[at].axes | k):
            self._refuse(at, "has operands that vary along more axes than it contracts")
        for i in (a, *self._ancestors(a)):
            if nodes[i].axes & n and i not in self._b_operands():
                self._refuse(i, "varies along the columns")

    def _b_operands(self) -> set[int]:
        return {node.inputs[1] for node in self._plan.nodes if node.op == "matmul"}

    def _ancestors(self, at: int) -> set[int]:
        found: set[int] = set()
        stack = list(self._plan.nodes[at].inputs)
        while stack:
            node = stack.pop()
            if node not in found:
                found.add(node)
                stack.extend(self._plan.nodes[node].inputs)
        return found


# -- what is written before it is read


def _check_shapes(plan: ModelPlan) -> None:
    """What a step gives may bind symbols; memory for what earlier ones touch has its size before."""
    made = {
        value: at
        for at, step in enumerate(plan.steps)
        if isinstance(step, VendorStep | ControlStep | HostStep)
        for value in step.outputs
    }
    bound: dict[int, int] = {}  # by symbol, the first step that tells it; others are given
    for binding in plan.bindings:
        at = -1 if binding.symbol in plan.given else made.get(binding.value, -1)
        bound[binding.symbol] = min(at, bound.get(binding.symbol, at))
    if max(bound.values(), default=-1) < 0:
        return
    told: list[int] = []  # by slot
    for op, a, b in plan.dims.instructions:
        if op == "symbol":
            told.append(bound.get(a, -1))
        elif op == "const":
            told.append(-1)
        else:
            told.append(told[a] if op == "when" else max(told[a], told[b]))
    for at, step in enumerate(plan.steps):
        for call in all_calls([step]):
            for access in call.plan.accesses:
                value = plan.values[access.value]
                if any(told[slot] >= at for slot in value.shape):
                    _refuse(call.plan, f"it touches {value.name}, whose shape no step before tells")


def _follow(plan: ModelPlan, dims: list[int] | None) -> None:
    """Walks through the steps, for values as a whole or, where there are `dims`, for their elements."""
    follower = _Follower(plan, dims)
    for step in plan.steps:
        follower.step(step)
    for value in plan.outputs:
        follower.expect_whole(value)


class _Follower:
    def __init__(self, plan: ModelPlan, dims: list[int] | None) -> None:
        self._plan, self._dims = plan, dims
        self._written: Written = {}
        ready = (Storage.INPUT, Storage.CONSTANT, Storage.PANELS)
        for index, value in enumerate(plan.values):
            if value.storage in ready:
                self._written[index] = None

    def step(self, step: Step) -> None:
        if isinstance(step, LaunchStep):
            for stage in step.stages:
                self._stage(stage)
        elif isinstance(step, VendorStep | ControlStep | HostStep):
            for value in step.inputs:
                self.expect_whole(value)
            self._written.update(dict.fromkeys(step.outputs))
        elif isinstance(step, DimsStep):
            self._written[step.value] = None

    def expect_whole(self, value: int) -> None:
        """Somebody reads all of the value."""
        name = self._plan.values[value].name
        if value not in self._written:
            raise CompileError(f"nothing writes {name}, which is read")
        elements = self._written[value]
        if elements is not None and not elements.all():
            raise CompileError(f"{name} is read, but written in part only")

    def _stage(self, stage: Sequence[KernelCall]) -> None:
        """Calls of a stage see what earlier stages wrote."""
        results = [self._call(call, self._written) for call in stage]
        for call, result in zip(stage, results, strict=True):
            self._add(self._written, result, call.plan)

    def _call(self, call: KernelCall, before: Written) -> Written:
        """What a call writes, whichever of its forms runs."""
        refused = self._dims is not None and call.guard != NO_SLOT and not self._dims[call.guard]
        main = None if refused else self._kernel(call.plan, before)
        if not call.fallback:
            if main is None and not refused:
                _refuse(call.plan, "it writes nothing")
            return main or {}
        seen: Written = ChainMap({}, before)  # no copy: what was written so far may be much
        fallback: Written = {}
        for inner in call.fallback:
            result = self._call(inner, seen)
            self._add(seen, result, inner.plan)
            self._add(fallback, result, inner.plan)
        if main is None:
            return fallback
        for value, elements in main.items():
            other = fallback.get(value)
            if value not in fallback or (
                elements is not None and other is not None and not np.array_equal(elements, other)
            ):
                name = self._plan.values[value].name
                _refuse(call.plan, f"its fallback does not write all that it writes of {name}")
        return main

    def _kernel(self, plan: KernelPlan, before: Written) -> Written:
        result: Written = {}
        for node in plan.nodes:
            for access, elements in self._accessed(plan, node):
                if node.op == "store":
                    self._add(result, {access.value: elements}, plan)
                else:
                    self._expect(plan, access, elements, before)
        return result

    def _expect(
        self, plan: KernelPlan, access: Access, read: NDArray[np.bool_] | None, before: Written
    ) -> None:
        name = self._plan.values[access.value].name
        if access.value not in before:
            _refuse(plan, f"it reads {name}, which nothing wrote before")
        written = before[access.value]
        if read is not None and written is not None and (read & ~written).any():
            _refuse(plan, f"it reads elements of {name} that nothing wrote before")

    def _add(self, to: Written, more: Written, plan: KernelPlan) -> None:
        for value, elements in more.items():
            known = to.get(value)
            if value in to and known is None and self._dims is not None and elements is not None:
                _refuse(plan, f"it writes {self._plan.values[value].name}, which is there already")
            if known is None or elements is None:
                to[value] = elements
                continue
            if (known & elements).any():
                _refuse(plan, f"it writes elements of {self._plan.values[value].name} twice")
            to[value] = known | elements

    # -- elements

    def _accessed(
        self, plan: KernelPlan, node: PlanNode
    ) -> Iterator[tuple[Access, NDArray[np.bool_] | None]]:
        """The accesses of a node, each with the elements of its value; None: they are not followed."""
        if node.op in _ADDRESSED:
            yield self._marked(plan, node, plan.accesses[node.access], self._addresses(plan, node))
        elif node.op == "lookup":
            entries = None if self._dims is None else np.arange(256)
            yield self._marked(plan, node, plan.accesses[node.weights], entries)
        elif node.op in WINDOWS:
            sizes = node.window_sizes
            pixels = self._product(sizes[name] for name in PIXELS)
            yield self._marked(plan, node, plan.accesses[node.access], pixels)
            if node.op == "depthwise":
                taps = self._product(sizes[name] for name in WEIGHTS)
                yield self._marked(plan, node, plan.accesses[node.weights], taps)

    def _product(self, slots: Iterator[Slot]) -> NDArray[np.int64] | None:
        """The first elements from the start of a value on."""
        if self._dims is None:
            return None
        count = math.prod(self._size(slot) for slot in slots)
        return np.arange(count) if count <= _MOST_ELEMENTS else None

    def _size(self, slot: Slot) -> int:
        return 0 if slot == NO_SLOT or self._dims is None else self._dims[slot]

    def _addresses(self, plan: KernelPlan, node: PlanNode) -> NDArray[np.int64] | None:
        """Addresses of a load, store or gather at all points, without the offset of its access."""
        if self._dims is None:
            return None
        access = plan.accesses[node.access]
        steps = [(self._size(plan.extents[a]), self._size(s)) for a, s in enumerate(access.strides)]
        steps = [
            (extent, step) for axis, (extent, step) in enumerate(steps) if node.axes >> axis & 1
        ]
        if node.op == "gather":
            steps.append((self._size(node.limit), self._size(node.offset)))
        if any(extent == 0 for extent, _ in steps):
            return np.zeros(0, np.int64)
        steps = [(extent, step) for extent, step in steps if step or node.op == "store"]
        if math.prod(extent for extent, _ in steps) > _MOST_ELEMENTS:
            return None
        if any(extent * abs(step) > _LAST_ADDRESS for extent, step in steps):
            return None  # the run says that there is not so much memory
        addresses = np.zeros(1, np.int64)
        for extent, step in steps:
            addresses = np.add.outer(addresses, np.arange(extent) * step).reshape(-1)
        return addresses

    def _marked(
        self, plan: KernelPlan, node: PlanNode, access: Access, addresses: NDArray[np.int64] | None
    ) -> tuple[Access, NDArray[np.bool_] | None]:
        value = self._plan.values[access.value]
        if addresses is None or access.packed_panels or self._dims is None:
            return access, None
        size = math.prod(self._dims[slot] for slot in value.shape)
        if size > _MOST_ELEMENTS:
            return access, None
        marks = np.zeros(size, np.bool_)
        if addresses.size == 0:
            return access, marks
        addresses = addresses + self._size(access.offset)
        if addresses.min() < 0 or addresses.max() >= size:
            _refuse(plan, f"its {node.op} leaves {value.name}")
        marks[addresses] = True
        if node.op == "store" and np.count_nonzero(marks) < addresses.size:
            _refuse(plan, f"it writes elements of {value.name} twice")
        return access, marks
