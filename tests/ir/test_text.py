"""The text form: exact where people read it, and back again without loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dvm_graph.errors import CompileError
from dvm_graph.import_ import import_onnx
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.ir.parser import GraphSyntaxError, parse_graph
from dvm_graph.ir.printer import print_graph, print_node
from dvm_graph.ir.verify import Dialect, verify
from dvm_graph.options import Options
from dvm_graph.symbolic import Symbols, parse_dim
from tests.ir.graphs import Name, basic_graph

TINY = sorted((Path(__file__).parents[2] / "models" / "tiny").glob("*.onnx"))

BASIC_TEXT = """\
graph main(%x:f32[batch, 3, seq]) {
  %scale:f32[] = constant([0.125])
  %t:f32[batch, seq, 3] = transpose(%x, perm=(0, 2, 1))  // origin: /enc/T, "a b"
  %scaled:f32[batch, seq, 3] = mul(%t, %scale)
  %total:f32[batch, seq, 1] = reduce_sum(%scaled, axes=(2,))
  return %total as "out put"
}
"""


def test_exact_text() -> None:
    assert print_graph(basic_graph()) == BASIC_TEXT


def test_reads_back() -> None:
    graph = parse_graph(BASIC_TEXT, Name)
    verify(graph, Dialect.BASIC)
    assert print_graph(graph) == BASIC_TEXT
    (x,) = graph.inputs
    assert x.shape == (Name("batch"), 3, Name("seq"))
    transpose, mul, _ = graph.nodes
    assert transpose.attrs == {"perm": (0, 2, 1)}
    assert transpose.origin == ("/enc/T", "a b")
    assert mul.inputs[1] is not None and mul.inputs[1].data == np.float32(0.125)
    assert graph.output_names == ("out put",)


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_imported_models_read_back(path: Path) -> None:
    symbols = Symbols()
    text = print_graph(import_onnx(path, Options(), symbols))
    again = parse_graph(text, lambda dim: parse_dim(dim, symbols))
    verify(again, Dialect.ONNX)
    assert print_graph(again) == text


def round_trip(value: Any) -> Any:
    graph = Graph()
    result = Value(graph.unique_name("r"), DType.FLOAT32, ())
    graph.add(Node("n", "op", (), (result,), {"a": value}))
    (node,) = parse_graph(print_graph(graph), Name).nodes
    return node.attrs["a"]


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -7, 2**62, 0.1, -0.0, 1e-30, float("inf"), -float("inf"),
        "", "text, with (all) \"kinds\" // of\nthings", (), (1,), (1, 2), (1.5, "a", None),
        ((1, 2), (3,)), DType.BFLOAT16, b"\x00\xff", Name("batch*seq"), Name("Min(512, seq)"),
        (Name("a, b"), Name("x]"), 3), Name("none"), Name("1.5"), Name("a//b"),
    ],
    ids=repr,
)  # fmt: skip
def test_attributes_read_back(value: Any) -> None:
    read = round_trip(value)
    assert read == value and type(read) is type(value)
    assert repr(read) == repr(value)  # tells -0.0 from 0.0


def test_not_a_number_reads_back() -> None:
    assert np.isnan(round_trip(float("nan")))


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, np.inf, -np.inf, -0.0], np.float32),
        np.array([[1, -2], [3, 2**63 - 1]], np.int64),
        np.array([True, False]),
        np.array([0.1, 3.0]).astype(ml_dtypes.bfloat16),
        np.array(0.1, np.float64),
        np.array(["a", 'b"]'], object),
        np.zeros((2, 0), np.uint8),
    ],
    ids=lambda array: array.dtype.name,
)
def test_tensors_read_back(array: np.ndarray) -> None:
    read = round_trip(array)
    assert read.dtype == array.dtype and read.shape == array.shape
    assert read.tolist() == array.tolist()


def test_long_constants_are_elided_and_take_no_memory() -> None:
    graph = Graph()
    big = graph.constant(np.broadcast_to(np.float32(1), (1 << 20, 1 << 10)), "big")
    graph.outputs = [big]
    text = print_graph(graph)
    assert "%big:f32[1048576, 1024] = constant(...)" in text
    data = parse_graph(text, Name).outputs[0].data
    assert data is not None and data.shape == (1 << 20, 1 << 10) and data.strides == (0, 0)


def test_odd_names_dims_and_unknown_shapes() -> None:
    graph = Graph("a graph")
    x = Value(graph.unique_name("x:0 (in)"), DType.INT64, None)
    y = Value(graph.unique_name("/y.1"), DType.INT64, (2,), elements=(Name("n, m"), 3))
    graph.inputs = [x, y]
    graph.outputs = [y, x]
    graph.output_names = ("/y.1", "x:0 (in)")
    text = print_graph(graph)
    assert text.startswith('graph "a graph"(%"x:0 (in)":i64, %/y.1:i64[2]{"n, m", 3}) {')
    again = parse_graph(text, Name)
    assert print_graph(again) == text
    assert again.inputs[0].shape is None
    assert again.inputs[1].elements == (Name("n, m"), 3)


def test_regions_and_omitted_operands() -> None:
    text = """\
graph main(%c:b8[], %x:f32[n]) {
  %y:f32[n], %z:f32 = onnx::If@20(%c, _, %x, captures=("x",), regions=("then_branch",)) {  // origin: if
    region then(%x.1:f32[n]) {
      %a:f32[n] = ai.onnx.ml::Scaler@3(%x.1)  // origin: s
      return %a, %x.1
    }
  }
  check(%y)
  return
}
"""
    graph = parse_graph(text, Name)
    assert print_graph(graph) == text
    node = next(iter(graph.nodes))
    assert (node.domain, node.version, node.inputs[1]) == ("", 20, None)
    inner = next(iter(node.regions[0].nodes))
    assert (inner.domain, inner.op, inner.version) == ("ai.onnx.ml", "Scaler", 3)


def test_one_node_on_one_line() -> None:
    graph = basic_graph()
    lines = [print_node(node) for node in graph.nodes]
    assert lines[1] == "%scaled:f32[batch, seq, 3] = mul(%t, %scale)"


def test_attributes_without_a_text_form_are_named() -> None:
    graph = Graph()
    graph.add(Node("n", "op", (), (), {"table": {1: 2}}))
    with pytest.raises(CompileError, match="'table'"):
        print_graph(graph)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected 'graph'"),
        ("graph main() {\n  return %x\n}", "line 2: .*'x'"),
        ("graph main(%x:f99[]) {\n  return\n}", "'f99'"),
        ("graph main(%x:f32[], %x:f32[]) {\n  return\n}", "new name"),
        ("graph main(%x:f32[]) {\n  %y:f32[] = abs(%x\n  return\n}", "line "),
        ("graph main(%x:f32[", "expected"),
        ("graph main() {\n  return\n} rest", "expected the end"),
        ("graph main() {\n  %y:f32[] = onnx::Abs(%y)\n  return\n}", "expected '@'"),
        ("graph main() {\n  %c:f32[2] = constant([1.0])\n  return\n}", "shape \\(2,\\)"),
        ("graph main() {\n  %c:f32[1] = constant([one])\n  return\n}", "'one'"),
        ("graph main() {\n  %c:f32[n] = constant([1.0])\n  return\n}", "constant"),
        ("graph main() {\n  constant([1.0])\n  return\n}", "constant"),
        ("graph main() {\n  op(a=tensor:foo[1](1))\n  return\n}", "'foo'"),
    ],
)
def test_syntax_errors(text: str, message: str) -> None:
    with pytest.raises(GraphSyntaxError, match=message):
        parse_graph(text, Name)
