"""What the builder leaves in the graph, and what it folds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dvm_graph.errors import ShapeError
from dvm_graph.ir import OPERATORS, DType, Graph, Kind, Node, Value
from dvm_graph.symbolic import Builder, Facts, dims, parse_dim
from dvm_graph.symbolic.builder_methods import OperatorMethods
from dvm_graph.symbolic.shape_functions import infer


@pytest.fixture
def builder() -> Builder:
    return Builder(Graph(), Facts())


def _input(builder: Builder, shape: str, dtype: DType = DType.FLOAT32) -> Value:
    extents = tuple(parse_dim(text, builder.facts.symbols) for text in shape.split())
    value = Value("x", dtype, extents)
    builder.graph.inputs.append(value)
    return value


def test_every_basic_operator_has_a_method_and_a_shape_function() -> None:
    for info in OPERATORS.values():
        if info.kind is not Kind.CALL and info.name != "view":
            assert hasattr(Builder, info.name), info.name
    public = {name for name in vars(OperatorMethods) if not name.startswith("_")}
    assert public - {"op"} <= set(OPERATORS)


def test_a_chain_of_shape_operators_leaves_expressions_only(builder: Builder) -> None:
    """view(x.shape[0], -1, 12, x.shape[2] // 12), expanded by its own shape, as exporters do."""
    b, s = builder.facts.symbols.get("b"), builder.facts.symbols.get("s")
    x = _input(builder, "b s 768")
    shape = builder.shape_of(x)
    index = [builder.constant(np.array(i)) for i in range(3)]
    batch, length, hidden = (builder.reshape(builder.gather(shape, i, 0), (1,)) for i in index)
    heads = builder.constant(np.array([12]))
    wanted = builder.concat([batch, length, heads, builder.div(hidden, heads)], 0)
    assert wanted.elements == (b, s, 12, 64)
    y = builder.reshape(x, wanted.elements)
    builder.graph.outputs = [builder.exp(y)]
    computing = [node for node in builder.graph.nodes if node.op != "dims"]
    assert [node.op for node in computing] == ["reshape", "exp"]
    assert all(node.inputs == () for node in builder.graph.nodes if node.op == "dims")


def test_known_numbers_become_constants(builder: Builder) -> None:
    x = _input(builder, "b 768")
    hidden = builder.gather(builder.shape_of(x), builder.constant(np.array(1)), 0)
    root = builder.sqrt(builder.cast(hidden, DType.FLOAT32))
    assert root.data is not None
    np.testing.assert_allclose(root.data, np.sqrt(768.0), rtol=1e-6)
    assert hidden.data == 768


def test_results_of_narrow_types_come_from_dims(builder: Builder) -> None:
    x = _input(builder, "b 4")
    extent = builder.cast(
        builder.gather(builder.shape_of(x), builder.constant(np.array(0)), 0), DType.INT32
    )
    assert extent.dtype is DType.INT32
    assert extent.elements == (builder.facts.symbols.get("b"),)


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.reshape(x, x.shape),
        lambda b, x: b.transpose(x, (0, 1)),
        lambda b, x: b.broadcast_to(x, x.shape),
        lambda b, x: b.slice(x, (0, 0), x.shape),
        lambda b, x: b.cast(x, x.dtype),
        lambda b, x: b.concat([x], 0),
        lambda b, x: b.reduce_sum(x, ()),
    ],
)
def test_operators_that_change_nothing_are_their_operand(
    builder: Builder, build: Callable[[Builder, Value], Value]
) -> None:
    x = _input(builder, "b s")
    assert build(builder, x) is x
    assert not list(builder.graph.nodes)


def test_reshape_to_a_shape_that_is_equal_by_fact(builder: Builder) -> None:
    x = _input(builder, "b s")
    t = builder.facts.symbols.get("t")
    builder.facts.assume_equal(t, x.shape[1], "mask")
    assert builder.reshape(x, (x.shape[0], t)) is x


def test_values_are_shared(builder: Builder) -> None:
    assert builder.scalar(1, DType.FLOAT32) is builder.scalar(1, DType.FLOAT32)
    assert builder.scalar(0.0, DType.FLOAT32) is not builder.scalar(-0.0, DType.FLOAT32)
    s = builder.facts.symbols.get("s")
    assert builder.dims([s]) is builder.dims([s])


def test_removed_nodes_are_not_shared(builder: Builder) -> None:
    s = builder.facts.symbols.get("s")
    first = builder.dims([s])
    assert first.producer is not None
    builder.graph.remove(first.producer)
    assert builder.dims([s]).producer in builder.graph


def test_nodes_say_where_they_come_from(builder: Builder) -> None:
    x = _input(builder, "b s")
    source = Node("encoder/Add", "Add", (), (), origin=("encoder/Add",), metadata={"layer": "0"})
    with builder.scope(source):
        inner = builder.add(x, x)
    outer = builder.add(x, x)
    assert inner.producer is not None and outer.producer is not None
    assert inner.producer.origin == ("encoder/Add",)
    assert inner.producer.metadata == {"layer": "0"}
    assert inner.name.startswith("encoder/Add")
    assert outer.producer.origin == ()


def test_folding_agrees_with_symbolic_contents() -> None:
    """Integer operators have two implementations: on numbers and on dims."""
    from dvm_graph.symbolic.numeric import evaluate_constant

    rng = np.random.default_rng(0)
    graph = Graph()
    a = graph.constant(rng.integers(-9, 9, 40))
    b = graph.constant(rng.integers(-9, 9, 40))
    tested = 0
    for info in OPERATORS.values():
        if (
            info.kind is not Kind.MAP
            or info.arity != 2
            or info.name in ("pow", "shift_left", "shift_right")
        ):
            continue
        result = Value("r", DType.INT64)
        node = Node("n", info.name, (a, b), (result,))
        infer(node, Facts())
        folded = evaluate_constant(node)
        assert folded is not None and result.elements is not None, info.name
        np.testing.assert_array_equal(folded, np.array(result.elements, folded.dtype), info.name)
        tested += 1
    assert tested > 12


@pytest.mark.parametrize("index", [[2, -1], [0]])
def test_indices_are_wrapped_and_checked(builder: Builder, index: list[int]) -> None:
    table = builder.constant(np.arange(6.0, dtype=np.float32).reshape(3, 2))
    rows = builder.gather(table, builder.constant(np.array(index)), 0)
    assert rows.data is not None and table.data is not None
    np.testing.assert_array_equal(rows.data, table.data[index])
    with pytest.raises(ShapeError, match="extent 3"):
        builder.gather(table, builder.constant(np.array([3])), 0)


def test_halves_are_rounded_once() -> None:
    builder = Builder(Graph(), Facts())
    a = builder.constant(np.array([[1.0, 2.0**-11, 2.0**-11]], np.float16))
    total = builder.reduce_sum(a, [1])
    assert total.data is not None
    assert total.data.item() == np.float16(1 + 2.0**-10)


def test_dims_in_attributes_are_python_numbers(builder: Builder) -> None:
    s = builder.facts.symbols.get("s")
    assert all(type(dim) is int for dim in builder.dims([dims.sub(s + 3, s), 2]).elements or ())
