"""What control-flow operators give, deduced from their bodies, and their bodies as they were decomposed for it.

In: an If, Loop or Scan, its operands, and a way to decompose a body for operands of given
types. Out: a type per result, without a shape where the rank is not known; then kernels can go on
behind the operator. And the bodies as graphs of basic operators for the types that hold at every turn, to be
compiled (`decompose.control`).

What a Loop or Scan carries from turn to turn keeps its shape by induction: if the body gives operands
of the initial shape results of that shape, then any number of turns does, none included. Extents that
may change are unknown from then on, and the body is looked at again. A state that the body hands on as it is
stays what it was at first: the body reads that, a constant as such. What a body assumes of dims holds
where it ran; none of it leaves this module, nor do dims that only a body knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dvm_graph.ir import Dim, DType, Graph, Holding, Node, Shape, Value
from dvm_graph.symbolic import Facts
from dvm_graph.symbolic.dims import symbols_of
from dvm_graph.symbolic.holdings import as_optional_as, in_terms_of, joined

_MOST_ROUNDS = 8
"""How often a body is looked at before the shapes that it carries count as unknown."""

Operands = Sequence["Value | None"]


@dataclass(frozen=True, slots=True)
class BodyResults:
    """What a body was decomposed to, and what holds where it has run."""

    graph: Graph
    facts: Facts

    @property
    def values(self) -> Sequence[Value]:
        return self.graph.outputs


Deduce = Callable[[Graph, Operands], "BodyResults | None"]


@dataclass(frozen=True, slots=True)
class ResultType:
    dtype: DType = DType.OPAQUE
    shape: Shape | None = None
    holds: Holding | None = None

    @property
    def native(self) -> bool:
        """As of values."""
        known = self.shape is not None and self.dtype is not DType.OPAQUE
        return known or self.holds is not None

    @property
    def of_open_rank(self) -> bool:
        """A tensor that nobody reads before the run tells its rank."""
        return self.shape is None and self.dtype not in (DType.OPAQUE, DType.BFLOAT16)


@dataclass(frozen=True, slots=True)
class Deduced:
    """What is known of a control-flow operator."""

    types: Sequence[ResultType] = ()
    """Of its results, whoever runs it."""
    bodies: Sequence[BodyResults] = ()
    """For the types that hold at every turn; none where they are not known."""
    collected: Sequence[ResultType] = ()
    """Types of what is collected along the first axis, over no turns too, if the bodies are compiled."""
    unchanged: frozenset[int] = frozenset()
    """Which states of a Loop or Scan no turn changes: the first is 0."""


_NOTHING = Deduced()


def deduce_control(node: Node, operands: Operands, facts: Facts, deduce: Deduce) -> Deduced:
    """The types of the results of a control-flow operator, as far as its bodies tell them."""
    rule = {"If": _of_if, "Loop": _of_loop, "Scan": _of_scan}.get(node.op)
    if rule is None or node.domain:
        return _NOTHING
    return rule(_Site(node, operands, facts, deduce))


class _Site:
    """A control-flow operator, its operands apart from the values that its bodies capture."""

    def __init__(self, node: Node, operands: Operands, facts: Facts, deduce: Deduce) -> None:
        own = node.own_operands
        self.node = node
        self.operands, self._captured = operands[:own], operands[own:]
        self.facts = facts
        self._deduce = deduce
        self._outside = set(facts.symbols.order)

    def unchanged(self, states: int, given: int, skipped: int) -> frozenset[int]:
        """Which of so many states the body hands on as they are.

        They are its operands behind `given` others, and its results behind `skipped` others.
        """
        (region,) = self.node.regions
        pairs = zip(region.inputs[given:][:states], region.outputs[skipped:], strict=False)
        return frozenset(at for at, (state, after) in enumerate(pairs) if _passed(after) is state)

    def deduce(self, region: Graph, operands: Operands) -> BodyResults | None:
        return self._deduce(region, (*operands, *self._captured))

    def fresh(self) -> Dim:
        return self.facts.symbols.fresh(f"{self.node.name}_dim")

    def outside(self, shape: Shape) -> Shape:
        """A shape without dims that only a body knows."""
        return tuple(d if symbols_of(d) <= self._outside else self.fresh() for d in shape)

    def carried(
        self,
        states: Operands,
        unchanged: frozenset[int],
        given: Callable[[Operands], Operands],
        skipped: int,
    ) -> tuple[list[ResultType], Sequence[Value], BodyResults] | None:
        """The types of states after any number of turns, the body's results behind them, and the body.

        `given` makes the body's operands of the states; `skipped` results come before theirs.
        """
        (region,) = self.node.regions
        types = [ResultType() if state is None else _type_of(state) for state in states]
        for _ in range(_MOST_ROUNDS):
            turn = [
                state if at in unchanged else _as(state, type_)
                for at, (state, type_) in enumerate(zip(states, types, strict=True))
            ]
            body = self.deduce(region, given(turn))
            if body is None:
                return None
            results = body.values[skipped:]
            if len(results) < len(types):
                return None  # a model that is wrong: the vendor library says so
            after = [
                ResultType(
                    type_.dtype,
                    self._widened(type_.shape, result.shape, body.facts),
                    self.alike(type_.holds, result.holds, body.facts),
                )
                for type_, result in zip(types, results, strict=False)
            ]
            if after == types:
                last = [
                    ResultType(
                        result.dtype,
                        None if type_.shape is None else self.outside(type_.shape),
                        as_optional_as(type_.holds, result.holds),
                    )
                    for type_, result in zip(types, results, strict=False)
                ]
                return last, results[len(types) :], body
            types = after
        return None

    def alike(self, a: Holding | None, b: Holding | None, facts: Facts) -> Holding | None:
        """What holds of both, without dims that only a body knows."""
        return in_terms_of(joined(a, b, facts), lambda dim: symbols_of(dim) <= self._outside)

    def collected(self, shape: Shape | None, turns: Dim) -> Shape | None:
        """The shape of what is collected of rows; over no turns, what is not known is made up."""
        if shape is None:
            return None
        return (turns, *(dim if isinstance(dim, int) else self.fresh() for dim in shape))

    def _widened(self, before: Shape | None, after: Shape | None, facts: Facts) -> Shape | None:
        if before is None or after is None or len(before) != len(after):
            return None
        pairs = zip(before, after, strict=True)
        return tuple(self._widened_dim(a, b, facts) for a, b in pairs)

    def _widened_dim(self, before: Dim, after: Dim, facts: Facts) -> Dim:
        if facts.same(before, after) or not symbols_of(before) <= self._outside:
            return before
        return self.fresh()


def _of_if(site: _Site) -> Deduced:
    deduced = [site.deduce(region, ()) for region in site.node.regions]
    branches = [branch for branch in deduced if branch is not None]
    if len(branches) != 2:
        return _NOTHING
    types = []
    for then, other in zip(*(branch.values for branch in branches), strict=False):
        shape: Shape | None = None
        if then.shape is not None and other.shape is not None and then.rank == other.rank:
            pairs = zip(then.shape, other.shape, strict=True)
            shape = site.outside(tuple(a if a == b else site.fresh() for a, b in pairs))
        dtype = then.dtype if then.dtype is other.dtype else DType.OPAQUE
        types.append(ResultType(dtype, shape, site.alike(then.holds, other.holds, site.facts)))
    return Deduced(types, branches)


def _of_loop(site: _Site) -> Deduced:
    (region,) = site.node.regions
    counters = [
        Value("", dtype, () if declared.shape is None else declared.shape)
        for declared, dtype in zip(region.inputs, (DType.INT64, DType.BOOL), strict=False)
    ]
    carried = site.operands[2:]
    unchanged = site.unchanged(len(carried), len(counters), 1)
    found = site.carried(carried, unchanged, lambda states: (*counters, *states), 1)
    if found is None:
        return _NOTHING
    states, collected, body = found
    # What is collected over no turns has the shape that the vendor library makes up.
    types = [*states, *(ResultType(value.dtype) for value in collected)]
    turns = site.fresh() if collected else 0
    whole = [ResultType(value.dtype, site.collected(value.shape, turns)) for value in collected]
    return Deduced(types, [body], whole, unchanged)


def _of_scan(site: _Site) -> Deduced:
    attrs = site.node.attrs
    count = attrs.get("num_scan_inputs", 0)
    if site.node.version < 9 or not 0 < count <= len(site.operands):
        return _NOTHING
    states, scanned = site.operands[:-count], site.operands[-count:]
    axes = attrs.get("scan_input_axes") or (0,) * count
    if any(v is None or v.shape is None or not -v.rank <= a < v.rank
           for v, a in zip(scanned, axes, strict=True)):  # fmt: skip
        return _NOTHING
    slices = [
        Value("", v.dtype, _without(v.shape, axis), opaque_type=v.opaque_type)
        for v, axis in zip(scanned, axes, strict=True)
        if v
    ]
    unchanged = site.unchanged(len(states), 0, 0)
    found = site.carried(states, unchanged, lambda turn: (*turn, *slices), 0)
    if found is None:
        return _NOTHING
    first = scanned[0]
    assert first is not None and first.shape is not None
    turns = first.shape[axes[0]]
    types, collected, body = found
    rows = [ResultType(value.dtype, site.collected(value.shape, turns)) for value in collected]
    where = attrs.get("scan_output_axes") or (0,) * len(collected)
    for row, axis in zip(rows, where, strict=False):
        types.append(ResultType(row.dtype, _with_first_at(row.shape, axis)))
    return Deduced(types, [body], rows, unchanged)


def _passed(value: Value) -> Value:
    """What a value of a body is, whatever number of times it was handed on."""
    while (node := value.producer) is not None and node.op == "Identity" and not node.domain:
        value = node.required(0)
    return value


def _type_of(value: Value) -> ResultType:
    return ResultType(value.dtype, value.shape, value.holds)


def _as(value: Value | None, type_: ResultType) -> Value | None:
    """A value of another shape, or holding others; which it holds is not known."""
    if value is None:
        return None
    return Value("", value.dtype, type_.shape, opaque_type=value.opaque_type, holds=type_.holds)


def _with_first_at(shape: Shape | None, axis: int) -> Shape | None:
    if shape is None:
        return None
    first, inner = shape[0], shape[1:]
    at = axis % len(shape)
    return (*inner[:at], first, *inner[at:])


def _without(shape: Shape | None, axis: int) -> Shape:
    assert shape is not None
    axis %= len(shape)
    return (*shape[:axis], *shape[axis + 1 :])
