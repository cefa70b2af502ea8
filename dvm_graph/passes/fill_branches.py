"""Moves operators around an `If` into its branches, where they fuse with what is there.

    Requires: basic operators with shapes, constants folded. Ensures: what nothing but branches read is computed in
    those that read it, and what rests on results of an `If` and on values at hand before it in both of them, as far
    as the rules below go; the results are the `If`'s then. No other value changes.

    h = x * s; r = if c {matmul(h, w)} else {reduce_sum(h)}; y = exp(r)
    =>  y = if c {exp(matmul(x * s, w))} else {exp(reduce_sum(x * s))}

A kernel does not reach across control flow, whose bodies are programs of their own. Behind this pass a branch
holds its neighbours too, and may be one kernel with them. What goes to both branches is written down twice and runs
once; what one branch alone reads does not run for the other.

What moves is what kernels fuse: element-wise operators, reductions, views, gathers and products. Of two products
one after the other, which share no kernel, one moves; with a constant operand, which each program packs for
itself, only where one branch alone reads it. A view stays where its result would have to be written. What may trap
does not move into one branch of two. Extents that only the `If` tells are in each branch those of its own results; a
result that has one which somebody needs stays.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dvm_graph.errors import ShapeError
from dvm_graph.ir import (
    FOR_PRODUCTS,
    OPERATORS,
    Dim,
    Graph,
    Kind,
    Node,
    Value,
    with_what_they_rest_on,
)
from dvm_graph.symbolic import Facts, substitute, symbols_of
from dvm_graph.symbolic.binders import find_binders, needed_symbols, symbols_in
from dvm_graph.symbolic.builder import Builder

_FUSED = frozenset({Kind.MAP, Kind.REDUCE, Kind.MATRIX, Kind.VIEW, Kind.GATHER})
_TRAPS = frozenset({"gather", "check_index"})
_GAP = 20  # bits: places between those of two operators


def fill_branches(graph: Graph, facts: Facts, most: int) -> bool:
    """True if an operator was moved. Each `If` takes `most` operators: no kernel has more."""
    changed = False
    order = graph.sorted_nodes()
    branching = [node for node in order if node.op == "control" and node.attrs["turns"] is None]
    around = _Around(graph, order) if branching else None
    for node in branching:
        assert around is not None
        changed |= _Filling(graph, node, facts, most, around).run()
    return changed


class _Around:
    """What holds for the graph whatever operators move."""

    def __init__(self, graph: Graph, order: Sequence[Node]) -> None:
        self._graph = graph
        self._places = {node: at << _GAP for at, node in enumerate(order)}
        """Greater than those of what a node reads."""
        self.folds = _find_folds(order)
        self.binds = bool(find_binders(graph, order))
        """Some symbols are known behind operators only."""

    def place(self, node: Node) -> int:
        return self._places[node]

    def reads(self, node: Node) -> None:
        """The node reads other values than before."""
        pending = [node]
        made_by = (value.producer for value in node.inputs if value is not None)
        least = max((self._places[other] + 1 for other in made_by if other is not None), default=0)
        self._places[node] = max(self._places[node], least)
        while pending:
            before = pending.pop()
            for value in before.outputs:
                for user in self._graph.users(value):
                    if self._places[user] <= self._places[before]:
                        self._places[user] = self._places[before] + 1
                        pending.append(user)


class _Branch:
    """A body of the `If`, and what stands in it for values around."""

    def __init__(self, control: Node, body: Graph, facts: Facts) -> None:
        self.graph = body
        self._facts = facts
        self._builder = Builder(body, facts)
        self.inside: dict[Value, Value] = {}
        """By operand of the `If`, and by result."""
        for outer, inner in zip(control.inputs[1:], body.inputs, strict=True):
            assert outer is not None
            if outer.is_constant:  # folded since the body was made
                body.replace_uses(inner, self.find(outer))
                continue
            known = self.inside.setdefault(outer, inner)
            if known is not inner:  # what is read under two names is read once
                body.replace_uses(inner, known)
        self.inside.update(zip(control.outputs, body.outputs, strict=True))

    def reads(self, value: Value) -> bool:
        inner = self.inside.get(value)
        return inner is not None and (bool(self.graph.users(inner)) or self.graph.is_output(inner))

    def find(self, value: Value) -> Value:
        """What stands for a value: itself if constant, unless something there has its name; what is not there yet is
        to become an input.
        """
        if value not in self.inside:
            name = self.graph.unique_name(value.name)
            if value.is_constant:
                self.inside[value] = value if name == value.name else replace(value, name=name)
                return self.inside[value]
            self.inside[value] = Value(name, value.dtype, value.shape, elements=value.elements)
            self._know((value.shape,))
        return self.inside[value]

    def build(self, node: Node, dims: Mapping[Any, Dim]) -> Value:
        """The operator's result for the operands in the branch, with symbols replaced.

        Raises:
            ShapeError: it does not fit them.
        """
        attrs = {name: _replaced(attr, dims) for name, attr in node.attrs.items()}
        operands = [self.find(value) for value in node.inputs if value is not None]
        self._know(tuple(attrs.values()))
        with self._builder.scope(node):
            return self._builder.op(node.op, *operands, **attrs)

    def expect_shape(self, made: Value, known: Value) -> None:
        """
        Raises:
            ShapeError: the shape that is known of a value is not that of what now makes it.
        """
        for own, other in zip(made.shape or (), known.shape or (), strict=True):
            self._facts.assume_equal(own, other, f"it is an extent of {known.name}")

    def replace(self, old: Value, new: Value) -> None:
        self.graph.replace_uses(old, new)
        self.inside = {
            outer: new if inner is old else inner for outer, inner in self.inside.items()
        }

    def _know(self, dims: Any) -> None:
        """The program around gives the body what these symbols are."""
        self._facts.outside = self._facts.outside.union(symbols_in(dims))


class _Filling:
    """An `If` and the graph that its branches take operators from."""

    def __init__(
        self, graph: Graph, control: Node, facts: Facts, most: int, around: _Around
    ) -> None:
        self._graph, self._control, self._facts, self._around = graph, control, facts, around
        self._left = most
        self._branches = [_Branch(control, body, facts.bodies[body]) for body in control.bodies]
        order = graph.sorted_nodes() if around.binds else ()
        binders = find_binders(graph, order) if around.binds else {}
        read = [value.producer for value in control.inputs if value is not None] if binders else []
        before = with_what_they_rest_on(read)
        self._own = {symbol for symbol, node in binders.items() if node is control}
        self._late = {symbol for symbol, node in binders.items() if node not in before}
        """Symbols that may be known after the condition only; the `If`'s own ones among them."""
        self._late_behind = self._find_behind(order) if self._late else None
        """The `If` and what may have to wait for it, where that is more than what reads its results."""
        self._known = {control: True}
        """Whether nodes wait for the `If`."""
        self._order = [node for node in order if node in (self._late_behind or ())]
        self._folds = around.folds
        self._before_product: set[Value] = set()
        """What products that were moved rest on."""
        self._capture(())

    def run(self) -> bool:
        """True if an operator was moved."""
        most = self._left
        for node in self._following():
            self._take_from_behind(node)
        self._take_from_before()
        if self._left == most:
            return False
        self._leave_out_unread()
        return True

    def _find_behind(self, order: Sequence[Node]) -> set[Node]:
        """The `If`, and what may have to wait for it, be it for a symbol."""
        behind = {self._control}
        for node in order:
            if any(v is not None and v.producer in behind for v in node.inputs) or (
                self._late and not self._late.isdisjoint(needed_symbols(node))
            ):
                behind.add(node)
        return behind

    def _is_behind(self, node: Node | None) -> bool:
        """Whether the node may have to wait for the `If`, or is it."""
        if node is None:
            return False
        if self._late_behind is not None:
            return node in self._late_behind
        least, known = self._around.place(self._control), self._known
        pending = [node]
        while pending:
            last = pending[-1]
            if last not in known and self._around.place(last) <= least:
                known[last] = False
            if last in known:
                pending.pop()
                continue
            made_by = [v.producer for v in last.inputs if v is not None and v.producer is not None]
            unknown = [other for other in made_by if other not in known]
            if unknown:
                pending += unknown
            else:
                known[last] = any(known[other] for other in made_by)
        return known[node]

    def _packs(self, node: Node) -> bool:
        """A product whose constant operand each program packs for itself."""
        return node.op == "matmul" and any(_is_fixed(value, self._folds) for value in node.inputs)

    def _build(
        self, node: Node, branches: Sequence[_Branch], known: Sequence[Value] = ()
    ) -> list[Value] | None:
        """The result in each of the branches, of the shape of what is known of it; None: it fits not all."""
        marks = [len(branch.graph) for branch in branches]
        built = []
        try:
            for at, branch in enumerate(branches):
                built.append(branch.build(node, self._dims_in(branch)))
                if known:
                    branch.expect_shape(built[-1], known[at])
        except ShapeError:  # a run says so if it takes that branch
            for branch, mark in zip(branches, marks, strict=True):
                branch.graph.take_back(mark)
            return None
        around = self._graph.onnx_operators
        for branch in branches:
            origin = {name: around[name] for name in node.origin if name in around}
            branch.graph.onnx_operators |= origin
        return built

    def _dims_in(self, branch: _Branch) -> dict[Any, Dim]:
        """What symbols that only the `If` knows are in a branch."""
        dims: dict[Any, Dim] = {}
        for value in self._control.outputs if self._own else ():
            if value.shape is None:
                continue
            own = branch.inside[value].shape
            for dim, inner in zip(value.shape, own or (), strict=True):
                if dim in self._own:
                    dims.setdefault(dim, inner)
        return dims

    def _capture(self, values: Sequence[Value | None]) -> None:
        """Has branches read values of around."""
        wanted = dict.fromkeys([*self._control.inputs[1:], *values])
        read = [v for v in wanted if v is not None and not v.is_constant]
        self._read(read)

    def _read(self, values: Sequence[Value]) -> None:
        self._graph.set_inputs(self._control, (self._control.inputs[0], *values))
        self._around.reads(self._control)
        for branch in self._branches:
            branch.graph.inputs = [branch.find(value) for value in values]

    # -- behind the If

    def _following(self) -> list[Node]:
        """The operators behind it that branches may take."""
        chosen: dict[Node, bool] = {}
        for node in self._waiting(chosen):
            if len(chosen) < self._left and self._follows(node, chosen):
                after = any(chosen.get(v.producer, False) for v in node.inputs if v and v.producer)
                if node.op == "matmul" and (after or self._packs(node)):
                    continue
                chosen[node] = after or node.op == "matmul"
        self._leave_views(chosen)
        for node in reversed(chosen):
            self._note_product(node)
        return list(chosen)

    def _waiting(self, chosen: Mapping[Node, bool]) -> Iterator[Node]:
        """What waits for the `If`, in order; of what waits for nothing but results, what reads those, or what was chosen."""
        if self._late_behind is not None:
            yield from self._order
            return
        seen = {self._control}
        ready: list[tuple[int, str, int, Node]] = []  # a heap

        def add_readers(node: Node) -> None:
            for value in node.outputs:
                for user in self._graph.users(value):
                    if user not in seen:
                        seen.add(user)
                        at = (self._around.place(user), user.name, len(seen))
                        heapq.heappush(ready, (*at, user))

        add_readers(self._control)
        while ready:
            node = heapq.heappop(ready)[-1]
            yield node
            if node in chosen:
                add_readers(node)

    def _follows(self, node: Node, chosen: Mapping[Node, bool]) -> bool:
        """Whether kernels fuse it, with something in a branch, and its operands are at hand there."""
        if not _fuses(node):
            return False
        results = []
        for value in node.inputs:
            made_by = None if value is None else value.producer
            if value is not None and made_by is self._control:
                results.append(value)
            elif made_by not in chosen and self._is_behind(made_by):
                return False
        if results and not any(_fusible(branch, v) for branch in self._branches for v in results):
            return False
        if not self._late:
            return True
        extents = {dim for value in self._control.outputs for dim in value.shape or ()}
        return (set(symbols_in(tuple(node.attrs.values()))) & self._late) <= (self._own & extents)

    def _leave_views(self, chosen: dict[Node, bool]) -> None:
        """Leaves views that others read, too, and what then lacks an operand."""
        left: list[Node] | None = None
        while left is None or left:
            left = [node for node in chosen if self._is_written_view(node, chosen)]
            left += [
                node
                for node in chosen
                if any(
                    v is not None
                    and v.producer is not self._control
                    and v.producer not in chosen
                    and self._is_behind(v.producer)
                    for v in node.inputs
                )
            ]
            for node in left:
                chosen.pop(node, None)

    def _is_written_view(self, node: Node, chosen: Mapping[Node, bool]) -> bool:
        if OPERATORS[node.op].kind is not Kind.VIEW:
            return False
        result = node.output
        return self._graph.is_output(result) or any(
            user not in chosen for user in self._graph.users(result)
        )

    def _take_from_behind(self, node: Node) -> None:
        made_by = [v.producer for v in node.inputs if v is not None]
        if any(other is not self._control and self._is_behind(other) for other in made_by):
            return  # one that was not taken after all
        built = self._build(node, self._branches)
        if built is None:
            return
        control, result = self._control, node.output
        others = [v for v in node.inputs if v is not None and v.producer is not control]
        self._graph.remove(node)
        self._capture(others)
        control.outputs = (*control.outputs, result)
        result.producer = control
        for branch, inner in zip(self._branches, built, strict=True):
            branch.inside[result] = inner
            branch.graph.outputs.append(inner)
        self._left -= 1

    def _note_product(self, node: Node) -> None:
        if node.op == "matmul" or any(v in self._before_product for v in node.outputs):
            self._before_product.update(v for v in node.inputs if v is not None)

    # -- before it

    def _take_from_before(self) -> None:
        waiting = list(self._control.inputs[1:])
        while waiting and self._left:
            value = waiting.pop()
            node = None if value is None else value.producer
            if node is None or node not in self._graph or not self._sinks(node):
                continue
            waiting += node.inputs

    def _sinks(self, node: Node) -> bool:
        """Moves an operator into the branches that read its result, if nothing else does."""
        if node in (self._late_behind or ()) or not (_fuses(node) or node.op == "iota"):
            return False
        value = node.output
        if self._graph.users(value) != {self._control} or self._graph.is_output(value):
            return False
        readers = [branch for branch in self._branches if branch.reads(value)]
        if (
            value is self._control.inputs[0]
            or not readers
            or node in self._folds
            or (node.op in _TRAPS and len(readers) < len(self._branches))
            or (node.op == "matmul" and value in self._before_product)
            or (len(readers) > 1 and self._packs(node))
        ):
            return False
        known = [branch.inside[value] for branch in readers]
        built = self._build(node, readers, known)
        if built is None:
            return False
        for branch, old, new in zip(readers, known, built, strict=True):
            branch.replace(old, new)
        for branch in self._branches:
            branch.inside.pop(value, None)
        self._note_product(node)
        kept = [v for v in self._control.inputs[1:] if v is not None and v is not value]
        self._read(kept)
        self._capture(node.inputs)
        self._graph.remove(node)
        self._left -= 1
        return True

    # -- what is left

    def _leave_out_unread(self) -> None:
        """Results and operands that nobody reads any more."""
        control, kept = self._control, self._wanted_results()
        for branch in self._branches:
            branch.graph.outputs = [branch.inside[value] for value in kept]
            branch.graph.output_names = tuple(value.name for value in kept)
            branch.graph.onnx_operators = dict(branch.graph.onnx_operators)
        control.outputs = tuple(kept)
        values = [value for value in control.inputs[1:] if value is not None]
        self._read([v for v in values if any(branch.reads(v) for branch in self._branches)])

    def _wanted_results(self) -> list[Value]:
        """Those that are read, and those that have an extent which is known from nothing else."""
        graph, outputs = self._graph, self._control.outputs
        kept = {value for value in outputs if graph.users(value) or graph.is_output(value)}
        needed = self._needed_symbols() if self._own else set()
        for value in sorted(outputs, key=lambda value: value not in kept):
            extents = needed.intersection(value.shape or ())
            if extents:
                kept.add(value)
                needed -= extents
        return [value for value in outputs if value in kept or needed]

    def _needed_symbols(self) -> set[Any]:
        """Symbols that only the `If` tells and that something else rests on."""
        found = {
            symbol
            for check in self._facts.checks
            for symbol in symbols_of(check.left) | symbols_of(check.right)
        }
        found.update(symbols_in(tuple(value.shape for value in self._graph.outputs)))
        for node in self._graph.nodes:
            if node is not self._control:
                found.update(needed_symbols(node))
        return found & self._own


def _fuses(node: Node) -> bool:
    """Whether kernels fuse the operator, and what it reads is something without it."""
    if OPERATORS[node.op].kind not in _FUSED:
        return False
    producers = (value.producer for value in node.inputs if value is not None)
    return not any(producer is not None and producer.op in FOR_PRODUCTS for producer in producers)


def _fusible(branch: _Branch, result: Value) -> bool:
    """Whether kernels compute the result in the branch, or control flow that may take what reads it."""
    made_by = branch.inside[result].producer
    return made_by is None or not made_by.is_call or made_by.op == "control"


def _find_folds(order: Sequence[Node]) -> set[Node]:
    """What is computed from constants alone."""
    folds: set[Node] = set()
    for node in order:
        if node.inputs and all(_is_fixed(value, folds) for value in node.inputs):
            folds.add(node)
    return folds


def _is_fixed(value: Value | None, folds: set[Node]) -> bool:
    return value is None or value.is_constant or value.producer in folds


def _replaced(attr: Any, dims: Mapping[Any, Dim]) -> Any:
    """An attribute with symbols replaced in its dims."""
    if isinstance(attr, tuple | list):
        return tuple(_replaced(part, dims) for part in attr)
    if dims and any(symbol in dims for symbol in symbols_in((attr,))):
        return substitute(attr, dims)
    return attr
