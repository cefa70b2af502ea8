"""What the constants of a plan hold: used where it lies, or packed once into the panels that the cube unit reads.

Weights are not in memory twice, nor while a model is assembled: contents that live on as packed panels alone are given up as
soon as the last of those panels are packed.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph import _core
from dvm_graph.errors import CompileError
from dvm_graph.ir import DType, Value
from dvm_graph.kernels.plan import (
    ControlStep,
    HostStep,
    ModelPlan,
    Panels,
    PlanValue,
    VendorStep,
    all_calls,
)
from dvm_graph.process import MappedFile, file_of
from dvm_graph.runtime.block_packing import packed_blocks


class PackedArrays:
    """Panels of arrays, for programs of the same options that read these alike; they are forgotten with the arrays."""

    def __init__(self) -> None:
        self._packed: dict[tuple[Any, ...], tuple[weakref.ref[Any], _core.PackedConstant]] = {}
        """By the id of an array, and as what and how it is packed."""

    def __len__(self) -> int:
        return len(self._packed)

    def find(self, array: NDArray[Any], how: tuple[Any, ...]) -> _core.PackedConstant | None:
        known = self._packed.get((id(array), *how))
        return known[1] if known is not None and known[0]() is array else None

    def keep(self, array: NDArray[Any], how: tuple[Any, ...], packed: _core.PackedConstant) -> None:
        key, owner = (id(array), *how), weakref.ref(self)

        def forget(dead: weakref.ref[Any]) -> None:
            arrays = owner()
            if arrays is not None and arrays._packed[key][0] is dead:  # ids come again
                del arrays._packed[key]

        self._packed[key] = weakref.ref(array, forget), packed


class Contents:
    """Those of a model's constants, and of its bodies': `plans` are all of theirs."""

    def __init__(
        self, plans: Sequence[ModelPlan], *, release_packed: bool, packed: PackedArrays | None
    ) -> None:
        """`packed`: what other programs share with this one."""
        self._packed = PackedArrays() if packed is None else packed
        self._panels_to_come: Counter[int] = Counter()
        """Of constants that nothing else reads, by id."""
        if release_packed:
            kept = {id(value) for plan in plans for value in _read_unpacked(plan)}
            sources = (id(source) for plan in plans for source in _packed(plan))
            self._panels_to_come.update(source for source in sources if source not in kept)

    def fill(self, plan: ModelPlan, builder: _core.ModelBuilder) -> list[MappedFile]:
        """Hands them to the builder of a plan's program, and says which files some of them stay pages of."""
        in_place = set(_touched(plan))
        files: dict[MappedFile, None] = {}
        for index, value in enumerate(plan.values):
            if value.panels is not None:
                sources = _sources(plan, value)
                if isinstance(value.panels, Panels):
                    self._pack(builder, index, value.dtype, value.panels, *sources)
                else:
                    columns = builder.panel_columns("f32")
                    packed = packed_blocks(columns, value.panels.bits, *map(_array, sources))
                    builder.set_constant(index, packed)
                for source in sources:
                    self._release(source)
            elif value.constant is not None and value.opaque:
                builder.set_object(index, value.constant.data)
            elif value.constant is not None and index in in_place:
                array = value.dtype.bits(_array(value.constant))
                builder.set_constant(index, array)
                file = file_of(array)
                if file is not None:
                    files[file] = None
        return list(files)

    def _pack(
        self,
        builder: _core.ModelBuilder,
        index: int,
        dtype: DType,
        panels: Panels,
        source: Value,
    ) -> None:
        assert source.data is not None
        how = (source.dtype, dtype, replace(panels, source=0))
        known = self._packed.find(source.data, how)
        if known is not None:
            builder.set_packed(index, known)
            return
        array = _array(source)
        packed = builder.pack(
            index,
            source.dtype.bits(array),
            source.dtype.short,
            (panels.batch, panels.k, panels.n),
            panels.strides,
            panels.offset,
            panels.bundles,
            panels.transformed,
            file_of(array) is not None,
        )
        self._packed.keep(source.data, how, packed)

    def _release(self, source: Value) -> None:
        """Its contents, unless more panels are to be packed of them, or something else reads them."""
        if id(source) not in self._panels_to_come:
            return
        self._panels_to_come[id(source)] -= 1
        if self._panels_to_come[id(source)] == 0:
            assert source.data is not None
            nothing = np.zeros((), source.data.dtype)
            source.data = np.broadcast_to(nothing, source.data.shape).view(_Released)


class _Released(np.ndarray[Any, Any]):
    """Shape and dtype of a constant whose contents were given up; its elements are all one zero."""


def _sources(plan: ModelPlan, value: PlanValue) -> list[Value]:
    """The constants that a value is packed of."""
    assert value.panels is not None
    sources = []
    for number in value.panels.sources:
        constant = plan.values[number].constant
        if constant is None:
            raise CompileError(
                f"{value.name} packs {plan.values[number].name}, which is no constant"
            )
        sources.append(constant)
    return sources


def _packed(plan: ModelPlan) -> Iterator[Value]:
    """Constants, as often as they are packed."""
    for value in plan.values:
        if value.panels is not None:
            yield from _sources(plan, value)


def _read_unpacked(plan: ModelPlan) -> Iterator[Value | None]:
    """By kernels in place, or by a vendor partition, which may be made anew."""
    for index in _touched(plan):
        yield plan.values[index].constant
    for step in plan.steps:
        if isinstance(step, VendorStep):
            for node in step.nodes:
                yield from node.inputs


def _touched(plan: ModelPlan) -> Iterator[int]:
    """Values that kernels, calls or the caller read or write."""
    yield from plan.outputs
    for call in all_calls(plan.steps):
        yield from (access.value for access in call.plan.accesses)
    for step in plan.steps:
        if isinstance(step, VendorStep | ControlStep | HostStep):
            yield from step.inputs


def _array(value: Value) -> NDArray[Any]:
    """A constant's array, contiguous and aligned; copied only where it is not."""
    assert value.data is not None, value.name
    array = value.data
    if isinstance(array, _Released):
        raise CompileError(f"the contents of {value.name} were released when it was packed")
    if not (array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return array
