"""onnxruntime's own operators on floats."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tests.fuzz.contents import Contents
from tests.fuzz.growth import DTYPES, Growth, RefusedError, Shape, Value
from tests.fuzz.operands import (
    add_contrib,
    along,
    contrib,
    contrib_results,
    filled,
    groups,
    maybe,
    met,
    numpy_type,
    placed,
)
from tests.fuzz.registry import CONTRIB, recipe

FLOAT, FLOAT16, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
BFLOAT16, INT64 = TensorProto.BFLOAT16, TensorProto.INT64
ACTIVATIONS = (
    *(("Relu", ()), ("Tanh", ()), ("Sigmoid", ())),
    *(("LeakyRelu", (0.25,)), ("Clip", (-0.5, 1.0)), ("HardSigmoid", (0.3, 0.4))),
)
"""Names, with alpha and beta."""


@recipe(*contrib("Gelu", "QuickGelu", "FastGelu", "BiasGelu"), kind=CONTRIB, weight=0.5)
def gelu(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 1, 5)
    bias = g.fresh(FLOAT, along(x, (-1,)))
    if op.endswith("QuickGelu"):
        return add_contrib(g, op, [x], x, alpha=g.choose((None, 1.0, 2.0)))
    if op.endswith("BiasGelu") or (op.endswith("FastGelu") and g.chance(0.5)):
        return add_contrib(g, op, [x, bias], x)
    return add_contrib(g, op, [x], x)


@recipe(*contrib("FusedMatMul", "TransposeMatMul"), kind=CONTRIB, weight=1.5)
def fused_matmul(g: Growth, op: str) -> Value:
    a = g.ranked((FLOAT, FLOAT, DOUBLE) if op.endswith("FusedMatMul") else (FLOAT,), 2, 4)
    left, right = g.choose((0, 1)), g.choose((0, 1))
    rows, inner = (-1, -2) if left else (-2, -1)
    n = g.choose((1, 3, 8, 17))
    b = g.fresh(a.dtype, along(a, n, (inner,)) if right else along(a, (inner,), n))
    shapes = [(*s[:-2], s[rows], n) for s in a.shapes]
    given = {"transA": left, "transB": right, "alpha": g.choose((None, 0.5, -2.0))}
    if op.endswith("FusedMatMul") and a.rank >= 3 and g.chance(0.25):
        return _of_turned_batches(g, op, a)
    product = add_contrib(g, op, [a, b], a, shapes, **given)

    def another() -> Value:
        return add_contrib(g, op, [a, g.fresh(a.dtype, b.shapes)], a, shapes, **given)

    return met(g, product, another)


def _of_turned_batches(g: Growth, op: str, a: Value) -> Value:
    """The first axis of A is that of its rows, or of columns where it is transposed; those behind it are batches. So is
    that of B, where both are turned.
    """
    turned = g.choose((0, 1))
    shapes = [(*s[1:-1], s[-1], s[0]) if turned else (*s[1:-1], s[0], s[-1]) for s in a.shapes]
    n = g.choose((1, 5))
    b = g.fresh(a.dtype, [(*s[:-2], s[-1], n) for s in shapes])
    both = g.choose((0, 1))
    if both:
        b = g.fresh(a.dtype, [(s[-1], *s[:-2], n) for s in shapes])
    results = [(*s[:-1], n) for s in shapes]
    given = {"transBatchA": 1, "transA": turned, "transBatchB": both}
    return add_contrib(g, op, [a, b], a, results, **given)


@recipe(*contrib("FusedGemm"), kind=CONTRIB)
def fused_gemm(g: Growth, op: str) -> Value:
    a = g.ranked((FLOAT,), 2, 2)
    n = g.choose((1, 3, 8))
    left, right = g.choose((0, 0, 1)), g.choose((0, 0, 1))
    rows, inner = (1, 0) if left else (0, 1)
    b = g.fresh(FLOAT, along(a, n, (inner,)) if right else along(a, (inner,), n))
    c = maybe(g, lambda: g.fresh(FLOAT, g.part(along(a, (rows,), n))), 0.8)
    activation, numbers = g.choose(ACTIVATIONS)
    given = dict(zip(("activation_alpha", "activation_beta"), numbers, strict=False))
    given |= {"beta": g.choose((None, 0.5)), "alpha": g.choose((None, -0.5))}
    given |= {"transA": left or None, "transB": right or None}
    return add_contrib(g, op, [a, b, c], a, along(a, (rows,), n), activation=activation, **given)


@recipe(*contrib("FusedConv"), kind=CONTRIB)
def fused_conv(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 3, 5)
    if not filled(x).fixed(1):
        raise RefusedError
    attributes, places = placed(g, x, first=2)
    group, channels = groups(g, x.at(1)[0])
    out = group * g.choose((1, 2, 5))
    w = g.fresh(FLOAT, [(out, channels, *attributes["kernel_shape"])] * g.breadth)
    shapes: list[Shape] = [(s[0], out, *p) for s, p in zip(x.shapes, places, strict=True)]
    bias = maybe(g, lambda: g.fresh(FLOAT, [(out,)] * g.breadth))
    z = g.fresh(FLOAT, shapes) if g.chance(0.3) else None
    activation, numbers = g.choose(ACTIVATIONS)
    given = {"activation": activation, "activation_params": list(numbers) or None, "group": group}
    return add_contrib(g, op, [x, w, bias, z], x, shapes, **attributes, **given)


@recipe(
    *contrib("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), kind=CONTRIB, weight=1.5
)
def skip_layer_norm(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT, FLOAT, FLOAT16, DOUBLE, BFLOAT16), 2, 3)
    filled(x)
    skip, gamma = g.fresh(x.dtype, x.shapes), g.fresh(x.dtype, along(x, (-1,)))
    if x.rank == 3 and g.chance(0.3):
        skip = g.fresh(x.dtype, g.choose((along(x, 1, (1,), (2,)), along(x, (1,), (2,)))))
    more = [maybe(g, lambda: g.fresh(x.dtype, along(x, (-1,)))) for _ in range(2)]
    operands = [x, skip, gamma, *(more[:1] if "Simplified" in op else more)]
    results = [(x.dtype, x.shapes), None, None, (x.dtype, x.shapes)]
    kept = results if g.chance(0.4) else results[:1]
    return contrib_results(g, op, operands, kept, epsilon=0.01)[-1]


@recipe(*contrib("ExpandDims"), kind=CONTRIB, weight=0.5)
def expand_dims(g: Growth, op: str) -> Value:
    x = g.pick(DTYPES, lambda v: v.rank < 6)
    axis = g.rng.randint(-x.rank - 1, x.rank)
    at = axis % (x.rank + 1)
    shapes = [(*s[:at], 1, *s[at:]) for s in x.shapes if s is not None]
    return add_contrib(g, op, [x, g.integers(axis, np.int32)], x, shapes)


@recipe(*contrib("Trilu"), kind=CONTRIB, weight=0.5)
def trilu(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT, DOUBLE, INT64), 2, 4)
    k = maybe(g, lambda: g.extents(g.choose((0, 1, -1, 3))))
    return add_contrib(g, op, [x, k], x, upper=g.choose((None, 0, 1)))


@recipe(*contrib("Range"), kind=CONTRIB, weight=0.5)
def range_(g: Growth, op: str) -> Value:
    kind = g.choose((np.int64, np.float32, np.int32, np.float64, np.int16))
    start, step, count = g.choose((0, 1, -2)), g.choose((1, 2, -1)), g.choose((0, 1, 5))
    parts = [g.constant(np.array(n, kind)) for n in (start, start + step * count, step)]
    if step == 1 and g.chance(0.5):
        parts.pop()
    return add_contrib(g, op, [*parts], parts[0], [(count,)] * g.breadth)


@recipe(*contrib("Pad"), kind=CONTRIB, weight=0.5)
def pad(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT, DOUBLE), 1, 4)
    filled(x)
    amounts = [g.choose((0, 0, 1, 2)) for _ in range(2 * x.rank)]
    shapes = [
        tuple(d + amounts[a] + amounts[x.rank + a] for a, d in enumerate(s)) for s in x.shapes
    ]
    mode = g.choose((None, "constant", "edge"))
    value = maybe(g, lambda: g.constant(np.array([0.5]).astype(numpy_type(x))), 0.4)
    return add_contrib(g, op, [x, g.extents(amounts), value], x, shapes, mode=mode)


@recipe(*contrib("GridSample"), kind=CONTRIB, weight=0.5)
def grid_sample(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 4, 4)
    filled(x)  # onnxruntime reads what is not there
    grid = g.fresh(FLOAT, along(x, (0,), 3, 4, 2))
    attributes = {
        "mode": g.choose((None, "bilinear", "nearest", "bicubic")),
        "padding_mode": g.choose((None, "zeros", "border", "reflection")),
        "align_corners": g.choose((None, 0, 1)),
    }
    return add_contrib(g, op, [x, grid], x, along(x, (0,), (1,), 3, 4), **attributes)


@recipe(*contrib("GatherND"), kind=CONTRIB, weight=0.5)
def gather_nd(g: Growth, op: str) -> Value:
    x = g.ranked(DTYPES, 1, 3)
    filled(x)
    least = [min(x.at(axis)) for axis in range(x.rank)]
    depth = g.rng.randint(1, x.rank)
    kind = g.choose((np.int64, np.int32))
    rng = np.random.default_rng(g.numpy_seed())
    index = np.stack([rng.integers(0, n, 3) for n in least[:depth]], axis=1).astype(kind)
    shapes = [(3, *s[depth:]) for s in x.shapes]
    return add_contrib(g, op, [x, g.constant(index)], x, shapes)


@recipe(*contrib("Inverse"), kind=CONTRIB, weight=0.3)
def inverse(g: Growth, op: str) -> Value:
    """Of matrices that are far from singular."""
    n = g.choose((1, 2, 4))
    x = g.fresh(g.choose((FLOAT, DOUBLE)), [(2, n, n)] * g.breadth, Contents(positive=True))
    far = g.constant((np.eye(n) * 16).astype(numpy_type(x)))
    return add_contrib(g, op, [g.emit("Add", [x, far])], x)


@recipe(*contrib("Unique"), kind=CONTRIB, weight=0.3)
def unique(g: Growth, op: str) -> Value:
    x = g.ranked((FLOAT,), 1, 1)
    results = [(FLOAT, [(None,)] * g.breadth), *[(INT64, [(None,)] * g.breadth)] * 2]
    return contrib_results(g, op, [x], results)[g.choose((0, 2))]
