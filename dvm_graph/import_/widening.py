"""Casts around operators for whose element types onnxruntime has no kernel.

In: the model of a vendor partition. Out: the same with Cast nodes, so that each operator gets a wider
type that holds all values of its own, where the standard and a kernel of onnxruntime allow one. Bodies
of control flow are gone through as well. A half is computed in float and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper

from dvm_graph.import_ import vendor_library
from dvm_graph.import_.loading import default_domain
from dvm_graph.import_.onnx_inference import infer_shapes
from dvm_graph.import_.schemas import Signature, signature
from dvm_graph.import_.tensors import element_name

_WIDER: dict[str, tuple[str, ...]] = {
    "bfloat16": ("float", "double"),
    "float16": ("float", "double"),
    "float": ("double",),
    "float8e4m3fn": ("float16", "float"),
    "float8e4m3fnuz": ("float16", "float"),
    "float8e5m2": ("float16", "float"),
    "float8e5m2fnuz": ("float16", "float"),
    "int2": ("int8", "int32"),
    "int4": ("int8", "int32"),
    "uint2": ("uint8", "int32"),
    "uint4": ("uint8", "int32"),
    "int8": ("int16", "int32", "int64"),
    "uint8": ("int16", "uint16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "uint16": ("int32", "int64"),
    "int32": ("int64",),
    "uint32": ("int64",),
    "bool": ("uint8", "int32", "int64"),
}
"""By the names of ONNX's element types: types that hold all their values, narrow ones first."""
_TYPE_ATTRIBUTES = ("dtype", "to", "output_dtype")
_REDUCING_SCATTERS = ("ScatterElements", "ScatterND")
"""Their kernels are registered for all types, and refuse some at the run where they reduce."""


def widen(model: onnx.ModelProto) -> list[str]:
    """Inserts the casts; says for each operator what is computed as what."""
    try:
        inferred = infer_shapes(model)
    except (onnx.shape_inference.InferenceError, RuntimeError):
        return []
    if inferred is None:
        return []
    opsets = {default_domain(entry.domain): entry.version for entry in model.opset_import}
    widening = _Widening(opsets)
    widening.graph(model.graph, inferred.graph, {})
    return widening.notes


class _Widening:
    def __init__(self, opsets: Mapping[str, int]) -> None:
        self._opsets = opsets
        self.notes: list[str] = []

    def graph(
        self, graph: onnx.GraphProto, inferred: onnx.GraphProto, outer: Mapping[str, int]
    ) -> None:
        """`inferred` is the same graph with the types of its values."""
        types = {**outer, **{tensor.name: tensor.data_type for tensor in graph.initializer}}
        for info in (*inferred.input, *inferred.value_info, *inferred.output):
            if info.type.HasField("tensor_type"):
                types[info.name] = info.type.tensor_type.elem_type
        nodes: list[onnx.NodeProto] = []
        for node, typed in zip(graph.node, inferred.node, strict=True):
            for attribute, typed_attribute in zip(node.attribute, typed.attribute, strict=True):
                if attribute.HasField("g"):
                    self.graph(attribute.g, typed_attribute.g, types)
            nodes += self._widened(node, types)
        del graph.node[:]
        graph.node.extend(nodes)

    def _widened(self, node: onnx.NodeProto, types: Mapping[str, int]) -> Sequence[onnx.NodeProto]:
        domain = default_domain(node.domain)
        schema = signature(node.op_type, domain, self._opsets.get(domain, 1))
        if schema is None:
            return [node]
        inputs = _formals(schema.input_types, len(node.input))
        outputs = _formals(schema.output_types, len(node.output))
        bound = {
            formal: types[name]
            for formal, name in zip((*inputs, *outputs), (*node.input, *node.output), strict=True)
            if name in types
        }
        refused = refused_at_runs(node) if not domain else frozenset()
        wider = _choose(node.op_type, domain, schema, bound, refused)
        if not wider:
            return [node]
        names = ", ".join(
            f"{element_name(bound[formal])} as {element_name(to)}" for formal, to in wider.items()
        )
        self.notes.append(f"{node.op_type} ({node.name or node.output[0]}): {names}")
        return _with_casts(node, inputs, outputs, bound, wider)


def _formals(formals: Sequence[str], count: int) -> list[str]:
    """The type variable of each actual operand or result; the last formal one may repeat."""
    return [formals[min(index, len(formals) - 1)] for index in range(count)]


def refused_at_runs(node: onnx.NodeProto) -> frozenset[str]:
    """Types that kernels of onnxruntime are registered for, and do not compute."""
    reduction = next((a.s for a in node.attribute if a.name == "reduction"), b"none")
    if node.op_type not in _REDUCING_SCATTERS or reduction == b"none":
        return frozenset()
    refused = {_type("float16"), _type("bfloat16")}
    return frozenset(refused | {_type("bool")} if reduction in (b"min", b"max") else refused)


def _choose(
    op: str,
    domain: str,
    schema: Signature,
    bound: Mapping[str, int],
    refused: frozenset[str],
) -> dict[str, int]:
    """Wider types, by type variable, with which a kernel takes the operator; none where one does."""
    definition: Any = schema.definition
    if definition is None:  # onnxruntime's own operators come with the kernels that there are
        return {}
    allowed = {
        constraint.type_param_str: set(constraint.allowed_type_strs)
        for constraint in definition.type_constraints
    }
    best: dict[str, int] = {}
    for kernel in vendor_library.kernels(op, domain, definition.since_version):
        chosen = {}
        for formal, kind in bound.items():
            if formal not in kernel or formal not in allowed:
                continue
            takes = (kernel[formal] & allowed[formal]) - refused
            if _type(element_name(kind)) in takes:
                continue
            fitting = [name for name in _WIDER.get(element_name(kind), ()) if _type(name) in takes]
            if not fitting:
                break
            chosen[formal] = TensorProto.DataType.Value(fitting[0].upper())
        else:
            if not chosen:
                return {}
            if not best or len(chosen) < len(best):
                best = chosen
    return best


def _with_casts(
    node: onnx.NodeProto,
    inputs: Sequence[str],
    outputs: Sequence[str],
    bound: Mapping[str, int],
    wider: Mapping[str, int],
) -> list[onnx.NodeProto]:
    stem = next(name for name in node.output if name)
    before, after = [], []
    for index, (formal, name) in enumerate(zip(inputs, list(node.input), strict=True)):
        if formal in wider and name:
            node.input[index] = f"{stem}.wide.{index}"
            before.append(helper.make_node("Cast", [name], [node.input[index]], to=wider[formal]))
    for index, (formal, name) in enumerate(zip(outputs, list(node.output), strict=True)):
        if formal in wider and name:
            node.output[index] = f"{name}.wide"
            after.append(helper.make_node("Cast", [node.output[index]], [name], to=bound[formal]))
    for attribute in node.attribute:
        of_results = [wider[formal] for formal in outputs if formal in wider]
        if attribute.name in _TYPE_ATTRIBUTES and of_results:
            attribute.i = of_results[0]
    return [*before, node, *after]


def _type(name: str) -> str:
    return f"tensor({name})"
