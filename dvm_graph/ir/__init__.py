"""The graph, its element types and basic operators, its text form and its verifier."""

from dvm_graph.ir.dtypes import DType
from dvm_graph.ir.graph import BASIC, Dim, Graph, Node, Shape, Value
from dvm_graph.ir.operators import OPERATORS, Kind, OperatorInfo, Result

__all__ = [
    "BASIC",
    "OPERATORS",
    "DType",
    "Dim",
    "Graph",
    "Kind",
    "Node",
    "OperatorInfo",
    "Result",
    "Shape",
    "Value",
]
