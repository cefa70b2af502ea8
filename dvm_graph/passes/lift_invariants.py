"""Moves what turns of a loop compute alike out of them.

    Requires: basic operators with shapes, constants folded. Ensures: no body of a Loop or Scan computes what costs more than
    to be read, from values of around it and constants alone; but for what branches compute, and control flow, or operators
    that the host carries out.

    h = loop {h * (w @ m)}  =>  h = loop {h * k} with the prelude {k = w @ m}

Where there certainly is a turn, such operators come to stand before the loop, and may go on from there. Others are a *prelude*
(`ir.control`), a body that runs before the first turn if there is one: a loop that takes none computes nothing, refuses
nothing and needs no memory that it did not before. Whatever fails in a prelude would have failed in the first turn.

What costs more: products, reductions, gathers, windows, copies (concats, and views that no strides tell) and functions that
units work out by many instructions; and element-wise operators whose readers take nothing from registers. With these goes what
they rest on, and what the body assumes of the extents around it. What rests on what is moved element by element follows as long
as that is no larger: it is read instead. Everything else stays, views and broadcasts above all: it fuses with what reads it;
functions of broadcasts, too, which may be larger than all that turns read: rows times columns, which a kernel sums up as they
come, may be more than there is memory for. What is moved and cheap is computed anew for those that stay.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.errors import ShapeError
from dvm_graph.ir import (
    FOR_PRODUCTS,
    FUNCTIONS,
    OPERATORS,
    Graph,
    Kind,
    Node,
    Value,
    with_what_they_rest_on,
)
from dvm_graph.ir.control import captures
from dvm_graph.passes.absorb_views import StridedViews
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.binders import symbols_in
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product

_COSTLY = frozenset({Kind.MATRIX, Kind.REDUCE, Kind.GATHER, Kind.WINDOW})


def lift_invariants(graph: Graph, facts: Facts) -> bool:
    """True if an operator was moved. Bodies inside bodies come first: what leaves them may go on."""
    changed = False
    for node in graph.sorted_nodes():
        for body in node.bodies:
            changed |= lift_invariants(body, facts.bodies[body])
        if node.op == "control" and node.attrs["turns"] is not None and len(node.bodies) == 1:
            changed |= _Lifting(graph, node, facts).run()
    return changed


class _Lifting:
    """A loop and the graph around it."""

    def __init__(self, graph: Graph, control: Node, facts: Facts) -> None:
        self._graph, self._control, self._facts = graph, control, facts
        self._body = control.bodies[0]
        self._first, self._first_inside = captures(control.attrs["turns"])
        pairs = zip(
            control.inputs[self._first :], self._body.inputs[self._first_inside :], strict=True
        )
        self._around = {inner: outer for outer, inner in pairs if outer is not None}
        """What stands around for values that the body reads there."""
        self._fixed: set[Node] = set()
        """What constants alone make: for `fold_constants` to see to."""
        self._invariant = self._find_invariant()

    def run(self) -> bool:
        """True if an operator was moved."""
        worth = self._worth_keeping()
        needed = with_what_they_rest_on(worth)
        moved = {node: None for node in self._invariant if node in needed}
        body, leaving = self._body, []
        for node in moved:
            users = body.users(node.output)
            if node in worth and (body.is_output(node.output) or not users <= moved.keys()):
                leaving.append(node.output)
        if not leaving or self._control.attrs.get("strands") is not None:
            return False
        lift = self._before_the_loop if self._turns_for_sure() else self._into_prelude
        if not lift(list(moved), leaving):
            return False
        for node in reversed(moved):
            if not body.users(node.output) and not body.is_output(node.output):
                body.remove(node)
        self._leave_out_unread()
        return True

    def _find_invariant(self) -> dict[Node, None]:
        """Operators of the body whose results are the same in each turn, in order."""
        known = self._known_symbols()
        found: dict[Node, None] = {}
        for node in self._body.sorted_nodes():
            operands = [value for value in node.inputs if value is not None]
            if node.is_call or not all(
                v.is_constant or v in self._around or v.producer in found for v in operands
            ):
                continue
            dims = (*node.attrs.values(), *(value.shape for value in node.outputs))
            if not known.issuperset(symbols_in(dims)):
                continue
            found[node] = None
            if all(v.is_constant or v.producer in self._fixed for v in operands) and not any(
                symbols_in(dims)
            ):
                self._fixed.add(node)
        return found

    def _known_symbols(self) -> set[object]:
        """Symbols that mean something in front of the loop; those of states that grow do not."""
        given = [*self._graph.inputs, *(v for v in self._control.inputs if v is not None)]
        shapes = tuple(value.shape for value in given if value.computable)
        return {*symbols_in(shapes), *self._facts.outside}

    # -- what is worth it

    def _worth_keeping(self) -> set[Node]:
        """What is moved not only for others that are."""
        views = StridedViews(self._facts.bodies[self._body])
        worth: set[Node] = set()
        for node in self._invariant:
            copies = OPERATORS[node.op].kind is Kind.VIEW and views.of(node) is None
            if node in self._fixed or node.op in FOR_PRODUCTS:
                continue
            costly = OPERATORS[node.op].kind in _COSTLY or copies or self._is_function(node)
            if costly or self._is_stored(node) or self._follows(node, worth):
                worth.add(node)
        return worth

    def _is_function(self, node: Node) -> bool:
        """Whether it takes long to compute, and is of known size or at most as large as something that turns read."""
        if node.op not in FUNCTIONS:
            return False
        size, facts = product(node.output.shape or ()), self._facts.bodies[self._body]
        if isinstance(size, int):
            return size > 1
        return any(
            facts.prove_less_equal(size, product(value.shape)).yes
            for value in self._body.inputs
            if value.shape is not None
        )

    def _is_stored(self, node: Node) -> bool:
        """Whether it computes element by element what a reader finds in memory only."""
        if OPERATORS[node.op].kind is not Kind.MAP:
            return False
        pending, seen = [node.output], {node.output}
        while pending:
            value = pending.pop()
            for user in self._body.users(value):
                if any(v is value and _from_memory(user, at) for at, v in enumerate(user.inputs)):
                    return True
                if OPERATORS[user.op].kind is Kind.VIEW and user.output not in seen:
                    seen.add(user.output)
                    pending.append(user.output)
        return False

    def _follows(self, node: Node, worth: set[Node]) -> bool:
        """Whether it is computed element by element of one that is moved, and no larger."""
        result = node.output
        return OPERATORS[node.op].kind is Kind.MAP and any(
            v is not None
            and v.producer in worth
            and v.shape == result.shape
            and v.dtype.itemsize >= result.dtype.itemsize
            for v in node.inputs
        )

    # -- where it goes

    def _turns_for_sure(self) -> bool:
        turns, inputs = self._control.attrs["turns"], self._control.inputs
        if not turns.counted:
            return any(
                self._facts.prove_less_equal(1, value.shape[0]).yes
                for value in inputs[turns.states :][: len(turns.scanned)]
                if value is not None and value.shape
            )
        most = inputs[turns.most_turns] if turns.most_turns >= 0 else None
        begins = inputs[turns.goes_on] if turns.goes_on >= 0 else None
        if begins is not None and (begins.data is None or not begins.data.all()):
            return False
        if most is None or most.elements is None:
            return most is None
        return len(most.elements) == 1 and self._facts.prove_less_equal(1, most.elements[0]).yes

    def _before_the_loop(self, nodes: Sequence[Node], leaving: Sequence[Value]) -> bool:
        known = dict(self._around)
        for value in dict.fromkeys(value for node in nodes for value in node.inputs):
            if value is not None and value.is_constant:
                known[value] = self._graph.taken_over(value, self._body)
        made = self._build(nodes, self._graph, self._facts, known)
        if made is None:
            return False
        control = self._control
        self._graph.set_inputs(control, (*control.inputs, *(made[value] for value in leaving)))
        self._read_instead(leaving)
        return True

    def _into_prelude(self, nodes: Sequence[Node], leaving: Sequence[Value]) -> bool:
        prelude, facts = self._body.scratch(), self._facts.body()
        prelude.name = f"{self._body.name}.prelude"
        given = {
            inner: Value(
                prelude.unique_name(outer.name),
                outer.dtype,
                outer.shape,
                elements=outer.elements,
                opaque_type=outer.opaque_type,
                holds=outer.holds,
            )
            for inner, outer in self._around.items()
        }
        prelude.inputs = list(given.values())
        made = self._build(nodes, prelude, facts, given)
        if made is None:
            return False
        prelude.outputs = [made[value] for value in leaving]
        prelude.output_names = tuple(value.name for value in prelude.outputs)
        self._facts.bodies[prelude] = facts
        control = self._control
        control.bodies = (self._body, prelude)
        control.attrs["turns"] = control.attrs["turns"]._replace(kept=len(leaving))
        self._read_instead(leaving)
        return True

    def _build(
        self, nodes: Sequence[Node], graph: Graph, facts: Facts, known: dict[Value, Value]
    ) -> dict[Value, Value] | None:
        """The results of the operators in a graph, by those in the body; None: they do not fit there."""
        mark, builder = len(graph), Builder(graph, facts)
        demanded = self._facts.bodies[self._body].checks
        try:
            facts.branch().assume_all(demanded, self._known_symbols())
            facts.assume_all(demanded, self._known_symbols())
            for node in nodes:
                operands = [known.get(v, v) for v in node.inputs if v is not None]
                with builder.scope(node):
                    known[node.output] = builder.op(node.op, *operands, **node.attrs)
        except ShapeError:  # the run says so, if it comes to a turn
            graph.take_back(mark)
            return None
        around = self._body.onnx_operators
        names = (name for node in nodes for name in node.origin)
        graph.onnx_operators |= {name: around[name] for name in names if name in around}
        return known

    def _read_instead(self, leaving: Sequence[Value]) -> None:
        """Has the body read these results of its own."""
        body = self._body
        for value in leaving:
            name = body.unique_name(value.name)
            read = Value(name, value.dtype, value.shape, elements=value.elements)
            body.inputs.append(read)
            body.replace_uses(value, read)

    def _leave_out_unread(self) -> None:
        """What no body reads of around any more."""
        control, first, inside = self._control, self._first, self._first_inside
        starts = (inside, 0)
        unread = {
            at
            for at in range(len(control.inputs) - first)
            if not any(
                body.is_output(body.inputs[start + at]) or body.users(body.inputs[start + at])
                for body, start in zip(control.bodies, starts, strict=False)
            )
        }
        for body, start in zip(control.bodies, starts, strict=False):
            body.inputs = [v for at, v in enumerate(body.inputs) if at - start not in unread]
        self._graph.set_inputs(
            control, [v for at, v in enumerate(control.inputs) if at - first not in unread]
        )


def _from_memory(user: Node, index: int) -> bool:
    """Whether an operand is read from memory only."""
    if user.op == "matmul":
        return index == 1
    return (
        (user.op == "gather" and index == 0)
        or OPERATORS[user.op].kind is Kind.WINDOW
        or (user.op == "control" and user.attrs["turns"] is not None)
    )
