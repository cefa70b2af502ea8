"""What autograd may know of the results of a graph: whose memory is whose.

A result that is computed is a tensor of its own to autograd, and may be written to. Here it may have come as a view: of what
several operators of torch read, or of the memory of another type.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch._functorch._aot_autograd.schemas import OutputType


def own_results() -> set[int]:
    """Which results of the forward pass that is being compiled are no views to torch, and what views are taken of. What it
    makes of the others, and of arguments that are written to, it makes itself.
    """
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return set()
    metadata = context.fw_metadata
    first = metadata.num_mutated_inp_runtime_indices
    outputs = [
        first + at
        for at, output in enumerate(metadata.output_info)
        if output.output_type is OutputType.non_alias
    ]
    bases = range(first + len(metadata.output_info), metadata.num_forward_returns)
    return {*outputs, *bases}


def hold_apart(results: Sequence[Any], own: Collection[int]) -> Sequence[Any]:
    """Own results that are views become tensors in the same memory. What is kept for the backward pass there becomes a view
    of the first of these, so that autograd notices who has written to that.
    """
    views = sorted(
        at for at in own if isinstance(results[at], torch.Tensor) and results[at]._is_view()
    )
    if not views:
        return results
    apart = list(results)
    own_ids = {id(results[at]) for at in own}
    held: dict[int, torch.Tensor] = {}
    for at in views:
        apart[at] = torch.ops.aten._unsafe_view.default(results[at], results[at].shape)
        if id(results[at]._base) not in own_ids:
            held.setdefault(id(results[at]._base), apart[at])
    for at, kept in enumerate(results):
        if at not in own:
            apart[at] = _lying_in(held, kept)
    return apart


def _lying_in(held: dict[int, torch.Tensor], kept: Any) -> Any:
    """What is kept as a view of the tensor that holds its memory, if there is one that views of its type can be taken of."""
    if not isinstance(kept, torch.Tensor):
        return kept
    holder = held.get(id(kept._base if kept._is_view() else kept))
    if holder is None or _read_as(holder) != _read_as(kept):
        return kept
    return holder.as_strided(kept.shape, kept.stride(), kept.storage_offset())


def _read_as(tensor: torch.Tensor) -> tuple[torch.dtype, bool, bool]:
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()
