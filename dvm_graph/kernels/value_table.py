"""The buffers of a model plan, and where each value of the graph lies in them.

In: a schedule. Out: plan values, numbered as they are first asked for, and *places*: buffer, offset
and strides of a value. Operands of a concat lie inside its buffer, which may lie in that of another
concat; aliases share that of their root.

What an ONNX operator of half floats computes on the way to its result may leave their range: between kernels it
stays as wide as it is in registers.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dvm_graph.cluster import Schedule
from dvm_graph.cluster.subgraph import is_inner
from dvm_graph.errors import CompileError
from dvm_graph.ir import Dim, DType, Value, shape_of
from dvm_graph.ir.operators import OPERATORS, Kind
from dvm_graph.kernels.plan import Blocks, ModelPlan, Panels, PlanValue, Slot, Storage
from dvm_graph.records import record
from dvm_graph.symbolic.dims import add, mul
from dvm_graph.symbolic.shape_functions import row_major


@record(frozen=True, slots=True)
class Place:
    """A strided part of a buffer."""

    buffer: int
    offset: Dim
    strides: tuple[Dim, ...]


def matrices(panels: Panels, source: Value) -> NDArray[Any]:
    """[batch, k, n] of a constant."""
    shape = (panels.batch, panels.k, panels.n)
    steps = [step * source.dtype.itemsize for step in panels.strides]
    flat = np.asarray(source.data).reshape(-1)[panels.offset :]
    return as_strided(flat, shape, steps, writeable=False)


class ValueTable:
    """Numbers the buffers of a plan."""

    def __init__(self, schedule: Schedule, plan: ModelPlan) -> None:
        self._plan = plan
        self._graph = schedule.graph
        self._aliases = schedule.aliases
        self._inputs = set(schedule.graph.inputs)
        self._outputs = set(schedule.graph.outputs)
        self._numbers: dict[Value, int] = {}
        self._places: dict[Value, Place] = {}
        self._panels: dict[Panels | Blocks, int] = {}
        self._columns: dict[Panels, int] = {}
        self._tables: dict[tuple[DType, tuple[int, ...]], int] = {}
        self._parts: dict[Value, tuple[Value, int, Dim]] = {}
        for node in schedule.joins:
            axis: int = node.attrs["axis"]
            start: Dim = 0
            for value in node.inputs:
                assert value is not None
                self._parts[value] = (node.output, axis, start)
                start = add(start, shape_of(value)[axis])

    def number(self, value: Value) -> int:
        """The index of a value's buffer."""
        root = self._aliases.root(value)
        known = self._numbers.get(root)
        if known is None:
            known = self._numbers[root] = self._add(root)
        return known

    def place(self, value: Value) -> Place:
        """Where a value lies."""
        known = self._places.get(value)
        if known is None:
            known = self._places[value] = self._place(value)
        return known

    def _place(self, value: Value) -> Place:
        if value in self._parts:
            joined, axis, start = self._parts[value]
            whole = self.place(joined)
            return Place(
                whole.buffer, add(whole.offset, mul(start, whole.strides[axis])), whole.strides
            )
        return Place(self.number(value), 0, row_major(shape_of(value)))

    def panels(self, panels: Panels, source: Value) -> int:
        """The buffer of a packed matrix operand."""
        known = self._panels.get(panels)
        if known is None:
            rounded = panels.bundles and source.dtype.is_float
            dtype = DType.BFLOAT16 if rounded else source.dtype
            steps = dtype.bundled if panels.bundles else 1
            k = -(-panels.rows // steps) * steps
            shape = tuple(self._slot(extent) for extent in (panels.batch, k, panels.n))
            value = PlanValue(
                f"{source.name}.panels",
                dtype,
                shape,
                Storage.PANELS,
                None,
                panels,
            )
            known = self._panels[panels] = self._append(value)
        return known

    def blocks(self, unpacked: Value) -> tuple[int, Blocks]:
        """The buffer of a matrix operand of a few bits: what `unpack_blocks` makes."""
        node = unpacked.made_by("unpack_blocks")
        assert node is not None
        levels, *zeros, scales = (node.required(index) for index in range(len(node.inputs)))
        bits: int = node.attrs["bits"]
        blocks = Blocks(
            self.number(levels),
            self.number(scales),
            self.number(zeros[0]) if zeros else -1,
            shape_of(levels)[-1] * 8 // bits,
            bits,
        )
        known = self._panels.get(blocks)
        if known is None:
            shape = tuple(self._slot(extent) for extent in (1, *(unpacked.shape or ())))
            name = f"{levels.name}.panels"
            value = PlanValue(name, DType.UINT32, shape, Storage.PANELS, panels=blocks)
            known = self._panels[blocks] = self._append(value)
        return known, blocks

    def columns(self, panels: Panels, source: Value) -> int:
        """The buffer of a constant matrix operand, transposed: [batch, n, k]."""
        known = self._columns.get(panels)
        if known is None:
            data = np.ascontiguousarray(matrices(panels, source).transpose(0, 2, 1))
            name = f"{source.name}.columns"
            known = self._columns[panels] = self._add(Value(name, source.dtype, data.shape, data))
        return known

    def table(self, looked_up: Value) -> int:
        """The buffer of the bytes that a `lookup` picks from."""
        node = looked_up.made_by("lookup")
        assert node is not None
        dtype, entries = looked_up.dtype, node.attrs["table"]
        known = self._tables.get((dtype, entries))
        if known is None:
            data = np.array(entries, dtype.numpy)
            value = Value(f"{looked_up.name}.table", dtype, data.shape, data)
            known = self._tables[dtype, entries] = self._add(value)
        return known

    def _add(self, value: Value) -> int:
        opaque = not value.computable
        shape = () if opaque else tuple(self._slot(extent) for extent in value.shape or ())
        constant = value if value.is_constant else None
        storage = self._storage(value)
        widens = value.dtype.is_float and value.dtype.register is not value.dtype
        wide = widens and storage is Storage.ARENA and self._stays_wide(value)
        return self._append(
            PlanValue(
                value.name,
                value.dtype.register if wide else value.dtype,
                shape,
                storage,
                constant,
                opaque=opaque,
                element=None if value.holds is None else value.holds.dtype,
                opaque_type=value.opaque_type if opaque else b"",
            )
        )

    def _stays_wide(self, value: Value) -> bool:
        """What is one of the numbers that its ONNX operator reads does not: it equals them as they are in memory."""
        assert value.producer is not None
        return is_inner(self._graph, value) and _computes(value, set(value.producer.origin))

    def _storage(self, value: Value) -> Storage:
        if value.is_constant:
            return Storage.CONSTANT
        if value in self._inputs:
            return Storage.INPUT
        if value.producer is not None and value.producer.is_call:
            return Storage.VENDOR
        if not value.computable:
            raise CompileError(f"a kernel makes {value!r}, which only the vendor library can hold")
        return Storage.OUTPUT if value in self._outputs else Storage.ARENA

    def _append(self, value: PlanValue) -> int:
        self._plan.values.append(value)
        return len(self._plan.values) - 1

    def _slot(self, extent: Dim) -> Slot:
        return self._plan.dims.slot(extent)


_CHOOSES = frozenset(
    {"abs", "cast", "gather", "max", "min", "neg", "pool_max", "reduce_max", "reduce_min", "select"}
)
"""Operators of floats whose results their operands' type holds."""


def _computes(value: Value, origin: Set[str]) -> bool:
    """Whether arithmetic of the ONNX operators in `origin` is what a value comes of."""
    reached = [value]
    seen = {value}
    for at in reached:
        node = at.producer
        if node is None or node.is_call or origin.isdisjoint(node.origin):
            continue
        if node.op not in _CHOOSES and OPERATORS[node.op].kind is not Kind.VIEW:
            return True
        new = {v for v in node.inputs if v is not None and v.dtype is value.dtype} - seen
        reached += new
        seen |= new
    return False
