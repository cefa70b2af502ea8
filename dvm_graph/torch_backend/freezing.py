"""Parameters as constants of the graphs that infer: packed once, and folded into what they meet, as those of an ONNX model.

A module's parameters and buffers are arguments of torch's graphs. `Frozen` takes those that stay as they are for constants,
and looks at each call whether they still are: a tensor counts what operators write to it. One that changed is an argument
again, until it stays as it is for some calls, more of them after each change. What is written past torch's count, through
`.data` or numpy, is not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch._functorch.aot_autograd import MutationType
from torch.fx import Node
from torch.utils.weak import WeakTensorKeyDictionary

from dvm_graph.options import Options
from dvm_graph.runtime.contents import PackedArrays
from dvm_graph.torch_backend.memory import array_of

Array: TypeAlias = np.ndarray[Any, Any]
Run: TypeAlias = Callable[[list[Any]], Any]
_State: TypeAlias = tuple[torch.Tensor, int, int]
"""A tensor, where its elements lie, and how often it was written to."""
_PATIENCE = 4
"""Calls in which what changed once is to stay as it is before it is a constant again."""


def kept_tensors(placeholders: Sequence[Node]) -> list[int]:
    """Which arguments of the graph that is being compiled are parameters and buffers, of known extents, that it does not write to."""
    context = torch._guards.TracingContext.try_get()
    metadata = context and context.fw_metadata
    if not metadata or len(metadata.input_info) != len(placeholders):
        return []
    return [
        at
        for at in metadata.static_input_indices
        if metadata.input_info[at].mutation_type is MutationType.NOT_MUTATED
        and isinstance(placeholders[at].meta["val"], torch.Tensor)
        and all(isinstance(size, int) for size in placeholders[at].meta["val"].shape)
    ]


_arrays: MutableMapping[torch.Tensor, tuple[int, int, Array]] = WeakTensorKeyDictionary()
"""Of tensors that were constants: where its elements lay, how often it was written to, and its array."""
_packed: list[tuple[Options, PackedArrays]] = []


def constant_of(tensor: torch.Tensor, order: Sequence[int]) -> Array:
    """Its elements, in memory in this order of its axes: one array for all graphs, while it stays as it is, so that they share panels."""
    place, written = tensor.data_ptr(), tensor._version
    known = _arrays.get(tensor)
    if known is None or known[:2] != (place, written):
        array = np.asarray(array_of(tensor).transpose(order), order="C")
        known = _arrays[tensor] = place, written, array
    return known[2]


def packed_arrays(options: Options) -> PackedArrays:
    """The panels of all graphs that are compiled with these options."""
    for known, arrays in _packed:
        if known == options:
            return arrays
    _packed.append((options, PackedArrays()))
    return _packed[-1][1]


class Frozen:
    """A graph that runs with the tensors that it keeps for constants, while they stay as they are."""

    _boxed_call = True
    """torch asks for it."""

    def __init__(
        self, compile_graph: Callable[[Mapping[int, torch.Tensor]], Run], kept: Sequence[int]
    ) -> None:
        """`compile_graph`: the graph with some of its arguments for constants; `kept`: those that may be."""
        self._compile = compile_graph
        self._kept = kept
        self._lock = threading.Lock()
        self._frozen: Run | None = None
        self._thawed: Run | None = None
        self._states: dict[int, _State | None] = dict.fromkeys(kept)
        """Of what is frozen, or else of all that is kept, at the last call."""
        self._calm = set(kept)
        """What is kept and has stayed as it is since the thaw."""
        self._calls = self._patience = 0
        """Since the thaw, and those until it freezes."""

    def __call__(self, arguments: list[Any]) -> Any:
        with self._lock:
            run = self._chosen(arguments)
        return run(arguments)

    def _chosen(self, arguments: Sequence[Any]) -> Run:
        changed = [at for at, state in self._states.items() if not _is_in(state, arguments[at])]
        if self._frozen is not None:
            if not changed:
                return self._frozen
            self._frozen = None
            self._calls, self._patience = 0, max(_PATIENCE, 2 * self._patience)
            self._states = {at: _state_of(arguments[at]) for at in self._kept}
            self._calm = set(self._kept)
        elif self._calls:
            self._calm.difference_update(changed)
        self._states.update((at, _state_of(arguments[at])) for at in changed)
        if self._calls == self._patience:
            return self._freeze(arguments)
        self._calls += 1
        if self._thawed is None:
            self._thawed = self._compile({})
        return self._thawed

    def _freeze(self, arguments: Sequence[Any]) -> Run:
        self._states = {
            at: state
            for at, state in self._states.items()
            if at in self._calm and state is not None
        }
        self._frozen = self._compile({at: arguments[at] for at in self._states})
        return self._frozen


def _state_of(tensor: torch.Tensor) -> _State | None:
    """None: torch does not count what is written to it."""
    if tensor.is_inference():
        return None
    return tensor, tensor.data_ptr(), tensor._version


def _is_in(state: _State | None, tensor: torch.Tensor) -> bool:
    """Whether a tensor is what it was."""
    if state is None:
        return False
    known, place, version = state
    return tensor is known and tensor.data_ptr() == place and tensor._version == version
