"""Names of fused subgraphs, from the operators that characterise them."""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.ir import Node

_MAX_PARTS = 4
_TELLING = [
    "matmul",
    "gather",
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "erf",
    "tanh",
    "exp",
    "log",
    "sigmoid",
    "rsqrt",
    "sqrt",
    "sin",
    "cos",
    "pow",
    "select",
    "iota",
    "transpose",
    "view",
    "slice",
    "concat",
]


def stem_of(nodes: Sequence[Node]) -> str:
    """A short name for a group of operators, deterministic."""
    ops = dict.fromkeys(node.op for node in nodes)
    if {"reduce_max", "reduce_sum", "exp"} <= ops.keys() and "matmul" not in ops:
        return "softmax"
    telling = [op for op in ops if op in _TELLING]
    parts = telling or list(ops)
    if parts == ["matmul"] and len(ops) > 1:
        parts = ["matmul", *[op for op in ops if op != "matmul" and op != "reshape"]]
    return "_".join(parts[:_MAX_PARTS])
