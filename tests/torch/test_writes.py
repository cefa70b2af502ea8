"""In-place writes to results of compiled functions, against torch itself: autograd lets one write to all that it would let one
write to without a compiler, and the gradients are those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close

Function: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Any]

RESULTS: dict[str, Function] = {
    "as computed": lambda x, w: x * 2,
    "in another order": lambda x, w: x.permute(2, 0, 1) * 2 + 1,
    "a view of what was computed": lambda x, w: (x * 2).permute(2, 0, 1),
    "flat": lambda x, w: (x * 2).flatten(),
    "rows of products": F.linear,
    "rows of products in another order": lambda x, w: F.linear(x, w).transpose(0, 1),
    "several": lambda x, w: (x * 2, F.linear(x, w), w.t() + 1),
    "one of several and a view of it": lambda x, w: (lambda y: (y, y.t()))(F.linear(x[0], w)),
    "parts that torch copies": lambda x, w: torch.unsafe_chunk(x * 2, 2, 1),
    "elements that torch copies": lambda x, w: F.pixel_shuffle(x * 2, 1),
    "what torch computes": lambda x, w: torch.linalg.matrix_exp(x[..., :4].float()).mT,
    "what was written to before": lambda x, w: (x * 2, w.sin().mul_(2)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_written_to(name: str, dtype: torch.dtype, pieces: list[Piece]) -> None:
    function = RESULTS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x, w = torch.randn(rows, 4, 6).to(dtype), torch.randn(7, 6).to(dtype)
        found = []
        for called in (compiled, function):
            own = [each.clone().requires_grad_() for each in (x, w)]
            given = called(*own)
            results = given if isinstance(given, tuple) else (given,)
            for result in results:
                result += 1
                result.mul_(2)
            sum(result.float().sin().sum() for result in results).backward()
            found.append((*results, *(each.grad for each in own if each.grad is not None)))
        for mine, theirs in zip(*found, strict=True):
            if dtype is torch.float32:
                close(mine, theirs)
            else:
                scale = float(theirs.detach().abs().max())
                torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=1e-2 * scale)
    assert pieces


READ_AGAIN: dict[str, Callable[..., Any]] = {
    "as computed": lambda x, w: (lambda y: (y, y.sin()))(x * 2),
    "rows of products": lambda x, w: (lambda y: (y, y.sin()))(F.linear(x, w)),
    "in another order": lambda x, w: (lambda y: (y, y.sin()))(F.linear(x, w).transpose(0, 1) * 2),
    "read by a product": lambda x, w: (lambda y: (y, y[0] @ w))(F.linear(x, w)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", READ_AGAIN)
def test_writes_to_what_the_backward_pass_reads_are_noticed(
    name: str, dtype: torch.dtype, pieces: list[Piece]
) -> None:
    compiled = torch.compile(READ_AGAIN[name], backend=dvm, dynamic=True)
    for called in (compiled, READ_AGAIN[name]):
        x, w = torch.randn(3, 4, 6).to(dtype), torch.randn(6, 6).to(dtype)
        read, result = called(x.requires_grad_(), w.requires_grad_())
        with torch.no_grad():
            read.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
    assert pieces


def test_images_that_lie_channels_last_are_written_to(pieces: list[Piece]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    compiled = torch.compile(layer, backend=dvm, dynamic=True)
    for extent in (6, 9):
        x = torch.randn(2, 3, extent, 8).contiguous(memory_format=torch.channels_last)
        results, gradients = [], []
        for called in (compiled, layer):
            layer.zero_grad()
            results.append(called(x))
            results[-1] += 1
            results[-1].square().sum().backward()
            gradients.append([each.grad for each in layer.parameters()])
        close(*results)
        assert results[0].stride() == results[1].stride()
        for mine, theirs in zip(*gradients, strict=True):
            close(mine, theirs)
    assert pieces


def test_views_that_a_function_of_a_user_gives_are_views() -> None:
    """Its backward pass is none of the view's."""

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.t()

        @staticmethod
        def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient.t() * 2

    def function(x: torch.Tensor) -> torch.Tensor:
        turned: torch.Tensor = Turned.apply(x * 3)
        return turned

    torch.compiler.reset()
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    gradients = []
    for called in (compiled, function):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        called(x).sin().sum().backward()
        gradients.append(x.grad)
    assert gradients[0] is not None and gradients[1] is not None
    close(gradients[0], gradients[1])


def test_writes_to_views_inside_of_a_module_cut_no_gradient(
    pieces: list[Piece], stay: set[str]
) -> None:
    """A norm of instances gives a view of what it computes, which the activation behind it writes to."""
    torch.manual_seed(0)
    norm = torch.nn.InstanceNorm2d(4, affine=True)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), norm, torch.nn.LeakyReLU(0.2, True))
    compiled = torch.compile(module, backend=dvm, dynamic=True)
    for extent in (6, 9):
        x = torch.randn(2, 3, extent, 8)
        found = []
        for called in (compiled, module):
            module.zero_grad()
            result = called(x)
            result.square().mean().backward()
            found.append([result, *(each.grad for each in module.parameters())])
        for mine, theirs in zip(*found, strict=True):
            close(mine, theirs, 1.0)
    assert len(pieces) == 2 and not stay
