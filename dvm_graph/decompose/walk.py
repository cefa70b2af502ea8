"""The walk that turns a graph of ONNX operators into one of basic and vendor operators.

In: an imported graph. Out: a new graph with the same inputs, output names and metadata; shapes,
dtypes and contents of shape tensors are deduced while it is built.

The branch that an `If` is known to take stands for it. Each other node is tried three ways, in this
order: its own decomposition (`registry`), where the vendor library is not known to be faster; the function
body that the ONNX schema gives it, or the branches of an `If` that may always run (`branches`), both only
if no part of them ends as a vendor operator; a vendor operator.
Nodes that no output depends on are left out.

Invariants: one pass in topological order, deterministic; a way that fails or breaks leaves
nothing behind.
Control-flow operators keep their regions as ONNX graphs, for the vendor library; what they give is
deduced from them (`regions`), and what they are decomposed to for that is compiled, if it can be (`control`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from dvm_graph.decompose.arithmetic import with_axis
from dvm_graph.decompose.branches import MAX_BRANCH_NODES, may_speculate
from dvm_graph.decompose.continuations import Behind, Opened, continued
from dvm_graph.decompose.control import build_control, calls_vendor
from dvm_graph.decompose.first_turns import first_turn_apart
from dvm_graph.decompose.loops import as_loop, few_turns
from dvm_graph.decompose.moved_strings import is_over_strings, over_strings
from dvm_graph.decompose.moving import moved
from dvm_graph.decompose.native_operands import computable, given_to
from dvm_graph.decompose.regions import BodyResults, Deduced, ResultType, deduce_control
from dvm_graph.decompose.registry import faster_as_vendor, find
from dvm_graph.decompose.squeezing import as_branches
from dvm_graph.decompose.vendor_limits import expect_survival
from dvm_graph.decompose.words import has_odd_words
from dvm_graph.errors import (
    CompileError,
    DvmError,
    ModelError,
    ShapeError,
    UnsupportedError,
)
from dvm_graph.import_ import expand_function, infer_vendor, takes
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.ir.operators import MAX_AXES
from dvm_graph.options import Options
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.folding import Folding

VENDOR = "vendor"
_MAX_DEPTH = 4
"""Bodies inside bodies are deduced down to here: each may be walked several times for the one around."""
_Way: TypeAlias = Callable[[Node, Sequence[Value | None]], bool]
_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_LOG = logging.getLogger(__name__)


def decompose(graph: Graph, facts: Facts, options: Options) -> Graph:
    """Decomposes every node that an output of the graph depends on.

    Raises:
        ModelError: an operand that the operator needs is missing, an axis does not exist.
        ShapeError: shapes contradict each other.
        UnsupportedError: an operator that neither can be decomposed nor typed for the vendor.
    """
    return _Walk(graph, facts, graph.new_region(graph.name), options).run()


class _Walk:
    def __init__(
        self, graph: Graph, facts: Facts, target: Graph, options: Options, depth: int = 0
    ) -> None:
        self._source = graph
        self._options = options
        self._facts = facts
        self._graph = target
        self._depth = depth
        """How many bodies lie around what is walked."""
        self._builder = Builder(self._graph, facts, options)
        self._folding = Folding(target)
        self._values: dict[Value, Value] = {}
        """By ONNX value, where that is not the value itself."""
        self._named: set[Value] = set()
        """Results that carry the name of an ONNX value."""
        self._last: tuple[Node, Deduced] | None = None
        """The control-flow operator that was looked into last."""
        self._tentative = False
        """Whether what is walked stands for a node only if no part of it is a step of its own: a vendor
        operator, or control flow but for that of an operator's body, which is a level deep."""
        self._in_function = False
        """Whether it is the body of an operator."""
        self._native = False
        """Whether it does only if no part of it is a vendor operator."""
        self._repeats = False
        """Whether what is walked may be walked again: names of its values would be those of several."""
        self._apart: dict[Node, Behind] = {}
        """What an `If` stands for that was made of others."""
        self._tried: set[Node] = set()
        """Those that it was made of."""

    def run(self) -> Graph:
        source, graph = self._source, self._graph
        graph.inputs = list(source.inputs)
        graph.about = source.about
        graph.data_files = source.data_files
        pending: deque[Node | Opened] = deque(source.needed_nodes())
        while pending:
            node = pending.popleft()
            if isinstance(node, Opened):
                self._bind(node.node, [self._value(value) for value in node.region.outputs])
                continue
            graph.onnx_operators |= dict.fromkeys(node.origin, node.op)
            if (ordered := self._rearranged(node, pending)) is not None:
                pending = deque(ordered)
                continue
            self._native = node in self._apart
            mark = len(graph)
            if self._decompose(node):
                self._fold(node, mark)
            else:
                pending.extendleft(reversed(self._apart[node]))
            self._native = False
        graph.outputs = [self._value(value) for value in source.outputs]
        graph.output_names = source.output_names
        graph.overridable = source.overridable
        return graph

    def _fold(self, node: Node, mark: int) -> None:
        """What was built of constants alone since the graph had `mark` nodes, such as weights that are normalized: operators that
        read it may then be built for its contents. What was quantized is recognised by how it is made.
        """
        operands = self._operands(node)
        if node.op == "DequantizeLinear" or not any(operands) or not self._folding.covers(operands):
            return
        folded = self._folding.fold_each(self._graph.added_since(mark))
        for output in node.outputs:
            made = self._values.get(output, output)
            made.members = made.members and tuple(folded.get(v, v) for v in made.members)
            if made.picked is not None:
                places = made.picked.places
                made.picked = replace(made.picked, places=folded.get(places, places))
            self._values[output] = folded.get(made, made)

    def _value(self, value: Value) -> Value:
        """What stands for an ONNX value in the new graph; constants and inputs for themselves."""
        found = self._values.get(value, value)
        if found.producer is not None and found.producer not in self._graph:
            error = CompileError(f"{value.name!r} is used, but its producer did not build it")
            error.nodes = () if value.producer is None else value.producer.origin
            raise error
        return found

    def _operands(self, node: Node) -> list[Value | None]:
        return [None if value is None else self._value(value) for value in node.inputs]

    def _left_alone(self, node: Node) -> bool:
        """Whether the vendor library is to run it whatever it is."""
        asked_to = not self._options.vendor_nodes.isdisjoint(node.origin)
        return asked_to or has_odd_words(node) or not _is_typed(node, self._operands(node))

    def _decompose(self, node: Node) -> bool:
        """False: the node would be a vendor operator, where there is to be none."""
        operands = self._operands(node)
        with self._builder.scope(node):
            ways = (
                *(self._try_taken, self._try_native, self._try_body, self._try_branches),
                *(self._try_unrolled, self._try_control, self._try_loop),
            )
            left_alone = self._left_alone(node)
            try:
                if not left_alone and self._led(ways, node, operands):
                    return True
                if self._tentative or self._native:
                    return False
                self._bind(node, self._vendor(node, operands))
                return True
            except (CompileError, ShapeError, UnsupportedError) as error:
                error.nodes = error.nodes or node.origin
                raise

    def _led(self, ways: Sequence[_Way], node: Node, operands: Sequence[Value | None]) -> bool:
        """Whether one of the ways leads to the results.

        In a body, what contradicts itself or names an axis too many may never run: if it does, the vendor library says so.
        """
        mark = len(self._graph)
        try:
            return any(self._taken(way, node, operands) for way in ways)
        except (ModelError, ShapeError):
            if self._depth == 0:
                raise
            self._graph.take_back(mark)
            return False

    def _taken(self, way: _Way, node: Node, operands: Sequence[Value | None]) -> bool:
        """Whether a way leads to the results.

        Ways take operands for what the operator's definition says of their ranks, lengths and number.
        Where a model has others, a way may break in any manner; then the vendor library has the node,
        and says what is wrong with it, or runs it after all.
        """
        mark, tentative = len(self._graph), self._tentative
        try:
            return way(node, operands)
        except DvmError:
            raise
        except _BROKEN as error:
            _LOG.info(
                "%s %s is not decomposed: %s: %s", node.op, node.name, type(error).__name__, error
            )
            self._graph.take_back(mark)
            return False
        finally:
            self._tentative = tentative

    def _try_native(self, node: Node, operands: Sequence[Value | None]) -> bool:
        function = find(node)
        if function is None:
            return False
        of_strings = is_over_strings(node, operands) and takes(node, operands)
        if not (of_strings or given_to(function, node, operands) or computable(node, operands)):
            return False
        prefers = not self._options.strict and not of_strings
        if prefers and faster_as_vendor(function, node, operands):
            return False
        mark = len(self._graph)
        self._builder.most_axes = 0
        move = over_strings if of_strings else moved
        results = move(self._builder, node, operands, function)
        if results is None and not of_strings:
            results = function(self._builder, node, operands)
        if results is None or self._builder.most_axes > MAX_AXES:
            self._graph.take_back(mark)
            return False
        self._bind(node, results)
        return True

    def _try_body(self, node: Node, operands: Sequence[Value | None]) -> bool:
        if not computable(node, operands):
            return False
        body = expand_function(node, operands, self._graph)
        mark, in_function = len(self._graph), self._in_function
        self._in_function = True
        try:
            if body is not None and self._decompose_all(body):
                return True
        finally:
            self._in_function = in_function
        self._graph.take_back(mark)
        return False

    def _decompose_all(self, nodes: Sequence[Node]) -> bool:
        """False, and what was built is to be taken back: a part would be a vendor operator.

        The first such part ends it, before anything is asked about that operator: each of bodies inside
        bodies is walked once for the one around, however deep they lie.
        """
        self._tentative = True
        return all(self._decompose(node) for node in nodes)

    def _try_taken(self, node: Node, operands: Sequence[Value | None]) -> bool:
        """The branch that a constant condition takes, whatever is in it, in place of an `If` within what is only tried; see
        `_rearranged`.

        onnxruntime does so as well, and has ended the process over such branches inside others.
        """
        if node.domain or node.op != "If":
            return False
        region = self._branch_of(node, operands)
        if region is None:
            return False
        if not all(self._decompose(inner) for inner in region.needed_nodes()):
            return False
        self._bind(node, [self._value(value) for value in region.outputs])
        return True

    def _branch_of(self, node: Node, operands: Sequence[Value | None]) -> Graph | None:
        """The branch that a constant condition takes, its operands being known by those of the `If`."""
        condition, *captured = operands
        if condition is None or condition.data is None or condition.data.size != 1:
            return None
        region = node.regions[0 if condition.data.item() else 1]
        self._capture(region, captured)
        return region

    def _rearranged(self, node: Node, behind: Behind) -> Behind | None:
        """What is to be walked in place of an `If` and of what comes behind it: the branch that it is known to take,
        as a part of the graph around it, or an `If` that takes what rests on it into its branches. In place of a Squeeze
        or a Loop, such an `If`. None: themselves.
        """
        if node.domain or node.op not in _REARRANGED or self._left_alone(node):
            return None
        try:
            operands = self._operands(node)
            region = self._branch_of(node, operands) if node.op == "If" else None
            if region is not None:
                return [*region.needed_nodes(), Opened(node, region), *behind]
            if node in self._tried:
                return None
            return _REARRANGED[node.op](self, node, behind)
        except _BROKEN as error:  # see `_taken`
            _LOG.info("%s %s stays: %s: %s", node.op, node.name, type(error).__name__, error)
            return None

    def _continued(self, node: Node, behind: Behind) -> Behind | None:
        """What comes behind an `If`, and then one that takes what rests on it into its branches; None: nothing does."""
        deduced = self._deduced(node, self._operands(node))
        found = continued(node, deduced, behind, self._source, self._depth)
        if found is None:
            return None
        whole, resting, rest = found
        self._tried.add(node)
        self._apart[whole] = [node, *resting]
        return [*rest, whole]

    def _squeezed(self, node: Node, behind: Behind) -> Behind | None:
        """Branches by which axes go, and what comes behind; None: that is known, or too many may go."""
        most_open = _MAX_DEPTH - self._depth
        nodes = as_branches(node, self._operands(node), self._facts, self._source, most_open)
        if nodes is None:
            return None
        self._tried.add(node)
        self._apart[nodes[-1]] = [node]
        return [*nodes, *behind]

    def _turned(self, node: Node, behind: Behind) -> Behind | None:
        """The first turn of a Loop and the others, and what comes behind; None: they would be as it is."""
        operands = self._operands(node)
        nodes = first_turn_apart(node, operands, self._deduced(node, operands), self._source)
        if nodes is None:
            return None
        self._tried.add(node)
        *before, whole = nodes
        given = self._operands(whole)
        region = self._branch_of(whole, given)
        if region is None:
            self._apart[whole] = [node]
        else:  # behind it, nothing would be left that the vendor library could run as it was
            found = self._deduce_body(region, given[1:])
            if found is None or calls_vendor(found.graph):
                return None
        return [*before, whole, *behind]

    def _capture(self, region: Graph, captured: Sequence[Value | None]) -> None:
        pairs = zip(region.inputs, captured, strict=True)
        self._values.update((inner, outer) for inner, outer in pairs if outer)

    def _try_branches(self, node: Node, operands: Sequence[Value | None]) -> bool:
        if node.domain or node.op != "If" or not _selectable(node, operands):
            return False
        mark, facts = len(self._graph), self._facts
        self._facts = self._builder.facts = facts.branch()
        try:
            results = self._select_branches(node, operands, mark)
        except (ModelError, ShapeError):  # the vendor library says so if that branch is taken
            results = None
        finally:
            demands = len(self._facts.checks) > len(facts.checks)
            self._facts = self._builder.facts = facts
        if results is None or demands:
            self._graph.take_back(mark)
            return False
        self._bind(node, results)
        return True

    def _select_branches(
        self, node: Node, operands: Sequence[Value | None], mark: int
    ) -> list[Value] | None:
        """Both branches, and the choice between their results; None: that does not express it."""
        condition, *captured = operands
        assert condition is not None
        branches = []
        for region in node.regions:
            self._capture(region, captured)
            if not self._decompose_all(region.needed_nodes()):
                return None
            branches.append([self._value(value) for value in region.outputs])
        if not may_speculate(self._graph.added_since(mark), branches):
            return None
        scalar = self._builder.reshape(condition, ())
        results = []
        for taken, other in zip(*branches, strict=True):
            if taken.dtype is not other.dtype or taken.shape is None or other.shape is None:
                return None
            if not self._facts.same_shape(taken.shape, other.shape):
                return None
            results.append(self._builder.select(scalar, taken, other))
        return results

    def _try_unrolled(self, node: Node, operands: Sequence[Value | None]) -> bool:
        """A Loop of a few turns as the operators of all its turns, which fuse with each other and with what is around."""
        turns = few_turns(node, operands, self._options.limits.max_operators)
        if turns == 0 or not all(value is None or value.computable for value in operands):
            return False
        mark, repeats, last = len(self._graph), self._repeats, self._last
        self._repeats = True
        try:
            results = self._unroll(node, operands, turns)
        except (ModelError, ShapeError):  # the run says so, after as many turns as fit
            results = None
        finally:
            self._repeats, self._last = repeats, last
        if results is None or len(self._graph) - mark > self._options.limits.max_operators:
            self._graph.take_back(mark)
            return False
        self._bind(node, results)
        return True

    def _unroll(
        self, node: Node, operands: Sequence[Value | None], turns: int
    ) -> list[Value] | None:
        """The results of at most so many turns; None: a turn is no operators, or only a run tells whether it comes."""
        (region,) = node.regions
        own = node.own_operands
        states, captured = list(operands[2:own]), operands[own:]
        rows: list[list[Value]] = [[] for _ in range(len(node.outputs) - len(states))]
        goes_on = self._builder.constant(np.array(True))
        for turn in range(turns):
            counter = self._builder.constant(np.array(turn, np.int64))
            self._capture(region, [counter, goes_on, *states, *captured])
            self._last = None  # it was looked into for the turn before
            if not self._decompose_all(region.needed_nodes()):
                return None
            ahead, *results = (self._value(value) for value in region.outputs)
            if ahead.data is None or not all(value.computable for value in results):
                return None
            states = list(results[: len(states)])
            for found, row in zip(rows, results[len(states) :], strict=True):
                found.append(row)
            if not ahead.data.all():
                break
        return [*(v for v in states if v is not None), *map(self._stacked, rows)]

    def _stacked(self, rows: Sequence[Value]) -> Value:
        return self._builder.concat([with_axis(self._builder, row, 0) for row in rows], 0)

    def _try_control(self, node: Node, operands: Sequence[Value | None]) -> bool:
        if not node.regions or (self._tentative and not self._in_function):
            return False
        deduced = self._deduced(node, operands)
        if self._tentative and any(b is None or calls_vendor(b.graph) for b in deduced.bodies):
            return False
        results = build_control(self._builder, node, operands, deduced, self._unread(node))
        if results is not None:
            self._bind(node, results)
        return results is not None

    def _unread(self, node: Node) -> frozenset[int]:
        """Which results of a node are known to be read by nobody."""
        source = self._source
        if node not in source:  # but part of a branch, or of a turn
            return frozenset()
        return frozenset(
            at
            for at, value in enumerate(node.outputs)
            if not (source.users(value) or source.is_output(value))
        )

    def _try_loop(self, node: Node, operands: Sequence[Value | None]) -> bool:
        """A Loop that stands for the node, if it is compiled."""
        if self._tentative or not all(value is None or value.native for value in operands):
            return False
        nodes = as_loop(node, operands, self._graph)
        if nodes is None:
            return False
        mark, native = len(self._graph), self._native
        self._native = True
        try:
            if all(self._decompose(inner) for inner in nodes):
                self._bind(node, [self._value(value) for value in node.outputs])
                return True
        finally:
            self._native = native
        self._graph.take_back(mark)
        return False

    def _deduced(self, node: Node, operands: Sequence[Value | None]) -> Deduced:
        """What the bodies of a control-flow operator tell; they are walked once."""
        if self._last is None or self._last[0] is not node:
            found = deduce_control(node, operands, self._facts, self._deduce_body)
            self._last = (node, found)
        return self._last[1]

    def _vendor(self, node: Node, operands: Sequence[Value | None]) -> Sequence[Value]:
        """The node itself, for the vendor library.

        Raises:
            CompileError: it stands for others, and is none that the library could run.
        """
        if not node.source:
            raise CompileError(f"{node.name} stands for several operators")
        vendor = Node(
            name=self._graph.unique_name(node.name),
            op=VENDOR,
            inputs=tuple(operands),
            outputs=tuple(
                Value(value.name, value.dtype, opaque_type=value.opaque_type)
                for value in node.outputs
            ),
            attrs={**node.attrs, "op": node.op, "domain": node.domain},
            version=node.version,
            origin=node.origin,
            metadata=node.metadata,
            source=node.source,
            regions=node.regions,
        )
        expect_survival(node, operands, self._facts)
        infer_vendor(vendor, self._facts, declared_shapes=self._options.dims_by_name)
        types = self._deduced(node, operands).types
        for value, deduced in zip(vendor.outputs, types, strict=False):
            _refine(value, deduced)
        self._graph.add(vendor)
        return vendor.outputs

    def _deduce_body(self, region: Graph, operands: Sequence[Value | None]) -> BodyResults | None:
        """What a body gives for operands; what it is decomposed to goes nowhere."""
        if self._depth == _MAX_DEPTH or len(region.inputs) != len(operands):
            return None
        facts, depth = self._facts.body(), self._depth + 1
        inner = _Walk(region, facts, region.scratch(), self._options, depth)
        given = []
        for value, operand in zip(region.inputs, operands, strict=True):
            if operand is not None:
                inner._values[value] = stand_in = _stand_in(operand, value.name)
                given.append(stand_in)
        try:
            graph = inner.run()
        except DvmError:  # the vendor library says so if that body runs
            return None
        graph.inputs = [value for value in given if not value.is_constant]
        return BodyResults(graph, inner._facts)

    def _bind(self, node: Node, results: Sequence[Value | None]) -> None:
        """Lets the results stand for the node's outputs, and gives them their ONNX names."""
        for output, result in zip(node.outputs, results, strict=False):
            if result is None:
                continue
            self._values[output] = result
            if result.producer is None or self._repeats:
                continue
            if result not in self._named:
                self._named.add(result)
                result.name = output.name


_REARRANGED: Mapping[str, Callable[[_Walk, Node, Behind], Behind | None]] = {
    "If": _Walk._continued,
    "Loop": _Walk._turned,
    "Squeeze": _Walk._squeezed,
}


def _stand_in(operand: Value, name: str) -> Value:
    """An operand as a body sees it; constants as they are."""
    if operand.is_constant:
        return operand
    return Value(
        name,
        operand.dtype,
        operand.shape,
        elements=operand.elements,
        opaque_type=operand.opaque_type,
        holds=operand.holds,
    )


def _refine(value: Value, deduced: ResultType) -> None:
    """Takes over what the inference did not find."""
    if value.dtype is DType.OPAQUE and not value.opaque_type:
        value.dtype, value.holds = deduced.dtype, deduced.holds
    if deduced.shape is None:
        return
    if value.shape is None:
        value.shape = deduced.shape
    elif len(deduced.shape) == value.rank:
        pairs = zip(value.shape, deduced.shape, strict=True)
        value.shape = tuple(known if isinstance(known, int) else dim for known, dim in pairs)


def _is_typed(node: Node, operands: Sequence[Value | None]) -> bool:
    """Whether a control-flow operator is defined for its operands: runs read the number of turns as it is."""
    return not node.regions or takes(node, operands[: node.own_operands])


def _selectable(node: Node, operands: Sequence[Value | None]) -> bool:
    """Whether an `If` is small, with a condition of one element and operands for kernels."""
    given = [value for value in operands if value is not None]
    if not all(value.computable for value in given):
        return False
    condition = operands[0]
    if condition is None or any(dim != 1 for dim in condition.shape or ()):
        return False
    return all(len(region) <= MAX_BRANCH_NODES for region in node.regions)
