"""What lies between kernels: a whole run beside one in which no two values share memory.

In: a compiled model, and numbers for its inputs that its operators take. Out: a subject, and findings.

The plan runs as it is, and once more with every value a result of the model: nothing is overwritten, and
every value can be looked at. Each kernel's results, each concat that was stored in place and each reshape
of a buffer has to be what its operators make of the values it read in that run. The results of both runs have to
be the same bits. Together with the checks of stages and kernels, that leads from the model to its results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dvm_graph.check.compare import compare
from dvm_graph.check.extents import Extents
from dvm_graph.check.findings import CheckReport, Finding, Subject
from dvm_graph.check.places import Places, calls_of, identity, read
from dvm_graph.check.reference import Reference
from dvm_graph.errors import DvmError, UnsupportedError
from dvm_graph.ir import Array, DType, Node, Value
from dvm_graph.kernels.plan import DimsStep, LaunchStep, ModelPlan, Storage
from dvm_graph.options import Options
from dvm_graph.pipeline import Compiled
from dvm_graph.runtime.assemble import assemble


def check_whole(
    compiled: Compiled,
    options: Options,
    report: CheckReport,
    runs: Sequence[tuple[Extents, Mapping[str, Array]]],
) -> None:
    """Runs the model at each of some extents, with arrays for its inputs."""
    subject = Subject("whole run", "run")
    report.subjects.append(subject)
    check = _WholeCheck(compiled, replace(options, dump=""), report, subject)
    for extents, feeds in runs:
        try:
            check.run(extents, feeds)
        except UnsupportedError as error:  # of onnxruntime, about what is left to it
            subject.skipped = str(error)
            return
        except DvmError as error:
            check.found((), extents, f"raised {type(error).__name__}: {error}")
        if subject.failed:
            return


class _WholeCheck:
    def __init__(
        self, compiled: Compiled, options: Options, report: CheckReport, subject: Subject
    ) -> None:
        self._compiled, self._options = compiled, options
        self._report, self._subject = report, subject
        self._places = Places(compiled)
        self._observed = _observed(compiled.plan)
        self._programs: list[Any] = []

    def found(
        self, origin: tuple[str, ...], extents: Extents, problem: str, error: float = np.inf
    ) -> None:
        self._subject.failed = True
        where = self._subject.name
        self._report.findings.append(Finding(where, "", origin, str(extents), problem, error))

    def run(self, extents: Extents, feeds: Mapping[str, Array]) -> None:
        if not self._programs:
            plans = (self._compiled.plan, self._observed)
            self._programs = [assemble(plan, self._options) for plan in plans]
        usual, apart = (program.run(feeds) for program in self._programs)
        self._subject.runs += 1
        for name, one, other in zip(self._compiled.plan.output_names, usual, apart, strict=False):
            if isinstance(one, np.ndarray) and not _same_bits(one, other):
                self.found((), extents, f"output {name} changes with what shares memory")
                return
        plan = self._observed
        buffers = dict(zip(plan.outputs, apart, strict=True))
        for index in self._compiled.plan.inputs:
            if plan.values[index].dtype is not DType.OPAQUE:
                buffers[index] = np.asarray(feeds[plan.values[index].name])
        self._check_values(buffers, extents)

    def _check_values(self, buffers: dict[int, Array], extents: Extents) -> None:
        for nodes, outputs, kernel in self._parts():
            reference = Reference(extents, self._options.precision)
            produced = {value for node in nodes for value in node.outputs}
            operands = {v for n in nodes for v in n.inputs if v is not None} - produced
            arrays = {v: self._read(v, buffers, extents) for v in operands if not v.is_constant}
            if any(array is None for array in arrays.values()):
                continue  # no kernel reads it
            for value, array in arrays.items():
                assert array is not None
                reference.give(value, array)
            reference.run(nodes)
            for value in outputs:
                got = self._read(value, buffers, extents)
                if got is None:
                    continue
                problem, error = compare(got, reference.operand(value).wide(), self._subject)
                if problem:
                    origin = tuple(dict.fromkeys(name for node in nodes for name in node.origin))
                    self.found(origin, extents, f"{kernel}: {value.name} {problem}", error)
                    return

    def _parts(self) -> Iterator[tuple[tuple[Node, ...], tuple[Value, ...], str]]:
        """Distinct kernels, then concats and reshapes that are no kernels, with their operators."""
        seen = set()
        for subgraph, call in calls_of(self._compiled):
            key = identity(self._compiled.plan, subgraph, call)
            if key not in seen:
                seen.add(key)
                yield subgraph.nodes, subgraph.outputs, call.plan.name
        for node in self._compiled.schedule.joins:
            yield (node,), node.outputs, "concat in place"
        aliases = self._compiled.schedule.aliases
        for node in self._compiled.graph.nodes:
            if node.op == "reshape" and _shares(aliases, node):
                yield (node,), node.outputs, "reshape in memory"

    def _read(self, value: Value, buffers: dict[int, Array], extents: Extents) -> Array | None:
        if value.shape is None or value.dtype is DType.OPAQUE:
            return None
        place = self._places.place(value)
        if place is None or place.buffer not in buffers:
            return None
        return read(buffers[place.buffer], place, extents.dims(value.shape), extents)


def _same_bits(one: Array, other: Array) -> bool:
    if one.dtype == object:
        return True  # strings come from the vendor library alone
    return one.tobytes() == other.tobytes()


def _shares(aliases: Any, node: Node) -> bool:
    roots = [aliases.root(value) for value in (node.required(0), node.output)]
    return roots[0] is roots[1]


def _observed(plan: ModelPlan) -> ModelPlan:
    """The plan with all values that something computes among its results."""
    written = set(_written(plan))
    values = [
        replace(value, storage=Storage.OUTPUT)
        if index in written and value.storage is Storage.ARENA
        else value
        for index, value in enumerate(plan.values)
    ]
    more = [
        index
        for index, value in enumerate(values)
        if index in written and index not in plan.outputs and value.dtype is not DType.OPAQUE
    ]
    return replace(
        plan,
        values=values,
        outputs=(*plan.outputs, *more),
        output_names=(*plan.output_names, *(f"value {index}" for index in more)),
    )


def _written(plan: ModelPlan) -> Iterator[int]:
    for step in plan.steps:
        if isinstance(step, DimsStep):
            yield step.value
        elif isinstance(step, LaunchStep):
            for call in step.calls:
                yield from call.plan.stored
        else:
            yield from step.outputs
