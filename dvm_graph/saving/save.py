"""Saves a compiled model.

In: a plan, its program, and what else a model answers from. Out: a file that `load_model` makes the same
program of. Contents of constants come from the program, panels as they are packed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvm_graph.description import Description
from dvm_graph.errors import UnsupportedError
from dvm_graph.import_ import whole_model
from dvm_graph.ir import DType
from dvm_graph.kernels.plan import Blocks, ModelPlan, Panels
from dvm_graph.options import Options
from dvm_graph.report import Report
from dvm_graph.runtime import Program
from dvm_graph.runtime.assemble import bodies_of, recipe_of
from dvm_graph.saving.head import Array, Head, PackedBlocks, PackedPanels, Part, Partition, Place
from dvm_graph.saving.objects import object_to_plain
from dvm_graph.saving.plain import to_plain
from dvm_graph.saving.saved_file import SavedWriter

if TYPE_CHECKING:
    from dvm_graph.runtime.vendor import VendorPartition


def save_model(
    target: Path,
    plan: ModelPlan,
    program: Program,
    options: Options,
    description: Description,
    report: Report,
    name: str,
) -> None:
    """Writes the file, in the place of one that may be there (`output_path` has looked at it).

    Raises:
        InputError: it cannot be written.
        UnsupportedError: something in the model is of a kind that files have no place for.
    """
    if options.device:
        raise UnsupportedError(
            f"a model on a simulated part cannot be saved (device={options.device!r})"
        )
    writer = SavedWriter()
    recipes: list[Any] = []
    part = _part(plan, program, options, writer, recipes)
    place = Place(*writer.add(json.dumps(to_plain(report)).encode()))
    head = Head(name, part, place, description, options)
    writer.write(target, {**to_plain(head), "recipes": recipes}, program.cores)


def _part(
    plan: ModelPlan, program: Program, options: Options, writer: SavedWriter, recipes: list[Any]
) -> Part:
    """What is saved of a program; adds what its recipe says, that of each body behind it."""
    saver = _Saver(plan, program, writer)
    recipe = recipe_of(plan, options)
    recipes.append({"calls": recipe.calls, "objects": list(saver.objects())})
    pairs = zip(bodies_of(plan), program.bodies, strict=True)
    return Part(
        recipe.inputs,
        recipe.outputs,
        tuple(saver.arrays()),
        tuple(saver.panels()),
        tuple(saver.blocks()),
        tuple(saver.partition(partition) for partition in program.partitions),
        tuple(_part(body, inner, options, writer, recipes) for body, inner in pairs),
    )


class _Saver:
    def __init__(self, plan: ModelPlan, program: Program, writer: SavedWriter) -> None:
        self._writer = writer
        contents = ((index, program.contents(index)) for index in range(len(plan.values)))
        self._contents = {index: array for index, array in contents if array is not None}
        self._plan = plan
        self._program = program

    def place(self, contents: Any) -> Place:
        return Place(*self._writer.add(contents))

    def arrays(self) -> Iterator[Array]:
        for index, array in self._contents.items():
            value = self._plan.values[index]
            if not value.opaque and value.panels is None:
                yield Array(index, value.dtype, array.shape, self.place(array))

    def panels(self) -> Iterator[PackedPanels]:
        for index, array in self._contents.items():
            value, p = self._plan.values[index], self._plan.values[index].panels
            if isinstance(p, Panels):
                columns = self._program.panel_columns(unit_of(value.dtype, p.bundles))
                yield PackedPanels(
                    value=index,
                    dtype=value.dtype,
                    batch=p.batch,
                    k=p.k,
                    n=p.n,
                    bundles=p.bundles,
                    transformed=p.transformed,
                    columns=columns,
                    place=self.place(array),
                )

    def blocks(self) -> Iterator[PackedBlocks]:
        for index, array in self._contents.items():
            packed = self._plan.values[index].panels
            if isinstance(packed, Blocks):
                columns = self._program.panel_columns(DType.FLOAT32)
                scales = self._plan.values[packed.scales].constant
                assert scales is not None and scales.shape is not None
                n, blocks = scales.shape
                yield PackedBlocks(index, n, blocks, columns, self.place(array))

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, contents in self._contents.items():
            value = self._plan.values[index]
            if value.opaque:
                yield index, object_to_plain(value.name, contents)

    def partition(self, partition: VendorPartition) -> Partition:
        vendor = partition.model
        model = vendor.model()
        return Partition(
            vendor.nodes,
            vendor.inputs,
            vendor.results,
            vendor.foreign,
            vendor.casts,
            vendor.loops,
            vendor.optimise,
            vendor.quantized,
            self.place(whole_model(model) if isinstance(model, str) else model),
        )


def unit_of(dtype: DType, bundles: bool) -> DType:
    """What panels are made of, for the number of their columns: a bundle is as wide as an f32."""
    return DType.FLOAT32 if bundles else dtype
