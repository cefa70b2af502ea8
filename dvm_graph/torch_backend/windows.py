"""Convolutions of torch, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.correlation import correlation
from dvm_graph.decompose.transposed_convolution import spread, spread_axis
from dvm_graph.decompose.windows import WindowAxis, channels_first, channels_last
from dvm_graph.ir import Dim, Value, shape_of
from dvm_graph.torch_backend.translation import Translation, entry

aten = torch.ops.aten


@entry(aten.convolution.default)
def _convolution(
    t: Translation,
    x: Value,
    weight: Value,
    bias: Value | None,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
    more: Sequence[int],
    groups: int,
) -> Value:
    kernel = _kernel(weight)
    return t.onnx(
        "ConvTranspose" if transposed else "Conv",
        x,
        weight,
        bias,
        strides=each(strides, kernel),
        pads=2 * each(pads, kernel),
        dilations=each(dilations, kernel),
        group=groups,
        kernel_shape=kernel,
        **({"output_padding": each(more, kernel)} if transposed else {}),
    )


@entry(aten.convolution_backward.default)
def _convolution_backward(
    t: Translation,
    gradient: Value,
    x: Value,
    weight: Value,
    _bias: Any,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
    more: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> list[Value | None]:
    """Gradients of the image, the weights and the bias, as far as they are wanted."""
    moved = strides, pads, dilations
    results: list[Value | None] = [None, None, None]
    if wanted[0] and transposed:
        results[0] = _convolution(t, gradient, weight, None, *moved, False, more, groups)
    elif wanted[0]:
        results[0] = _spread(t, gradient, x, weight, *moved, groups)
    if wanted[1]:
        image, factors = (gradient, x) if transposed else (x, gradient)
        results[1] = _gradient_of_weights(t, image, factors, weight, *moved, groups)
    if wanted[2]:
        axes = [0, *range(2, gradient.rank)]
        total = t.decomposer.reduce_sum(widened(t.decomposer, gradient), axes)
        results[2] = t.decomposer.reshape(total, (shape_of(gradient)[1],))
    return [
        value if value is None else t.decomposer.cast(value, gradient.dtype) for value in results
    ]


def _spread(
    t: Translation,
    gradient: Value,
    x: Value,
    weight: Value,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of the image that a convolution read: a transposed convolution."""
    kernel = _kernel(weight)
    by_channel = groups == shape_of(weight)[0] and shape_of(weight)[1] == 1
    axes = [
        spread_axis(extent, taps, stride, dilation, pad, size, by_channel)
        for extent, taps, stride, dilation, pad, size in zip(
            *(shape_of(gradient)[2:], kernel, each(strides, kernel), each(dilations, kernel)),
            *(each(pads, kernel), shape_of(x)[2:]),
            strict=True,
        )
    ]
    image = channels_last(t.decomposer, widened(t.decomposer, gradient))
    y = spread(t.decomposer, image, widened(t.decomposer, weight), axes, groups)
    return channels_first(t.decomposer, y, x.rank)


def _gradient_of_weights(
    t: Translation,
    image: Value,
    factors: Value,
    weight: Value,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> Value:
    extents, sizes = shape_of(image)[2:], shape_of(factors)[2:]
    axes = window_axes(extents, _kernel(weight), strides, pads, dilations, sizes)
    return correlation(t.decomposer, _as_rows(t, image), _as_rows(t, factors), axes, groups)


def _kernel(weight: Value) -> list[int]:
    return [int(extent) for extent in shape_of(weight)[2:]]


def _as_rows(t: Translation, x: Value) -> Value:
    """[batch, places..., channels], in the type that kernels compute in."""
    return t.decomposer.transpose(widened(t.decomposer, x), (0, *range(2, x.rank), 1))


def window_axes(
    extents: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    sizes: Sequence[Dim],
) -> list[WindowAxis]:
    """Of windows in as many positions as `sizes` say."""
    return [
        WindowAxis(extent, taps, stride, dilation, (pad, pad), size)
        for extent, taps, stride, dilation, pad, size in zip(
            *(extents, kernel, each(strides, kernel), each(dilations, kernel)),
            *(each(pads, kernel), sizes),
            strict=True,
        )
    ]


def each(numbers: Sequence[int], kernel: Sequence[object]) -> list[int]:
    """One for each spatial axis: torch takes one for all."""
    return list(numbers) if len(numbers) == len(kernel) else list(numbers) * len(kernel)
