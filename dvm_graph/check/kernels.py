"""Every fused kernel against its basic operators: the plan that will run, one kernel at a time.

In: a compiled model. Out: a subject for each distinct kernel and each of its fallbacks, and findings.
A kernel runs on the device in a program of its own, which has the kernel's plan, the buffers it touches
with contents drawn at random, and an input for each symbol that gives it an extent. What the subgraph's
operators give on the same numbers in float64 is compared with what lies in the buffers afterwards, and
nothing else in them may have changed.

Each runs at several small extents, once on special values (docs/edge_values.md), and once at the largest extents
that are still quick to check: through several tiles, on every core.

Kernels that differ in the values they touch alone are checked once. What is not checked here is what lies
between kernels: lifetimes, memory, stages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from dvm_graph.check.compare import compare
from dvm_graph.check.extents import Extents, choose_extents, larger_extents
from dvm_graph.check.findings import CheckReport, Finding, Subject
from dvm_graph.check.inputs import STYLES, draw, index_range
from dvm_graph.check.places import Places, calls_of, identity, read
from dvm_graph.check.reference import Reference
from dvm_graph.cluster import FusedSubgraph
from dvm_graph.errors import DvmError, InputError
from dvm_graph.ir import OPERATORS, Array, DType, Kind
from dvm_graph.ir.numeric import strided_indices
from dvm_graph.kernels.plan import (
    NO_SLOT,
    Access,
    KernelCall,
    KernelKind,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanValue,
    Storage,
    SymbolBinding,
)
from dvm_graph.options import Options
from dvm_graph.pipeline import Compiled
from dvm_graph.runtime.assemble import assemble

_ADDING = (Kind.REDUCE, Kind.MATRIX, Kind.WINDOW)
_MOST_POINTS = 1 << 20
"""Of the loops of a kernel, and elements of what it touches, where it runs at more than a few extents."""
_MOST_PRODUCTS = 1 << 27
"""Of the loops of a matrix product."""
_LEAST_SAMPLES = 2
"""Extents at which a kernel runs however many elements it has."""


def check_kernels(
    compiled: Compiled, options: Options, report: CheckReport, seed: int, larger: bool = True
) -> None:
    """Runs every distinct kernel of the plan, at larger extents, too, if asked to."""
    dims = compiled.plan.dims
    shapes = list(dict.fromkeys(value.shape for value in compiled.graph.values() if value.shape))
    symbols = list(dims.symbols)
    extents = choose_extents(compiled.facts, symbols, 6, seed, shapes, dims)
    large = larger_extents(compiled.facts, symbols, shapes, dims) if larger else []
    places = Places(compiled)
    options = replace(options, dim_hints={}, dump="")
    seen: dict[Any, list[Subject]] = {}
    forms = (form for pair in calls_of(compiled) for form in _with_fallbacks(*pair))
    for subgraph, call in forms:
        key = identity(compiled.plan, subgraph, call)
        if key in seen:
            for subject in seen[key]:
                subject.copies += 1
            continue
        check = _KernelCheck(compiled, subgraph, call, places, options, report)
        seen[key] = check.run(extents, large, np.random.default_rng(seed))


def _with_fallbacks(
    subgraph: FusedSubgraph, call: KernelCall
) -> Iterator[tuple[FusedSubgraph, KernelCall]]:
    yield subgraph, call
    for part, inner in zip(subgraph.fallback, call.fallback, strict=True):
        if inner.fallback:
            yield from _with_fallbacks(part, inner)


# -- one kernel


@dataclass(frozen=True, slots=True)
class _Form:
    """A kernel, or what runs in its place, as a program of its own."""

    subject: Subject
    program: Any
    plan: ModelPlan
    numbers: dict[int, int]
    """Of the model's values, in `plan`."""


class _KernelCheck:
    def __init__(
        self,
        compiled: Compiled,
        subgraph: FusedSubgraph,
        call: KernelCall,
        places: Places,
        options: Options,
        report: CheckReport,
    ) -> None:
        self._compiled, self._subgraph, self._call = compiled, subgraph, call
        self._options, self._report = options, report
        outputs = {value: places.place(value) for value in subgraph.outputs}
        inputs = {value: places.place(value) for value in subgraph.inputs if not value.is_constant}
        self._outputs = {value: place for value, place in outputs.items() if place is not None}
        self._inputs = {value: place for value, place in inputs.items() if place is not None}
        self._precision = options.precision

    def run(
        self,
        extents: Sequence[Extents],
        larger: Sequence[Extents],
        generator: np.random.Generator,
    ) -> list[Subject]:
        call = self._call
        main = replace(call, plan=replace(call.plan, weighed=False), guard=NO_SLOT, fallback=())
        forms = [form for form in (self._form("kernel", (main,)),) if form]
        if call.fallback:
            forms += [form for form in (self._form("fallback", call.fallback),) if form]
        subjects = [form.subject for form in forms]
        if not extents:
            for subject in subjects:
                subject.skipped = "no small extents satisfy the model's assumptions"
        for at, style in self._samples(extents, larger):
            self._run_at(at, style, forms, generator)
        return subjects

    def _samples(
        self, extents: Sequence[Extents], larger: Sequence[Extents]
    ) -> Iterator[tuple[Extents, str]]:
        quick = [at for at in extents if self._is_quick(at)]
        extents = quick if len(quick) >= _LEAST_SAMPLES else extents[:_LEAST_SAMPLES]
        for number, at in enumerate(extents):
            for style in STYLES if len(extents) == 1 else (STYLES[number % len(STYLES)],):
                yield at, style
        if extents:
            adds = any(OPERATORS[node.op].kind in _ADDING for node in self._subgraph.nodes)
            yield extents[0], "rare" if adds else "special"
        yield from ((at, STYLES[0]) for at in islice(filter(self._is_quick, larger), 1))

    def _is_quick(self, extents: Extents) -> bool:
        """The operators' results on numbers of so many elements take no more than moments."""
        slots = self._slots(extents)
        shapes = [self._call.plan.extents]
        places = (*self._inputs.values(), *self._outputs.values())
        shapes += [self._compiled.plan.values[place.buffer].shape for place in places]
        most = _MOST_PRODUCTS if self._call.plan.kind is not KernelKind.VECTOR else _MOST_POINTS
        points, *sizes = (math.prod(slots[slot] for slot in shape) for shape in shapes)
        return points <= most and sum(sizes) <= _MOST_POINTS

    # -- making programs

    def _form(self, kind: str, calls: tuple[KernelCall, ...]) -> _Form | None:
        subject = Subject(self._call.plan.name, kind)
        self._report.subjects.append(subject)
        plan, numbers = self._plan_of(calls)
        try:
            program = assemble(plan, self._options)
        except DvmError as error:
            self._found(subject, "", f"raised {type(error).__name__}: {error}")
            return None
        return _Form(subject, program, plan, numbers)

    def _plan_of(self, calls: tuple[KernelCall, ...]) -> tuple[ModelPlan, dict[int, int]]:
        model = self._compiled.plan
        plan = ModelPlan(model.dims)
        numbers: dict[int, int] = {}
        stored = {place.buffer for place in self._outputs.values()}
        forms = (form for call in calls for form in call.with_fallbacks())
        written = {value for form in forms for value in form.plan.stored}

        def number(index: int) -> int:
            if index not in numbers:
                value = model.values[index]
                if value.panels is not None:
                    value = replace(value, panels=value.panels.over(number))
                elif value.constant is None:
                    inner = Storage.OUTPUT if index in stored else Storage.ARENA
                    value = replace(value, storage=inner if index in written else Storage.INPUT)
                numbers[index] = len(plan.values)
                plan.values.append(value)
            return numbers[index]

        moved = [_renumbered(call, number) for call in calls]
        plan.steps.append(LaunchStep(tuple((call,) for call in moved)))
        for symbol in range(len(plan.dims.symbols)):
            shape = (plan.dims.slot(plan.dims.symbols[symbol]), plan.dims.slot(0))
            plan.bindings.append(SymbolBinding(symbol, len(plan.values), 0))
            name = _dim_name(plan.dims.symbols[symbol])
            plan.values.append(PlanValue(name, DType.UINT8, shape, Storage.INPUT))
        ports = list(enumerate(plan.values))
        plan.inputs = [i for i, value in ports if value.storage is Storage.INPUT]
        plan.outputs = [i for i, value in ports if value.storage is Storage.OUTPUT]
        plan.output_names = [plan.values[i].name for i in plan.outputs]
        return plan, numbers

    # -- running them

    def _run_at(
        self,
        extents: Extents,
        style: str,
        forms: Sequence[_Form],
        generator: np.random.Generator,
    ) -> None:
        slots = self._slots(extents)
        low, high = index_range(self._subgraph.nodes, extents)
        buffers: dict[int, Array] = {}
        for place in (*self._inputs.values(), *self._outputs.values()):
            described = self._compiled.plan.values[place.buffer]
            if described.constant is not None:  # a reshape of one
                buffers[place.buffer] = np.asarray(described.constant.data)
            elif place.buffer not in buffers:
                shape = tuple(slots[slot] for slot in described.shape)
                buffers[place.buffer] = draw(generator, described.dtype, shape, style, low, high)
        reference = Reference(extents, self._precision)
        for value in self._subgraph.inputs:
            if value.is_constant:
                continue
            shape = extents.dims(value.shape or ())
            given = self._inputs.get(value)
            if given is None:
                reference.give(value, draw(generator, value.dtype, shape, style, low, high))
            else:
                reference.give(value, read(buffers[given.buffer], given, shape, extents))
        refused = ""
        try:
            reference.run(self._subgraph.nodes)
        except IndexError as error:
            refused = str(error)
        except InputError:  # extents with which no run gets here
            return
        for form in forms:
            if form.subject.failed:
                continue
            if form.subject.kind == "kernel" and not self._guard_holds(slots):
                continue
            self._run_form(form, extents, buffers, reference, refused, slots)

    def _run_form(
        self,
        form: _Form,
        extents: Extents,
        buffers: dict[int, Array],
        reference: Reference,
        refused: str,
        slots: Sequence[int],
    ) -> None:
        feeds: dict[str, Array] = {}
        targets: dict[int, Array] = {}
        symbols = extents.by_name()
        for index, number in form.numbers.items():
            value = form.plan.values[number]
            shape = tuple(slots[slot] for slot in value.shape)
            if value.storage is Storage.INPUT:
                feeds[value.name] = (
                    buffers[index] if index in buffers else np.zeros(shape, value.dtype.numpy)
                )
            elif value.storage is Storage.OUTPUT:
                targets[index] = buffers[index].copy()
        for symbol in form.plan.dims.symbols:
            feeds[_dim_name(symbol)] = np.zeros((symbols[str(symbol)], 0), np.uint8)
        outputs = {form.plan.values[form.numbers[i]].name: array for i, array in targets.items()}
        try:
            form.program.run(feeds, outputs)
        except DvmError as error:
            self._judge_error(form.subject, extents, error, refused)
            return
        form.subject.runs += 1
        if refused:
            shapes = [extents.dims(value.shape or ()) for value in self._outputs]
            if all(0 not in shape for shape in shapes):  # else nothing is looked up
                self._found(form.subject, str(extents), f"ran, though {refused}")
            return
        self._compare(form.subject, extents, buffers, targets, reference)

    def _judge_error(
        self, subject: Subject, extents: Extents, error: DvmError, refused: str
    ) -> None:
        if refused and "index" in str(error):
            subject.runs += 1
        elif self._call.fallback and "does not fit" in str(error) and subject.kind == "kernel":
            subject.skipped = subject.skipped or "does not fit local memory: the fallback runs"
        else:
            self._found(subject, str(extents), f"raised {type(error).__name__}: {error}")

    def _compare(
        self,
        subject: Subject,
        extents: Extents,
        before: dict[int, Array],
        after: dict[int, Array],
        reference: Reference,
    ) -> None:
        untouched = {index: np.ones(array.size, np.bool_) for index, array in after.items()}
        for value, place in self._outputs.items():
            shape = extents.dims(value.shape or ())
            index = strided_indices(extents.dim(place.offset), shape, extents.dims(place.strides))
            untouched[place.buffer][index.reshape(-1)] = False
            got = after[place.buffer].reshape(-1)[index]
            problem, error = compare(got, reference.operand(value).wide(), subject)
            if problem:
                self._found(subject, str(extents), f"{value.name} {problem}", error)
                return
        for number, mask in untouched.items():
            old, new = (_bits(array)[mask] for array in (before[number], after[number]))
            if not np.array_equal(old, new):
                name = self._compiled.plan.values[number].name
                self._found(
                    subject, str(extents), f"writes to parts of {name} that are not its own"
                )
                return

    def _slots(self, extents: Extents) -> list[int]:
        return extents.slots(self._compiled.plan.dims)

    def _guard_holds(self, slots: Sequence[int]) -> bool:
        return self._call.guard == NO_SLOT or bool(slots[self._call.guard])

    def _found(self, subject: Subject, extents: str, problem: str, error: float = np.inf) -> None:
        where = subject.name + (" (fallback)" if subject.kind == "fallback" else "")
        known = {
            (finding.where, finding.problem.split(":")[0]) for finding in self._report.findings
        }
        if (where, problem.split(":")[0]) in known:
            return
        rule = "; ".join(dict.fromkeys(self._verdicts()))
        self._report.findings.append(
            Finding(where, rule, self._subgraph.origin, extents, problem, error)
        )

    def _verdicts(self) -> Iterator[str]:
        """The decisions that made this kernel."""
        names = {node.name for node in self._subgraph.nodes}
        for decision in self._compiled.report.decisions:
            ends = decision.subject.split(" -> ")
            if len(ends) == 2 and names.issuperset(ends) and not decision.in_fallback:
                yield f"{decision.verdict.value}, {decision.reason}"


# -- helpers


def _renumbered(call: KernelCall, number: Any) -> KernelCall:
    accesses: tuple[Access, ...] = tuple(
        replace(access, value=number(access.value)) for access in call.plan.accesses
    )
    plan: KernelPlan = replace(call.plan, accesses=accesses)
    return KernelCall(plan, call.guard, tuple(_renumbered(part, number) for part in call.fallback))


def _dim_name(symbol: Any) -> str:
    return f"extent of {symbol}"


def _bits(array: Array) -> Array:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).reshape(flat.size, flat.dtype.itemsize)
