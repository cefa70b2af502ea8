"""Each invariant, broken once: the verifier says which node broke it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dvm_graph.errors import CompileError
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.ir.parser import parse_graph
from dvm_graph.ir.verify import Dialect, verify
from tests.ir.graphs import Name, basic_graph, find


def test_a_right_graph_passes() -> None:
    verify(basic_graph(), Dialect.BASIC)


def test_an_imported_graph_has_no_basic_operators() -> None:
    with pytest.raises(CompileError, match="basic operator in an imported graph"):
        verify(basic_graph(), Dialect.ONNX)


def test_a_basic_graph_has_no_onnx_operators() -> None:
    graph = parse_graph("graph g(%x:f32[n]) {\n %y:f32[n] = onnx::Relu@20(%x)\n return %y\n}", Name)
    verify(graph, Dialect.ONNX)
    with pytest.raises(CompileError, match=r"Relu.*no basic operator"):
        verify(graph, Dialect.BASIC)


def lost_use(graph: Graph) -> None:
    graph._unlink(find(graph, "transpose").output, find(graph, "mul"))


def second_use(graph: Graph) -> None:
    graph._link(find(graph, "transpose").output, find(graph, "mul"))


def operand_changed_directly(graph: Graph) -> None:
    mul = find(graph, "mul")
    mul.inputs = (mul.inputs[1], mul.inputs[1])


def operand_of_another_graph(graph: Graph) -> None:
    stranger = Value("stranger", DType.FLOAT32, ())
    mul = find(graph, "mul")
    graph.set_inputs(mul, (mul.inputs[0], stranger))


def wrong_producer(graph: Graph) -> None:
    find(graph, "mul").output.producer = find(graph, "transpose")


def cycle(graph: Graph) -> None:
    mul = find(graph, "mul")
    graph.set_inputs(mul, (mul.output, mul.inputs[1]))


def same_value_name(graph: Graph) -> None:
    find(graph, "mul").output.name = "t"


def same_node_name(graph: Graph) -> None:
    find(graph, "mul").name = "transpose"


def unproduced_output(graph: Graph) -> None:
    graph.outputs = [Value("ghost", DType.FLOAT32, ())]


def no_shape(graph: Graph) -> None:
    find(graph, "mul").output.shape = None


def opaque(graph: Graph) -> None:
    graph.inputs[0].dtype = DType.OPAQUE


def wrong_result_dtype(graph: Graph) -> None:
    find(graph, "transpose").output.dtype = DType.FLOAT64


def too_few_operands(graph: Graph) -> None:
    mul = find(graph, "mul")
    graph.set_inputs(mul, mul.inputs[:1])


def missing_attribute(graph: Graph) -> None:
    del find(graph, "transpose").attrs["perm"]


def not_a_permutation(graph: Graph) -> None:
    find(graph, "transpose").attrs["perm"] = (0, 0, 1)


def axes_out_of_range(graph: Graph) -> None:
    find(graph, "reduce_sum").attrs["axes"] = (3,)


def axes_unsorted(graph: Graph) -> None:
    find(graph, "reduce_sum").attrs["axes"] = (2, 1)


def wrong_rank(graph: Graph) -> None:
    find(graph, "reduce_sum").output.shape = (Name("batch"), Name("seq"))


def constant_of_another_shape(graph: Graph) -> None:
    constant = find(graph, "mul").inputs[1]
    assert constant is not None
    constant.data = np.zeros(3, np.float32)


def constant_of_another_type(graph: Graph) -> None:
    constant = find(graph, "mul").inputs[1]
    assert constant is not None
    constant.data = np.zeros((), np.float64)


def elements_that_do_not_fit(graph: Graph) -> None:
    constant = find(graph, "mul").inputs[1]
    assert constant is not None
    constant.elements = (1, 2)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lost_use, r"mul\(mul\).*a user 0 times, not 1"),
        (second_use, r"mul\(mul\).*a user 2 times, not 1"),
        (operand_changed_directly, r"mul\(mul\).*a user \d times, not \d"),
        (operand_of_another_graph, r"mul\(mul\).*stranger.*not of this graph"),
        (wrong_producer, r"mul\(mul\).*another producer"),
        (cycle, r"cycle: mul\(mul\)"),
        (same_value_name, "two values are named 't'"),
        (same_node_name, "another node has its name"),
        (unproduced_output, "ghost"),
        (no_shape, r"mul\(mul\).*no shape"),
        (opaque, r"transpose.*vendor operators only"),
        (wrong_result_dtype, r"transpose.*f64"),
        (too_few_operands, r"mul.*1 operands, not 2"),
        (missing_attribute, r"transpose.*/enc/T.*no attribute 'perm'"),
        (not_a_permutation, r"transpose.*no permutation"),
        (axes_out_of_range, r"reduce_sum.*axes"),
        (axes_unsorted, r"reduce_sum.*axes"),
        (wrong_rank, r"reduce_sum.*rank 2, not 3"),
        (constant_of_another_shape, "scale.*shape"),
        (constant_of_another_type, "scale.*float64"),
        (elements_that_do_not_fit, "scale.*2 known elements, not 1"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_damage_is_found(damage: Callable[[Graph], None], message: str) -> None:
    graph = basic_graph()
    damage(graph)
    with pytest.raises(CompileError, match=message):
        verify(graph, Dialect.BASIC)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y:f32[n, 4] = add(%x, %i)", "operands are f32, i64"),
        ("%y:f32[n, 4] = eq(%x, %x)", "result is f32, not b8"),
        ("%y:f32[n, 4] = cast(%x, dtype=dtype:f16)", "result is f32"),
        ("%y:f32[n, 4] = select(%x, %x, %x)", "condition is f32"),
        ("%y:f32[n] = add(%x, %x)", "rank 1, not 2"),
        ("%y:f32[n] = matmul(%x, %v)", "matmul"),
        ("%y:f32[4, n] = reshape(%x, shape=(n, 4))", "not that of its result"),
        ("%y:f32[n, 2] = slice(%x, starts=(0,), steps=(1,), sizes=(2,))", "2 entries"),
        ("%y:f32[n, 8] = concat(%x, %x, axis=2)", "axis 2"),
        ("%y:f32[n, 4] = gather(%x, %v, axis=0)", "index is f32"),
        ("%y:f32[n, 4] = gather(%x, %i, axis=2)", "axis 2"),
        ('%y:f32[n, 4] = vendor(%x, op="Conv")', "without its ONNX node"),
    ],
)
def test_rules_of_each_kind(line: str, message: str) -> None:
    head = "graph g(%x:f32[n, 4], %i:i64[n, 4], %v:f32[4]) {\n"
    graph = parse_graph(f"{head}{line}\nreturn %y\n}}", Name)
    with pytest.raises(CompileError, match=message):
        verify(graph, Dialect.BASIC)


def test_regions_are_verified_too() -> None:
    graph = parse_graph(
        "graph g(%x:f32[n]) {\n %y:f32[n] = onnx::Loop@20(%x, regions=(\"body\",), captures=()) {\n"
        "region body(%z:f32[n]) {\n %a:f32[n] = onnx::Abs@20(%z)\n %b:f32[n] = onnx::Neg@20(%a)\n"
        " return %b\n}\n}\n return %y\n}",
        Name,
    )  # fmt: skip
    verify(graph, Dialect.ONNX)
    (loop,) = graph.nodes
    absolute, negative = loop.regions[0].nodes
    loop.regions[0]._unlink(absolute.output, negative)
    with pytest.raises(CompileError, match=r"Neg.*a user 0 times, not 1"):
        verify(graph, Dialect.ONNX)


def test_operator_names_of_the_message() -> None:
    graph = basic_graph()
    graph.add(Node("odd", "frobnicate", (), (Value("f", DType.FLOAT32, ()),)))
    with pytest.raises(CompileError, match=r"frobnicate\(odd\)"):
        verify(graph, Dialect.BASIC)
