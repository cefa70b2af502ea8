"""Where graphs of torch are cut into pieces: in as few as there must be, in an order that keeps random numbers, in linear time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.operators import is_operator, is_supported
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


@torch.library.custom_op("dvm_tests::noisy", mutates_args=())
def _noisy(x: torch.Tensor) -> torch.Tensor:
    """An operator whose tags do not say that it draws."""
    return x + torch.rand(x.shape)


@_noisy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def _drawn_by_others(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Random numbers that wait for nothing, before others that torch does not say of that they are drawn."""
    late = torch.rand(4, 4)
    x = torch.linalg.inv(_noisy(x.sin()) / 4 + 3 * torch.eye(4))
    return x.sin() * late, torch.rand(2)


def _drawn_in_branches(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    late = torch.rand(4, 4)
    x = torch.cond(x.sum() > 0, lambda x: x.sin() + torch.rand_like(x), lambda x: x * 1, (x,))
    return torch.linalg.inv(x / 4 + 3 * torch.eye(4)).sin() * late, torch.rand(2)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        *((_turns, 4), (_views, 3), (_results, 2), (_filled, 2), (_drawn, 2)),
        *((_drawn_by_others, 3), (_drawn_in_branches, 3)),
    ],
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


def test_random_numbers_that_are_drawn_again_keep_their_order() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        late = torch.rand(4, 4)
        x = checkpoint(lambda x: F.dropout(x.sin(), 0.5).cos(), x, use_reentrant=False)
        return torch.linalg.inv(x / 4 + 3 * torch.eye(4)).sin() * late

    results = []
    for called in (torch.compile(function, backend=dvm, dynamic=True), function):
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        result = called(x)
        result.sum().backward()
        results.append((result.detach(), x.grad, torch.rand(2)))
    for mine, theirs in zip(*results, strict=True):
        close(mine, theirs, 1.0)


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


def test_results_of_an_operator_are_looked_at_once() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return sum((row.sin() for row in x.unbind()), torch.zeros(4))

    def make(rows: int) -> Callable[[], object]:
        graph = make_fx(function, tracing_mode="fake")(torch.ones(rows, 4))
        return lambda: fuse_pieces(graph, is_supported, is_operator)

    assert not grown(make, 32)
