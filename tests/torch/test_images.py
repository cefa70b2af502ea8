"""Convolutions and pools in torch.compile, forward and backward, against torch itself; how what pieces give lies in memory."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from dvm_graph.torch_backend import backend, dvm, eager
from dvm_graph.torch_backend.piece import Piece
from tests.tolerances import tolerance

SIZES = ((2, 12, 9, 11), (3, 13, 14, 10), (2, 16, 11, 13))
"""Batches and spatial extents."""
Function: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def left(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Operators of images that stay in torch."""
    found: list[str] = []
    is_supported = backend.is_supported

    def noted(node: torch.fx.Node) -> bool:
        supported = is_supported(node)
        named = node.op == "call_function" and any(n in str(node.target) for n in ("conv", "pool"))
        if named and not supported:
            found.append(str(node.target))
        return supported

    monkeypatch.setattr(backend, "is_supported", noted)
    torch._dynamo.reset()
    return found


def close(mine: torch.Tensor, theirs: torch.Tensor, terms: int = 4096) -> None:
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    assert mine.stride() == theirs.stride()
    if not theirs.is_floating_point():
        assert torch.equal(mine, theirs)
        return
    bound = tolerance(np.dtype(str(theirs.dtype).removeprefix("torch.")), terms)
    finite = theirs[theirs.isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    torch.testing.assert_close(
        mine, theirs, rtol=bound.relative, atol=bound.absolute * scale, equal_nan=True
    )


def compare_steps(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Results, and gradients of inputs and parameters, of one compiled module at all inputs."""
    compiled = torch.compile(module, backend=dvm, dynamic=True)
    for x in inputs:
        results = []
        for called in (compiled, module):
            own = x.clone().requires_grad_()
            module.zero_grad()
            y = called(own)
            (y * torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).sin()).sum().backward()
            gradients = [p.grad for p in module.parameters()]
            results.append([y.detach(), own.grad, *gradients])
        for mine, theirs in zip(*results, strict=True):
            assert mine is not None and theirs is not None
            close(mine, theirs)


PLANE = [
    *((3, 1, 1, 1), (3, 2, 1, 1), (1, 1, 0, 1), (1, 2, 0, 1), (2, 3, 0, 1), (4, 2, 1, 1)),
    *((7, 2, 3, 1), (3, 2, 2, 2), (3, 1, 2, 2), (3, 3, 4, 2), (3, 2, 0, 3)),
    ((3, 5), (2, 1), (0, 3), (1, 2)),
]
"""Kernels, strides, pads and dilations."""
CHANNELS = {1: (5, 6), 4: (8, 12), 8: (8, 16), 2: (4, 6)}
"""Of images before and behind, by groups."""
CASES = [
    *((2, window, groups, False) for window in PLANE for groups in (1, 8)),
    *((2, PLANE[at], groups, False) for at in (0, 1, 7) for groups in (2, 4)),
    *((2, PLANE[at], groups, True) for at in (0, 1, 3, 5, 7) for groups in (1, 8)),
    *((n, PLANE[at], groups, False) for n in (1, 3) for at in (1, 5, 7) for groups in (1, 2, 8)),
    *((n, PLANE[5], groups, True) for n in (1, 3) for groups in (1, 8)),
]


@pytest.mark.parametrize(("count", "window", "groups", "transposed"), CASES)
def test_convolutions_and_their_gradients(
    count: int, window: Any, groups: int, transposed: bool, left: list[str]
) -> None:
    torch.manual_seed(0)
    kernel, stride, pad, dilation = window
    before, behind = CHANNELS[groups]
    made = getattr(torch.nn, f"Conv{'Transpose' * transposed}{count}d")
    module = made(before, behind, kernel, stride, pad, dilation=dilation, groups=groups)
    dtype = torch.float64 if count != 2 else torch.float32
    inputs = [torch.randn(b, before, *size[:count], dtype=dtype) for b, *size in SIZES]
    compare_steps(module.to(dtype), inputs)
    assert not left


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_gradients_of_some(bias: bool, wanted: tuple[bool, bool], left: list[str]) -> None:
    """Of the image alone, or of the weights alone."""
    torch.manual_seed(0)
    module = torch.nn.Conv2d(3, 4, 3, 2, 1, bias=bias)
    module.weight.requires_grad_(wanted[1])
    compiled = torch.compile(module, backend=dvm, dynamic=True)
    for size in (9, 12):
        x, results = torch.randn(2, 3, size, size + 3), []
        for called in (compiled, module):
            own = x.clone().requires_grad_(wanted[0])
            module.zero_grad()
            called(own).square().sum().backward()
            results.append([own.grad, *(p.grad for p in module.parameters())])
        for mine, theirs in zip(*results, strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None and theirs is not None:
                close(mine, theirs)
    assert not left


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_half_floats(dtype: torch.dtype, left: list[str]) -> None:
    """As near to those in float64 as their rounding is: products add up in float32."""
    torch.manual_seed(0)
    module = torch.nn.Conv2d(4, 6, 3, 2, 1, groups=2).to(dtype)
    compiled = torch.compile(module, backend=dvm, dynamic=True)
    for size in (9, 12):
        x = torch.randn(2, 4, size, size).to(dtype).requires_grad_()
        y = compiled(x)
        module.zero_grad()
        y.backward(torch.ones_like(y))
        wide = [value.detach().double().requires_grad_() for value in (x, *module.parameters())]
        theirs = F.conv2d(*wide, stride=2, padding=1, groups=2)
        theirs.backward(torch.ones_like(theirs))
        for mine, exact in zip((x, *module.parameters()), wide, strict=True):
            assert mine.grad is not None and exact.grad is not None
            scale = float(exact.grad.abs().max())
            bound = 2 * torch.finfo(dtype).eps
            torch.testing.assert_close(
                mine.grad, exact.grad.to(dtype), rtol=bound, atol=bound * scale
            )
    assert not left


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("special", [torch.nan, torch.inf])
def test_what_is_not_finite_reaches_the_gradients_of_its_own_channels(
    special: float, groups: int
) -> None:
    torch.manual_seed(0)
    module = torch.nn.Conv2d(4, 4, 3, padding=1, groups=groups)
    compiled = torch.compile(module, backend=dvm, dynamic=True)
    x = torch.randn(2, 4, 7, 8)
    x[1, 2, 3, 4] = special
    results = []
    for called in (compiled, module):
        module.zero_grad()
        y = called(x)
        y.backward(torch.ones_like(y))
        assert module.weight.grad is not None
        results.append(module.weight.grad)
    mine, theirs = results
    assert torch.equal(mine.isfinite(), theirs.isfinite())
    close(mine[theirs.isfinite()], theirs[theirs.isfinite()])


Pool = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def greatest(window: Sequence[Any], pool: Any) -> Pool:
    return lambda x: pool(x, *window, return_indices=True)


def average(window: Sequence[Any], counted: Sequence[Any], pool: Any) -> Pool:
    return lambda x: (pool(x, *window[:3], window[4], *counted),)


POOLS: dict[str, Pool] = {}
_WINDOWS = (
    *((3, 2, 1, 1, False), (2, 2, 0, 1, False), (3, 1, 1, 1, True), (3, 2, 1, 2, False)),
    *((2, 3, 1, 1, True), (4, 3, 1, 1, True), ((2, 3), (3, 2), (1, 0), (1, 2), True)),
)
_WINDOWS_OF_SPACES = (
    *((3, 2, 1, 1, False), (2, 2, 0, 1, False), (2, 3, 1, 1, True)),
    ((2, 3, 1), (3, 2, 1), (1, 0, 0), (1, 2, 1), True),
)
for _where, _windows, _greatest, _average in (
    ("planes", _WINDOWS, F.max_pool2d, F.avg_pool2d),
    ("spaces", _WINDOWS_OF_SPACES, F.max_pool3d, F.avg_pool3d),
):
    for _window in _windows:
        POOLS[f"{_where}, greatest of {_window}"] = greatest(_window, _greatest)
        if _window[3] == 1:
            for _counted in ((True, None), (False, None), (True, 5)):
                POOLS[f"{_where}, average of {_window} {_counted}"] = average(
                    _window, _counted, _average
                )


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pools_and_their_gradients(name: str, dtype: torch.dtype, left: list[str]) -> None:
    """Of equal elements, infinities and NaNs, too: the gradient goes where torch says the greatest lies."""
    function = POOLS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    generator = torch.Generator().manual_seed(0)
    for special, (batch, channels, *places) in itertools.product(
        (False, True), ((2, 3, 9, 11), (3, 4, 12, 10), (2, 5, 7, 13))
    ):
        depth = (8 - batch,) if name.startswith("spaces") else ()
        shape = (batch, channels, *depth, *places)
        x = torch.randn(shape, dtype=dtype, generator=generator)
        if special:
            chance = torch.rand(shape, generator=generator)
            x = torch.where(chance < 0.2, torch.nan, torch.where(chance < 0.5, -torch.inf, x))
            x = torch.where(chance > 0.75, x.round(), x)
            x[0, 0] = -torch.inf
        results = []
        for called in (compiled, function):
            own = x.clone().requires_grad_()
            values = called(own)
            y = values[0]
            y.backward(torch.arange(y.numel(), dtype=dtype).reshape(y.shape))
            results.append([*(value.detach() for value in values), own.grad])
        for mine, theirs in zip(*results, strict=True):
            assert mine is not None and theirs is not None
            close(mine, theirs)
    assert not left


def test_pools_of_images_without_a_batch(left: list[str]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1)

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for shape in ((3, 9, 11), (4, 12, 10)):
        x, gradients = torch.randn(shape), []
        for called in (compiled, function):
            own = x.clone().requires_grad_()
            called(own).square().sum().backward()
            gradients.append(own.grad)
        assert gradients[0] is not None and gradients[1] is not None
        close(gradients[0], gradients[1])
    assert not left


# -- how results lie in memory


ORDERS: dict[str, Function] = {
    "as it lies": lambda x: torch.tanh(x.transpose(1, 2)),
    "a view of it": lambda x: torch.tanh(x.transpose(1, 2)).as_strided((4, 3), (1, 2)) * 2,
    "a view of a view": lambda x: (
        torch.tanh(x.transpose(0, 2))[1:].as_strided((3, 5), (2, 1), 4) + 1
    ),
    "all of it in a row": lambda x: torch.exp(x.permute(2, 0, 1)).permute(1, 2, 0).view(-1),
}


@pytest.mark.parametrize("name", ORDERS)
def test_results_lie_as_in_torch(name: str, pieces: list[Piece]) -> None:
    function = ORDERS[name]
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for shape in ((2, 4, 6), (3, 5, 7)):
        x = torch.randn(shape)
        close(compiled(x), function(x))
    assert pieces


def test_images_whose_channels_lie_last(left: list[str]) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    )
    images = [torch.randn(2, 3, size, size + 2) for size in (6, 9)]
    compare_steps(module, [x.contiguous(memory_format=torch.channels_last) for x in images])
    assert not left


def test_the_backward_pass_looks_at_memory(pieces: list[Piece]) -> None:
    """What the forward pass keeps lies as it was computed, unless someone looks at its memory in the backward pass."""

    class Looking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            between = torch.nextafter(x, gradient)  # which stays in torch
            flat = between.as_strided((between.numel(),), (1,))
            return gradient * flat.cumsum(0).reshape(x.shape)

    torch.manual_seed(0)
    convolution = torch.nn.Conv2d(3, 4, 3, padding=1)

    def function(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = Looking.apply(torch.tanh(convolution(x)))
        return made

    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for size in (5, 8):
        x, gradients = torch.randn(2, 3, size, size + 1), []
        for called in (compiled, function):
            own = x.clone().requires_grad_()
            called(own).sum().backward()
            gradients.append(own.grad)
        assert gradients[0] is not None and gradients[1] is not None
        close(gradients[0], gradients[1])
    assert pieces


class _Inverted(torch.nn.Module):
    """A block of MobileNet's kind with a stride, and one of ConvNeXt's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.wide = torch.nn.Conv2d(8, 16, 1)
        self.deep = torch.nn.Conv2d(16, 16, 3, 2, 1, groups=16)
        self.far = torch.nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.layer_norm = torch.nn.LayerNorm(16)
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        x = self.deep(F.relu6(self.wide(x)))
        y = self.linear(self.layer_norm(self.far(x).permute(0, 2, 3, 1)))
        return x + F.gelu(y).permute(0, 3, 1, 2)


def test_networks_of_images_train_as_one_piece_each_way(
    pieces: list[Piece], left: list[str]
) -> None:
    torch.manual_seed(0)
    inputs = [torch.rand(2 + at % 3, 3, 33 + 5 * at, 40 + 3 * at) for at in range(5)]
    compare_steps(_Inverted().train(), inputs)
    assert not left
    assert len(pieces) == 2


@pytest.mark.parametrize("groups", [1, 4])
def test_no_images(groups: int, left: list[str]) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(4, 4, 3, 2, 1, groups=groups), torch.nn.MaxPool2d(3, 2, 1)
    )
    compare_steps(module, [torch.randn(batch, 4, 9, 9) for batch in (0, 2)])
    assert not left


@pytest.mark.parametrize("groups", [1, 4, 8])
@pytest.mark.parametrize("mixed", [False, True])
def test_norms_of_groups(groups: int, mixed: bool) -> None:
    """Of images in the type of the weights, and of half floats between weights of float32."""
    torch.manual_seed(0)
    module = torch.nn.GroupNorm(groups, 8)
    torch.nn.init.normal_(module.weight)
    dtype = torch.bfloat16 if mixed else torch.float32
    inputs = [torch.randn(b, 8, *size, dtype=dtype) for b, *size in (*SIZES, (2, 1, 3))]
    compare_steps(module, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_norms_that_update_what_they_know(dtype: torch.dtype) -> None:
    def norm(
        x: torch.Tensor, scale: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor
    ) -> Any:
        arguments = (x, scale, scale, mean, variance, 0.1, 1e-5)
        return *torch.ops.aten._batch_norm_with_update(*arguments), mean, variance

    compiled = torch.compile(norm, backend=dvm, dynamic=True)
    for batch in (3, 5):
        x, scale, mean = (torch.rand(size).to(dtype) for size in ((batch, 4, 5), (4,), (4,)))
        mine, theirs = (called(x, scale, mean.clone(), mean + 0.5) for called in (compiled, norm))
        for one, other in zip(mine, theirs, strict=True):
            bound = 0.0 if one.dtype is torch.uint8 else 8 * torch.finfo(one.dtype).eps
            torch.testing.assert_close(one, other, rtol=bound, atol=bound)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("dtype", "weights", "statistics"),
    [
        (torch.float16, torch.float16, torch.float16),
        (torch.bfloat16, torch.float32, torch.float32),
        (torch.float16, None, torch.float16),
        (torch.float64, torch.float64, torch.float64),
    ],
)
def test_types_of_what_norms_of_batches_know(
    dtype: torch.dtype, weights: torch.dtype | None, statistics: torch.dtype, train: bool
) -> None:
    def norm(x: torch.Tensor, scale: Any, mean: torch.Tensor, variance: torch.Tensor) -> Any:
        arguments = (x, scale, scale, mean, variance, train, 0.1, 1e-5)
        return *torch.ops.aten.native_batch_norm(*arguments), mean, variance

    compiled = torch.compile(norm, backend=dvm, dynamic=True)
    for batch in (3, 5):
        x = torch.randn(batch, 4, 5).to(dtype)
        scale = None if weights is None else torch.randn(4).to(weights)
        mean = torch.rand(4).to(statistics)
        mine, theirs = (called(x, scale, mean.clone(), mean + 0.5) for called in (compiled, norm))
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            bound = 8 * torch.finfo(one.dtype).eps
            torch.testing.assert_close(one, other, rtol=bound, atol=bound)


@pytest.mark.parametrize("how", ["compiled", "eager"])
def test_numbers_of_lengths_that_are_learned(how: str, stay: set[str]) -> None:
    def weights(v: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
        return torch._weight_norm(v, g, 0) * 2

    v, g = (torch.randn(4).requires_grad_() for _ in range(2))
    factors = torch.arange(4.0)
    theirs = weights(v, g)
    their_gradients = torch.autograd.grad(theirs, (v, g), factors)
    with eager() if how == "eager" else contextlib.nullcontext():
        called = weights if how == "eager" else torch.compile(weights, backend=dvm)
        mine = called(v, g)
        gradients = torch.autograd.grad(mine, (v, g), factors)
    for one, other in zip((mine, *gradients), (theirs, *their_gradients), strict=True):
        close(one, other)
    assert not stay


@pytest.mark.parametrize("axis", [0, 2])
def test_weights_of_lengths_that_are_learned(
    axis: int, pieces: list[Piece], stay: set[str]
) -> None:
    norm = torch.nn.utils.parametrizations.weight_norm
    module = torch.nn.Sequential(
        norm(torch.nn.Conv1d(4, 6, 3), dim=axis), torch.nn.Tanh(), torch.nn.Conv1d(6, 3, 1)
    )
    compiled = torch.compile(module, backend=dvm, dynamic=True)
    parameters = list(module.parameters())
    for extent in (7, 9):
        x = torch.randn(2, 4, extent)
        mine, theirs = (
            torch.autograd.grad(each(x).square().sum(), parameters) for each in (compiled, module)
        )
        for gradient, their_gradient in zip(mine, theirs, strict=True):
            close(gradient, their_gradient)
    assert len(pieces) == 2
    assert not stay
