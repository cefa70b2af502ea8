"""The programs of a model for feeds that it was not compiled for: that override some of its initializers,
contradict the names of its dims, or lead to results of other ranks than it declares.

In: the feeds of a run. Out: a program with the initializers that they name as inputs, or whose dims and ranks are known by
nothing but the run, compiled when it is first asked for; None where the model's own does.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dvm_graph.description import TensorInfo
from dvm_graph.errors import DvmError, InputError, OutOfMemoryError
from dvm_graph.options import Options
from dvm_graph.runtime import Program

if TYPE_CHECKING:
    from dvm_graph.pipeline import Source

_MOST = 4
"""Programs that are kept: each may hold the weights once more."""


class Variants:
    def __init__(
        self, source: Source | None, options: Options, overridable: Sequence[TensorInfo]
    ) -> None:
        self._source = source
        self._options = options
        self._names = frozenset(value.name for value in overridable)
        self._programs: OrderedDict[tuple[frozenset[str], bool], Program | DvmError] = OrderedDict()
        self._lock = threading.RLock()  # a signal handler may run the model here

    def find(self, feeds: Mapping[str, Any], *, dims_by_name: bool = True) -> Program | None:
        """The program that takes these feeds, if it is not the model's own.

        `dims_by_name`: see `Options`; False, and there is no ONNX model to compile: None.

        Raises:
            DvmError: the model does not compile with those initializers as inputs.
            InputError: there is no ONNX model to compile.
        """
        fed = self._names.intersection(feeds if isinstance(feeds, Mapping) else ())
        if not fed and (dims_by_name or self._source is None or not self._options.dims_by_name):
            return None
        key = (fed, dims_by_name)
        with self._lock:
            program = self._programs.get(key)
        if program is None:  # whoever runs the model meanwhile may compile it, too
            program = self._compile(fed, dims_by_name)
        with self._lock:
            program = self._programs.setdefault(key, program)
            self._programs.move_to_end(key)
            if len(self._programs) > _MOST:
                self._programs.popitem(last=False)
        if isinstance(program, DvmError):
            raise program.with_traceback(None)
        return program

    def forget(self) -> None:
        """As `Program.forget`."""
        with self._lock:
            programs = list(self._programs.values())
        for program in programs:
            if isinstance(program, Program):
                program.forget()

    def _compile(self, fed: frozenset[str], dims_by_name: bool) -> Program | DvmError:
        """Or why there is none."""
        if self._source is None:
            raise InputError(
                f"{min(fed)!r} is an initializer, and the model was loaded from a file that it was saved "
                "to: compile the ONNX model with Options.fed_initializers, and save that"
            )
        from dvm_graph.rescue import build

        options = replace(self._options, fed_initializers=self._options.fed_initializers | fed)
        if not dims_by_name:
            options = replace(options, dims_by_name=False, dim_hints={})
        try:
            return build(self._source, options)[1]
        except OutOfMemoryError:  # another time there may be more
            raise
        except DvmError as error:
            return error
