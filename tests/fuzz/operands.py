"""Operands that several recipes draw alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.growth import FLOATS, Growth, RefusedError, Shape, Value

MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's own operators."""

INT8S = (TensorProto.INT8, TensorProto.UINT8)
INT4S = (TensorProto.UINT4, TensorProto.INT4)
FLOAT8S = (
    *(TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ),
    *(TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ),
)


def along(x: Value, *dims: Any) -> list[Shape]:
    """A shape per environment: numbers as they are, `(axis,)` for the extent of an axis of `x`."""
    return [tuple(s[d[0]] if isinstance(d, tuple) else d for d in dims) for s in x.shapes]


def numpy_type(x: Value) -> Any:
    return helper.tensor_dtype_to_np_dtype(x.dtype)


def filled(x: Value) -> Value:
    """The value, which has elements everywhere.

    Raises:
        RefusedError: it has none, or nobody knows.
    """
    if not x.known or any(0 in shape for shape in x.shapes if shape is not None):
        raise RefusedError
    return x


def contrib(*ops: str) -> list[str]:
    """Names of onnxruntime's own operators."""
    return [f"{MICROSOFT}.{op}" for op in ops]


def contrib_results(
    g: Growth, op: str, operands: Sequence[Value | None], results: Any, **given: Any
) -> list[Value]:
    """What a node of onnxruntime's own gives: as `Growth.add`."""
    return g.add(op.removeprefix(f"{MICROSOFT}."), operands, results, given, MICROSOFT)


def add_contrib(
    g: Growth,
    op: str,
    operands: Sequence[Value | None],
    like: Value,
    shapes: Any = None,
    **given: Any,
) -> Value:
    """The one result of such a node, of the type of `like`, and of its shapes where there are no others."""
    results = [(like.dtype, like.shapes if shapes is None else shapes)]
    return contrib_results(g, op, operands, results, **given)[0]


def groups(g: Growth, channels: int) -> tuple[int, int]:
    """A number of groups of channels, and how many each has."""
    group = g.choose((1, 1, *(n for n in range(1, channels + 1) if channels % n == 0)))
    return group, channels // group


def placed(
    g: Growth, x: Value, first: int, dilate: bool = True, pools: bool = False
) -> tuple[dict[str, Any], list[Shape]]:
    """Attributes of windows over the spatial axes of `x`, the first of which is given, and how many there are along each."""
    axes = range(first, first + x.rank - 2)
    kernel = [g.choose((1, 2, 3)) for _ in axes]
    strides = [g.choose((1, 1, 2)) for _ in axes]
    dilations = [g.choose((1, 1, 2)) if dilate else 1 for _ in axes]
    pads = [g.rng.randint(0, k - 1) for k in kernel * 2]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if dilate:
        attributes["dilations"] = dilations
    if g.chance(0.2):
        del attributes["pads"]
        attributes["auto_pad"] = g.choose(("VALID", "SAME_UPPER", "SAME_LOWER"))
    elif g.chance(0.1):
        attributes["auto_pad"] = "NOTSET"
    up = pools and g.chance(0.3)
    if up:
        attributes["ceil_mode"] = 1
    way = attributes.get("auto_pad", "NOTSET")
    pads = pads if way == "NOTSET" else [0] * len(pads)
    if way.startswith("SAME"):
        attributes.pop("dilations", None)
        places = [tuple(-(-s[a] // strides[at]) for at, a in enumerate(axes)) for s in x.shapes]
        return attributes, places

    images = [s[first : axes.stop] for s in x.shapes]
    return attributes, [places_of(s, kernel, strides, dilations, pads, up) for s in images]


def places_of(
    image: Shape,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    up: bool = False,
) -> tuple[int, ...]:
    """How many windows there are along each axis of an image; `up`: the last may be cut off.

    Raises:
        RefusedError: there are none.
    """

    def count(at: int) -> int:
        extent = image[at] or 0
        room = extent + pads[at] + pads[len(kernel) + at] - dilations[at] * (kernel[at] - 1) - 1
        if not up:
            return room // strides[at] + 1
        whole = -(-room // strides[at]) + 1  # without one that starts behind the image and its pad
        return whole - int((whole - 1) * strides[at] >= extent + pads[at])

    places = tuple(map(count, range(len(kernel))))
    if min(places) < 1:
        raise RefusedError
    return places


def maybe(g: Growth, make: Any, probability: float = 0.5) -> Value | None:
    return make() if g.chance(probability) else None


def scales(g: Growth, x: Value) -> tuple[Value, Value]:
    scale = g.constant(np.array(g.choose((0.5, 0.1, 1.0)), np.float32))
    kind = np.int8 if x.dtype == 3 else np.uint8
    return scale, g.constant(np.array(g.choose((0, 1, 5)), kind))


def met(g: Growth, first: Value, another: Callable[[], Value]) -> Value:
    """Products of the same rows, which meet behind as gates and what passes them do; mostly the first alone.

    `another` draws a product like the first, of the same rows.
    """
    result = first
    while g.chance(0.25):
        made = another()
        if made.shapes != result.shapes:
            raise RefusedError
        if made.dtype in FLOATS and g.chance(0.6):
            gate = g.emit(g.choose(("Sigmoid", "Tanh", "Softplus", "Abs")), [result])
        else:
            gate = result
        result = g.emit(g.choose(("Mul", "Add", "Sub")), g.rng.sample([gate, made], 2))
    return result


def extents(g: Growth) -> tuple[int, ...]:
    _, found = g.dim()
    return tuple(max(1, extent) for extent in found)
