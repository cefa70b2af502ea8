"""Resized and padded images in torch.compile and eager, against torch itself: values, gradients, and what stays in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.torch_backend import backend, dvm, eager
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close

SIZES = ((2, 3, 6, 5, 4), (3, 4, 8, 7, 9))
"""Images of up to three axes, from the front."""
Function: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
BY: dict[str, dict[str, Any]] = {
    "twice": {"scale_factor": 2},
    "half": {"scale_factor": 0.5},
    "a scale of no short fraction": {"scale_factor": 1.7},
    "one that leaves some as long": {"scale_factor": 1.1},
    "sizes": {"size": 7},
    "one": {"size": 1},
    "sizes by a scale": {"scale_factor": 1.3, "recompute_scale_factor": True},
}
MODES: list[tuple[str, int]] = [
    *((mode, rank) for mode in ("nearest", "nearest-exact") for rank in (3, 4, 5)),
    *(("linear", 3), ("bilinear", 4), ("trilinear", 5), ("bicubic", 4)),
]
CORNERS = ("linear", "bilinear", "trilinear", "bicubic")


def compare(function: Function, rank: int, memory_format: torch.memory_format) -> None:
    """Values and gradients of one compiled function at all sizes, and values in eager."""
    compiled = torch.compile(function, backend=dvm, dynamic=True)
    for sizes in SIZES:
        x = torch.randn(sizes[:rank]).to(memory_format=memory_format)
        own = [x.clone().requires_grad_() for _ in range(2)]
        results = [called(each) for called, each in zip((compiled, function), own, strict=True)]
        for result in results:
            (result * torch.arange(result.numel()).reshape(result.shape).sin()).sum().backward()
        torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(own[0].grad, own[1].grad, rtol=1e-5, atol=1e-5)
        with torch.no_grad(), eager():
            called = function(x * 1)
        torch.testing.assert_close(called, results[1].detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize(("mode", "rank"), MODES)
def test_images_of_another_size(mode: str, rank: int, by: str, pieces: list[Piece]) -> None:
    compare(lambda x: F.interpolate(x, mode=mode, **BY[by]) * 2, rank, torch.contiguous_format)
    assert pieces


@pytest.mark.parametrize(("mode", "rank"), MODES)
def test_no_images(mode: str, rank: int, pieces: list[Piece]) -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x * 2, scale_factor=2, mode=mode) + 1

    compiled = torch.compile(resize, backend=dvm, dynamic=True)
    for extents in ((3, 6, 5, 4), (4, 8, 7, 9)):
        own = [torch.randn(0, *extents[: rank - 1]).requires_grad_() for _ in range(2)]
        mine, theirs = (called(x) for called, x in zip((compiled, resize), own, strict=True))
        for x, each in zip(own, (mine, theirs), strict=True):
            each.sum().backward()
            assert x.grad is not None and x.grad.shape == x.shape
        assert mine.shape == theirs.shape and mine.stride() == theirs.stride()
    for images in (3, 0):
        x = torch.randn(images, 3, *(6, 5, 4)[: rank - 2])
        torch.testing.assert_close(compiled(x), resize(x), rtol=1e-5, atol=1e-5)
    if "nearest" in mode:
        with pytest.raises(RuntimeError, match="Non-empty"):
            compiled(torch.randn(0, 0, *(6, 5, 4)[: rank - 2]))
    assert pieces


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_images_that_lie_channels_last(mode: str, pieces: list[Piece]) -> None:
    compare(lambda x: F.interpolate(x, size=(7, 9), mode=mode) * 2, 4, torch.channels_last)
    assert pieces


@pytest.mark.parametrize("mode", CORNERS)
@pytest.mark.parametrize("size", [7, 1])
def test_images_whose_corners_are_aligned(mode: str, size: int, pieces: list[Piece]) -> None:
    rank = {"linear": 3, "trilinear": 5}.get(mode, 4)
    resize = lambda x: F.interpolate(x, size=size, mode=mode, align_corners=True) * 2  # noqa: E731
    compare(resize, rank, torch.contiguous_format)
    assert pieces


def test_an_axis_that_becomes_twice_as_long_by_another_scale(pieces: list[Piece]) -> None:
    """torch looks at sizes there, in images of two axes, and at the scale in others."""
    for shape in ((1, 1, 9), (1, 1, 9, 9), (1, 1, 9, 9, 9)):
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda x: F.interpolate(x, scale_factor=2.05) + 1, backend=dvm, dynamic=True
        )
        x = torch.randn(shape)
        assert torch.equal(compiled(x), F.interpolate(x, scale_factor=2.05) + 1)
    assert len(pieces) == 3


PADS = [(2, (2, 1)), (3, (1, 3)), (3, (2, 0, 1, 1)), (4, (1, 2, 0, 3)), (4, (-1, 2, 1, -1))]


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(("rank", "pads"), [*PADS, (5, (1, 1, 2, 0, 0, 1))])
def test_pads_of_what_is_there(
    mode: str, rank: int, pads: tuple[int, ...], pieces: list[Piece]
) -> None:
    compare(lambda x: F.pad(x, pads, mode=mode) * 2, rank, torch.contiguous_format)
    assert pieces


@pytest.mark.parametrize(
    ("function", "memory_format", "stays"),
    [
        (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "contiguous_format", 0),
        (lambda x: F.interpolate(x, size=(9, 7), mode="bicubic"), "contiguous_format", 0),
        (lambda x: F.interpolate(x, size=(9, 7)), "contiguous_format", 0),
        (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), "contiguous_format", 0),
        (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), "channels_last", 1),
        (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), "contiguous_format", 1),
    ],
)
def test_what_stays_in_torch(
    function: Function,
    memory_format: str,
    stays: int,
    pieces: list[Piece],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One operator at most: none is taken apart to what reads points."""
    left: list[str] = []
    is_supported = backend.is_supported

    def watched(node: torch.fx.Node) -> bool:
        supported = is_supported(node)
        if not supported and node.target not in left and "upsample" in str(node.target):
            left.append(str(node.target))
        return supported

    monkeypatch.setattr(backend, "is_supported", watched)
    compiled = torch.compile(lambda x: function(x + 1) * 2, backend=dvm, dynamic=True)
    x = torch.randn(2, 3, 8, 8).to(memory_format=getattr(torch, memory_format))
    torch.testing.assert_close(compiled(x), function(x + 1) * 2, rtol=1e-5, atol=1e-5)
    assert len(pieces) == 1 + stays
    assert len(left) == stays


REPEATED: dict[str, Callable[..., torch.Tensor]] = {
    "twice": lambda x, **mode: F.interpolate(x, scale_factor=2, **mode),
    "four times by sizes": lambda x, **mode: F.interpolate(
        x, size=[4 * extent for extent in x.shape[2:]], **mode
    ),
}


@pytest.mark.parametrize("rank", [3, 4, 5])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("name", REPEATED)
def test_gradients_of_repeated_elements(
    name: str, mode: str, rank: int, pieces: list[Piece], stay: set[str]
) -> None:
    def resize(x: torch.Tensor) -> torch.Tensor:
        return REPEATED[name](x * 2, mode=mode) * 3

    compiled = torch.compile(resize, backend=dvm, dynamic=True)
    for extents in ((5, 4, 3), (6, 3, 7)):
        x = torch.randn(2, 3, *extents[: rank - 2]).requires_grad_()
        mine, theirs = compiled(x), resize(x)
        given = torch.randn_like(theirs)
        gradients = (torch.autograd.grad(each, x, given)[0] for each in (mine, theirs))
        close(*gradients)
    assert pieces
    assert not stay


def test_gradients_of_elements_that_are_read_unlike_often(
    pieces: list[Piece], stay: set[str]
) -> None:
    def resize(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x * 2, size=like.shape[2:]) * like

    compiled = torch.compile(resize, backend=dvm, dynamic=True)
    for extent in (9, 11):
        x, like = torch.randn(2, 3, 4, 5).requires_grad_(), torch.randn(2, 3, extent, 10)
        gradients = (
            torch.autograd.grad(each.sum(), x)[0] for each in (compiled(x, like), resize(x, like))
        )
        close(*gradients)
    assert pieces
    assert stay == {"aten.upsample_nearest2d_backward.default"}


MEANS: dict[str, Callable[..., torch.Tensor]] = {
    **REPEATED,
    "another size": lambda x, **mode: F.interpolate(x, size=7, **mode),
    "one": lambda x, **mode: F.interpolate(x, size=1, **mode),
    "half": lambda x, **mode: F.interpolate(x, scale_factor=0.5, **mode),
    "corners": lambda x, **mode: F.interpolate(x, size=9, align_corners=True, **mode),
    "a corner": lambda x, **mode: F.interpolate(x, size=1, align_corners=True, **mode),
}


def _gradients_are_equal(
    function: Function, rank: int, dtype: torch.dtype = torch.float32, exact: bool = False
) -> None:
    compiled = torch.compile(lambda x: function(x * 2) * 3, backend=dvm, dynamic=True)
    for extents in ((5, 6, 7), (9, 4, 8)):
        x = torch.randn(2, 3, *extents[: rank - 2], dtype=dtype).requires_grad_()
        mine, theirs = compiled(x), function(x * 2) * 3
        given = torch.randn_like(theirs)
        gradients = [torch.autograd.grad(each, x, given)[0] for each in (mine, theirs)]
        close(*gradients)
        if exact:
            torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("mode", "rank"), [(m, rank) for m, rank in MODES if m in CORNERS])
@pytest.mark.parametrize("name", MEANS)
def test_gradients_of_means(
    name: str, mode: str, rank: int, pieces: list[Piece], stay: set[str]
) -> None:
    _gradients_are_equal(lambda x: MEANS[name](x, mode=mode), rank)
    assert len(pieces) == 2 and not stay


AVERAGES = [(4, 3), (4, (2, 4)), (4, 7), (5, (3, 1, 2)), (5, (2, 3, 4))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("rank", "size"), AVERAGES)
def test_averages_of_so_many_windows(
    rank: int, size: Any, dtype: torch.dtype, pieces: list[Piece], stay: set[str]
) -> None:
    pool = F.adaptive_avg_pool2d if rank == 4 else F.adaptive_avg_pool3d
    _gradients_are_equal(lambda x: pool(x, size), rank, dtype, dtype is torch.float64)
    assert pieces and not stay


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize(("rank", "pads"), [*PADS, (4, (0, 0, 3, 2)), (5, (1, 1, 2, 0, 0, 1))])
def test_gradients_of_pads(
    mode: str, rank: int, pads: tuple[int, ...], pieces: list[Piece], stay: set[str]
) -> None:
    """Also where gradients are infinite, and where there is but one element to copy."""

    def padded(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x * 2, pads, mode=mode)

    compiled = torch.compile(padded, backend=dvm, dynamic=True)
    smallest = 2 if mode == "replicate" else 4
    for extent in (7, smallest):
        x = torch.randn(2, 3, extent, extent, extent)[(0,) * (5 - rank)].requires_grad_()
        mine, theirs = compiled(x), padded(x)
        given = torch.arange(theirs.numel(), dtype=torch.float32).reshape(theirs.shape) % 7
        given[..., 1] = torch.inf
        gradients = (torch.autograd.grad(each, x, given)[0] for each in (mine, theirs))
        assert torch.equal(*gradients)
    assert len(pieces) == 2 and not stay


def test_torch_traces_as_before_elsewhere() -> None:
    """What is kept whole is so for this backend alone."""
    x = torch.randn(1, 2, 4, 4)
    resize = torch.compile(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), backend=dvm)
    resize(x)
    kernels = torch.ops.aten.upsample_bilinear2d.vec.py_kernels
    assert torch._C.DispatchKey.Autograd in kernels
    assert all("torch._decomp" in kernel.__module__ for kernel in kernels.values())
