"""Models that are no models: each has a specific error, and none takes the process with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph.errors import DvmError, InputError, ModelError, UnsupportedError
from dvm_graph.import_ import import_onnx, load_model
from dvm_graph.options import Options
from dvm_graph.symbolic import Symbols
from tests.import_.models import load, parse

RELU = "g (float[batch, 4] x) => (float[batch, 4] y) { y = Relu(x) }"


def test_path_bytes_and_proto_give_the_same_graph(tmp_path: Path) -> None:
    model = parse(RELU)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    for source in (path, str(path), model.SerializeToString(), model):
        graph = load(source)
        assert [node.op for node in graph.nodes] == ["Relu"]
        assert graph.inputs[0].name == "x"


@pytest.mark.parametrize("elements", [100, 1 << 19])
def test_nothing_stays_of_the_file(tmp_path: Path, elements: int) -> None:
    """Who writes to it once the model is loaded changes nothing, nor does who cuts it off."""
    weights = np.arange(elements, dtype=np.float32)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    loaded = load_model(path, 100)
    maps = Path("/proc/self/maps")
    assert not maps.exists() or str(path) not in maps.read_text(encoding="utf-8")
    path.write_bytes(b"")
    np.testing.assert_array_equal(numpy_helper.to_array(loaded.initializers[0]), weights)
    with pytest.raises(ModelError):
        load_model(path, 100)


def test_every_truncation_is_an_error_of_ours() -> None:
    model = parse("g (float[n, 2] x) => (float[n, 2] y) { z = Relu(x)\n y = Add(z, x) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones(3, np.float32), "w"))
    content = model.SerializeToString()
    for length in range(len(content)):
        try:
            load(content[:length])
        except DvmError:
            continue
        # A cut between two fields of the model itself leaves a whole, smaller model.
        assert onnx.ModelProto.FromString(content[:length]).graph.output


def test_truncated_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(parse(RELU).SerializeToString()[:-3])
    with pytest.raises(ModelError, match=r"cut\.onnx.*truncated"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"PK\x03\x04 a zip file", b"\xff" * 100])
def test_other_content_is_no_model(content: bytes) -> None:
    with pytest.raises(ModelError):
        load(content)


@pytest.mark.parametrize("source", [None, 3, "model\0.onnx"])
def test_what_is_no_source_is_an_error_of_the_user(source: Any) -> None:
    with pytest.raises(InputError, match="path"):
        dvm_graph.optimize(source)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot read"):
        load(tmp_path / "nothing.onnx")
    with pytest.raises(ModelError, match="cannot read"):
        load(tmp_path)


def test_other_types_are_refused() -> None:
    with pytest.raises(InputError, match="not int"):
        load(7)


@pytest.mark.parametrize(("version", "word"), [(5, "older"), (1000, "knows up to")])
def test_opsets_out_of_reach(version: int, word: str) -> None:
    model = parse(RELU)
    model.opset_import[0].version = version
    with pytest.raises(UnsupportedError, match=word):
        load(model)


@pytest.mark.parametrize(("op", "version"), [("Relu", 6), ("Flatten", 1), ("Identity", 3)])
def test_old_opsets_of_operators_that_were_the_same_at_7(op: str, version: int) -> None:
    model = parse(RELU.replace("Relu", op))
    model.opset_import[0].version = version
    assert [node.version for node in load(model).nodes] == [7]
    assert model.opset_import[0].version == version


def test_no_opset_at_all() -> None:
    model = parse(RELU)
    del model.opset_import[:]
    with pytest.raises(ModelError, match="operator set"):
        load(model)


def test_import_leaves_the_callers_model_alone() -> None:
    model = parse(
        'g (float[n] x) => (float[n] y) { y = local.twice(x) }\n<domain: "local", opset_import: ["": 20]>'
        "\ntwice (a) => (b) { b = Add(a, a) }",
        imports=', "local": 1',
    )
    before = model.SerializeToString(deterministic=True)
    load(model)
    assert model.SerializeToString(deterministic=True) == before


def test_functions_are_inlined_with_their_attributes() -> None:
    model = parse(
        "g (float[n] x) => (float[n] y) { y = local.scale <factor: float = 3.0> (x) }\n"
        '<domain: "local", opset_import: ["": 20]>\n'
        "scale <factor> (a) => (b) { f = Constant <value_float: float = @factor> ()\n"
        " b = local.product(a, f) }\n"
        '<domain: "local", opset_import: ["": 20]>\n'
        "product (a, b) => (c) { c = Mul(a, b) }",
        imports=', "local": 1',
    )
    graph = load(model)
    (node,) = graph.nodes
    assert node.op == "Mul"
    factor = node.inputs[1]
    assert factor is not None and factor.data is not None and factor.data == 3.0


DEFAULTS = (
    '<domain: "local", opset_import: ["": 20, "local": 1]>\n'
    "outer <slope: float = 0.9> (a) => (b) { b = local.inner <alpha: float = @slope> (a) }\n"
    '<domain: "local", opset_import: ["": 20, "local": 1]>\n'
    "handing_on <slope> (a) => (b) { b = local.inner <alpha: float = @slope> (a) }\n"
    '<domain: "local", opset_import: ["": 20]>\n'
    "inner <alpha: float = 0.7> (a) => (b) { b = LeakyRelu <alpha: float = @alpha> (a) }"
)


@pytest.mark.parametrize(
    ("call", "slope"),
    [
        ("inner(x)", 0.7),
        ("inner <alpha = 0.2> (x)", 0.2),
        ("outer(x)", 0.9),
        ("outer <slope = 0.3> (x)", 0.3),
        ("handing_on(x)", 0.7),
        ("handing_on <slope = 0.4> (x)", 0.4),
    ],
)
def test_attributes_that_calls_omit_have_their_defaults(call: str, slope: float) -> None:
    model = parse(
        f"g (float[n] x) => (float[n] y) {{ y = local.{call} }}\n" + DEFAULTS,
        imports=', "local": 1',
    )
    (node,) = load(model).nodes
    assert node.op == "LeakyRelu"
    assert node.attrs["alpha"] == pytest.approx(slope)


def test_defaults_are_put_in_calls_of_branches() -> None:
    model = parse(
        "g (float[n] x, bool c) => (float[n] y) { y = If (c) <\n"
        " then_branch = t () => (float[n] p) { p = local.inner(x) },\n"
        " else_branch = e () => (float[n] q) { q = Neg(x) }> }\n" + DEFAULTS,
        imports=', "local": 1',
    )
    x = np.array([-1, 2], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x, "c": np.array(True)})
    np.testing.assert_allclose(y, [-0.7, 2])


def test_functions_of_one_name_differ_in_their_overload() -> None:
    model = parse(
        "g (float[n] x) => (float[n] y) { a = local.f:first(x)\n y = local.f(a) }\n"
        '<domain: "local", overload: "first", opset_import: ["": 20]>\n'
        "f (a) => (b) { b = Neg(a) }\n"
        '<domain: "local", opset_import: ["": 20]>\nf (a) => (b) { b = Exp(a) }',
        imports=', "local": 1',
    )
    assert [node.op for node in load(model).nodes] == ["Neg", "Exp"]


@pytest.mark.parametrize(
    ("operator", "imports", "taken"),
    [
        ("Relu", "", "Relu"),
        ("com.microsoft.Gelu", ', "com.microsoft": 1', "Gelu"),
        ("com.microsoft.NoSuchOperator", ', "com.microsoft": 1', "Neg"),
        ("com.microsoft.BiasSplitGelu", ', "com.microsoft": 1', "Neg"),  # has no kernel
    ],
)
def test_functions_with_the_name_of_an_operator(operator: str, imports: str, taken: str) -> None:
    domain, _, name = operator.rpartition(".")
    model = parse(
        f"g (float[n] x) => (float[n] y) {{ y = {operator}(x) }}\n"
        f'<domain: "{domain}", opset_import: ["": 20]>\n{name} (a) => (b) {{ b = Neg(a) }}',
        imports=imports,
    )
    assert [node.op for node in load(model).nodes] == [taken]


def test_functions_that_call_themselves() -> None:
    model = parse(
        'g (float[n] x) => (float[n] y) { y = local.a(x) }\n<domain: "local", opset_import: ["": 20,'
        ' "local": 1]>\na (x) => (y) { y = local.b(x) }\n<domain: "local", opset_import: ["": 20,'
        ' "local": 1]>\nb (x) => (y) { y = local.a(x) }',
        imports=', "local": 1',
    )
    with pytest.raises(ModelError, match="call themselves: a -> b"):
        load(model)


def test_weights_do_not_pass_through_the_inliner() -> None:
    model = parse(
        "g (float[n, 2] x) => (float[n, 2] y) { y = local.f(x, w) }\n"
        '<domain: "local", opset_import: ["": 20]>\nf (a, b) => (c) { c = MatMul(a, b) }',
        imports=', "local": 1',
    )
    weight = np.arange(4, dtype=np.float32).reshape(2, 2)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    assert not load_model(model, 100).proto.graph.initializer[0].raw_data
    operand = next(iter(load(model).nodes)).inputs[1]
    assert operand is not None and operand.data is not None
    np.testing.assert_array_equal(operand.data, weight)


def test_hints_for_unknown_dims() -> None:
    with pytest.raises(InputError, match="'sequence'"):
        import_onnx(parse(RELU), Options(dim_hints={"sequence": (1, 9)}), Symbols())
    import_onnx(parse(RELU), Options(dim_hints={"batch": (1, 9)}), Symbols())


def test_inputs_of_unknown_rank_have_no_shape() -> None:
    model = parse(RELU)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None))
    assert load(model).inputs[0].shape is None


@pytest.mark.parametrize("kind", ["tensor_type", "sequence_type"])
def test_element_types_that_do_not_exist(kind: str) -> None:
    model = parse(RELU)
    info = model.graph.input[0]
    info.type.Clear()
    tensor = info.type if kind == "tensor_type" else info.type.sequence_type.elem_type
    tensor.tensor_type.elem_type = 127
    with pytest.raises((ModelError, UnsupportedError)):
        dvm_graph.optimize(model)
