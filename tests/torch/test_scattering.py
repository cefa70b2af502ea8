"""What is written by index, sorts, and pools of three axes in torch.compile, against torch itself; what of it stays in torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.errors import RescueWarning
from dvm_graph.torch_backend import dvm, eager
from dvm_graph.torch_backend.piece import Piece

aten = torch.ops.aten

Function: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def assigned(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[x < 0] = 0
    x[:, x[0] > 1] = 1
    return x


OPERATORS: dict[str, Function] = {
    "the greatest": lambda x, i, v: x.topk(3, -1),
    "the least of columns": lambda x, i, v: x.topk(2, 0, largest=False),
    "sorts": lambda x, i, v: x.sort(-1),
    "sorts of equal elements": lambda x, i, v: (x // 1).sort(dim=0, descending=True, stable=True),
    "order": lambda x, i, v: x.sqrt().argsort(dim=1, stable=True),
    "elements": lambda x, i, v: x.scatter(1, i, v),
    "fewer elements": lambda x, i, v: x.scatter(1, i[:2, :2], v),
    "a number": lambda x, i, v: x.scatter(1, i, 2),
    "added elements": lambda x, i, v: x.scatter_add(1, i, v),
    "greater elements": lambda x, i, v: x.scatter_reduce(1, i, v, "amax"),
    "sums without what was there": lambda x, i, v: x.scatter_reduce(
        1, i % 2, v, "sum", include_self=False
    ),
    "products without it": lambda x, i, v: x.scatter_reduce(
        0, i % 2, v, "prod", include_self=False
    ),
    "greater elements without it": lambda x, i, v: x.scatter_reduce(
        1, i % 2, v, "amax", include_self=False
    ),
    "smaller elements without it": lambda x, i, v: x.scatter_reduce(
        1, i % 2, v, "amin", include_self=False
    ),
    "averages": lambda x, i, v: x.scatter_reduce(1, i % 2, v, "mean"),
    "averages without it": lambda x, i, v: x.scatter_reduce(
        0, i % 2, v, "mean", include_self=False
    ),
    "rows": lambda x, i, v: x.index_put((i[:, 0],), v[:, :1]),
    "added rows": lambda x, i, v: x.index_put((i[:, 0] % 2,), v[:, :1], accumulate=True),
    "points": lambda x, i, v: x.index_put((torch.arange(x.shape[0])[:, None], i), v),
    "places in all rows": lambda x, i, v: aten.index_put(x, (None, i[0]), v[:1]),
    "places in all blocks": lambda x, i, v: x.reshape(x.shape[0], 1, -1, 1).index_copy(
        2, i[0], v[:, None, :, None]
    ),
    "added places in all rows": lambda x, i, v: aten.index_put(
        x[None], (None, i % 2, i), v, accumulate=True
    ),
    "counted from the end": lambda x, i, v: x.index_put((i[:2, 0] * 0 - 1,), v[0, 0]),
    "numbers where a mask is": lambda x, i, v: x.index_put((x > 0,), x[0, 0] * 0 + 2),
    "rows where a mask is": lambda x, i, v: x.index_put((x[:, 0] > 0,), x[1]),
    "a column where a mask is": lambda x, i, v: aten.index_put(x[None], (None, x > 0), v[:1, 0]),
    "added where a mask is": lambda x, i, v: x.index_put(
        (x[:, 1] > 0,), x[:1] * 0 + 1, accumulate=True
    ),
    "what is assigned by a mask": lambda x, i, v: assigned(x),
    "rows at numbers": lambda x, i, v: x.index_add(0, i[:, 0] % 2, x),
}
NARROW = {
    "the greatest": {"aten.topk.default"},
    "the least of columns": {"aten.topk.default"},
    "added elements": {"aten.scatter_add.default"},
    "greater elements": {"aten.scatter_reduce.two"},
    "sums without what was there": {"aten.scatter_reduce.two"},
    "products without it": {"aten.scatter_reduce.two"},
    "greater elements without it": {"aten.scatter_reduce.two"},
    "smaller elements without it": {"aten.scatter_reduce.two"},
    "averages": {"aten.scatter_reduce.two"},
    "averages without it": {"aten.scatter_reduce.two"},
    "added places in all rows": {"aten.index_put.default"},
    "added rows": {"aten.index_put.default"},
    "rows at numbers": {"aten.index_put.default"},
}
"""What torch computes itself, of half floats: sums by index, and what depends on which of equal elements is taken."""


def distinct(rows: int, most: int) -> torch.Tensor:
    """Three places for each row, none twice."""
    return torch.stack([torch.randperm(most)[:3] for _ in range(rows)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16, torch.bool])
@pytest.mark.parametrize("name", OPERATORS)
def test_what_is_written_by_index(
    name: str, dtype: torch.dtype, pieces: list[Piece], stay: set[str]
) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> Any:
        return OPERATORS[name](x + x, i, v)

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows, columns in ((4, 6), (5, 9)):
        x, v = (torch.randn(rows, count).to(dtype) for count in (columns, 3))
        i = distinct(rows, min(rows, columns))
        try:
            theirs = function(x, i, v)
        except RuntimeError:
            return  # torch has none of this type
        with warnings.catch_warnings():
            warnings.simplefilter("error", RescueWarning)
            mine = compiled(x, i, v)
        if "the" in name.split() and dtype is torch.int64:  # any of equal elements
            theirs, mine = theirs[0], mine[0]
        bounds = {"rtol": 1e-2, "atol": 1e-2} if dtype is torch.float16 else {}
        torch.testing.assert_close(mine, theirs, equal_nan=True, **bounds)
    assert pieces or dtype is torch.bool
    if dtype is torch.float32:
        assert not stay
    elif dtype is torch.float16:
        assert stay == NARROW.get(name, set())


def test_a_place_that_there_is_not_is_an_error(pieces: list[Piece]) -> None:
    compiled = torch.compile(lambda x, i: x.scatter(0, i, 1.0) + 1, backend=dvm, dynamic=True)
    x = torch.zeros(5)
    assert compiled(x, torch.tensor([4])).sum() == 6
    with pytest.raises(Exception, match=r"out of|range|index"):
        compiled(x, torch.tensor([5]))
    assert pieces


def test_too_few_numbers_to_put_are_an_error(pieces: list[Piece]) -> None:
    def put(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.put(torch.tensor([0, 1]), source) + 1

    compiled = torch.compile(put, backend=dvm, dynamic=True)
    assert compiled(torch.zeros(2, 3), torch.ones(2)).sum() == 8
    assert pieces
    with pytest.raises(IndexError, match="put"):
        compiled(torch.zeros(2, 3), torch.ones(1))
    with pytest.raises(IndexError, match="put"), eager():
        put(torch.zeros(2, 3), torch.ones(1))


@pytest.mark.parametrize(
    ("shape", "masked"), [((4, 6), (1, 6)), ((4, 6), (4, 1)), ((1, 6), (4, 6))]
)
def test_masks_of_other_extents_are_an_error(
    shape: tuple[int, ...], masked: tuple[int, ...], pieces: list[Piece]
) -> None:
    compiled = torch.compile(
        lambda x, mask: (x + 1).index_put((mask,), x[0, 0]), backend=dvm, dynamic=True
    )
    with pytest.raises(IndexError, match="shape of the mask"):
        compiled(torch.zeros(shape), torch.ones(masked, dtype=torch.bool))


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: F.max_pool3d(x, 2),
        lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True),
        lambda x: F.max_pool3d(x, (1, 2, 2), dilation=(1, 2, 1)),
        lambda x: F.avg_pool3d(x, 2),
        lambda x: F.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
        lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True),
    ],
)
def test_pools_of_three_axes(
    pool: Callable[[torch.Tensor], torch.Tensor], pieces: list[Piece], stay: set[str]
) -> None:
    compiled = torch.compile(lambda x: pool(x + 1) * 2, backend=dvm, dynamic=True)
    for shape in ((2, 3, 7, 8, 9), (1, 2, 5, 6, 8), (3, 7, 6, 9)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), pool(x + 1) * 2)
    assert pieces and not stay
    x = torch.randn(2, 3, 7, 8, 9).requires_grad_()
    (mine,) = torch.autograd.grad(compiled(x).sum(), x)
    (theirs,) = torch.autograd.grad((pool(x + 1) * 2).sum(), x)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_what_is_no_number_is_the_greatest_and_the_least(
    reduce: str, include_self: bool, pieces: list[Piece], stay: set[str]
) -> None:
    def function(x: torch.Tensor, i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (x + x).scatter_reduce(1, i, v, reduce, include_self=include_self)

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x, v = torch.randn(rows, 4), torch.randn(rows, 6)
        x[0, 1] = x[1, 3] = v[1, ::3] = v[2, 2] = torch.nan
        v[0] = torch.inf
        i = torch.randint(0, 3, (rows, 6))  # the last column stays
        torch.testing.assert_close(compiled(x, i, v), function(x, i, v), equal_nan=True)
    assert pieces
    assert not stay
