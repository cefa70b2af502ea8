"""Parameters as constants of the graphs that infer: packed once, and folded into what they meet, as those of an ONNX model.

A module's parameters and buffers are arguments of torch's graphs. `Frozen` takes those that stay as they are for constants,
and looks at each call whether they still are: a tensor counts what operators write to it. One that changed is an argument
again, until it stays as it is for some calls, more of them each time. Modules of one class share a graph: each has a program with its own
constants, which goes with the module. What is written past torch's count, through `.data` or numpy, is not seen.
"""

from __future__ import annotations

import threading
import weakref
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
_PATIENCE = 4
"""Calls in which what changed once is to stay as it is before it is a constant again."""
_MOST_MODULES = 256
"""That share a graph, and have programs of their own."""
_lock = threading.Lock()
"""Of what graphs share."""


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


_arrays: MutableMapping[torch.Tensor, tuple[Any, Array]] = WeakTensorKeyDictionary()
"""Of tensors that are constants: what they were, and their arrays."""
_packed: list[tuple[Options, PackedArrays]] = []


def constant_of(tensor: torch.Tensor, order: Sequence[int]) -> Array:
    """Its elements, in memory in this order of its axes: one array for all graphs, while it stays as it is, so that they share panels."""
    read = tensor.dtype, tensor.shape, tensor.stride(), tuple(order)
    state = tensor.data_ptr(), tensor._version, read
    with _lock:
        known = _arrays.get(tensor)
        if known is None or known[0] != state:
            array = np.asarray(array_of(tensor).transpose(order), order="C")
            known = _arrays[tensor] = state, array
        return known[1]


def packed_arrays(options: Options) -> PackedArrays:
    """The panels of all graphs that are compiled with these options."""
    with _lock:
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
        self._thawed: Run | None = None
        self._modules: dict[tuple[int, ...], _Module] = {}
        """By the ids of what is kept of them."""

    def __call__(self, arguments: list[Any]) -> Any:
        with self._lock:
            run = self._chosen(arguments)
        return run(arguments)

    def _chosen(self, arguments: Sequence[Any]) -> Run:
        tensors = [arguments[at] for at in self._kept]
        key = tuple(map(id, tensors))
        module = self._modules.get(key)
        if module is None:
            while len(self._modules) >= _MOST_MODULES:
                self._modules.pop(next(iter(self._modules)), None)
            # The first one is frozen at once; there may be other tensors at each call.
            patience = _PATIENCE if self._modules else 0
            module = self._modules[key] = _Module(tensors, patience, self._forgetting(key))
        run = module.chosen(tensors, self._frozen)
        if run is not None:
            return run
        if self._thawed is None:
            self._thawed = self._compile({})
        return self._thawed

    def _frozen(self, constants: Mapping[int, torch.Tensor]) -> Run:
        return self._compile({self._kept[place]: t for place, t in constants.items()})

    def _forgetting(self, key: tuple[int, ...]) -> Callable[[object], None]:
        owner = weakref.ref(self)

        def forget(_dead: object) -> None:
            frozen = owner()
            if frozen is not None:
                frozen._modules.pop(key, None)

        return forget


class _Module:
    """What a graph keeps of a module: tensors, and the program for which some of them are constants."""

    def __init__(
        self, tensors: Sequence[torch.Tensor], patience: int, forget: Callable[[object], None]
    ) -> None:
        """`patience`: calls until those are frozen that stay as they are. `forget` is called when one of them is gone."""
        self._tensors = [weakref.ref(tensor, forget) for tensor in tensors]
        self._states = [_state_of(tensor) for tensor in tensors]
        self._run: Run | None = None
        self._constants: set[int] = set()
        self._begin(patience)

    def chosen(
        self, tensors: Sequence[torch.Tensor], freeze: Callable[[Mapping[int, torch.Tensor]], Run]
    ) -> Run | None:
        """The program for these tensors as they are; None: that without constants."""
        states = [_state_of(tensor) for tensor in tensors]
        if self._run is not None and len(self._constants) == len(states) and states == self._states:
            return self._run
        changed = {
            place
            for place, (new, old) in enumerate(zip(states, self._states, strict=True))
            if new != old or new is None
        }
        self._states = states
        if not changed.isdisjoint(self._constants):
            self._run, self._constants = None, set()
            for place in changed:
                _arrays.pop(tensors[place], None)
            self._begin(max(_PATIENCE, 2 * self._patience))
        else:
            self._calm -= changed
        if self._left == 0:
            patience = self._patience
            if self._calm > self._constants:
                self._run = freeze({place: tensors[place] for place in sorted(self._calm)})
                self._constants, patience = self._calm, 2 * patience
            if len(self._constants) < len(states):
                self._begin(max(_PATIENCE, patience))
        self._left -= 1
        return self._run

    def _begin(self, patience: int) -> None:
        """Calls in which what stays as it is shows."""
        self._patience = self._left = patience
        self._calm = set(range(len(self._states)))


def _state_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Where its elements lie, and how often it was written to; None: torch does not count that."""
    return None if tensor.is_inference() else (tensor.data_ptr(), tensor._version)
