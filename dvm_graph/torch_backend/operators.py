"""All operators of torch that there are: those of the families, and what torch itself breaks down, beyond its core."""

from __future__ import annotations

import torch
from torch._decomp import get_decompositions

from dvm_graph.torch_backend import (  # noqa: F401 - enter their operators into the table
    elementwise,
    products,
    reductions,
    views,
)

aten = torch.ops.aten


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Torch draws what stays, the same as without a compiler, from nothing but its shape; the rest is products."""
    if p == 0 or train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    nothing = torch.empty(x.shape, dtype=torch.bool, device=x.device)
    kept = aten.bernoulli.p(nothing, 1 - p)
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


DECOMPOSED = {
    aten.native_dropout.default: _dropout,
    **get_decompositions(
        [
            *(aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.gelu_backward),
            *(aten._softmax_backward_data, aten._log_softmax_backward_data),
            *(aten.tanh_backward, aten.sigmoid_backward, aten.threshold_backward, aten.silu),
            *(
                aten.silu_backward,
                aten.native_dropout_backward,
                aten.mse_loss,
                aten.mse_loss_backward,
            ),
            *(
                aten.masked_fill,
                aten.slice_backward,
                aten.select_backward,
                aten.addcmul,
                aten.addcdiv,
            ),
            *(
                aten.leaky_relu,
                aten.elu,
                aten.hardtanh,
                aten.hardswish,
                aten.hardsigmoid,
                aten.mish,
            ),
            *(aten.softplus, aten.baddbmm, aten.rsub, aten.lerp, aten.var_mean, aten.new_zeros),
            *(
                aten.new_full,
                aten.new_ones,
                aten.zeros_like,
                aten.ones_like,
                aten.std,
                aten.rms_norm,
            ),
        ]
    ),
}
"""What torch itself breaks down, beyond its core."""
