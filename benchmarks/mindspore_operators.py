"""The operator datasets for MindSpore; parameters in the order of the graph's inputs.

Imported in MindSpore's own process only, whose interpreter need not have any of this project's dependencies.
"""

from __future__ import annotations

from typing import Any

from mindspore import nn, ops


class MatMul(nn.Cell):
    def construct(self, a: Any, b: Any) -> Any:
        return ops.matmul(a, b)


class AddMM(nn.Cell):
    def construct(self, a: Any, b: Any, c: Any) -> Any:
        return ops.addmm(c, a, b)


class LayerNorm(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.norm = ops.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=1e-5)

    def construct(self, x: Any, scale: Any, bias: Any) -> Any:
        return self.norm(x, scale, bias)[0]


class IfElseAdd(nn.Cell):
    def construct(self, a: Any, b: Any, x: Any, y: Any) -> Any:
        scaled = 4.0 * x
        if a > b:
            scaled = 2.0 * x
        return scaled + y


_OPERATORS = {
    "matmul": MatMul,
    "addmm": AddMM,
    "layer_norm": LayerNorm,
    "if_else_add": IfElseAdd,
}


def operator(name: str) -> Any:
    """`KeyError` for a name that is no dataset."""
    return _OPERATORS[name]()
