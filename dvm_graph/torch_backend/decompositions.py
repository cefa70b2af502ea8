"""Operators of torch as others of its core, beyond those that torch breaks down itself.

Written so that what is left is in the table of operators: counts of elements are means and variances, not arithmetic on sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch._decomp import get_decompositions
from torch._prims_common import compute_elementwise_output_logical_to_physical_perm

from dvm_graph.torch_backend.bag_gradients import BAG_GRADIENTS

aten = torch.ops.aten

Tensor: TypeAlias = torch.Tensor


def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Torch draws what stays, the same as without a compiler: in the order in which the elements lie in memory, and from nothing but
    the shape. The rest is products.
    """
    if p == 0 or train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    order, _ = compute_elementwise_output_logical_to_physical_perm(x)
    lying = [x.shape[axis] for axis in order]
    drawn = aten.bernoulli.p(torch.empty(lying, dtype=torch.bool, device=x.device), 1 - p)
    kept = drawn.permute([order.index(axis) for axis in range(x.dim())])
    return x * kept * (0.0 if p == 1 else 1 / (1 - p)), kept


def _of_channels(x: Tensor, numbers: Tensor) -> Tensor:
    """One number for each channel of images."""
    return numbers.view(-1, *(1,) * (x.dim() - 2))


def _scale(x: Tensor, rstd: Tensor, weight: Tensor | None) -> Tensor:
    return _of_channels(x, rstd if weight is None else rstd * weight)


def _wide(x: Tensor) -> Tensor:
    """Norms of half floats add up in f32."""
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _statistics_type(x: Tensor, *numbers: Tensor | None) -> torch.dtype:
    """Of the mean of a batch and its reciprocal deviation: that of what else a norm has for each channel."""
    return next((each.dtype for each in numbers if each is not None), x.dtype)


def _normalised(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, rstd: Tensor
) -> Tensor:
    result = (_wide(x) - _of_channels(x, mean)) * _scale(x, rstd, weight)
    return (result if bias is None else result + _of_channels(x, bias)).to(x.dtype)


def _batch_norm_of_inference(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    _momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    nothing = x.new_empty(0, dtype=_statistics_type(x, weight, mean))
    rstd = torch.rsqrt(_wide(variance) + eps)
    return _normalised(x, weight, bias, mean, rstd), nothing, nothing


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """The result, mean and reciprocal deviation of the batch, and what runs of inference will take for these."""
    if not training:
        inference = _batch_norm_of_inference(
            x, weight, bias, running_mean, running_variance, momentum, eps
        )
        return *inference, running_mean.clone(), running_variance.clone()
    wide, axes = _wide(x), _all_but_channels(x)
    mean = wide.mean(axes)
    rstd = torch.rsqrt(torch.var(wide, axes, correction=0) + eps)
    variance = torch.var(wide, axes, correction=1)
    dtype = _statistics_type(x, weight, running_mean)
    return (
        *(_normalised(x, weight, bias, mean, rstd), mean.to(dtype), rstd.to(dtype)),
        (running_mean * (1 - momentum) + mean * momentum).to(running_mean.dtype),
        (running_variance * (1 - momentum) + variance * momentum).to(running_variance.dtype),
    )


def _batch_norm_with_update(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """As in training, and what only other devices keep for the backward pass."""
    found = _batch_norm(x, weight, bias, running_mean, running_variance, True, momentum, eps)
    return *found[:3], x.new_empty(0, dtype=torch.uint8), *found[3:]


def _all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _batch_norm_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    mean: Tensor | None,
    rstd: Tensor | None,
    train: bool,
    eps: float,
    wanted: Sequence[bool],
    *_: Any,
) -> tuple[Tensor | None, ...]:
    if not train:
        assert running_mean is not None and running_variance is not None
        mean, rstd = running_mean, torch.rsqrt(_wide(running_variance) + eps)
    assert mean is not None and rstd is not None
    axes, wide = _all_but_channels(x), _wide(gradient)
    normal = (_wide(x) - _of_channels(x, mean)) * _of_channels(x, rstd)
    rest = wide
    if train:
        along = (wide * normal).mean(axes, keepdim=True)
        rest = wide - wide.mean(axes, keepdim=True) - normal * along
    dtype = wide.dtype if weight is None else weight.dtype
    return (
        (rest * _scale(x, rstd, weight)).to(x.dtype) if wanted[0] else None,
        (wide * normal).sum(axes).to(dtype) if wanted[1] else None,
        wide.sum(axes).to(dtype) if wanted[2] else None,
    )


def _group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    places: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and reciprocal deviation have the type of the weights, as where torch computes them (its own trace has that of `x`)."""
    rows = _wide(x).reshape(batch, groups, channels // groups, places)
    mean = rows.mean((2, 3), keepdim=True)
    rstd = torch.rsqrt(torch.var(rows, (2, 3), correction=0, keepdim=True) + eps)
    y = ((rows - mean) * rstd).reshape(x.shape)
    if weight is not None:
        y = y * _of_channels(x, weight)
    if bias is not None:
        y = y + _of_channels(x, bias)
    dtype = x.dtype if weight is None else weight.dtype
    return y.to(x.dtype), *(each.reshape(batch, groups).to(dtype) for each in (mean, rstd))


def _batch_norm_of_batch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    _training: bool,
    _momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of what keeps no statistics, as norms of instances, which are of a batch of one."""
    wide, axes = _wide(x), _all_but_channels(x)
    mean = wide.mean(axes)
    rstd = torch.rsqrt(torch.var(wide, axes, correction=0) + eps)
    dtype = _statistics_type(x, weight)
    return _normalised(x, weight, bias, mean, rstd), mean.to(dtype), rstd.to(dtype)


def _std_mean(
    x: Tensor,
    axes: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x, axes, correction=correction, keepdim=keepdim)
    return torch.sqrt(variance), mean


def _roll(x: Tensor, shifts: Sequence[int], axes: Sequence[int] = ()) -> Tensor:
    if not axes:
        return _roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        extent = x.shape[axis]
        front = -shift if shift <= 0 else extent - shift
        if front < 0 or front > extent:  # which torch guards
            front = front % extent if extent > 0 else 0
        x = torch.cat([x.narrow(axis, front, extent - front), x.narrow(axis, 0, front)], axis)
    return x


def _masked_softmax(x: Tensor, mask: Tensor | None, kind: int | None) -> Tensor:
    """Of scores [batch, heads, queries, keys]; a mask is true of what gets nothing. `kind`: 0: it is [queries, keys], 1: [batch, keys],
    2: as the scores.
    """
    if mask is None:
        return torch.softmax(x, -1)
    mask = mask.to(torch.bool)
    mask = mask[:, None, None] if kind == 1 else mask
    return torch.softmax(x.masked_fill(mask, -torch.inf), -1)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    weights: Tensor,
    bias: Tensor,
    out_weights: Tensor,
    out_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_weights: bool = True,
    kind: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What torch has for modules of attention that infer, as products and softmax, which fuse."""
    if query is key is value:
        projected = torch.nn.functional.linear(query, weights, bias).split(width, -1)
    else:
        parts = zip((query, key, value), weights.split(width), bias.split(width), strict=True)
        projected = tuple(torch.nn.functional.linear(*part) for part in parts)
    q, k, v = (x.unflatten(-1, (heads, width // heads)).transpose(1, 2) for x in projected)
    probabilities = _masked_softmax(
        (q * (width // heads) ** -0.5) @ k.transpose(-1, -2), mask, kind
    )
    result = (probabilities @ v).transpose(1, 2).flatten(2)
    result = torch.nn.functional.linear(result, out_weights, out_bias)
    if not need_weights:
        return result, None
    return result, probabilities.mean(1) if average_weights else probabilities


def _encoder_layer(
    x: Tensor,
    width: int,
    heads: int,
    weights: Tensor,
    bias: Tensor,
    out_weights: Tensor,
    out_bias: Tensor,
    gelu: bool,
    norm_first: bool,
    eps: float,
    *parameters: Any,
    **masks: Any,
) -> Tensor:
    """`parameters`: weights and biases of two norms and of two linear layers, a mask, its kind."""
    (scale1, shift1, scale2, shift2, in_weights, in_bias, back_weights, back_bias) = parameters[:8]
    masks = dict(zip(("mask", "mask_type"), parameters[8:], strict=False)) | masks
    mask, kind = masks.get("mask"), masks.get("mask_type")

    def norm(y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(y, (width,), scale, shift, eps)

    y = norm(x, scale1, shift1) if norm_first else x
    own = (y, y, y, width, heads, weights, bias, out_weights, out_bias)
    x = x + _attention(*own, mask, need_weights=False, kind=kind)[0]
    x = x if norm_first else norm(x, scale1, shift1)
    y = norm(x, scale2, shift2) if norm_first else x
    y = torch.nn.functional.linear(y, in_weights, in_bias)
    y = torch.nn.functional.gelu(y) if gelu else torch.relu(y)
    x = (x + torch.nn.functional.linear(y, back_weights, back_bias)).contiguous()
    return x if norm_first else norm(x, scale2, shift2)


def _weight_norm(direction: Tensor, length: Tensor, axis: int = 0) -> tuple[Tensor, Tensor]:
    """Weights that are directions of given lengths, and the lengths those had: of one axis each number's, where torch's own
    decomposition takes that of all.
    """
    summed = [each for each in range(direction.dim()) if each != axis % direction.dim()]
    dtype = torch.float32 if length.dtype is torch.bfloat16 else length.dtype
    norms = direction.abs().to(dtype)
    if summed:
        norms = direction.norm(2, summed, keepdim=True, dtype=dtype)
    return direction * (length / norms.to(length.dtype)), norms


def _weight_norm_backward(
    gradient: Tensor, direction: Tensor, length: Tensor, norms: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    """Of weights that are directions of given lengths: the gradients of both."""
    summed = [each for each in range(direction.dim()) if each != axis % direction.dim()]
    along = gradient * direction
    if summed:  # none would be all
        along = along.sum(summed, keepdim=True)
    along = along / norms
    return (gradient - direction * (along / norms)) * (length / norms), along


def _trilinear(
    first: Tensor,
    second: Tensor,
    third: Tensor,
    expanded: Sequence[int],
    second_expanded: Sequence[int],
    third_expanded: Sequence[int],
    summed: Sequence[int],
    _unrolled: int = 1,
) -> Tensor:
    """Products of three tensors, each of which lacks some of their axes, summed over others."""
    lacking = (expanded, second_expanded, third_expanded)
    axes = range(first.dim() + len(expanded))
    letters = "abcdefghijklmnopqrstuvwxyz"
    operands = ["".join(letters[axis] for axis in axes if axis not in each) for each in lacking]
    result = "".join(letters[axis] for axis in axes if axis not in summed)
    return torch.einsum(f"{','.join(operands)}->{result}", first, second, third)


def _put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    torch._check_index(
        source.numel() == index.numel(), lambda: "put: as many numbers as places are expected"
    )
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _cdist(x: Tensor, y: Tensor, p: float, _mode: int | None = None) -> Tensor:
    """Distances of rows, from their differences: by products, as torch takes those of many rows, near ones are lost."""
    apart = x[..., :, None, :] - y[..., None, :, :]
    if p == 2:
        return (apart * apart).sum(-1).sqrt()
    if p == 1:
        return apart.abs().sum(-1)
    unchanged: Tensor = NotImplemented
    return unchanged


def _cdist_backward(gradient: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    """Of the first operand; rows that are the same give nothing."""
    apart = x[..., :, None, :] - y[..., None, :, :]
    if p == 2:
        factor = torch.where(distance == 0, 0, gradient / distance)
        return (factor[..., None] * apart).sum(-2)
    if p == 1:
        return (gradient[..., None] * apart.sign()).sum(-2)
    unchanged: Tensor = NotImplemented
    return unchanged


_BROKEN_DOWN = [
    *(aten.native_layer_norm_backward, aten.native_group_norm_backward, aten.gelu_backward),
    *(aten._softmax_backward_data, aten._log_softmax_backward_data, aten._adaptive_avg_pool2d),
    *(aten.tanh_backward, aten.sigmoid_backward, aten.threshold_backward, aten.silu),
    *(aten.silu_backward, aten.native_dropout_backward, aten.mse_loss, aten.mse_loss_backward),
    *(aten.masked_fill, aten.slice_backward, aten.select_backward, aten.addcmul, aten.addcdiv),
    *(aten.leaky_relu, aten.elu, aten.hardtanh, aten.hardswish, aten.hardsigmoid, aten.mish),
    *(aten.softplus, aten.baddbmm, aten.rsub, aten.lerp, aten.new_zeros),
    *(aten.new_full, aten.new_ones, aten.zeros_like, aten.ones_like, aten.std, aten.rms_norm),
    aten.linalg_vector_norm,
]
"""By torch itself."""
DECOMPOSED: dict[Any, Callable[..., Any]] = {
    **get_decompositions(_BROKEN_DOWN),
    aten.native_dropout.default: _dropout,
    aten.native_group_norm.default: _group_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_of_inference,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._batch_norm_with_update_functional.default: _batch_norm_with_update,
    aten._native_batch_norm_legit.no_stats: _batch_norm_of_batch,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.batch_norm_backward.default: _batch_norm_backward,
    aten.std_mean.correction: _std_mean,
    aten.roll.default: _roll,
    aten._native_multi_head_attention.default: _attention,
    aten._transformer_encoder_layer_fwd.default: _encoder_layer,
    aten._weight_norm_interface.default: _weight_norm,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
    aten._trilinear.default: _trilinear,
    aten.put.default: _put,
    aten._cdist_forward.default: _cdist,
    aten._cdist_backward.default: _cdist_backward,
    **BAG_GRADIENTS,
}
