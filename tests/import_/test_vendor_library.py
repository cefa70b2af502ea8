"""What onnxruntime is asked: its operators, and the types of their results."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from dvm_graph.errors import UnsupportedError
from dvm_graph.import_.schemas import signature
from dvm_graph.import_.vendor_library import find_schema, newest_version, result_types
from dvm_graph.ir import DType, Value

FLOAT, STRING = TensorProto.FLOAT, TensorProto.STRING


def partition(
    op: str, inputs: dict[str, tuple[int, list[int | str]]], outputs: list[str], **attrs: object
) -> onnx.ModelProto:
    node = helper.make_node(op, list(inputs), outputs, domain="com.microsoft", **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, *of) for name, of in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    imports = [helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def dims(proto: onnx.TypeProto) -> list[int | str] | None:
    if not proto.tensor_type.HasField("shape"):
        return None
    return [d.dim_param or d.dim_value for d in proto.tensor_type.shape.dim]


def test_a_signature_of_another_domain() -> None:
    found = signature("BiasGelu", "com.microsoft", 1)
    assert found is not None
    assert found.definition is None
    assert (found.min_inputs, found.max_inputs) == (2, 2)
    operand = Value("x", DType.FLOAT16)
    assert found.result_dtype(0, [operand, operand], {}) is DType.FLOAT16


def test_attributes_and_variadic_inputs_are_read() -> None:
    attention = signature("MultiHeadAttention", "com.microsoft", 1)
    assert attention is not None
    assert attention.required == ("num_heads",)
    assert attention.defaults["unidirectional"].i == 0
    concat = signature("QLinearConcat", "com.microsoft", 1)
    assert concat is not None
    assert concat.variadic


def test_operators_that_onnxruntime_adds_to_onnx_opsets() -> None:
    """It has LayerNormalization below opset 17, where ONNX has none."""
    assert find_schema("LayerNormalization", "", 12).since_version == 1
    assert signature("SimplifiedLayerNormalization", "", 12) is not None
    assert signature("Frobnicate", "com.microsoft", 1) is None


def test_a_domain_that_is_not_imported_has_its_newest_version() -> None:
    assert newest_version("com.microsoft") == 1
    assert newest_version("org.example") is None


def test_symbolic_dims_come_through() -> None:
    model = partition(
        "FusedMatMul", {"a": (FLOAT, ["k", "m + 1"]), "b": (FLOAT, ["k", 8])}, ["y"], transA=1
    )
    assert dims(result_types(model)["y"]) == ["m + 1", 8]


def test_rank_0_is_told_from_an_unknown_rank() -> None:
    unknown = partition("CDist", {"a": (FLOAT, ["m", "k"]), "b": (FLOAT, ["n", "k"])}, ["y"])
    assert dims(result_types(unknown)["y"]) is None
    scalar = partition("Gelu", {"x": (FLOAT, [])}, ["y"])
    assert dims(result_types(scalar)["y"]) == []


def test_a_schema_that_takes_symbols_for_0_is_not_believed() -> None:
    """The last dim of the indices says how many axes they index."""
    inputs = {"x": (FLOAT, ["m", "n"]), "i": (TensorProto.INT64, ["k", "depth"])}
    assert dims(result_types(partition("GatherND", inputs, ["y"]))["y"]) is None
    known = {"x": (FLOAT, ["m", "n"]), "i": (TensorProto.INT64, ["k", 1])}
    assert dims(result_types(partition("GatherND", known, ["y"]))["y"]) == ["k", "n"]


def test_a_result_of_strings() -> None:
    model = partition(
        "Tokenizer", {"x": (STRING, ["n"])}, ["y"],
        mark=0, mincharnum=1, pad_value="#", tokenexp="[a-z]+",
    )  # fmt: skip
    assert result_types(model)["y"].tensor_type.elem_type == STRING


def test_what_onnxruntime_refuses_says_why() -> None:
    with pytest.raises(UnsupportedError, match=r"num_heads"):
        result_types(partition("MultiHeadAttention", {"x": (FLOAT, ["b", "s", 16])}, ["y"]))
