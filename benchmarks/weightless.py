"""The paper's models without weights: every weight is an input, so that nothing holds its contents.

In: a name. Out: an ONNX model to simulate from shapes alone: the prefill of a decoder in f16, with dims batch and seq; the
encoder BERT-base in f32, with the same; the recommender MMoE in f32, with dim batch.
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

MODELS = ("bert-base", "mmoe", *DECODERS)
_HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'


def weightless(name: str) -> onnx.ModelProto:
    """The model of that name, all of it."""
    if name == "bert-base":
        return _encoder(12, 768, 12, 3072, 30522)
    return _recommender(47104, 8, (512, 256), 2) if name == "mmoe" else decoder(name)


class _Graph:
    """Inputs and lines of a graph in f32, as text."""

    def __init__(self, *inputs: str) -> None:
        self.inputs = list(inputs)
        self.lines: list[str] = []

    def input(self, name: str, *extents: object) -> str:
        self.inputs.append(f"float[{','.join(map(str, extents))}] {name}")
        return name

    def add(self, *lines: str) -> None:
        self.lines += lines

    def linear(self, x: str, out: str, width: int, columns: int) -> str:
        """X times a matrix, plus a bias."""
        self.add(
            f"{out}_p = MatMul({x}, {self.input(f'{out}_w', width, columns)})",
            f"{out} = Add({out}_p, {self.input(f'{out}_b', columns)})",
        )
        return out

    def norm(self, x: str, out: str, width: int) -> str:
        gain, shift = (self.input(f"{out}_{part}", width) for part in ("gain", "shift"))
        self.add(f"{out} = LayerNormalization<axis = -1, epsilon = 1e-12>({x}, {gain}, {shift})")
        return out

    def model(self, outputs: str) -> onnx.ModelProto:
        lines = "\n".join(self.lines)
        return parser.parse_model(
            f"{_HEAD}weightless ({', '.join(self.inputs)}) => ({outputs}) {{\n{lines}\n}}"
        )


def _encoder(layers: int, width: int, heads: int, inner: int, vocabulary: int) -> onnx.ModelProto:
    """BERT's (Devlin et al. 2019), from tokens to the last layer's states."""
    graph = _Graph("int64[batch,seq] ids", "float[batch,1,1,seq] mask")
    graph.add(
        f"heads = Constant<value_ints = [0, 0, {heads}, {width // heads}]>()",
        f"together = Constant<value_ints = [0, 0, {width}]>()",
        f"scale = Constant<value_float = {(width // heads) ** -0.5:.9f}>()",
        "half = Constant<value_float = 0.5>()",
        "root = Constant<value_float = 0.70710678>()",
        "one = Constant<value_float = 1.0>()",
        f"tokens = Gather({graph.input('embedding', vocabulary, width)}, ids)",
        f"placed = Add(tokens, {graph.input('positions', 'seq', width)})",
    )
    x = graph.norm("placed", "x0", width)
    for i in range(layers):
        p = f"l{i}_"
        for part in "qkv":
            graph.linear(x, f"{p}{part}0", width, width)
            graph.add(
                f"{p}{part}1 = Reshape({p}{part}0, heads)",
                f"{p}{part} = Transpose<perm = [0, 2, 1, 3]>({p}{part}1)",
            )
        graph.add(
            f"{p}kt = Transpose<perm = [0, 1, 3, 2]>({p}k)",
            f"{p}s0 = MatMul({p}q, {p}kt)",
            f"{p}s1 = Mul({p}s0, scale)",
            f"{p}s2 = Add({p}s1, mask)",
            f"{p}s = Softmax<axis = -1>({p}s2)",
            f"{p}c0 = MatMul({p}s, {p}v)",
            f"{p}c1 = Transpose<perm = [0, 2, 1, 3]>({p}c0)",
            f"{p}c = Reshape({p}c1, together)",
            f"{p}a = Add({x}, {graph.linear(f'{p}c', f'{p}o', width, width)})",
        )
        middle = graph.norm(f"{p}a", f"{p}n", width)
        graph.linear(middle, f"{p}u", width, inner)
        graph.add(  # GELU
            f"{p}e0 = Mul({p}u, root)",
            f"{p}e1 = Erf({p}e0)",
            f"{p}e2 = Add({p}e1, one)",
            f"{p}e3 = Mul({p}u, {p}e2)",
            f"{p}e = Mul({p}e3, half)",
            f"{p}f = Add({middle}, {graph.linear(f'{p}e', f'{p}d', inner, width)})",
        )
        x = graph.norm(f"{p}f", f"x{i + 1}", width)
    return graph.model(f"float[batch,seq,{width}] {x}")


def _recommender(
    features: int, experts: int, widths: tuple[int, int], tasks: int
) -> onnx.ModelProto:
    """MMoE (Ma et al. 2018), as `models/families/recommendation.py` has it, with all of the paper's features."""
    hidden, out = widths
    graph = _Graph(f"float[batch,{features}] x")
    graph.add("middle = Constant<value_ints = [1]>()", "last = Constant<value_ints = [2]>()")
    for e in range(experts):
        graph.linear("x", f"e{e}_u", features, hidden)
        graph.add(f"e{e}_r = Relu(e{e}_u)")
        graph.linear(f"e{e}_r", f"e{e}_v", hidden, out)
        graph.add(f"e{e}_s = Relu(e{e}_v)", f"e{e} = Unsqueeze(e{e}_s, middle)")
    graph.add(f"all = Concat<axis = 1>({', '.join(f'e{e}' for e in range(experts))})")
    for t in range(tasks):
        p = f"t{t}_"
        graph.add(
            f"{p}g0 = MatMul(x, {graph.input(f'{p}w', features, experts)})",
            f"{p}g1 = Softmax<axis = -1>({p}g0)",
            f"{p}g = Unsqueeze({p}g1, last)",
            f"{p}m0 = Mul({p}g, all)",
            f"{p}m = ReduceSum<keepdims = 0>({p}m0, middle)",
        )
        graph.linear(f"{p}m", f"{p}h0", out, out // 2)
        graph.add(
            f"{p}h = Relu({p}h0)", f"{p} = Sigmoid({graph.linear(f'{p}h', f'{p}z', out // 2, 1)})"
        )
    return graph.model(", ".join(f"float[batch,1] t{t}_" for t in range(tasks)))


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
