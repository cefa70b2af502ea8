"""Whether operands are such that a node may be decomposed: of known ranks, of types that its operator is defined for, and
that kernels compute with; or sequences, strings and constants where a decomposition takes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from dvm_graph.decompose.host import HOST_OPERATORS
from dvm_graph.decompose.registry import Decomposition, accepts
from dvm_graph.import_ import takes
from dvm_graph.ir import DType, Node, Value

_UINT64_OPERATORS = (
    "Cast CastLike Add Sub Mul Equal Sum Identity Where Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile "
    "Slice Split Concat Pad Gather GatherND GatherElements Shape Size DepthToSpace SpaceToDepth "
    "ConstantOfShape BitwiseAnd BitwiseOr BitwiseXor BitwiseNot"
)
"""What is right on 64-bit integers whichever way their sign bit is read: kernels compute uint64 as
int64."""


def given_to(function: Decomposition, node: Node, operands: Sequence[Value | None]) -> bool:
    """Whether a decomposition of sequences, of strings, or of constants of any type, takes such operands."""
    return accepts(function, operands) and takes(node, operands)


def computable(node: Node, operands: Sequence[Value | None]) -> bool:
    """Whether the node's operands are of known ranks and of types that the operator is defined for, and
    that kernels compute with.
    """
    unsigned = False
    for value in operands:
        if value is None:
            continue
        if not value.computable:
            return False
        unsigned |= value.dtype is DType.UINT64
    if node.regions or not takes(node, operands):
        return False
    return not unsigned or node.op in (*_UINT64_OPERATORS.split(), *HOST_OPERATORS)
