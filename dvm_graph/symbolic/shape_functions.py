"""Shape functions of the basic operators.

Purpose: `infer` sets shape, dtype and (for small integer tensors) elements of a basic node's
result, and tells the facts what the operator demands: that matmul's k axes agree, that operands
broadcast, that a reshape keeps the number of elements.

Extents of 0 and 1 are extents like others: two unknown dims broadcast to `broadcast(a, b)`, unless
it is proven that neither can be 1.

What it does not do: vendor operators (onnx's own inference serves those).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NoReturn

import numpy as np

from dvm_graph.errors import CompileError, ModelError, ShapeError
from dvm_graph.ir import (
    OPERATORS,
    DType,
    Kind,
    Node,
    OperatorInfo,
    Result,
    Shape,
    Value,
    sum_of_products,
)
from dvm_graph.symbolic import dims
from dvm_graph.symbolic import expressions as forms
from dvm_graph.symbolic.contents import deduce_elements
from dvm_graph.symbolic.facts import Facts, Relation
from dvm_graph.symbolic.polynomial import Dim

ShapeFunction = Callable[[Node, Facts], Shape]


def infer(node: Node, facts: Facts) -> None:
    """Sets shape, dtype and elements of the result of a basic node.

    Raises:
        ShapeError: operands whose shapes contradict the operator or each other.
        ModelError: operands of wrong number or dtypes.
    """
    rule = _RULES.get(node.op)
    if rule is None:
        raise CompileError(f"{describe(node)}: no shape function for this operator")
    result = node.output
    result.shape = rule(node, facts)
    operand = node.inputs[-1] if node.inputs else None
    info = OPERATORS[node.op]
    if operand is not None and operand.dtype not in info.takes:
        raise ModelError(f"{describe(node)}: it does not compute with {operand.dtype.value}")
    alike = _DTYPE_OF.get(node.op)
    result.dtype = _result_dtype(node, info) if alike is None else node.required(alike).dtype
    result.elements = deduce_elements(node)
    if result.elements is None:
        return
    if result.dtype in _CHECKED:
        limits = _CHECKED[result.dtype]
        why = f"no extent exceeds {result.dtype.value}"
        _expect_between(node, result.elements, int(limits.min), int(limits.max), why, facts)
    if node.op == "check_index":  # which nothing is left of
        limit, elements = node.attrs["limit"], node.required(0).elements or ()
        why = "an index is inside its axis"
        _expect_between(node, elements, dims.neg(limit), dims.sub(limit, 1), why, facts)


_CHECKED = {dtype: np.iinfo(dtype.value) for dtype in (DType.INT32, DType.UINT32)}
"""Types whose limits symbolic elements may exceed: those of 64 bits are all that runs compute dims in, narrower ones have to be
known to hold theirs.
"""


def _expect_between(
    node: Node, elements: Iterable[Dim], least: Dim, most: Dim, why: str, facts: Facts
) -> None:
    """Has runs check what is not known of elements."""
    for element in dict.fromkeys(elements):
        for low, high in ((least, element), (element, most)):
            if not facts.prove_less_equal(low, high).yes:
                facts.expect(low, Relation.LESS_EQUAL, high, partial(_because, why, node))


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Strides of a contiguous tensor, in elements."""
    if not shape:
        return ()
    strides: list[Dim] = [1]
    for extent in shape[:0:-1]:
        strides.append(dims.mul(strides[-1], extent))
    return tuple(strides[::-1])


def describe(node: Node) -> str:
    """An operator application in words, for errors: name, ONNX origin, operand shapes."""
    operands = ", ".join("none" if value is None else repr(value) for value in node.inputs)
    return f"{node.op} of {node.where} ({operands})"


def broadcast_shapes(node: Node, shapes: Sequence[Shape], facts: Facts) -> Shape:
    """The shape that shapes broadcast to, as numpy's rules have it."""
    result = shapes[0]
    for shape in shapes[1:]:
        if shape == result or not shape:
            continue
        if len(shape) > len(result):
            result, shape = shape, result
        offset = len(result) - len(shape)
        paired = zip(result[offset:], shape, strict=True)
        result = result[:offset] + tuple(_broadcast(node, a, b, facts) for a, b in paired)
    return result


def _broadcast(node: Node, a: Dim, b: Dim, facts: Facts) -> Dim:
    if a is b:
        return a
    if isinstance(a, int) and isinstance(b, int):
        if a == b or b == 1:
            return a
        return b if a == 1 else _fail(node, f"extents {a} and {b} do not broadcast")
    a, b = facts.canonical(a), facts.canonical(b)
    if facts.same(a, b) or b == 1:
        return a
    if a == 1:
        return b
    return _broadcast_unknown(node, a, b, facts)


def _broadcast_unknown(node: Node, a: Dim, b: Dim, facts: Facts) -> Dim:
    a_proper, b_proper = _is_never_one(a, facts), _is_never_one(b, facts)
    if _capped(a, b, facts) or _capped(b, a, facts):
        _take_below_cap(node, a, b, facts)
        return facts.canonical(a)
    if a_proper and b_proper:
        _equate(node, a, b, facts, "operands broadcast")
        return facts.canonical(a)
    facts.expect(a, Relation.BROADCASTS, b, partial(_because, "operands broadcast", node))
    if a_proper or b_proper:
        return a if a_proper else b
    return facts.canonical(dims.broadcast_dim(a, b))


def _capped(a: Dim, b: Dim, facts: Facts) -> bool:
    """Whether b is Min(a, ...) of nothing else that can be 1 or 0: then a is 1 exactly where b is."""
    if not isinstance(b, forms.Min):
        return False
    args = b.args
    return a in args and all(arg == a or facts.bounds(arg)[0] > 1 for arg in args)


def _take_below_cap(node: Node, a: Dim, b: Dim, facts: Facts) -> None:
    """Takes a dim and its cap as equal: the dim does not exceed the other operands of the cap."""
    dim, cap = (a, b) if isinstance(b, forms.Min) else (b, a)
    for arg in cap.args:
        if isinstance(arg, int):
            facts.assume_range(dim, None, arg, _because("operands broadcast", node))
    if not facts.same(a, b):
        _equate(node, a, b, facts, "operands broadcast")


def _is_never_one(dim: Dim, facts: Facts) -> bool:
    return dim != 1 if isinstance(dim, int) else facts.prove_one(dim).no


def _equate(node: Node, a: Dim, b: Dim, facts: Facts, why: str) -> None:
    """Two dims that the operator demands to be equal."""
    if a is b or a == b:
        return
    if isinstance(a, int) and isinstance(b, int):
        _fail(node, f"{why}, but {a} is not {b}")
    if not facts.same(a, b):
        facts.assume_equal(a, b, _because(why, node))


def _because(why: str, node: Node) -> str:
    return f"{why} in {describe(node)}"


def _fail(node: Node, text: str) -> NoReturn:
    raise ShapeError(f"{describe(node)}: {text}")


def _operands(node: Node, count: int) -> Sequence[Value]:
    values = [value for value in node.inputs if value is not None]
    if not len(values) == len(node.inputs) == count:
        raise ModelError(f"{describe(node)}: takes {count} operands")
    return values


def _shape(node: Node, index: int = 0) -> Shape:
    value = node.operand(index)
    if value is None or value.shape is None:
        raise CompileError(f"{describe(node)}: the shape of operand {index} is not deduced yet")
    return value.shape


# -- dtypes

_DTYPE_OF = {
    info.name: 0 if info.kind is Kind.GATHER else -1
    for info in OPERATORS.values()
    if info.result is Result.SAME and info.kind is not Kind.SOURCE
}
"""Of operators whose result is of an operand's type: which operand."""


def _result_dtype(node: Node, info: OperatorInfo) -> DType:
    if info.kind is Kind.SOURCE:
        return DType.INT64
    if info.result is Result.BOOL:
        return DType.BOOL
    if info.result is Result.ATTR:
        return DType(node.attrs["dtype"])
    dtype = sum_of_products(node.required(0).dtype, node.required(1).dtype)
    assert dtype is not None
    return dtype


def _check_same_dtypes(node: Node, values: Sequence[Value | None]) -> None:
    first = values[0]
    for value in values:
        if value is None or first is None or value.dtype is not first.dtype:
            raise ModelError(f"{describe(node)}: operands have different element types")


# -- shape functions


def _unary(node: Node, _facts: Facts) -> Shape:
    if len(node.inputs) != 1:
        raise ModelError(f"{describe(node)}: takes 1 operand")
    return _shape(node)


def _binary(node: Node, facts: Facts) -> Shape:
    first, second = _operands(node, 2)
    if first.dtype is not second.dtype:
        _check_same_dtypes(node, node.inputs)
    return broadcast_shapes(node, (_shape(node, 0), _shape(node, 1)), facts)


def _select(node: Node, facts: Facts) -> Shape:
    condition, *choices = _operands(node, 3)
    if condition.dtype is not DType.BOOL:
        raise ModelError(f"{describe(node)}: the condition is not bool")
    _check_same_dtypes(node, choices)
    return broadcast_shapes(node, [_shape(node, index) for index in range(3)], facts)


def _reduce(node: Node, _facts: Facts) -> Shape:
    shape, axes = _shape(node), node.attrs["axes"]
    if any(not 0 <= axis < len(shape) for axis in axes):
        _fail(node, f"axes {axes} of rank {len(shape)}")
    return tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))


def _matmul(node: Node, facts: Facts) -> Shape:
    operands = _operands(node, 2)
    if sum_of_products(operands[0].dtype, operands[1].dtype) is None:
        _check_same_dtypes(node, operands)
    a, b = _shape(node, 0), _shape(node, 1)
    if len(a) < 2 or len(b) < 2:
        _fail(node, "operands of rank 2 or more are needed")
    _equate(node, a[-1], b[-2], facts, "k axes are equal")
    return (*broadcast_shapes(node, (a[:-2], b[:-2]), facts), a[-2], b[-1])


def _reshape(node: Node, facts: Facts) -> Shape:
    shape, target = _shape(node), tuple(node.attrs["shape"])
    if shape != target:
        before, after = dims.product(shape), dims.product(target)
        _equate(node, before, after, facts, "element counts are equal")
    return target


def _transpose(node: Node, _facts: Facts) -> Shape:
    shape, perm = _shape(node), node.attrs["perm"]
    if sorted(perm) != list(range(len(shape))):
        _fail(node, f"{perm} is no permutation of the axes of rank {len(shape)}")
    return tuple(shape[axis] for axis in perm)


def _broadcast_to(node: Node, facts: Facts) -> Shape:
    shape, target = _shape(node), tuple(node.attrs["shape"])
    offset = len(target) - len(shape)
    if offset < 0:
        _fail(node, f"rank {len(shape)} does not broadcast to rank {len(target)}")
    for dim, wanted in zip(shape, target[offset:], strict=True):
        if dim is wanted or dim == wanted or (isinstance(dim, int) and dim == 1):
            continue
        if facts.same(dim, wanted) or facts.same(dim, 1):
            continue
        if _is_never_one(dim, facts) or facts.same(wanted, 1):
            _equate(node, dim, wanted, facts, "extents broadcast")
        elif not (_is_broadcast_of(dim, wanted) or facts.expects_broadcast(dim, wanted)):
            why = partial(_because, "extents broadcast", node)
            facts.expect(dim, Relation.BROADCASTS_TO, wanted, why)
    return target


def _is_broadcast_of(dim: Dim, wanted: Dim) -> bool:
    """Whether what is wanted was made as that; a number may be anybody's."""
    return not isinstance(wanted, int) and bool(dims.broadcast_dim(dim, wanted) == wanted)


def _slice(node: Node, _facts: Facts) -> Shape:
    shape = _shape(node)
    starts, steps, sizes = (tuple(node.attrs[name]) for name in ("starts", "steps", "sizes"))
    if not len(shape) == len(starts) == len(steps) == len(sizes):
        _fail(node, f"starts {starts}, steps {steps}, sizes {sizes} for rank {len(shape)}")
    for extent, start, step, size in zip(shape, starts, steps, sizes, strict=True):
        if dims.is_static((extent, start, step, size)) and size:
            last = start + step * (size - 1)
            if size < 0 or not (0 <= start < extent and 0 <= last < extent):
                _fail(node, f"[{start}, {last}] leaves an axis of extent {extent}")
    return sizes


def _view(node: Node, _facts: Facts) -> Shape:
    return tuple(node.attrs["shape"])


def _concat(node: Node, facts: Facts) -> Shape:
    _check_same_dtypes(node, node.inputs)
    shapes = [_shape(node, index) for index in range(len(node.inputs))]
    axis, first = node.attrs["axis"], shapes[0]
    if not 0 <= axis < len(first) or any(len(shape) != len(first) for shape in shapes):
        _fail(node, f"ranks differ, or have no axis {axis}")
    total: Dim = 0
    for shape in shapes:
        for i, (dim, other) in enumerate(zip(first, shape, strict=True)):
            if i != axis and dim is not other:
                _equate(node, dim, other, facts, "extents beside the axis are equal")
        total = dims.add(total, shape[axis])
    return (*first[:axis], total, *first[axis + 1 :])


def _gather(node: Node, _facts: Facts) -> Shape:
    _x, index = _operands(node, 2)
    shape, axis = _shape(node, 0), node.attrs["axis"]
    if index.dtype is not DType.INT64:
        raise ModelError(f"{describe(node)}: the index is not int64")
    if not 0 <= axis < len(shape):
        _fail(node, f"no axis {axis}")
    return (*shape[:axis], *_shape(node, 1), *shape[axis + 1 :])


def _source(node: Node, _facts: Facts) -> Shape:
    return tuple(node.attrs["shape"])


def _dims(node: Node, _facts: Facts) -> Shape:
    shape = tuple(node.attrs["shape"])
    if dims.product(shape) != len(node.attrs["elements"]):
        _fail(node, f"{len(node.attrs['elements'])} elements for shape {shape}")
    return shape


def _pool(node: Node, _facts: Facts) -> Shape:
    images, _rows, _columns, channels = _images(node)
    return (images, *node.attrs["size"], channels)


def _depthwise(node: Node, facts: Facts) -> Shape:
    images, _rows, _columns, channels = _images(node)
    weighted, results = _shape(node, 1)
    groups = node.attrs["groups"]
    if any(isinstance(extent, int) and extent % groups for extent in (channels, results)):
        _fail(node, f"{channels} channels and {results} results do not divide into {groups} groups")
    elements = dims.mul(dims.product(node.attrs["kernel"]), dims.floordiv(channels, groups))
    _equate(node, weighted, elements, facts, "there is a weight for each channel of a tap")
    return (images, *node.attrs["size"], results)


def _patches(node: Node, _facts: Facts) -> Shape:
    images, *_extents, channels = _images(node, 4, 5)
    groups = node.attrs["groups"]
    elements = dims.mul(dims.product(node.attrs["kernel"]), dims.floordiv(channels, groups))
    result = (images, *node.attrs["size"], elements)
    return result if groups == 1 else (groups, *result)


def _unpack_blocks(node: Node, _facts: Facts) -> Shape:
    n, blocks, packed = _shape(node)
    bits, k = node.attrs["bits"], node.attrs["k"]
    block = packed * 8 // bits
    numbers = [value.shape for value in node.inputs[1:] if value is not None]
    if len(numbers) not in (1, 2) or any(shape != (n, blocks) for shape in numbers):
        _fail(node, f"no zeros and scales for {n} times {blocks} blocks")
    if not (blocks - 1) * block < k <= blocks * block:
        _fail(node, f"k is {k} in {blocks} blocks of {block}")
    return (k, n)


def _images(node: Node, *ranks: int) -> Shape:
    shape = _shape(node)
    if len(shape) not in (ranks or (4,)):
        _fail(node, f"rank {len(shape)} is not that of images")
    return shape


_BY_NAME: dict[str, ShapeFunction] = {
    "select": _select,
    "matmul": _matmul,
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "slice": _slice,
    "view": _view,
    "concat": _concat,
    "gather": _gather,
    "pool_max": _pool,
    "pool_sum": _pool,
    "depthwise": _depthwise,
    "patches": _patches,
    "unpack_blocks": _unpack_blocks,
    "iota": _source,
    "dims": _dims,
}


def _rules() -> dict[str, ShapeFunction]:
    rules = dict(_BY_NAME)
    for info in OPERATORS.values():
        if info.kind is Kind.REDUCE:
            rules[info.name] = _reduce
        elif info.kind is Kind.MAP and info.arity < 3:
            rules[info.name] = _unary if info.arity == 1 else _binary
    return rules


_RULES = _rules()
