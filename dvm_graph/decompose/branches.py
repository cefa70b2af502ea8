"""Which branches of an `If` are computed whether they are taken or not, and then chosen from.

In: what the two branches were decomposed to. Out: whether a `select` may stand for the `If`. Then the
branches fuse with what surrounds them, and no host decision interrupts the run.

Both branches run on every element, so they have to be cheap next to the memory traffic, free of
traps, and read about the same tensors. A branch may also not demand anything of dims: a run must not
fail for a branch that it does not take.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dvm_graph.ir import OPERATORS, Kind, Node, Value

MAX_BRANCH_NODES = 32
"""ONNX nodes of one branch."""
MAX_COMPUTED = 16
"""Element-wise operators of both branches together: their time hides behind memory's."""
MAX_SPARE_READS = 1
"""Tensors read beside those that the branch with more of them reads."""


def may_speculate(nodes: Collection[Node], results: Sequence[Sequence[Value]]) -> bool:
    """Whether the operators of both branches, with these results per branch, may always run."""
    if not all(_harmless(node) for node in nodes):
        return False
    if sum(OPERATORS[node.op].kind is Kind.MAP for node in nodes) > MAX_COMPUTED:
        return False
    reads = [_tensors_read(branch, nodes) for branch in results]
    return len(set().union(*reads)) - max(map(len, reads)) <= MAX_SPARE_READS


def _harmless(node: Node) -> bool:
    kind = OPERATORS[node.op].kind
    if kind is Kind.VIEW:
        return node.op != "concat"  # which copies
    return kind is Kind.SOURCE or (kind is Kind.MAP and node.op != "check_index")  # which traps


def _tensors_read(results: Sequence[Value], nodes: Collection[Node]) -> set[Value]:
    """Values from outside the branches that results depend on, constants and scalars left out."""
    inside, read = set(nodes), set()
    pending, seen = list(results), set(results)
    while pending:
        value = pending.pop()
        if value.producer in inside:
            operands = {v for v in value.producer.inputs if v is not None} - seen
            seen |= operands
            pending += operands
        elif not value.is_constant and value.rank:
            read.add(value)
    return read
