"""Quantisation: to and from few bits, by one scale, one for each of an axis, or one for each block."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.fuzz.contents import Contents
from tests.fuzz.growth import Growth, RefusedError, Value
from tests.fuzz.operands import FLOAT8S, INT4S, INT8S, maybe
from tests.fuzz.registry import OTHER, recipe, types

FLOAT, FLOAT16, INT32 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32
INT16S = (TensorProto.INT16, TensorProto.UINT16)


@recipe("QuantizeLinear", "DequantizeLinear", kind=OTHER, weight=2)
def quantize(g: Growth, op: str) -> Value:
    if g.opset >= 21 and g.chance(0.4):
        return _blocked(g, op)
    x = g.ranked(types(op, g.opset), 1, 4)
    axis = g.rng.randrange(x.rank)
    per_axis = g.chance(0.4) and x.fixed(axis)
    shape = (x.at(axis)[0],) if per_axis else ()
    takes = op == "DequantizeLinear"
    kind = x.dtype if not takes and g.opset >= 19 and x.dtype != INT32 else FLOAT
    kind = FLOAT16 if takes and g.opset >= 19 and g.chance(0.3) else kind
    scale = g.fresh(kind, [shape] * g.breadth, Contents(positive=True))
    dtype = x.dtype if takes else g.choose((*INT8S, *(INT16S if g.opset >= 21 else ())))
    zero = maybe(g, lambda: g.fresh(dtype, [shape] * g.breadth))
    attributes = {"axis": axis if per_axis and g.opset >= 13 else None}
    if zero is None and not takes:
        attributes["output_dtype"] = g.choose((None, dtype))
    if not takes:
        attributes["saturate"] = g.choose((None, 1))
        attributes["precision"] = g.choose((None, None, FLOAT))
    elif g.opset >= 23:
        attributes["output_dtype"] = g.choose((None, FLOAT, FLOAT16))
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
