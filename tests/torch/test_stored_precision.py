"""Modules of bfloat16, whose products are multiplied as they are stored, against float64 over the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dvm_graph import _core
from dvm_graph.torch_backend.memory import array_of
from dvm_graph.torch_backend.piece import Piece

pytestmark = pytest.mark.skipif(
    _core.simd_levels()[0] not in _core.bf16_levels(),
    reason="the CPU has no products of bfloat16",
)


def _near(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    assert got.dtype is torch.bfloat16
    error = (got.double() - want).abs().max() / want.abs().max()
    assert error <= tolerance


@torch.no_grad()
@pytest.mark.parametrize("freezing", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 16, 130])
def test_linear(freezing: bool, rows: int, pieces: list[Piece]) -> None:
    module = nn.Linear(77, 130).bfloat16()
    exact = nn.Linear(77, 130).double()
    exact.load_state_dict({name: t.double() for name, t in module.state_dict().items()})
    x = torch.randn(rows, 77).bfloat16()
    compiled = torch.compile(module, backend="dvm", dynamic=True, options={"freezing": freezing})
    _near(compiled(x), exact(x.double()), 2.0**-8)
    assert "m_matmul_bundles_bf16" in _listing(pieces, lambda: compiled(x))


def _listing(pieces: list[Piece], call: Callable[[], object]) -> str:
    """The bytecode of the only piece for what a call gives it."""
    (piece,) = pieces
    given: list[Any] = []
    with piece.register_forward_pre_hook(lambda _, arguments: given.extend(arguments)):
        call()
    tensors = zip(piece._inputs, given, strict=True)
    feeds = {k[0]: array_of(t).transpose(k[1]) for k, t in tensors if k is not None and k[1]}
    return piece._program.disassemble(feeds)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


@torch.no_grad()
@pytest.mark.parametrize("tokens", [1, 33, 64])
def test_attention(tokens: int) -> None:
    operands = [torch.randn(2, 3, tokens, 32).bfloat16() for _ in range(3)]
    compiled = torch.compile(_attention, backend="dvm", dynamic=True)
    _near(compiled(*operands), _attention(*(t.double() for t in operands)), 2.0**-6)


def test_gradients() -> None:
    module = nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 24)).bfloat16()
    exact = copy.deepcopy(module).double()
    x = torch.randn(19, 40).bfloat16()
    torch.compile(module, backend="dvm", dynamic=True)(x).square().mean().backward()
    exact(x.double()).square().mean().backward()
    for mine, theirs in zip(module.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        _near(mine.grad, theirs.grad, 2.0**-5)


@torch.no_grad()
def test_under_autocast_and_beside_products_of_f32() -> None:
    module = nn.Linear(48, 96).eval()
    x = torch.randn(21, 48)

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            narrow = module(x)
        return narrow, module(x)

    narrow, wide = torch.compile(both, backend="dvm", dynamic=True, options={"freezing": True})(x)
    want = module.double()(x.double())
    _near(narrow, want, 2.0**-6)
    assert (wide.double() - want).abs().max() <= 1e-5
