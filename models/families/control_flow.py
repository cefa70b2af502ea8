"""Small graphs whose course or shape depends on data: a branch and a data-dependent size.

Input is a `Size` (tiny only); output an `ExportCase`. `if_else_add` is the DVM paper's if-else-add subgraph.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, InputKind, ModelInput, Size


class IfElseAdd(nn.Module):
    """`(a > b ? 2 x : 4 x) + y` with scalar `a` and `b`; exported as ONNX `If`."""

    def forward(
        self, a: torch.Tensor, b: torch.Tensor, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """`a`, `b` scalars; `x`, `y` and the result [batch, seq, features]."""
        scaled: torch.Tensor = torch.cond(a > b, lambda t: 2.0 * t, lambda t: 4.0 * t, (x,))
        return scaled + y


class SelectPositive(nn.Module):
    """The positive entries of a matrix, doubled, and where they stood; exported as ONNX `NonZero`."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`x` [batch, seq]; results [count] and [count, 2], the count known only at run time."""
        positions = torch.nonzero(x > 0)
        return x[positions[:, 0], positions[:, 1]] * 2.0, positions


def if_else_add(size: Size) -> ExportCase:
    """The paper's if-else-add; dims batch, seq and features."""
    axes = {0: "batch", 1: "seq", 2: "features"}
    tensor = torch.zeros(3, 5, 17)
    return ExportCase(
        IfElseAdd(),
        (
            ModelInput("a", torch.tensor(1.0), {}),
            ModelInput("b", torch.tensor(0.0), {}),
            ModelInput("x", tensor, axes),
            ModelInput("y", tensor.clone(), axes),
        ),
        ("sum",),
    )


def nonzero(size: Size) -> ExportCase:
    """Selection of positive entries; dims batch and seq, and an output dim known only at run time."""
    matrix = torch.tensor([[1.0, -1.0, 2.0, -3.0, 4.0]] * 3)
    return ExportCase(
        SelectPositive(),
        (ModelInput("x", matrix, {0: "batch", 1: "seq"}, InputKind.NORMAL),),
        ("selected", "positions"),
    )
