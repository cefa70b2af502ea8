"""onnx's shape inference, asked only what it survives.

In: the model of a partition. Out: the same with the types of its values. onnx reads the types of some
operators' operands without looking whether there are any (`EyeLike` with a dtype, `RegexFullMatch`), which
ends the process: a model of which onnx cannot know all types is not shown to it.
"""

from __future__ import annotations

import onnx

from dvm_graph.import_.loading import default_domain, every_node, opset_versions


def infer_shapes(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.ModelProto | None:
    """None: it has values whose types onnx cannot know.

    Raises:
        InferenceError, RuntimeError: onnx's.
    """
    if not _all_typed(model):
        return None
    return onnx.shape_inference.infer_shapes(model, strict_mode=False, data_prop=data_prop)


def _all_typed(model: onnx.ModelProto) -> bool:
    """Whether inputs have types, and onnx knows every operator where some read what others give."""
    if any(info.type.WhichOneof("value") is None for info in model.graph.input):
        return False
    nodes = list(every_node(model.graph.node))
    versions = opset_versions(model.opset_import)
    return len(nodes) == 1 or all(_is_known(node, versions) for node in nodes)


def _is_known(node: onnx.NodeProto, versions: dict[str, int]) -> bool:
    domain = default_domain(node.domain)
    return onnx.defs.has(node.op_type, versions.get(domain, 1), domain)
