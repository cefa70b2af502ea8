"""Decoders of large language models without weights: every weight is an input, so that nothing holds its contents.

In: a name. Out: an ONNX model of the prefill in f16, with dims batch and seq, to simulate from shapes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import parser


@dataclass(frozen=True, slots=True)
class Decoder:
    layers: int
    width: int
    heads: int
    groups: int
    """Of heads that share keys and values."""
    head: int
    inner: int
    vocabulary: int
    normalised: bool
    """Queries and keys of each head go through a norm of their own."""


DECODERS: Mapping[str, Decoder] = {
    "llama-3.1-8b": Decoder(32, 4096, 32, 8, 128, 14336, 128256, False),
    "qwen3-14b": Decoder(40, 5120, 40, 8, 128, 17408, 151936, True),
}

_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def decoder(name: str, layers: int | None = None) -> onnx.ModelProto:
    """The model, or its first layers."""
    described = DECODERS[name]
    inputs = ["int64[batch,seq] ids", "float16[seq,seq] mask"]
    inputs += [f"float16[seq,{described.head}] {name}" for name in ("cosine", "sine")]
    lines = list(_lines(described, layers or described.layers, inputs))
    text = f"{_HEAD}decoder ({', '.join(inputs)}) => (float16[batch,seq,{described.vocabulary}] logits) {{\n"
    return parser.parse_model(text + "\n".join(lines) + "\n}")


def _lines(d: Decoder, layers: int, inputs: list[str]) -> Iterator[str]:
    def weight(name: str, *extents: int) -> str:
        inputs.append(f"float16[{','.join(map(str, extents))}] {name}")
        return name

    repeated = d.heads // d.groups
    half = d.head // 2
    constants = {
        "queries": [0, 0, d.groups, repeated, d.head],
        "keys": [0, 0, d.groups, 1, d.head],
        "together": [0, 0, d.heads * d.head],
        "last": [-1],
        "zero": [0],
        "middle": [half],
        "end": [d.head],
        "fourth": [4],
    }
    for name, values in constants.items():
        yield f"{name} = Constant<value_ints = [{', '.join(map(str, values))}]>()"
    for name, value in (("tiny32", 1e-6), ("scale32", d.head**-0.5)):
        yield f"{name} = Constant<value_float = {value:.9f}>()"
    yield "tiny = Cast<to = 10>(tiny32)"
    yield "scale = Cast<to = 10>(scale32)"
    yield f"x0 = Gather({weight('embedding', d.vocabulary, d.width)}, ids)"

    def norm(x: str, out: str, extent: int) -> Iterator[str]:
        yield f"{out}_squares = Mul({x}, {x})"
        yield f"{out}_mean = ReduceMean<axes = [-1]>({out}_squares)"
        yield f"{out}_shifted = Add({out}_mean, tiny)"
        yield f"{out}_root = Sqrt({out}_shifted)"
        yield f"{out}_normal = Div({x}, {out}_root)"
        yield f"{out} = Mul({out}_normal, {weight(f'{out}_gain', extent)})"

    def rotate(x: str, out: str) -> Iterator[str]:
        yield f"{out}_low = Slice({x}, zero, middle, fourth)"
        yield f"{out}_high = Slice({x}, middle, end, fourth)"
        yield f"{out}_minus = Neg({out}_high)"
        yield f"{out}_turned = Concat<axis = 4>({out}_minus, {out}_low)"
        yield f"{out}_a = Mul({x}, cosine)"
        yield f"{out}_b = Mul({out}_turned, sine)"
        yield f"{out} = Add({out}_a, {out}_b)"

    for i in range(layers):
        p = f"l{i}_"
        yield from norm(f"x{i}", f"{p}n", d.width)
        for part, heads, shape in (
            ("q", d.heads, "queries"),
            ("k", d.groups, "keys"),
            ("v", d.groups, "keys"),
        ):
            yield f"{p}{part}0 = MatMul({p}n, {weight(f'{p}w{part}', d.width, heads * d.head)})"
            yield f"{p}{part}1 = Reshape({p}{part}0, {shape})"
            if d.normalised and part != "v":
                yield from norm(f"{p}{part}1", f"{p}{part}2", d.head)
            else:
                yield f"{p}{part}2 = Identity({p}{part}1)"
            yield f"{p}{part}3 = Transpose<perm = [0, 2, 3, 1, 4]>({p}{part}2)"
        yield from rotate(f"{p}q3", f"{p}q")
        yield from rotate(f"{p}k3", f"{p}k")
        yield f"{p}kt = Transpose<perm = [0, 1, 2, 4, 3]>({p}k)"
        yield f"{p}s0 = MatMul({p}q, {p}kt)"
        yield f"{p}s1 = Mul({p}s0, scale)"
        yield f"{p}s2 = Add({p}s1, mask)"
        yield f"{p}p = Softmax<axis = -1>({p}s2)"
        yield f"{p}c0 = MatMul({p}p, {p}v3)"
        yield f"{p}c1 = Transpose<perm = [0, 3, 1, 2, 4]>({p}c0)"
        yield f"{p}c2 = Reshape({p}c1, together)"
        yield f"{p}o = MatMul({p}c2, {weight(f'{p}wo', d.heads * d.head, d.width)})"
        yield f"{p}y = Add(x{i}, {p}o)"
        yield from norm(f"{p}y", f"{p}m", d.width)
        yield f"{p}g = MatMul({p}m, {weight(f'{p}wg', d.width, d.inner)})"
        yield f"{p}u = MatMul({p}m, {weight(f'{p}wu', d.width, d.inner)})"
        yield f"{p}sg = Sigmoid({p}g)"
        yield f"{p}act = Mul({p}g, {p}sg)"
        yield f"{p}h = Mul({p}act, {p}u)"
        yield f"{p}d = MatMul({p}h, {weight(f'{p}wd', d.inner, d.width)})"
        yield f"x{i + 1} = Add({p}y, {p}d)"
    yield from norm(f"x{layers}", "final", d.width)
    yield f"logits = MatMul(final, {weight('head', d.width, d.vocabulary)})"
