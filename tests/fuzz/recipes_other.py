"""Operators of no family whose operands have to fit together: casts, quantisation, recurrence, signals."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.contents import Contents
from tests.fuzz.growth import FLOATS, Growth, RefusedError, Value
from tests.fuzz.operands import FLOAT8S, INT4S, INT8S, along, extents, maybe
from tests.fuzz.registry import OTHER, recipe, types


@recipe("QuantizeLinear", "DequantizeLinear", kind=OTHER, weight=2)
def quantize(g: Growth, op: str) -> Value:
    if g.opset >= 21 and g.chance(0.4):
        return _blocked(g, op)
    x = g.ranked(types(op, g.opset), 1, 4)
    axis = g.rng.randrange(x.rank)
    per_axis = g.chance(0.4) and x.fixed(axis)
    shape = (x.at(axis)[0],) if per_axis else ()
    scale = g.fresh(1, [shape] * g.breadth, Contents(positive=True))
    dtype = x.dtype if op == "DequantizeLinear" else g.choose(INT8S)
    zero = maybe(g, lambda: g.fresh(dtype, [shape] * g.breadth))
    attributes = {"axis": axis if per_axis and g.opset >= 13 else None}
    return g.emit(op, [x, scale, zero], attributes)


def _blocked(g: Growth, op: str) -> Value:
    """By a scale for each block of elements, in 4 or 8 bits; the numbers come back as floats."""
    dtype = g.choose((*INT8S, *INT4S, *INT4S, *FLOAT8S))
    x = g.ranked((TensorProto.FLOAT, TensorProto.FLOAT16), 1, 4)
    axis = g.choose([a for a in range(x.rank) if x.fixed(a) and x.at(a)[0]])
    block = g.rng.randint(1, x.at(axis)[0]) if dtype not in FLOAT8S and g.chance(0.6) else None
    blocks = None if block is None else -(-x.at(axis)[0] // block)
    shapes = [(x.at(axis)[0],) if g.chance(0.5) else ()] * g.breadth
    if blocks is not None:
        shapes = [(*s[:axis], blocks, *s[axis + 1 :]) for s in x.shapes]
    if len(set(shapes)) > 1:
        raise RefusedError  # zero points are constants
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    scale = g.fresh(x.dtype, shapes, Contents(positive=True))
    zero = g.constant(
        np.full(shapes[0], 0 if dtype in FLOAT8S else g.choose((0, 1, 3))).astype(kind)
    )
    attributes = {"axis": axis, "block_size": block}
    if op == "DequantizeLinear" and x.data is None and len(set(x.shapes)) == 1:  # weights
        low = 0 if dtype in (2, INT4S[0]) else -8
        numbers = np.random.default_rng(g.numpy_seed()).integers(low, low + 16, x.shape)
        narrow = g.constant(numbers.astype(np.float32).astype(kind))
    else:
        narrow = g.emit("QuantizeLinear", [x, scale, zero], attributes)
    return g.emit("DequantizeLinear", [narrow, scale, zero], attributes)


@recipe("LSTM", "GRU", "RNN", kind=OTHER, weight=2)
def recurrent(g: Growth, op: str) -> Value:
    x = g.ranked((1,), 3, 3)
    if 0 in x.at(2):
        raise RefusedError  # onnxruntime leaves products over nothing as it finds them
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    hidden = g.choose((1, 3, 4))
    direction = g.choose(("forward", "reverse", "bidirectional"))
    n = 2 if direction == "bidirectional" else 1
    w = g.fresh(1, along(x, n, gates * hidden, (2,)))
    r = g.fresh(1, [(n, gates * hidden, hidden)] * g.breadth)
    b = maybe(g, lambda: g.fresh(1, [(n, 2 * gates * hidden)] * g.breadth))
    h = maybe(g, lambda: g.fresh(1, along(x, n, (1,), hidden)), 0.3)
    attributes = {
        "hidden_size": hidden,
        "direction": direction,
        "linear_before_reset": g.choose((None, 0, 1)) if op == "GRU" else None,
    }
    return g.emit(op, [x, w, r, b, None, h], attributes, outputs=g.choose((1, 2)))


@recipe("RotaryEmbedding", kind=OTHER)
def rotary(g: Growth) -> Value:
    n = extents(g)
    x = g.fresh(1, [(2, 3, s, 8) for s in n])
    cos, sin = (g.fresh(1, [(2, s, 4) for s in n]) for _ in range(2))
    return g.emit("RotaryEmbedding", [x, cos, sin], {"interleaved": g.choose((None, 0, 1))})


@recipe("Range", kind=OTHER)
def range_(g: Growth) -> Value:
    dtype = g.choose((7, 1, 6))
    kind = {7: np.int64, 6: np.int32, 1: np.float32}[dtype]
    start, step = g.choose((0, 1, -2)), g.choose((1, 2, -1))
    limit = start + step * g.choose((0, 1, 5, 7))
    return g.emit("Range", [g.extents(v, kind) for v in (start, limit, step)])


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
    outputs = g.choose((1, 2)) if g.opset >= 12 else 1  # what the mask holds is not said before
    return g.emit("Dropout", [x], outputs=outputs)


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


@recipe("DFT", kind=OTHER, weight=0.5)
def dft(g: Growth) -> Value:
    x = g.fresh(1, [(2, g.choose((4, 5, 8)), g.choose((1, 2)))] * g.breadth)
    return g.emit(
        "DFT",
        [x],
        {"axis": 1, "inverse": g.choose((None, 0, 1)), "onesided": g.choose((None, 0, 1))},
    )


@recipe("HannWindow", "HammingWindow", "BlackmanWindow", kind=OTHER, weight=0.3)
def signal_window(g: Growth, op: str) -> Value:
    y = g.emit(op, [g.integers(g.choose((1, 5, 8)))], {"periodic": g.choose((None, 0, 1))})
    # Numbers that are equal, or 0, but for rounding: of those nobody promises an order or a sign.
    hundred, one = (g.constant(np.array(number, np.float32)) for number in (100, 1))
    return g.emit("Add", [g.emit("Round", [g.emit("Mul", [y, hundred])]), one])


@recipe("AffineGrid", kind=OTHER, weight=0.5)
def affine_grid(g: Growth) -> Value:
    theta = g.fresh(1, [(2, 2, 3)] * g.breadth)
    return g.emit(
        "AffineGrid", [theta, g.integers([2, 3, 4, 5])], {"align_corners": g.choose((None, 0, 1))}
    )


@recipe("NonMaxSuppression", kind=OTHER, weight=0.5)
def non_max_suppression(g: Growth) -> Value:
    n = g.choose((1, 4, 6))
    boxes = g.fresh(1, [(1, n, 4)] * g.breadth)
    scores = g.fresh(1, [(1, 2, n)] * g.breadth, Contents(positive=True))
    return g.emit("NonMaxSuppression", [boxes, scores, g.integers([3])])
