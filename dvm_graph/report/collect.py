"""From the compiler's own record to the report a user reads.

In: a `Compiled`. Out: a `Report` with one subgraph for each kernel and each vendor operator, in the
order of the run. Arrangements that need no kernel (reshapes of what is in memory, joins whose
operands are stored in place) have no box; reading such a value counts as reading what it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dvm_graph.cluster import ControlCall, FusedSubgraph, HostCall, Launch, Step, VendorCall
from dvm_graph.ir import OPERATORS, Kind, Node, Value
from dvm_graph.ir.control import names_of_bodies
from dvm_graph.kernels.plan import ControlStep, HostStep, KernelCall, LaunchStep, VendorStep
from dvm_graph.report.report import Operator, Report, Subgraph, SubgraphKind, Tensor, sides
from dvm_graph.report.scopes import scope_of
from dvm_graph.rules.verdicts import Decision, Verdict
from dvm_graph.symbolic.aliases import Aliases

if TYPE_CHECKING:
    from dvm_graph.pipeline import Compiled

_REASONS = {
    SubgraphKind.VENDOR: "no decomposition into basic operators: runs on onnxruntime",
    SubgraphKind.OPERATOR: "carried out by the host",
    SubgraphKind.HOST: "dims that the host writes into a tensor",
}
_OF_UNKNOWN = "reads what kernels do not hold, of unknown rank or type: runs on onnxruntime"


def _reason(node: Node, kind: SubgraphKind) -> str:
    unknown = any(value is not None and not value.native for value in node.inputs)
    return _OF_UNKNOWN if unknown and kind is SubgraphKind.VENDOR else _REASONS.get(kind, "")


def make_report(compiled: Compiled) -> Report:
    """The report of a compiled model."""
    graph, record = compiled.graph, compiled.report
    symbols = tuple(str(symbol) for symbol in compiled.plan.dims.symbols)
    collector = _Collector(compiled, Aliases(symbols))
    inputs = tuple(collector.tensor(value) for value in graph.inputs)
    subgraphs = collector.collect()
    constants = {v for node in graph.nodes for v in node.inputs if v is not None and v.is_constant}
    return Report(
        inputs=inputs,
        outputs=tuple(
            replace(collector.tensor(value), name=name)
            for name, value in zip(graph.output_names, graph.outputs, strict=True)
        ),
        subgraphs=subgraphs,
        decisions=tuple(record.decisions),
        symbols=symbols,
        basic_operators=record.basic_operators,
        launches=sum(isinstance(step, LaunchStep) for step in compiled.plan.steps),
        constant_bytes=sum(_bytes(value) for value in constants),
        vendor_operators=tuple(_vendor_operators(compiled)),
        rescued=compiled.rescued,
        aliases=collector.aliases,
    )


def _vendor_operators(compiled: Compiled) -> Iterator[str]:
    """Those of bodies, too, which may run more often than once, or never."""
    for node in compiled.report.vendor:
        if node.op == "vendor":
            yield f"{node.attrs['op']} ({node.where})"
    for body in compiled.bodies.values():
        yield from _vendor_operators(body)


class _Collector:
    """Turns the steps of one model into `Subgraph`s."""

    def __init__(self, compiled: Compiled, aliases: Aliases) -> None:
        self._aliases = aliases
        self._bodies = compiled.bodies
        self._steps = list(zip(compiled.schedule.steps, compiled.plan.steps, strict=True))
        self._judged = _judged(compiled.report.decisions)
        self._stored = set(compiled.graph.inputs)
        for step, _ in self._steps:
            self._stored.update(_results(step))

    @property
    def aliases(self) -> tuple[tuple[str, str], ...]:
        """Of the dims of all tensors so far."""
        return tuple(self._aliases.meanings.items())

    def tensor(self, value: Value) -> Tensor:
        dims = value.shape
        shape = None if dims is None else tuple(self._aliases.extent(dim) for dim in dims)
        return Tensor(value.name, value.dtype.short, shape)

    def collect(self) -> tuple[Subgraph, ...]:
        return tuple(self._all())

    def _all(self) -> Iterator[Subgraph]:
        launch = -1
        for step, planned in self._steps:
            if isinstance(step, Launch):
                assert isinstance(planned, LaunchStep)
                launch += 1
                for stage, (parts, calls) in enumerate(
                    zip(step.stages, planned.stages, strict=True)
                ):
                    for fused, call in zip(parts, calls, strict=True):
                        yield self._kernel(call, fused, launch, stage)
            elif isinstance(step, VendorCall):
                for node in step.nodes:
                    assert isinstance(planned, VendorStep)
                    yield self._single(node, SubgraphKind.VENDOR, launch, planned.name)
            elif isinstance(step, ControlCall):
                assert isinstance(planned, ControlStep)
                yield self._control(step.node, launch, planned.name)
            elif isinstance(step, HostCall):
                assert isinstance(planned, HostStep)
                yield self._single(step.node, SubgraphKind.OPERATOR, launch, planned.name)
            else:
                yield self._single(step.node, SubgraphKind.HOST, launch)

    def _kernel(self, call: KernelCall, fused: FusedSubgraph, launch: int, stage: int) -> Subgraph:
        verdict, reason, symbols = self._verdict(fused)
        last = next((n for n in reversed(fused.nodes) if n.metadata or n.origin), fused.nodes[-1])
        constants = [value for value in fused.inputs if value.is_constant]
        return Subgraph(
            name=call.plan.name,
            kind=SubgraphKind(fused.kind.value),
            operators=tuple(_operator(node) for node in fused.nodes),
            inputs=tuple(self.tensor(value) for value in self._sources(fused.inputs)),
            outputs=tuple(self.tensor(value) for value in fused.outputs),
            constants=tuple(self.tensor(value) for value in constants),
            constant_bytes=sum(_bytes(value) for value in constants),
            verdict=verdict,
            reason=reason,
            symbols=symbols,
            scope=scope_of(last.metadata, last.origin),
            launch=launch,
            stage=stage,
            fallback=tuple(part.plan.name for part in call.fallback),
            timed_as=tuple(_kernel_names(call)),
        )

    def _control(self, node: Node, launch: int, call: str) -> Subgraph:
        """Control flow, with what its bodies do among its operators."""
        bodies = tuple(make_report(self._bodies[body]) for body in node.bodies)
        inside = (o for body in bodies for part in body.subgraphs for o in part.operators)
        single = self._single(node, SubgraphKind.CONTROL, launch, call)
        operators = (replace(o, name=f"{single.name}/{o.name}") for o in inside)
        counts = " and ".join(f"{body.kernels} in {body.launches} launches" for body in bodies)
        return replace(
            single,
            operators=(*single.operators, *operators),
            reason=f"control flow; kernels of its bodies, programs of their own: {counts}",
            bodies=bodies,
            body_names=names_of_bodies(node),
        )

    def _single(self, node: Node, kind: SubgraphKind, launch: int, call: str = "") -> Subgraph:
        """A call, or dims that the host writes."""
        operands = [value for value in node.inputs if value is not None]
        constants = [value for value in operands if value.is_constant]
        is_call = kind is not SubgraphKind.HOST
        return Subgraph(
            name=node.where,
            kind=kind,
            operators=(_operator(node),),
            inputs=tuple(self.tensor(value) for value in self._sources(operands)),
            outputs=tuple(self.tensor(value) for value in node.outputs),
            constants=tuple(self.tensor(value) for value in constants),
            constant_bytes=sum(_bytes(value) for value in constants),
            verdict=Verdict.SEPARATE if is_call else None,
            reason=_reason(node, kind),
            symbols=(),
            scope=scope_of(node.metadata, node.origin),
            launch=launch,
            stage=0,
            timed_as=(call,) if call else (),
        )

    def _sources(self, values: Iterable[Value]) -> Iterator[Value]:
        """The inputs and stored results that some values are, or are arranged from, each once."""
        seen: set[Value] = set()
        waiting = list(values)[::-1]
        while waiting:
            value = waiting.pop()
            if value in seen or value.is_constant:
                continue
            seen.add(value)
            if value in self._stored:
                yield value
            elif value.producer is not None:
                waiting.extend(v for v in reversed(value.producer.inputs) if v is not None)

    def _verdict(self, fused: FusedSubgraph) -> tuple[Verdict | None, str, tuple[str, ...]]:
        """The decisions that made a kernel, as one: speculated if any was."""
        names = {node.name for node in fused.nodes}
        made = list(
            dict.fromkeys(
                decision
                for name in names
                for decision in self._judged.get(name, ())
                if names.issuperset(sides(decision))
            )
        )
        if not made:
            return None, "one operator, fused with no neighbour", ()
        speculated = [d for d in made if d.verdict is Verdict.SPECULATE]
        chosen = speculated or [d for d in made if d.verdict is Verdict.PATTERN]
        reasons = Counter(sorted(decision.reason for decision in chosen))
        text = ", ".join(f"{r} ({n} times)" if n > 1 else r for r, n in reasons.most_common())
        verdict = Verdict.SPECULATE if speculated else Verdict.PATTERN
        symbols = dict.fromkeys(sorted(s for decision in chosen for s in decision.symbols))
        return verdict, text, tuple(symbols)


def _kernel_names(call: KernelCall) -> Iterator[str]:
    yield call.plan.name
    for part in call.fallback:
        yield from _kernel_names(part)


def _results(step: Step) -> Iterator[Value]:
    """The values that a step leaves in memory."""
    if isinstance(step, Launch):
        for stage in step.stages:
            for fused in stage:
                yield from fused.outputs
    elif isinstance(step, VendorCall):
        for node in step.nodes:
            yield from node.outputs
    else:
        yield from step.node.outputs


def _judged(decisions: Iterable[Decision]) -> Mapping[str, list[Decision]]:
    """By operator; not those about fallbacks, which do not make the kernel."""
    table: dict[str, list[Decision]] = {}
    for decision in decisions:
        for side in () if decision.in_fallback else sides(decision):
            table.setdefault(side, []).append(decision)
    return table


def _operator(node: Node) -> Operator:
    is_view = OPERATORS[node.op].kind in (Kind.VIEW, Kind.UNPACK)
    name = node.attrs["op"] if node.is_call else node.op
    return Operator(node.name, name, is_view, node.origin)


def _bytes(value: Value) -> int:
    return 0 if value.data is None else int(value.data.nbytes)
