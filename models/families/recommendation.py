"""Recommenders: MMoE (Ma et al. 2018), DLRM, DeepFM, wide and deep; dim batch.

Input is a `Size`; output an `ExportCase`. MMoE has experts, and a softmax gate and a tower per task; its base export scales
the 47,104 input features of the DVM paper's MMoE by 1/16, so that the weights fit a small machine.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, InputKind, ModelInput, Size
from models.families.layers import keep_scale


class MixtureOfExperts(nn.Module):
    """`experts` two-layer perceptrons over [batch, features], combined per task by a softmax gate."""

    def __init__(self, features: int, experts: int, widths: tuple[int, int], tasks: int) -> None:
        super().__init__()
        hidden, out = widths
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, out), nn.ReLU())
            for _ in range(experts)
        )
        self.gates = nn.ModuleList(nn.Linear(features, experts, bias=False) for _ in range(tasks))
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(out, out // 2), nn.ReLU(), nn.Linear(out // 2, 1))
            for _ in range(tasks)
        )

    def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """One probability per row and task, each [batch, 1]."""
        expert_outputs = torch.stack([expert(features) for expert in self.experts], dim=1)
        scores = []
        for gate, tower in zip(self.gates, self.towers, strict=True):
            weights = torch.softmax(gate(features), dim=-1).unsqueeze(-1)
            scores.append(torch.sigmoid(tower((weights * expert_outputs).sum(dim=1))))
        return tuple(scores)


def mmoe(size: Size) -> ExportCase:
    """Two-task MMoE; dim batch."""
    if size is Size.TINY:
        features, model = 64, MixtureOfExperts(64, 4, (64, 32), 2)
    else:
        features, model = 2944, MixtureOfExperts(2944, 8, (512, 256), 2)
    example = torch.zeros(3, features)
    return ExportCase(
        model,
        (ModelInput("features", example, {0: "batch"}),),
        ("click_probability", "conversion_probability"),
    )


class Interactions(nn.Module):
    """DLRM (Naumov et al. 2019): dense and embedded features, their products in pairs, and a perceptron over them."""

    def __init__(self, dense: int, fields: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields))
        self.below = nn.Sequential(
            nn.Linear(dense, hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU()
        )
        pairs = torch.tril_indices(fields + 1, fields + 1, -1)
        self.register_buffer("first", pairs[0])
        self.register_buffer("second", pairs[1])
        self.above = _perceptron(width + pairs.shape[1], hidden)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """[batch, dense] and row numbers [batch, fields] to probabilities [batch, 1]."""
        below = self.below(dense)
        rows = [table(sparse[:, field]) for field, table in enumerate(self.tables)]
        features = torch.stack([below, *rows], 1)
        products = features @ features.transpose(1, 2)
        pairs = products[:, self.first, self.second]
        return torch.sigmoid(self.above(torch.cat((below, pairs), 1)))


class Factorised(nn.Module):
    """DeepFM (Guo et al. 2017): a linear term, squares of sums less sums of squares, and a perceptron."""

    def __init__(self, fields: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.register_buffer("offsets", torch.arange(fields) * rows)
        self.linear = nn.Embedding(fields * rows, 1)
        self.table = nn.Embedding(fields * rows, width)
        self.deep = _perceptron(fields * width, hidden)

    def forward(self, sparse: torch.Tensor) -> torch.Tensor:
        """Row numbers [batch, fields] to probabilities [batch, 1]."""
        rows = sparse + self.offsets
        features = self.table(rows)
        pairs = 0.5 * (features.sum(1) ** 2 - (features**2).sum(1)).sum(1, keepdim=True)
        score = self.linear(rows).sum(1) + pairs + self.deep(features.flatten(1))
        return torch.sigmoid(score)


class WideDeep(nn.Module):
    """Wide and deep (Cheng et al. 2016): a linear model of crossed features beside a normalised perceptron."""

    def __init__(self, dense: int, fields: int, rows: int, width: int, hidden: int) -> None:
        super().__init__()
        self.wide = nn.Embedding(rows, 1)
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(fields))
        inputs = dense + fields * width
        self.deep = nn.Sequential(
            nn.BatchNorm1d(inputs),
            nn.Linear(inputs, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden // 2),
            nn.BatchNorm1d(hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, 1),
        )
        self.rows = rows

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """[batch, dense] and row numbers [batch, fields] to probabilities [batch, 1]."""
        crossed = (sparse[:, :-1] * 31 + sparse[:, 1:]) % self.rows
        rows = [table(sparse[:, field]) for field, table in enumerate(self.tables)]
        deep = self.deep(torch.cat((dense, *rows), 1))
        return torch.sigmoid(self.wide(crossed).sum(1) + deep)


def _perceptron(inputs: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden // 2),
        nn.ReLU(),
        nn.Linear(hidden // 2, 1),
    )


def _dense(features: int) -> ModelInput:
    return ModelInput("dense", torch.zeros(3, features), {0: "batch"})


def _sparse(fields: int, rows: int) -> ModelInput:
    example = torch.zeros(3, fields, dtype=torch.int64)
    return ModelInput("sparse", example, {0: "batch"}, InputKind.TOKEN, str(rows))


def dlrm(size: Size) -> ExportCase:
    """DLRM of the Criteo data's 13 dense and 26 categorical features; dim batch."""
    dense, fields, rows, width, hidden = (
        (4, 3, 20, 8, 16) if size is Size.TINY else (13, 26, 2000, 32, 512)
    )
    model = keep_scale(Interactions(dense, fields, rows, width, hidden))
    return ExportCase(model, (_dense(dense), _sparse(fields, rows)), ("probability",))


def deepfm(size: Size) -> ExportCase:
    """DeepFM over 39 fields in one table; dim batch."""
    fields, rows, width, hidden = (5, 20, 4, 16) if size is Size.TINY else (39, 1000, 16, 400)
    model = keep_scale(Factorised(fields, rows, width, hidden))
    return ExportCase(model, (_sparse(fields, rows),), ("probability",))


def wide_deep(size: Size) -> ExportCase:
    """Wide and deep over 13 dense and 26 categorical features; dim batch."""
    dense, fields, rows, width, hidden = (
        (4, 3, 20, 4, 16) if size is Size.TINY else (13, 26, 2000, 16, 512)
    )
    model = keep_scale(WideDeep(dense, fields, rows, width, hidden))
    return ExportCase(model, (_dense(dense), _sparse(fields, rows)), ("probability",))
