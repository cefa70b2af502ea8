"""torch's own control flow, exported: `cond`, `scan` and `while_loop` run without vendor operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import dvm_graph


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() > 0,
            lambda x: torch.relu(self.linear(x)),
            lambda x: torch.softmax(x, -1) - x.mean(),
            (x,),
        )


class Steps(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, state: torch.Tensor, rows: torch.Tensor) -> Any:
        def step(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            after = torch.tanh(self.linear(state) + row)
            return after, after * 2

        return scan(step, state, rows)


class Turns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return while_loop(
            lambda turn, _: turn < 5,
            lambda turn, x: (turn + 1, torch.sin(x @ x.T) @ x),
            (torch.tensor(0), x),
        )


@pytest.mark.parametrize(
    ("module", "shapes"),
    [(Branches(), [(3, 8)]), (Steps(), [(2, 8), (5, 2, 8)]), (Turns(), [(3, 8)])],
    ids=["cond", "scan", "while_loop"],
)
def test_exported_control_flow(module: torch.nn.Module, shapes: list[tuple[int, ...]]) -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = tuple(torch.randn(shape, generator=generator) / 4 for shape in shapes)
    with torch.no_grad():
        program = torch.onnx.export(module.eval(), arguments, dynamo=True, verbose=False)
    assert program is not None
    proto = program.model_proto
    model = dvm_graph.optimize(proto, strict=True)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    for sign in (1, -1):
        arrays = (sign * argument.numpy() for argument in arguments)
        feeds = {info.name: array for info, array in zip(proto.graph.input, arrays, strict=True)}
        for got, want in zip(model.run(feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
