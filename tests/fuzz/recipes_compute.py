"""Operators whose operands have to fit together: products, windows, reductions, norms, quantisation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.contents import Contents
from tests.fuzz.growth import FLOATS, Growth, RefusedError, Shape, Value
from tests.fuzz.registry import OTHER, PRODUCT, REDUCTION, WINDOW, into_domain, recipe, types

INT8S = (3, 2)
REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)


def along(x: Value, *dims: Any) -> list[Shape]:
    """A shape per environment: numbers as they are, `(axis,)` for the extent of an axis of `x`."""
    return [tuple(s[d[0]] if isinstance(d, tuple) else d for d in dims) for s in x.shapes]  # type: ignore[index,misc]


def maybe(g: Growth, make: Any, probability: float = 0.5) -> Value | None:
    return make() if g.chance(probability) else None


# -- products


@recipe("MatMul", kind=PRODUCT, weight=6)
def matmul(g: Growth) -> Value:
    dtypes = types("MatMul", g.opset)
    a = g.ranked(dtypes, 1, 5)
    fitting = [
        v
        for v in g.values
        if v.dtype == a.dtype and v.known and v.rank >= 1
        and (v.at(-2) if v.rank > 1 else v.at(0)) == a.at(-1)
    ]  # fmt: skip
    if fitting and g.chance(0.5):
        b = g.choose(fitting)
    elif g.chance(0.3) and a.rank >= 2:
        b = g.emit("Transpose", [a], {"perm": [*range(a.rank - 2), a.rank - 1, a.rank - 2]})
    else:
        n = g.choose((1, 2, 3, 5, 8, 17, 33))
        batch = g.part([s[:-2] for s in a.shapes]) if g.chance(0.3) else [()] * g.breadth  # type: ignore[index]
        b = g.fresh(a.dtype, [(*p, s[-1], n) for p, s in zip(batch, a.shapes, strict=True)])  # type: ignore[index]
        if g.chance(0.1):
            b = g.fresh(a.dtype, [(s[-1],) for s in a.shapes])  # type: ignore[index]
    if g.chance(0.2) and b.known and b.rank >= 2 and b.at(-1) == a.at(-2 if a.rank > 1 else -1):
        a, b = b, a
    return g.emit("MatMul", [a, b])


@recipe("Gemm", kind=PRODUCT, weight=3)
def gemm(g: Growth) -> Value:
    a = g.ranked(types("Gemm", g.opset), 2, 2)
    left, right = g.choose((0, 0, 1)), g.choose((0, 0, 1))
    inner, outer = (0, 1) if left else (1, 0)
    n = g.choose((1, 2, 5, 8, 17))
    b = g.fresh(a.dtype, along(a, n, (inner,)) if right else along(a, (inner,), n))
    c = None
    if g.opset < 11 or g.chance(0.6):
        c = g.fresh(a.dtype, g.part(along(a, (outer,), n)))
    scale = {k: g.choose((None, None, 0.5, 2.0, 0.0, -1.0)) for k in ("alpha", "beta")}
    return g.emit("Gemm", [a, b, c], {"transA": left or None, "transB": right or None, **scale})


@recipe("MatMulInteger", kind=PRODUCT)
def matmul_integer(g: Growth) -> Value:
    a = g.ranked(types("MatMulInteger", g.opset), 2, 4)
    if 0 in a.at(-1):
        raise RefusedError  # onnxruntime leaves the result as it finds it
    b = g.fresh(g.choose(INT8S), along(a, (-1,), g.choose((1, 3, 8))))
    zero_a = maybe(g, lambda: g.fresh(a.dtype, [()] * g.breadth))
    zero_b = maybe(g, lambda: g.fresh(b.dtype, [g.choose(((), (b.at(1)[0],)))] * g.breadth))
    return g.emit("MatMulInteger", [a, b, zero_a, zero_b])


@recipe("Einsum", kind=PRODUCT)
def einsum(g: Growth) -> Value:
    dtypes = [d for d in types("Einsum", g.opset) if d in (*FLOATS, 7, 6)]
    a = g.ranked(dtypes, 2, 3)
    letters = "abc"[: a.rank]
    last = letters[-1]
    equation, shapes = g.choose(
        (
            (f"{letters}->{letters[::-1]}", None),
            (f"{letters}->{last}", None),
            (f"{letters}->", None),
            (f"{letters},{last}d->{letters[:-1]}d", along(a, (-1,), 5)),
            (f"{letters},d{last}->{letters[:-1]}d", along(a, 5, (-1,))),
            (f"{letters},{letters}->{letters}", [tuple(s) for s in a.shapes]),  # type: ignore[arg-type]
            (f"{letters},{letters}->{letters[0]}", [tuple(s) for s in a.shapes]),  # type: ignore[arg-type]
            (f"...{last},{last}d->...d", along(a, (-1,), 3)),
            (f"{letters},{last}d", along(a, (-1,), 3)),
        )
    )
    operands = [a] if shapes is None else [a, g.fresh(a.dtype, shapes)]
    return g.emit("Einsum", operands, {"equation": equation})


# -- windows


def image(g: Growth, op: str, low: int = 3, high: int = 5, channels: bool = False) -> Value:
    x = g.ranked(types(op, g.opset), low, g.choose((4, 4, 4, high)))
    if channels and not x.fixed(1):
        raise RefusedError
    return x


def window(g: Growth, x: Value, dilate: bool = True, kernel: int = 3) -> dict[str, Any]:
    """Attributes of a window over the spatial axes of `x`."""
    n = x.rank - 2
    attributes: dict[str, Any] = {"kernel_shape": [g.rng.randint(1, kernel) for _ in range(n)]}
    if g.chance(0.4):
        attributes["strides"] = [g.choose((1, 2, 3)) for _ in range(n)]
    if dilate and g.chance(0.25):
        attributes["dilations"] = [g.choose((1, 2)) for _ in range(n)]
    way = g.rng.random()
    if way < 0.45:
        attributes["pads"] = [
            g.rng.randint(0, max(0, k - 1)) for k in attributes["kernel_shape"] * 2
        ]
    elif way < 0.65:
        attributes["auto_pad"] = g.choose(("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"))
    return attributes


@recipe("Conv", kind=WINDOW, weight=5)
def conv(g: Growth, op: str = "Conv") -> Value:
    x = image(g, op, channels=True)
    channels = x.at(1)[0]
    group = g.choose([f for f in range(1, channels + 1) if channels % f == 0] or [1])
    group = g.choose((1, group, channels or 1))
    out = group * g.choose((1, 1, 2, 3))
    attributes = window(g, x)
    kernel = attributes["kernel_shape"]
    if g.chance(0.3):
        del attributes["kernel_shape"]
    w = g.fresh(x.dtype, [(out, channels // group, *kernel)] * g.breadth)
    b = maybe(g, lambda: g.fresh(x.dtype, [(out,)] * g.breadth))
    return g.emit(op, [x, w, b], {**attributes, "group": group})


@recipe("ConvTranspose", kind=WINDOW, weight=2)
def conv_transpose(g: Growth) -> Value:
    x = image(g, "ConvTranspose", channels=True)
    channels = x.at(1)[0]
    group = g.choose((1, 1, channels or 1))
    out = g.choose((1, 2, 3))
    attributes = window(g, x)
    if g.chance(0.2):
        attributes["output_padding"] = [g.choose((0, 1)) for _ in range(x.rank - 2)]
    w = g.fresh(x.dtype, [(channels, out, *attributes["kernel_shape"])] * g.breadth)
    b = maybe(g, lambda: g.fresh(x.dtype, [(out * group,)] * g.breadth))
    return g.emit("ConvTranspose", [x, w, b], {**attributes, "group": group})


@recipe("ConvInteger", kind=WINDOW)
def conv_integer(g: Growth) -> Value:
    x = image(g, "ConvInteger", 4, 4, channels=True)
    attributes = window(g, x)
    w = g.fresh(g.choose(INT8S), [(2, x.at(1)[0], *attributes["kernel_shape"])] * g.breadth)
    zero = maybe(g, lambda: g.fresh(x.dtype, [()] * g.breadth))
    return g.emit("ConvInteger", [x, w, zero], attributes)


@recipe("AveragePool", "MaxPool", "LpPool", kind=WINDOW, weight=3)
def pool(g: Growth, op: str) -> Value:
    x = image(g, op)
    attributes = window(g, x)
    attributes |= {
        "ceil_mode": g.choose((None, None, 0, 1)),
        "count_include_pad": g.choose((None, 0, 1)),
        "p": g.choose((None, 1, 2, 3)),
        "storage_order": g.choose((None, 0, 1)) if g.chance(0.2) else None,
    }
    outputs = 2 if op == "MaxPool" and g.chance(0.2) else 1
    return g.emit(op, [x], attributes, outputs=outputs)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", kind=WINDOW)
def global_pool(g: Growth, op: str) -> Value:
    return g.emit(op, [image(g, op)], {"p": g.choose((None, 1, 2, 3))})


@recipe("LRN", kind=WINDOW)
def lrn(g: Growth) -> Value:
    return g.emit(
        "LRN", [image(g, "LRN", 4, 4)], {"size": g.choose((1, 3, 5)), "bias": g.choose((None, 2.0))}
    )


@recipe("Resize", "Upsample", kind=WINDOW, weight=2)
def resize(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 2, 4)
    modes = (
        ("nearest", "linear", "cubic")
        if op == "Resize" and g.opset >= 11
        else ("nearest", "linear")
    )
    mode = g.choose(modes)
    scales = [1.0] * max(0, x.rank - 2) + [g.choose((1.0, 2.0, 0.5, 1.5, 3.0)) for _ in range(2)]
    values = g.constant(np.array(scales[: x.rank], np.float32))
    if op == "Upsample":
        if g.opset < 9:
            return g.emit("Upsample", [x], {"mode": mode, "scales": scales})
        return g.emit("Upsample", [x, values], {"mode": mode})
    if g.opset == 10:
        return g.emit("Resize", [x, values], {"mode": mode})
    roi = g.constant(np.zeros(0, np.float32)) if g.opset < 13 else None
    ways = (
        "half_pixel",
        "align_corners",
        "asymmetric",
        "pytorch_half_pixel",
        "half_pixel_symmetric",
    )
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": g.choose(ways[: 4 if g.opset < 19 else 5]),
        "nearest_mode": g.choose(
            (None, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        ),
        "exclude_outside": 1 if mode == "cubic" and g.chance(0.2) else None,
        "cubic_coeff_a": g.choose((None, -0.5)) if mode == "cubic" else None,
        "antialias": 1 if g.opset >= 18 and mode != "nearest" and g.chance(0.15) else None,
    }
    if g.chance(0.3) and all(x.fixed(a) for a in range(x.rank - 2)):
        sizes = [x.at(a)[0] for a in range(x.rank - 2)] + [g.choose((1, 3, 4, 8)) for _ in range(2)]
        empty = g.constant(np.zeros(0, np.float32)) if g.opset < 13 else None
        return g.emit("Resize", [x, roi, empty, g.integers(sizes[: x.rank])], attributes)
    return g.emit("Resize", [x, roi, values], attributes)


@recipe("GridSample", kind=WINDOW)
def grid_sample(g: Growth) -> Value:
    x = g.ranked(types("GridSample", g.opset), 4, 4)
    grid = g.fresh(1, along(x, (0,), 3, 4, 2))
    modes = ("bilinear", "nearest", "bicubic") if g.opset < 20 else ("linear", "nearest", "cubic")
    attributes = {
        "mode": g.choose(modes),
        "padding_mode": g.choose(("zeros", "border", "reflection")),
        "align_corners": g.choose((0, 1)),
    }
    return g.emit("GridSample", [x, grid], attributes)


@recipe("Col2Im", kind=WINDOW)
def col2im(g: Growth) -> Value:
    x = g.fresh(1, [(2, 3 * 4, 9)] * g.breadth)
    return g.emit("Col2Im", [x, g.integers([4, 4]), g.integers([2, 2])])


@recipe("RoiAlign", kind=WINDOW)
def roi_align(g: Growth) -> Value:
    x = g.ranked(types("RoiAlign", g.opset), 4, 4)
    rois = g.fresh(x.dtype, [(2, 4)] * g.breadth, Contents(positive=True))
    index = g.fresh(7, [(2,)] * g.breadth, Contents(low=(0,) * g.breadth, high=x.at(0)))
    return g.emit(
        "RoiAlign", [x, rois, index], {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
    )


# -- reductions and norms


@recipe(*REDUCTIONS, kind=REDUCTION, weight=2)
def reduce(g: Growth, op: str) -> Value:
    dtypes = types(op, g.opset)
    if op.startswith("ReduceLog"):  # of integers, onnxruntime rounds what is in between
        dtypes = tuple(d for d in dtypes if d in FLOATS)
    x = g.ranked(dtypes, 0 if g.chance(0.1) else 1, 6)
    if op == "ReduceLogSum":
        x = into_domain(g, "Log", x)
    axes = None
    if x.rank and g.chance(0.85):
        axes = g.some(range(x.rank), 1)
        axes = [a - x.rank if g.opset >= 11 and g.chance(0.3) else a for a in axes]
    attributes = {"keepdims": g.choose((None, 0, 1, 0))}
    if g.chance(0.1):
        attributes["noop_with_empty_axes"] = g.choose((0, 1))
        axes = None if g.chance(0.5) else axes
    return g.emit(op, [x], attributes, {"axes": axes})


@recipe("ArgMax", "ArgMin", kind=REDUCTION)
def arg(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 5)
    attributes = {
        "axis": g.choose((None, *range(x.rank))),
        "keepdims": g.choose((None, 0, 1)),
        "select_last_index": g.choose((None, 0, 1)),
    }
    return g.emit(op, [x], attributes)


@recipe("Softmax", "LogSoftmax", "Hardmax", "LpNormalization", kind=REDUCTION, weight=2)
def softmax(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 5)
    axis = g.rng.randint(0 if g.opset < 11 else -x.rank, x.rank - 1)
    return g.emit(op, [x], {"axis": axis if g.chance(0.85) else None, "p": g.choose((None, 1, 2))})


@recipe("CumSum", "CumProd", kind=REDUCTION)
def cumulate(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 4)
    axis = g.integers(g.rng.randint(-x.rank, x.rank - 1), g.choose((np.int64, np.int32)))
    return g.emit(op, [x, axis], {"exclusive": g.choose((None, 1)), "reverse": g.choose((None, 1))})


@recipe("TopK", kind=REDUCTION)
def top_k(g: Growth) -> Value:
    x = g.ranked(types("TopK", g.opset), 1, 4)
    axis = g.rng.randint(-x.rank if g.opset >= 11 else 0, x.rank - 1)
    if min(x.at(axis)) == 0:
        raise RefusedError
    k = g.rng.randint(1, min(x.at(axis)))
    attributes = {
        "axis": axis,
        "largest": g.choose((None, 0, 1)),
        "sorted": 1 if g.chance(0.5) else None,
    }
    if g.opset < 10:
        return g.emit("TopK", [x], {**attributes, "k": k}, outputs=2)
    return g.emit("TopK", [x, g.integers([k])], attributes, outputs=2)


@recipe("LayerNormalization", "RMSNormalization", kind=REDUCTION, weight=2)
def layer_norm(g: Growth, op: str) -> Value:
    x = g.ranked([d for d in types(op, g.opset) if d in FLOATS], 1, 5)
    axis = g.choose((-1, -1, g.rng.randint(-x.rank, x.rank - 1)))
    rest = [s[axis:] for s in x.shapes]  # type: ignore[index]
    scale = g.fresh(x.dtype, rest)
    bias = g.fresh(x.dtype, rest) if op == "LayerNormalization" and g.chance(0.6) else None
    operands = [scale, bias] if op == "LayerNormalization" else [scale]
    outputs = g.choose((1, 1, 1, 3)) if op == "LayerNormalization" else 1
    return g.emit(
        op, [x, *operands], {"axis": axis, "epsilon": g.choose((None, 0.1))}, outputs=outputs
    )


@recipe("BatchNormalization", "InstanceNormalization", kind=REDUCTION)
def batch_norm(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 3 if op[0] == "I" else 2, 5)
    shape = along(x, (1,))
    scale, bias, mean = (g.fresh(x.dtype, shape) for _ in range(3))
    if op == "InstanceNormalization":
        return g.emit(op, [x, scale, bias], {"epsilon": g.choose((None, 0.1))})
    variance = g.fresh(x.dtype, shape, Contents(positive=True))
    return g.emit(op, [x, scale, bias, mean, variance], {"epsilon": g.choose((None, 0.1))})


@recipe("GroupNormalization", kind=REDUCTION)
def group_norm(g: Growth) -> Value:
    x = g.ranked(types("GroupNormalization", g.opset), 3, 4)
    if not x.fixed(1):
        raise RefusedError
    channels = x.at(1)[0]
    groups = g.choose([f for f in range(1, channels + 1) if channels % f == 0])
    scale, bias = (
        g.fresh(x.dtype, [(channels if g.opset >= 21 else groups,)] * g.breadth) for _ in range(2)
    )
    return g.emit("GroupNormalization", [x, scale, bias], {"num_groups": groups})


@recipe("MeanVarianceNormalization", kind=REDUCTION)
def mean_variance(g: Growth) -> Value:
    x = g.ranked(types("MeanVarianceNormalization", g.opset), 4, 4)
    axes = g.some(range(4), 1) if g.chance(0.5) else None
    return g.emit("MeanVarianceNormalization", [x], {"axes": axes})


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss", kind=REDUCTION)
def loss(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 2, 4)
    if not min(x.at(1)):
        raise RefusedError
    shape = [(s[0], *s[2:]) for s in x.shapes]  # type: ignore[index,misc]
    labels = g.fresh(7, shape, Contents(low=(0,) * g.breadth, high=x.at(1)))
    weights = maybe(g, lambda: g.fresh(x.dtype, along(x, (1,)), Contents(positive=True)))
    attributes = {
        "reduction": g.choose((None, "none", "mean", "sum")),
        "ignore_index": g.choose((None, 0)),
    }
    return g.emit(op, [x, labels, weights], attributes)


@recipe("Det", kind=REDUCTION)
def det(g: Growth) -> Value:
    n = g.choose((1, 2, 3))
    return g.emit("Det", [g.fresh(1, [g.choose(((n, n), (2, n, n)))] * g.breadth)])


# -- quantisation


@recipe("QuantizeLinear", "DequantizeLinear", kind=OTHER, weight=2)
def quantize(g: Growth, op: str) -> Value:
    x = g.ranked(types(op, g.opset), 1, 4)
    axis = g.rng.randrange(x.rank)
    per_axis = g.chance(0.4) and x.fixed(axis)
    shape = (x.at(axis)[0],) if per_axis else ()
    scale = g.fresh(1, [shape] * g.breadth, Contents(positive=True))
    dtype = x.dtype if op == "DequantizeLinear" else g.choose(INT8S)
    zero = maybe(g, lambda: g.fresh(dtype, [shape] * g.breadth))
    attributes = {"axis": axis if per_axis and g.opset >= 13 else None}
    return g.emit(op, [x, scale, zero], attributes)


@recipe("QLinearMatMul", kind=PRODUCT, weight=0.7)
def qlinear_matmul(g: Growth) -> Value:
    a = g.ranked(INT8S, 2, 3)
    if 0 in a.at(-1):
        raise RefusedError  # onnxruntime leaves the result as it finds it
    b = g.fresh(g.choose(INT8S), along(a, (-1,), 5))
    return g.emit("QLinearMatMul", [a, *_scales(g, a), b, *_scales(g, b), *_scales(g, a)])


@recipe("QLinearConv", kind=WINDOW, weight=0.7)
def qlinear_conv(g: Growth) -> Value:
    x = g.ranked(INT8S, 4, 4)
    if not x.fixed(1) or 0 in x.at(1):
        raise RefusedError  # onnxruntime leaves the sum of nothing as it finds it
    attributes = window(g, x)
    w = g.fresh(x.dtype, [(3, x.at(1)[0], *attributes["kernel_shape"])] * g.breadth)
    return g.emit("QLinearConv", [x, *_scales(g, x), w, *_scales(g, w), *_scales(g, x)], attributes)


def _scales(g: Growth, x: Value) -> tuple[Value, Value]:
    scale = g.constant(np.array(g.choose((0.5, 0.1, 1.0)), np.float32))
    kind = np.int8 if x.dtype == 3 else np.uint8
    return scale, g.constant(np.array(g.choose((0, 1, 5)), kind))


# -- recurrent, attention, the rest


@recipe("LSTM", "GRU", "RNN", kind=OTHER, weight=2)
def recurrent(g: Growth, op: str) -> Value:
    x = g.ranked((1,), 3, 3)
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


@recipe("Attention", kind=PRODUCT, weight=1.5)
def attention(g: Growth) -> Value:
    dtype = g.choose((1, 1, 10))
    q = g.fresh(dtype, [(2, 4, *g_seq, 8) for g_seq in zip(_seq(g), strict=True)])
    heads = g.choose((4, 2, 1))
    kv = [(2, heads, n, 8) for n in _seq(g)]
    k, v = g.fresh(dtype, kv), g.fresh(dtype, kv)
    mask = None
    if g.chance(0.4):
        mask = g.fresh(
            g.choose((dtype, 9)), [(a[2], b[2]) for a, b in zip(q.shapes, kv, strict=True)]
        )  # type: ignore[index]
    attributes = {
        "is_causal": g.choose((None, 0, 1)),
        "scale": g.choose((None, 0.5)),
        "softcap": g.choose((None, None, 2.0)),
    }
    return g.emit("Attention", [q, k, v, mask], attributes)


def _seq(g: Growth) -> tuple[int, ...]:
    _, extents = g.dim()
    return tuple(max(1, e) for e in extents)


@recipe("RotaryEmbedding", kind=OTHER)
def rotary(g: Growth) -> Value:
    n = _seq(g)
    x = g.fresh(1, [(2, 3, s, 8) for s in n])
    cos, sin = (g.fresh(1, [(2, s, 4) for s in n]) for _ in range(2))
    return g.emit("RotaryEmbedding", [x, cos, sin], {"interleaved": g.choose((None, 0, 1))})


@recipe("Range", kind=OTHER)
def range_(g: Growth) -> Value:
    dtype = g.choose((7, 1, 6))
    kind = {7: np.int64, 6: np.int32, 1: np.float32}[dtype]
    start, step = g.choose((0, 1, -2)), g.choose((1, 2, -1))
    limit = start + step * g.choose((0, 1, 5, 7))
    return g.emit("Range", [g.constant(np.array(v, kind)) for v in (start, limit, step)])


@recipe("ConstantOfShape", kind=OTHER)
def constant_of_shape(g: Growth) -> Value:
    import onnx

    x = g.pick((1, 7), lambda v: v.rank <= 4)
    value = onnx.numpy_helper.from_array(
        np.array([g.choose((0, 1, 2.5))], g.choose((np.float32, np.int64)))
    )
    return g.emit(
        "ConstantOfShape", [g.emit("Shape", [x])], {"value": value if g.chance(0.8) else None}
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
    return g.emit(op, [g.integers(g.choose((1, 5, 8)))], {"periodic": g.choose((None, 0, 1))})


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


def size(shape: Shape) -> int:
    return math.prod(d or 0 for d in shape)
