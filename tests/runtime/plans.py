"""Plans made by hand, for tests of the runtime alone: no importer, no fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dvm_graph.ir import DType, Value
from dvm_graph.kernels.plan import (
    NO_SLOT,
    Access,
    DimsStep,
    KernelCall,
    KernelKind,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    Panels,
    PlanNode,
    PlanValue,
    Storage,
    SymbolBinding,
)
from dvm_graph.symbolic import DimTable, Symbol, Symbols, mul

F32, I64 = DType.FLOAT32, DType.INT64
RNG = np.random.default_rng(7)


def random(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape, dtype=np.float32)


@dataclass
class PlanBuilder:
    """Builds a ModelPlan step by step; dims are ints, symbol names, or symbolic expressions."""

    plan: ModelPlan = field(default_factory=lambda: ModelPlan(DimTable()))
    symbols: Symbols = field(default_factory=Symbols)
    bound: set[str] = field(default_factory=set)
    shapes: list[tuple[Any, ...]] = field(default_factory=list)

    def dim(self, dim: Any) -> Any:
        return self.symbols.get(dim) if isinstance(dim, str) else dim

    def slot(self, dim: Any) -> int:
        return self.plan.dims.slot(self.dim(dim))

    def value(
        self,
        name: str,
        shape: Sequence[Any],
        dtype: DType = F32,
        storage: Storage = Storage.ARENA,
        **more: Any,
    ) -> int:
        dims = tuple(self.dim(dim) for dim in shape)
        slots = tuple(self.slot(dim) for dim in dims)
        self.plan.values.append(PlanValue(name, dtype, slots, storage, **more))
        self.shapes.append(dims)
        index = len(self.plan.values) - 1
        if storage is Storage.INPUT:
            self.plan.inputs = (*self.plan.inputs, index)
            self.bind(index)
        if storage is Storage.OUTPUT:
            self.returns(*self.plan.outputs, index)
        return index

    def returns(self, *values: int) -> None:
        """What the model has as outputs; each is called as its value."""
        self.plan.outputs = values
        self.plan.output_names = tuple(self.plan.values[value].name for value in values)

    def input(self, name: str, shape: Sequence[Any], dtype: DType = F32) -> int:
        return self.value(name, shape, dtype, Storage.INPUT)

    def output(self, name: str, shape: Sequence[Any], dtype: DType = F32) -> int:
        return self.value(name, shape, dtype, Storage.OUTPUT)

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> int:
        dtype = DType(array.dtype.name)
        constant = Value(name, dtype, array.shape, array)
        return self.value(name, array.shape, dtype, Storage.CONSTANT, constant=constant)

    def panels(self, source: int) -> int:
        batch, (k, n) = 1, self.shapes[source]
        panels = Panels(source, batch, k, n, (k * n, n, 1))
        name = self.plan.values[source].name + ".panels"
        return self.value(name, (batch, k, n), F32, Storage.PANELS, panels=panels)

    def bind(self, index: int) -> None:
        """Binds the symbols that are dims of a value and have no value so far."""
        for axis, dim in enumerate(self.shapes[index]):
            if isinstance(dim, Symbol) and str(dim) not in self.bound:
                self.bound.add(str(dim))
                number = self.plan.dims.symbol(dim)
                self.plan.bindings.append(SymbolBinding(number, index, axis))

    def access(self, value: int, axes: Sequence[int], rank: int, **more: Any) -> Access:
        """A row-major access: axis i of the value is axis `axes[i]` of the domain."""
        strides = [NO_SLOT] * rank
        step: Any = 1
        for axis, dim in reversed(list(zip(axes, self.shapes[value], strict=True))):
            strides[axis] = self.slot(step)
            step = mul(dim, step)
        return Access(value, tuple(strides), **more)

    def launch(self, *stages: Sequence[KernelCall]) -> None:
        self.plan.steps.append(LaunchStep(tuple(tuple(stage) for stage in stages)))

    def write_dims(self, value: int, dims: Sequence[Any]) -> None:
        self.plan.steps.append(DimsStep(value, tuple(self.slot(dim) for dim in dims)))

    # -- kernels

    def map(self, op: str, inputs: Sequence[int], output: int, dtype: DType = F32) -> KernelPlan:
        """output = op(inputs), all of one shape."""
        shape = self.shapes[output]
        rank, everything = len(shape), (1 << len(shape)) - 1
        values = [*inputs, output]
        accesses = tuple(self.access(value, range(rank), rank) for value in values)
        count = len(inputs)
        nodes = (
            *(PlanNode("load", dtype, everything, access=i) for i in range(count)),
            PlanNode(op, dtype, everything, tuple(range(count))),
            PlanNode("store", dtype, everything, (count,), access=count),
        )
        name = f"{op}_to_{self.plan.values[output].name}"
        return KernelPlan(
            name,
            KernelKind.VECTOR,
            tuple(map(self.slot, shape)),
            nodes,
            accesses,
            origin=(f"/onnx/{op}",),
        )

    def reduce(self, op: str, value: int, output: int) -> KernelPlan:
        """output[i] = op over j of value[i, j]."""
        shape = self.shapes[value]
        nodes = (
            PlanNode("load", F32, 0b11, access=0),
            PlanNode(op, F32, 0b01, (0,), reduce_axes=0b10),
            PlanNode("store", F32, 0b01, (1,), access=1),
        )
        accesses = (self.access(value, (0, 1), 2), self.access(output, (0,), 2))
        return KernelPlan(op, KernelKind.VECTOR, tuple(map(self.slot, shape)), nodes, accesses)

    def matmul(self, a: int, b: int, output: int, packed: bool = False) -> KernelPlan:
        """output[m, n] = a[m, k] @ b[k, n]."""
        m, n = self.shapes[output]
        k = self.shapes[a][1]
        nodes = (
            PlanNode("load", F32, 0b101, access=0),
            PlanNode("load", F32, 0b110, access=1),
            PlanNode("matmul", F32, 0b011, (0, 1)),
            PlanNode("store", F32, 0b011, (2,), access=2),
        )
        second = (
            Access(b, (NO_SLOT,) * 3, packed_panels=True) if packed else self.access(b, (2, 1), 3)
        )
        accesses = (self.access(a, (0, 2), 3), second, self.access(output, (0, 1), 3))
        extents = tuple(map(self.slot, (m, n, k)))
        return KernelPlan("matmul", KernelKind.CUBE, extents, nodes, accesses, 0, 1, 2)

    def take_rows(self, table: int, index: int, output: int) -> KernelPlan:
        """output[i, j] = table[index[i], j], the index checked."""
        rows, columns = self.shapes[table]
        nodes = (
            PlanNode("load", I64, 0b01, access=0),
            PlanNode("check_index", I64, 0b01, (0,), limit=self.slot(rows)),
            PlanNode(
                "gather",
                F32,
                0b11,
                (1,),
                access=1,
                limit=self.slot(rows),
                offset=self.slot(columns),
            ),
            PlanNode("store", F32, 0b11, (2,), access=2),
        )
        table_access = Access(table, (NO_SLOT, self.slot(1)))
        accesses = (self.access(index, (0,), 2), table_access, self.access(output, (0, 1), 2))
        extents = tuple(map(self.slot, self.shapes[output]))
        return KernelPlan(
            "take_rows", KernelKind.VECTOR, extents, nodes, accesses, origin=("/emb/Gather",)
        )


def call(plan: KernelPlan, *fallback: KernelCall, guard: int = NO_SLOT) -> KernelCall:
    return KernelCall(plan, guard, tuple(fallback))
