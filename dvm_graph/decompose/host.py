"""Operators whose results have sizes or places that only the run tells, as `host` operators: C++ algorithms of the
runtime. So are long cumulative sums (`reductions`), whose numbers follow one from the other.

In: an ONNX operator. Out: a `host` operator with the shapes of its results, in which what only its data tells is a
fresh symbol, bound when it has run. So operators behind it are kernels over the sizes that came out.

A `host` operator has the operands, results and ONNX node of what it stands for, None for omitted operands, and
the operator's attributes as integers: `runtime/host_ops` says which. Those that only read extents are in `extents`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dvm_graph.decompose.operands import normalize_axis, operand, required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.decompose.windows import per_axis
from dvm_graph.errors import ModelError
from dvm_graph.ir import Dim, DType, Node, Shape, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, maximum, mul, product

HOST = "host"
HOST_OPERATORS = frozenset(
    {"Compress", "NonMaxSuppression", "NonZero", "ScatterElements", "ScatterND", "TopK", "Unique"}
)
"""ONNX operators over tensors that the host carries out, of any type."""


def add_host(
    builder: Builder,
    node: Node,
    operands: Operands,
    arguments: Sequence[int],
    types: Sequence[tuple[DType, Shape | None]],
    op: str | None = None,
    words: Sequence[str | int] = (),
) -> list[Value]:
    """The results of a `host` operator that stands for an ONNX node, or is a part of it by a name of its own. `words`:
    what it knows besides numbers.
    """
    wanted = types if op else types[: len(node.outputs)]
    told = {"op": op or node.op, "domain": node.domain, "arguments": tuple(map(int, arguments))}
    host = Node(
        name=builder.graph.unique_name(node.name),
        op=HOST,
        inputs=tuple(operands),
        outputs=tuple(
            Value(builder.graph.unique_name(f"{node.name}.result"), dtype, shape)
            for dtype, shape in wanted
        ),
        attrs={**told, "words": tuple(words)} if words else told,
        version=node.version,
        origin=node.origin,
        metadata=node.metadata,
        source=node.source,
    )
    builder.graph.add(host)
    return list(host.outputs)


def fresh_dim(builder: Builder, node: Node, result: int, axis: int) -> Dim:
    """A dim that the run tells, named after the result whose it is."""
    named = node.outputs[min(result, len(node.outputs) - 1)]
    stem = re.sub(r"\W+", "_", named.name).strip("_")
    return builder.facts.symbols.fresh(f"{stem}_{axis}")


@decomposition("NonZero")
def non_zero(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    found = (
        max(x.rank, 1),
        fresh_dim(builder, node, 0, 1),
    )  # a scalar is one element along one axis
    return add_host(builder, node, operands, (), [(DType.INT64, found)])


@decomposition("Compress")
def compress(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if node.attrs.get("axis") is None:
        kept: Shape = (fresh_dim(builder, node, 0, 0),)
        return add_host(builder, node, operands, (), [(x.dtype, kept)])
    axis = _axis_of(node, x)
    kept = _with_dim(x, axis, fresh_dim(builder, node, 0, axis))
    return add_host(builder, node, operands, (axis,), [(x.dtype, kept)])


@decomposition("Unique")
def unique(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    arguments = [int(node.attrs.get("sorted", 1))]
    if node.attrs.get("axis") is None:
        found = fresh_dim(builder, node, 0, 0)
        shape, extent = (found,), product(shape_of(x))
    else:
        axis = _axis_of(node, x)
        found, extent = fresh_dim(builder, node, 0, axis), shape_of(x)[axis]
        shape = _with_dim(x, axis, found)
        arguments.append(axis)
    lists = [(DType.INT64, (length,)) for length in (found, extent, found)]
    return add_host(builder, node, operands, arguments, [(x.dtype, shape), *lists])


@decomposition("TopK")
def top_k(builder: Builder, node: Node, operands: Operands) -> Results:
    x, k = required(node, operands, 0), required(node, operands, 1)
    axis = _axis_of(node, x)
    known = k.elements or ()
    count = known[0] if len(known) == 1 else fresh_dim(builder, node, 0, axis)
    shape = _with_dim(x, axis, count)
    arguments = (axis, node.attrs.get("largest", 1), node.attrs.get("sorted", 1))
    return add_host(builder, node, operands, arguments, [(x.dtype, shape), (DType.INT64, shape)])


@decomposition("MaxUnpool")
def max_unpool(builder: Builder, node: Node, operands: Operands) -> Results:
    """Places count over the whole result, also one of a shape that is given, as in onnxruntime."""
    x, places, given = (
        required(node, operands, 0),
        required(node, operands, 1),
        operand(operands, 2),
    )
    count = x.rank - 2
    kernel = tuple(int(size) for size in node.attrs.get("kernel_shape", ()))
    strides, pads = per_axis(node, "strides", count), per_axis(node, "pads", 2 * count, 0)
    if x.dtype is not DType.FLOAT32 or len(kernel) != count or strides is None or pads is None:
        return None
    more = [
        size - stride - before - after
        for size, stride, before, after in zip(
            kernel, strides, pads[:count], pads[count:], strict=True
        )
    ]
    shape = list(shape_of(x))
    for at, stride in enumerate(strides):
        shape[2 + at] = maximum(0, add(mul(shape[2 + at], stride), more[at]))
    if given is not None:
        known = given.elements or [fresh_dim(builder, node, 0, axis) for axis in range(x.rank)]
        shape = list(known)
    if len(shape) != x.rank:
        return None
    arguments = [number for pair in zip(strides, more, strict=True) for number in pair]
    return add_host(
        builder, node, [x, places, given][: len(operands)], arguments, [(x.dtype, tuple(shape))]
    )


_REDUCTIONS = ("none", "add", "mul", "max", "min")
"""Of what is scattered, as the host numbers them."""


@decomposition("Scatter", "ScatterElements", "ScatterND")
def scatter(builder: Builder, node: Node, operands: Operands) -> Results:
    x, indices = required(node, operands, 0), required(node, operands, 1)
    reduction = text(node, "reduction", "none")
    narrow = (DType.FLOAT16, DType.BFLOAT16, DType.BOOL)
    if reduction not in _REDUCTIONS or (reduction != "none" and x.dtype in narrow):
        return None
    arguments = [_REDUCTIONS.index(reduction)]
    if not (indices if node.op == "ScatterND" else x).rank:
        return None
    if node.op == "ScatterND":
        return add_host(builder, node, operands, arguments, [(x.dtype, x.shape)])
    arguments.insert(0, normalize_axis(node, node.attrs.get("axis", 0), x.rank))
    return add_host(builder, node, operands, arguments, [(x.dtype, x.shape)], "ScatterElements")


@decomposition("NonMaxSuppression")
def non_max_suppression(builder: Builder, node: Node, operands: Operands) -> Results:
    boxes, scores = required(node, operands, 0), required(node, operands, 1)
    if boxes.rank != 3 or scores.rank != 3:
        return None
    arguments = (node.attrs.get("center_point_box", 0),)
    found = (fresh_dim(builder, node, 0, 0), 3)
    return add_host(builder, node, operands, arguments, [(DType.INT64, found)])


def _axis_of(node: Node, x: Value) -> int:
    """The axis that a node names, the last by default.

    Raises:
        ModelError: there is none such; others than these operators have one of a scalar.
    """
    axis = node.attrs.get("axis", -1)
    if not x.rank:
        raise ModelError(f"{node.op} {node.name!r}: a scalar has no axis {axis}")
    return normalize_axis(node, axis, x.rank)


def _with_dim(x: Value, axis: int, dim: Dim) -> Shape:
    shape = shape_of(x)
    return (*shape[:axis], dim, *shape[axis + 1 :])
