"""Dims, facts about them, proofs, shape functions and the builder of basic operators."""

from dvm_graph.symbolic.binders import solve, tells_extents_of_feed, unsolved_dims
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import (
    Symbols,
    add,
    ceildiv,
    floordiv,
    mul,
    neg,
    product,
    sub,
    substitute,
    symbols_of,
)
from dvm_graph.symbolic.expressions import Symbol
from dvm_graph.symbolic.facts import Check, Facts, Relation
from dvm_graph.symbolic.grammar import evaluate_dim_text, parse_dim
from dvm_graph.symbolic.lower import OPS, DimTable, evaluate
from dvm_graph.symbolic.meter import Meter, Unmetered
from dvm_graph.symbolic.polynomial import Dim
from dvm_graph.symbolic.proofs import Answer, Proof
from dvm_graph.symbolic.to_sympy import to_sympy

__all__ = [
    "OPS",
    "Answer",
    "Builder",
    "Check",
    "Dim",
    "DimTable",
    "Facts",
    "Meter",
    "Proof",
    "Relation",
    "Symbol",
    "Symbols",
    "Unmetered",
    "add",
    "ceildiv",
    "evaluate",
    "evaluate_dim_text",
    "floordiv",
    "mul",
    "neg",
    "parse_dim",
    "product",
    "solve",
    "sub",
    "substitute",
    "symbols_of",
    "to_sympy",
    "tells_extents_of_feed",
    "unsolved_dims",
]
