"""Sizes and numbers among the arguments of what torch.compile traces: of any form and either sign, and guarded."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close


@pytest.mark.filterwarnings("ignore::dvm_graph.errors.RescueWarning")
@pytest.mark.parametrize("size", [lambda n: int(n / 2), lambda n: int(n**0.5), lambda n: n // 2])
def test_sizes_of_any_form(pieces: list[Piece], size: Callable[[int], int]) -> None:
    """Those that torch's interpreter of sizes does not know are computed where torch computes them."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.exp()[: size(x.shape[0])] * 2

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (4, 9):
        x = torch.rand(rows, 3)
        close(compiled(x), function(x))
    assert len(pieces) <= 1, "a new shape compiled something"


NUMBERS = {
    "start": lambda x, n: torch.arange(n, n + x.shape[0]) + x,
    "slice": lambda x, n: x[max(n, 0) :] * 2 + x[n:].sum(),
    "size": lambda x, n: torch.full((x.shape[0] - n,), 2.0) + x.softmax(0).sum(),
    "shift": lambda x, n: torch.roll(x, n) * 2,
    "pads": lambda x, n: F.pad(x, (n, -n)) + x.sum(),
    "pads that cut at both ends": lambda x, n: F.pad(x, (-abs(n) // 3, -abs(n) // 2)) + x.sum(),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_among_arguments_are_of_either_sign(name: str, pieces: list[Piece]) -> None:
    function = NUMBERS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows, number in ((5, 3), (7, -3), (6, 2), (9, -4), (5, 0)):
        x = torch.arange(rows) / 7 - 0.3
        close(compiled(x, number), function(x, number))
    assert pieces, "all of it stayed in torch"


SIGNED = {
    "difference": lambda x, y: x[x.shape[0] - y.shape[0] :].sum(),
    "before the start": lambda x, y: x[-y.shape[0] - 1 :] * 2,
    "behind the end": lambda x, y: x[y.shape[0] :].sum() + x.sum(),
}


@pytest.mark.parametrize("name", SIGNED)
def test_places_computed_from_sizes_are_of_either_sign(name: str, pieces: list[Piece]) -> None:
    """Of each sign, at once and after graphs for others: no run is refused for it."""
    function = SIGNED[name]
    for sizes in (((4, 6), (5, 9), (7, 3)), ((7, 3), (3, 4), (4, 6), (4, 4))):
        torch.compiler.reset()
        compiled = torch.compile(function, backend=dvm, dynamic=True)
        for rows, last in sizes:
            x, y = torch.rand(rows, 6), torch.rand(last, 6)
            close(compiled(x, y), function(x, y))
    assert pieces, "all of it stayed in torch"


def test_negative_sizes_that_others_tell_are_no_arguments(pieces: list[Piece]) -> None:
    def distances(x: torch.Tensor) -> torch.Tensor:
        return torch.arange(x.shape[0], -x.shape[0], -1) + x.sum()

    compiled = torch.compile(distances, backend=dvm, dynamic=True, fullgraph=True)
    for rows in (3, 8):
        x = torch.ones(rows)
        close(compiled(x), distances(x))
    (piece,) = pieces
    assert len([known for known in piece._inputs if known is not None]) == 1


PARTS = {
    "from the end": lambda x, y: x[-y.shape[0] :] * 2 + x[: -y.shape[0]].sum(),
    "from a difference": lambda x, y: x[x.shape[0] - y.shape[0] :] * y[:, : x.shape[1]],
    "far in": lambda x, y: x[:, 5] + y[:, -6:-2].sum(),
    "of halves": lambda x, y: x.reshape(-1, 2, x.shape[1])[:, 1] + y.sum(),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_that_guards_hold_inside(name: str, pieces: list[Piece]) -> None:
    function = PARTS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True, fullgraph=True)
    for rows, columns, last in ((6, 7, 3), (10, 9, 2), (4, 6, 4)):
        x, y = (torch.rand(n, columns + 2 * (n is last)) for n in (rows, last))
        close(compiled(x, y), function(x, y))
    assert pieces, "all of it stayed in torch"


@pytest.mark.filterwarnings("error::dvm_graph.errors.RescueWarning")
def test_parts_that_guards_of_several_conditions_hold_inside(pieces: list[Piece]) -> None:
    def function(x: torch.Tensor, start: int, size: int) -> torch.Tensor:
        return x[start : start + size].exp() + x[:start].sum()

    torch.compiler.reset()
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows, start, size in ((5, 2, 3), (6, 3, 2), (7, 2, 5)):
        x = torch.rand(rows, 3)
        close(compiled(x, start, size), function(x, start, size))
    assert len(pieces) == 1


@pytest.mark.filterwarnings("error::dvm_graph.errors.RescueWarning")
def test_guards_of_fractions_say_nothing_of_extents(pieces: list[Piece]) -> None:
    """Which of two ways `isin` goes is a matter of roots of sizes."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.isin(x, y) | (x > 2)

    torch.compiler.reset()
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for count in (20, 31):
        x = torch.arange(count) % 7
        assert torch.equal(compiled(x, x[3:8]), function(x, x[3:8]))
    assert pieces, "all of it stayed in torch"


@pytest.mark.filterwarnings("error::dvm_graph.errors.RescueWarning")
def test_parts_whose_sizes_data_tells(pieces: list[Piece]) -> None:
    """Torch cuts such a part off, and the sizes that it has are extents to what reads it."""

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = int((x > 0).sum())
        return (x.exp() * 2)[:count].sin() + 1, torch.arange(count).sum() * 2

    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(function, backend=dvm, dynamic=True, fullgraph=True)
        for values in ([-1.0, 2, 3], [4.0, -5, 6, 7], [-1.0, -2]):
            x = torch.tensor(values)
            for mine, theirs in zip(compiled(x), function(x), strict=True):
                close(mine, theirs)
    assert pieces, "all of it stayed in torch"
