"""Special functions in torch.compile and eager, against torch's in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from dvm_graph.torch_backend import dvm, eager
from dvm_graph.torch_backend.piece import Piece

Function = Callable[[torch.Tensor], torch.Tensor]

FUNCTIONS: dict[str, Function] = {
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "trigamma": lambda x: torch.polygamma(1, x),
    "erfc": torch.erfc,
    "erfinv": torch.erfinv,
}
ENDS = (math.inf, -math.inf, math.nan, 0.0, 1e-30, -1e-30, 1e30, 1.0, -1.0, -2.0, 0.5, -0.5)


def _places() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    near = torch.randn(300, generator=generator)
    return torch.cat([near, near * 5, torch.rand(300, generator=generator) * 2 - 1, near.exp()])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values(name: str, dtype: torch.dtype, pieces: list[Piece], stay: set[str]) -> None:
    function = FUNCTIONS[name]
    compiled = torch.compile(lambda x: function(x), backend=dvm, dynamic=True)
    x = _places().to(dtype)
    for each in (x, x[:77], torch.tensor(ENDS, dtype=dtype)):
        theirs = function(each.double())
        if name == "trigamma":  # torch has large numbers where it is infinite
            theirs = theirs.masked_fill(
                (each < 0) & (each == each.trunc()) & each.isfinite(), math.inf
            )
        theirs = theirs.to(dtype)
        with eager():
            fused = function(each * 1)
        for mine in (compiled(each), fused):
            rtol = 8 * torch.finfo(dtype).eps
            torch.testing.assert_close(mine, theirs, rtol=rtol, atol=1e-37, equal_nan=True)
    assert pieces and not stay


def test_far_ends_of_the_complement_keep_their_digits(pieces: list[Piece]) -> None:
    compiled = torch.compile(lambda x: torch.erfc(x), backend=dvm, dynamic=True)
    x = torch.linspace(1, 9, 400)
    torch.testing.assert_close(compiled(x), torch.erfc(x.double()).float(), rtol=1e-6, atol=0)
    assert pieces


def test_gradients(pieces: list[Piece], stay: set[str]) -> None:
    """Of what is drawn from gamma, beta and normal distributions, say."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.lgamma(x.exp()) + torch.digamma(x.exp()) + torch.erfc(x)
        return y + torch.erfinv(torch.tanh(x))

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 7)
        gradients = []
        for called, dtype in ((compiled, torch.float32), (function, torch.float64)):
            own = x.to(dtype, copy=True).requires_grad_()
            called(own).sum().backward()
            assert own.grad is not None
            gradients.append(own.grad.float())
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
    assert pieces and not stay
