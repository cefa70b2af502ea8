"""Graphs that tests of passes build operator by operator."""

from __future__ import annotations

from dvm_graph.ir import DType, Graph, Value
from dvm_graph.passes import (
    eliminate_dead,
    simplify,
)
from dvm_graph.symbolic import Facts, Symbols
from dvm_graph.symbolic.builder import Builder


class Sketch:
    """A graph being built by a test."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.facts = Facts(Symbols())
        self.build = Builder(self.graph, self.facts)

    def input(self, *shape: int | str, dtype: DType = DType.FLOAT32) -> Value:
        dims = tuple(self.facts.symbols.get(d) if isinstance(d, str) else d for d in shape)
        value = Value(self.graph.unique_name("x"), dtype, dims)
        self.graph.inputs.append(value)
        return value

    def number(self, number: float, dtype: DType = DType.FLOAT32) -> Value:
        return self.build.scalar(number, dtype)

    def after_simplify(self, output: Value) -> list[str]:
        self.graph.outputs = [output]
        eliminate_dead(self.graph)
        simplify(self.graph, self.facts)
        return self.operators()

    def operators(self) -> list[str]:
        return [node.op for node in self.graph.sorted_nodes()]
