"""Small models as ONNX text, and how the tests import them."""

from __future__ import annotations

from typing import Any

import onnx
import onnx.parser

from dvm_graph.import_ import import_onnx
from dvm_graph.ir import Graph, Node
from dvm_graph.options import Options
from dvm_graph.symbolic import Symbols


def parse(body: str, opset: int = 20, imports: str = "") -> onnx.ModelProto:
    """A model from the text of its graph (and functions)."""
    return onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": {opset}{imports}]>\n{body}'
    )


def load(source: Any, symbols: Symbols | None = None) -> Graph:
    return import_onnx(source, Options(), symbols or Symbols())


def nodes_by_op(graph: Graph) -> dict[str, Node]:
    return {node.op: node for node in graph.nodes}
