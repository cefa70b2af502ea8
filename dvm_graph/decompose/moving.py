"""Operators that only move elements, or choose among them, done on bytes before they are dequantised.

So a QuantizeLinear or a product behind them sees what the bytes stand for, and nothing is computed between.
"""

from __future__ import annotations

import numpy as np

from dvm_graph.decompose.casts import dequantized_by
from dvm_graph.decompose.meanings import Dequantized, dequantized, moderate, same
from dvm_graph.decompose.operands import text
from dvm_graph.decompose.registry import Decomposition, Operands, Results
from dvm_graph.ir import Node, Value
from dvm_graph.symbolic.builder import Builder

MOVERS = frozenset(
    [
        "DepthToSpace",
        "Expand",
        "Flatten",
        "Gather",
        "Identity",
        "Reshape",
        "Slice",
        "SpaceToDepth",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    ]
)
"""Of the elements of their first operand."""


def moved(builder: Builder, node: Node, operands: Operands, function: Decomposition) -> Results:
    """The results of an operator that moves dequantised bytes; None: it is none such."""
    if node.domain or not operands or not _moves(node):
        return None
    meaning = dequantized(builder, operands[0])
    if meaning is None or not meaning.per_tensor():
        return None
    if node.op == "MaxPool" and not _keeps_order(meaning):
        return None
    parts: list[Value | None] = list(operands)
    parts[0] = meaning.x
    if node.op == "Concat":
        others = [dequantized(builder, operand) for operand in operands]
        if not all(other is not None and _alike(meaning, other) for other in others):
            return None
        parts = [other.x for other in others if other is not None]
    results = function(builder, node, parts)
    if results is None:
        return None
    return [None if y is None else dequantized_by(builder, y, meaning) for y in results]


def _moves(node: Node) -> bool:
    if node.op == "MaxPool":  # where every window has elements, whose numbers nobody asks for
        dilated = any(dilation != 1 for dilation in node.attrs.get("dilations", ()))
        return not dilated and not any(output.name for output in node.outputs[1:])
    if node.op == "Resize":
        cropped = text(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize"
        return text(node, "mode", "nearest") == "nearest" and not cropped
    return node.op in MOVERS or node.op == "Concat"


def _keeps_order(meaning: Dequantized) -> bool:
    """Whether the greatest of floats stand for the greatest bytes."""
    scale = meaning.scale.data
    return scale is not None and moderate(scale) and bool(np.all(np.asarray(scale) > 0))


def _alike(a: Dequantized, b: Dequantized) -> bool:
    return a.x.dtype is b.x.dtype and same(a, b.scale, b.zero)
