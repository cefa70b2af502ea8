"""onnxruntime's own operators on quantised numbers, and products by weights of few bits."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.fuzz.contents import Contents, draw
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.operands import (
    INT8S,
    add_contrib,
    along,
    contrib,
    filled,
    groups,
    maybe,
    met,
    placed,
    scales,
)
from tests.fuzz.registry import CONTRIB, PRODUCT, recipe

FLOAT, FLOAT16, UINT8, INT8 = (
    *(TensorProto.FLOAT, TensorProto.FLOAT16),
    *(TensorProto.UINT8, TensorProto.INT8),
)
INT32, INT64 = TensorProto.INT32, TensorProto.INT64


@recipe(*contrib("QLinearAdd", "QLinearMul"), kind=CONTRIB)
def qlinear(g: Growth, op: str) -> Value:
    a = g.pick(INT8S)
    b = g.fresh(a.dtype, g.part(a.shapes))
    return add_contrib(g, op, [a, *scales(g, a), b, *scales(g, b), *scales(g, a)], a)


@recipe(*contrib("QLinearSigmoid", "QLinearLeakyRelu"), kind=CONTRIB, weight=0.5)
def qlinear_unary(g: Growth, op: str) -> Value:
    x = g.pick(INT8S)
    alpha = 0.25 if op.endswith("LeakyRelu") else None
    return add_contrib(g, op, [x, *scales(g, x), *scales(g, x)], x, alpha=alpha)


@recipe(*contrib("QLinearConcat"), kind=CONTRIB, weight=0.5)
def qlinear_concat(g: Growth, op: str) -> Value:
    x = g.ranked(INT8S, 1, 4)
    axis = g.rng.randrange(x.rank)
    shapes = [(*s[:axis], 2 * (s[axis] or 0), *s[axis + 1 :]) for s in x.shapes]
    operands: list[Value | None] = [*scales(g, x), x, *scales(g, x), x, *scales(g, x)]
    return add_contrib(g, op, operands, x, shapes, axis=axis)


@recipe(*contrib("QLinearSoftmax"), kind=CONTRIB, weight=0.5)
def qlinear_softmax(g: Growth, op: str) -> Value:
    x = g.ranked(INT8S, 1, 4)
    filled(x)
    opset = g.choose((11, 13))
    axis = g.rng.randint(-x.rank, x.rank - 1) if opset == 13 else g.choose((-1, x.rank - 1))
    zero = g.constant(
        np.array(0 if x.dtype == UINT8 else -128, np.uint8 if x.dtype == UINT8 else np.int8)
    )
    scale = g.constant(np.array(1 / 256, np.float32))
    return add_contrib(g, op, [x, *scales(g, x), scale, zero], x, axis=axis, opset=opset)


@recipe(*contrib("QLinearWhere"), kind=CONTRIB, weight=0.5)
def qlinear_where(g: Growth, op: str) -> Value:
    x = g.pick(INT8S)
    y = g.fresh(x.dtype, g.part(x.shapes))
    condition = g.fresh(TensorProto.BOOL, g.part(x.shapes))
    return add_contrib(g, op, [condition, x, *scales(g, x), y, *scales(g, x), *scales(g, x)], x)


def _quantised_image(g: Growth, channels_last: bool) -> Value:
    x = g.ranked(INT8S, 3, 4)
    at = -1 if channels_last else 1
    if not filled(x).fixed(at):
        raise RefusedError
    return x


@recipe(*contrib("QLinearAveragePool", "NhwcMaxPool"), kind=CONTRIB, weight=0.5)
def quantised_pool(g: Growth, op: str) -> Value:
    averages = op.endswith("AveragePool")
    last = not averages or g.chance(0.4)
    x = _quantised_image(g, last)
    attributes, places = placed(g, x, first=1 if last else 2, dilate=not averages, pools=True)
    pairs = list(zip(x.shapes, places, strict=True))
    shapes = [(s[0], *p, s[-1]) if last else (s[0], s[1], *p) for s, p in pairs]
    if not averages:
        return add_contrib(g, op, [x], x, shapes, **attributes)
    attributes |= {"channels_last": int(last), "count_include_pad": g.choose((None, 0, 1))}
    return add_contrib(g, op, [x, *scales(g, x), *scales(g, x)], x, shapes, **attributes)


@recipe(*contrib("QLinearGlobalAveragePool"), kind=CONTRIB, weight=0.5)
def quantised_global_pool(g: Growth, op: str) -> Value:
    last = g.choose((0, 1))
    x = _quantised_image(g, bool(last))
    ones = (1,) * (x.rank - 2)
    shapes = [(s[0], *ones, s[-1]) if last else (*s[:2], *ones) for s in x.shapes]
    return add_contrib(g, op, [x, *scales(g, x), *scales(g, x)], x, shapes, channels_last=last)


@recipe(*contrib("QLinearConv"), kind=CONTRIB, weight=0.7)
def qlinear_conv(g: Growth, op: str) -> Value:
    last = g.chance(0.5)
    x = _quantised_image(g, last)
    attributes, places = placed(g, x, first=1 if last else 2)
    group, channels = groups(g, x.at(-1 if last else 1)[0])
    out = group * g.choose((1, 3))
    kind = x.dtype if x.dtype == INT8 else g.choose(INT8S)
    w = g.fresh(kind, [(out, channels, *attributes["kernel_shape"])] * g.breadth)
    pairs = list(zip(x.shapes, places, strict=True))
    shapes = [(s[0], *p, out) if last else (s[0], out, *p) for s, p in pairs]
    bias = maybe(g, lambda: g.fresh(INT32, [(out,)] * g.breadth))
    operands = [x, *scales(g, x), w, *scales(g, w), *scales(g, x), bias]
    attributes |= {"group": group, "channels_last": int(last)}
    return add_contrib(g, op, operands, x, shapes, **attributes)


@recipe(*contrib("QuantizeLinear", "DequantizeLinear"), kind=CONTRIB, weight=0.5)
def quantise(g: Growth, op: str) -> Value:
    takes = op.endswith("DequantizeLinear")
    narrow = g.choose((*INT8S, TensorProto.INT16, TensorProto.UINT16, *((INT32,) if takes else ())))
    x = g.ranked((narrow,) if takes else (FLOAT, FLOAT16), 1, 4)
    axis = g.rng.randrange(x.rank)
    per_axis = x.fixed(axis) and g.chance(0.4)
    shape = (x.at(axis)[0],) if per_axis else ()
    kind = g.choose((FLOAT, FLOAT16)) if takes else x.dtype
    scale = g.fresh(kind, [shape] * g.breadth, Contents(positive=True))
    dtype = x.dtype if takes else narrow
    zero = g.fresh(dtype, [shape] * g.breadth) if dtype != UINT8 or g.chance(0.6) else None
    like = Value("", kind if takes else dtype, x.shapes)
    return add_contrib(g, op, [x, scale, zero], like, axis=axis if per_axis else None)


@recipe(*contrib("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), kind=CONTRIB)
def quantised_product(g: Growth, op: str) -> Value:
    """By bytes, with a scale for all or for each column."""
    dynamic = op.endswith("DynamicQuantizeMatMul")
    a = g.ranked((FLOAT,) if dynamic else INT8S, 2, 4)
    filled(a)
    n = g.choose((1, 5, 16))
    b = g.fresh(g.choose(INT8S), along(a, (-1,), n))
    shape = g.choose(((), (1,), (n,)))
    scale = g.fresh(FLOAT, [shape] * g.breadth, Contents(positive=True))
    zero = maybe(g, lambda: g.fresh(b.dtype, [shape] * g.breadth))
    bias = maybe(g, lambda: g.fresh(FLOAT, [(n,)] * g.breadth))
    like = Value("", FLOAT, a.shapes)
    shapes = [(*s[:-1], n) for s in a.shapes]
    if dynamic:
        return add_contrib(g, op, [a, b, scale, zero, bias], like, shapes)
    own, point = scales(g, a)
    operands = [a, b, own, scale, maybe(g, lambda: point), zero, bias]
    return add_contrib(g, op, operands, like, shapes)


@recipe(*contrib("QGemm"), kind=CONTRIB)
def quantised_gemm(g: Growth, op: str) -> Value:
    a = g.ranked(INT8S, 2, 2)
    filled(a)
    left, right = g.choose((0, 0, 1)), g.choose((0, 1))
    rows, inner = (1, 0) if left else (0, 1)
    n = g.choose((1, 5, 16))
    kind = INT8 if a.dtype == INT8 else g.choose(INT8S)
    b = g.fresh(kind, along(a, n, (inner,)) if right else along(a, (inner,), n))
    c = maybe(g, lambda: g.fresh(INT32, g.choose(([(n,)] * g.breadth, along(a, (rows,), n)))))
    whole = g.chance(0.5)
    shapes = along(a, (rows,), n)
    operands = [a, *scales(g, a), b, *scales(g, b), c, *(scales(g, a) if whole else ())]
    like = Value("", a.dtype if whole else FLOAT, shapes)
    given = {"transA": left, "transB": right, "alpha": g.choose((None, 0.5))}
    return add_contrib(g, op, operands, like, shapes, **given)


@recipe(*contrib("MatMulNBits"), kind=PRODUCT, weight=2)
def matmul_n_bits(g: Growth, op: str) -> Value:
    a = g.ranked((FLOAT, FLOAT, TensorProto.FLOAT16), 1, 4)
    if g.chance(0.4) or not a.fixed(-1) or not a.at(-1)[0]:
        k = g.choose((1, 8, 32, 64, 80, 130))
        a = g.fresh(a.dtype, [(*s[:-1], k) for s in a.shapes])
    n, block = g.choose((1, 5, 16, 33)), g.choose((16, 16, 32, 64, 128))
    bits = g.choose((4, 4, 4, 4, 2, 8))
    product = _of_few_bits(g, a, n, block, bits)
    return met(g, product, lambda: _of_few_bits(g, a, n, block, bits))


def _groups(g: Growth, k: int, block: int) -> Value:
    """Which block each row is of: that in which it lies, or another one."""
    groups = np.arange(k, dtype=np.int32) // block
    return g.constant(groups[::-1].copy() if g.chance(0.5) else groups)


def _of_few_bits(g: Growth, a: Value, n: int, block: int, bits: int) -> Value:
    """A product by packed weights, all of which are constants mostly."""
    k, constant = a.at(-1)[0], g.chance(0.9)
    blocks = -(-k // block)

    def weights(dtype: int, shape: Shape, contents: Contents) -> Value:
        shapes = [shape] * g.breadth
        if not constant:
            return g.fresh(dtype, shapes, contents)
        return g.constant(draw(g.numpy_seed(), dtype, shape, contents, 0))

    words = Contents(low=(0,) * g.breadth, high=(256,) * g.breadth)

    def zeros() -> Value:
        if g.chance(0.2):
            levels = Contents(low=(0,) * g.breadth, high=(1 << bits,) * g.breadth)
            return weights(a.dtype, (n, blocks), levels)
        return weights(UINT8, (n * -(-blocks * bits // 8),), words)

    operands: list[Value | None] = [
        a,
        weights(UINT8, (n, blocks, block * bits // 8), words),
        weights(a.dtype, (n * blocks,), Contents(positive=True)),
        maybe(g, zeros),
        _groups(g, k, block) if g.chance(0.1) else None,
        g.fresh(a.dtype, [(n,)] * g.breadth) if g.chance(0.3) else None,
    ]
    shapes = [(*s[:-1], n) for s in a.shapes]
    sizes: dict[str, int | None] = {"K": k, "N": n, "bits": bits, "block_size": block}
    sizes |= {
        "accuracy_level": g.choose((None, 0, 1, 4)),
        "weight_prepacked": g.choose((None, None, 0)),
    }
    return add_contrib(g, "MatMulNBits", operands, a, shapes, **sizes)


@recipe(*contrib("GatherBlockQuantized"), kind=CONTRIB)
def gathered_blocks(g: Growth, op: str) -> Value:
    """Rows of a table in 4 or 8 bits, with a scale, and perhaps a zero point, for each block of them."""
    rows, width, block = g.choose((3, 8)), g.choose((16, 32, 64)), g.choose((16, 32))
    if width % block:
        raise RefusedError
    bits = g.choose((4, 8))
    words = Contents(low=(0,) * g.breadth, high=(256,) * g.breadth)

    def table(width: int) -> Value:
        return g.constant(draw(g.numpy_seed(), UINT8, (rows, width * bits // 8), words, 0))

    kind = g.choose((FLOAT, FLOAT, FLOAT16))
    scale = g.fresh(kind, [(rows, width // block)] * g.breadth, Contents(positive=True))
    zero = table(width // block) if (width // block) * bits % 8 == 0 and g.chance(0.5) else None
    shape = g.choose(((), (2,), (2, 3)))
    index = g.fresh(
        g.choose((INT32, INT64)),
        [shape] * g.breadth,
        Contents(low=(-rows,) * g.breadth, high=(rows,) * g.breadth),
    )
    sizes = {"bits": bits, "block_size": block, "gather_axis": 0, "quantize_axis": 1}
    like, shapes = Value("", kind, ()), [(*shape, width)] * g.breadth
    return add_contrib(g, op, [table(width), index, scale, zero], like, shapes, **sizes)
