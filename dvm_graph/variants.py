"""The programs of a model for feeds that it was not compiled for: that override some of its initializers,
contradict the names of its dims, are no scalars where it declares such, or lead to results of other ranks than it declares.

In: the feeds of a run. Out: a program with the initializers that they name as inputs, or whose dims and ranks are known by
nothing but the run, compiled when it is first asked for; None where the model's own does.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

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
        self,
        source: Source | None,
        options: Options,
        inputs: Sequence[TensorInfo],
        overridable: Sequence[TensorInfo],
    ) -> None:
        self._source = source
        self._options = options
        self._names = frozenset(value.name for value in overridable)
        self._scalars = [info.name for info in (*inputs, *overridable) if info.shape == ()]
        self._programs: OrderedDict[tuple[Any, ...], Program | DvmError] = OrderedDict()
        self._lock = threading.RLock()  # a signal handler may run the model here

    def find(self, feeds: Mapping[str, Any], *, dims_by_name: bool = True) -> Program | None:
        """The program that takes these feeds, if it is not the model's own.

        `dims_by_name`: see `Options`; False, and there is no ONNX model to compile: None.

        Raises:
            DvmError: the model does not compile with those initializers as inputs.
            InputError: there is no ONNX model to compile.
        """
        if dims_by_name and not self._names:
            return None
        fed = self._names.intersection(feeds if isinstance(feeds, Mapping) else ())
        ranks = {} if dims_by_name or self._source is None else self._ranks(feeds)
        contradicts = not dims_by_name and (self._options.dims_by_name or ranks)
        if not fed and not (contradicts and self._source is not None):
            return None
        key = (fed, dims_by_name, *ranks.items())
        with self._lock:
            program = self._programs.get(key)
        if program is None:  # whoever runs the model meanwhile may compile it, too
            program = self._compile(fed, dims_by_name, ranks)
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

    def _ranks(self, feeds: Mapping[str, Any]) -> dict[str, int]:
        """What is fed for scalars and is none."""
        ranks = ((name, len(fed_shape(feeds[name]))) for name in self._scalars if name in feeds)
        return {name: rank for name, rank in ranks if rank > 0}

    def _compile(
        self, fed: frozenset[str], dims_by_name: bool, ranks: Mapping[str, int]
    ) -> Program | DvmError:
        """Or why there is none."""
        if self._source is None:
            raise InputError(
                f"{min(fed)!r} is an initializer, and the model was loaded from a file that it was saved "
                "to: compile the ONNX model with Options.fed_initializers, and save that"
            )
        from dvm_graph.rescue import build

        options = replace(self._options, fed_initializers=self._options.fed_initializers | fed)
        if not dims_by_name:
            known = {**options.scalar_ranks, **ranks}
            options = replace(options, dims_by_name=False, dim_hints={}, scalar_ranks=known)
        try:
            return build(self._source, options)[1]
        except OutOfMemoryError:  # another time there may be more
            raise
        except DvmError as error:
            return error


def fed_shape(feed: Any) -> tuple[int, ...]:
    """That of an array, or of a list, whose rows may be of unlike lengths: then they are its elements."""
    return np.shape(np.asarray(feed, object) if isinstance(feed, list) else feed)
