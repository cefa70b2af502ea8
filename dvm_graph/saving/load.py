"""Loads a saved model: no graph, no dims but integer programs, nothing of the compiler.

In: a file that `save_model` wrote. Out: a `SavedModel`, with a program that runs on contents where they lie in
the file. Panels of another width than this device's are packed anew; everything else is as it was saved.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph import _core
from dvm_graph.description import Description
from dvm_graph.errors import CompileError, DvmError, InputError
from dvm_graph.ir import DType
from dvm_graph.kernels.plan import packed_rows
from dvm_graph.options import Options
from dvm_graph.process import MappedFile
from dvm_graph.runtime.block_packing import repacked_blocks
from dvm_graph.runtime.program import Program
from dvm_graph.runtime.recipe import METHODS, Recipe, make_program
from dvm_graph.runtime.vendor_model import VendorModel, VendorThreads
from dvm_graph.saving.head import Head, PackedPanels, Part, Partition, Place
from dvm_graph.saving.objects import object_from_plain
from dvm_graph.saving.plain import from_plain
from dvm_graph.saving.saved_file import SavedFile

if TYPE_CHECKING:
    from dvm_graph.report import Report
    from dvm_graph.runtime.vendor import VendorPartition

RUN_OPTIONS = ("cores", "spin", "simd", "local_bytes", "private_weights")
"""Options that a saved model can be loaded with; the others were settled when it was compiled."""
_MALFORMED = (
    *(TypeError, ValueError, KeyError, IndexError, OverflowError, AttributeError, RuntimeError),
    *(CompileError, RecursionError, StopIteration),
)
"""What a header that is not as `save_model` writes it makes of the code that reads it."""


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model from a file, ready to run."""

    name: str
    """Of the file that it was compiled from."""
    program: Program
    description: Description
    options: Options
    report: Place
    file: SavedFile


def load_model(path: str | PathLike[str], overrides: Mapping[str, Any]) -> SavedModel:
    """The model of a file, with some of `RUN_OPTIONS` changed.

    Raises:
        ModelError: there is no such file; `DamagedError`: it is not as it was saved.
        UnsupportedError: another version saved it, or onnxruntime refuses a vendor partition.
        InputError: an option that there is not, or that was settled when the model was compiled.
        What `make_program` raises.
    """
    for name in overrides:
        if name in Options.__slots__ and name not in RUN_OPTIONS:
            raise InputError(
                f"option {name} was settled when the model was compiled; a saved model is loaded with "
                f"{', '.join(RUN_OPTIONS)} alone"
            )
    given = Options().changed(overrides)  # before anything is read
    file = SavedFile(path, private=given.private_weights)
    try:
        head = from_plain(Head, {name: file.header[name] for name in Head.__slots__})
        options = head.options.changed({name: getattr(given, name) for name in overrides})
        program = _program(file, head.program, iter(file.header["recipes"]), options)
        return SavedModel(head.name, program, head.description, options, head.report, file)
    except _MALFORMED as error:
        if isinstance(error, DvmError) and not isinstance(error, CompileError):
            raise
        raise file.damaged(f"it makes no model ({type(error).__name__}: {error})") from error


def load_report(model: SavedModel) -> Report:
    """The report of the model, as it was when it was saved."""
    from dvm_graph.report import Report

    place = model.report
    return from_plain(Report, json.loads(model.file.copy(place.offset, place.size)))


def _program(
    file: SavedFile,
    part: Part,
    recipes: Iterator[Mapping[str, Any]],
    options: Options,
    *,
    is_body: bool = False,
) -> Program:
    """The program of a part; recipes of bodies follow that of what they are in."""
    loader = _Loader(file, part, next(recipes))
    recipe = loader.recipe()
    bodies = [_program(file, body, recipes, options, is_body=True) for body in part.bodies]
    return make_program(recipe, options, loader.partitions, loader.fill, bodies, is_body=is_body)


class _Loader:
    def __init__(self, file: SavedFile, part: Part, saved: Mapping[str, Any]) -> None:
        self._file = file
        self._part = part
        self._saved = saved

    def recipe(self) -> Recipe:
        calls = self._saved["calls"]
        unknown = {method for method, _ in calls} - METHODS
        if unknown:
            raise self._file.damaged(f"it calls {min(unknown)}")
        return Recipe(calls, self._part.inputs, self._part.outputs)

    def partitions(self, threads: VendorThreads) -> Sequence[VendorPartition]:
        from dvm_graph.runtime.vendor import FAILURES, VendorPartition

        partitions = []
        for saved in self._part.partitions:
            try:
                partitions.append(VendorPartition(self._vendor_model(saved), threads))
            except FAILURES as error:
                raise self._file.damaged(f"onnxruntime refuses {saved.nodes}: {error}") from error
        return partitions

    def _vendor_model(self, saved: Partition) -> VendorModel:
        return VendorModel(
            saved.nodes,
            functools.partial(self._file.copy, saved.model.offset, saved.model.size),
            saved.inputs,
            saved.results,
            saved.foreign,
            saved.casts,
            saved.loops,
            saved.optimise,
            saved.quantized,
        )

    def fill(self, builder: _core.ModelBuilder) -> list[MappedFile]:
        for array in self._part.arrays:
            builder.set_constant(array.value, self._array(array.place, array.dtype, array.shape))
        for panels in self._part.panels:
            flat = self._array(panels.place, panels.dtype, (-1,))
            unit = DType.FLOAT32 if panels.bundles else panels.dtype
            if panels.columns == builder.panel_columns(unit.short):
                builder.set_constant(panels.value, flat)
            else:
                self._file.verify(panels.place.offset, panels.place.size)
                _pack_anew(builder, panels, flat)
        for blocks in self._part.blocks:
            flat = self._array(blocks.place, DType.UINT32, (-1,))
            columns = builder.panel_columns(DType.FLOAT32.short)
            if blocks.columns != columns:
                self._file.verify(blocks.place.offset, blocks.place.size)
                flat = repacked_blocks(flat, blocks.columns, blocks.n, blocks.blocks, columns)
            builder.set_constant(blocks.value, flat)
        for value, contents in self._saved["objects"]:
            builder.set_object(value, object_from_plain(contents))
        return [] if self._file.pages is None else [self._file.pages]

    def _array(self, place: Place, dtype: DType, shape: tuple[int, ...]) -> NDArray[Any]:
        bits = np.dtype(np.uint16) if dtype is DType.BFLOAT16 else dtype.numpy
        return self._file.array(place.offset, place.size).view(bits).reshape(shape)


def _pack_anew(builder: _core.ModelBuilder, panels: PackedPanels, flat: NDArray[Any]) -> None:
    """Packs a matrix for this device that was packed for one with panels of another width."""
    batch, k, n, columns = panels.batch, panels.k, panels.n, panels.columns
    bundle = panels.dtype.bundled if panels.bundles else 1
    steps = -(-packed_rows(k, panels.transformed) // bundle)
    tiles = flat.reshape(batch, -(-n // columns), steps, columns, bundle)
    rows = tiles.transpose(0, 2, 4, 1, 3).reshape(batch, steps * bundle, -1)
    matrix = np.ascontiguousarray(rows[:, :k, :n])
    builder.pack(
        panels.value,
        matrix,
        panels.dtype.short,
        (batch, k, n),
        (k * n, n, 1),
        0,
        panels.bundles,
        transformed=panels.transformed,
        mapped=False,
    )
