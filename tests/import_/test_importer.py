"""What import makes of nodes, names, attributes and subgraphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dvm_graph.errors import DvmError, ModelError
from dvm_graph.import_ import import_onnx
from dvm_graph.ir import DType, Graph
from dvm_graph.ir.verify import Dialect, verify
from dvm_graph.options import Options
from dvm_graph.symbolic import Symbols, parse_dim
from tests.import_.models import load, nodes_by_op, parse

TINY = sorted((Path(__file__).parents[2] / "models" / "tiny").glob("*.onnx"))


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_exported_models(path: Path) -> None:
    graph = load(path)
    verify(graph, Dialect.ONNX)
    proto = onnx.load(path)
    assert [value.name for value in graph.inputs] == [info.name for info in proto.graph.input]
    assert list(graph.output_names) == [info.name for info in proto.graph.output]
    expected = {node.name for node in proto.graph.node if node.op_type != "Constant"}
    assert {node.origin[0] for node in graph.nodes} == expected
    named = {node.origin[0]: node for node in graph.nodes}
    for node in proto.graph.node:
        if node.op_type != "Constant":
            properties = {entry.key: entry.value for entry in node.metadata_props}
            assert named[node.name].metadata == properties


def test_declared_types_agree_with_deduced_ones() -> None:
    for path in TINY:
        proto = onnx.load(path)
        declared = {i.name: i.type.tensor_type.elem_type for i in proto.graph.value_info}
        for node in load(path).nodes:
            for value in node.outputs:
                if value.name in declared and value.dtype is not DType.OPAQUE:
                    kind = helper.np_dtype_to_tensor_dtype(value.dtype.numpy)
                    assert kind == declared[value.name], value


def test_dims_of_inputs() -> None:
    symbols = Symbols()
    graph = load(
        parse("g (float[batch, 4, past + 1] x, int64 s, float[0] e, bool[?, batch] m)"
              " => (float[a] y) { y = Relu(x) }".replace("past + 1", "past")),
        symbols,
    )  # fmt: skip
    x, s, e, m = graph.inputs
    assert x.shape == (symbols.get("batch"), 4, symbols.get("past"))
    assert (s.shape, s.dtype) == ((), DType.INT64)
    assert e.shape == (0,)
    assert m.dtype is DType.BOOL and m.shape is not None and m.shape[1] == symbols.get("batch")
    assert m.shape[0] not in (symbols.get("batch"), symbols.get("past"))


def test_dim_expressions_and_unnamed_dims() -> None:
    model = parse("g (float[n] x, float[past_seq] past) => (float[n] y) { y = Relu(x) }")
    shape = model.graph.input[0].type.tensor_type.shape
    shape.dim[0].dim_param = "Min(512, past_seq + 1)"
    shape.dim.add()
    shape.dim.add().dim_value = -1
    symbols = Symbols()
    x, _past = load(model, symbols).inputs
    assert x.shape is not None
    assert x.shape[0] == parse_dim("Min(512, past_seq + 1)", symbols)
    assert x.shape[1] != x.shape[2]
    assert {x.shape[1], x.shape[2]} <= set(symbols.order)


def test_initializers_are_constants_even_when_listed_as_inputs() -> None:
    model = parse("g (float[n, 2] x, float[2] w) => (float[n, 2] y) { y = Add(x, w) }")
    weight = np.array([1.0, 2.0], np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    graph = load(model)
    assert [value.name for value in graph.inputs] == ["x"]
    (node,) = graph.nodes
    assert node.inputs[1] is not None
    np.testing.assert_array_equal(node.inputs[1].data, weight)


def test_sparse_initializer() -> None:
    model = parse("g (float[n, 3] x) => (float[n, 3] y) { y = Add(x, w) }")
    values = numpy_helper.from_array(np.array([5.0], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1], np.int64), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    (node,) = load(model).nodes
    assert node.inputs[1] is not None and node.inputs[1].data is not None
    assert node.inputs[1].data.tolist() == [0.0, 5.0, 0.0]


@pytest.mark.parametrize(
    ("attribute", "value", "dtype", "shape"),
    [
        ("value", numpy_helper.from_array(np.ones((2, 2), np.float16)), DType.FLOAT16, (2, 2)),
        ("value_float", 1.5, DType.FLOAT32, ()),
        ("value_floats", [1.5, 2.5], DType.FLOAT32, (2,)),
        ("value_int", 3, DType.INT64, ()),
        ("value_ints", [3, 4, 5], DType.INT64, (3,)),
        ("value_string", "s", DType.OPAQUE, ()),
        ("value_strings", ["s", "t"], DType.OPAQUE, (2,)),
    ],
)
def test_constant_nodes(
    attribute: str, value: object, dtype: DType, shape: tuple[int, ...]
) -> None:
    model = parse("g (float[n] x) => (float[n] y) { y = Relu(x) }")
    node = helper.make_node("Constant", [], ["c"], **{attribute: value})
    model.graph.node.insert(0, node)
    model.graph.node.append(helper.make_node("Identity", ["c"], ["z"]))
    model.graph.output.append(onnx.ValueInfoProto(name="z"))
    constant = nodes_by_op(load(model))["Identity"].inputs[0]
    assert constant is not None and constant.data is not None
    assert (constant.dtype, constant.shape) == (dtype, shape)
    expected = numpy_helper.to_array(value) if attribute == "value" else value
    np.testing.assert_array_equal(constant.data, np.asarray(expected))


def test_small_integer_constants_are_known_as_dims() -> None:
    (node,) = load(
        parse("g (float[n] x) => (float[a, b] y) <int64[2] s = {-1, 4}> { y = Reshape(x, s) }")
    ).nodes
    assert node.inputs[1] is not None and node.inputs[1].elements == (-1, 4)


def test_attributes_with_defaults() -> None:
    (node,) = load(parse("g (float[n, 4] x) => (float[n, 4] y) { y = Softmax(x) }", opset=13)).nodes
    assert node.attrs == {"axis": -1}
    (node,) = load(parse("g (float[n, 4] x) => (float[n, 4] y) { y = Softmax(x) }", opset=11)).nodes
    assert (node.attrs, node.version) == ({"axis": 1}, 11)
    (node,) = load(
        parse("g (float[a, b] x) => (float[b, a] y) { y = Transpose <perm = [1, 0]> (x) }")
    ).nodes
    assert node.attrs == {"perm": (1, 0)}


def test_omitted_operands_and_results() -> None:
    graph = load(
        parse(
            'g (float[n] x, float m) => (float[n] y) { y = Clip(x, "", m)\n z, "" = TopK(x, k) }'
            .replace("y = Clip", "k = Constant <value_ints: ints = [2]> ()\n y = Clip")
        )
    )  # fmt: skip
    nodes = nodes_by_op(graph)
    assert nodes["Clip"].inputs[1] is None
    assert len(nodes["TopK"].outputs) == 2
    verify(graph, Dialect.ONNX)


@pytest.mark.parametrize(
    ("node", "operand"),
    [
        ('Where(c, "", x)', r"operand 1 \(X\)"),
        ('com.microsoft.BiasGelu(x, "")', r"operand 1 \(B\)"),
        ('Max(x, "", x)', r"operand 1 \(data_0\)"),
        (
            """If<then_branch = t () => (float[n] p) { p = Neg(x) },
                  else_branch = e () => (float[n] q) { q = Abs(x) }>("")""",
            r"operand 0 \(cond\)",
        ),
    ],
)
def test_operands_that_may_not_be_left_out(node: str, operand: str) -> None:
    text = f"g (float[n] x, bool[n] c) => (float[n] y) {{ y = {node} }}"
    with pytest.raises(ModelError, match=operand):
        load(parse(text))


def test_nodes_out_of_order_are_sorted() -> None:
    model = parse("g (float[n] x) => (float[n] y) { t = Relu(x)\n y = Exp(t) }")
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert [node.op for node in load(model).nodes] == ["Relu", "Exp"]


def test_duplicate_node_names_become_unique() -> None:
    model = parse("g (float[n] x) => (float[n] y) { t = Relu(x)\n y = Exp(t) }")
    for node in model.graph.node:
        node.name = "same"
    graph = load(model)
    verify(graph, Dialect.ONNX)
    assert [node.origin for node in graph.nodes] == [("same",), ("same",)]


# -- malformed graphs


def break_model(change: str) -> onnx.ModelProto:
    model = parse("g (float[n] x) => (float[n] y) { t = Relu(x)\n y = Add(t, x) }")
    relu, add = model.graph.node
    relu.name, add.name = "first", "second"
    match change:
        case "cycle":
            relu.input[0] = "y"
        case "self":
            add.input[1] = "y"
        case "undefined":
            add.input[1] = "nowhere"
        case "duplicate result":
            add.output[0] = "t"
        case "result named as input":
            relu.output[0] = "x"
        case "unknown operator":
            relu.op_type = "Frobnicate"
        case "unknown domain":
            relu.domain = "com.example"
        case "too few operands":
            del add.input[1]
        case "too many operands":
            relu.input.append("x")
        case "too many results":
            relu.output.append("u")
        case "unknown attribute":
            relu.attribute.append(helper.make_attribute("slope", 1.0))
        case "attribute of a wrong type":
            relu.op_type = "LeakyRelu"
            relu.attribute.append(helper.make_attribute("alpha", "steep"))
        case "attribute without a type":
            relu.op_type = "LeakyRelu"
            relu.attribute.add(name="alpha")
        case "attribute given twice":
            relu.op_type = "LeakyRelu"
            relu.attribute.extend([helper.make_attribute("alpha", 0.5)] * 2)
        case "attribute missing":
            relu.op_type = "Cast"
        case "reference to a function's attribute":
            relu.op_type = "LeakyRelu"
            relu.attribute.add(name="alpha", ref_attr_name="a", type=onnx.AttributeProto.FLOAT)
        case "undefined output":
            model.graph.output[0].name = "nowhere"
        case "duplicate initializer":
            tensor = numpy_helper.from_array(np.zeros(1, np.float32), "w")
            model.graph.initializer.extend([tensor, tensor])
        case "duplicate input":
            model.graph.input.append(model.graph.input[0])
        case "broken attribute tensor":
            relu.op_type = "ConstantOfShape"
            tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[4], raw_data=b"12")
            relu.attribute.append(helper.make_attribute("value", tensor))
    return model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("cycle", "cycle: 'first'.* -> 'second'"),
        ("self", "cycle: 'second'"),
        ("undefined", "'second'.*'nowhere', which nothing defines"),
        ("duplicate result", "'second'.*'t', which is defined already"),
        ("result named as input", "'first'.*'x', which is defined already"),
        ("unknown operator", "'first'.*unknown operator 'Frobnicate'"),
        ("unknown domain", "'first'.*no operator set for domain 'com.example'"),
        ("too few operands", "'second'.*1 operands"),
        ("too many operands", "'first'.*2 operands"),
        ("too many results", "'first'.*2 results"),
        ("unknown attribute", "'first'.*no attribute 'slope'"),
        ("attribute of a wrong type", "'first'.*'alpha' is STRING.*FLOAT"),
        ("attribute without a type", "'first'.*'alpha'"),
        ("attribute given twice", "'first'.*twice"),
        ("attribute missing", "'first'.*'to'"),
        ("reference to a function's attribute", "'first'.*outside of one"),
        ("undefined output", "'nowhere'"),
        ("duplicate initializer", "'w'"),
        ("duplicate input", "'x'"),
        ("broken attribute tensor", "2 bytes"),
    ],
)
def test_malformed(change: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load(break_model(change))


def test_random_damage_never_escapes_the_error_hierarchy() -> None:
    content = bytearray((TINY[0].parent / "if_else_add.onnx").read_bytes())
    random = np.random.default_rng(7)
    for _ in range(400):
        damaged = bytearray(content)
        for position in random.integers(0, len(content), 3):
            damaged[position] = random.integers(0, 256)
        try:
            load(bytes(damaged))
        except DvmError:
            continue


# -- subgraphs

IF = """
g (bool c, float[n] x) => (float[n] y) {
  t = Exp(x)
  y = If (c) <
    then_branch = one () => (float[n] a) { a = Add(t, x) },
    else_branch = two () => (float[n] a) { a = Neg(x) }
  >
}
"""


def test_branches_are_closed_regions() -> None:
    graph = load(parse(IF))
    verify(graph, Dialect.ONNX)
    node = nodes_by_op(graph)["If"]
    assert node.attrs["regions"] == ("then_branch", "else_branch")
    assert node.attrs["captures"] == ("t", "x")
    assert [value.name for value in node.inputs if value] == ["c", "t", "x"]
    assert node.output.dtype is DType.FLOAT32
    for region, op in zip(node.regions, ("Add", "Neg"), strict=True):
        assert [n.op for n in region.nodes] == [op]
        assert len(region.inputs) == 2
        assert region.inputs[1].shape == graph.inputs[1].shape
        assert {value.producer for value in region.inputs} == {None}


def test_branch_order_does_not_depend_on_the_file() -> None:
    model = parse(IF)
    attributes = list(model.graph.node[1].attribute)
    del model.graph.node[1].attribute[:]
    model.graph.node[1].attribute.extend(reversed(attributes))
    assert nodes_by_op(load(model))["If"].attrs["regions"] == ("then_branch", "else_branch")


LOOP = """
g (int64 trips, bool go, float[n] x, float[n] k) => (float[n] last, float[m, n] all) {
  last, all = Loop (trips, go, x) <
    body = step (int64 i, bool keep, float[n] state) => (bool again, float[n] next, float[n] out) {
      again = Identity(keep)
      sum = Add(state, k)
      next = If (again) <
        then_branch = p () => (float[n] a) { a = Mul(sum, x) },
        else_branch = q () => (float[n] b) { b = Identity(sum) }
      >
      out = Identity(next)
    }
  >
}
"""


def test_nested_regions_capture_through_both_levels() -> None:
    graph = load(parse(LOOP))
    verify(graph, Dialect.ONNX)
    loop = nodes_by_op(graph)["Loop"]
    assert loop.attrs["captures"] == ("k", "x")
    assert [value.name for value in loop.inputs if value] == ["trips", "go", "x", "k", "x"]
    (body,) = loop.regions
    assert len(body.inputs) == 3 + 2
    inner = nodes_by_op(body)["If"]
    assert inner.attrs["captures"] == ("sum", "x")
    assert inner.inputs[2] is body.inputs[4]
    assert [value.dtype for value in loop.outputs] == [DType.FLOAT32] * 2


def all_names(graph: Graph) -> list[str]:
    names = [value.name for value in graph.values()]
    for node in graph.nodes:
        for region in node.regions:
            names += all_names(region)
    return names


def test_names_are_unique_across_regions() -> None:
    names = all_names(load(parse(IF))) + all_names(load(parse(LOOP)))
    for text in (IF, LOOP):
        names = all_names(load(parse(text)))
        assert len(names) == len(set(names))


def test_a_subgraph_may_read_what_is_produced_later_in_the_file() -> None:
    model = parse(IF)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert [node.op for node in load(model).nodes] == ["Exp", "If"]


def test_cycle_through_a_subgraph() -> None:
    model = parse(IF.replace("t = Exp(x)", "t = Exp(y)"))
    with pytest.raises(ModelError, match="cycle"):
        load(model)


def test_opaque_types_keep_their_onnx_type() -> None:
    model = parse("g (seq(float[n]) s, int64 i) => (float[n] y) { y = SequenceAt(s, i) }")
    (sequence, _) = load(model).inputs
    assert sequence.dtype is DType.OPAQUE
    read = onnx.TypeProto.FromString(sequence.opaque_type)
    assert read.sequence_type.elem_type.tensor_type.elem_type == TensorProto.FLOAT


def test_import_is_deterministic() -> None:
    first, second = (import_onnx(TINY[0], Options(), Symbols()) for _ in range(2))
    assert all_names(first) == all_names(second)
    assert [node.name for node in first.nodes] == [node.name for node in second.nodes]


def test_metadata_of_nodes_that_is_no_text() -> None:
    """Only reports read it: it refuses no model."""
    node = onnx.NodeProto(op_type="Sin", input=["x"], output=["y"], name="sin")
    node.metadata_props.add(key="layer", value="abc")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    data = helper.make_model(graph).SerializeToString().replace(b"abc", b"a\xffc")
    (imported,) = import_onnx(data, Options(), Symbols()).nodes
    assert imported.metadata == {"layer": "a\N{REPLACEMENT CHARACTER}c"}
