"""Gradients of bags of rows of a table (`bags.py`), as other operators of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

aten = torch.ops.aten

Tensor: TypeAlias = torch.Tensor

SUM, MEAN, MAX = range(3)
"""Modes of bags."""


def _bag_of_each(indices: Tensor, offsets: Tensor) -> Tensor:
    """The number of the bag that an index is of, by where bags begin."""
    begun = offsets.new_zeros(indices.shape[0] + 1, dtype=torch.int64)
    begun = begun.scatter_add(
        0, offsets.to(torch.int64), torch.ones_like(offsets, dtype=torch.int64)
    )
    return begun[: indices.shape[0]].cumsum(0) - 1


def _of_table(
    gradient: Tensor,
    indices: Tensor,
    offsets: Tensor,
    _bag_of: Tensor,
    counts: Tensor,
    greatest: Tensor,
    rows: int,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    weights: Tensor | None,
    padding: int = -1,
) -> Tensor:
    """The gradient of a table of so many rows. By how often an index is there, torch's counts are not those."""
    if sparse or by_frequency:
        unchanged: Tensor = NotImplemented
        return unchanged
    table = gradient.new_zeros((rows, gradient.shape[1]))
    if mode == MAX:
        given = gradient.masked_fill(counts[:, None] == 0, 0)
        return table.scatter_add(0, greatest.to(torch.int64), given)
    if mode == MEAN:
        gradient = gradient / counts.clamp(min=1)[:, None].to(gradient.dtype)
    given = gradient.index_select(0, _bag_of_each(indices, offsets))
    if weights is not None:
        given = given * weights[:, None]
    if padding >= 0:
        given = given.masked_fill((indices == padding)[:, None], 0)
    return table.index_put((indices,), given, accumulate=True)


def _of_weights(
    gradient: Tensor,
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    _bag_of: Tensor,
    _mode: int,
    padding: int = -1,
) -> Tensor:
    """The gradient of what rows are multiplied by."""
    bags = gradient.index_select(0, _bag_of_each(indices, offsets))
    given = (bags * table.index_select(0, indices)).sum(1)
    return given if padding < 0 else given.masked_fill(indices == padding, 0)


BAG_GRADIENTS: dict[Any, Callable[..., Any]] = {
    aten._embedding_bag_backward.default: _of_table,
    aten._embedding_bag_per_sample_weights_backward.default: _of_weights,
}
