"""A slow evaluator of basic operators in numpy: their executable definition.

In: a graph of basic and vendor operators and one array per graph input. Out: one array per graph
output. Dims are evaluated with the extents of the feeds; every result is checked against the shape
and dtype that deduction gave it, and known elements against the contents. Half floats are computed
in float32 and rounded after every operator. Vendor operators run on onnxruntime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from dvm_graph.import_ import partition_model
from dvm_graph.ir import DType, Graph, Node, Value
from dvm_graph.symbolic.dims import substitute

Array = np.ndarray[Any, Any]


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Runs the nodes that outputs depend on."""
    return Evaluator(graph, feeds).run()


def live_nodes(graph: Graph) -> list[Node]:
    """Nodes that an output depends on, in topological order."""
    live: set[Node] = set()
    pending = [value.producer for value in graph.outputs]
    while pending:
        node = pending.pop()
        if node is not None and node not in live:
            live.add(node)
            pending += [value.producer for value in node.inputs if value is not None]
    return [node for node in graph.sorted_nodes() if node in live]


class Evaluator:
    def __init__(self, graph: Graph, feeds: Mapping[str, Array]) -> None:
        self._graph = graph
        self._arrays: dict[Value, Array] = {}
        self._symbols: dict[Any, int] = {}
        for value in graph.inputs:
            self._store(value, np.asarray(feeds[value.name]))

    def run(self) -> list[Array]:
        with np.errstate(all="ignore"):
            for node in live_nodes(self._graph):
                if node.op == "vendor":
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
        if value.producer is not None and value.producer.op != "vendor":
            return
        assert value.shape is not None
        for dim, extent in zip(value.shape, array.shape, strict=True):
            if not isinstance(dim, int) and dim.is_Symbol:
                self._symbols.setdefault(dim, extent)

    def _result(self, node: Node) -> Array:
        arrays = [self.array(value) for value in node.inputs if value is not None]
        special = getattr(self, f"_{node.op}", None)
        if special is not None:
            return np.asarray(special(node, *arrays))
        dtype = node.output.dtype.numpy
        if node.op.startswith("reduce_"):
            return _rounded(_reduce(node.op, _wide(arrays[0]), tuple(node.attrs["axes"])), dtype)
        return _rounded(_MAPS[node.op](*map(_wide, arrays)), dtype)

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

    # -- operators that need more than their operands

    def _cast(self, node: Node, x: Array) -> Array:
        return x != 0 if node.output.dtype is DType.BOOL else x.astype(node.output.dtype.numpy)

    def _select(self, node: Node, condition: Array, then: Array, other: Array) -> Array:
        return np.where(condition, then, other)

    def _check_index(self, node: Node, index: Array) -> Array:
        return _checked(index, self.dim(node.attrs["limit"]))

    def _reshape(self, node: Node, x: Array) -> Array:
        return x.reshape(self.dims(node.attrs["shape"]))

    def _transpose(self, node: Node, x: Array) -> Array:
        return x.transpose(node.attrs["perm"])

    def _broadcast_to(self, node: Node, x: Array) -> Array:
        return np.broadcast_to(x, self.dims(node.attrs["shape"]))

    def _slice(self, node: Node, x: Array) -> Array:
        bounds = (self.dims(node.attrs[name]) for name in ("starts", "sizes", "steps"))
        for axis, (start, size, step) in enumerate(zip(*bounds, strict=True)):
            index = start + np.arange(size) * step
            assert np.all((index >= 0) & (index < x.shape[axis])), f"{node!r} reads outside"
            x = x.take(index, axis)
        return x

    def _view(self, node: Node, x: Array) -> Array:
        flat = np.ascontiguousarray(x).reshape(-1)
        index = np.asarray(self.dim(node.attrs["offset"]))
        shape, strides = self.dims(node.attrs["shape"]), self.dims(node.attrs["strides"])
        for extent, stride in zip(shape, strides, strict=True):
            index = index[..., np.newaxis] + np.arange(extent) * stride
        return flat[index]

    def _concat(self, node: Node, *arrays: Array) -> Array:
        return np.concatenate(arrays, node.attrs["axis"])

    def _gather(self, node: Node, x: Array, index: Array) -> Array:
        axis = node.attrs["axis"]
        return x.take(_checked(index, x.shape[axis]), axis)

    def _pool_max(self, node: Node, x: Array) -> Array:
        return self._windows(node, x, -np.inf).max(axis=(3, 4))

    def _pool_sum(self, node: Node, x: Array) -> Array:
        return self._windows(node, x, 0).sum(axis=(3, 4), dtype=x.dtype)

    def _depthwise(self, node: Node, x: Array, weights: Array) -> Array:
        taps = weights.reshape(*self.dims(node.attrs["kernel"]), x.shape[3])
        return (self._windows(node, x, 0) * taps).sum(axis=(3, 4), dtype=x.dtype)

    def _patches(self, node: Node, x: Array) -> Array:
        groups = node.attrs["groups"]
        windows = self._windows(node, x, 0)
        split = windows.reshape(*windows.shape[:-1], groups, x.shape[3] // groups)
        grouped = np.moveaxis(split, -2, 0)
        grouped = grouped.reshape(*grouped.shape[:4], -1)
        return grouped[0] if groups == 1 else grouped

    def _windows(self, node: Node, x: Array, outside: float) -> Array:
        """[n, h, w, c] as [n, rows, columns, tap row, tap column, c]."""
        names = ("kernel", "strides", "dilations", "pads", "size")
        sizes = [self.dims(node.attrs[name]) for name in names]
        result = x
        for index, (kernel, stride, dilation, pad, size) in enumerate(zip(*sizes, strict=True)):
            axis = 1 + index  # the taps of the rows lie behind the columns and channels by then
            at = np.arange(size)[:, None] * stride - pad + np.arange(kernel) * dilation
            inside = (at >= 0) & (at < x.shape[axis])
            taken = result.take(np.where(inside, at, 0), axis) if x.shape[axis] else None
            if taken is None:
                shape = (*result.shape[:axis], size, kernel, *result.shape[axis + 1 :])
                taken = np.full(shape, outside, x.dtype)
            around = [1] * taken.ndim
            around[axis : axis + 2] = inside.shape
            result = np.where(inside.reshape(around), taken, x.dtype.type(outside))
            result = np.moveaxis(result, axis + 1, -1)
        return np.moveaxis(result, 3, -1)

    def _iota(self, node: Node) -> Array:
        shape, axis = self.dims(node.attrs["shape"]), node.attrs["axis"]
        start, step = self.dim(node.attrs["start"]), self.dim(node.attrs["step"])
        line = start + np.arange(shape[axis], dtype=np.int64) * step
        line = line.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return np.broadcast_to(line, shape)

    def _dims(self, node: Node) -> Array:
        elements = np.array(self.dims(node.attrs["elements"]), np.int64)
        return elements.reshape(self.dims(node.attrs["shape"]))


def _checked(index: Array, limit: int) -> Array:
    wrapped = np.where(index < 0, index + limit, index)
    if np.any((wrapped < 0) | (wrapped >= limit)):
        raise IndexError(f"an index lies outside [{-limit}, {limit})")
    return wrapped


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype.name in ("float16", "bfloat16") else x


def _rounded(x: Array, dtype: np.dtype[Any]) -> Array:
    return np.asarray(x).astype(dtype)


def _reduce(op: str, x: Array, axes: tuple[int, ...]) -> Array:
    if op in ("reduce_sum", "reduce_prod"):
        fold = np.sum if op == "reduce_sum" else np.prod
        return np.asarray(fold(x, axis=axes, keepdims=True, dtype=x.dtype))
    if x.dtype.kind == "f":
        least, greatest = -np.inf, np.inf
    else:
        least, greatest = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    if op == "reduce_max":
        return np.asarray(np.max(x, axis=axes, keepdims=True, initial=least))
    return np.asarray(np.min(x, axis=axes, keepdims=True, initial=greatest))


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b)
    quotient = np.abs(a) // np.abs(safe)
    signed = np.where((a < 0) == (safe < 0), quotient, -quotient)
    return np.where(b == 0, 0, signed)


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    return np.power(a.astype(np.float64), b).astype(a.dtype)


def _bitwise_not(x: Array) -> Array:
    return np.asarray(np.invert(x))


def _sigmoid(x: Array) -> Array:
    tail = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + tail), tail / (1 + tail)))


_MAPS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "exp": np.exp,
    "log": np.log, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": np.vectorize(math.erf, otypes=[np.float64]), "tanh": np.tanh, "sigmoid": _sigmoid,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "logical_not": np.logical_not, "bitwise_not": _bitwise_not,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "mod": np.mod,
    "fmod": np.fmod, "pow": _pow, "min": np.minimum, "max": np.maximum,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "matmul": np.matmul,
}  # fmt: skip
