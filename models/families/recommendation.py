"""MMoE, the multi-gate mixture of experts of Ma et al. (KDD 2018): experts, a softmax gate and a tower per task.

Input is a `Size`; output an `ExportCase`. The base export scales the 47,104 input features of the DVM paper's MMoE by
1/16, so that the weights fit a small machine.
"""

from __future__ import annotations

import torch
from torch import nn

from models.case import ExportCase, ModelInput, Size


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
