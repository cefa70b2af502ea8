"""Turns an `ExportCase` into an .onnx file through torch's exporter, with named dynamic dims.

Input: a family's name, a `Size`, the dims to keep dynamic, a path. Output: the file, with the kinds of its inputs in
`metadata_props` (see `models.feeds`). Invariants: weights come from a fixed seed; the file is written under a temporary
name and renamed, so that a reader never sees half of it; every requested dim is symbolic in the file, or the export fails.
Does not compare the export with torch; the tests do.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Collection
from pathlib import Path

import onnx
import onnx_ir
import torch

from models.case import METADATA_PREFIX, ExportCase, ModelInput, Size
from models.registry import family

WEIGHT_SEED = 20240229

_STACK_TRACE = "pkg.torch.onnx.stack_trace"


def build_case(name: str, size: Size) -> ExportCase:
    """The named model with seeded weights, in inference mode."""
    torch.manual_seed(WEIGHT_SEED)
    case = family(name).build(size)
    case.module.eval()
    return case


def export_case(
    case: ExportCase, path: Path, *, dims: Collection[str] | None, single: bool
) -> None:
    """Exports `case` to `path`; `dims` limits which axes stay dynamic (None: all), `single` keeps weights inside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if case.scripted:
        _export_script(case, path, dims)
        return
    program = _run_exporter(case, dims)
    model = program.model
    for value, source in zip(model.graph.inputs, case.inputs, strict=True):
        model.metadata_props[METADATA_PREFIX + source.name] = source.metadata
        _require_symbolic(value, _dynamic_axes(source, dims))
    _drop_stack_traces(model)
    _save(program, path, single=single)


def _drop_stack_traces(model: onnx_ir.Model) -> None:
    """Stack traces hold paths of the exporting machine and a third of a tiny file's bytes; the scopes stay."""
    for node in model.graph.all_nodes():
        node.metadata_props.pop(_STACK_TRACE, None)


def _dynamic_axes(source: ModelInput, dims: Collection[str] | None) -> dict[int, str]:
    return {axis: name for axis, name in source.axes.items() if dims is None or name in dims}


def _run_exporter(case: ExportCase, dims: Collection[str] | None) -> torch.onnx.ONNXProgram:
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    axes = {source.name: _dynamic_axes(source, dims) for source in case.inputs}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            case.module,
            (),
            kwargs=case.arguments({source.name: source.example for source in case.inputs}),
            input_names=[source.name for source in case.inputs],
            output_names=list(case.output_names),
            dynamic_shapes=case.arguments(axes),
            dynamo=True,
            verbose=False,
        )
    if program is None:
        raise RuntimeError("the exporter returned no program")
    return program


def _export_script(case: ExportCase, path: Path, dims: Collection[str] | None) -> None:
    """By TorchScript's exporter, as one file: it keeps loops and branches, and lists become sequences."""
    partial = path.with_suffix(".partial")
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            torch.jit.script(case.module),
            tuple(source.example for source in case.inputs),
            str(partial),
            input_names=[source.name for source in case.inputs],
            output_names=list(case.output_names),
            dynamic_axes={source.name: _dynamic_axes(source, dims) for source in case.inputs},
            opset_version=17,
            dynamo=False,
        )
    model = onnx.load(partial)
    _drop_doc_strings(model.graph)
    for source in case.inputs:
        model.metadata_props.add(key=METADATA_PREFIX + source.name, value=source.metadata)
    onnx.save(model, partial)
    os.replace(partial, path)


def _drop_doc_strings(graph: onnx.GraphProto) -> None:
    """They hold paths of the exporting machine."""
    for node in graph.node:
        node.ClearField("doc_string")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _drop_doc_strings(attribute.g)


def _require_symbolic(value: onnx_ir.Value, axes: dict[int, str]) -> None:
    shape = value.shape
    frozen = [name for axis, name in axes.items() if shape is None or isinstance(shape[axis], int)]
    if frozen:
        raise RuntimeError(
            f"the exporter froze {', '.join(frozen)} of input {value.name!r}: {shape}"
        )


def _save(program: torch.onnx.ONNXProgram, path: Path, *, single: bool) -> None:
    if single:
        partial = path.with_suffix(".partial")
        program.save(str(partial), external_data=False)
        os.replace(partial, path)
        return
    # The external data's file name stands inside the model, so it is written in place, the small model file last.
    program.save(str(path), external_data=True)
