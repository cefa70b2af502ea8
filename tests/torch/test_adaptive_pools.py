"""Greatest elements of so many windows in torch.compile, forward and backward, against torch itself."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.errors import RescueWarning
from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close


@pytest.mark.parametrize(
    ("axes", "size"),
    [(1, 1), (1, 4), (2, 1), (2, (3, 2)), (2, (1, 5)), (2, 7), (3, 1), (3, (2, 1, 3))],
)
def test_greatest_elements_of_so_many_windows(
    axes: int, size: int | tuple[int, ...], pieces: list[Piece], stay: set[str]
) -> None:
    pool = getattr(F, f"adaptive_max_pool{axes}d")

    def pools(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found, places = pool(x * 2, size, return_indices=True)
        return found * 3, places

    compiled = torch.compile(pools, backend=dvm, dynamic=True)
    for extents in ((9, 8, 7), (6, 12, 11), (5, 5, 5)):
        x = torch.randn(2, 3, *extents[:axes]).round(decimals=1)
        x[0, 1, ..., 2:4] = torch.nan
        x.requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("error", RescueWarning)
            mine, theirs = compiled(x), pools(x)
            for each, their_each in zip(mine, theirs, strict=True):
                close(each, their_each)
            given = torch.randn_like(theirs[0])
            (gradient,), (their_gradient,) = (
                torch.autograd.grad(found, x, given) for found in (mine[0], theirs[0])
            )
            close(gradient, their_gradient)
    assert len(pieces) == 2
    assert not stay


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_of_other_types_and_without_a_batch(
    dtype: torch.dtype, pieces: list[Piece], stay: set[str]
) -> None:
    def pools(x: torch.Tensor) -> torch.Tensor:
        return F.adaptive_max_pool2d(x.abs(), (2, 3))

    compiled = torch.compile(pools, backend=dvm, dynamic=True)
    for extents in ((8, 7), (5, 9)):
        x = torch.randn(4, *extents, dtype=dtype).requires_grad_()
        mine, theirs = compiled(x), pools(x)
        close(mine, theirs)
        gradients = (torch.autograd.grad(each.sum(), x)[0] for each in (mine, theirs))
        close(*gradients)
    assert pieces
    assert not stay
