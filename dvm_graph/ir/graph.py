"""The graph: operators over tensor values.

Purpose: the one data structure of the compiler, from import to the kernel plans.

Invariants (rechecked by `ir.verify`):
  * `Node.inputs` is the authority on operands and their order; the users of a value are an index over it, kept
    true by the methods below. Change operands only through them.
  * A value has one producer, or none (then it is a graph input or a constant).
  * Names of values and nodes are unique within a graph, its regions included.

A dim is an int or a symbolic expression (see `symbolic`; opaque here). Before decomposition a
graph holds ONNX operators (`domain` is an ONNX domain, `op` an ONNX operator name), afterwards
basic operators (`domain` is `BASIC`, `op` a key of `ir.operators.OPERATORS`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dvm_graph.errors import CompileError
from dvm_graph.ir.dtypes import DType

if TYPE_CHECKING:
    import networkx as nx

Dim: TypeAlias = Any
"""int or symbolic expression."""
Shape: TypeAlias = tuple[Dim, ...]
BASIC = "dvm"


_NO_USES: dict[Any, int] = {}
_Waiting: TypeAlias = "tuple[int, Iterator[Value | None]]"
"""The place of a node among others, and its operands behind the one that it waits for."""
_CALLS = ("vendor", "control", "host")

_NO_VERSION = 2**63 - 1
"""Where the file has none."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a sequence or an optional value holds: tensors that are alike."""

    dtype: DType
    shape: Shape | None = None
    """What their shapes have in common, None for a dim that they have not; None where ranks are not known."""
    sequence: bool = True
    """A sequence, or an optional one; else an optional tensor."""
    optional: bool = False
    empty: bool = False
    """It holds none: tensors of any shape may be added."""


@dataclass(frozen=True, slots=True)
class Picked:
    """Strings as places, of type int64, among words and behind them the strings of tensors."""

    places: Value
    words: tuple[str, ...] = ()
    sources: tuple[Value, ...] = ()


@dataclass(slots=True, eq=False)
class Value:
    """A tensor, or what is `OPAQUE`: graph input, constant, or result of a node."""

    name: str
    dtype: DType
    shape: Shape | None = None
    """None until deduced, or where only the run tells the rank (see `computable`)."""
    data: np.ndarray[Any, Any] | None = None
    """Contents of a constant (possibly memory-mapped); read-only."""
    elements: tuple[Dim, ...] | None = None
    """Contents of a small integer tensor as dims, flat and row-major, where they are known."""
    producer: Node | None = None
    opaque_type: bytes = b""
    """Serialised ONNX TypeProto: that of an OPAQUE value where known, else what the model declares a
    result to be (its rank counts where inference finds none)."""
    holds: Holding | None = None
    """Of OPAQUE values that are sequences and optional values of tensors that kernels can hold."""
    members: tuple[Value, ...] | None = None
    """What such a value holds, where it is known: tensors of the same graph."""
    picked: Picked | None = None
    """Of strings that are taken from others."""

    @property
    def rank(self) -> int:
        return len(shape_of(self))

    @property
    def is_constant(self) -> bool:
        return self.data is not None

    @property
    def computable(self) -> bool:
        """A tensor that kernels can hold: its rank is known before the run, its type is theirs.
        Others (strings, sequences, a Reshape by whatever comes) pass between the caller and vendor
        operators as they come, and bind no dims.
        """
        return self.shape is not None and self.dtype is not DType.OPAQUE

    @property
    def native(self) -> bool:
        """Not for the vendor library alone: a tensor for kernels, or a sequence or optional value of such."""
        return self.computable or self.holds is not None

    @property
    def packed_block(self) -> int | None:
        """Elements of a block, of what `unpack_blocks` makes."""
        unpack = self.made_by("unpack_blocks")
        if unpack is None:
            return None
        levels = unpack.required(0).shape
        assert levels is not None and isinstance(levels[-1], int)
        return levels[-1] * 8 // int(unpack.attrs["bits"])

    def made_by(self, op: str) -> Node | None:
        """The producer, where it is an operator of this name."""
        return self.producer if self.producer is not None and self.producer.op == op else None

    def __repr__(self) -> str:
        dims = "?" if self.shape is None else ",".join(str(dim) for dim in self.shape)
        return f"%{self.name}:{self.dtype.short}[{dims}]"


def shape_of(value: Value) -> Shape:
    """Of a value whose shape is known by now."""
    assert value.shape is not None, value.name
    return value.shape


@dataclass(slots=True, eq=False)
class Node:
    """An operator application. `None` among the inputs is an omitted optional operand."""

    name: str
    op: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = BASIC
    version: int = 0
    """Opset version of `domain` (ONNX nodes)."""
    origin: tuple[str, ...] = ()
    """Names of the ONNX nodes this one came from, for reports and errors."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """ONNX metadata_props."""
    source: bytes = b""
    """ONNX nodes: the serialised NodeProto, what a vendor operator runs."""
    regions: tuple[Graph, ...] = ()
    """Bodies of control-flow operators, in attribute order."""
    bodies: tuple[Graph, ...] = ()
    """Of `control` operators (`ir.control`): the bodies as graphs of basic operators, each closed."""

    @property
    def where(self) -> str:
        """The ONNX nodes it came from, or else its own name: for errors and reports."""
        return ", ".join(self.origin) or self.name

    @property
    def own_operands(self) -> int:
        """How many operands an ONNX node has before the values that its regions read of around."""
        return len(self.inputs) - len(self.attrs.get("captures", ()))

    @property
    def is_call(self) -> bool:
        """A step of its own between kernels, whose results may bind symbols."""
        return self.op in _CALLS

    @property
    def output(self) -> Value:
        """The only result."""
        (output,) = self.outputs
        return output

    def operand(self, index: int) -> Value | None:
        """The operand, or None when omitted or past the end."""
        return self.inputs[index] if index < len(self.inputs) else None

    def required(self, index: int) -> Value:
        """An operand that the operator cannot do without."""
        value = self.inputs[index] if index < len(self.inputs) else None
        assert value is not None, self.name
        return value

    @property
    def frozen_attrs(self) -> Hashable:
        """The attributes as a key: equal of nodes whose attributes are."""
        attrs = [(n, tuple(a) if isinstance(a, list) else a) for n, a in self.attrs.items()]
        return tuple(sorted(attrs, key=itemgetter(0)))

    def __repr__(self) -> str:
        return f"{self.op}({self.name})"


def with_what_they_rest_on(nodes: Iterable[Node | None]) -> set[Node]:
    """Nodes, and all that make what these read."""
    found: set[Node] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += [value.producer for value in node.inputs if value is not None]
    return found


def read_from_around(nodes: Collection[Node]) -> list[Value]:
    """What nodes read that none of them makes, but constants; each once, in the order of the reads."""
    made = {value for node in nodes for value in node.outputs}
    return list(
        dict.fromkeys(
            value
            for node in nodes
            for value in node.inputs
            if value is not None and value not in made and not value.is_constant
        )
    )


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a model's file says about it, as onnxruntime's class of this name gives it."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = _NO_VERSION
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)
    """ONNX metadata_props of the model."""


class _Names(set[str]):
    """Names that are taken: of a graph and its regions."""

    def __init__(self) -> None:
        super().__init__()
        self._next: dict[str, dict[int, int]] = {}
        """By stem: of a number that is taken, one behind it; those between are taken, too."""

    def numbered(self, stem: str, number: int) -> tuple[str, int]:
        """The first name of this stem that is not taken, from a number on: each region of a graph counts from 1."""
        following, passed = self._next.setdefault(stem, {}), []
        while f"{stem}.{number}" in self:
            passed.append(number)
            number = following.get(number, number + 1)
        for each in passed:
            following[each] = number
        return f"{stem}.{number}", number


class _ScratchNames(_Names):
    """Those of a scratch of a graph, which avoids the names of that."""

    def __init__(self, avoided: _Names) -> None:
        super().__init__()
        self._avoided = avoided

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._avoided


class _Outputs(list[Value]):
    """Values in order, and where each of them is: a graph may have as many outputs as nodes. It grows at its end only."""

    def __init__(self, values: Iterable[Value] = ()) -> None:
        super().__init__()
        self.places: dict[Value, dict[int, None]] = {}
        self.extend(values)

    def append(self, value: Value) -> None:
        self.places.setdefault(value, {})[len(self)] = None
        super().append(value)

    def extend(self, values: Iterable[Value]) -> None:
        for value in values:
            self.append(value)

    def __setitem__(self, place: Any, value: Any) -> None:
        """In one place."""
        old = self[place]
        del self.places[old][place]
        if not self.places[old]:
            del self.places[old]
        self.places.setdefault(value, {})[place] = None
        super().__setitem__(place, value)


class Graph:
    """A directed acyclic multigraph of nodes, with ordered inputs and outputs."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self._outputs = _Outputs()
        self.overridable: list[Value] = []
        """Constants that the model declares as inputs as well, in its order."""
        self.output_names: tuple[str, ...] = ()
        """What the model calls its outputs, whatever values passes put there."""
        self.about = ModelMetadata()
        self.data_files: Mapping[str, str] | None = None
        """Digests of the files that hold the model's weights, by location; None: nobody asked (`Options.cache`)."""
        self.onnx_operators: dict[str, str] = {}
        """Of the ONNX nodes that this graph was decomposed from, by name."""
        self.taken_out: dict[Value, Node] | None = None
        """What made values before it was removed; None: nobody asks."""
        self._nodes: dict[Node, None] = {}
        self._users: dict[Value, dict[Node, int]] = {}
        """How often each node uses a value."""
        self._sorted: list[Node] | None = None
        """`sorted_nodes`, until something changes."""
        self._names = _Names()
        self._counter = 0

    # -- reading

    @property
    def outputs(self) -> list[Value]:
        return self._outputs

    @outputs.setter
    def outputs(self, values: Iterable[Value]) -> None:
        self._outputs = _Outputs(values)

    @property
    def nodes(self) -> Set[Node]:
        """All nodes in insertion order."""
        return self._nodes.keys()

    def __contains__(self, node: Node | None) -> bool:
        return node in self._nodes

    def added_since(self, mark: int) -> list[Node]:
        """The nodes that were inserted since there were so many."""
        return list(islice(reversed(self._nodes), len(self._nodes) - mark))[::-1]

    def take_back(self, mark: int) -> None:
        """Removes the nodes that were inserted since there were so many."""
        for node in reversed(self.added_since(mark)):
            self.remove(node)

    def __len__(self) -> int:
        return len(self._nodes)

    def sorted_nodes(self) -> list[Node]:
        """Nodes in topological order, ties by insertion: deterministic.

        Raises:
            CompileError: the graph has a cycle.
        """
        if self._sorted is None:
            self._sorted = self._sort()
        return list(self._sorted)

    def _sort(self) -> list[Node]:
        """Nodes as they stand; one that waits for others follows the last of them, before what stands behind it."""
        nodes, result = list(self._nodes), list[Node]()
        there: set[Node | None] = {None}
        waiting: dict[Node | None, list[_Waiting]] = {}
        """By one of those that they wait for."""
        late: list[_Waiting] = []
        """Those that wait for that one no longer: a heap."""
        for place, node in enumerate(nodes):
            left = iter(node.inputs)
            while True:
                for value in left:
                    if value is not None and value.producer not in there:
                        waiting.setdefault(value.producer, []).append((place, left))
                        break
                else:
                    there.add(node)
                    result.append(node)
                    for other in waiting.pop(node, ()):
                        heapq.heappush(late, other)
                if not late:
                    break
                place, left = heapq.heappop(late)
                node = nodes[place]
        if len(result) < len(nodes):
            raise CompileError(f"the graph has a cycle: {self._cycle({*nodes}.difference(result))}")
        return result

    @staticmethod
    def _cycle(left: Set[Node]) -> str:
        """One through nodes that wait for each other: whoever is waited for waits, too."""
        path: dict[Node, None] = {}
        node = min(left, key=lambda node: node.name)
        while node not in path:
            path[node] = None
            producers = [value.producer for value in node.inputs if value is not None]
            node = next(made for made in producers if made is not None and made in left)
        nodes = list(path)
        return " -> ".join(map(repr, [node, *reversed(nodes[nodes.index(node) :])]))

    def needed_nodes(self, others: Iterable[Node] = ()) -> list[Node]:
        """The nodes that outputs and some others rest on, in topological order."""
        needed = with_what_they_rest_on([*(value.producer for value in self.outputs), *others])
        return [node for node in self.sorted_nodes() if node in needed]

    def users(self, value: Value) -> Set[Node]:
        """Nodes that use a value, each once, in the order of their first use: what there is now, so
        whoever changes the graph while he goes through it takes a copy. (A copy each time would make
        passes quadratic: a constant may have as many users as the graph has nodes.)
        """
        return self._users.get(value, _NO_USES).keys()

    def uses(self, value: Value) -> Mapping[Node, int]:
        """How often each of its users does."""
        return MappingProxyType(self._users.get(value, _NO_USES))

    def indexes(self, uses: Mapping[Value, Mapping[Node, int]]) -> bool:
        """Whether the index over the uses of values says just this."""
        return self._users == uses

    def values(self) -> Iterator[Value]:
        """Every value: inputs, then constants and results in node order."""
        found: list[Value | None] = list(self.inputs)
        for node in self._nodes:
            found += node.inputs
            found += node.outputs
        found += self.outputs
        return (value for value in dict.fromkeys(found) if value is not None)

    def to_networkx(self) -> nx.MultiDiGraph[Node]:
        """The nodes, and for each use of a result an edge from its producer, with the `value` and the index of
        the `operand`: a copy, for the algorithms that networkx has.
        """
        import networkx as nx  # loads for longer than a small model takes to compile

        result: nx.MultiDiGraph[Node] = nx.MultiDiGraph(name=self.name)
        result.add_nodes_from(self._nodes)
        for node in self._nodes:
            for index, value in enumerate(node.inputs):
                if value is not None and value.producer is not None:
                    result.add_edge(value.producer, node, value=value, operand=index)
        return result

    def sole_use(self, value: Value) -> bool:
        """The value has one user, and is no graph output."""
        return len(self.users(value)) == 1 and not self.is_output(value)

    def is_output(self, value: Value) -> bool:
        return value in self._outputs.places

    # -- writing

    def new_region(self, name: str) -> Graph:
        """An empty graph that shares this graph's names: the body of a control-flow operator."""
        region = Graph(name)
        region._names = self._names
        return region

    def scratch(self) -> Graph:
        """An empty graph that avoids this graph's names, and takes none of them away."""
        graph = Graph(self.name)
        graph._names = _ScratchNames(self._names)
        return graph

    def unique_name(self, stem: str) -> str:
        """A name not in use, reserved by this call."""
        name, names = stem, self._names
        if not name or name in names:
            name, self._counter = names.numbered(stem, self._counter + 1)
        names.add(name)
        return name

    def taken_over(self, constant: Value, home: Graph) -> Value:
        """A constant of another graph in this one, which may have given its name to another value."""
        if home._names is self._names:
            return constant
        name = self.unique_name(constant.name)
        return constant if name == constant.name else replace(constant, name=name)

    def constant(self, data: np.ndarray[Any, Any], name: str = "constant") -> Value:
        """A constant value; integer contents of up to 64 elements are also kept as dims."""
        elements = None
        if data.dtype.kind in "iub" and data.size <= 64:
            elements = tuple(int(x) for x in data.reshape(-1))
        dtype = DType.of(data.dtype)
        return Value(self.unique_name(name), dtype, tuple(data.shape), data, elements)

    def add(self, node: Node) -> Node:
        """Inserts a node whose operands exist already."""
        self._sorted = None
        self._nodes[node] = None
        self._names.add(node.name)
        for result in node.outputs:
            result.producer = node
            self._names.add(result.name)
        for operand in node.inputs:
            if operand is not None:
                self._link(operand, node)
        return node

    def remove(self, node: Node) -> None:
        """Removes a node none of whose results is used: it and they know each other no longer, and leave memory with
        the last who holds them.
        """
        for value in node.inputs:
            if value is not None:
                self._unlink(value, node)
        for result in node.outputs:
            if result.producer is node:
                result.producer = None
                if self.taken_out is not None:
                    self.taken_out[result] = node
        self._sorted = None
        del self._nodes[node]

    def clear(self, kept: Set[Graph] = frozenset()) -> None:
        """Takes apart a graph that is done with, and its regions and bodies but for those that are kept: what only its
        nodes hold leaves memory at once, without Python's collector, for which a node and its results would have to wait.
        """
        for node in tuple(self._nodes):
            self.remove(node)
            for part in (*node.bodies, *node.regions):
                if part not in kept:
                    part.clear(kept)

    def set_inputs(self, node: Node, inputs: Sequence[Value | None]) -> None:
        self._sorted = None
        for value in node.inputs:
            if value is not None:
                self._unlink(value, node)
        node.inputs = tuple(inputs)
        for value in node.inputs:
            if value is not None:
                self._link(value, node)

    def replace_uses(self, old: Value, new: Value) -> None:
        """Every use of `old`, as operand or graph output, becomes one of `new`."""
        for node in tuple(self.users(old)):
            self.set_inputs(node, [new if value is old else value for value in node.inputs])
        for place in tuple(self._outputs.places.get(old, ())):
            self._outputs[place] = new

    def replace_node(self, node: Node, result: Value) -> None:
        """`result` stands for the result of `node` from now on; what nobody uses any more goes."""
        self.replace_uses(node.output, result)
        dead = [node]
        while dead:
            candidate = dead.pop()
            if candidate not in self._nodes or candidate.is_call:
                continue  # whether a call binds a symbol is for eliminate_dead to see
            if any(self.users(v) or self.is_output(v) for v in candidate.outputs):
                continue
            dead += [v.producer for v in candidate.inputs if v is not None and v.producer]
            self.remove(candidate)

    def _link(self, value: Value, node: Node) -> None:
        users = self._users.get(value)
        if users is None:
            self._users[value] = {node: 1}
        else:
            users[node] = users.get(node, 0) + 1

    def _unlink(self, value: Value, node: Node) -> None:
        users = self._users[value]
        users[node] -= 1
        if not users[node]:
            del users[node]
        if not users:  # else what nothing reads any more stayed in memory, weights among it
            del self._users[value]
