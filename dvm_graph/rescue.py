"""The net under the compiler: what it cannot do runs on onnxruntime, and the report says so.

In: a model and options. Out: what the compiler made of it, and a program. Where compiling fails, the
ONNX nodes at fault are left to the vendor library and the rest is compiled again; where nobody knows
which they are, or the model does not even import, onnxruntime runs the model as it is, if it takes it.

Each use is a `RescueWarning` and an entry of the report. Under a filter that turns the warning into an
error, and under `strict=True`, the compiler's own error comes out instead: so the tests see to it that
no model rests in the net which should compile.

What it does not catch: limits that options set, external data outside of the model's folder, damaged
files, and what is no ONNX model at all.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from dvm_graph.errors import (
    CompileError,
    DamagedError,
    DvmError,
    ExternalDataError,
    MiscompileError,
    ModelError,
    RescueWarning,
    ShapeError,
    StrictError,
    UnsupportedError,
    border,
)
from dvm_graph.import_ import import_whole
from dvm_graph.options import Options
from dvm_graph.pipeline import Compiled, Source, compile_model, compile_whole
from dvm_graph.process import made_for_good
from dvm_graph.runtime import Program
from dvm_graph.runtime.assemble import assemble

_MOST_ATTEMPTS = 8
_CAUGHT = (CompileError, ModelError, ShapeError, UnsupportedError)
_NOT_CAUGHT = (DamagedError, ExternalDataError, MiscompileError, StrictError)


def build(source: Source, options: Options) -> tuple[Compiled, Program]:
    """Compiles and assembles a model, with the net below.

    Raises:
        DvmError: the compiler's, where onnxruntime does not run the model either, or `strict=True`.
    """
    notes: list[str] = []
    attempt = options
    for _ in range(_MOST_ATTEMPTS):
        try:
            with border("compile the model"), made_for_good():
                compiled = replace(_compile(source, attempt), rescued=tuple(notes))
                return compiled, assemble(compiled.plan, options, release_packed=True)
        except _CAUGHT as error:
            if options.strict or isinstance(error, _NOT_CAUGHT):
                raise
            blamed = frozenset(error.nodes) - attempt.vendor_nodes
            if not blamed:
                return _run_whole(source, options, error)
            _warn(f"{', '.join(sorted(blamed))} on onnxruntime: {error}", notes, error)
            attempt = replace(attempt, vendor_nodes=attempt.vendor_nodes | blamed)
            last = error
    return _run_whole(source, options, last)


def _compile(source: Source, options: Options) -> Compiled:
    if options.check:
        from dvm_graph.check import checked_compile

        return checked_compile(source, options)
    return compile_model(source, options)


def _run_whole(source: Source, options: Options, error: DvmError) -> tuple[Compiled, Program]:
    """The model as it is on onnxruntime."""
    with border("run the model on onnxruntime"):
        try:
            graph = import_whole(source, options.fed_initializers)
        except (UnsupportedError, UnicodeDecodeError):  # the latter: names that are no text
            raise error from None
        notes: list[str] = []
        _warn(f"the whole model on onnxruntime: {error}", notes, error)
        compiled = replace(compile_whole(graph, options), rescued=tuple(notes))
        return compiled, assemble(compiled.plan, options)


def _warn(note: str, notes: list[str], error: DvmError) -> None:
    notes.append(note)
    try:
        warnings.warn(f"not compiled, but run as it is: {note}", RescueWarning, stacklevel=5)
    except RescueWarning:
        raise error from None
