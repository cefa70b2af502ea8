"""Dims, facts about them, proofs, shape functions and the builder of basic operators.

The only room that imports sympy.
"""

from dvm_graph.symbolic.dims import Symbols
from dvm_graph.symbolic.facts import Check, Facts, Relation
from dvm_graph.symbolic.grammar import evaluate_dim_text, parse_dim
from dvm_graph.symbolic.lower import DimTable, evaluate
from dvm_graph.symbolic.polynomial import Dim
from dvm_graph.symbolic.proofs import Answer, Proof

__all__ = [
    "Answer",
    "Check",
    "Dim",
    "DimTable",
    "Facts",
    "Proof",
    "Relation",
    "Symbols",
    "evaluate",
    "evaluate_dim_text",
    "parse_dim",
]
