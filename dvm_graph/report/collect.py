"""From the compiler's own record to the report a user reads.

In: a `Compiled`. Out: a `Report` with one subgraph for each kernel and each vendor operator, in the
order of the run. Arrangements that need no kernel (reshapes of what is in memory, joins whose
operands are stored in place, dims written by the host) have no box; reading such a value counts as
reading what it is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dvm_graph.cluster import FusedSubgraph
from dvm_graph.ir import OPERATORS, Dim, Graph, Kind, Node, Value
from dvm_graph.kernels.plan import KernelPlan, LaunchStep, ModelPlan
from dvm_graph.report.report import Operator, Report, Subgraph, SubgraphKind, Tensor, sides
from dvm_graph.report.scopes import scope_of
from dvm_graph.rules.verdicts import Decision, Verdict

if TYPE_CHECKING:
    from dvm_graph.pipeline import Compiled


def make_report(compiled: Compiled) -> Report:
    """The report of a compiled model."""
    graph, record = compiled.graph, compiled.report
    subgraphs = _Collector(compiled).collect()
    constants = {v for node in graph.nodes for v in node.inputs if v is not None and v.is_constant}
    return Report(
        inputs=tuple(_tensor(value) for value in graph.inputs),
        outputs=tuple(_outputs(graph)),
        subgraphs=subgraphs,
        decisions=tuple(record.decisions),
        symbols=tuple(str(symbol) for symbol in compiled.plan.dims.symbols),
        basic_operators=record.basic_operators,
        launches=sum(isinstance(step, LaunchStep) for step in compiled.plan.steps),
        constant_bytes=sum(_bytes(value) for value in constants),
        vendor_operators=tuple(f"{node.attrs['op']} ({_title(node)})" for node in record.vendor),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """When a subgraph runs."""

    step: int
    launch: int
    stage: int


class _Collector:
    """Turns the fused subgraphs and vendor nodes of one model into `Subgraph`s."""

    def __init__(self, compiled: Compiled) -> None:
        self._graph = compiled.graph
        self._fused = compiled.report.subgraphs
        self._vendor = compiled.report.vendor
        self._places = _places(compiled.plan, self._fused)
        self._steps = _vendor_steps(compiled.plan)
        self._stored = {v for fused in self._fused for v in fused.outputs}
        self._stored |= {v for node in self._vendor for v in node.outputs} | set(self._graph.inputs)
        self._judged = _judged(compiled.report.decisions)

    def collect(self) -> tuple[Subgraph, ...]:
        names = _unique([fused.name for fused in self._fused] + [_title(n) for n in self._vendor])
        found: list[tuple[_Place, Subgraph]] = []
        for name, fused in zip(names, self._fused):
            place = self._places[fused]
            found.append((place, self._kernel(name, fused, place)))
        for name, node in zip(names[len(self._fused) :], self._vendor):
            place = _Place(self._steps.get(node, 0), -1, 0)
            found.append((place, self._vendor_operator(name, node)))
        found.sort(key=lambda item: (item[0].step, item[0].stage))
        return tuple(subgraph for _, subgraph in found)

    def _kernel(self, name: str, fused: FusedSubgraph, place: _Place) -> Subgraph:
        verdict, reason, symbols = self._verdict(fused)
        constants = [value for value in fused.inputs if value.is_constant]
        last = next((n for n in reversed(fused.nodes) if n.metadata or n.origin), fused.nodes[-1])
        return Subgraph(
            name=name,
            kind=SubgraphKind(fused.kind.value),
            operators=tuple(_operator(node) for node in fused.nodes),
            inputs=tuple(_tensor(value) for value in self._sources(fused.inputs)),
            outputs=tuple(_tensor(value) for value in fused.outputs),
            constants=tuple(_tensor(value) for value in constants),
            constant_bytes=sum(_bytes(value) for value in constants),
            verdict=verdict,
            reason=reason,
            symbols=symbols,
            scope=scope_of(last.metadata, last.origin),
            launch=place.launch,
            stage=place.stage,
        )

    def _vendor_operator(self, name: str, node: Node) -> Subgraph:
        operands = [value for value in node.inputs if value is not None]
        constants = [value for value in operands if value.is_constant]
        return Subgraph(
            name=name,
            kind=SubgraphKind.VENDOR,
            operators=(Operator(node.name, node.attrs["op"], False, node.origin),),
            inputs=tuple(_tensor(value) for value in self._sources(operands)),
            outputs=tuple(_tensor(value) for value in node.outputs),
            constants=tuple(_tensor(value) for value in constants),
            constant_bytes=sum(_bytes(value) for value in constants),
            verdict=Verdict.SEPARATE,
            reason="no decomposition into basic operators: runs on onnxruntime",
            symbols=(),
            scope=scope_of(node.metadata, node.origin),
            launch=-1,
            stage=0,
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


def _places(plan: ModelPlan, fused: Sequence[FusedSubgraph]) -> Mapping[FusedSubgraph, _Place]:
    """Which launch and stage each fused subgraph came to, by the outputs that its kernel stores."""
    by_key: dict[tuple[str, tuple[str, ...]], list[_Place]] = {}
    launch = -1
    for index, step in enumerate(plan.steps):
        if not isinstance(step, LaunchStep):
            continue
        launch += 1
        for stage, calls in enumerate(step.stages):
            for call in calls:
                by_key.setdefault(_key(call.plan), []).append(_Place(index, launch, stage))
    places = {}
    for subgraph in fused:
        waiting = by_key.get((subgraph.name, subgraph.origin))
        places[subgraph] = waiting.pop(0) if waiting else _Place(0, 0, 0)
    return places


def _key(plan: KernelPlan) -> tuple[str, tuple[str, ...]]:
    return plan.name, plan.origin


def _vendor_steps(plan: ModelPlan) -> Mapping[Node, int]:
    return {
        node: index
        for index, step in enumerate(plan.steps)
        if not isinstance(step, LaunchStep) and hasattr(step, "nodes")
        for node in step.nodes
    }


def _judged(decisions: Iterable[Decision]) -> Mapping[str, list[Decision]]:
    table: dict[str, list[Decision]] = {}
    for decision in decisions:
        for side in sides(decision):
            table.setdefault(side, []).append(decision)
    return table


def _unique(names: Sequence[str]) -> list[str]:
    """Names told apart by a number where they repeat: softmax, softmax.2, softmax.3."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(f"{name}.{seen[name]}" if seen[name] > 1 else name)
    return result


def _operator(node: Node) -> Operator:
    is_view = OPERATORS[node.op].kind is Kind.VIEW
    return Operator(node.name, node.op, is_view, node.origin)


def _title(node: Node) -> str:
    return ", ".join(node.origin) or node.name


def _outputs(graph: Graph) -> Iterator[Tensor]:
    """The model's outputs, under the names of the values that hold them."""
    return (_tensor(value) for value in graph.outputs)


def _tensor(value: Value) -> Tensor:
    shape = None if value.shape is None else tuple(_extent(dim) for dim in value.shape)
    return Tensor(value.name, value.dtype.short, shape)


def _extent(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def _bytes(value: Value) -> int:
    return 0 if value.data is None else int(value.data.nbytes)
