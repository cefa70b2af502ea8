"""Bags of rows of a table in torch.compile, forward and backward, against torch itself."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from dvm_graph.errors import RescueWarning
from dvm_graph.torch_backend import dvm
from dvm_graph.torch_backend.bags import _Bags
from dvm_graph.torch_backend.piece import Piece
from tests.torch.closeness import close

MODES = ("sum", "mean", "max")
_LEFT = {"aten.index_put_.default"}
"""Gradients of tables are added where their zeros lie."""


def _bags(
    table: torch.Tensor,
    indices: torch.Tensor,
    weights: torch.Tensor,
    kind: str,
    mode: str,
    **how: Any,
) -> torch.Tensor:
    if kind == "matrix":
        return F.embedding_bag(indices, table, mode=mode, **how)
    if kind == "weights":
        return F.embedding_bag(indices, table, mode=mode, per_sample_weights=weights, **how)
    count = indices.numel()
    begin = torch.arange(0, count - 6, 4)
    offsets = torch.cat(
        [begin, begin[-1:], begin[-1:] * 0 + count]
    )  # two bags are empty, if the last one is any
    last = kind == "ends"
    return F.embedding_bag(
        indices.flatten(), table, offsets, mode=mode, include_last_offset=last, **how
    )


@pytest.mark.parametrize(
    ("kind", "mode", "how"),
    [
        *((kind, mode, {}) for kind in ("matrix", "offsets", "ends") for mode in MODES),
        *(("matrix", mode, {"padding_idx": 2}) for mode in MODES),
        ("offsets", "max", {"padding_idx": 2}),
        ("weights", "sum", {"padding_idx": 2}),
    ],
)
def test_bags(
    kind: str, mode: str, how: dict[str, Any], pieces: list[Piece], stay: set[str]
) -> None:
    table = torch.randn(30, 8).requires_grad_()
    compiled = torch.compile(_bags, backend=dvm, dynamic=True)
    for rows in (4, 7):
        indices = torch.randint(0, 30, (rows, 5))
        indices[0] = 2
        weights = torch.randn(rows, 5).requires_grad_()
        given = (table, indices, weights, kind, mode)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RescueWarning)
            with torch.no_grad():
                close(compiled(*given, **how), _bags(*given, **how))
            mine, theirs = compiled(*given, **how), _bags(*given, **how)
            close(mine, theirs)
            wanted = [table, weights] if kind == "weights" else [table]
            given_back = torch.randn_like(theirs)
            for gradient, their_gradient in zip(
                torch.autograd.grad(mine, wanted, given_back),
                torch.autograd.grad(theirs, wanted, given_back),
                strict=True,
            ):
                close(gradient, their_gradient)
    assert pieces
    assert stay <= _LEFT


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_bags_of_other_types(dtype: torch.dtype, pieces: list[Piece], stay: set[str]) -> None:
    table = torch.randn(30, 8).to(dtype)
    compiled = torch.compile(lambda i: F.embedding_bag(i, table, mode="mean"), backend=dvm)
    for rows in (4, 7):
        indices = torch.randint(0, 30, (rows, 5), dtype=torch.int32)
        torch.testing.assert_close(
            compiled(indices), F.embedding_bag(indices, table, mode="mean"), rtol=1e-3, atol=1e-3
        )
    assert pieces
    assert not stay


@pytest.mark.parametrize("kind", ["matrix", "offsets", "ends"])
@pytest.mark.parametrize("padding", [None, 2])
def test_what_is_no_number_is_the_greatest_where_it_is_the_first(
    kind: str, padding: int | None, pieces: list[Piece], stay: set[str]
) -> None:
    table = torch.randn(9, 4)
    table[0] = table[1, 1] = table[2] = table[3, ::2] = torch.nan
    table[4, 0] = torch.inf
    table[5] = -torch.inf
    table.requires_grad_()
    compiled = torch.compile(_bags, backend=dvm, dynamic=True)
    for rows in (12, 17):
        indices = torch.randint(0, 9, (rows, 5))
        indices[0] = 0
        given = (table, indices, indices, kind, "max")
        mine, theirs = (each(*given, padding_idx=padding) for each in (compiled, _bags))
        torch.testing.assert_close(mine, theirs, equal_nan=True)
        given_back = torch.randn_like(theirs)
        gradient, their_gradient = (
            torch.autograd.grad(each, table, given_back)[0] for each in (mine, theirs)
        )
        close(gradient, their_gradient)
    assert pieces
    assert stay <= _LEFT


def test_no_indices_at_all(pieces: list[Piece]) -> None:
    def bags(table: torch.Tensor) -> torch.Tensor:
        nothing = torch.zeros(0, dtype=torch.int64)
        return F.embedding_bag(nothing, table, torch.tensor([0, 0]), mode="max") + 1

    compiled, table = torch.compile(bags, backend=dvm, dynamic=True), torch.randn(5, 3)
    found = compiled(table.requires_grad_())
    assert found.tolist() == [[1] * 3] * 2
    assert not torch.autograd.grad(found.sum(), table)[0].any()
    assert pieces


def test_gradients_by_frequency_stay_in_torch(pieces: list[Piece], stay: set[str]) -> None:
    def bags(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(indices, table, scale_grad_by_freq=True) * 2

    table, indices = torch.randn(9, 4).requires_grad_(), torch.randint(0, 9, (5, 6))
    mine = torch.compile(bags, backend=dvm, dynamic=True)(table, indices)
    theirs = bags(table, indices)
    close(mine, theirs)
    (gradient,), (their_gradient,) = (
        torch.autograd.grad(each.sum(), table) for each in (mine, theirs)
    )
    close(gradient, their_gradient)
    assert pieces
    assert "aten._embedding_bag_backward.default" in stay


def test_bags_of_one_size_are_an_axis(pieces: list[Piece], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is added by index, whatever the sizes are."""
    sizes: list[object] = []
    common_size = _Bags._common_size

    def watched(bags: _Bags, offsets: object) -> object:
        sizes.append(common_size(bags, offsets))  # type: ignore[arg-type]
        return sizes[-1]

    monkeypatch.setattr(_Bags, "_common_size", watched)
    table = torch.randn(30, 8)
    compiled = torch.compile(lambda i: F.embedding_bag(i, table) * 2, backend=dvm, dynamic=True)
    for shape in ((4, 5), (3, 7)):
        compiled(torch.randint(0, 30, shape))
    assert len(pieces) == 1
    assert sizes[-1] is not None


def test_an_index_that_there_is_not_is_an_error(pieces: list[Piece]) -> None:
    table = torch.randn(30, 8)
    compiled = torch.compile(lambda i: F.embedding_bag(i, table) * 2, backend=dvm, dynamic=True)
    with pytest.raises((RuntimeError, IndexError)):
        compiled(torch.full((2, 3), 30))
