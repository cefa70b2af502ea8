"""Resizing of images, and pads of what is in them.

torch's compiler takes both apart where it traces them, into elements that are read one by one by their points. `whole` keeps
them in one piece: here they are ONNX's, axis by axis; what is not translated, and gradients of means, torch computes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch._C import DispatchKey
from torch._decomp.decompositions import upsample_compute_output_size

from dvm_graph.decompose.windows import channels_first, channels_last, comes_channels_last
from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value, shape_of
from dvm_graph.symbolic import Dim, sub
from dvm_graph.symbolic.dims import mul
from dvm_graph.torch_backend.translation import Translation, entry

aten = torch.ops.aten

NEAREST = [aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d]
EXACT = [
    *(aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d),
    aten._upsample_nearest_exact3d,
]
MEANS = [
    *(aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d),
    aten.upsample_bicubic2d,
]
_SURELY_LONGER, _PARTS = 1.5, 64
"""Scales from which on an axis of several elements grows, and what exact ones are whole numbers of."""
_RESIZED = [*NEAREST, *EXACT, *MEANS]
_GRADIENTS = [getattr(aten, f"{operator.__name__}_backward") for operator in _RESIZED]
PADDED = {
    "reflect": [aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d],
    "edge": [aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d],
}
_PADS = [operator for operators in PADDED.values() for operator in operators]
_GRADIENTS_OF_PADS = [getattr(aten, f"{operator.__name__}_backward") for operator in _PADS]
WHOLE = [
    getattr(operator, name)
    for operator in (*_RESIZED, *_PADS, *_GRADIENTS_OF_PADS)
    for name in operator.overloads()
]
"""What is not broken down."""
_TRACED_APART = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextmanager
def whole() -> Iterator[None]:
    """Inside, traces hold the operators that resize as they are, and those of their gradients."""
    kept = {
        operator: dict(operator.py_kernels)
        for operators in (*_RESIZED, *_GRADIENTS)
        for operator in (getattr(operators, name) for name in operators.overloads())
    }
    try:
        for operators in _RESIZED:
            for key in _TRACED_APART:
                operators.default.py_kernels.pop(key, None)
                operators.vec.py_kernels[key] = _by_default(operators.default)
        for operators in (*NEAREST, *EXACT):
            kernels = operators.default.py_kernels
            kernels[DispatchKey.Meta] = _of_any_batch(kernels[DispatchKey.Meta])
        for gradient in _GRADIENTS:
            gradient.default.py_kernels.setdefault(DispatchKey.Meta, _gradient_of_image)
        _forget_how_they_ran(kept)
        yield
    finally:
        for operator, kernels in kept.items():
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
        _forget_how_they_ran(kept)


def _forget_how_they_ran(operators: Any) -> None:
    for operator in operators:
        operator._dispatch_cache.clear()


def _by_default(operator: Callable[..., Any]) -> Callable[..., torch.Tensor]:
    """By sizes or scales, as sizes and scales."""

    def resize(x: torch.Tensor, sizes: Any, *rest: Any) -> torch.Tensor:
        *corners, scales = rest
        resized = upsample_compute_output_size(x.size(), sizes, scales)
        result: torch.Tensor = operator(x, resized, *corners, *(scales or [None] * len(resized)))
        return result

    return resize


def _of_any_batch(meta: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """What torch knows of a result, of no images too: there it takes a product of sizes, which may be symbolic, for a truth."""

    def resized(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        if x.numel() != 0:
            return meta(x, *arguments)
        full = all(extent != 0 for extent in x.shape[1:])
        torch._check(full, lambda: f"Non-empty images expected, not {tuple(x.shape)}")
        return meta(x.new_empty((1, *x.shape[1:])), *arguments)[:0]

    return resized


def _gradient_of_image(
    gradient: torch.Tensor, _sizes: Sequence[int], extents: Sequence[int], *_: Any
) -> torch.Tensor:
    memory_format = torch._prims_common.suggest_memory_format(gradient)
    return gradient.new_empty(extents).to(memory_format=memory_format)


# -- means of elements


@entry(*(operators.default for operators in MEANS))
def _mean_of_neighbours(
    t: Translation, x: Value, _sizes: Sequence[Dim], corners: bool, *scales: float | None
) -> Value:
    cubic = t.target is aten.upsample_bicubic2d.default
    if not cubic and _is_channels_last(t.meta):
        raise UnsupportedError("torch is faster in images that lie channels-last")
    return mean_of_neighbours(t, x, t.shape, cubic, corners, scales)


def mean_of_neighbours(
    t: Translation,
    x: Value,
    shape: Sequence[Dim],
    cubic: bool,
    corners: bool,
    scales: Sequence[float | None],
) -> Value:
    """An image [batch, channels, ...] as one of a shape."""
    return t.onnx(
        "Resize",
        *_resize_operands(t, x, shape, () if corners else scales),
        mode="cubic" if cubic else "linear",
        coordinate_transformation_mode="align_corners" if corners else "half_pixel",
    )


def _is_channels_last(image: torch.Tensor) -> bool:
    """One of a single place lies either way."""
    stride, places = image.stride(1), image.shape[2:]
    several = any(not isinstance(extent, int) or extent > 1 for extent in places)
    return image.dim() > 3 and isinstance(stride, int) and stride == 1 and several


def _resize_operands(
    t: Translation, x: Value, shape: Sequence[Dim], scales: Sequence[Any]
) -> tuple[Value, None, Value | None, Value | None]:
    """Those of ONNX's operator: by sizes, or by scales where torch has them.

    Raises:
        UnsupportedError: an axis stays as long as it is, or may, but is scaled, which onnxruntime copies where all do; or in float32
            sizes may be others.
    """
    if all(scale is None for scale in scales):
        return x, None, None, t.builder.dims(tuple(shape))
    for extent, size, scale in zip(shape_of(x)[2:], shape[2:], scales, strict=True):
        if scale != 1 and t.builder.facts.same(extent, size):
            raise UnsupportedError(f"scaled by {scale} to what it is")
        if 1 < scale < _SURELY_LONGER or scale * _PARTS % 1 != 0:
            raise UnsupportedError(f"scaled by {scale}")
    return x, None, t.builder.constant(np.array([1, 1, *scales], np.float32)), None


# -- nearest elements


@entry(*(operators.default for operators in (*NEAREST, *EXACT)))
def _nearest(t: Translation, x: Value, _sizes: Sequence[Dim], *given: float | None) -> Value:
    scales = [*given, None, None, None][: x.rank - 2]
    if all(map(_is_power_of_two, scales)):
        return t.onnx(
            "Resize",
            *_resize_operands(t, x, t.shape, scales),
            mode="nearest",
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
    in_place = x.rank == 3 or not comes_channels_last(x)
    y, first = (x, 2) if in_place else (channels_last(t.decomposer, x), 1)
    for at in reversed(range(len(scales))):
        places = _places(t, shape_of(x)[2 + at], t.shape[2 + at], scales[at])
        y = t.decomposer.gather(y, places, first + at)
    return y if in_place else channels_first(t.decomposer, y, x.rank)


def _is_power_of_two(scale: float | None) -> bool:
    return scale in (1, 2, 4, 8, 16)


def _places(t: Translation, extent: Dim, size: Dim, scale: float | None) -> Value:
    """Of the elements of an axis that are read: in float32, as torch computes them."""
    b = t.builder
    step = b.div(_float_of(t, extent), _float_of(t, size))
    if scale is not None and t.target is aten.upsample_nearest2d.default:
        step = b.select(_is_told_by_sizes(t, extent, size), step, b.scalar(1 / scale, step.dtype))
    elif scale is not None:
        step = b.scalar(1 / scale, step.dtype)
    places = b.cast(b.iota((size,)), step.dtype)
    if t.target in [operators.default for operators in EXACT]:
        places = b.add(places, b.scalar(0.5, step.dtype))
    places = b.cast(b.floor(b.mul(places, step)), DType.INT64)
    return b.min(places, b.dims((sub(extent, 1),), ()))


def _is_told_by_sizes(t: Translation, extent: Dim, size: Dim) -> Value:
    """Whether an axis stays as long, or becomes twice as long, whatever the scale: torch looks at that in images of two axes."""
    b = t.builder
    once, twice = (
        b.eq(b.dims((size,), ()), b.dims((dim,), ())) for dim in (extent, mul(extent, 2))
    )
    return b.bitwise_or(once, twice)


def _float_of(t: Translation, dim: Dim) -> Value:
    return t.builder.cast(t.builder.dims((dim,), ()), DType.FLOAT32)


# -- pads


def _pad(mode: str) -> Callable[..., Value]:
    def build(t: Translation, x: Value, pads: Sequence[Dim]) -> Value:
        """Pads come in pairs, from the last axis on."""
        axes = range(x.rank - 1, x.rank - 1 - len(pads) // 2, -1)
        return t.onnx(
            *("Pad", x, t.builder.dims((*pads[::2], *pads[1::2])), None),
            t.builder.dims(tuple(axes)),
            mode=mode,
        )

    return build


for _mode, _operators in PADDED.items():
    entry(*(operators.default for operators in _operators))(_pad(_mode))
