"""A slow evaluator of graphs of basic operators: `ir.numeric`, operator by operator.

In: a graph of basic and vendor operators and one array per graph input. Out: one array per graph
output. Dims are evaluated with the extents of the feeds; every result is checked against the shape
and dtype that deduction gave it, and known elements against the contents. Half floats are computed
in float32 and rounded after every operator. Vendor operators run on onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from dvm_graph.check.bound_extents import EXTENTS, compute_extents
from dvm_graph.import_ import partition_model
from dvm_graph.ir import OPERATORS, DType, Graph, Kind, Node, Value
from dvm_graph.ir.numeric import apply
from dvm_graph.symbolic.dims import substitute
from dvm_graph.symbolic.expressions import Expression, Symbol

Array = np.ndarray[Any, Any]


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs the nodes that outputs depend on."""
    return Evaluator(graph, feeds).run()


class Evaluator:
    def __init__(self, graph: Graph, feeds: Mapping[str, Array]) -> None:
        self._graph = graph
        self._arrays: dict[Value, Array] = {}
        self._symbols: dict[Any, int] = {}
        for value in graph.inputs:
            self._store(value, np.asarray(feeds[value.name]))

    def run(self) -> list[Array]:
        with np.errstate(all="ignore"):
            for node in self._graph.needed_nodes(n for n in self._graph.nodes if n.is_call):
                if node.op == "host" and node.attrs["op"] in EXTENTS:
                    operands = [None if v is None else self.array(v) for v in node.inputs]
                    extents = compute_extents(node.attrs["op"], node.attrs["arguments"], operands)
                    self._store(node.output, extents)
                elif node.is_call:  # vendor operators, and those of the host
                    self._run_vendor(node)
                else:
                    self._store(node.output, self._result(node))
        return [self.array(value) for value in self._graph.outputs]

    def array(self, value: Value) -> Array:
        if value.data is not None:
            return np.asarray(value.data)
        return self._arrays[value]

    def dim(self, dim: Any) -> int:
        result = substitute(dim, self._symbols)
        assert isinstance(result, int), f"{dim} has symbols that nothing binds"
        return result

    def dims(self, dims: Any) -> tuple[int, ...]:
        return tuple(self.dim(dim) for dim in dims)

    def _store(self, value: Value, array: Array) -> None:
        if value.shape is not None:
            self._bind_symbols(value, array)
            assert self.dims(value.shape) == array.shape, f"{value!r} is {array.shape}"
        if value.dtype is not DType.OPAQUE:
            assert array.dtype == value.dtype.numpy, f"{value!r} is {array.dtype}"
        self._arrays[value] = array
        if value.elements is not None:
            assert self.dims(value.elements) == tuple(array.reshape(-1).tolist()), repr(value)

    def _bind_symbols(self, value: Value, array: Array) -> None:
        if value.producer is not None and not value.producer.is_call:
            return
        assert value.shape is not None
        for dim, extent in zip(value.shape, array.shape, strict=True):
            if isinstance(dim, Symbol):
                self._symbols.setdefault(dim, extent)

    def _result(self, node: Node) -> Array:
        arrays = [self.array(value) for value in node.inputs if value is not None]
        attrs = {name: self._number(value) for name, value in node.attrs.items()}
        if node.op != "cast" and OPERATORS[node.op].kind not in (Kind.VIEW, Kind.GATHER):
            arrays = [_wide(array) for array in arrays]
        return apply(node.op, attrs, arrays).astype(node.output.dtype.numpy)

    def _number(self, attr: Any) -> Any:
        """An attribute, the dims in it as numbers."""
        if isinstance(attr, tuple | list):
            return tuple(self._number(item) for item in attr)
        return self.dim(attr) if isinstance(attr, Expression) else attr

    def _run_vendor(self, node: Node) -> None:
        inputs = [v for v in dict.fromkeys(node.inputs) if v is not None and v.data is None]
        model = partition_model([node], inputs, node.outputs)
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feeds = {value.name: self.array(value) for value in inputs}
        results = dict(
            zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True)
        )
        for value in node.outputs:
            if value.name in results:
                self._store(value, np.asarray(results[value.name]))


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x
