"""Vendor operators of constants, computed by the vendor library while the model is compiled.

In: a `vendor` node whose operands are constants. Out: its results, for `passes/fold_constants.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from dvm_graph.errors import UnsupportedError
from dvm_graph.import_ import vendor_library
from dvm_graph.import_.loading import default_domain
from dvm_graph.import_.partition import partition_model
from dvm_graph.import_.schemas import signature
from dvm_graph.ir import Array, DType, Node
from dvm_graph.process import vendor_failures


def compute_vendor(node: Node) -> Sequence[Array] | None:
    """None: each run has other results, or they are no tensors of numbers, or the run shall say what is wrong with it."""
    if node.regions or not _is_deterministic(node):
        return None
    if any(value.dtype is DType.OPAQUE for value in node.outputs):
        return None
    try:
        results = vendor_library.compute(partition_model([node], [], node.outputs))
    except UnsupportedError:
        return None
    except vendor_failures():
        return None
    as_deduced = all(
        data.dtype == value.dtype.numpy and data.shape == value.shape
        for value, data in zip(node.outputs, results, strict=True)
    )
    return results if as_deduced else None


def _is_deterministic(node: Node) -> bool:
    """As far as onnx knows the operator."""
    proto = onnx.NodeProto.FromString(node.source)
    schema = signature(proto.op_type, default_domain(proto.domain), node.version)
    determinism = None if schema is None else getattr(schema.definition, "node_determinism", None)
    return determinism is not None and determinism.name == "Deterministic"
