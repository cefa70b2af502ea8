"""Operators of no family whose operands have to fit together: casts, quantisation, recurrence, signals."""

from __future__ import annotations

import numpy as np

from tests.fuzz.contents import Contents
from tests.fuzz.growth import FLOATS, Growth, Value
from tests.fuzz.operands import FLOAT8S, INT4S, maybe
from tests.fuzz.registry import OTHER, recipe, types


@recipe("Range", kind=OTHER)
def range_(g: Growth) -> Value:
    kinds = (np.int64, np.float32, np.int32, np.float64, np.int16)
    kind = g.choose(kinds)
    start, step = g.choose((0, 1, -2)), g.choose((1, 2, -1))
    limit = start + step * g.choose((0, 1, 5, 7))
    operands = [g.extents(v, kind) for v in (start, limit, step)]
    return g.emit("Range", operands, {"stash_type": g.choose((None, 1))})


@recipe("ConstantOfShape", kind=OTHER)
def constant_of_shape(g: Growth) -> Value:
    import onnx

    x = g.pick((1, 7), lambda v: v.rank <= 4)
    value = onnx.numpy_helper.from_array(
        np.array([g.choose((0, 1, 2.5))], g.choose((np.float32, np.int64)))
    )
    return g.emit(
        "ConstantOfShape",
        [
            g.emit("Shape", [x])
            if g.chance(0.5)
            else g.extents(g.choose(([2, 3], [0, 4], [5], [1])))
        ],
        {"value": value if g.chance(0.8) else None},
    )


@recipe("EyeLike", kind=OTHER)
def eye_like(g: Growth) -> Value:
    x = g.ranked(types("EyeLike", g.opset), 2, 2)
    return g.emit(
        "EyeLike", [x], {"k": g.choose((None, 0, 1, -1)), "dtype": g.choose((None, 1, 7))}
    )


@recipe("Cast", kind=OTHER, weight=3)
def cast(g: Growth) -> Value:
    x = g.pick(types("Cast", g.opset))
    if g.opset >= 19 and x.dtype in FLOATS[:2] and g.chance(0.15):
        narrow = g.choose((*FLOAT8S, *INT4S) if g.opset >= 21 else FLOAT8S)
        x = g.emit("Cast", [x], {"to": narrow, "saturate": g.choose((None, 0, 1))})
    return g.emit("Cast", [x], {"to": g.choose((*types("Cast", g.opset), 1, 1, *g.dtypes))})


@recipe("Clip", kind=OTHER, weight=2)
def clip(g: Growth) -> Value:
    x = g.pick(types("Clip", g.opset))
    if g.opset < 11:
        return g.emit("Clip", [x], {"min": g.choose((None, -1.0)), "max": g.choose((None, 1.0))})
    low, high = (maybe(g, lambda: g.fresh(x.dtype, [()] * g.breadth), 0.6) for _ in range(2))
    return g.emit("Clip", [x, low, high])


@recipe("Dropout", kind=OTHER, weight=0.5)
def dropout(g: Growth) -> Value:
    x = g.pick(types("Dropout", g.opset))
    outputs = g.choose((1, 2))
    if g.opset < 12:
        return g.emit("Dropout", [x], {"ratio": g.choose((None, 0.3))}, outputs=outputs)
    trains = g.choose((None, False, False, True))  # by a ratio of 0
    ratio = 0.0 if trains else g.choose((None, 0.0, 0.3))
    kind = g.choose((np.float32, np.float64))
    operands = [
        x,
        None if ratio is None else g.constant(np.array(ratio, kind)),
        None if trains is None else g.constant(np.array(trains)),
    ]
    return g.emit("Dropout", operands, {"seed": g.choose((None, 1))}, outputs=outputs)


@recipe("Where", kind=OTHER, weight=3)
def where(g: Growth) -> Value:
    x = g.pick(types("Where", g.opset, 1))
    y = g.partner(x)
    conditions = [v for v in g.values if v.dtype == 9 and v.known]
    condition = (
        g.choose(conditions) if conditions and g.chance(0.7) else g.fresh(9, g.part(x.shapes))
    )
    return g.emit("Where", [condition, x, y])


@recipe("PRelu", kind=OTHER)
def prelu(g: Growth) -> Value:
    x = g.pick(types("PRelu", g.opset))
    return g.emit("PRelu", [x, g.fresh(x.dtype, g.part(x.shapes))])


@recipe("Pow", kind=OTHER)
def power(g: Growth) -> Value:
    x = g.pick(types("Pow", g.opset))
    exponent = g.choose((0, 1, 2, 3, 0.5, -1, -2))
    kind = g.choose((np.float32, np.int64)) if g.opset >= 12 else np.float32
    y = g.constant(np.array(exponent, kind)) if g.chance(0.7) else g.partner(x)
    return g.emit("Pow", [x, y])


@recipe("Div", "Mod", kind=OTHER, weight=2)
def divide(g: Growth, op: str) -> Value:
    x = g.pick(types(op, g.opset))
    shapes = g.part(x.shapes)
    y = g.fresh(x.dtype, shapes, Contents(nonzero=True))
    fmod = 1 if op == "Mod" and (x.dtype in FLOATS or g.chance(0.3)) else None
    if x.dtype in FLOATS and g.chance(0.3) and op == "Div":
        y = g.partner(x)
    return g.emit(op, [x, y], {"fmod": fmod})


@recipe("BitShift", kind=OTHER)
def bit_shift(g: Growth) -> Value:
    x = g.pick(types("BitShift", g.opset))
    y = g.fresh(x.dtype, g.part(x.shapes), Contents(low=(0,) * g.breadth, high=(8,) * g.breadth))
    return g.emit("BitShift", [x, y], {"direction": g.choose(("LEFT", "RIGHT"))})


@recipe("AffineGrid", kind=OTHER, weight=0.5)
def affine_grid(g: Growth) -> Value:
    dims = g.choose((2, 2, 3))
    theta = g.fresh(g.choose(types("AffineGrid", g.opset)), [(2, dims, dims + 1)] * g.breadth)
    size = g.extents([2, 3, *(g.choose((1, 2, 4)) for _ in range(dims))])
    return g.emit("AffineGrid", [theta, size], {"align_corners": g.choose((None, 0, 1))})


@recipe("NonMaxSuppression", kind=OTHER, weight=0.5)
def non_max_suppression(g: Growth) -> Value:
    n = g.choose((1, 4, 6))
    boxes = g.fresh(1, [(1, n, 4)] * g.breadth)
    scores = g.fresh(1, [(1, 2, n)] * g.breadth, Contents(positive=True))
    limits = [g.constant(np.array([g.choose((0.1, 0.5))], np.float32)) for _ in range(2)]
    operands = [boxes, scores, g.integers([3]), *limits[: g.choose((0, 1, 2))]]
    return g.emit("NonMaxSuppression", operands, {"center_point_box": g.choose((None, 0, 1))})


@recipe("SwiGLU", kind=OTHER, weight=0.5)
def swiglu(g: Growth) -> Value:
    a = g.pick(types("SwiGLU", g.opset))
    return g.emit("SwiGLU", [a, g.fresh(a.dtype, a.shapes)], {"alpha": g.choose((None, 1.7))})
