"""Element-wise operators of torch.compile and eager at zeros of both signs, infinities, NaNs and the ends of types, against torch itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from dvm_graph.torch_backend import dvm, eager
from dvm_graph.torch_backend.piece import Piece

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

SPECIAL = (math.inf, -math.inf, 0.0, -0.0, 1e-30, -1e-30, 1e30, -1e30, 1.0, -1.0, 0.3, -2.5)

EXACT: dict[str, Function] = {
    "signs": lambda x, y: torch.signbit(y).expand(x.shape[0], -1),
    "signs of others": lambda x, y: torch.copysign(x, y),
    "signs of numbers": lambda x, y: torch.copysign(x, 2.0) * (y * 0 + 1),
    "signs of zeros": lambda x, y: torch.copysign(y, -0.0).expand(x.shape[0], -1),
    "signs of whole numbers": lambda x, y: torch.copysign(torch.arange(4)[:, None], y),
    "signs to whole numbers": lambda x, y: torch.copysign(x, torch.arange(-1, 2)[:, None, None]),
}
NEAR: dict[str, Function] = {
    "angles": torch.atan2,
    "angles of whole numbers": lambda x, y: torch.atan2(torch.arange(-2, 3), y[:, None]),
    "lengths": torch.hypot,
}


def _results(function: Function, x: torch.Tensor, pieces: list[Piece]) -> list[torch.Tensor]:
    """Of both ways, each for two extents."""
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    found = [compiled(x[:, None], x), compiled(x[:5, None], x[:-1])]
    with eager():
        found += [function(x[:, None] * 1, x), function(x[:5, None] * 1, x[:-1])]
    assert pieces
    return found


def _identical(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """NaN in the same places, zeros of the same signs elsewhere."""
    if not theirs.is_floating_point():
        return mine.dtype is theirs.dtype and bool((mine == theirs).all())
    nan = theirs.isnan()
    same = torch.where(nan, mine.isnan(), (mine == theirs) & (mine.signbit() == theirs.signbit()))
    return mine.dtype is theirs.dtype and bool(same.all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", EXACT)
def test_signs(name: str, dtype: torch.dtype, pieces: list[Piece], stay: set[str]) -> None:
    function, x = EXACT[name], torch.tensor([*SPECIAL], dtype=dtype)
    x = torch.cat([x, x.new_tensor([math.nan]).abs()])  # a NaN's own sign is not read
    theirs = [function(x[:, None], x), function(x[:5, None], x[:-1])] * 2
    for mine, each in zip(_results(function, x, pieces), theirs, strict=True):
        assert _identical(mine, each)
    assert not stay


@pytest.mark.parametrize("name", NEAR)
def test_angles_and_lengths(name: str, pieces: list[Piece]) -> None:
    dtype = torch.float64 if name == "angles" else torch.float32
    function, x = NEAR[name], torch.tensor([*SPECIAL, math.nan], dtype=dtype)
    theirs = [function(x[:, None], x), function(x[:5, None], x[:-1])] * 2
    for mine, each in zip(_results(function, x, pieces), theirs, strict=True):
        bound = 4 * torch.finfo(each.dtype).eps
        torch.testing.assert_close(mine, each, rtol=bound, atol=0, equal_nan=True)
        assert torch.equal(mine.signbit() & ~mine.isnan(), each.signbit() & ~each.isnan())


@pytest.mark.parametrize("function", [torch.copysign, torch.atan2, torch.hypot])
def test_gradients(function: Function, pieces: list[Piece], stay: set[str]) -> None:
    compiled = torch.compile(lambda x, y: function(x * 2, y) * 3, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x, y = (torch.randn(rows, 7).requires_grad_() for _ in range(2))
        mine = torch.autograd.grad(compiled(x, y).sum(), (x, y), allow_unused=True)
        theirs = torch.autograd.grad((function(x * 2, y) * 3).sum(), (x, y), allow_unused=True)
        for found, each in zip(mine, theirs, strict=True):
            torch.testing.assert_close(found, each, rtol=1e-5, atol=1e-5)
    assert pieces and not stay


SHIFTS: dict[str, Function] = {
    "to the left": lambda x, y: x << y,
    "to the right": lambda x, y: x >> y,
    "by numbers": lambda x, y: (x << 3) ^ (y >> 2) ^ (x >> 1),
    "of numbers": lambda x, y: torch.bitwise_left_shift(3, x) ^ torch.bitwise_right_shift(100, y),
    "of several types": lambda x, y: x.to(torch.int8) << y.long(),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", SHIFTS)
def test_shifts(name: str, dtype: torch.dtype, pieces: list[Piece], stay: set[str]) -> None:
    """By nothing, and by as many bits as there are, and more, and less than none."""
    function, ends = SHIFTS[name], torch.iinfo(dtype)
    counts = (0, 1, 7, ends.bits - 1, ends.bits, ends.bits + 1, 64, 100, -1 if ends.min else 200)
    x = torch.tensor([ends.min, ends.max, 5, ends.max // 3, *counts], dtype=dtype)
    theirs = [function(x[:, None], x), function(x[:5, None], x[:-1])] * 2
    for mine, each in zip(_results(function, x, pieces), theirs, strict=True):
        assert _identical(mine, each)
    assert not stay
