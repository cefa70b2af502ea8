"""Basic operators one by one in float64, with bounds on what a device may give instead.

In: nodes, arrays for what they read, and extents. Out: a `Bounded` for each result. Constants and
operands stay in their own type as long as they are only moved. Vendor operators run on onnxruntime.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from dvm_graph.check.bounded import Bounded, compute
from dvm_graph.check.extents import Extents
from dvm_graph.errors import InputError
from dvm_graph.ir import Array, DType, Graph, Node, Value
from dvm_graph.symbolic import Facts


class Reference:
    """Results of basic operators at some extents."""

    def __init__(
        self, extents: Extents, precision: str = "f32", bodies: Mapping[Graph, Facts] | None = None
    ) -> None:
        """`bodies`: what is assumed in the bodies of control flow, at which extents have to fit, too."""
        self.extents = extents
        self.bodies = bodies or {}
        self.known: dict[Value, Bounded] = {}
        self.settled: set[Value] = set()
        """Computed from constants alone: a pass may compute them in advance."""
        self._rounds_to = DType.BFLOAT16 if precision == "bf16" else None

    def inside(self) -> Reference:
        """For a body of control flow, which knows the sizes around it."""
        reference = Reference(Extents(self.extents.symbols), bodies=self.bodies)
        reference._rounds_to = self._rounds_to
        return reference

    def give(self, value: Value, array: Array) -> None:
        """What a value is, exactly."""
        self.known[value] = Bounded(array)

    def operand(self, value: Value) -> Bounded:
        found = self.known.get(value)
        if found is None:
            assert value.data is not None, f"{value!r} is read before it is computed"
            found = self.known[value] = Bounded(np.asarray(value.data))
        return found

    def result(self, node: Node) -> Bounded:
        """The result of one operator on what its operands are known to be."""
        operands = [self.operand(value) for value in node.inputs if value is not None]
        rounds_to = self._rounds_to if node.output.dtype is DType.FLOAT32 else None
        attrs = self.extents.attrs(node)
        try:
            return compute(node.op, attrs, operands, node.output.dtype, rounds_to)
        except (ValueError, OverflowError) as error:  # shapes that a run knows, and would refuse
            raise InputError(f"{node.op} of {node.where}: {error}") from error

    def run(self, nodes: Iterable[Node]) -> None:
        """Computes nodes in topological order.

        Raises:
            IndexError: an index is out of range.
        """
        for node in nodes:
            self.known[node.output] = self.result(node)
