"""torch.compile on dvm_graph against torch itself: operators one by one, training steps over shapes, what stays in torch."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

import dvm_graph
from dvm_graph.torch_backend import backend, dvm, eager
from dvm_graph.torch_backend.piece import Piece, compile_piece
from tests.tolerances import tolerance

BOUND = tolerance(np.dtype(np.float32), 4096)


def close(mine: torch.Tensor, theirs: torch.Tensor, scale: float | None = None) -> None:
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    if not mine.is_floating_point():
        assert torch.equal(mine, theirs)
        return
    scale = float(theirs.detach().abs().max()) if scale is None and theirs.numel() else scale or 1
    atol = BOUND.absolute * max(1.0, scale)
    torch.testing.assert_close(mine, theirs, rtol=BOUND.relative, atol=atol, equal_nan=True)


Function = Callable[..., torch.Tensor]

OPERATORS: dict[str, Function] = {
    "add with alpha": lambda x, y, i: torch.add(x, y, alpha=3) - torch.sub(x, 2, alpha=2),
    "division of integers": lambda x, y, i: i / 3 + x.sum(),
    "types that meet": lambda x, y, i: i[:, None] * x + (x > 1) + y.to(torch.float64).mean(),
    "comparisons with sizes": lambda x, y, i: (i == x.shape[0] - 1) | (x[0, 0] < x.shape[1]),
    "comparisons": lambda x, y, i: (x > y) & ~(x < 0.5) | (i == 2)[:1] | torch.isnan(x),
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
    "half": lambda x, y, i: (x.half() * 2 + y.half()).float(),
    "bfloat16": lambda x, y, i: x.bfloat16() * 2 + y.bfloat16(),
}


STAY = {
    "convolution": {"aten.convolution.default"},
    "transposed convolution": {"aten.convolution.default"},
    "attention": {"aten.mul.Scalar"},  # by a float that is computed from sizes
    "parts that are replaced": {"aten.slice_scatter.default"},  # of one of the two
}
"""What torch computes itself, of all that these functions call."""


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_equal_torch(
    name: str, pieces: list[Piece], monkeypatch: pytest.MonkeyPatch
) -> None:
    function = OPERATORS[name]
    stay: set[str] = set()
    is_supported = backend.is_supported

    def watched(node: torch.fx.Node) -> bool:
        supported = is_supported(node)
        if not supported and isinstance(node.target, torch._ops.OpOverload):
            stay.add(str(node.target))
        return supported

    monkeypatch.setattr(backend, "is_supported", watched)
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


def _bert(dropout: float) -> torch.nn.Module:
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    drops = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertModel(BertConfig(num_hidden_layers=2, vocab_size=100, **sizes, **drops))


def _gpt2(dropout: float) -> torch.nn.Module:
    drops = {"resid_pdrop": dropout, "embd_pdrop": dropout, "attn_pdrop": dropout}
    ends = {"bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    return GPT2Model(GPT2Config(n_layer=2, n_embd=64, n_head=2, vocab_size=100, **drops, **ends))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("make", [_bert, _gpt2])
def test_training_steps_equal_torch_at_ten_shapes(
    make: Callable[[float], torch.nn.Module], dropout: float, pieces: list[Piece]
) -> None:
    """With dropout too: torch draws the same random numbers in the same order, and they cut no piece in two."""
    torch.manual_seed(0)
    mine = make(dropout).train()
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(mine, backend=dvm, dynamic=True)
    counts = []
    for step in range(10):
        ids = torch.randint(0, 100, (2 + step % 3, 5 + step))
        results = []
        for module in (compiled, theirs):
            torch.manual_seed(step)
            results.append(module(input_ids=ids).last_hidden_state)
        close(*results)
        for module, result in zip((mine, theirs), results, strict=True):
            module.zero_grad()
            result.square().mean().backward()
        gradients = [
            (a.grad, b.grad) for a, b in zip(mine.parameters(), theirs.parameters(), strict=True)
        ]
        scale = max(float(b.abs().max()) for _, b in gradients if b is not None)
        for a, b in gradients:
            if b is not None:
                assert a is not None
                close(a, b, scale)
            else:  # of what the loss does not reach, graphs give zeros
                assert a is None or not a.any()
        counts.append(len(pieces))
    assert 2 <= counts[1] <= 5, "forward and backward have a piece each, and few more"
    assert counts[-1] == counts[1], "a new shape compiled something"


class _Images(torch.nn.Module):
    """A network of images of any size, which its layers halve."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, 2, 1)
        self.second = torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm2d(8), torch.nn.BatchNorm2d(16)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norms[0](self.first(x))), 3, 2, 1)
        return F.hardswish(self.norms[1](self.second(x))).mean((2, 3))


@pytest.mark.parametrize("train", [False, True])
def test_networks_of_images_of_any_size(pieces: list[Piece], train: bool) -> None:
    """Extents of what a piece reads are halves of halves: sizes of arguments tell what they were."""
    torch.manual_seed(0)
    mine = _Images().train(train)
    theirs = copy.deepcopy(mine)
    compiled = torch.compile(mine, backend=dvm, dynamic=True)
    counts = []
    for step in range(5):
        x = torch.rand(2 + step % 3, 3, 33 + 5 * step, 40 + 3 * step)
        with torch.set_grad_enabled(train):
            results = [module(x) for module in (compiled, theirs)]
        close(*results)
        if train:
            for module, result in zip((mine, theirs), results, strict=True):
                module.zero_grad()
                result.square().mean().backward()
            for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
                assert a.grad is not None and b.grad is not None
                close(a.grad, b.grad, 1.0)
            for a, b in zip(mine.buffers(), theirs.buffers(), strict=True):
                close(a, b)
        counts.append(len(pieces))
    assert counts[0] == 1 or train, "the forward pass is one piece"
    assert counts[-1] == counts[1], "a new shape compiled something"


RESULTS: dict[str, Callable[[torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "parts": lambda x: x.chunk(2, 1),
    "rows": lambda x: x.unbind(1),
    "a part, and what is computed of another": lambda x: (
        x.split([1, x.shape[0] - 1])[1],
        x.split([1, x.shape[0] - 1])[0] * 2,
    ),
    "views of parts": lambda x: tuple(part.t().unsqueeze(0) for part in x.chunk(2, 1)),
    "parts of results": lambda x: ((x * 2).chunk(2, 1)[1], *(x + 1).split(2, 1)),
    "a result and its parts": lambda x: (lambda y: (y, *y.chunk(2, 1)))(x.exp()),
}


@pytest.mark.parametrize("name", RESULTS)
def test_parts_among_results_share_memory(name: str) -> None:
    """With arguments and with each other, as without a compiler."""
    torch.compiler.reset()
    function = RESULTS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True, fullgraph=True)
    for rows in (5, 8):
        x = torch.randn(rows, 6)
        own = x.clone()
        mine, theirs = compiled(own), function(x)
        for a, b in zip(mine, theirs, strict=True):
            close(a, b)
            assert a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
            a.mul_(3), b.mul_(3)
        for a, b in zip((own, *mine), (x, *theirs), strict=True):
            close(a, b)


def test_what_is_not_translated_stays_in_torch(pieces: list[Piece]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x + 1) * 2

    x = torch.eye(3) + torch.rand(3, 3)
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    close(compiled(x), function(x))
    assert pieces


def test_tensors_of_another_type_than_torch_traced(pieces: list[Piece]) -> None:
    @torch.library.custom_op("dvm_tests::narrowed", mutates_args=())
    def narrowed(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.float16)

    narrowed.register_fake(torch.empty_like)

    def function(x: torch.Tensor) -> torch.Tensor:
        return narrowed(x) * 2 + 1

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x = torch.randn(rows, 4)
        assert torch.equal(compiled(x), function(x))
    assert pieces


def test_arguments_that_are_mutated_and_views_of_arguments(pieces: list[Piece]) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x.mul_(2)
        return x.t(), x + 1

    mine, theirs = torch.ones(2, 3), torch.ones(2, 3)
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for a, b in zip(compiled(mine), function(theirs), strict=True):
        close(a, b)
    close(mine, theirs)
    assert pieces


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


def test_tensors_whose_memory_is_not_what_they_hold(pieces: list[Piece]) -> None:
    """Negated by a bit, or zeros that have no memory."""
    torch.compiler.reset()
    x = torch.complex(torch.rand(3, 4), torch.rand(3, 4)).conj().imag
    nothing = torch._efficientzerotensor(3, 4)
    compiled = torch.compile(lambda x: x.exp() + 1, backend=dvm, dynamic=True)
    for each in (x, nothing, nothing.bfloat16()):
        close(compiled(each), each.exp() + 1)
    assert pieces


def test_dropout_of_what_lies_in_another_order(pieces: list[Piece]) -> None:
    """Torch draws in the order of memory."""
    function, x = torch.nn.Dropout(0.3), torch.randn(40, 3)
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    for tensor in (x.t(), x, images):
        torch.manual_seed(7)
        mine = compiled(tensor)
        torch.manual_seed(7)
        close(mine, function(tensor))
    assert pieces


def _hidden(x: torch.Tensor, all_of: bool = False) -> torch.Tensor:
    """Keys that are not there: of each row of a batch one more, or all."""
    kept = x.shape[1] - torch.arange(1, x.shape[0] + 1)[:, None]
    return torch.arange(x.shape[1]) >= (kept * 0 if all_of else kept)


def _later(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.shape[1], x.shape[1]).triu(1).bool()


ATTENTION: dict[str, Callable[..., Any]] = {
    "a layer": lambda layer, of, x: layer(x),
    "a layer, keys hidden": lambda layer, of, x: layer(x, src_key_padding_mask=_hidden(x)),
    "a layer, later ones hidden": lambda layer, of, x: layer(x, src_mask=_later(x)),
    "a layer, both": lambda layer, of, x: layer(
        x, src_mask=_later(x), src_key_padding_mask=_hidden(x)
    ),
    "a layer, all keys hidden": lambda layer, of, x: layer(
        x, src_key_padding_mask=_hidden(x, all_of=True)
    ),
    "chances": lambda layer, of, x: of(x, x, x),
    "chances of each head": lambda layer, of, x: of(x, x, x, average_attn_weights=False),
    "no chances": lambda layer, of, x: of(x, x, x, need_weights=False)[:1],
    "other keys": lambda layer, of, x: of(x, x.cos(), x.cos()),
    "other values": lambda layer, of, x: of(x, x.cos(), x.sin(), key_padding_mask=_hidden(x)),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_of_modules_that_infer(
    name: str, pieces: list[Piece], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch has operators for whole layers, which are broken down."""
    left: list[str] = []
    supported = backend.is_supported

    def watched(node: torch.fx.Node) -> bool:
        found = supported(node)
        if isinstance(node.target, torch._ops.OpOverload) and not found:
            left.append(str(node.target))
        return found

    monkeypatch.setattr(backend, "is_supported", watched)
    layers = [
        torch.nn.TransformerEncoderLayer(16, 2, 32, norm_first=first, batch_first=True).eval()
        for first in (True, False)
    ]
    of = torch.nn.MultiheadAttention(16, 4, batch_first=True).eval()

    def function(x: torch.Tensor) -> Any:
        results = [ATTENTION[name](layer, of, x) for layer in layers]
        return [each for y in results for each in (y if isinstance(y, tuple) else (y,))]

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    with torch.no_grad():
        for shape in ((9, 2, 16), (5, 3, 16)):
            x = torch.randn(shape).transpose(0, 1)
            for one, other in zip(compiled(x), function(x), strict=True):
                close(one, other, 1.0)
                assert one.stride() == other.stride()
    assert pieces and not left


def test_what_is_drawn_again_in_the_backward_pass(pieces: list[Piece]) -> None:
    def kept(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand_like(x.exp().transpose(0, 1)).transpose(0, 1)
        return (F.dropout(F.gelu(x), 0.3) * noise).sin()

    def function(x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(kept, x, use_reentrant=False)

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for rows in (3, 5):
        x, gradients = torch.randn(rows, 4), []
        for called in (compiled, function):
            own = x.clone().requires_grad_()
            torch.manual_seed(rows)
            called(own).square().sum().backward()
            gradients.append(own.grad)
        assert gradients[0] is not None and gradients[1] is not None
        close(gradients[0], gradients[1])
    assert pieces


@pytest.mark.parametrize("others", [False, True])
def test_rows_that_are_added_to_nothing(pieces: list[Piece], others: bool) -> None:
    """The gradient of a table: in place where nobody else reads the nothing."""

    def function(i: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nothing = torch.zeros(10, rows.shape[1])
        first = nothing.index_put((i,), rows * 2, accumulate=True)
        return first, *((nothing.index_put((i,), rows), nothing + 1) if others else ())

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for count in (3, 7):
        i, rows = torch.arange(count) % 5, torch.rand(count, 4)
        for _ in range(2):
            for a, b in zip(compiled(i, rows), function(i, rows), strict=True):
                close(a, b)
    assert pieces


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_arguments_are_read_as_they_lie(order: tuple[int, ...]) -> None:
    """A tensor whose axes lie in another order than they count is not copied; one that lies otherwise in a run is right too."""

    def function(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(w) * x + w.sum(1, keepdim=True)

    x, w = torch.rand(6), torch.empty_strided((4, 5, 6), _strides((4, 5, 6), order))
    w.copy_(torch.rand(4, 5, 6))
    piece = compile_piece(make_fx(function, tracing_mode="symbolic")(w, x), dvm_graph.Options())
    assert next(known[1] for known in piece._inputs if known is not None) == order
    assert w.permute(order).is_contiguous()
    for other in (w, w.contiguous(), w[:, :2], w[:1].expand(4, 5, 6), w.flip(2)[..., ::2]):
        close(piece(other, x[: other.shape[2]]), function(other, x[: other.shape[2]]))


def _strides(sizes: tuple[int, ...], order: tuple[int, ...]) -> list[int]:
    """Of a tensor whose axes lie in this order, outermost first."""
    return [
        math.prod(sizes[inner] for inner in order[order.index(axis) + 1 :])
        for axis in range(len(sizes))
    ]


def test_options_reach_the_compiler() -> None:
    torch._dynamo.reset()
    with pytest.raises(dvm_graph.InputError, match="no option"):
        dvm(torch.fx.symbolic_trace(torch.nn.ReLU()), [torch.ones(1)], options={"core": 1})
    compiled = torch.compile(torch.relu, backend="dvm", dynamic=True, options={"cores": 1})
    assert compiled(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]


def test_the_backward_pass_runs_again() -> None:
    """It still has what only the forward pass of sizes that vary kept for it."""
    torch._dynamo.reset()

    def waved(x: torch.Tensor) -> torch.Tensor:
        y = x[..., ::2].flip(-1)
        return (y * y.cos()).exp().mean(-1)

    compiled = torch.compile(waved, backend=dvm, dynamic=True)
    x, same = (torch.linspace(-2, 2, 24).reshape(2, 3, 4).requires_grad_() for _ in range(2))
    results = compiled(x), waved(same)
    for at in range(2):
        for result in results:
            result.sum().backward(retain_graph=at == 0)
        torch.testing.assert_close(x.grad, same.grad)


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
