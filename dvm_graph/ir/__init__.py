"""The graph, its element types and basic operators, its text form and its verifier."""

from dvm_graph.ir.dtypes import Array, DType
from dvm_graph.ir.graph import (
    Dim,
    Graph,
    Holding,
    ModelMetadata,
    Node,
    Picked,
    Shape,
    Value,
    read_from_around,
    shape_of,
    with_what_they_rest_on,
)
from dvm_graph.ir.operators import (
    FOR_PRODUCTS,
    FUNCTIONS,
    OPERATORS,
    RELAYOUTS,
    STRIDED,
    Kind,
    OperatorInfo,
    Result,
    sum_of_products,
)
from dvm_graph.ir.widening import widened

__all__ = [
    "Array",
    "Holding",
    "Picked",
    "OPERATORS",
    "FOR_PRODUCTS",
    "FUNCTIONS",
    "RELAYOUTS",
    "STRIDED",
    "DType",
    "Dim",
    "Graph",
    "Kind",
    "ModelMetadata",
    "Node",
    "OperatorInfo",
    "Result",
    "Shape",
    "Value",
    "read_from_around",
    "shape_of",
    "sum_of_products",
    "widened",
    "with_what_they_rest_on",
]
