"""Views by sizes and strides in torch.compile, forward and backward, against torch itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close

Function = Callable[[torch.Tensor], torch.Tensor]


def _chunks(x: torch.Tensor) -> torch.Tensor:
    """Windows of two halves, each of which is in two of them."""
    batch, length, width = x.shape
    halves = x.reshape(batch, length // 4, 4, width)
    sizes, strides = list(halves.shape), list(halves.stride())
    sizes[1], strides[1] = 2 * sizes[1] - 1, strides[1] // 2
    return halves.as_strided(sizes, strides)


VIEWS: dict[str, Function] = {
    "another shape": lambda x: x.as_strided(
        (x.shape[0], x.shape[1] * x.shape[2]), (x.shape[1] * x.shape[2], 1)
    ),
    "turned": lambda x: x.as_strided(x.shape[::-1], x.stride()[::-1]),
    "of one that is turned": lambda x: x.transpose(0, 2).as_strided(x.shape, x.stride()),
    "part": lambda x: x.as_strided((x.shape[0], 2), (x.shape[1] * x.shape[2], 3), 1),
    "number": lambda x: x.as_strided((), (), 3),
    "repeated": lambda x: x.as_strided((3, x.shape[2]), (0, 1)),
    "windows": _chunks,
}
STAY = {"part", "repeated", "windows"}
"""Backward, where torch adds up by index."""


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str, pieces: list[Piece], stay: set[str]) -> None:
    function = VIEWS[name]
    compiled = torch.compile(lambda x: function(x * 2) * 3, backend=dvm, dynamic=True)
    for shape in ((2, 8, 5), (3, 12, 7)):
        x = torch.randn(shape).requires_grad_()
        mine, theirs = compiled(x), function(x * 2) * 3
        assert torch.equal(mine, theirs)
        assert not {each for each in stay if "as_strided" in each}
        given = torch.randn_like(theirs)
        close(*(torch.autograd.grad(each, x, given)[0] for each in (mine, theirs)))
    assert pieces
    assert "aten.as_strided.default" not in stay or name in STAY


@pytest.mark.parametrize("begin", [0, 3])
def test_what_is_written_to_views(begin: int, pieces: list[Piece], stay: set[str]) -> None:
    def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x * 2
        sizes = (y.shape[0], y.shape[1])
        return torch.as_strided_scatter(x, y * 3, sizes, (x.shape[1], 2), begin) + 1

    compiled = torch.compile(written, backend=dvm, dynamic=True)
    for rows, columns in ((3, 10), (5, 12)):
        x, y = torch.randn(rows, columns), torch.randn(rows - 1, 3)
        assert torch.equal(compiled(x, y), written(x, y))
    assert pieces and not stay
