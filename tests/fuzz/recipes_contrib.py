"""Operators of onnxruntime's own set, those that its optimiser and quantiser write into models."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from tests.fuzz.contents import Contents, draw
from tests.fuzz.growth import Growth, RefusedError, Shape, Value
from tests.fuzz.operands import INT8S, along, maybe, met, scales
from tests.fuzz.registry import CONTRIB, PRODUCT, recipe

MICROSOFT = "com.microsoft"
FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


def _named(*ops: str) -> list[str]:
    return [f"{MICROSOFT}.{op}" for op in ops]


def _add(
    g: Growth, op: str, operands: list[Value | None], like: Value, shapes: Any = None, **given: Any
) -> Value:
    results = [(like.dtype, like.shapes if shapes is None else shapes)]
    return g.add(op.removeprefix(f"{MICROSOFT}."), operands, results, given, MICROSOFT)[0]


@recipe(*_named("Gelu", "QuickGelu", "FastGelu", "BiasGelu"), kind=CONTRIB, weight=0.5)
def gelu(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 1, 5)
    bias = g.fresh(FLOAT, along(x, (-1,)))
    if op.endswith("QuickGelu"):
        return _add(g, op, [x], x, alpha=g.choose((None, 1.0, 2.0)))
    if op.endswith("BiasGelu") or (op.endswith("FastGelu") and g.chance(0.5)):
        return _add(g, op, [x, bias], x)
    return _add(g, op, [x], x)


@recipe(*_named("FusedMatMul"), kind=CONTRIB, weight=2)
def fused_matmul(g: Growth, op: str) -> Value:
    a = g.ranked((FLOAT,), 2, 4)
    left, right = g.choose((0, 1)), g.choose((0, 1))
    rows, inner = (-1, -2) if left else (-2, -1)
    n = g.choose((1, 3, 8, 17))
    b = g.fresh(FLOAT, along(a, n, (inner,)) if right else along(a, (inner,), n))
    shapes = [(*s[:-2], s[rows], n) for s in a.shapes]
    given = {"transA": left, "transB": right, "alpha": g.choose((None, 0.5, -2.0))}
    product = _add(g, op, [a, b], a, shapes, **given)
    return met(g, product, lambda: _add(g, op, [a, g.fresh(FLOAT, b.shapes)], a, shapes, **given))


@recipe(*_named("FusedGemm"), kind=CONTRIB)
def fused_gemm(g: Growth, op: str) -> Value:
    a = g.ranked((FLOAT,), 2, 2)
    n = g.choose((1, 3, 8))
    b, c = g.fresh(FLOAT, along(a, (1,), n)), g.fresh(FLOAT, g.part(along(a, (0,), n)))
    activation, alpha = g.choose((("Relu", None), ("Tanh", None), ("LeakyRelu", 0.25)))
    given = {"activation": activation, "activation_alpha": alpha, "beta": g.choose((None, 0.5))}
    return _add(g, op, [a, b, c], a, along(a, (0,), n), **given)


@recipe(*_named("FusedConv"), kind=CONTRIB)
def fused_conv(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 4, 4)
    channels = x.at(1)[0]
    if not x.fixed(1) or not channels or any(0 in s for s in x.shapes):
        raise RefusedError
    out, taps = g.choose((1, 2, 5)), g.choose((1, 3))
    w = g.fresh(FLOAT, [(out, channels, taps, taps)] * g.breadth)
    shapes: list[Shape] = along(x, (0,), out, (2,), (3,))
    bias = maybe(g, lambda: g.fresh(FLOAT, [(out,)] * g.breadth))
    z = g.fresh(FLOAT, shapes) if g.chance(0.3) else None
    activation, alpha = g.choose((("Relu", None), ("Tanh", None), ("LeakyRelu", [0.25])))
    given = {"activation": activation, "activation_params": alpha, "pads": [taps // 2] * 4}
    return _add(g, op, [x, w, bias, z], x, shapes, **given)


@recipe(
    *_named("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), kind=CONTRIB, weight=1.5
)
def skip_layer_norm(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 3, 3)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    skip, gamma = g.fresh(FLOAT, x.shapes), g.fresh(FLOAT, along(x, (2,)))
    more = [maybe(g, lambda: g.fresh(FLOAT, along(x, (2,)))) for _ in range(2)]
    operands = [x, skip, gamma, *(more[:1] if "Simplified" in op else more)]
    results = [(FLOAT, x.shapes), None, None, (FLOAT, x.shapes)]
    kept = results if g.chance(0.4) else results[:1]
    return g.add(op.removeprefix(f"{MICROSOFT}."), operands, kept, {"epsilon": 0.01}, MICROSOFT)[-1]


@recipe(*_named("QLinearAdd", "QLinearMul"), kind=CONTRIB)
def qlinear(g: Growth, op: str) -> Value:
    a = g.pick(INT8S)
    b = g.fresh(a.dtype, g.part(a.shapes))
    return _add(g, op, [a, *scales(g, a), b, *scales(g, b), *scales(g, a)], a)


@recipe(*_named("QLinearSigmoid", "QLinearLeakyRelu"), kind=CONTRIB, weight=0.5)
def qlinear_unary(g: Growth, op: str) -> Value:
    x = g.pick(INT8S)
    alpha = 0.25 if op.endswith("LeakyRelu") else None
    return _add(g, op, [x, *scales(g, x), *scales(g, x)], x, alpha=alpha)


@recipe(*_named("QLinearConcat"), kind=CONTRIB, weight=0.5)
def qlinear_concat(g: Growth, op: str) -> Value:
    x = g.ranked(INT8S, 1, 4)
    axis = g.rng.randrange(x.rank)
    shapes = [(*s[:axis], 2 * (s[axis] or 0), *s[axis + 1 :]) for s in x.shapes]
    operands: list[Value | None] = [*scales(g, x), x, *scales(g, x), x, *scales(g, x)]
    return _add(g, op, operands, x, shapes, axis=axis)


@recipe(*_named("MatMulNBits"), kind=PRODUCT, weight=2)
def matmul_n_bits(g: Growth, op: str) -> Value:
    a = g.ranked((FLOAT, FLOAT, TensorProto.FLOAT16), 1, 4)
    if g.chance(0.4) or not a.fixed(-1) or not a.at(-1)[0]:
        k = g.choose((1, 8, 32, 64, 80, 130))
        a = g.fresh(a.dtype, [(*s[:-1], k) for s in a.shapes])
    n, block = g.choose((1, 5, 16, 33)), g.choose((16, 16, 32, 64, 128))
    bits = g.choose((4, 4, 4, 4, 2, 8))
    product = _of_few_bits(g, a, n, block, bits)
    return met(g, product, lambda: _of_few_bits(g, a, n, block, bits))


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
    operands: list[Value | None] = [
        a,
        weights(UINT8, (n, blocks, block * bits // 8), words),
        weights(a.dtype, (n * blocks,), Contents(positive=True)),
        maybe(g, lambda: weights(UINT8, (n * -(-blocks * bits // 8),), words)),
        None,
        g.fresh(a.dtype, [(n,)] * g.breadth) if g.chance(0.3) else None,
    ]
    shapes = [(*s[:-1], n) for s in a.shapes]
    sizes = {"K": k, "N": n, "bits": bits, "block_size": block}
    return g.add("MatMulNBits", operands, [(a.dtype, shapes)], sizes, MICROSOFT)[0]


@recipe(*_named("NhwcMaxPool"), kind=CONTRIB, weight=0.5)
def nhwc_max_pool(g: Growth, op: str) -> Value:
    x = g.ranked(INT8S, 4, 4)
    if any(0 in s for s in x.shapes):
        raise RefusedError
    return _add(g, op, [x], x, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
