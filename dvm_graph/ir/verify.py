"""Rechecks the invariants of a graph between passes.

In: a graph and what operators it should be of. Raises CompileError naming the node; a graph that fails
here was broken by the pass that ran last. Does not prove that symbolic shapes agree: the shape
functions do that while building.

    dialect    holds
    ONNX       ONNX operators; only inputs and constants have shapes
    BASIC      basic operators with dtypes and shapes, and vendor operators
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence

from dvm_graph.errors import CompileError
from dvm_graph.ir.dtypes import DType
from dvm_graph.ir.graph import BASIC, Graph, Node, Value
from dvm_graph.ir.operators import OPERATORS, Kind, OperatorInfo, Result, sum_of_products


class Dialect(enum.Enum):
    """What operators a graph is of."""

    ONNX = "onnx"
    BASIC = "basic"


def verify(graph: Graph, dialect: Dialect) -> None:
    """Checks a graph, its regions and bodies.

    Raises:
        CompileError: an invariant does not hold.
    """
    values = list(graph.values())
    _check_names(graph, values)
    _check_structure(graph, values)
    check = _check_imported if dialect is Dialect.ONNX else _check_basic
    for node in graph.nodes:
        check(node)
        for region in node.regions:
            _check_structure(region, list(region.values()))
        for body in node.bodies:
            verify(body, Dialect.BASIC)
    for value in values:
        _check_value(value)


def _fail(node: Node, problem: str) -> CompileError:
    origin = f" from {', '.join(node.origin)}" if node.origin else ""
    return CompileError(f"{node!r}{origin}: {problem}")


# -- structure


def _check_names(graph: Graph, own: Sequence[Value]) -> None:
    values: dict[str, Value] = {}
    nodes: set[str] = set()
    for part in _with_regions(graph):
        for value in own if part is graph else part.values():
            if values.setdefault(value.name, value) is not value:
                raise CompileError(f"two values are named {value.name!r}")
        for node in part.nodes:
            if node.name in nodes:
                raise _fail(node, "another node has its name")
            nodes.add(node.name)


def _with_regions(graph: Graph) -> list[Graph]:
    graphs = [graph]
    for node in graph.nodes:
        for region in node.regions:
            graphs += _with_regions(region)
    return graphs


def _check_structure(graph: Graph, values: Sequence[Value]) -> None:
    available = set(graph.inputs)
    for node in graph.nodes:
        for index, value in enumerate(node.outputs):
            if value.producer is not node:
                raise _fail(node, f"result {index} {value!r} names another producer")
            if value in available:
                raise _fail(node, f"result {value!r} is an input or a result already")
            available.add(value)
    uses: dict[Value, dict[Node, int]] = {}
    for node in graph.nodes:
        for operand in node.inputs:
            if operand is None:
                continue
            if operand not in available and operand.data is None:
                raise _fail(node, f"operand {operand!r} is not of this graph")
            users = uses.setdefault(operand, {})
            users[node] = users.get(node, 0) + 1
    for value in () if graph.indexes(uses) else values:
        listed, true = graph.uses(value), uses.get(value, {})
        if listed != true:
            node = next(n for n in (*true, *listed) if listed.get(n) != true.get(n))
            raise _fail(
                node,
                f"{value!r} lists it as a user {listed.get(node, 0)} times, not {true.get(node, 0)}",
            )
    for value in graph.outputs:
        if value not in available and value.data is None:
            raise CompileError(f"graph output {value!r} is produced by no node of the graph")
    graph.sorted_nodes()  # finds cycles


# -- operators


def _check_value(value: Value) -> None:
    if value.data is not None:
        if value.shape != value.data.shape:
            raise CompileError(f"constant {value!r} holds data of shape {value.data.shape}")
        if value.dtype is not DType.OPAQUE and value.data.dtype != value.dtype.numpy:
            raise CompileError(f"constant {value!r} holds data of type {value.data.dtype}")
    if value.elements is None or value.shape is None:
        return
    if all(isinstance(dim, int) for dim in value.shape):
        count = math.prod(value.shape)
        if len(value.elements) != count:
            raise CompileError(f"{value!r} has {len(value.elements)} known elements, not {count}")


def _check_imported(node: Node) -> None:
    if node.domain == BASIC:
        raise _fail(node, "a basic operator in an imported graph")
    if node.version < 1:
        raise _fail(node, "an ONNX operator without an opset version")
    if len(node.attrs.get("regions", ())) != len(node.regions):
        raise _fail(node, "its regions and their attribute names do not pair")


def _check_basic(node: Node) -> None:
    info = OPERATORS.get(node.op)
    if node.domain != BASIC or info is None:
        raise _fail(node, f"no basic operator (domain {node.domain or 'ai.onnx'!r})")
    if info.kind is Kind.CALL:
        if node.op == "vendor" and not node.source:
            raise _fail(node, "a vendor operator without its ONNX node")
        if node.op == "host" and not all(name in node.attrs for name in info.attrs):
            raise _fail(node, "a host operator without its name or arguments")
        if node.op == "control" and (not node.bodies or None in node.inputs):
            raise _fail(node, "control flow without bodies, or with operands left out")
        return
    if len(node.outputs) != 1:
        raise _fail(node, f"{len(node.outputs)} results, not 1")
    if info.arity >= 0 and len(node.inputs) != info.arity:
        raise _fail(node, f"{len(node.inputs)} operands, not {info.arity}")
    for name in info.attrs:
        if name not in node.attrs:
            raise _fail(node, f"no attribute {name!r}")
    for value in (*node.inputs, node.output):
        if value is None or value.shape is None:
            raise _fail(node, f"operand or result {value!r} is omitted or has no shape")
        if value.dtype is DType.OPAQUE:
            raise _fail(node, f"{value!r} has a type for vendor operators only")
    _check_dtypes(node, info)
    if (check := _KIND_CHECKS.get(info.kind)) is not None:
        check(node)


def _check_dtypes(node: Node, info: OperatorInfo) -> None:
    operands = [value.dtype for value in node.inputs if value is not None]
    result = node.output.dtype
    alike = operands[1:] if node.op == "select" else operands
    if info.result is Result.SUM:
        if result is not sum_of_products(*operands):
            given = ", ".join(dtype.short for dtype in operands)
            raise _fail(node, f"its operands are {given}, its result {result.short}")
        return
    if info.kind in (Kind.MAP, Kind.VIEW, Kind.WINDOW) and len(set(alike)) > 1:
        raise _fail(node, f"its operands are {', '.join(dtype.short for dtype in operands)}")
    if info.result is Result.BOOL and result is not DType.BOOL:
        raise _fail(node, f"its result is {result.short}, not b8")
    if info.result is Result.SAME and operands:
        expected = operands[0] if info.kind is Kind.GATHER else operands[-1]
        if result is not expected:
            raise _fail(node, f"its result is {result.short}, its operand {expected.short}")
    if info.result is Result.ATTR and result is not node.attrs.get("dtype"):
        raise _fail(node, f"its result is {result.short}, not {node.attrs.get('dtype')}")
    if node.op == "select" and operands[0] is not DType.BOOL:
        raise _fail(node, f"its condition is {operands[0].short}, not b8")


def _check_reduce(node: Node) -> None:
    axes, rank = node.attrs["axes"], node.required(0).rank
    if list(axes) != sorted(set(axes)) or any(not 0 <= axis < rank for axis in axes):
        raise _fail(node, f"axes {axes} are not sorted axes of rank {rank}")
    if node.output.rank != rank:
        raise _fail(node, f"its result has rank {node.output.rank}, not {rank}")


def _check_map(node: Node) -> None:
    rank = max(value.rank for value in node.inputs if value is not None)
    if node.output.rank != rank:
        raise _fail(node, f"its result has rank {node.output.rank}, not {rank}")


def _check_matrix(node: Node) -> None:
    ranks = [node.required(0).rank, node.required(1).rank]
    if min(ranks) < 2 or node.output.rank != max(ranks):
        raise _fail(node, f"ranks {ranks} and result rank {node.output.rank} are no matmul's")
    block = node.attrs.get("rounded_blocks")
    if block is not None and block != node.required(1).packed_block:
        raise _fail(node, f"its right operand has no blocks of {block}")


def _check_view(node: Node) -> None:
    rank, result = node.required(0).rank, node.output
    attrs = node.attrs
    if node.op == "transpose" and sorted(attrs["perm"]) != list(range(rank)):
        raise _fail(node, f"perm {attrs['perm']} is no permutation of rank {rank}")
    if node.op == "slice" and {len(attrs[k]) for k in ("starts", "steps", "sizes")} != {rank}:
        raise _fail(node, f"starts, steps and sizes have not {rank} entries each")
    if node.op in ("reshape", "broadcast_to", "view") and tuple(attrs["shape"]) != result.shape:
        raise _fail(node, f"its shape {attrs['shape']} is not that of its result {result!r}")
    if node.op == "view" and len(attrs["strides"]) != result.rank:
        raise _fail(node, f"strides {attrs['strides']} do not fit its result {result!r}")
    if node.op == "concat" and not 0 <= attrs["axis"] < rank:
        raise _fail(node, f"axis {attrs['axis']} is outside rank {rank}")


def _check_gather(node: Node) -> None:
    data, index = node.required(0), node.required(1)
    if index.dtype is not DType.INT64:
        raise _fail(node, f"its index is {index.dtype.short}, not i64")
    if not 0 <= node.attrs["axis"] < data.rank:
        raise _fail(node, f"axis {node.attrs['axis']} is outside rank {data.rank}")


def _check_window(node: Node) -> None:
    rank = node.required(0).rank
    if rank not in ((4, 5) if node.op == "patches" else (4,)):
        raise _fail(node, f"rank {rank} is not that of images")
    if any(len(node.attrs[name]) != rank - 2 for name in OPERATORS[node.op].attrs[:5]):
        raise _fail(node, f"the sizes of its window are not {rank - 2}")


def _check_unpack(node: Node) -> None:
    if any(value is None or not value.is_constant for value in node.inputs):
        raise _fail(node, "what it unpacks is no constant")
    if node.required(0).dtype is not DType.UINT8 or node.required(0).rank != 3:
        raise _fail(node, f"its levels are {node.required(0)!r}, not bytes of blocks")


_KIND_CHECKS: dict[Kind, Callable[[Node], None]] = {
    Kind.MAP: _check_map,
    Kind.REDUCE: _check_reduce,
    Kind.MATRIX: _check_matrix,
    Kind.VIEW: _check_view,
    Kind.GATHER: _check_gather,
    Kind.WINDOW: _check_window,
    Kind.UNPACK: _check_unpack,
}
