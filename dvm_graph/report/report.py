"""What the compiler decided about a model, in words and numbers a user can read.

Purpose: the one record that the text report, the pictures, the command line, demo and benchmarks
show. It holds only text and numbers, so it can be stored, compared and drawn without the model.

Invariants: `subgraphs` are in the order in which they run. A value is named as in the compiled
graph; each is an output of at most one subgraph, and what no subgraph makes is a model input.

What it does not do: time anything. Shapes are symbolic; what they cost is known at run time only.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dvm_graph.errors import InputError
from dvm_graph.rules.verdicts import Decision, Verdict

if TYPE_CHECKING:
    import networkx as nx


class SubgraphKind(enum.Enum):
    """What carries a fused subgraph out."""

    VECTOR = "vector"
    CUBE = "cube"
    MIX = "mix"
    HOST = "host"
    """Dims that the host writes into a tensor: no kernel."""
    VENDOR = "vendor"
    """onnxruntime."""
    CONTROL = "control"
    """Control flow: what its bodies were compiled to."""
    OPERATOR = "operator"
    """An operator that the host carries out, because its sizes are known once it has run."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A value, with its shape as text where it is symbolic; long dims go by a name (`Report.aliases`)."""

    name: str
    dtype: str
    """Short name: f32, i64."""
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        return f"{self.dtype}[{'?' if self.shape is None else ', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Operator:
    """A basic operator, or an ONNX operator left to the vendor."""

    name: str
    op: str
    """Name in the table of basic operators, or the ONNX operator type."""
    is_view: bool
    """Arranges elements and computes nothing."""
    onnx_nodes: tuple[str, ...]
    """Names of the ONNX nodes it came from."""


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Operators that run as one kernel (or as one vendor partition)."""

    name: str
    kind: SubgraphKind
    operators: tuple[Operator, ...]
    inputs: tuple[Tensor, ...]
    """Read from global memory, constants apart."""
    outputs: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    constant_bytes: int
    verdict: Verdict | None
    """None: a single operator with nothing to decide."""
    reason: str
    symbols: tuple[str, ...]
    """The symbols that verdict hung on."""
    scope: str
    """Module of the exported model it belongs to, "encoder.layer.0.output"; empty: not known."""
    launch: int
    """Number of the launch; kernels of one launch are stacked."""
    stage: int
    """Stage of the launch; kernels of one stage run side by side."""
    fallback: tuple[str, ...] = ()
    """Kernels that run instead where a guard fails or a tile does not fit local memory."""
    timed_as: tuple[str, ...] = ()
    """What profiles call its work: the vendor call, or the kernel, its fallbacks and theirs."""
    bodies: tuple[Report, ...] = ()
    """Of control flow."""
    body_names: tuple[str, ...] = ()

    @property
    def onnx_nodes(self) -> tuple[str, ...]:
        """Names of the ONNX nodes whose work is done here, each once."""
        return tuple(dict.fromkeys(n for operator in self.operators for n in operator.onnx_nodes))

    @property
    def is_constant(self) -> bool:
        """A kernel that computes the same at every run: of constants alone, at extents that never change."""
        shapes = (tensor.shape for tensor in self.outputs)
        fixed = all(isinstance(dim, int) for shape in shapes for dim in shape or ("?",))
        return self.is_kernel and bool(self.constants) and not self.inputs and fixed

    @property
    def is_kernel(self) -> bool:
        return self.kind in (SubgraphKind.VECTOR, SubgraphKind.CUBE, SubgraphKind.MIX)


@dataclass(frozen=True, repr=False)
class Report:
    """The fused subgraphs of a model and every decision that led to them; `str()` prints it."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    subgraphs: tuple[Subgraph, ...]
    decisions: tuple[Decision, ...]
    """Every verdict of the fuser, refusals too."""
    symbols: tuple[str, ...]
    """Names of the dims that a run binds."""
    basic_operators: int
    """Basic operators after the graph passes, before fusion; vendor operators not counted."""
    launches: int
    constant_bytes: int
    vendor_operators: tuple[str, ...] = field(default=())
    """`Operator (node name)` for each operator that runs on onnxruntime."""
    vendor_casts: tuple[str, ...] = field(default=())
    """Vendor operators that run on wider types, as onnxruntime has none for their own."""
    lacking: tuple[str, ...] = field(default=())
    """Of a simulated part: kernels whose products its cube unit does not have, and what it lacks. They run as on a core
    with one local memory."""
    rescued: tuple[str, ...] = field(default=())
    """What the compiler failed at, and why; it runs on onnxruntime instead."""
    aliases: tuple[tuple[str, str], ...] = field(default=())
    """Names for long dims in the shapes of tensors, and what they stand for (`symbolic.aliases`)."""

    @property
    def kernels(self) -> int:
        """Kernels after fusion, fallbacks of guarded ones not counted."""
        return sum(subgraph.is_kernel for subgraph in self.subgraphs)

    def __str__(self) -> str:
        from dvm_graph.report.text import format_report

        return format_report(self)

    def __repr__(self) -> str:
        from dvm_graph.report.text import headline

        return f"<dvm_graph.Report: {headline(self)}; print() shows all of it>"

    def _repr_html_(self) -> str:
        """For notebooks: the kernels as a table."""
        from dvm_graph.report.text import format_html

        return format_html(self)

    def legend(self) -> list[str]:
        """What the words for kinds and verdicts that this report uses mean, a line each."""
        from dvm_graph.report.text import legend

        return legend(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers, for JSON."""
        return {
            **{name: _plain(getattr(self, name)) for name in (f.name for f in fields(self))},
            "kernels": self.kernels,
        }

    def find(self, name: str) -> list[Subgraph]:
        """The subgraphs that do the work of an ONNX node, or that have this name.

        Raises:
            InputError: no subgraph does.
        """
        found = [self.subgraphs[index] for index in self._by_name.get(name, ())]
        if not found:
            close = difflib.get_close_matches(name, self._by_name, n=3, cutoff=0.6)
            hint = f"; did you mean {' or '.join(close)}?" if close else ""
            raise InputError(
                f"no kernel holds an operator of {name!r}: the model has no such node, or the "
                f"compiler needed no work for it (folded, or only shapes){hint}"
            )
        return found

    def why(self, first: str, second: str) -> str:
        """Why two ONNX nodes (or kernels) are, or are not, in one kernel.

        Raises:
            InputError: a name is of no ONNX node or kernel that has work left.
        """
        ours, theirs = self.find(first), self.find(second)
        shared = [subgraph for subgraph in ours if subgraph in theirs]
        if shared:
            return f"{first} and {second} are fused: {self._describe(shared[0])}"
        left, right = self._nearest(ours, theirs)
        head = f"{first} is in {left.name}, {second} in {right.name}, which are not fused: "
        return head + "\n".join(self._refusals(left, right))

    def decisions_about(self, subgraph: Subgraph) -> list[Decision]:
        """Decisions with an operator of this subgraph on either side."""
        return [
            decision
            for decision in self.decisions
            if any(self._owner.get(side) is subgraph for side in sides(decision))
        ]

    def producers(self, subgraph: Subgraph) -> list[Subgraph]:
        """The subgraphs whose results this one reads, in the order of its inputs."""
        makers = (self.producer.get(tensor.name) for tensor in subgraph.inputs)
        return list(dict.fromkeys(maker for maker in makers if maker is not None))

    @cached_property
    def producer(self) -> Mapping[str, Subgraph]:
        """Who makes a value, by the value's name."""
        return {t.name: subgraph for subgraph in self.subgraphs for t in subgraph.outputs}

    @cached_property
    def launch_sizes(self) -> Mapping[int, int]:
        """How many kernels each launch has."""
        return Counter(subgraph.launch for subgraph in self.subgraphs if subgraph.is_kernel)

    @cached_property
    def _by_name(self) -> Mapping[str, list[int]]:
        table: dict[str, list[int]] = {}
        for index, subgraph in enumerate(self.subgraphs):
            for name in dict.fromkeys((subgraph.name, *subgraph.onnx_nodes)):
                table.setdefault(name, []).append(index)
        return table

    @cached_property
    def _owner(self) -> Mapping[str, Subgraph]:
        """The subgraph of a basic operator, by the operator's name; kernels by theirs."""
        owner = {o.name: subgraph for subgraph in self.subgraphs for o in subgraph.operators}
        return owner | {subgraph.name: subgraph for subgraph in self.subgraphs}

    @cached_property
    def _flow(self) -> nx.DiGraph[str]:
        import networkx as nx  # reports that nobody asks for a way do without

        flow: nx.DiGraph[str] = nx.DiGraph()
        flow.add_nodes_from(subgraph.name for subgraph in self.subgraphs)
        for subgraph in self.subgraphs:
            flow.add_edges_from((maker.name, subgraph.name) for maker in self.producers(subgraph))
        return flow

    def _describe(self, subgraph: Subgraph) -> str:
        verdict = f"{subgraph.verdict.value}: " if subgraph.verdict else ""
        return f"{subgraph.kind.value} kernel {subgraph.name}; {verdict}{subgraph.reason}"

    def _nearest(
        self, ours: Iterable[Subgraph], theirs: Iterable[Subgraph]
    ) -> tuple[Subgraph, Subgraph]:
        """The pair about which most is known: judged together, else in order of the run."""
        pairs = [(a, b) for a in ours for b in theirs]
        for a, b in pairs:
            if any(self._between(a, b)):
                return a, b
        return pairs[0]

    def _between(self, first: Subgraph, second: Subgraph) -> Iterator[Decision]:
        for decision in self.decisions:
            owners = [self._owner.get(side) for side in sides(decision)]
            if owners in ([first, second], [second, first]):
                yield decision

    def _refusals(self, first: Subgraph, second: Subgraph) -> Iterator[str]:
        judged = list(self._between(first, second))
        if judged:
            yield from dict.fromkeys(map(str, judged))
            return
        for side in (first, second):
            if side.kind in _CALLS:
                yield f"{side.name} {_CALLS[side.kind]}"
                return
        chain = self._chain(first, second)
        if chain is None:
            yield "neither needs a result of the other; kernels that are independent are stacked"
            return
        if len(chain) == 2:
            yield self._between_neighbours(first, second)
            return
        yield "they are not neighbours, the way between them is " + " -> ".join(chain)
        for left, right in pairwise(chain):
            for decision in self._between(self._owner[left], self._owner[right]):
                yield f"  {decision}"

    def _between_neighbours(self, first: Subgraph, second: Subgraph) -> str:
        """Why no rule was asked about a kernel and one that reads its result."""
        low, high = sorted((first.launch, second.launch))
        calls = [s for s in self.subgraphs if s.kind in _CALLS]
        between = [s.name for s in calls if low <= s.launch < high]
        if between:
            return f"{between[0]} (a vendor operator, control flow, or an operator of the host) has to run between them"
        return "a concat or reshape lies between them that is done in memory, without a kernel"

    def _chain(self, first: Subgraph, second: Subgraph) -> list[str] | None:
        import networkx as nx

        for start, end in ((first, second), (second, first)):
            if nx.has_path(self._flow, start.name, end.name):
                chain: list[str] = nx.shortest_path(self._flow, start.name, end.name)
                return chain
        return None


_CALLS = {
    SubgraphKind.VENDOR: "runs on onnxruntime (a vendor operator)",
    SubgraphKind.CONTROL: "is control flow: its bodies are programs of their own",
    SubgraphKind.OPERATOR: "is carried out by the host",
}


def sides(decision: Decision) -> tuple[str, ...]:
    """The names in a decision's subject: producer and consumer, or kernels side by side."""
    return tuple(re.split(r" -> |, ", decision.subject))


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
