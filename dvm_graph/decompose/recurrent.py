"""`LSTM`, `GRU` and `RNN`: products of all steps with W at once, then turns of what depends on the step before.

In: the operator and its operands. Out: a product of X with W (and the biases that are added to it) for each
direction, and one `control` operator whose body does a step of every direction: products of the states with R, gates,
states. Gates that meet have a product each, of columns for the same hidden values, so that what follows is their epilogue;
those of a GRU that come before another product share one. Constant R is packed once, states stay in memory from step to step, rows of the result are stored
where they belong. A reverse direction reads and stores rows from the last one on. Where it begins with h = 0, the
first step has a body of its own, without the product.

Behind its length, a sequence of a batch keeps its states and gives zeros; the reverse direction comes past that
end first, keeps the initial states meanwhile, and so begins at the last element, as ONNX says.

Elements of the batch have nothing to do with each other. The body has a symbol of its own for their number, so that
each core may take the turns of some of them by itself (`ir.control`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dvm_graph.decompose.arithmetic import scaled, shifted, with_axis, without_axes
from dvm_graph.decompose.control import add_control
from dvm_graph.decompose.operands import operand, required, text
from dvm_graph.decompose.regions import BodyResults, ResultType
from dvm_graph.decompose.registry import Operands, Results, decomposition, find
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, DType, Node, Value, shape_of
from dvm_graph.ir.control import Turns
from dvm_graph.symbolic.builder import Builder

Function = Callable[[Builder, Value], Value]
Times = Callable[[Builder, Value, int, int], Value]
"""A product with weights that are no operands: of rows [..., k], with so many columns from a first one on."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_FUNCTIONS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}
_PARAMETERS: dict[str, tuple[float | None, ...]] = {
    "Affine": (None, None),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (None, None),
    "ThresholdedRelu": (None,),
}
"""Defaults of alpha and beta, of the functions that have them; None: ONNX names none, or onnxruntime takes
another one."""
_PLAIN = ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")
_DIRECTIONS: dict[str, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}


@dataclass(frozen=True, slots=True)
class _Cell:
    """What a step of one direction works with, inside the body."""

    builder: Builder
    node: Node
    hidden: int
    functions: Sequence[Function]
    recurrence: Value
    """[gates * hidden, hidden]"""
    times: Times | None
    """The product with that, where it is not of floats."""
    recurrent_bias: Value | None
    """[gates * hidden], where it is not added to the products with W."""
    peepholes: Sequence[Value | None]
    """[hidden] each"""
    rests: bool
    """The step is the first one, before which h is 0."""

    def gate(self, x: Value, at: int, count: int = 1) -> Value:
        """Columns of gates that lie side by side."""
        return part(self.builder, x, 1, at * self.hidden, count * self.hidden)

    def bounded(self, x: Value) -> Value:
        clip = self.node.attrs.get("clip")
        if not clip:
            return x
        low, high = (self.builder.scalar(limit, x.dtype) for limit in (-clip, clip))
        return self.builder.min(self.builder.max(x, low), high)

    def call(self, which: int, x: Value) -> Value:
        return self.functions[which](self.builder, self.bounded(x))

    def product(self, h: Value, at: int, count: int = 1) -> Value:
        """What such gates take of the states, but for peepholes."""
        if self.rests:
            zero, shape = self.builder.scalar(0, h.dtype), (shape_of(h)[0], count * self.hidden)
            result = self.builder.broadcast_to(zero, shape)
        elif self.times is not None:
            result = self.times(self.builder, h, at * self.hidden, count * self.hidden)
        else:
            result = self.builder.matmul(h, self._weights(at, count))
        if self.recurrent_bias is not None:
            first, columns = at * self.hidden, count * self.hidden
            bias = part(self.builder, self.recurrent_bias, 0, first, columns)
            result = self.builder.add(result, bias)
        return result

    def _weights(self, at: int, count: int) -> Value:
        """[hidden, count * hidden]"""
        first, rows = at * self.hidden, count * self.hidden
        if self.recurrence.data is not None:
            data = self.recurrence.data[first : first + rows]
            gates = self.builder.graph.constant(data, f"{self.recurrence.name}.{at}")
        else:
            gates = part(self.builder, self.recurrence, 0, first, rows)
        return self.builder.transpose(gates, (1, 0))

    def sum(self, x: Value, h: Value, at: int, count: int = 1) -> Value:
        return self.builder.add(self.gate(x, at, count), self.product(h, at, count))


def _lstm(cell: _Cell, x: Value, states: Sequence[Value]) -> list[Value]:
    builder, (h, c) = cell.builder, states
    i, o, f, g = (cell.sum(x, h, at) for at in range(4))
    look_i, look_o, look_f = cell.peepholes
    i = cell.call(0, _looking(builder, i, look_i, c))
    if cell.node.attrs.get("input_forget", 0):
        f = builder.sub(builder.scalar(1, i.dtype), i)
    else:
        f = cell.call(0, _looking(builder, f, look_f, c))
    c = builder.add(builder.mul(f, c), builder.mul(i, cell.call(1, g)))
    o = cell.call(0, _looking(builder, o, look_o, c))
    return [builder.mul(o, cell.functions[2](builder, c)), c]


def _looking(builder: Builder, gate: Value, weights: Value | None, c: Value) -> Value:
    return gate if weights is None else builder.add(gate, builder.mul(weights, c))


def _gru(cell: _Cell, x: Value, states: Sequence[Value]) -> list[Value]:
    builder, (h,) = cell.builder, states
    if cell.node.attrs.get("linear_before_reset", 0):
        z, r = (cell.call(0, cell.sum(x, h, at)) for at in range(2))
        new = builder.add(cell.gate(x, 2), builder.mul(r, cell.product(h, 2)))
    else:
        gates = cell.sum(x, h, 0, 2)
        z, r = (cell.call(0, cell.gate(gates, at)) for at in range(2))
        new = cell.sum(x, builder.mul(r, h), 2)
    new = cell.call(1, new)
    kept = builder.mul(z, builder.sub(h, new))
    return [builder.add(new, kept)]


def _rnn(cell: _Cell, x: Value, states: Sequence[Value]) -> list[Value]:
    return [cell.call(0, cell.sum(x, states[0], 0))]


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}


@dataclass(slots=True)
class _Body:
    """The body while it is built: values around it, and what stands for them inside."""

    builder: Builder
    batch: Dim
    """As the body knows it: a symbol of its own, unless it is 1."""
    states: list[tuple[Value, Value]] = field(default_factory=list)
    rows: list[tuple[Value, Value]] = field(default_factory=list)
    backward: list[bool] = field(default_factory=list)
    captured: dict[Value, Value] = field(default_factory=dict)

    def state(self, initial: Value) -> Value:
        *directions, _, hidden = shape_of(initial)
        self.states.append((initial, self._inside(initial, (*directions, self.batch, hidden))))
        return self.states[-1][1]

    def row(self, scanned: Value, backward: bool) -> Value:
        """Of [steps, batch, ...], or of [steps]."""
        shape = shape_of(scanned)[1:]
        self.backward.append(backward)
        self.rows.append(
            (scanned, self._inside(scanned, (self.batch, *shape[1:]) if shape else ()))
        )
        return self.rows[-1][1]

    def capture(self, value: Value) -> Value:
        """What the body reads as it is; constants it holds itself."""
        if value.is_constant:
            return value
        if value not in self.captured:
            self.captured[value] = self._inside(value, shape_of(value))
        return self.captured[value]

    def per_sequence(self, value: Value) -> Value:
        """As `capture`, of [batch]."""
        if value not in self.captured:
            self.captured[value] = self._inside(value, (self.batch,))
        return self.captured[value]

    def pairs(self) -> list[tuple[Value, Value]]:
        """Operands, and the inputs of the body."""
        return [*self.states, *self.rows, *self.captured.items()]

    def _inside(self, value: Value, shape: Sequence[Dim]) -> Value:
        name = self.builder.graph.unique_name(f"{value.name}.inside")
        return Value(name, value.dtype, tuple(shape))


@decomposition("LSTM", "GRU", "RNN")
def recurrent(builder: Builder, node: Node, operands: Operands) -> Results:
    return turns_of(builder, node, operands)


def turns_of(
    builder: Builder, node: Node, operands: Operands, times: Sequence[tuple[Times, Times]] = ()
) -> Results:
    """An operator as turns. `times`: for each direction, what multiplies by W and by R, where these are of no floats but
    constants in the operands' places.
    """
    operator = _Operator.of(builder, node, operands, times)
    if operator is None:
        return None
    inside = [
        Builder(builder.graph.new_region(node.name), builder.facts.body(), builder.options)
        for _ in range(1 + operator.rests)
    ]
    batch, _ = operator.state_shape
    if batch != 1:
        batch = builder.facts.symbols.fresh(f"{node.name}_batch")
    directions = [_direction(operator, number) for number in range(len(operator.directions))]
    bodies = [_Body(one, batch) for one in inside]
    for body, rests in zip(bodies, (False, True), strict=False):
        _fill(operator, body, directions, rests)
    return _results(operator, bodies)


@dataclass(frozen=True, slots=True)
class _Operator:
    """The operator around the body; X has the steps first."""

    builder: Builder
    node: Node
    operands: Operands
    x: Value
    hidden: int
    directions: Sequence[bool]
    """Whether each goes backward."""
    functions: Sequence[Sequence[Function]]
    times: Sequence[tuple[Times, Times]]
    """As of `turns_of`."""

    @staticmethod
    def of(
        builder: Builder, node: Node, operands: Operands, times: Sequence[tuple[Times, Times]]
    ) -> _Operator | None:
        """None: its operands are not of the shapes that its definition says."""
        x, w, r = (required(node, operands, index) for index in range(3))
        directions = _DIRECTIONS.get(text(node, "direction", "forward"), ())
        functions = _functions(node, len(directions))
        if functions is None or {x.rank, w.rank, r.rank} != {3}:
            return None
        hidden = shape_of(r)[2]
        if not isinstance(hidden, int):
            hidden = int(node.attrs.get("hidden_size", 0))
        if not directions or hidden == 0:
            return None
        if node.attrs.get("layout", 0):
            x = builder.transpose(x, (1, 0, 2))
        operator = _Operator(builder, node, operands, x, hidden, directions, functions, times)
        shapes = operator._wanted_shapes()
        if not operator._takes(shapes):
            return None
        return replace(operator, operands=operator._of_known(shapes))

    def _wanted_shapes(self) -> dict[int, tuple[Dim, ...]]:
        """Of the operands but X, by their places."""
        gates, count = _GATES[self.node.op] * self.hidden, len(self.directions)
        batch, hidden = self.state_shape
        state: tuple[Dim, ...] = (count, batch, hidden)
        if self.node.attrs.get("layout", 0):
            state = (batch, count, hidden)
        return {
            1: (count, gates, shape_of(self.x)[2]),
            2: (count, gates, hidden),
            3: (count, 2 * gates),
            4: (batch,),
            5: state,
            6: state,
            7: (count, 3 * hidden),
        }

    def _takes(self, shapes: Mapping[int, Sequence[Dim]]) -> bool:
        """Takes the operands to have the shapes that the definition says, which runs confirm. False: they have others."""
        facts = self.builder.facts
        pairs: list[tuple[Dim, Dim]] = []
        for index, shape in shapes.items():
            value = operand(self.operands, index)
            if value is not None:
                if value.rank != len(shape):
                    return False
                pairs += zip(shape_of(value), shape, strict=True)
        if any(facts.prove_equal(own, dim).no for own, dim in pairs):
            return False
        for own, dim in pairs:
            facts.assume_equal(
                own, dim, f"operands of {self.node.name} are of its definition's shapes"
            )
        return True

    def _of_known(self, shapes: Mapping[int, Sequence[Dim]]) -> Operands:
        """The operands, weights and biases with the dims that the definition says."""
        return [
            value
            if value is None or index not in (1, 2, 3, 7) or value.shape == shapes[index]
            else self.builder.reshape(value, shapes[index])
            for index, value in enumerate(self.operands)
        ]

    @property
    def steps(self) -> Dim:
        return shape_of(self.x)[0]

    @property
    def state_shape(self) -> tuple[Dim, ...]:
        return (shape_of(self.x)[1], self.hidden)

    def of_direction(self, index: int, number: int) -> Value | None:
        """What an operand that has one for each direction holds for one of them."""
        value = operand(self.operands, index)
        if value is None:
            return None
        if value.data is not None:
            return self.builder.graph.constant(value.data[number], f"{value.name}.{number}")
        return _one(self.builder, value, 0, number)

    def bias(self, number: int) -> tuple[Value | None, Value | None]:
        """What is added to the products with W, and what to those with R."""
        both = self.of_direction(3, number)
        if both is None:
            return None, None
        length = _GATES[self.node.op] * self.hidden
        w, r = (part(self.builder, both, 0, start, length) for start in (0, length))
        if self.node.op == "GRU" and self.node.attrs.get("linear_before_reset", 0):
            return w, r
        return self.builder.add(w, r), None

    @property
    def whole(self) -> bool:
        """There is one direction: states and rows keep the axis of directions, and nothing is copied for it."""
        return len(self.directions) == 1 and not self.node.attrs.get("layout", 0)

    @property
    def rests(self) -> bool:
        """It begins with h = 0, which makes the first product 0: not so by weights that are not finite."""
        h, r = operand(self.operands, 5), operand(self.operands, 2)
        begins = h is None or (h.data is not None and not h.data.any())
        return begins and r is not None and r.data is not None and bool(np.isfinite(r.data).all())

    def initial(self, index: int, number: int) -> Value:
        value = operand(self.operands, index)
        if value is None:
            zero = self.builder.scalar(0, self.x.dtype)
            shape = (1, *self.state_shape) if self.whole else self.state_shape
            return self.builder.broadcast_to(zero, shape)
        if self.whole:
            return value
        return _one(self.builder, value, 1 if self.node.attrs.get("layout", 0) else 0, number)


@dataclass(frozen=True, slots=True)
class _Direction:
    """What the steps of a direction read of around the body."""

    backward: bool
    functions: Sequence[Function]
    projected: Value
    """[steps, batch, gates * hidden]"""
    initial: Sequence[Value]
    recurrence: Value
    times: Times | None
    recurrent_bias: Value | None
    peepholes: Value | None
    lengths: tuple[Value, Value] | None
    """Of sequences, and the number of each step."""


def _direction(operator: _Operator, number: int) -> _Direction:
    builder, lstm = operator.builder, operator.node.op == "LSTM"
    w, r = operator.of_direction(1, number), operator.of_direction(2, number)
    assert w is not None and r is not None
    bias, recurrent_bias = operator.bias(number)
    times = None
    if operator.times:
        of_rows, times = operator.times[number]
        projected = of_rows(builder, operator.x, 0, _GATES[operator.node.op] * operator.hidden)
    else:
        projected = builder.matmul(operator.x, builder.transpose(w, (1, 0)))
    if bias is not None:
        projected = builder.add(projected, bias)
    lengths = operand(operator.operands, 4)
    if lengths is not None:
        steps = builder.iota((operator.steps,))
    return _Direction(
        operator.directions[number],
        operator.functions[number],
        projected,
        [operator.initial(index, number) for index in ((5, 6) if lstm else (5,))],
        r,
        times,
        recurrent_bias,
        operator.of_direction(7, number) if lstm else None,
        None if lengths is None else (builder.cast(lengths, DType.INT64), steps),
    )


def _fill(operator: _Operator, body: _Body, directions: Sequence[_Direction], rests: bool) -> None:
    """A step of all directions, with its inputs and outputs."""
    builder, graph = body.builder, body.builder.graph
    shape: tuple[Dim, ...] = (body.batch, operator.hidden)
    if operator.whole:
        shape = (1, *shape)
    states: list[Value] = []
    rows: list[Value] = []
    with builder.scope(operator.node):
        for direction in directions:
            after, row = _step(operator, body, direction, rests)
            states += after
            rows.append(row)
        graph.outputs = [builder.reshape(value, shape) for value in (*states, *rows)]
    graph.inputs = [inner for _, inner in body.pairs()]
    graph.output_names = tuple(value.name for value in graph.outputs)


def _step(
    operator: _Operator, body: _Body, direction: _Direction, rests: bool
) -> tuple[list[Value], Value]:
    """The states of a direction behind a step, and the row that it gives."""
    node, inside = operator.node, body.builder
    row = body.row(direction.projected, direction.backward)
    shape = (body.batch, operator.hidden)
    before = [inside.reshape(body.state(initial), shape) for initial in direction.initial]
    peepholes: list[Value | None] = [None] * 3
    if direction.peepholes is not None:
        looks = body.capture(direction.peepholes)
        starts = range(0, 3 * operator.hidden, operator.hidden)
        peepholes = [part(inside, looks, 0, start, operator.hidden) for start in starts]
    bias = direction.recurrent_bias
    cell = _Cell(
        inside,
        node,
        operator.hidden,
        direction.functions,
        body.capture(direction.recurrence),
        direction.times,
        None if bias is None else body.capture(bias),
        peepholes,
        rests,
    )
    after = _STEPS[node.op](cell, row, before)
    if direction.lengths is None:
        return after, after[0]
    going = _going(body, *direction.lengths, direction.backward)
    kept = [inside.select(going, new, old) for new, old in zip(after, before, strict=True)]
    return kept, inside.select(going, after[0], inside.scalar(0, row.dtype))


def _going(body: _Body, lengths: Value, steps: Value, backward: bool) -> Value:
    """Whether a step is one of each sequence of the batch: [batch, 1]."""
    inside, count = body.builder, body.per_sequence(lengths)
    goes_on = inside.lt(body.row(steps, backward), count)
    return inside.reshape(goes_on, (body.batch, 1))


def _results(operator: _Operator, bodies: Sequence[_Body]) -> list[Value | None]:
    builder, node, every = operator.builder, operator.node, bodies[0]
    shape, dtype = operator.state_shape, operator.x.dtype
    if operator.whole:
        shape = (1, *shape)
    states = len(every.states)
    types = [ResultType(dtype, shape)] * states
    types += [ResultType(dtype, (operator.steps, *shape))] * len(operator.directions)
    turns = Turns(False, -1, -1, states, tuple(every.backward), tuple(operator.directions))
    results = add_control(
        builder,
        node,
        [outer for outer, _ in every.pairs()],
        [BodyResults(body.builder.graph, body.builder.facts) for body in bodies],
        turns,
        types,
        str(every.batch) if every.batch != 1 else None,
    )
    last, collected = results[:states], results[states:]
    if operator.whole:
        return [*collected, *last]
    each = states // len(collected)
    batch_first = bool(node.attrs.get("layout", 0))
    y = _joined(builder, collected, 1)
    ends = [_joined(builder, last[at::each], 0) for at in range(each)]
    if batch_first:
        y = builder.transpose(y, (2, 0, 1, 3))
        ends = [builder.transpose(end, (1, 0, 2)) for end in ends]
    return [y, *ends]


def _joined(builder: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values of all directions along a new axis."""
    parts = [with_axis(builder, value, axis) for value in values]
    return parts[0] if len(parts) == 1 else builder.concat(parts, axis)


def _one(builder: Builder, value: Value, axis: int, index: int) -> Value:
    """One of an axis, without the axis."""
    return without_axes(builder, part(builder, value, axis, index, 1), (axis,))


def _functions(node: Node, directions: int) -> list[list[Function]] | None:
    """The activation functions of each direction; None: one of them is not defined."""
    defaults = _FUNCTIONS[node.op]
    given = node.attrs.get("activations") or defaults * directions
    names = [name.decode() if isinstance(name, bytes) else name for name in given]
    names = names[: len(defaults) * directions]  # the schema names two for the one of an RNN
    known = {name.lower(): name for name in (*_PARAMETERS, *_PLAIN)}
    if not directions or len(names) != len(defaults) * directions:
        return None
    if any(name.lower() not in known for name in names):
        return None
    alphas, betas = (list(node.attrs.get(f"activation_{n}") or ()) for n in ("alpha", "beta"))
    functions = []
    for name in (known[name.lower()] for name in names):
        defaulted = zip(_PARAMETERS.get(name, ()), (alphas, betas), strict=False)
        parameters = [given.pop(0) if given else default for default, given in defaulted]
        known_parameters = [number for number in parameters if number is not None]
        if len(known_parameters) < len(parameters):
            return None
        functions.append(_function(node, name, known_parameters))
    count = len(defaults)
    return [functions[start : start + count] for start in range(0, len(names), count)]


def _function(node: Node, name: str, parameters: Sequence[float]) -> Function:
    if name == "Affine":
        return lambda builder, x: shifted(builder, scaled(builder, x, parameters[0]), parameters[1])
    if name == "ScaledTanh":
        alpha, beta = parameters
        return lambda builder, x: scaled(builder, builder.tanh(scaled(builder, x, beta)), alpha)
    attrs = dict(zip(("alpha", "beta"), parameters, strict=False))
    call = replace(node, op=name, attrs=attrs)
    function = find(call)
    assert function is not None, name

    def apply(builder: Builder, x: Value) -> Value:
        results = function(builder, call, [x])
        assert results is not None and results[0] is not None
        return results[0]

    return apply
