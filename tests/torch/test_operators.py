"""Operators through torch.compile on dvm_graph, one by one, against torch itself, and which of them stay there."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.torch_backend import dvm, eager
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close

Function = Callable[..., torch.Tensor]

OPERATORS: dict[str, Function] = {
    "add with alpha": lambda x, y, i: torch.add(x, y, alpha=3) - torch.sub(x, 2, alpha=2),
    "division of integers": lambda x, y, i: i / 3 + x.sum(),
    "types that meet": lambda x, y, i: i[:, None] * x + (x > 1) + y.to(torch.float64).mean(),
    "comparisons with sizes": lambda x, y, i: (i == x.shape[0] - 1) | (x[0, 0] < x.shape[1]),
    "comparisons": lambda x, y, i: (x > y) & ~(x < 0.5) | (i == 2)[:1] | torch.isnan(x),
    "arithmetic of truths": lambda x, y, i: (
        ((x > 0) * (y > 0)).sum(0) + torch.add(x > 0, y > 0).sum(0) + ((x > 0) * True).sum(0)
    ),
    "logic of numbers": lambda x, y, i: torch.logical_or(torch.logical_not(i), i > 2),
    "functions": lambda x, y, i: torch.tanh(x) + torch.erf(y) + torch.sigmoid(x).log() + x.exp(),
    "functions of integers": lambda x, y, i: torch.sqrt(i.abs()) + torch.exp(i.to(torch.int32)),
    "clamp": lambda x, y, i: x.clamp(min=-0.5).clamp(max=0.5) + x.clamp(-0.1, 0.2),
    "powers": lambda x, y, i: x**2 + x.abs() ** 0.5 + x.abs() ** y + 2.0**x,
    "where": lambda x, y, i: torch.where(x > 0, x, 1) + torch.where(i > 1, 2.0, x[:, :1])[0, 0],
    "masked fill": lambda x, y, i: x.masked_fill(x < 0, -1e9),
    "sums": lambda x, y, i: x.sum(0, keepdim=True) + x.sum((0, 1)) + i.sum() + (x > 0).sum(-1)[0],
    "means": lambda x, y, i: x.mean(-1, keepdim=True) - x.mean(),
    "variances": lambda x, y, i: x.var(-1, keepdim=True) + x.std(0, unbiased=False),
    "extremes": lambda x, y, i: x.amax(0) + x.amin(-1, keepdim=True) + x.max() - x.min(),
    "any and all": lambda x, y, i: (x > 2).any(0) | (x > -9).all(),
    "softmax": lambda x, y, i: F.softmax(x, 0) + F.log_softmax(y, -1),
    "axes of numbers": lambda x, y, i: (
        x.sum().softmax(0) + y.sum().flip(0) + x.amax().sum(-1) + y.max().norm(dim=0)
    ),
    "norms": lambda x, y, i: F.layer_norm(x, x.shape[-1:]) + F.normalize(y, dim=0),
    "activations": lambda x, y, i: (
        F.gelu(x) + F.gelu(y, approximate="tanh") + F.silu(x) + F.relu(y)
    ),
    "more activations": lambda x, y, i: F.elu(x) + F.hardswish(y) + F.softplus(x) + F.leaky_relu(y),
    "slices": lambda x, y, i: x[1:, ::2].sum() + x[-1] + y[..., -2:].sum() + x[:, 0].sum(),
    "places that guards tell are there": lambda x, y, i: x[2] * y[:, 5:6] + x[:, -6:-4].sum(),
    "parts": lambda x, y, i: torch.cat([*x.split(2, 1), y[:, :1]], 1) + x.unbind(0)[1][0],
    "stacks": lambda x, y, i: torch.stack([x, y], 1).flip(0).transpose(0, 2).reshape(-1),
    "repeats": lambda x, y, i: x.repeat(2, 1, 3) + F.pad(x, (0, 2 * x.shape[1])).sum(),
    "pads": lambda x, y, i: F.pad(x, (1, 2, 0, 3), value=7.0),
    "new tensors": lambda x, y, i: (
        torch.ones_like(x) + torch.full((x.shape[0], 1), 2.5) + torch.arange(x.shape[1])
    ),
    "counts by floats": lambda x, y, i: (
        torch.arange(-1.7, 8.5, 2.5, dtype=torch.int64)
        + torch.arange(9.0, 4.0, -1.0, dtype=i.dtype)
    ),
    "indices": lambda x, y, i: x[:, i] + F.embedding(i, y)[:, :1].T,
    "gather": lambda x, y, i: x.gather(1, (x > 0).to(torch.int64)) + x.index_select(1, i[:1]),
    "counts": lambda x, y, i: x.cumsum(-1) + i.cumsum(0)[0],
    "windows": lambda x, y, i: (
        x.unfold(1, 4, 2).sin()
        + y.unfold(-1, 4, 2)
        + x.T.unfold(0, 3, 3).sum()
        + x.sum().unfold(0, 1, 1)
    ),
    "products": lambda x, y, i: torch.addmm(x[:, :1], x, y.T, beta=2, alpha=0.5) @ y,
    "convolution": lambda x, y, i: F.conv1d(x[None, :, :], y[:, None, :2].repeat(1, x.shape[0], 1)),
    "transposed convolution": lambda x, y, i: F.conv_transpose1d(
        x[None], y[:, None, :2].repeat(1, 3, 1), stride=2, output_padding=1
    ),
    "greatest of windows": lambda x, y, i: F.max_pool2d(x[None, None], 2, 1, 1),
    "where they are": lambda x, y, i: (
        F.max_pool2d(torch.stack([x, y])[None], (2, 1), (1, 2), return_indices=True)[1] + i[0]
    ),
    "where NaNs are": lambda x, y, i: F.max_pool2d((x / (x > 0) * 0)[None], 2, return_indices=True)[
        1
    ],
    "averages of windows": lambda x, y, i: (
        F.avg_pool2d(x[None], 2, 1, 1) + F.avg_pool2d(y[None], 2, 1, 1, count_include_pad=False)
    ),
    "norms of channels": lambda x, y, i: (
        F.batch_norm(x[:, :3], y.mean(0)[:3], y.var(0)[:3] + 1, y[0, :3], y[1, :3])
        + F.batch_norm(x.T[None], None, None, y[0], None, training=True).sum()
    ),
    "attention": lambda x, y, i: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    "numbers that are sizes": lambda x, y, i: (
        (x * x.shape[0] - x.shape[1]) / x.shape[1]
        + x.clamp(-1, x.shape[0] - 3)
        + torch.full((x.shape[0], 1), x.shape[1])
        + (x > x.shape[0] - 2)
    ),
    "counts in floats": lambda x, y, i: (
        torch.arange(x.shape[1], dtype=torch.float32) / x.shape[1]
        + torch.arange(0.5, 8.3, 1.3)[:1]
        + x
    ),
    "differences that are small": lambda x, y, i: (
        torch.expm1(x * 1e-4) * 1e4 + F.elu(y) + F.selu(x)
    ),
    "logarithms of other bases": lambda x, y, i: (
        (2.0**i).log2().floor()[:, None] + (10.0**i).log10()[:, None] + x.abs().log2() + y.exp2()
    ),
    "rests": lambda x, y, i: (
        x % 0.3 + torch.fmod(x, y) + x % y + (-i % 2)[:, None] + (i - 9) % -4 @ i
    ),
    "quotients that are rounded": lambda x, y, i: (
        x // 0.1
        + torch.div(x, y, rounding_mode="trunc")
        + torch.floor_divide(y, x)
        + ((i - 2) // 2)[:, None]
        + torch.div(i - 2, 2, rounding_mode="trunc")[:, None]
        + x // x.shape[0]
    ),
    "numbers rather than none": lambda x, y, i: torch.fmax(x.sqrt(), y) + torch.fmin(y, x.sqrt()),
    "where extremes are": lambda x, y, i: (
        x.argmax(0) + y.argmin() + i.argmax() + (x > 0).float().argmax(0) + x.sqrt().argmin(0)
    ),
    "extremes and where they are": lambda x, y, i: sum(
        each.sum() for z in (x.round(), i, y.sum()) for each in (*z.max(0), *z.min(-1))
    ),
    "extremes with no numbers": lambda x, y, i: torch.stack([*(x.sqrt() * y).max(1)]),
    "deviations": lambda x, y, i: sum(torch.std_mean(x, 1, correction=0)),
    "diagonals": lambda x, y, i: (
        x.diagonal().sum()
        + y.diagonal(-1)[:2] * x.diagonal(2)[:2]
        + torch.stack([x, y]).diagonal(1, 2, 0).sum()
    ),
    "parts that are replaced": lambda x, y, i: (
        x.slice_scatter(y[:2], 0, 1, 3) + x.slice_scatter(y[:, :1], 1, -1)
    ),
    "parts with steps that are replaced": lambda x, y, i: (
        x.slice_scatter(y[:, 1::2], 1, 1, None, 2)
        + y.slice_scatter(x[::3], 0, 0, None, 3)
        + x.slice_scatter(y[:, :2], 1, -5, -1, 2)
        + x.slice_scatter(y[:, x.shape[1] :], 1, x.shape[1], None, 2)
    ),
    "diagonals that are replaced": lambda x, y, i: (
        x.diagonal_scatter(y.diagonal())
        + x.diagonal_scatter(y.diagonal(-1), -1)
        + x.diagonal_scatter(y.diagonal(2), 2)
        + torch.stack([x, y]).diagonal_scatter(torch.stack([x, y], 1)[:, :1, 0], 1, 2, 0).sum(0)
    ),
    "indices of part of the rows": lambda x, y, i: x.gather(1, i[:2, None]) + F.nll_loss(x, i),
    "points": lambda x, y, i: (
        x[i, i + 1]
        + x[i[:, None], -i[:2] - 1].sum()
        + torch.stack([x, y], 1)[i[:2], :, i[:2, None]].sum((1, 2)).mean()
        + torch.stack([x, y])[:, i, i].sum(0)
    ),
    "images of another size": lambda x, y, i: (
        F.interpolate(x[None, None], scale_factor=2, mode="bilinear").sum()
        + F.interpolate(x[None, None], size=(5, 7), mode="bilinear", align_corners=True)
        + F.interpolate(x[None, None], scale_factor=2).mean()
        + F.interpolate(x[None, None], size=(5, 7), mode="bicubic")
    ),
    "averages of any number of windows": lambda x, y, i: F.adaptive_avg_pool2d(
        x[None, None], (2, 3)
    ),
    "rows that turn": lambda x, y, i: x.roll(1, 0) + y.roll((2, -1), (0, 1)) + x.roll(3),
    "pads of what is there": lambda x, y, i: (
        F.pad(x[None], (2, 1), mode="reflect").sum()
        + F.pad(x[None, None], (1, 1, 0, 2), mode="replicate")
    ),
    "norms of instances": lambda x, y, i: F.instance_norm(torch.stack([x, y])[None]),
    "products with vectors": lambda x, y, i: torch.addmv(x[:, 0], x, y[0], alpha=2, beta=0.5),
    "products of integers": lambda x, y, i: (
        torch.addmm(i, (x * 9).long(), (y * 9).long().T, alpha=2, beta=3)
        + torch.mv((x * 9).int(), (y[0] * 9).int())
        + ((x * 9).to(torch.int8) @ (y * 9).to(torch.int8).T)
        + torch.einsum("ij,kj->ik", i[:, None], i[:, None])
    ),
    "biases that are not read": lambda x, y, i: (
        torch.addmm(x.sqrt()[:, :1], x, y.T, beta=0)
        + torch.addmv(x.sqrt()[:, 0], x, y[0], beta=0)
        + torch.baddbmm(x.sqrt()[None, :, :1], x[None], y.T[None], beta=0)
    ),
    "samples of an image": lambda x, y, i: F.grid_sample(
        x[None, None], torch.stack([x, y], -1)[None].clamp(-1, 1), align_corners=False
    ),
    "products so far": lambda x, y, i: y.T[:3, :3].cumprod(0),
    "distances": lambda x, y, i: (
        torch.cdist(x, y)
        + torch.cdist(x, x.round(), p=1)
        + torch.cdist(x[None], y[None, :2])[0, :, :1]
    ),
    "products of three": lambda x, y, i: (
        F.bilinear(x, y, torch.stack([x.T @ y, y.T @ x]), x[0, :2])
        + torch.einsum("bi,ij,bj->b", x, x.T @ y, y)[:, None]
    ),
    "numbers that are put": lambda x, y, i: (
        x.put(i + 3, y[:, 0]) + y.put(i[:2, None] * 0, x[:2, :1], accumulate=True)
    ),
    "between bounds": lambda x, y, i: (
        torch.bucketize(x.round().sqrt(), torch.tensor([-1.0, 0, 1]))
        + torch.bucketize(i, torch.tensor([0, 1, 1, 2]), right=True)[:, None]
        + torch.searchsorted(torch.tensor([[0.0, 1, 2]] * 2).cumsum(0), y[:2], side="right").sum()
        + torch.searchsorted(torch.tensor([1, 2]), i[:, None].int(), out_int32=True)
    ),
    "counts of bins": lambda x, y, i: (
        torch.histc(x, 5, -1, 1)
        + torch.histc(i.float(), 5, 0, 4)
        + torch.histc(y.round() / 8, 5, -1, 1)
    ),
    "floats computed from sizes": lambda x, y, i: (
        x * (1 / x.shape[1])
        + torch.add(y, x, alpha=x.shape[0] ** 0.5)
        + (i > x.shape[0] / 2)[:, None]
        + F.pad(x, (1, 0), value=1 / x.shape[0])[:, 1:]
        + torch.addmv(x[:, 0], x, y[0], alpha=0.5 * x.shape[0])[:, None]
    ),
    "products that are added to": lambda x, y, i: torch.ops.prims.fma(x, y, x.exp()),
    "half": lambda x, y, i: (x.half() * 2 + y.half()).float(),
    "bfloat16": lambda x, y, i: x.bfloat16() * 2 + y.bfloat16(),
}

STAY = {
    "convolution": {"aten.convolution.default"},
    "transposed convolution": {"aten.convolution.default"},
}
"""What torch computes itself, of all that these functions call."""


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_equal_torch(name: str, pieces: list[Piece], stay: set[str]) -> None:
    function = OPERATORS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True, fullgraph=True)
    for rows, columns in ((3, 6), (5, 8)):
        generator = torch.Generator().manual_seed(rows)
        x, y = (torch.randn(rows, columns, generator=generator) for _ in range(2))
        i = torch.arange(rows) % 3
        theirs = function(x, y, i)
        if name in ("half", "bfloat16"):
            theirs, mine = theirs.float(), compiled(x, y, i).float()
            torch.testing.assert_close(mine, theirs, rtol=1e-2, atol=1e-2)
        else:
            close(compiled(x, y, i), theirs)
    assert pieces, "all of it stayed in torch"
    assert stay == STAY.get(name, set())


@pytest.mark.parametrize(("bins", "low", "high"), [(10, 0, 3), (30, 0, 3), (10, -1e38, 1e38)])
def test_what_lies_where_bins_meet(bins: int, low: float, high: float, pieces: list[Piece]) -> None:
    def counts(x: torch.Tensor) -> torch.Tensor:
        return torch.histc(x + 0, bins, low, high) * 2

    x = torch.arange(bins + 1) * (high - low) / bins + low
    assert torch.equal(torch.compile(counts, backend=dvm)(x), counts(x))
    assert pieces


def test_bounds_too_far_apart_are_no_error(pieces: list[Piece]) -> None:
    compiled = torch.compile(lambda x: torch.histc(x + 0, 10, -3e38, 3e38), backend=dvm)
    assert compiled(torch.tensor([-3e38, 0, 3e38])).shape == (10,)
    assert pieces


def _averages(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    size = x.shape[-1:]
    return x.mean(-1), x.var(-1), F.layer_norm(x, size), x.softmax(-1), x.log_softmax(-1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("how", ["compiled", "eager"])
def test_averages_of_half_floats_whose_sums_they_do_not_hold(
    how: str, dtype: torch.dtype, pieces: list[Piece]
) -> None:
    compiled = torch.compile(_averages, backend=dvm, dynamic=True, fullgraph=True)
    for columns in (6, 300_000):
        x = (torch.arange(2 * columns) % 3 - 1).reshape(2, columns).to(dtype)
        if how == "compiled":
            mine = compiled(x)
        else:
            with eager():
                mine = _averages(x)
        for found, wide in zip(mine, _averages(x.double()), strict=True):
            assert found.dtype == dtype
            bound = 2 * torch.finfo(dtype).eps
            torch.testing.assert_close(found, wide.to(dtype), rtol=bound, atol=bound / columns)
    assert pieces or how == "eager", "all of it stayed in torch"


@pytest.mark.parametrize("order", [2, 1, 0, 3, 0.5, math.inf, -math.inf])
def test_vector_norms(order: float, pieces: list[Piece]) -> None:
    def norms(x: torch.Tensor, half: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norm = torch.linalg.vector_norm
        return (
            norm(x, order),
            norm(x, order, 0),
            norm(x, order, (-1, 0), True),
            norm(half, order, 1),
        )

    compiled = torch.compile(norms, backend=dvm, dynamic=True, fullgraph=True)
    for rows, columns, odd in ((3, 6, 0.0), (5, 8, math.inf), (4, 7, math.nan)):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
        x[0, 1] = odd
        *mine, half = compiled(x, x.half())
        *theirs, their_half = norms(x, x.half())
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)
        torch.testing.assert_close(half, their_half, rtol=2e-3, atol=1e-3, equal_nan=True)
    assert pieces, "all of it stayed in torch"


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_quotients_of_numbers_at_the_ends_of_their_type(
    dtype: torch.dtype, pieces: list[Piece]
) -> None:
    def quotients(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x // 3, x // -3, x // x.shape[0], x % 3, x % -3, x % x.shape[0]])

    ends = torch.iinfo(dtype)
    numbers = torch.tensor([ends.min, ends.min + 1, ends.max - 1, ends.max, -1], dtype=dtype)
    compiled = torch.compile(quotients, backend=dvm, dynamic=True, fullgraph=True)
    for x in (numbers, numbers.repeat(2)[:7]):
        assert torch.equal(compiled(x), quotients(x))
    assert pieces, "all of it stayed in torch"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_quotients_by_what_is_infinite(dtype: torch.dtype, pieces: list[Piece]) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.5, -2.5], dtype=dtype)
    function = torch.floor_divide
    mine = torch.compile(function, backend=dvm, dynamic=True)(x[:, None], x)
    torch.testing.assert_close(mine, function(x[:, None], x), rtol=0, atol=0, equal_nan=True)
    assert pieces, "all of it stayed in torch"


def test_factors_of_biases_that_a_run_gives_stay_in_torch(
    pieces: list[Piece], stay: set[str]
) -> None:
    """One that is 0 leaves what is no number unread."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.addmm(x.sqrt(), y, y.T, beta=(x.shape[0] - 3) / 2) * 2

    compiled = torch.compile(function, backend=dvm, dynamic=True, fullgraph=True)
    for rows in (4, 3):
        x, y = -torch.ones(rows, rows), torch.rand(rows, 5)
        close(compiled(x, y), function(x, y))
    assert pieces and "aten.addmm.default" in stay
