"""The graphs of `benchmarks.graphs` in torch, as a user would write them; parameters in the order of the graph's inputs.

Imported in the processes of the torch engines only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def addmm(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.addmm(c, a, b)


def layer_norm(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, scale.shape, scale, bias)


def if_else_add(a: Tensor, b: Tensor, x: Tensor, y: Tensor) -> Tensor:
    scaled = 2.0 * x if a > b else 4.0 * x
    return scaled + y


def branch_product(c: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    h = torch.tanh(x * x)
    r = h @ w if c else torch.softmax(h, -1)
    return torch.relu(r + y)


def branch_long(c: Tensor, x: Tensor, y: Tensor) -> Tensor:
    h = r = x * y
    if c:
        for _ in range(10):
            r = torch.sigmoid(r) * h
        r = -r
    else:
        for _ in range(10):
            r = torch.tanh(r) + h
        r = torch.abs(r)
    return torch.relu(r + y)


def branch_reads(c: Tensor, x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    h, g = torch.tanh(x), y * y
    if c:
        r = h @ w
    else:
        raised = torch.exp(g)
        r = raised / raised.sum(-1, keepdim=True)
    return torch.relu(r + x)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def rms_norm(x: Tensor, scale: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale


def gelu_erf(x: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(x + bias)


def gelu_tanh(x: Tensor, bias: Tensor) -> Tensor:
    return functional.gelu(x + bias, approximate="tanh")


def residual_layer_norm(x: Tensor, y: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x + y, scale.shape, scale, bias)


def broadcast(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return z * y + x


def semiprime(x: Tensor, y: Tensor) -> Tensor:
    return functional.silu(x) + y


def transpose(x: Tensor, y: Tensor) -> Tensor:
    return x.permute(2, 0, 1) + y


def outer_sum(x: Tensor) -> Tensor:
    return x.sum(0)


class Bound(torch.nn.Module):
    """A function with some of its parameters constant."""

    def __init__(self, function: Callable[..., Tensor], constants: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._function = function
        self._names = tuple(constants)
        for name, value in constants.items():
            self.register_buffer(name, value)

    def forward(self, **inputs: Tensor) -> Tensor:
        return self._function(**inputs, **{name: getattr(self, name) for name in self._names})
