"""Convolutions and pools of torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from dvm_graph.ir import Value
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
    kernel = list((weight.shape or ())[2:])
    return t.onnx(
        "ConvTranspose" if transposed else "Conv",
        x,
        weight,
        bias,
        strides=_each(strides, kernel),
        pads=2 * _each(pads, kernel),
        dilations=_each(dilations, kernel),
        group=groups,
        kernel_shape=kernel,
        **({"output_padding": _each(more, kernel)} if transposed else {}),
    )


def _each(numbers: Sequence[int], kernel: Sequence[object]) -> list[int]:
    """One for each spatial axis: torch takes one for all."""
    return list(numbers) if len(numbers) == len(kernel) else list(numbers) * len(kernel)


@entry(aten.max_pool2d_with_indices.default)
def _max_pool(
    t: Translation,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (0,),
    dilations: Sequence[int] = (1,),
    ceil: bool = False,
) -> list[Value]:
    """The greatest elements alone. Where they lie torch says itself: of several NaNs it takes the last, ONNX the first."""
    dilated = {"dilations": _each(dilations, (0, 0))}
    return [_pool(t, "MaxPool", x, kernel, strides, pads, ceil, **dilated)]


@entry(aten.avg_pool2d.default)
def _average_pool(
    t: Translation,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads: Sequence[int] = (0,),
    ceil: bool = False,
    count_pads: bool = True,
    divisor: int | None = None,
) -> Value:
    counted = {"count_include_pad": int(count_pads or divisor is not None)}
    average = _pool(t, "AveragePool", x, kernel, strides, pads, ceil, **counted)
    if divisor is None:
        return average
    factor = math.prod(_each(kernel, (0, 0))) / divisor
    return t.builder.mul(average, t.builder.scalar(factor, average.dtype))


def _pool(
    t: Translation,
    op: str,
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    ceil: bool,
    **attrs: Any,
) -> Value:
    """A pool of ONNX over images, which torch may give without a batch."""
    assert x.shape is not None
    kernel = _each(kernel, (0, 0))
    result = t.onnx(
        op,
        x if x.rank == 4 else t.builder.reshape(x, (1, *x.shape)),
        kernel_shape=kernel,
        strides=_each(strides or kernel, kernel),
        pads=2 * _each(pads, kernel),
        ceil_mode=int(ceil),
        **attrs,
    )
    return t.builder.reshape(result, t.shape)
