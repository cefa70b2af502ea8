"""Every stage of the pipeline that rewrites the graph: its output held to its input.

In: the stages as the pipeline announces them. Out: a subject for each, and findings.

`decompose` is held to onnxruntime, one ONNX node at a time: on the numbers that its operands have here,
the node has to give what its basic operators give. Distinct nodes are asked once. A pass is held to the
graph before it. Values that outlive a pass are where it is looked at: one that is what it was counts as
exact from there on, so bounds are those of the few operators that changed, and nothing else is computed
again. One that is something else is followed; where it changes an output of the graph, that is a finding.

What is computed from constants alone keeps its error: folding rounds it to its type. So does what a pass folds on its
way.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from dvm_graph import _core
from dvm_graph.check.bounded import Bounded, differs, rounded
from dvm_graph.check.calls import run_call
from dvm_graph.check.compare import compare
from dvm_graph.check.extents import Extents, choose_extents, satisfied
from dvm_graph.check.findings import CheckReport, Finding, Subject
from dvm_graph.check.inputs import STYLES, draw, index_range
from dvm_graph.check.oracle import Oracle, boxed
from dvm_graph.check.reference import Reference
from dvm_graph.errors import DvmError, InputError, ShapeError
from dvm_graph.ir import Array, DType, Graph, Node, Value, shape_of
from dvm_graph.pipeline import PASSES, Done
from dvm_graph.symbolic import Facts, Symbol, symbols_of

_LARGE = 1 << 24
"""Elements of constants from which on one assignment of extents has to do."""


class _WrongShapeError(ShapeError):
    """A result is not of the shape that was deduced for it, or has other contents."""


class GraphCheck:
    """An observer of the pipeline that evaluates the graph after each stage."""

    def __init__(
        self, report: CheckReport, seed: int, feeds: Mapping[str, Array] | None = None
    ) -> None:
        """`feeds`: arrays for the inputs, to evaluate the graph with besides random ones."""
        self._report, self._seed, self._given = report, seed, feeds
        self._imported: Graph | None = None
        self._facts = Facts()
        self._runs: list[_Run] = []
        self._taken_out: dict[Value, Node] = {}

    def __call__(self, done: Done) -> None:
        if done.name == "import_onnx":
            self._imported = done.result
        elif done.name == "decompose":
            done.result.taken_out = self._taken_out
            self._begin(done.result, done.facts)
        elif done.name in PASSES:
            subject = self._subject(done.name, "pass")
            nodes = _live_nodes(done.result)
            for run in list(self._runs):
                self._advance(run, done, nodes, subject)

    def feeds(self) -> list[tuple[Extents, Mapping[str, Array]]]:
        """Extents and arrays for the inputs of the model at which every stage was evaluated."""
        return [(run.extents, run.feeds) for run in self._runs]

    def _subject(self, name: str, kind: str) -> Subject:
        subject = Subject(name, kind)
        self._report.subjects.append(subject)
        return subject

    def _begin(self, graph: Graph, facts: Facts) -> None:
        subject = self._subject("decompose", "decompose")
        self._facts = facts
        symbols = [
            s for value in graph.inputs for dim in value.shape or () for s in symbols_of(dim)
        ]
        given = set(symbols)
        known = {
            tuple(dim for dim in value.shape if symbols_of(dim) <= given)
            for value in graph.values()
            if value.shape
        }
        shapes = sorted(known, key=str)
        dims = list(itertools.chain.from_iterable(shapes))
        constants = {value: value.data.size for value in graph.values() if value.data is not None}
        chosen = choose_extents(facts, symbols, len(STYLES) + 1, self._seed, shapes)
        count = 1 if sum(constants.values()) > _LARGE else len(STYLES) + 1
        if count == 1:
            chosen = _roomy(graph, chosen)
        oracle = Oracle(self._imported)
        oracle.begin(graph, subject)
        vendor = any(node.is_call for node in graph.nodes)
        for number, extents in enumerate(chosen):
            if vendor and 0 in extents.dims(dims):  # here and below
                continue  # onnxruntime ends the process on some operators over nothing
            extents = Extents({s: n for s, n in extents.symbols.items() if s in given})
            for style in STYLES if len(chosen) == 1 < count else (STYLES[number % len(STYLES)],):
                self._start(graph, extents, style, subject, oracle)
        empty = [feed for feed in (self._given or {}).values() if np.size(feed) == 0]
        if self._given is not None and not (vendor and empty):
            extents = _extents_of(graph, self._given)
            if satisfied(facts, extents, dims):
                self._try(graph, extents, self._given, subject, oracle)
        self._report.findings += oracle.findings
        if not chosen:
            subject.skipped = "no small extents satisfy the model's assumptions"

    def _start(
        self, graph: Graph, extents: Extents, style: str, subject: Subject, oracle: Oracle
    ) -> None:
        """Evaluates the decomposed graph; smaller integers where indices would be out of range."""
        needed, available = _memory(graph, extents), _core.available_memory()
        if needed > available:
            subject.skipped = (
                f"values at {extents} need {needed >> 20} MiB of {available >> 20} available"
            )
            return
        low, high = _range(graph, extents)
        for least, greatest in ((low, high), (0, high), (0, 1)):
            generator = np.random.default_rng(self._seed)
            feeds = {}
            for value in graph.inputs:
                if value.dtype is DType.OPAQUE or value.shape is None:
                    subject.skipped = f"input {value.name} is no tensor of known rank"
                    return
                shape = extents.dims(value.shape)
                feeds[value.name] = draw(generator, value.dtype, shape, style, least, greatest)
            if self._try(graph, extents, feeds, subject, oracle):
                return
        subject.skipped = f"indices are out of range at {extents}"

    def _try(
        self,
        graph: Graph,
        extents: Extents,
        feeds: Mapping[str, Array],
        subject: Subject,
        oracle: Oracle,
    ) -> bool:
        """Evaluates the decomposed graph on some numbers. False: an index is out of range."""
        run = _Run(Extents(extents.symbols), feeds, self._facts, self._taken_out)
        for value in graph.inputs:
            run.reference.give(value, boxed(feeds[value.name]))
        try:
            run.evaluate(graph, oracle)
        except IndexError:
            return False
        except _WrongShapeError as error:
            self._report.findings.append(Finding("decompose", "", (), str(extents), str(error)))
            return True
        except DvmError as error:  # the vendor library refuses these extents, or what it gives at them fits no other
            subject.skipped = f"{type(error).__name__}: {error}"
            return True
        subject.runs += 1
        self._runs.append(run)
        return True

    def _advance(self, run: _Run, done: Done, nodes: Sequence[Node], subject: Subject) -> None:
        graph: Graph = done.result
        try:
            run.advance(nodes)
        except (IndexError, DvmError) as failure:
            self._report.findings.append(
                Finding(done.name, "", (), str(run.extents), f"cannot be evaluated: {failure}")
            )
            self._runs.remove(run)
            return
        subject.runs += 1
        for number, (before, value) in enumerate(zip(run.outputs, graph.outputs, strict=True)):
            after = run.reference.operand(value)
            problem, error = _output_differs(before, after, subject)
            if problem:
                name = graph.output_names[number]
                subject.failed = True
                self._report.findings.append(
                    Finding(
                        done.name,
                        "",
                        run.changed,
                        str(run.extents),
                        f"output {name} {problem}",
                        error,
                    )
                )
                run.outputs[number] = after


def _range(graph: Graph, extents: Extents) -> tuple[int, int]:
    try:
        low, high = index_range(graph.nodes, extents)
    except (InputError, ShapeError):  # an axis that only the run knows
        return 0, 1
    return (low, high) if high > 0 else (0, 1)


def _memory(graph: Graph, extents: Extents) -> int:
    """Bytes that the values of the graph take while its passes are checked, as far as extents tell."""
    elements = 0
    for node in _live_nodes(graph):
        for value in node.outputs:
            with contextlib.suppress(InputError, ShapeError):  # a dim that only the run knows
                elements += math.prod(extents.dims(value.shape or ()))
    return elements * _BYTES


def _roomy(graph: Graph, chosen: Sequence[Extents]) -> list[Extents]:
    """The first that takes a small part of what memory is left, or else the one that takes the least."""
    available = _core.available_memory()
    for extents in chosen:
        if _memory(graph, extents) < available // 4:
            return [extents]
    return sorted(chosen, key=lambda extents: _memory(graph, extents))[:1]


_BYTES = 10
"""Of an element: a number, mostly in float64, and mostly an error in float32."""


def _extents_of(graph: Graph, feeds: Mapping[str, Array]) -> Extents:
    """The extents that arrays have; of symbols in expressions alone, the least that fit."""
    extents = Extents({})
    known = [
        (dim, extent)
        for value in graph.inputs
        for dim, extent in zip(value.shape or (), boxed(feeds[value.name]).shape, strict=False)
        if not isinstance(dim, int)
    ]
    for dim, extent in sorted(known, key=lambda pair: not isinstance(pair[0], Symbol)):
        unknown = symbols_of(dim) - extents.symbols.keys()
        for number in range(2 * extent + 2) if len(unknown) == 1 else ():
            guess = {**extents.symbols, next(iter(unknown)): number}
            if Extents(guess).dim(dim) == extent:
                extents = Extents(guess)
                break
    return extents


def _output_differs(before: Bounded, after: Bounded, subject: Subject) -> tuple[str, float]:
    """An output of the graph before and behind a pass. A bound that admits more than a small part
    of the largest magnitude says nothing: differences count from there on.
    """
    if before.value.shape != after.value.shape:
        return f"was {list(before.value.shape)}, but is {list(after.value.shape)}", np.inf
    if not before.is_number:
        return "", 0.0
    if not before.is_float:
        return compare(after.value, Bounded(before.value, before.errors + after.errors), subject)
    old, new = before.wide(), after.wide()
    size = np.abs(old.value)
    greatest = float(np.max(size, where=np.isfinite(size), initial=0.0))
    allowed = np.minimum(old.errors + new.errors, greatest * 2.0**-8)
    return compare(new.value, Bounded(old.value, allowed), subject)


def _folded(value: Value) -> Bounded:
    """A constant that a pass has made, be it by an operator on others: rounded to its type."""
    exact = Bounded(np.asarray(value.data))
    errors = rounded(exact, value.dtype).errors
    return Bounded(exact.value, _FOLDED_ULPS * errors) if exact.is_float else exact


_FOLDED_ULPS = 4
"""What functions of constants may be off."""
_Memo: TypeAlias = dict[Any, tuple[list[Bounded], list[Bounded]]]
"""Results and operands by operator, attributes and the arrays of the operands, which stay alive."""


class _Run:
    """The values of the graph at some extents, stage by stage."""

    def __init__(
        self,
        extents: Extents,
        feeds: Mapping[str, Array],
        facts: Facts,
        taken_out: Mapping[Value, Node],
    ) -> None:
        """`taken_out`: see `Graph.taken_out`."""
        self.extents, self.feeds, self._facts = extents, feeds, facts
        self._taken_out = taken_out
        self.reference = Reference(extents, bodies=facts.bodies)
        self.outputs: list[Bounded] = []
        self.changed: tuple[str, ...] = ()
        """ONNX nodes of the first values that the last pass changed."""
        self._done: _Memo = {}
        """What the stage before computed."""
        self._nodes: Sequence[Node] = ()
        """Of the stage before."""

    def evaluate(self, graph: Graph, oracle: Oracle) -> None:
        """The decomposed graph, held to the oracle at the results of ONNX nodes."""
        oracle.begin_run()
        memo: _Memo = {}
        nodes = _live_nodes(graph)
        last = {value: node for node in nodes for value in node.inputs if value is not None}
        within = Reference(self.extents)  # with the errors since the results of ONNX nodes
        for node in nodes:
            constant = self._is_settled(node)
            if node.is_call:
                self._run_call(node, memo)
                for given in node.outputs:
                    within.known[given] = rounded(self.reference.known[given], given.dtype)
                    if constant and node.op == "vendor":  # which a pass may compute in advance
                        self.reference.settled.add(given)
                        self.reference.known[given] = within.known[given]
                continue
            for value in node.inputs:
                if value is not None and value not in within.known:
                    within.known[value] = self.reference.operand(value)
            result = within.result(node)
            _check_shape(node, result.value, self.extents)
            if constant:
                self.reference.settled.add(node.output)
                self.reference.known[node.output] = result.narrow()
            else:
                exact = Bounded(result.value, self._carried(node))
                self.reference.known[node.output] = exact.narrow()
                if oracle.judges(node.output):
                    oracle.judge(node.output, result, self.reference)
                    result = rounded(Bounded(result.value), node.output.dtype)
            within.known[node.output] = result
            for value in node.inputs:
                if value is not None and last[value] is node:
                    within.known.pop(value, None)
            self._remember(memo, node)
        self._done, self._nodes = memo, nodes
        self.outputs = [self.reference.operand(value) for value in graph.outputs]

    def _is_settled(self, node: Node) -> bool:
        """Whether results rest on constants alone: their errors stay."""
        settled = self.reference.settled
        return all(v is None or v.is_constant or v in settled for v in node.inputs)

    def _carried(self, node: Node) -> Array | None:
        """What the errors of constants, which a pass may compute in advance, make of a result."""
        read = (self.reference.operand(value) for value in node.inputs if value is not None)
        if all(operand.error is None for operand in read):
            return None
        return self.reference.result(node).error

    def advance(self, nodes: Sequence[Node]) -> None:
        """The live nodes of the graph behind a pass."""
        old, memo = self.reference.known, _Memo()
        settled = self.reference.settled
        self.reference = Reference(self.extents, bodies=self.reference.bodies)
        self.reference.settled = settled
        self.reference.known = {v: x for v, x in old.items() if self._producer(v) is None}
        changed: list[Node] = []
        replaced: list[Bounded] | None = None
        for node in nodes:
            for value in node.inputs:
                if value is not None and value.data is not None and value not in old:
                    self.reference.known[value] = _folded(value)
            if node.is_call:
                self._run_call(node, memo, old)
                continue
            key, operands = self._key(node)
            done = self._done.get(key)
            result = self.reference.result(node).narrow() if done is None else done[0][0]
            if done is None:
                _check_shape(node, result.value, self.extents)
                if node.op == "lookup":
                    replaced = self._replaced(nodes, old) if replaced is None else replaced
                    result = _tabulated(result, replaced)
            before = old.get(node.output)
            if before is not None and _same(before, result):
                result = before
            elif before is not None:
                changed.append(node)
            self.reference.known[node.output] = result
            memo[key] = ([result], operands)
        self.changed = tuple(dict.fromkeys(name for node in changed[:4] for name in node.origin))
        self._done, self._nodes = memo, nodes

    def _replaced(self, nodes: Sequence[Node], old: Mapping[Value, Bounded]) -> list[Bounded]:
        """What a pass took away, with the errors of operators that round."""
        stay = {value for node in nodes for value in node.outputs}
        reference = Reference(self.extents, bodies=self.reference.bodies)
        for value, known in old.items():
            producer = self._producer(value)
            if value in stay or producer is None or producer.is_call:
                reference.known[value] = known
        gone = [node for node in self._nodes if not node.is_call and node.output not in stay]
        reference.run(self._with_producers(gone, reference.known))
        return [reference.known[node.output] for node in gone]

    def _producer(self, value: Value) -> Node | None:
        """What makes it, or made it before a pass took that away."""
        return value.producer or self._taken_out.get(value)

    def _with_producers(self, nodes: Sequence[Node], known: Mapping[Value, Bounded]) -> list[Node]:
        """Nodes behind those that make what they read, so far as it is not known: a pass may take away what it has made."""
        ordered: dict[Node, None] = {}

        def add(node: Node) -> None:
            for value in node.inputs:
                producer = None if value is None or value in known else self._producer(value)
                if producer is not None and producer not in ordered:
                    add(producer)
            ordered[node] = None

        for node in nodes:
            add(node)
        return list(ordered)

    def _key(self, node: Node) -> tuple[Any, list[Bounded]]:
        attrs = sorted((name, str(attr)) for name, attr in self.extents.attrs(node).items())
        operands = [self.reference.operand(v) for v in node.inputs if v is not None]
        return (node.op, node.output.dtype, *attrs, *(id(x.value) for x in operands)), operands

    def _remember(self, memo: _Memo, node: Node) -> None:
        key, operands = self._key(node)
        memo[key] = ([self.reference.known[node.output]], operands)

    def _run_call(
        self, node: Node, memo: _Memo, old: Mapping[Value, Bounded] | None = None
    ) -> None:
        """`old`: what values are known to be; by default, what comes of exact operands counts as exact."""
        operands = [self.reference.operand(v) for v in node.inputs if v is not None]
        key = (node.name, *map(id, node.outputs), *(id(x.value) for x in operands))
        done = self._done.get(key)
        if done is None:
            results = run_call(node, self.reference)
            if old is None and not any(x.errors.any() for x in operands if x.is_number):
                results = [Bounded(result.value) for result in results]
            for at, value in enumerate(node.outputs):
                before = None if old is None else old.get(value)
                if before is not None and _same(before, results[at]):
                    results[at] = before
            done = (results, operands)
        memo[key] = done
        bound = len(self.extents.symbols)
        for value, result in zip(node.outputs, done[0], strict=True):
            self.reference.known[value] = result
            for dim, extent in zip(value.shape or (), result.value.shape, strict=False):
                if isinstance(dim, Symbol):
                    self.extents.bind(dim, extent)
            if value.shape is not None and self.extents.dims(value.shape) != result.value.shape:
                # What host operators give is deduced here, what vendor operators do by onnx.
                problem = _WrongShapeError if node.op == "host" else InputError
                raise problem(f"{value.name} is {list(result.value.shape)} for these numbers")
        if len(self.extents.symbols) > bound and not satisfied(self._facts, self.extents, ()):
            raise ShapeError(f"{self.extents} break what the model assumes")


def _live_nodes(graph: Graph) -> list[Node]:
    """What outputs and dims depend on, in topological order."""
    return graph.needed_nodes(node for node in graph.nodes if node.is_call)


def _tabulated(result: Bounded, replaced: Sequence[Bounded]) -> Bounded:
    """What is looked up, as sure as what it took the place of: entries are computed in advance, by operators that round."""
    for before in replaced:
        alike = (
            before.value.dtype == result.value.dtype and before.value.shape == result.value.shape
        )
        if alike and not differs(result.value, before).any():
            return Bounded(result.value, before.error)
    return result


def _same(before: Bounded, after: Bounded) -> bool:
    if before is after:
        return True
    if before.value.shape != after.value.shape:
        return False
    if not before.is_number or not after.is_number:
        return False
    old, new = before.wide(), after.wide()
    return not differs(new.value, Bounded(old.value, old.errors + new.errors)).any()


def _check_shape(node: Node, array: Array, extents: Extents) -> None:
    """
    Raises:
        _WrongShapeError: the result is not of the shape, or has not the contents, that were deduced.
    """
    value = node.output
    deduced = extents.dims(shape_of(value))
    where = f"{node.op} of {node.where}"
    if deduced != array.shape:
        raise _WrongShapeError(
            f"{where} gives {list(array.shape)}, but {list(deduced)} was deduced"
        )
    if value.elements is not None:
        elements = extents.dims(value.elements)
        if elements != tuple(array.reshape(-1).tolist()):
            raise _WrongShapeError(f"{where} gives {array.tolist()}, but {elements} was deduced")
