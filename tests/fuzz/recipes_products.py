"""Matrix products, of floats, integers and quantised numbers, and attention."""

from __future__ import annotations

from tests.fuzz.growth import FLOATS, Growth, RefusedError, Value
from tests.fuzz.operands import INT8S, along, maybe, met, scales
from tests.fuzz.registry import PRODUCT, recipe, types


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
        batch = g.part([s[:-2] for s in a.shapes]) if g.chance(0.3) else [()] * g.breadth
        b = g.fresh(a.dtype, [(*p, s[-1], n) for p, s in zip(batch, a.shapes, strict=True)])
        if g.chance(0.1):
            b = g.fresh(a.dtype, [(s[-1],) for s in a.shapes])
    if g.chance(0.2) and b.known and b.rank >= 2 and b.at(-1) == a.at(-2 if a.rank > 1 else -1):
        a, b = b, a
    product = g.emit("MatMul", [a, b])
    if not b.known:
        return product
    return met(g, product, lambda: g.emit("MatMul", [a, g.fresh(b.dtype, b.shapes)]))


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
    attributes = {"transA": left or None, "transB": right or None, **scale}
    product = g.emit("Gemm", [a, b, c], attributes)
    return met(g, product, lambda: g.emit("Gemm", [a, g.fresh(b.dtype, b.shapes), c], attributes))


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
            (f"{letters},{letters}->{letters}", [tuple(s) for s in a.shapes]),
            (f"{letters},{letters}->{letters[0]}", [tuple(s) for s in a.shapes]),
            (f"...{last},{last}d->...d", along(a, (-1,), 3)),
            (f"{letters},{last}d", along(a, (-1,), 3)),
        )
    )
    operands = [a] if shapes is None else [a, g.fresh(a.dtype, shapes)]
    return g.emit("Einsum", operands, {"equation": equation})


@recipe("QLinearMatMul", kind=PRODUCT, weight=0.7)
def qlinear_matmul(g: Growth) -> Value:
    a = g.ranked(INT8S, 2, 3)
    if 0 in a.at(-1):
        raise RefusedError  # onnxruntime leaves the result as it finds it
    b = g.fresh(g.choose(INT8S), along(a, (-1,), 5))
    return g.emit("QLinearMatMul", [a, *scales(g, a), b, *scales(g, b), *scales(g, a)])
