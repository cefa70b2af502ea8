"""Eager operators fused in `eager()` against torch alone: values, layouts, aliasing, gradients, and what is refused."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dvm_graph import _core
from dvm_graph.errors import UnsupportedError
from dvm_graph.torch_backend import eager
from tests.tolerances import tolerance

eager_module = __import__("sys").modules["dvm_graph.torch_backend.eager"]


def same(mine: Any, theirs: Any, numbers: int = 4096) -> None:
    """Alike but for rounding, layouts too."""
    if isinstance(theirs, list | tuple):
        assert len(mine) == len(theirs)
        for pair in zip(mine, theirs, strict=True):
            same(*pair, numbers)
        return
    if not isinstance(theirs, torch.Tensor):
        assert type(mine) is type(theirs)
        theirs = torch.tensor(theirs, dtype=torch.float32 if isinstance(theirs, float) else None)
        mine = torch.tensor(mine, dtype=theirs.dtype)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    assert mine.stride() == theirs.stride() and mine.storage_offset() == theirs.storage_offset()
    if not theirs.is_floating_point():
        assert torch.equal(mine, theirs)
        return
    dtype = torch.float32 if theirs.dtype is torch.bfloat16 else theirs.dtype
    bound = tolerance(torch.empty((), dtype=dtype).numpy().dtype, numbers)
    finite = theirs.detach()[torch.isfinite(theirs.detach())]
    scale = max(1.0, float(finite.abs().max()) if finite.numel() else 0.0)
    relative, absolute = bound.relative, bound.absolute * scale
    if theirs.dtype in (torch.float16, torch.bfloat16):  # rounded where they are stored only
        relative = absolute = 4 * torch.finfo(theirs.dtype).eps * scale
    torch.testing.assert_close(mine, theirs, rtol=relative, atol=absolute, equal_nan=True)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[_core.Stream]:
    """Those that a test opens."""
    opened: list[_core.Stream] = []

    def noted() -> Any:
        made = eager_module._translation()
        opened.append(made.builder.stream)
        return made

    monkeypatch.setattr(eager_module, "_common_translation", noted)
    return opened


def both(function: Callable[..., Any], *tensors: torch.Tensor) -> None:
    theirs_given, mine_given = copy.deepcopy(tensors), copy.deepcopy(tensors)
    torch.manual_seed(3)
    theirs = function(*theirs_given)
    torch.manual_seed(3)
    with eager():
        mine = function(*mine_given)
    same(mine, theirs)
    same(mine_given, theirs_given)  # what was written to


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y, i: (x + y * 2 - 1) / (y.abs() + 1) - torch.rsub(x, 3, alpha=2),
    "types that meet": lambda x, y, i: (i[:, None] * x, i + 1.5, i / 2, (x > 0) + i[:, None]),
    "double": lambda x, y, i: x.double() + y + i.sum(),
    "comparisons": lambda x, y, i: ((x > y) & ~(x < 0.5), i == 2, i <= 1.5, torch.isnan(x / 0)),
    "functions": lambda x, y, i: (torch.tanh(x), torch.erf(y), x.exp(), x.log(), torch.sqrt(x)),
    "activations": lambda x, y, i: [F.gelu(x), F.silu(x), F.relu(y), F.elu(x), F.hardswish(y)],
    "clamp": lambda x, y, i: (x.clamp(-0.1, 0.2), i.clamp(min=1), x.clamp_min(y)),
    "where": lambda x, y, i: (torch.where(x > 0, x, 1), torch.where(i > 1, 2.0, 3.0)),
    "masks": lambda x, y, i: (x.masked_fill(x < 0, -1e9), x[x > 0], y.masked_fill_(y > 1, 0)),
    "sums": lambda x, y, i: (x.sum(0), x.t().sum(0), i.sum(), (x > 0).sum(-1), x.sum((0, 1))),
    "means": lambda x, y, i: (x.mean(-1, keepdim=True), x.var(-1), x.std(0), torch.var_mean(x, 1)),
    "extremes": lambda x, y, i: (x.amax(0), x.max(), x.max(1), x.argmax(), (x / 0 * 0).amin(1)),
    "softmax": lambda x, y, i: (F.softmax(x, 0), F.log_softmax(y, -1), F.layer_norm(x, (6,))),
    "products": lambda x, y, i: (x @ y.t(), torch.addmm(x[:, :1], x, y.T, beta=2), F.linear(x, y)),
    "products of vectors": lambda x, y, i: (x @ y[0], x[0] @ y.t(), F.linear(x[0], y), x[0] @ y[0]),
    "axes of numbers": lambda x, y, i: [
        each
        for z in (x.sum(), x.sum() > 0)
        for each in (z.float().softmax(0), z.sum(-1), z.amax(0), z.any(0), z.flip(0), z.float().norm(dim=0))
    ],
    "attention": lambda x, y, i: F.scaled_dot_product_attention(x[None], y[None], y[None]),
    "convolution": lambda x, y, i: F.conv1d(x[None], y[:, None, :2].repeat(1, 4, 1)),
    "views": lambda x, y, i: (
        (x + 1).t(),
        (x + 1)[1:, ::2] * 2,
        (x * 2).reshape(-1)[3:],
        (x + 1).unsqueeze(0).expand(2, -1, -1),
        *(x + y).split(2, 1),
        *(x + y).unbind(0),
    ),
    "dense layouts": lambda x, y, i: (x.t() + 1, (x + y).t() * 2, x.t().contiguous() - 1, x.t().exp().sum(0)),
    "parts at places that are computed": lambda x, y, i: (x + 1).tensor_split(i[1:3] + 1),
    "joins": lambda x, y, i: (torch.cat([x, y + 1], 1), torch.stack([x, y + 1]), F.pad(x, (1, 2))),
    "new tensors": lambda x, y, i: (torch.ones_like(x) + 1, torch.full((2, 3), 2.5), torch.zeros(3)),
    "indices": lambda x, y, i: (x[:, i], F.embedding(i, y + 1), (x + 1).gather(1, (x > 0).long())),
    "random": lambda x, y, i: (x + torch.rand_like(y + 1), F.dropout(x + 1, 0.5), torch.randperm(4)),
    "sorts": lambda x, y, i: ((x + 1).sort(-1), (x * 2).topk(2), (x + 1).cumsum(0)),
    "complex": lambda x, y, i: (torch.fft.fft(x + 1).abs(), torch.view_as_real(torch.complex(x, y)) + 1),
    "negative bit": lambda x, y, i: torch.complex(x, y).conj().imag + 1,
    "long sums so far": lambda x, y, i: ((x + 1).repeat(300, 1).cumsum(0), x.cumprod(1)),
    "rests": lambda x, y, i: (x % 0.3, torch.fmod(x, y), x // y, i // 2, (i - 9) % -4, x.argmax(0), x.max(1)),
    "layer norm of halves": lambda x, y, i: torch.native_layer_norm(x.half() + 1, (6,), None, None, 1e-3),
    "half": lambda x, y, i: ((x.half() + 1) * 2, x.bfloat16() * 2 + y.bfloat16()),
    "nothing": lambda x, y, i: (x[:0] + 1, x[:0].sum(), torch.cat([x[:0] + 1, y])),
    "numbers": lambda x, y, i: ((x.sum() + 1).item(), bool((i > 1).any()), int(i.sum()), (x + 1).tolist()),
    "in place": lambda x, y, i: ((x + 1).mul_(2).add_(y).relu_(), i.add_(1), (i + 1).add_(x[0, 0] > 0)),
    "filled": lambda x, y, i: ((x + 1).fill_(3), (x + 1).zero_(), (x + 1).copy_(i[:, None]), y.copy_(x + 1)),
    "in place of another type": lambda x, y, i: (i + 1).copy_(x[:, 0]),
    "out": lambda x, y, i: torch.add(x, 1, out=y),
    "distances of other orders": lambda x, y, i: torch.cdist(x, y, p=3) + 1,
    "in place of an expanded": lambda x, y, i: (x + 1).add_(x[0]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_equal_torch(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(4, 6, generator=generator) for _ in range(2))
    i = torch.arange(4) % 3
    both(FUNCTIONS[name], x, y, i)
    wide = torch.randn(6, 12, generator=generator)
    both(FUNCTIONS[name], wide[:, ::3].t(), wide[1:5, 2:8], i.flip(0)[:])


def _views(x: torch.Tensor) -> Any:
    y = x * 2
    row, turned = y[0], y.t()
    later = turned + 1
    row.add_(5)
    y.mul_(3)
    whole = y.detach()
    whole += 1
    return y, row, turned, later, turned + 1, row * 2, y.reshape(-1)[2:4]


def _shared_values(x: torch.Tensor) -> Any:
    y = x + 1
    copied, again, flat = y.clone(), y.to(y.dtype, copy=True), y.reshape(-1)
    y[0] = 7
    copied[1, 1] = 8
    flat.mul_(2)
    return y, copied, again, flat


def _waiting_readers(x: torch.Tensor) -> Any:
    y = x + 1
    x.mul_(3)
    z = x + y
    x[1:].zero_()
    view = x[0]
    w = view * 2
    x.t().add_(1)
    return y, z, w, x


def _turned(x: torch.Tensor) -> Any:
    """Views that take the place of tensors."""
    turned, spread, part, strided, narrow = x + 1, x + 2, (x + 3)[1:], x * 2, (x + 4)[:1]
    row = spread[0]
    turned.t_()
    turned.add_(1)
    spread.unsqueeze_(1).mul_(3)
    part.transpose_(0, 1)
    twice = part.exp()
    part.unsqueeze_(0)
    part.squeeze_()
    part.zero_()
    strided.as_strided_((2, 2), (1, 2), 1)
    narrow.squeeze_(0)
    return turned, turned * 2, spread, row, part, twice, strided, strided + 1, narrow, narrow + 1


def _other_memory(x: torch.Tensor) -> Any:
    """Of other sizes, strides and dtypes, of tensors made inside and not."""
    made, turned, wide, itself = x + 1, x + 2, x + 3, x + 4
    row, y = made[0], torch.eye(3) * 2
    made.data = y
    made.mul_(2)
    part = made.t()[1:]
    part.add_(5)
    turned.data = torch.arange(6.0).reshape(2, 3).t()[1:]
    twice = turned * 2
    turned[0] = 9
    wide.data = torch.zeros(2, dtype=torch.float64) + 3
    wide.add_(1)
    itself.data = itself
    itself.add_(1)
    return made, row, y, part, turned, twice, wide, wide + 1, itself


@pytest.mark.parametrize(
    "program", [_views, _shared_values, _waiting_readers, _turned, _other_memory]
)
def test_memory_is_shared_as_in_torch(program: Callable[..., Any]) -> None:
    both(program, torch.randn(3, 4))


def test_results_are_ordinary_and_share_memory() -> None:
    with eager():
        y = torch.ones(3, 4) + 1
        row = y[1]
    assert type(y) is type(row) is torch.Tensor
    row.zero_()
    assert y[1].sum() == 0 and y.numpy()[1].sum() == 0


def test_what_numpy_or_threads_write_is_not_read() -> None:
    array = np.ones(4, np.float32)
    shared, own, other = torch.from_numpy(array), torch.ones(4), torch.ones(4)
    with eager():
        results = shared + 1, own + 1, other + 1
        array[:] = 9
        own.numpy()[:] = 9
        thread = threading.Thread(target=lambda: other.fill_(9))
        thread.start()
        thread.join()
        again = shared + 1, own + 1, other + 1
    for result in results:
        assert result.tolist() == [2] * 4
    for result in again:
        assert result.tolist() == [10] * 4
    own.numpy()[0] = 5
    assert own[0] == 5


def test_an_array_of_a_result_shares_its_memory() -> None:
    with eager():
        y = torch.ones(4) + 1
        y.numpy()[0] = 7
        z = y * 2
        y.add_(1)
    assert z.tolist() == [14, 4, 4, 4] and y.tolist() == [8, 3, 3, 3]


def test_gradients_equal_torch() -> None:
    def step(model: torch.nn.Module, x: torch.Tensor) -> Any:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scaled = x * 2 - 1
        for _ in range(3):
            loss = F.mse_loss(model(scaled), x.sum(-1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        with torch.no_grad():
            return [model(x), *(p.detach() for p in model.parameters())]

    torch.manual_seed(0)
    layers = (torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 1))
    model, x = torch.nn.Sequential(*layers), torch.randn(5, 6)
    twin = copy.deepcopy(model)
    theirs = step(model, x)
    with eager():
        mine = step(twin, x)
    same(mine, theirs)


def test_a_result_becomes_a_leaf() -> None:
    with eager():
        leaf = (torch.ones(3) + 1).requires_grad_()
        (leaf * leaf).sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist() == [4] * 3
    assert leaf.detach().numpy().tolist() == [2] * 3
    assert (leaf + 1).sum().item() == 9


def test_operators_fuse(streams: list[_core.Stream]) -> None:
    x = torch.randn(64, 32)
    with torch.no_grad(), eager():
        for turn in range(4):
            x = torch.tanh(x) * 0.5 + x / (turn + 1)
        y = F.layer_norm(x, (32,))
        del x
    assert y.shape == (64, 32)
    (stream,) = streams
    assert stream.statistics["kernels"] == 1 and stream.statistics["stored"] == 1


def test_products_of_vectors_wait(streams: list[_core.Stream]) -> None:
    """Torch's own matrix product of a vector drops an axis in place."""
    x, v = torch.randn(4, 6), torch.randn(4)
    with eager():
        y = torch.tanh(v @ x) + 1
    assert y.shape == (6,) and streams[0].statistics["flushes"] == 1


def test_dead_results_are_not_computed(streams: list[_core.Stream]) -> None:
    with eager():
        y = torch.ones(5, 5) + 1
        del y
    assert streams[0].statistics["kernels"] == 0


def test_parameters_made_inside_are_ordinary() -> None:
    with eager():
        plain, trained, held = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
        fixed = torch.nn.Parameter(torch.arange(3.0) + 1, requires_grad=False)
        plain.kind = "scale"  # type: ignore[attr-defined]
        (trained * trained).sum().backward()
        later = (held * 2).sum()
    for parameter in (plain, trained, fixed):
        assert type(parameter) is torch.nn.Parameter
    assert plain.requires_grad and plain.kind == "scale" and not fixed.requires_grad  # type: ignore[attr-defined]
    assert trained.grad is not None and trained.grad.tolist() == [2] * 3
    later.backward()  # its graph holds what was made inside
    assert held.grad is not None and held.grad.tolist() == [2] * 3


def test_tensors_get_the_memory_of_others() -> None:
    linear = torch.nn.Linear(3, 3)
    with eager():
        y, made, trained = (
            torch.eye(3) * 2,
            torch.zeros(2),
            torch.nn.Parameter(torch.ones(3, 3) + 1),
        )
        linear.weight.data = y
        y.mul_(2)
        made.data = torch.ones(3) + 1
        square = (trained * trained).sum()
        other = torch.nn.Linear(3, 3)
        other.weight.data = trained
        square.backward()
    assert torch.equal(linear.weight, torch.eye(3) * 4) and made.tolist() == [2] * 3
    assert trained.grad is not None and (trained.grad == 4).all() and (other.weight == 2).all()
    y.zero_()
    assert not linear.weight.any()


def test_errors_are_torch_s() -> None:
    with eager():
        y = torch.ones(3) + 1
        with pytest.raises(RuntimeError, match="size of tensor"):
            y + torch.ones(4)
        with pytest.raises(IndexError):
            y[5]
        with pytest.raises(RuntimeError, match="result type"):
            (torch.ones(3, dtype=torch.int64) + 1).add_(1.5)
        with pytest.raises(UnsupportedError, match="other memory"):
            y.resize_(2)
        assert y.sum() == 6


def test_contexts_nest_and_end_by_errors() -> None:
    with eager():
        x = torch.ones(4) + 1
        with eager():
            y = x * 2
        assert type(y) is torch.Tensor
        z = x + y
    assert z.tolist() == [6] * 4
    with pytest.raises(KeyError), eager():
        w = z + 1
        raise KeyError
    assert type(w) is torch.Tensor and w.tolist() == [7] * 4


def test_printing_and_copying() -> None:
    with eager():
        y = torch.ones(2) + 1
        assert repr(y) == "tensor([2., 2.])" and f"{y.sum():.1f}" == "4.0"
        assert np.asarray(y).tolist() == [2, 2]
        assert copy.deepcopy(y).tolist() == [2, 2]
        assert torch.from_dlpack(y).tolist() == [2, 2]


def _random_program(rng: random.Random, x: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
    """Views, writes, types and branches as they come. All tensors broadcast against 4 x 6."""
    known = [x, n, x[:1], x.t().contiguous().t()]
    for _ in range(rng.randint(5, 25)):
        a, b = rng.choice(known), rng.choice(known)
        kind = rng.randrange(13)
        if kind < 3:
            made = rng.choice([torch.add, torch.mul, torch.sub, torch.maximum])(a, b)
        elif kind == 3:
            made = rng.choice([torch.tanh, torch.sigmoid, torch.sin])(a)
        elif kind == 4:
            made = a.sum(-1, keepdim=True) * 0.25
        elif kind == 5:
            made = torch.where(torch.gt(a, b + 0.0123), a, b * 0.5)
        elif kind == 6:
            made = a[..., rng.randrange(a.shape[-1]) :][..., :1]
        elif kind == 7:
            made = a.expand(4, 6).t().reshape(6, 4).t()
        elif kind == 8:  # a branch on a value, away from ties
            made = a * 0.5 if (a.double() > b.double() + 0.0123).sum() % 2 == 0 else b - 1
        elif kind == 9:
            made = a * 1
            alias = made[:1]
            made.add_(2)
            known.append(alias)
        elif kind == 10:
            made = (a * 1.0).expand(4, 6).clone()
            made[rng.randrange(4)].mul_(rng.random())
        elif kind == 11:
            made = a.clone()
            made.clamp_(-3, 3)
        else:
            a = rng.choice(known[4:] or [a.clone()])
            made = a.detach()
            if 0 not in a.stride():
                made.copy_(made.flip(-1))
        made = made.clamp(-8, 8) if kind < 3 else made
        known.append(made)
        if rng.random() < 0.2:
            known.pop(rng.randrange(len(known)))
    return known


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_equal_torch(seed: int) -> None:
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        _check_program(seed)
    finally:
        torch.set_default_dtype(default)


def _check_program(seed: int) -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    n = torch.arange(6) % (seed % 5 + 2)
    both(lambda x, n: _random_program(random.Random(seed), x, n), x, n)


CONVOLUTIONS: dict[str, Callable[..., Any]] = {
    "groups of vectors": lambda x: F.conv1d(x[:, :, 0], x[:1, 0, :1, :2].repeat(4, 1, 1), groups=4),
    "channels alone": lambda x: F.conv2d(x + 1, x[0, :, None, :3, :3], padding=1, groups=4),
    "images": lambda x: F.conv2d(x, x[:, :, :3, :3]) + 1,
    "volumes": lambda x: F.conv3d(x[None], x[:2, :2, :3, :3][None].repeat(1, 1, 1, 1, 1)),
    "spread": lambda x: F.conv_transpose2d(x, x[:1, :, :2, :2].transpose(0, 1), stride=2),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_equal_torch(name: str) -> None:
    x = torch.randn(2, 4, 6, 7, generator=torch.Generator().manual_seed(1))
    function = CONVOLUTIONS[name]
    theirs = function(x)
    with torch.no_grad(), eager():
        mine = function(x)
    same(mine, theirs)


def test_what_is_not_taken_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    capture = eager_module._Buffer.capture

    def noted(self: Any, call: Any, *rest: Any) -> Any:
        tried.append(call.target)
        return capture(self, call, *rest)

    monkeypatch.setattr(eager_module._Buffer, "capture", noted)
    monkeypatch.setattr(eager_module, "_CALLS", {})
    x = torch.randn(1, 2, 5, 5)
    with torch.no_grad(), eager():
        for _ in range(3):
            y = F.conv2d(x, x[:, :, :3, :3])
        for _ in range(3):
            y = y + 1
    assert tried.count(torch.ops.aten.convolution.default) <= 1
    assert tried.count(torch.ops.aten.add.Tensor) == 3


def test_torch_is_asked_about_indices_that_are_there() -> None:
    """It does not look at those of a pool before it writes by them."""

    def program(x: torch.Tensor) -> torch.Tensor:
        given, places = F.max_pool2d(x, 3, stride=2, return_indices=True)
        return torch.ops.aten.max_pool2d_with_indices_backward(
            given, x, [3, 3], [2, 2], [0, 0], [1, 1], False, places
        )

    torch.use_deterministic_algorithms(True)
    try:
        both(program, torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last))
    finally:
        torch.use_deterministic_algorithms(False)
