"""Operators of `ai.onnx.ml`, in which pipelines of scikit-learn are exported: those in front of networks.

Others, ensembles of trees above all, are the vendor library's (`import_.ranks` knows the ranks of what they give).
"""

from __future__ import annotations

import numpy as np

from dvm_graph.decompose.operands import required, shape_of
from dvm_graph.decompose.registry import CLASSICAL, Operands, Results, decomposition
from dvm_graph.ir import DType, Node
from dvm_graph.symbolic.builder import Builder


@decomposition("Scaler", domain=CLASSICAL)
def scaler(builder: Builder, node: Node, operands: Operands) -> Results:
    """`(x - offset) * scale`, of each feature or of all alike."""
    x, facts = required(node, operands, 0), builder.facts
    offset, scale = (np.array(node.attrs.get(n, ()), np.float32) for n in ("offset", "scale"))
    if x.dtype is not DType.FLOAT32 or x.rank not in (1, 2) or offset.size != scale.size:
        return None
    features = shape_of(x)[-1]
    if offset.size != 1 and not facts.prove_equal(features, offset.size).yes:
        if offset.size == 0 or facts.prove_equal(features, offset.size).no:
            return None
        facts.assume_equal(features, offset.size, f"{node.name} scales as many features")
    shifted = builder.sub(x, builder.constant(offset))
    return [builder.mul(shifted, builder.constant(scale))]
