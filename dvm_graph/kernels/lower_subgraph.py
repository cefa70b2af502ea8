"""Lowers one fused subgraph to a kernel plan over one domain.

In: a fused subgraph with its axis atoms, the table of buffers, the table of dims. Out: a `KernelPlan`:
atoms become the axes of the domain, values become nodes that vary along some of them, uses of memory
become affine accesses; views are gone.

Invariants: a node varies along no more axes than its operands do (so what is broadcast is computed
once); the nodes are in topological order; loads of one place are one node, and so is what one number fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dvm_graph.cluster import FusedSubgraph, SubgraphKind
from dvm_graph.cluster.axes import Atom
from dvm_graph.cluster.node_axes import WINDOWS
from dvm_graph.errors import CompileError, UnsupportedError
from dvm_graph.ir import OPERATORS, RELAYOUTS, STRIDED, Dim, DType, Kind, Node, Value, shape_of
from dvm_graph.ir.operators import MAX_AXES
from dvm_graph.kernels.domain import Domain
from dvm_graph.kernels.operands import Address, Extent, Packed, pack
from dvm_graph.kernels.plan import (
    NO_SLOT,
    Access,
    KernelKind,
    KernelPlan,
    Panels,
    PlanNode,
    Slot,
)
from dvm_graph.kernels.registers import (
    cast_needs_narrow,
    extreme_of_nothing,
    needs_narrow,
)
from dvm_graph.kernels.repeats import Questions
from dvm_graph.options import Options
from dvm_graph.symbolic import DimTable, Facts
from dvm_graph.symbolic.dims import add, equal, floordiv, mul, product, select
from dvm_graph.symbolic.shape_functions import row_major
from dvm_graph.symbolic.transforms import transformed_slices


def lower_subgraph(
    subgraph: FusedSubgraph,
    name: str,
    values: Questions,
    dims: DimTable,
    facts: Facts,
    options: Options,
) -> KernelPlan:
    """The kernel plan of a fused subgraph."""
    return _Lowering(subgraph, values, dims, facts, options).run(name)


class _Lowering:
    def __init__(
        self,
        subgraph: FusedSubgraph,
        values: Questions,
        dims: DimTable,
        facts: Facts,
        options: Options,
    ) -> None:
        self._subgraph, self._values, self._dims, self._facts = subgraph, values, dims, facts
        self._precision = options.precision
        self._transforms = options.transforms
        self._space = subgraph.axes.space
        self._axes = subgraph.axes.nodes
        self._inside = set(subgraph.nodes)
        self._nodes: list[PlanNode] = []
        self._accesses: list[Access] = []
        self._at: dict[Value, int] = {}
        self._loads: dict[tuple[Access, int], int] = {}
        self._fills: dict[tuple[DType, str, int], int] = {}
        self._domain = Domain(subgraph)

    def run(self, name: str) -> KernelPlan:
        if len(self._domain) > MAX_AXES:
            raise UnsupportedError(f"{name} has loops over more than {MAX_AXES} axes")
        kind = _KINDS[self._subgraph.kind]
        later = dict.fromkeys(self._subgraph.outputs)
        for node in self._subgraph.nodes:
            self._lower(node)
            for value in node.outputs:
                if kind is KernelKind.VECTOR and value in later and value in self._at:
                    del later[value]  # stored at once, it need not be kept
                    self._store(value)
        for value in later:
            self._store(value)
        plan = KernelPlan(
            name=name,
            kind=kind,
            extents=tuple(self._dims.slot(self._space.extent(atom)) for atom in self._domain.atoms),
            nodes=tuple(self._nodes),
            accesses=tuple(self._accesses),
            weighed=self._subgraph.weighed,
            origin=self._subgraph.origin,
        )
        domain = self._domain
        if domain.roles is None:
            return plan
        m, n, k = map(domain.axis, domain.roles)
        inner_k = -1 if domain.inner_k is None else domain.axis(domain.inner_k)
        return replace(plan, m_axis=m, n_axis=n, k_axis=k, inner_k_axis=inner_k)

    # -- addresses

    def _address(self, node: Node, index: int) -> Address:
        """Where an operand lies, through the views of this subgraph that lead to it."""
        value = node.required(index)
        producer = value.producer
        if producer is not None and producer in self._inside and _is_view(producer):
            if self._axes[producer].operands[0] is None:
                return self._strided(producer)
            return self._address(producer, 0)
        place = self._values.place(value)
        layout = self._axes[node].operands[index]
        assert layout is not None
        maybe = self._axes[node].maybe[index]
        strides = place.strides
        if maybe:
            strides = tuple(
                select(equal(extent, 1), 0, stride) if axis in maybe else stride
                for axis, (extent, stride) in enumerate(zip(shape_of(value), strides, strict=True))
            )
        return Address(value, place.buffer, place.offset, self._domain.per_atom(layout, strides))

    def _strided(self, node: Node) -> Address:
        """Where a slice, a view or a reshape that does not regroup reads."""
        source = node.required(0)
        place = self._values.place(source)
        offset: Dim = place.offset
        if node.op == "slice":
            strides = [
                mul(s, step) for s, step in zip(place.strides, node.attrs["steps"], strict=True)
            ]
            for start, stride in zip(node.attrs["starts"], place.strides, strict=True):
                offset = add(offset, mul(start, stride))
        elif node.op == "view":
            strides = list(node.attrs["strides"])
            offset = add(offset, node.attrs["offset"])
        else:
            strides = list(row_major(shape_of(node.output)))
        layout = self._axes[node].result
        return Address(source, place.buffer, offset, self._domain.per_atom(layout, strides))

    def _access(self, address: Address, packed: bool = False, transformed: bool = False) -> Access:
        slots, offset = self._slots(address.strides), self._slot(address.offset)
        return Access(address.buffer, slots, offset, packed, transformed=transformed)

    def _slots(self, strides: Mapping[Atom, Dim]) -> tuple[Slot, ...]:
        """How something follows each axis of the kernel."""
        return tuple(
            [
                self._slot(strides[atom]) if atom in strides else NO_SLOT
                for atom in self._domain.atoms
            ]
        )

    def _slot(self, dim: Dim) -> Slot:
        return NO_SLOT if isinstance(dim, int) and dim == 0 else self._dims.slot(dim)

    # -- operands

    def _emit(self, node: PlanNode) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _operand(self, node: Node, index: int) -> int:
        """The plan node that holds an operand: computed before, a scalar, or loaded."""
        value = node.required(index)
        if value in self._at:
            self._check_points(node, index)
            return self._at[value]
        scalar = self._values.scalar(value)
        if scalar is not None:
            return self._fill(scalar, value.dtype)
        address = self._address(node, index)
        return self._load(address, value.dtype, address.strides)

    def _check_points(self, node: Node, index: int) -> None:
        """What was computed before is read at the points at which it was computed: it varies along no axes that
        the operand has not, but for those of extent 1, which products keep. One number is the same everywhere.
        """
        layout = self._axes[node].operands[index]
        computed = self._nodes[self._at[node.required(index)]].axes
        lost = computed & ~self._domain.layout_overlap(layout or ())
        if lost and any(
            lost >> at & 1 and not self._space.is_one(self._space.extent(atom))
            for at, atom in enumerate(self._domain.atoms)
        ):
            raise CompileError(
                f"{self._subgraph.name}: {node.name} reads {node.required(index).name} at other points than "
                "those it is computed at"
            )

    def _load(
        self, address: Address, dtype: DType, atoms: Iterable[Atom], transformed: bool = False
    ) -> int:
        access = self._access(address, transformed=transformed)
        axes = self._domain.mask(atoms)
        known = self._loads.get((access, axes))
        if known is None:
            plan_node = PlanNode("load", dtype.register, axes, access=self._add_access(access))
            known = self._loads[access, axes] = self._emit(plan_node)
        return known

    def _add_access(self, access: Access) -> int:
        self._accesses.append(access)
        return len(self._accesses) - 1

    def _fill(self, scalar: Any, dtype: DType) -> int:
        number, integer = (float(scalar), 0) if dtype.is_float else (0.0, int(scalar))
        if integer >= 2**63:  # unsigned: the same bits
            integer -= 2**64
        key = dtype.register, repr(number), integer  # tells -0.0 from 0.0, and NaN is NaN
        if key not in self._fills:
            fill = PlanNode("fill", dtype.register, 0, scalar=number, integer=integer)
            self._fills[key] = self._emit(fill)
        return self._fills[key]

    # -- operators

    def _lower(self, node: Node) -> None:
        if _is_view(node):
            self._lower_view(node)
        elif node.op == "unpack_blocks":
            pass  # its product reads it as it is packed
        elif node.op == "matmul":
            self._at[node.output] = self._matmul(node)
        elif node.op == "gather":
            self._at[node.output] = self._gather(node)
        elif node.op in WINDOWS:
            self._at[node.output] = self._window(node)
        elif node.op in ("iota", "dims"):
            self._at[node.output] = self._iota(node)
        elif node.op == "cast":
            self._at[node.output] = self._cast(node)
        elif node.op == "lookup":
            self._at[node.output] = self._lookup(node)
        else:
            self._at[node.output] = self._compute(node)

    def _lower_view(self, node: Node) -> None:
        """Views compute nothing; one that reads memory for others is loaded where it is used."""
        source = node.required(0)
        if source in self._at:
            self._check_points(node, 0)
            self._at[node.output] = self._at[source]
        elif (scalar := self._values.scalar(source)) is not None:
            self._at[node.output] = self._fill(scalar, source.dtype)

    def _compute(self, node: Node) -> int:
        operands = tuple([self._operand(node, i) for i in range(len(node.inputs))])
        axes = 0
        for operand in operands:
            axes |= self._nodes[operand].axes
        reduce_axes = self._domain.mask(self._axes[node].reduced)
        dtype = node.output.dtype
        limit = self._dims.slot(node.attrs["limit"]) if node.op == "check_index" else NO_SLOT
        if OPERATORS[node.op].kind is Kind.REDUCE and not reduce_axes:
            return operands[0]
        at = self._emit(
            PlanNode(
                node.op,
                dtype.register,
                axes & ~reduce_axes,
                operands,
                reduce_axes=reduce_axes,
                limit=limit,
                element=_element(node),
            )
        )
        extreme = extreme_of_nothing(node.op, dtype)
        if extreme is not None:
            operands = (at, self._fill(extreme, dtype))
            at = self._emit(
                PlanNode(
                    node.op.removeprefix("reduce_"), dtype.register, axes & ~reduce_axes, operands
                )
            )
        return self._narrow(at, dtype) if needs_narrow(node.op, dtype) else at

    def _narrow(self, operand: int, dtype: DType) -> int:
        axes = self._nodes[operand].axes
        return self._emit(PlanNode("narrow", dtype.register, axes, (operand,), narrow_to=dtype))

    def _cast(self, node: Node) -> int:
        source, target = node.required(0), node.output.dtype
        at = self._operand(node, 0)
        if source.dtype.register is not target.register:
            at = self._emit(PlanNode("cast", target.register, self._nodes[at].axes, (at,)))
        if not cast_needs_narrow(source.dtype, target) or self._values.is_saturated(source, target):
            return at
        return self._narrow(at, target)

    def _lookup(self, node: Node) -> int:
        at = self._operand(node, 0)
        table = Access(self._values.table(node.output), (NO_SLOT,) * len(self._domain))
        axes, dtype = self._nodes[at].axes, node.output.dtype.register
        return self._emit(PlanNode("lookup", dtype, axes, (at,), weights=self._add_access(table)))

    def _iota(self, node: Node) -> int:
        if node.op == "dims":
            offset = self._dims.slot(node.attrs["elements"][0])
            return self._emit(PlanNode("iota", DType.INT64, 0, offset=offset))
        axis: int = node.attrs["axis"]
        layout = self._axes[node].result
        strides = self._domain.per_atom((layout[axis],), (node.attrs["step"],))
        slots = self._slots(strides)
        return self._emit(
            PlanNode(
                "iota",
                DType.INT64,
                self._domain.mask(strides),
                offset=self._slot(node.attrs["start"]),
                strides=slots,
            )
        )

    def _gather(self, node: Node) -> int:
        axis: int = node.attrs["axis"]
        source = node.required(0)
        layout = self._axes[node].operands[0]
        assert layout is not None
        index = self._operand(node, 1)
        address = self._address(node, 0)
        (gathered,) = self._space.resolve(layout[axis])
        stride = address.strides.pop(gathered, 0)
        access = self._access(address)
        return self._emit(
            PlanNode(
                "gather",
                source.dtype.register,
                self._domain.mask(address.strides) | self._nodes[index].axes,
                (index,),
                access=self._add_access(access),
                limit=self._dims.slot(shape_of(source)[axis]),
                offset=self._slot(stride),
            )
        )

    def _window(self, node: Node) -> int:
        """Images are read by the number of the window, an affine function of the axes."""
        images, result = node.required(0), self._axes[node].result
        count, *extents, pixel = shape_of(images)
        groups: int | None = node.attrs.get("groups")
        channels = 1 if groups is None else floordiv(pixel, groups)  # of which one result is made
        size: Sequence[Dim] = node.attrs["size"]
        outer, last = len(result) - len(size) - 2, len(result) - 1
        steps = [product(size[axis:]) for axis in range(len(size) + 1)]
        numbers = self._domain.per_atom(result[outer:last], steps)
        weights = -1
        results: Dim = 1
        if node.op == "patches":
            strides = self._domain.per_atom(result[:outer], (channels,) * outer)
        elif groups is None:
            strides = self._domain.per_atom(result[-1:], (1,))
        else:
            each = self._domain.per_atom(result[-1:], (1,))
            weights = self._add_access(self._access(self._whole(node.required(1), each)))
            results = shape_of(node.output)[-1]
            strides = self._domain.per_group(result[-1], floordiv(results, groups), channels)
        flat = [1] * (3 - len(size))  # the axes that images lack
        sizes = [count, *flat, *extents, pixel, channels, results, *flat, *size]
        for name, alone in (("kernel", 1), ("strides", 1), ("dilations", 1), ("pads", 0)):
            sizes += [*(alone for _ in flat), *node.attrs[name]]
        sizes.append(node.attrs.get("outside", 0))
        return self._emit(
            PlanNode(
                node.op,
                node.output.dtype.register,
                self._domain.layout_mask(result),
                access=self._add_access(self._access(self._whole(images, strides))),
                strides=self._slots(numbers),
                weights=weights,
                window=tuple(self._slot(dim) for dim in sizes),
            )
        )

    def _whole(self, value: Value, strides: dict[Atom, Dim]) -> Address:
        """The start of a value, and how it follows some of the axes."""
        place = self._values.place(value)
        return Address(value, place.buffer, place.offset, strides)

    def _matmul(self, node: Node) -> int:
        a, b = self._matrix_operand(node, 0), self._matrix_operand(node, 1)
        axes = self._domain.layout_mask(self._axes[node].result)
        if self._domain.roles is not None:
            axes |= 1 << self._domain.axis(self._domain.roles[0])
        dtype = node.output.dtype.register
        narrow_to = DType.BFLOAT16 if self._rounded(node) else None
        if "rounded_blocks" in node.attrs:
            narrow_to = DType.INT8
        return self._emit(PlanNode("matmul", dtype, axes, (a, b), narrow_to=narrow_to))

    def _rounded(self, product: Node) -> bool:
        """Its operands are rounded to bf16 before they are multiplied."""
        if product.required(1).made_by("unpack_blocks") is not None:
            return False
        if product.output.dtype.register is not DType.FLOAT32:
            return False
        return self._precision == "bf16" or (
            self._precision == "stored"
            and all(_is_bf16(product.required(index)) for index in (0, 1))
        )

    def _matrix_operand(self, node: Node, index: int) -> int:
        """A may be computed in this kernel; the cube unit reads B from memory, and be it the one number of a
        constant, so a view of it that became a `fill` is not used.
        """
        value = node.required(index)
        layout = self._axes[node].operands[index]
        assert layout is not None
        if index == 0 and value in self._at:
            return self._at[value]
        atoms = [atom for axis in layout for atom in axis]
        if (unpack := value.made_by("unpack_blocks")) is not None:
            return self._load_blocks(unpack, atoms)
        address = self._address(node, index)
        packed = self._packed(node, address) if index == 1 else None
        slices = 0 if packed is None else self._transformed(node, packed.panels, address.source)
        if packed is None or not address.source.is_constant:
            return self._load(address, value.dtype, atoms, slices > 0)
        if packed.panels.are_columns and address.source.dtype is value.dtype.register:
            return self._load(self._columns(node, address.source, packed), value.dtype, atoms)
        if slices > 0:
            packed = packed.with_transforms(slices)
        buffer = self._values.panels(packed.panels, address.source)
        panels = Address(address.source, buffer, 0, packed.strides)
        access = self._access(panels, packed=True, transformed=slices > 0)
        return self._emit(
            PlanNode(
                "load",
                value.dtype.register,
                self._domain.mask(atoms),
                access=self._add_access(access),
            )
        )

    def _load_blocks(self, unpack: Node, atoms: Iterable[Atom]) -> int:
        """B as levels of a few bits."""
        buffer, blocks = self._values.blocks(unpack.output)
        strides = (NO_SLOT,) * len(self._domain)
        access = Access(
            buffer, strides, NO_SLOT, True, blocks.block, blocks.bits, block_rows=blocks.rows
        )
        at = self._add_access(access)
        return self._emit(PlanNode("load", DType.FLOAT32, self._domain.mask(atoms), access=at))

    def _packed(self, product: Node, address: Address) -> Packed | None:
        """The packed form of a B operand, if it has one: it is packed at load if it is constant, else it may be in a run."""
        n, k = self._domain.column(product), self._domain.contracted(product)
        bundles = self._rounded(product) or product.output.dtype is DType.INT32
        return pack(
            address, self._domain.atoms, k, n, self._number_of, self._values.number, bundles
        )

    def _transformed(self, product: Node, panels: Panels, source: Value) -> int:
        """Slices of the weights of a convolution that have transforms: of constants at once, of others maybe in a run."""
        patches = product.required(0).made_by("patches")
        dtypes = {source.dtype, product.output.dtype}
        if not self._transforms or patches is None or dtypes != {DType.FLOAT32}:
            return 0
        return transformed_slices(patches.attrs, panels.batch, panels.k, panels.n, self._facts)

    def _columns(self, product: Node, source: Value, packed: Packed) -> Address:
        """Where a constant B operand lies column by column."""
        steps = {self._domain.column(product): packed.panels.k, self._domain.contracted(product): 1}
        buffer = self._values.columns(packed.panels, source)
        return Address(source, buffer, 0, packed.strides | steps)

    def _number_of(self, dim: Dim | Extent) -> int | None:
        """The number that a dim, or the extent of an atom, is."""
        if isinstance(dim, Extent):
            dim = self._space.extent(dim.atom)
        if not isinstance(dim, int):
            dim = self._facts.canonical(dim)
        return dim if isinstance(dim, int) else None

    # -- results

    def _store(self, value: Value) -> None:
        producer = value.producer
        assert producer is not None
        layout = self._axes[producer].result
        at = self._at[value] if value in self._at else self._stored_view(producer)
        place = self._values.place(value)
        strides = self._domain.per_atom(layout, place.strides)
        access = self._access(Address(value, place.buffer, place.offset, strides))
        # A matrix product keeps its m and n axes even where their extent is 1 and the value has none.
        axes = self._domain.layout_mask(layout) | self._nodes[at].axes
        self._emit(
            PlanNode(
                "store",
                value.dtype.register,
                axes & ~self._domain.k_mask,
                (at,),
                access=self._add_access(access),
            )
        )

    def _stored_view(self, producer: Node) -> int:
        """Loads the view that a copy kernel stores."""
        if not _is_view(producer):
            raise CompileError(f"{self._subgraph.name}: {producer.name} has not been lowered")
        if self._axes[producer].operands[0] is None:
            address = self._strided(producer)
        else:
            address = self._address(producer, 0)
        return self._load(address, producer.output.dtype, address.strides)


_KINDS = {
    SubgraphKind.VECTOR: KernelKind.VECTOR,
    SubgraphKind.ALIAS: KernelKind.VECTOR,
    SubgraphKind.CUBE: KernelKind.CUBE,
    SubgraphKind.MIX: KernelKind.MIX,
}


def _element(node: Node) -> DType | None:
    """The dtype of 16 bits in which a device may do the operator: that of its floating operands and result."""
    dtypes = {value.dtype for value in (*node.inputs, node.output) if value is not None}
    halves = dtypes - {DType.BOOL}
    return halves.pop() if len(halves) == 1 and halves <= _HALVES else None


_HALVES = {DType.FLOAT16, DType.BFLOAT16}


def _is_view(node: Node) -> bool:
    return node.op in RELAYOUTS or node.op in STRIDED


def _is_bf16(operand: Value) -> bool:
    """Whether elements of a product's operand are numbers of bfloat16, other than those of patches."""
    cast = operand.made_by("cast")
    dtypes = {operand.dtype} if cast is None else {operand.dtype, cast.required(0).dtype}
    return DType.BFLOAT16 in dtypes and operand.made_by("patches") is None
