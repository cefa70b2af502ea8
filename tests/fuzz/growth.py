"""A graph while it grows: values with their shapes in every environment, and what makes new ones.

Invariants: a node is only added where onnx's own shape inference accepts it at the extents of the first
environment, and where onnxruntime has a kernel for its types. Environments in which it is refused are
`dead` from then on. Everything drawn comes from one `random.Random`, so that a graph is a pure function
of its seed.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, defs, helper, numpy_helper, shape_inference

from tests.fuzz.contents import Contents, draw

Array: TypeAlias = np.ndarray[Any, Any]
Shape: TypeAlias = "tuple[int | None, ...]"
"""None: known only when the value is."""

MOST_ELEMENTS = 20_000
"""In one value: larger ones are not grown."""
MOST_RANK = 8
SYMBOLS = ("N", "M", "K", "batch", "seq_len")
EXTENTS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 23, 32, 33)
FIXED = (1, 1, 2, 2, 3, 4, 5, 6, 8, 12, 16)


class RefusedError(Exception):
    """What was drawn does not fit; draw something else."""


@dataclass(frozen=True, slots=True)
class Value:
    name: str
    dtype: int
    """As `onnx.TensorProto` numbers them; 0 for what is no tensor."""
    shapes: tuple[Shape | None, ...]
    """In each environment; None: of unknown rank."""
    data: Array | None = None
    """Of a constant."""
    holds: onnx.TypeProto | None = None
    """The type of what is no tensor."""

    @property
    def shape(self) -> Shape | None:
        return self.shapes[0]

    @property
    def rank(self) -> int:
        if self.shapes[0] is None:
            raise RefusedError
        return len(self.shapes[0])

    @property
    def known(self) -> bool:
        """Whether all extents are known."""
        return all(shape is not None and None not in shape for shape in self.shapes)

    def at(self, axis: int) -> tuple[int, ...]:
        """The extents of an axis in each environment."""
        if not self.known:
            raise RefusedError
        return tuple(int(shape[axis]) for shape in self.shapes)

    def fixed(self, axis: int) -> bool:
        return len(set(self.at(axis))) == 1


@dataclass(frozen=True, slots=True)
class Input:
    """A graph input: how its dims are declared, and what it holds."""

    value: Value
    declared: tuple[int | str | None, ...]
    contents: Contents


@dataclass(slots=True)
class Growth:
    rng: random.Random
    opset: int
    environments: tuple[dict[str, int], ...]
    dtypes: tuple[int, ...]
    """Element types that are preferred."""
    special: bool = False
    """Whether inputs hold NaN, infinities, denormals and ends of integer types."""
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Input] = field(default_factory=dict)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)
    decided: dict[str, onnx.TensorProto] = field(default_factory=dict)
    """What values hold that only runs compute."""
    dead: set[int] = field(default_factory=set)
    depth: int = 0
    """How many regions lie around what grows."""
    numbers: Iterator[int] = field(default_factory=functools.partial(itertools.count, 1))
    """Of names, which no region shares with another."""

    # -- drawing

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def choose(self, options: Sequence[Any]) -> Any:
        if not options:
            raise RefusedError
        return options[self.rng.randrange(len(options))]

    def some(self, options: Sequence[Any], least: int = 0) -> list[Any]:
        """A random subset, in the order of `options`."""
        if len(options) < least:
            raise RefusedError
        kept = [option for option in options if self.chance(0.5)]
        return kept if len(kept) >= least else sorted(self.rng.sample(list(options), least))

    def name(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers)}"

    # -- values from outside

    def dim(self) -> tuple[int | str | None, tuple[int, ...]]:
        """A new dim of an input: how it is declared, and its extents."""
        kind = self.rng.random()
        if kind < 0.3:
            extent = self.choose(FIXED)
            return extent, (extent,) * len(self.environments)
        symbol = self.choose(SYMBOLS)
        extents = tuple(environment[symbol] for environment in self.environments)
        if kind < 0.85:
            return symbol, extents
        if kind < 0.99:
            return None, extents
        text, of = self.choose(_EXPRESSIONS)
        return text.format(symbol), tuple(of(extent) for extent in extents)

    def declare(self, extents: Sequence[int]) -> int | str | None:
        """One of the ways to declare a dim with these extents."""
        ways: list[int | str | None] = [
            symbol
            for symbol in SYMBOLS
            if all(e[symbol] == x for e, x in zip(self.environments, extents, strict=True))
        ]
        if len(set(extents)) == 1:
            ways += [extents[0], extents[0]]
        return self.choose(ways) if ways and self.chance(0.9) else None

    def fresh(
        self, dtype: int, shapes: Sequence[Shape] | None = None, contents: Contents | None = None
    ) -> Value:
        """A new input or constant, of these shapes or of any."""
        contents = contents or Contents(special=self.special)
        declared: tuple[int | str | None, ...]
        if shapes is None:
            rank = self.choose((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8))
            dims = [self.dim() for _ in range(rank)]
            while math.prod(max(extents) for _, extents in dims) > MOST_ELEMENTS:
                dims.pop()
            declared = tuple(way for way, _ in dims)
            shapes = tuple(zip(*(e for _, e in dims), strict=True)) or ((),) * self.breadth
        else:
            shapes = tuple(tuple(shape) for shape in shapes)
            if any(None in shape for shape in shapes):
                raise RefusedError
            declared = tuple(self.declare(e) for e in zip(*shapes, strict=True))
        if any(math.prod(shape) > MOST_ELEMENTS for shape in shapes):
            raise RefusedError
        if len(set(shapes)) == 1 and contents.same and self.chance(0.45):
            return self.constant(draw(self.numpy_seed(), dtype, shapes[0], contents, 0))
        value = Value(self.name("x"), dtype, tuple(shapes))
        self.inputs[value.name] = Input(value, declared, contents)
        self.values.append(value)
        return value

    @property
    def breadth(self) -> int:
        return len(self.environments)

    def numpy_seed(self) -> int:
        return self.rng.getrandbits(32)

    def constant(self, array: Array) -> Value:
        tensor = numpy_helper.from_array(np.asarray(array), self.name("c"))
        self.constants[tensor.name] = tensor
        shapes = (tuple(array.shape),) * self.breadth
        return Value(tensor.name, tensor.data_type, shapes, np.asarray(array))

    def integers(self, numbers: Any, dtype: Any = np.int64) -> Value:
        return self.constant(np.array(numbers, dtype))

    def extents(self, numbers: Any, dtype: Any = np.int64) -> Value:
        """Integers that decide shapes: a constant, or computed in the run, of an input that holds zeros."""
        known = self.integers(numbers, dtype)
        if self.chance(0.7):
            return known
        zeros = Contents(low=(0,) * self.breadth, high=(1,) * self.breadth)
        value = self.emit("Add", [known, self.fresh(known.dtype, known.shapes, zeros)])
        self.decided[value.name] = self.constants[known.name]
        return value

    # -- values there are

    def pick(
        self,
        dtypes: Sequence[int],
        fits: Callable[[Value], bool] = lambda value: True,
        new: float = 0.15,
    ) -> Value:
        """A value of one of these types that fits, rather a late one, or a fresh one that does."""
        fitting = [v for v in self.values if v.dtype in dtypes and v.known and fits(v)]
        if fitting and not self.chance(new):
            if self.chance(0.6):
                return fitting[-1 - min(self.rng.randrange(3), len(fitting) - 1)]
            return self.choose(fitting)
        preferred = [d for d in self.dtypes if d in dtypes] or list(dtypes)
        for _ in range(4):
            value = self.fresh(self.choose(preferred))
            if fits(value):
                return value
        raise RefusedError

    def ranked(
        self, dtypes: Sequence[int], low: int, high: int = MOST_RANK, new: float = 0.15
    ) -> Value:
        """A value of a rank in a range, where need be by a view of one of another rank."""
        value = self.pick(dtypes, new=new)
        if self.chance(0.35):
            value = self.view(value)
        if value.rank < low:
            return self.raise_rank(value, self.rng.randint(low, min(high, low + 1)))
        if value.rank > high:
            return self.lower_rank(value, self.rng.randint(low, high))
        return value

    def raise_rank(self, value: Value, rank: int) -> Value:
        axes = sorted(self.rng.sample(range(rank), rank - value.rank))
        return self.emit("Unsqueeze", [value], params={"axes": axes})

    def lower_rank(self, value: Value, rank: int) -> Value:
        if rank == 0:
            return self.emit("ReduceMax", [value], {"keepdims": 0})
        drop = value.rank - rank
        at = self.rng.randint(0, rank - 1)  # the axes from here to at + drop become one
        target = [0] * at + [-1]
        tail = range(at + drop + 1, value.rank)
        if not all(value.fixed(axis) for axis in tail):
            raise RefusedError
        target += [value.at(axis)[0] for axis in tail]
        return self.emit("Reshape", [value], params={"shape": target})

    def view(self, value: Value) -> Value:
        from tests.fuzz.recipes_views import view

        return view(self, value)

    def partner(self, value: Value, new: float = 0.4) -> Value:
        """A value of the same type that broadcasts with this one."""
        fitting = [
            v
            for v in self.values
            if v.dtype == value.dtype and v.known and _broadcasts(v.shapes, value.shapes)
        ]
        if fitting and not self.chance(new):
            return self.choose(fitting)
        return self.fresh(value.dtype, self.part(value.shapes))

    def part(self, shapes: Sequence[Shape | None]) -> list[Shape]:
        """Shapes that broadcast with these: some dims 1, some leading ones left out."""
        first = shapes[0]
        if first is None or None in shapes:
            raise RefusedError
        kept = [self.chance(0.7) for _ in first]
        leave = self.rng.randint(0, len(first)) if self.chance(0.4) else 0
        return [
            tuple(d if k else 1 for d, k in zip(shape, kept, strict=True))[leave:]
            for shape in shapes
        ]

    # -- nodes

    def emit(
        self,
        op: str,
        operands: Sequence[Value | None],
        attributes: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        outputs: int | None = None,
        hide: Sequence[int] = (),
    ) -> Value:
        """Adds a node; the first of its results.

        `params` are what older versions have as attributes and newer ones as inputs.
        `hide` are outputs that are left out.
        """
        return self.emit_all(op, operands, attributes, params, outputs, hide)[0]

    def emit_all(
        self,
        op: str,
        operands: Sequence[Value | None],
        attributes: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        outputs: int | None = None,
        hide: Sequence[int] = (),
    ) -> list[Value]:
        schema = find_schema(op, self.opset)
        bound: list[Value | None] = list(operands)
        attributes = {k: v for k, v in (attributes or {}).items() if v is not None}
        names = [parameter.name for parameter in schema.inputs]
        for name, given in (params or {}).items():
            if given is None:
                continue
            if name in schema.attributes:
                attributes[name] = given.data.tolist() if isinstance(given, Value) else given
            elif name in names:
                place = names.index(name)
                bound += [None] * (place + 1 - len(bound))
                bound[place] = given if isinstance(given, Value) else self.integers(given)
            else:
                raise RefusedError
        while bound and bound[-1] is None:
            bound.pop()
        attributes = {k: v for k, v in attributes.items() if k in schema.attributes}
        count = schema.min_output if outputs is None else outputs
        results = ["" if i in hide else self.name("v") for i in range(max(1, count))]
        node = helper.make_node(
            op,
            [v.name if v else "" for v in bound],
            results,
            name=f"{op}_{results[0]}",
            **attributes,
        )
        made = self._infer(schema, node, [v for v in bound if v is not None])
        if not supported(node, tuple(v.dtype if v else 0 for v in bound), self.opset):
            raise RefusedError
        self.nodes.append(node)
        values = [Value(n, made[n][0], made[n][1]) for n in results if n]
        self.values += [v for v in values if v.dtype]
        return values

    def add(
        self,
        op: str,
        operands: Sequence[Value | None],
        results: Sequence[tuple[int, Sequence[Shape | None]] | None],
        attributes: dict[str, Any] | None = None,
        domain: str = "",
    ) -> list[Value]:
        """Adds a node whose results are known, of types and shapes that onnx's inference does not tell.

        None stands for a result that is left out.
        """
        given = attributes or {}
        if not domain:
            known = find_schema(op, self.opset).attributes
            given = {k: v for k, v in given.items() if k in known}
        made = [r and Value(self.name("v"), r[0], tuple(r[1])) for r in results]
        values = [v for v in made if v]
        names = [v.name if v else "" for v in made]
        read = [v.name if v else "" for v in operands]
        while read and not read[-1]:
            read.pop()
        kept = {k: v for k, v in given.items() if v is not None}
        node = helper.make_node(op, read, names, f"{op}_{names[0]}", domain=domain, **kept)
        self.nodes.append(node)
        self.values += [v for v in values if v.dtype]
        return values

    def inside(self) -> Growth:
        """What grows in a region of a node: it sees all values there are, and inputs are shared."""
        return replace(self, values=list(self.values), nodes=[], depth=self.depth + 1)

    def _infer(
        self, schema: defs.OpSchema, node: onnx.NodeProto, operands: Sequence[Value]
    ) -> dict[str, tuple[int, tuple[Shape | None, ...]]]:
        """The types of the results, and their shapes in every environment."""
        told = {**self.decided, **self.constants}
        data = {v.name: told[v.name] for v in operands if v.name in told}
        imports = [helper.make_opsetid("", self.opset)]
        found: list[dict[str, onnx.TypeProto]] = []
        seen: dict[Any, dict[str, onnx.TypeProto]] = {}
        for index in range(self.breadth):
            key = tuple(v.shapes[index] for v in operands)
            if key not in seen:
                types = {
                    v.name: helper.make_tensor_type_proto(v.dtype, v.shapes[index])
                    for v in operands
                }
                try:
                    seen[key] = shape_inference.infer_node_outputs(
                        schema, node, types, data, opset_imports=imports
                    )
                except Exception as error:  # onnx raises several kinds
                    if index == 0:
                        raise RefusedError from error
                    self.dead.add(index)
                    seen[key] = seen[tuple(v.shapes[0] for v in operands)]
            found.append(seen[key])
        result = {}
        for name in filter(None, node.output):
            first = found[0].get(name)
            dtype = first.tensor_type.elem_type if first and first.HasField("tensor_type") else 0
            shapes = tuple(_shape(types.get(name)) for types in found)
            if len({None if s is None else len(s) for s in shapes}) > 1:
                shapes = (None,) * self.breadth
            for shape in shapes:
                if shape is not None and (
                    math.prod(d or 1 for d in shape) > MOST_ELEMENTS
                    or len(shape) > MOST_RANK
                    or min((d or 0 for d in shape), default=0) < 0
                ):
                    raise RefusedError
            result[name] = (dtype, shapes)
        return result


_EXPRESSIONS: tuple[tuple[str, Callable[[int], int]], ...] = (
    ("2*{}", lambda n: 2 * n),
    ("{} + 1", lambda n: n + 1),
    ("{0}*{0}", lambda n: n * n),
    ("{}//2", lambda n: n // 2),
)


def _broadcasts(left: Sequence[Shape | None], right: Sequence[Shape | None]) -> bool:
    return all(
        a in (b, 1) or b == 1
        for one, other in zip(left, right, strict=True)
        for a, b in zip(reversed(one or ()), reversed(other or ()), strict=False)
    )


def names_read(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, those of the values around its regions included."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from names_read(inner)
        if attribute.HasField("g"):
            yield from (value.name for value in attribute.g.output)


def _shape(type_: onnx.TypeProto | None) -> Shape | None:
    if (
        type_ is None
        or not type_.HasField("tensor_type")
        or not type_.tensor_type.HasField("shape")
    ):
        return None
    return tuple(
        d.dim_value if d.HasField("dim_value") else None for d in type_.tensor_type.shape.dim
    )


@functools.cache
def find_schema(op: str, opset: int) -> defs.OpSchema:
    """What an operator is at an opset.

    Raises:
        RefusedError: there is none, or it is deprecated.
    """
    try:
        schema = defs.get_schema(op, opset, "")
    except defs.SchemaError as error:
        raise RefusedError from error
    if schema.deprecated:
        raise RefusedError
    return schema


_SUPPORTED: dict[Any, bool] = {}


def supported(node: onnx.NodeProto, dtypes: tuple[int, ...], opset: int) -> bool:
    """Whether onnxruntime has a kernel for a node with operands of these types."""
    attributes = tuple((a.name, a.i) for a in node.attribute if a.name in ("to", "dtype"))
    key = (node.op_type, dtypes, opset, len(node.output), attributes)
    if key not in _SUPPORTED:
        _SUPPORTED[key] = _has_kernel(node, dtypes, opset)
    return _SUPPORTED[key]


def _has_kernel(node: onnx.NodeProto, dtypes: tuple[int, ...], opset: int) -> bool:
    types = {n: d for n, d in zip(node.input, dtypes, strict=True) if n}
    inputs = [helper.make_tensor_value_info(n, d, None) for n, d in types.items()]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
    graph = helper.make_graph([node], "probe", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    try:
        ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        return "NOT_IMPLEMENTED" not in str(
            error
        ) and "Could not find an implementation" not in str(error)
    return True


FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)
INTEGERS = (
    *(TensorProto.INT64, TensorProto.INT32, TensorProto.INT16, TensorProto.INT8),
    *(TensorProto.UINT64, TensorProto.UINT32, TensorProto.UINT16, TensorProto.UINT8),
)
DTYPES = (*FLOATS, *INTEGERS, TensorProto.BOOL)
