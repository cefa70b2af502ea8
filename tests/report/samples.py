"""Reports made by hand: what a transformer of some layers looks like, without a model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from dvm_graph.report.report import Operator, Report, Subgraph, SubgraphKind, Tensor
from dvm_graph.rules.verdicts import Decision, Verdict

WIDTH = 768
_NORM = [
    "reduce_sum",
    "mul",
    "sub",
    "mul",
    "reduce_sum",
    "mul",
    "add",
    "rsqrt",
    "mul",
    "mul",
    "add",
]
_GELU = ["matmul", "add", "mul", "erf", "add", "mul", "mul"]
_SOFTMAX = ["mul", "add", "reduce_max", "sub", "exp", "reduce_sum", "div", "isnan", "select"]


def tensor(name: str, *shape: int | str) -> Tensor:
    return Tensor(name, "f32", shape or ("batch", "seq", WIDTH))


def subgraph(
    name: str,
    ops: list[str],
    inputs: list[Tensor],
    output: Tensor,
    *,
    kind: SubgraphKind = SubgraphKind.VECTOR,
    scope: str = "",
    launch: int = 0,
    stage: int = 0,
    verdict: Verdict | None = Verdict.PATTERN,
) -> Subgraph:
    return Subgraph(
        name=name,
        kind=kind,
        operators=tuple(
            Operator(
                f"{output.name}.{op}.{i}",
                op,
                op in ("reshape", "transpose"),
                (f"node_{output.name}",),
            )
            for i, op in enumerate(ops)
        ),
        inputs=tuple(inputs),
        outputs=(output,),
        constants=(Tensor(f"{output.name}.weight", "f32", (WIDTH, WIDTH)),)
        if "matmul" in ops
        else (),
        constant_bytes=WIDTH * WIDTH * 4 if "matmul" in ops else 0,
        verdict=verdict if len(ops) > 1 else None,
        reason="vector (9 times)" if len(ops) > 1 else "one operator, fused with no neighbour",
        symbols=(),
        scope=scope,
        launch=launch,
        stage=stage,
    )


def transformer(layers: int) -> Report:
    """An encoder: embeddings, then layers of twelve kernels, all in launches of up to 64 stages."""
    found: list[Subgraph] = []
    stage = 0

    def add(name: str, ops: list[str], inputs: list[Tensor], *shape: int | str,
            kind: SubgraphKind = SubgraphKind.VECTOR, scope: str = "", same_stage: bool = False) -> Tensor:  # fmt: skip
        nonlocal stage
        stage += not same_stage
        out = tensor(f"{scope}.{name}", *shape)
        found.append(
            subgraph(f"{name}.{len(found)}", ops, inputs, out, kind=kind, scope=scope,
                     launch=stage // 64, stage=stage % 64)
        )  # fmt: skip
        return out

    ids, mask_in = (
        Tensor("input_ids", "i64", ("batch", "seq")),
        Tensor("attention_mask", "i64", ("batch", "seq")),
    )
    mask = add("mask", ["cast", "sub", "mul"], [mask_in], "batch", 1, "seq", "seq")
    x = add("embedding", ["gather", "add", "gather", "add", *_NORM], [ids], scope="embeddings")
    for number in range(layers):
        scope = f"encoder.layer.{number}"
        x = _layer(add, scope, x, mask)
    last = add(
        "pooler",
        ["matmul", "add", "tanh"],
        [x],
        "batch",
        WIDTH,
        kind=SubgraphKind.MIX,
        scope="pooler",
    )
    decisions = tuple(
        Decision(f"{a.operators[-1].name} -> {b.operators[0].name}", Verdict.SEQUENCE,
                 "no pattern fuses vector into cube")
        for a, b in pairwise(found)
    )  # fmt: skip
    return Report(
        inputs=(ids, mask_in),
        outputs=(x, last),
        subgraphs=tuple(found),
        decisions=decisions,
        symbols=("batch", "seq"),
        basic_operators=sum(len(s.operators) for s in found),
        launches=stage // 64 + 1,
        constant_bytes=sum(s.constant_bytes for s in found),
    )


def _layer(add: Callable[..., Tensor], scope: str, x: Tensor, mask: Tensor) -> Tensor:
    mix, cube = SubgraphKind.MIX, SubgraphKind.CUBE
    heads = ("batch", 12, "seq", 64)
    at = f"{scope}.attention.self"
    q, k, v = (
        add(
            n,
            ["matmul", "add", "reshape", "transpose"],
            [x],
            *heads,
            kind=mix,
            scope=at,
            same_stage=n != "query",
        )
        for n in ("query", "key", "value")
    )
    scores = add("scores", ["matmul"], [q, k], "batch", 12, "seq", "seq", kind=cube, scope=at)
    soft = add("softmax", _SOFTMAX, [scores, mask], "batch", 12, "seq", "seq", scope=at)
    context = add("context", ["matmul"], [soft, v], *heads, kind=cube, scope=at)
    at = f"{scope}.attention.output"
    dense = add(
        "dense", ["transpose", "reshape", "matmul", "add", "add"], [context, x], kind=mix, scope=at
    )
    normed = add("norm", _NORM, [dense], scope=at)
    wide = add(
        "gelu", _GELU, [normed], "batch", "seq", 4 * WIDTH, kind=mix, scope=f"{scope}.intermediate"
    )
    narrow = add(
        "shrink", ["matmul", "add", "add"], [wide, normed], kind=mix, scope=f"{scope}.output"
    )
    return add("norm", _NORM, [narrow], scope=f"{scope}.output")
