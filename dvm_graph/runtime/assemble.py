"""Assembling: a model plan becomes a program of the C++ core.

In: a `ModelPlan` and the options of the device. Out: a `Program`. Constant matrices are packed here,
once, into the panels that the device's cube unit reads; other constants are used where they lie.
No decisions are made: the plan is handed over as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph import _core
from dvm_graph.errors import CompileError, InputError, OutOfMemoryError
from dvm_graph.ir import DType, Value
from dvm_graph.kernels.plan import (
    DimsStep,
    KernelCall,
    KernelPlan,
    LaunchStep,
    ModelPlan,
    PlanNode,
    PlanValue,
    VendorStep,
)
from dvm_graph.options import Options
from dvm_graph.process import MappedFile, load_onnxruntime
from dvm_graph.runtime.program import Port, Program


def assemble(plan: ModelPlan, options: Options, *, release_packed: bool = False) -> Program:
    """The program of a plan, on the host device that the options ask for.

    `release_packed` gives up the contents of constants that only live on as packed panels (shape and
    dtype stay), so that weights are not in memory twice. The plan cannot be assembled again then.

    Raises:
        UnsupportedError: onnxruntime refuses a vendor partition.
        InputError: the options ask for an instruction-set level that the machine lacks, or for products
            of bf16, which its CPU has no instructions for.
        OutOfMemoryError: the packed weights, or the local memories asked for, do not fit memory.
        CompileError: the plan is malformed.
    """
    assembler = _Assembler(plan, options)
    program = assembler.run()
    if release_packed:
        assembler.release_packed()
    return program


class _Released(np.ndarray[Any, Any]):
    """Shape and dtype of a constant whose contents were given up; its elements are all one zero."""


class _Assembler:
    def __init__(self, plan: ModelPlan, options: Options) -> None:
        self._plan = plan
        self._options = options
        self._builder = _builder(options)
        self._in_place = set(_touched(plan))
        self._files: dict[MappedFile, None] = {}  # of constants that are used where they lie
        self._casts: list[str] = []

    def run(self) -> Program:
        plan, builder = self._plan, self._builder
        hints = list(self._hint_checks())
        builder.set_dims([str(symbol) for symbol in plan.dims.symbols], plan.dims.instructions)
        for value in plan.values:
            dtype = DType.OPAQUE if value.opaque else value.dtype
            builder.add_value(value.name, dtype.short, value.storage.value, value.shape)
        for index, value in enumerate(plan.values):
            self._add_contents(index, value)
        for step in plan.steps:
            self._add_step(step)
        if self._options.fallbacks == "operators":
            builder.take_apart()
        for binding in plan.bindings:
            builder.add_binding(
                binding.symbol, binding.value, binding.axis, binding.scale, binding.shift
            )
        for condition, message in [*((c.condition, c.message) for c in plan.checks), *hints]:
            builder.add_check(condition, message)
        builder.set_ports(plan.inputs, plan.outputs)
        names = [plan.values[index].name for index in plan.inputs]
        core = builder.finish()
        inputs = self._ports(plan.inputs, names)
        outputs = self._ports(plan.outputs, plan.output_names)
        return Program(core, inputs, outputs, list(self._files), self._casts)

    def _ports(self, indices: Sequence[int], names: Sequence[str]) -> list[Port]:
        values = [self._plan.values[index] for index in indices]
        return [Port(n, v.dtype, v.opaque) for n, v in zip(names, values, strict=True)]

    def _hint_checks(self) -> list[tuple[int, str]]:
        """Conditions for the ranges that the user promised."""
        checks = []
        dims = self._plan.dims
        for symbol in tuple(dims.symbols):
            if str(symbol) not in self._options.dim_hints:
                continue
            low, high = self._options.dim_hints[str(symbol)]
            message = f"the hint that {symbol} is in {low}..{high}"
            checks.append((dims.predicate("le", low, symbol), message))
            checks.append((dims.predicate("le", symbol, high), message))
        return checks

    # -- constants

    def _add_contents(self, index: int, value: PlanValue) -> None:
        if value.panels is not None:
            self._add_panels(index, value)
        elif value.constant is not None and value.opaque:
            self._builder.set_object(index, value.constant.data)
        elif value.constant is not None and index in self._in_place:
            array = _bits(_contents(value.constant), value.dtype)
            self._builder.set_constant(index, array)
            file = _file_of(array)
            if file is not None:
                self._files[file] = None

    def _add_panels(self, index: int, value: PlanValue) -> None:
        panels = value.panels
        assert panels is not None
        source = self._plan.values[panels.source]
        if source.constant is None:
            raise CompileError(f"{value.name} packs {source.name}, which is no constant")
        array = _contents(source.constant)
        self._builder.pack(
            index,
            _bits(array, source.dtype),
            source.dtype.short,
            (panels.batch, panels.k, panels.n),
            panels.strides,
            panels.offset,
            panels.pairs,
            _file_of(array) is not None,
        )

    def release_packed(self) -> None:
        """Drops the contents of constants that nothing reads in place."""
        for value in self._plan.values:
            if value.panels is None or value.panels.source in self._in_place:
                continue
            constant = self._plan.values[value.panels.source].constant
            if constant is not None and constant.data is not None:
                nothing = np.zeros((), constant.data.dtype)
                constant.data = np.broadcast_to(nothing, constant.data.shape).view(_Released)

    # -- steps

    def _add_step(self, step: LaunchStep | VendorStep | DimsStep) -> None:
        if isinstance(step, LaunchStep):
            for stage in step.stages:
                self._builder.add_launch([self._add_call(call) for call in stage])
        elif isinstance(step, DimsStep):
            self._builder.add_dims_write(step.value, step.slots)
        else:
            self._add_vendor(step)

    def _add_call(self, call: KernelCall) -> int:
        fallback = [self._add_call(inner) for inner in call.fallback]
        return self._builder.add_call(self._add_kernel(call.plan), call.guard, fallback)

    def _add_kernel(self, plan: KernelPlan) -> int:
        return self._builder.add_kernel(
            plan.name,
            plan.kind.value,
            plan.extents,
            [_node_fields(node) for node in plan.nodes],
            [
                (access.value, access.strides, access.offset, access.packed_panels)
                for access in plan.accesses
            ],
            (plan.m_axis, plan.n_axis, plan.k_axis, plan.inner_k_axis),
            plan.weighed,
            plan.origin,
        )

    def _add_vendor(self, step: VendorStep) -> None:
        # Only models that need the vendor library pay for loading it.
        load_onnxruntime()
        from dvm_graph.runtime.vendor import make_partition, partition_inputs

        results = {value.name: value for node in step.nodes for value in node.outputs}
        names = [self._plan.values[index].name for index in step.outputs]
        if len(partition_inputs(step.nodes)) != len(step.inputs):
            raise CompileError(f"a vendor partition reads other values than {step.inputs}")
        partition = make_partition(
            step.nodes, [results[name] for name in names], self._builder.cores
        )
        self._casts += partition.casts
        self._builder.add_vendor(step.name, partition.run, step.inputs, step.outputs)


CORES_PER_CPU = 8
"""More of them only take turns."""


def _builder(options: Options) -> _core.ModelBuilder:
    most = CORES_PER_CPU * _core.available_cores()
    if options.cores is not None and options.cores > most:
        raise InputError(
            f"option cores is {options.cores}, but this process may use {_core.available_cores()} CPUs: "
            f"at most {most}, {CORES_PER_CPU} for each"
        )
    level = _level(options.simd)
    if options.precision == "bf16" and level not in _core.bf16_levels():
        raise InputError(
            f"precision='bf16' needs a CPU with AVX512-BF16, which {level} on this machine lacks; "
            "leave it out: f32 is as fast here, and a model whose weights are float16 or bfloat16 "
            "reads half the memory all the same"
        )
    try:
        return _core.ModelBuilder(
            options.cores or 0, options.simd or "", options.local_bytes or 0, options.spin
        )
    except MemoryError as error:
        raise OutOfMemoryError(
            f"no memory for local_bytes={options.local_bytes} on every core"
        ) from error


def _level(simd: str | None) -> str:
    """The instruction-set level to run with: the one asked for, or the best."""
    levels = _core.simd_levels()
    built = ", ".join(_core.built_levels())
    more = "`make test` and wheels build the code of every level (CMake's DVM_LEVELS=all)"
    if not levels:
        raise InputError(f"this build has code for {built}, which this CPU does not run; {more}")
    if simd is not None and simd not in levels:
        raise InputError(
            f"simd is {simd!r}, but this machine has {', '.join(levels)}, of the levels that were built: {built}; {more}"
        )
    return simd or levels[0]


def _touched(plan: ModelPlan) -> Iterator[int]:
    """Values that kernels, vendor operators or the caller read or write."""
    yield from plan.outputs
    for step in plan.steps:
        if isinstance(step, LaunchStep):
            for stage in step.stages:
                for call in stage:
                    yield from _touched_by(call)
        elif isinstance(step, VendorStep):
            yield from step.inputs


def _touched_by(call: KernelCall) -> Iterator[int]:
    for access in call.plan.accesses:
        yield access.value
    for inner in call.fallback:
        yield from _touched_by(inner)


def _node_fields(node: PlanNode) -> _core.NodeFields:
    return (
        node.op,
        node.dtype.short,
        node.axes,
        node.inputs,
        node.access,
        node.reduce_axes,
        node.narrow_to.short if node.narrow_to is not None else "",
        float(node.scalar),
        node.integer,
        node.limit,
        node.offset,
        node.strides,
        node.weights,
        node.window,
    )


def _contents(value: Value) -> NDArray[Any]:
    """A constant's array, contiguous and aligned; copied only where it is not."""
    assert value.data is not None, value.name
    array = value.data
    if isinstance(array, _Released):
        raise CompileError(f"the contents of {value.name} were released when it was packed")
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return array


def _bits(array: NDArray[Any], dtype: DType) -> NDArray[Any]:
    return array.view(np.uint16) if dtype is DType.BFLOAT16 else array


def _file_of(array: NDArray[Any]) -> MappedFile | None:
    """The file in whose pages the array lies, if it does: they may be dropped and read again."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else base
    return owner if isinstance(owner, MappedFile) else None
