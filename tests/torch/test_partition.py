"""Where graphs of torch are cut into pieces: in as few as there must be, in an order that keeps random numbers, in linear time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.partition import fuse_pieces
from dvm_graph.torch_backend.piece import Piece
from tests.growth import grown
from tests.torch.closeness import close

_Function = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def _turns(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Three times through torch, and what waits for none of them."""
    aside = x.cos() * 2
    for _ in range(3):
        x = torch.linalg.inv(x.tanh() + 3 * torch.eye(4)) @ x.sin()
    return x * aside, aside.sum(0)


def _views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A chain of views that pieces before and behind torch's operator read, and torch, and the caller."""
    y = x.exp().t()
    part = y[1:].t()
    inverse = torch.linalg.inv(y[:4])
    return (
        part.sin() + inverse.cos()[:, :1],
        part,
        y.t() * 2,
        torch.linalg.inv(part[:, :3].T @ part),
    )


def _results(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Operators of several results, of pieces and of torch."""
    top, index = x.topk(2, dim=0)
    first, *_, last = torch.linalg.qr(x)
    low, high = first.split(2)
    return top + low @ last[:, :4], index, high.tanh()


def _filled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ones = torch.ones(x.shape[0], 4)
    return torch.linalg.inv(ones + x) @ ones, x + ones, ones


def _drawn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Random numbers that wait for a piece before others that wait for nothing."""
    first = torch.normal(x.sin(), 1.0)
    second = torch.rand(x.shape[0])
    third = torch.normal(first.cos(), 1.0)
    return first, second * 2, third, torch.rand(3)


@pytest.mark.parametrize(
    ("function", "count"), [(_turns, 4), (_views, 3), (_results, 2), (_filled, 2), (_drawn, 2)]
)
def test_pieces_are_few_and_give_what_torch_gives(
    function: _Function, count: int, pieces: list[Piece]
) -> None:
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for seed in range(2):
        x = torch.eye(4) * 2 + torch.randn(4, 4) / 8
        results = []
        for called in (compiled, function):
            torch.manual_seed(seed)
            results.append(called(x))
        for mine, theirs in zip(*results, strict=True):
            close(mine, theirs, 1.0)
            assert mine.stride() == theirs.stride()
    assert len(pieces) <= count, [len(pieces), count]


def _long(turns: int) -> GraphModule:
    """As many steps, some of torch, over views of a sum that each step reads, as a loop over tokens has."""

    def function(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        state = x
        for turn in range(turns):
            row = rows[turn].view(-1).unsqueeze(0)
            state = (state * row).tanh() + row
            if turn % 8 == 7:
                state = state.atan()  # torch's, here
        return state

    return make_fx(function)(torch.ones(1, 4), torch.ones(turns, 4))


def test_cutting_takes_linear_time() -> None:
    def supported(node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node.target is not torch.ops.aten.atan.default

    def make(turns: int) -> Callable[[], object]:
        graph = _long(turns)
        return lambda: fuse_pieces(graph, supported, supported)

    assert not grown(make, 64)
    torch._dynamo.reset()
    assert len(list(fuse_pieces(_long(64), supported, supported).children())) == 8
