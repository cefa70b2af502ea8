"""The static fuser's answers to the questions of the rules: proofs over symbolic dims."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from dvm_graph.cluster.axes import Atom, Atoms, AxisSpace, Layout
from dvm_graph.cluster.groups import Group, GroupGraph, atoms_of
from dvm_graph.cluster.node_axes import WINDOWS, NodeAxes
from dvm_graph.ir import RELAYOUTS, Dim, Node, Value, shape_of
from dvm_graph.ir.operators import MAX_AXES
from dvm_graph.options import FusionLimits
from dvm_graph.rules import Merge, MergeProof, PartKind
from dvm_graph.symbolic import symbols_of

_OTHER_COLUMNS = (
    "the columns that it computes are not the one axis that the matrix product contracts"
)


@dataclass(slots=True)
class GroupMeeting:
    """Two groups, the values between them, and what merging them would give."""

    producer: Group
    consumer: Group
    graph: GroupGraph
    space: AxisSpace
    axes: dict[Node, NodeAxes]
    limits: FusionLimits
    returned: Set[Value] = frozenset()
    """What others than the operators of the cluster use, results of the model among them."""
    speculate: bool = True
    spaces: dict[Atoms, None] = field(default_factory=dict)
    """Iteration spaces of both, merged."""
    atoms: dict[Atom, None] = field(default_factory=dict)
    """All of those."""
    guards: list[tuple[Dim, Dim]] = field(default_factory=list)
    _detour: str | None = None
    _edges: list[tuple[Value, Node, int]] | None = None
    _merges: list[tuple[Atom, Atoms]] = field(default_factory=list)
    _mark: int = 0
    _own_spaces: tuple[dict[Atoms, None], dict[Atoms, None]] = ({}, {})
    """Those of the producer and of the consumer, as they are merged."""

    def edges(self) -> list[tuple[Value, Node, int]]:
        """Values of the producer and where the consumer uses them: neither changes while they meet."""
        if self._edges is None:
            self._edges = self._find_edges()
        return self._edges

    def _find_edges(self) -> list[tuple[Value, Node, int]]:
        producer, consumer = self.producer, self.consumer
        values = (
            [v for v in producer.results if v in consumer.inputs]
            if len(producer.results) <= len(consumer.inputs)
            else [v for v in consumer.inputs if v in producer.results]
        )
        return [(value, node, index) for value in values for node, index in consumer.inputs[value]]

    def needs_memory(self) -> bool:
        return True in [self.axes[node].memory[index] for _, node, index in self.edges()]

    def feeds_matrix(self) -> bool:
        edges = self.edges()
        feeding = [edge for edge in edges if self._is_a_operand(edge[1], edge[2])]
        if len(feeding) != 1:
            return False
        columns = self._columns(*feeding[0])
        return all(
            self._is_a_operand(node, index) or self._is_row_value(value, node, index, columns)
            for value, node, index in edges
        )

    def needs_buffer(self) -> bool:
        return None in [self.axes[node].operands[index] for _, node, index in self.edges()]

    def detour(self) -> str:
        if self._detour is None:
            group = self.graph.detour(self.producer, self.consumer)
            self._detour = "" if group is None else group.name
        return self._detour

    def depends(self) -> bool:
        return self.graph.depends(self.producer, self.consumer)

    def accesses(self) -> int:
        both = {self.producer, self.consumer}
        tensors = self.producer.inputs.keys() | self.consumer.inputs.keys()
        for group in (self.producer, self.consumer):
            for value in group.results:
                if value in self.returned or self.graph.is_read(value, both):
                    tensors.add(value)
        return len(tensors)

    def sole_consumer(self) -> bool:
        return len(self.producer.after) == 1

    def is_private(self) -> bool:
        return self.sole_consumer() and self.returned.isdisjoint(self.producer.results)

    def products(self) -> int:
        return sum(node.op == "matmul" for node in (*self.producer.nodes, *self.consumer.nodes))

    def arithmetics(self) -> int:
        nodes = (*self.producer.nodes, *self.consumer.nodes)
        return len({node.output.dtype.register for node in nodes if node.op == "matmul"})

    def shares_rows(self) -> bool:
        pairs = ((node, group) for group in (self.producer, self.consumer) for node in group.nodes)
        read = {
            (_outside(node.required(0), set(group.nodes)), _repeats_rows(node))
            for node, group in pairs
            if node.op == "matmul"
        }
        return len(read) == 1 and next(iter(read))[0] is not None

    def operand_width(self) -> int:
        if self.producer.kind is not PartKind.CUBE:
            return 0
        inner = self.axes[self._matmul(self.producer)].operands[0]
        outer = self.axes[self._matmul(self.consumer)].result
        assert inner is not None
        widths = self.space.extent_of(inner[-1]), self.space.extent_of(outer[-1])
        return sum(width for width in widths if isinstance(width, int))

    def merge(self) -> MergeProof:
        """What is bound on the way to a NO is taken back by `part`, too."""
        self._mark = self.space.mark()
        return self._merge_spaces()

    def part(self) -> None:
        self._merges = self.space.rollback(self._mark)

    def commit(self) -> None:
        """Makes the iteration spaces one for good."""
        self.space.redo(self._merges)

    def _merge_spaces(self) -> MergeProof:
        guards: list[tuple[Dim, Dim]] = []
        feeds = self.feeds_matrix()
        beside = self.producer.kind is self.consumer.kind is PartKind.CUBE and not feeds
        if beside and not self._lay_beside():
            return MergeProof(Merge.NO, "their matrix products are of other sizes or rows")
        for value, node, index in self.edges():
            result = self._result_layout(value)
            operand = self.axes[node].operands[index]
            if operand is None:
                continue
            joins = feeds and self._is_a_operand(node, index) and self._ends_in_columns(operand)
            if joins and not self._join_rows(result, operand):
                names = _names(self.space.extent_of(result[-1]), self.space.extent_of(operand[-1]))
                return MergeProof(Merge.NO, _OTHER_COLUMNS, names)
            mismatch = self._unify(result, operand, self.axes[node].maybe[index], guards)
            if mismatch is not None:
                return _refused(*mismatch)
        self._collect_spaces()
        if not self.one_domain() and self.producer.kind is not PartKind.CUBE and not feeds:
            self._share_inputs()
        if self._repeats():
            return MergeProof(Merge.NO, "an axis would meet itself (a diagonal)")
        self.guards = guards
        return _proof(guards)

    def one_domain(self) -> bool:
        return len(self.atoms) in map(len, self.spaces)

    def same_domain(self) -> bool:
        return all(atoms_of(own).keys() == self.atoms.keys() for own in self._own_spaces)

    def recomputes(self) -> bool:
        return len(atoms_of(self._own_spaces[0])) < len(self.atoms)

    def rank(self) -> int:
        return len(self.atoms)

    def most_axes(self) -> int:
        return MAX_AXES

    def feeds_reductions_only(self) -> bool:
        followers = self.consumer.after
        if not followers or self.consumer.reduces:
            return False
        if not all(group.reduces for group in followers):
            return False
        wanted = {value for value, _, _ in self.edges()}
        return any(
            not wanted.isdisjoint(group.inputs)
            for group in self.producer.after
            if group is not self.consumer
        )

    def reduces_rows(self) -> bool:
        row = self.space.resolve(self.axes[self._matmul(self.producer)].result[-1])
        return all(
            self.space.resolve(self.axes[node].reduced) == row
            for node in self.consumer.nodes
            if self.axes[node].reduced
        )

    def computes_rows(self) -> bool:
        product = self._fed_product()
        a = self.axes[product].operands[0]
        assert a is not None
        read = set(self.space.flat(a))
        columns = self.space.resolve(a[-1])
        *batch, rows, _ = self.axes[product].result
        row = self.space.resolve(rows)[-1:]
        written = set(self.space.flat((*batch, rows)))
        contracted: set[Atom] = set()
        for node in self.producer.nodes:
            axes = self.axes[node]
            if node.op == "matmul":
                contracted |= self._contracted(node)
                if not self._computes_columns(node, columns, row):
                    return False
            elif axes.reduced and self.space.resolve(axes.reduced) != columns:
                return False
            elif node.op in WINDOWS and self.space.resolve(axes.result[-1]) != columns:
                return False  # windows are reduced for all channels of a pixel at a time
        iterated = atoms_of(self._own_spaces[0]).keys()
        return written <= read and iterated == read | contracted and contracted.isdisjoint(written)

    def within_matrix(self) -> bool:
        cube = self.producer if self.producer.kind is PartKind.CUBE else self.consumer
        matmul = self._matmul(cube)
        result = set(self.space.flat(self.axes[matmul].result))
        domain = set(self.space.resolve(self.axes[matmul].domain))
        other = self._own_spaces[1 if cube is self.producer else 0]
        return atoms_of(other).keys() <= result and self.atoms.keys() <= domain

    def one_matrix(self) -> bool:
        nodes = (*self.producer.nodes, *self.consumer.nodes)
        products = [self.axes[node] for node in nodes if node.op == "matmul"]
        domains = {self.space.resolve(axes.domain) for axes in products}
        columns = {self.space.flat(axes.operands[1] or ()) for axes in products}
        return len(domains) == len(columns) == 1 and self.atoms.keys() <= set(*domains)

    # -- how

    @staticmethod
    def _matmul(group: Group) -> Node:
        """The last product of a group: that of its kernel's result."""
        return next(node for node in reversed(group.nodes) if node.op == "matmul")

    def _fed_product(self) -> Node:
        """The product of the consumer whose A operand the producer is: the first where there are two."""
        return next(node for node in self.consumer.nodes if node.op == "matmul")

    def _is_a_operand(self, node: Node, index: int) -> bool:
        """Whether a use, maybe through relayouts of the consumer, is its product's A operand."""
        if node.op == "matmul":
            return index == 0
        if node.op not in RELAYOUTS or self.axes[node].operands[0] is None:
            return False
        uses = [
            (user, at)
            for user in self.consumer.nodes
            for at, value in enumerate(user.inputs)
            if value is node.output
        ]
        return bool(uses) and all(self._is_a_operand(user, at) for user, at in uses)

    def _contracted(self, product: Node) -> set[Atom]:
        """What a product contracts; the atom is rigid, so it stays one."""
        a = self.axes[product].operands[0]
        assert a is not None
        return set(self.space.resolve(a[-1]))

    def _columns(self, value: Value, node: Node, index: int) -> set[Atom]:
        """Where a value that is read as the A operand, maybe through relayouts, varies along what the
        product contracts.
        """
        contracted = self._contracted(self._fed_product())
        operand = self.axes[node].operands[index]
        assert operand is not None
        return {
            atom
            for axis, atoms in zip(self._result_layout(value), operand, strict=True)
            if not contracted.isdisjoint(self.space.resolve(atoms))
            for atom in self.space.resolve(axis)
        }

    def _ends_in_columns(self, operand: Layout) -> bool:
        """What the product contracts is the last axis of what is read, with or without others."""
        if not operand:
            return False
        contracted = self._contracted(self._fed_product())
        return not contracted.isdisjoint(self.space.resolve(operand[-1]))

    def _computes_columns(self, product: Node, columns: Atoms, row: Atoms) -> bool:
        """A product's columns are `columns`, and its A operand alone varies along `row`, the innermost atom
        of the rows of a tile, if there is one.
        """
        axes = self.axes[product]
        a, b = axes.operands
        assert a is not None and b is not None
        if self.space.resolve(axes.result[-1]) != columns:
            return False
        return set(row) <= set(self.space.flat(a)) and set(row).isdisjoint(self.space.flat(b))

    def _is_row_value(self, value: Value, node: Node, index: int, columns: set[Atom]) -> bool:
        """Whether an element-wise operator uses one value for each row of A."""
        if self.axes[node].memory[index] or self.axes[node].operands[index] is None:
            return False
        assert value.producer is not None
        return self._is_of_rows(value.producer, columns)

    def _is_of_rows(self, node: Node, columns: set[Atom]) -> bool:
        """Whether a node of the producer varies along no columns, nor, up to reductions over them, what it rests
        on: the one column of a product may be read as none.
        """
        inside, left, seen = set(self.producer.nodes), [node], {node}
        while left:
            node = left.pop()
            axes = self.axes[node]
            if not columns.isdisjoint(self.space.flat(axes.result)):
                return False
            if columns.isdisjoint(self.space.resolve(axes.reduced)):
                producers = {value.producer for value in node.inputs if value is not None}
                before = [other for other in inside & producers if other not in seen]
                left.extend(before)
                seen.update(before)
        return True

    def _join_rows(self, result: Layout, operand: Layout) -> bool:
        """Makes the columns of the producer's product the axis that the consumer's contracts."""
        left, right = self.space.resolve(result[-1]), self.space.resolve(operand[-1])
        return len(left) == len(right) == 1 and self.space.identify(left[0], right[0])

    def _lay_beside(self) -> bool:
        """Makes the axes of the producer's product those of the consumer's."""
        first, second = (self.axes[self._matmul(g)] for g in (self.producer, self.consumer))
        pairs = [(first.result, second.result), (first.operands[0], second.operands[0])]
        return (
            all(
                left is not None
                and right is not None
                and len(left) == len(right)
                and all(self._make_one(a, b) for a, b in zip(left, right, strict=True))
                for left, right in pairs
            )
            and self._rows_read(self.producer) == self._rows_read(self.consumer) is not None
        )

    def _rows_read(self, group: Group) -> tuple[Atoms, ...] | None:
        """How a product goes through what it reads its rows of, behind relayouts."""
        node, nodes = self._matmul(group), set(group.nodes)
        while (producer := node.required(0).producer) is not None and producer in nodes:
            node = producer
        layout = self.axes[node].operands[0]
        return None if layout is None else tuple(self.space.resolve(axis) for axis in layout)

    def _make_one(self, left: Atoms, right: Atoms) -> bool:
        a, b = self.space.resolve(left), self.space.resolve(right)
        if len(a) == len(b) == 1:
            return self.space.identify(a[0], b[0])
        return self.space.unify(a, b) is None

    def _result_layout(self, value: Value) -> Layout:
        assert value.producer is not None
        return self.axes[value.producer].result

    def _unify(
        self,
        result: Layout,
        operand: Layout,
        maybe: tuple[int, ...],
        guards: list[tuple[Dim, Dim]],
    ) -> tuple[Dim, Dim] | None:
        for axis, (left, right) in enumerate(zip(result, operand, strict=True)):
            if axis not in maybe:
                if left == right:
                    continue
                mismatch = self.space.unify(left, right)
                if mismatch is None or self._unify_by_guards(left, right, guards):
                    continue
            elif self.speculate:
                mismatch = self._assume(left, right, guards)
            else:
                mismatch = self.space.extent_of(left), self.space.extent_of(right)
            if mismatch is not None:
                return mismatch
        return None

    def _unify_by_guards(self, left: Atoms, right: Atoms, guards: list[tuple[Dim, Dim]]) -> bool:
        """Merges two axes whose extents are equal where the guards of either group hold."""
        said = (*self.producer.guards, *self.consumer.guards, *guards)
        if not said:
            return False
        a, b = self.space.resolve(left), self.space.resolve(right)
        if len(a) != 1 or len(b) != 1:
            return False
        if not self._follows(self.space.extent(a[0]), self.space.extent(b[0]), said):
            return False
        return self.space.bind_assumed(a[0], b[0])

    def _follows(self, left: Dim, right: Dim, guards: Sequence[tuple[Dim, Dim]]) -> bool:
        """Whether two extents are equal where guards hold."""
        equals, left_over = [left], list(guards)
        while met := [pair for pair in left_over if any(map(self._among(equals), pair))]:
            left_over = [pair for pair in left_over if pair not in met]
            equals.extend(extent for pair in met for extent in pair)
        return self._among(equals)(right)

    def _among(self, extents: Sequence[Dim]) -> Callable[[Dim], bool]:
        return lambda extent: any(self.space.equal(extent, other) for other in extents)

    def _assume(
        self, left: Atoms, right: Atoms, guards: list[tuple[Dim, Dim]]
    ) -> tuple[Dim, Dim] | None:
        """Merges two axes whose extents may or may not be equal."""
        a, b = self.space.resolve(left), self.space.resolve(right)
        if len(a) != 1 or len(b) != 1:
            return self.space.extent_of(left), self.space.extent_of(right)
        if a != b and not self.space.bind_assumed(a[0], b[0]):
            return self.space.extent_of(left), self.space.extent_of(right)
        guards.append((self.space.extent(a[0]), self.space.extent(b[0])))
        return None

    def _resolved(self, group: Group) -> dict[Atoms, None]:
        return {self.space.resolve(space): None for space in group.spaces}

    def _collect_spaces(self) -> None:
        producer, consumer = self._resolved(self.producer), self._resolved(self.consumer)
        self._own_spaces = producer, consumer
        with_producer = not self.needs_memory() or self.feeds_matrix()
        self.spaces = consumer | producer if with_producer else consumer
        self.atoms = atoms_of(self.spaces)

    def _repeats(self) -> bool:
        return sum(map(len, self.spaces)) > sum(map(len, map(set, self.spaces)))

    def _share_inputs(self) -> None:
        """Reads tensors that both groups load at the same point, where that gives one domain."""
        for value in self.consumer.inputs:
            if value in self.producer.inputs:
                self._share_input(value)
                if self.one_domain():
                    return

    def _share_input(self, value: Value) -> None:
        producer, at = self.producer.inputs[value][0]
        consumer, index = self.consumer.inputs[value][0]
        left, right = self.axes[producer].operands[at], self.axes[consumer].operands[index]
        if left is None or right is None:
            return
        mark = self.space.mark()
        before = self.spaces, self.atoms, self._own_spaces
        mismatch = self.space.unify_layouts(left, right)
        self._collect_spaces()
        if mismatch is not None or self._repeats():
            self.space.rollback(mark)
            self.spaces, self.atoms, self._own_spaces = before


@dataclass(slots=True)
class SiblingMeeting(GroupMeeting):
    """Two groups with nothing between them but tensors that both read."""

    def _merge_spaces(self) -> MergeProof:
        """Makes the points at which both read the same tensor one, and so the other axes where they read it by
        broadcast.
        """
        mark = self.space.mark()
        for value in self.consumer.inputs:
            for left in self.producer.inputs.get(value, ()):
                for right in self.consumer.inputs[value]:
                    guards: list[tuple[Dim, Dim]] = []
                    if self._read_together(left, right) and self._iterate_together(guards):
                        self._collect_spaces()
                        if not self._repeats():
                            self.guards = guards
                            return _proof(guards)
                    self.space.rollback(mark)
        return MergeProof(Merge.NO, "they read no tensor at the same points")

    def _iterate_together(self, guards: list[tuple[Dim, Dim]]) -> bool:
        """Makes the axes one, in order, along which what is shared does not vary: both iterate over the same then. Any
        two of a length would do: the groups do not depend on each other.
        """
        mine, others = (atoms_of(self._resolved(group)) for group in (self.producer, self.consumer))
        rest = [atom for atom in mine if atom not in others]
        met = [atom for atom in others if atom not in mine]
        if len(rest) != len(met) or (rest and len(rest) == len(mine)):  # one number is shared
            return False
        return all(self._meet(a, b, guards) for a, b in zip(rest, met, strict=True))

    def _meet(self, a: Atom, b: Atom, guards: list[tuple[Dim, Dim]]) -> bool:
        if self.space.identify(a, b):
            return True
        extents = self.space.extent(a), self.space.extent(b)
        if not self.speculate or not self.space.facts.prove_equal(*extents).unknown:
            return False
        guards.append(extents)
        return self.space.bind_assumed(a, b)

    def _read_together(self, left: tuple[Node, int], right: tuple[Node, int]) -> bool:
        layouts = [self.axes[node].operands[index] for node, index in (left, right)]
        if layouts[0] is None and layouts[1] is None:
            same = left[0].op == right[0].op and left[0].attrs == right[0].attrs
            layouts = [self.axes[node].result for node, _ in (left, right)] if same else [None]
        if any(layout is None for layout in layouts):
            return False
        first, second = (layout for layout in layouts if layout is not None)
        return self.space.unify_layouts(first, second) is None


def _outside(value: Value, nodes: Set[Node]) -> Value | None:
    """What these operators read a value of, through relayouts; None: they compute it."""
    while (producer := value.producer) in nodes:
        if producer is None or producer.op not in RELAYOUTS:
            return None
        value = producer.required(0)
    return value


def _repeats_rows(product: Node) -> tuple[bool, ...]:
    """Which axes of a batch may have one matrix of rows for all: they are read with other strides."""
    rows, result = shape_of(product.required(0)), shape_of(product.output)
    return tuple(row != dim for row, dim in zip(rows[-3::-1], result[-3::-1], strict=False))


def _proof(guards: Sequence[tuple[Dim, Dim]]) -> MergeProof:
    if not guards:
        return MergeProof(Merge.YES)
    text = " and ".join(f"{a} = {b}" for a, b in guards)
    return MergeProof(Merge.UNKNOWN, f"if {text}", _names(*guards[0]))


def _names(*dims: Dim) -> tuple[str, ...]:
    names = {str(symbol) for dim in dims if not isinstance(dim, int) for symbol in symbols_of(dim)}
    return tuple(sorted(names))


def _refused(left: Dim, right: Dim) -> MergeProof:
    return MergeProof(
        Merge.NO, f"iteration spaces do not merge: {left} against {right}", _names(left, right)
    )
