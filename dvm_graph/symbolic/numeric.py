"""Basic operators over numbers: numpy's meaning of each.

Purpose: fold operators whose operands are constants. Arithmetic is that of the element type, except
that half types compute in float32 and are rounded once, as kernels do.

What it does not do: sources and vendor operators; results above the asked size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import DType, Node
from dvm_graph.symbolic.dims import is_static, product

Array: TypeAlias = np.ndarray[Any, Any]

_HALVES = (DType.FLOAT16, DType.BFLOAT16)


def evaluate_constant(node: Node, max_elements: float = math.inf) -> Array | None:
    """The result of a basic node over constants; None where it is not one to fold.

    Raises:
        ShapeError: an index is out of range.
    """
    result = node.output
    if result.shape is None or not is_static(result.shape):
        return None
    if product(result.shape) > max_elements:
        return None
    operands = [value.data for value in node.inputs if value is not None]
    if any(data is None or data.size > max_elements for data in operands):
        return None
    arrays: list[Array] = [data for data in operands if data is not None]
    if node.op == "cast":
        return _cast(arrays[0], node.attrs["dtype"])
    narrow = bool(node.inputs) and node.inputs[-1] is not None and node.inputs[-1].dtype in _HALVES
    with np.errstate(all="ignore"):
        data = _apply(node, [_widened(array) if narrow else array for array in arrays])
    if data is None:
        return None
    return np.ascontiguousarray(data.astype(result.dtype.numpy)).reshape(result.shape)


def _apply(node: Node, arrays: list[Array]) -> Array | None:
    function = _FUNCTIONS.get(node.op)
    if function is not None:
        return np.asarray(function(*arrays))
    rule = _WITH_ATTRS.get(node.op)
    return None if rule is None else rule(node, arrays)


def _widened(array: Array) -> Array:
    return array if array.dtype == bool else array.astype(np.float32)


def _cast(array: Array, dtype: DType) -> Array | None:
    if dtype is DType.OPAQUE or array.dtype == object:
        return None
    if dtype is DType.BOOL:
        return np.not_equal(array, 0)
    kind = np.dtype(dtype.numpy).kind
    with np.errstate(all="ignore"):
        if array.dtype.kind not in "iub" and kind in "iu":
            wide = array.astype(np.float64)
            limits = np.iinfo(dtype.value)
            if not (np.isfinite(wide).all() and (wide > limits.min - 1).all()):
                return None  # what the conversion gives differs from machine to machine
            return None if (wide >= limits.max + 1.0).any() else np.trunc(wide).astype(dtype.numpy)
        return array.astype(dtype.numpy)


def _divide(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.divide(a, b)
    safe = np.where(b == 0, 1, b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0)))
    return np.where(b == 0, 0, quotient)


def _modulo(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def modulo(a: Array, b: Array) -> Array:
        if a.dtype.kind == "f":
            return function(a, b)
        return np.where(b == 0, 0, function(a, np.where(b == 0, 1, b)))

    return modulo


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a, b)
    return np.array(
        [_integer_power(int(x), int(y)) for x, y in np.broadcast(a, b)], dtype=a.dtype
    ).reshape(np.broadcast_shapes(a.shape, b.shape))


def _integer_power(base: int, exponent: int) -> int:
    if exponent >= 0:
        return int(base**exponent)
    return base if base == 1 or (base == -1 and exponent % 2) else int(base == -1)


def _elementwise(function: Callable[[float], float]) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        values = [function(float(value)) for value in x.reshape(-1)]
        result: Array = np.array(values, x.dtype).reshape(x.shape)
        return result

    return apply


def _sigmoid(x: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-x))
    return result


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "neg": np.negative, "sign": np.sign, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x,
    "exp": np.exp, "log": np.log, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": _elementwise(math.erf), "tanh": np.tanh,
    "sigmoid": _sigmoid, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "logical_not": np.logical_not, "bitwise_not": np.invert,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide,
    "mod": _modulo(np.mod), "fmod": _modulo(np.fmod), "pow": _pow,
    "min": np.minimum, "max": np.maximum, "bitwise_and": np.bitwise_and,
    "shift_left": np.left_shift, "shift_right": np.right_shift, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "select": np.where,
}  # fmt: skip


def _reduction(function: Callable[..., Any], *, of_empty: bool) -> Callable[..., Array | None]:
    def reduce(node: Node, arrays: list[Array]) -> Array | None:
        (x,) = arrays
        if not of_empty and not x.size:
            return None
        keywords = {"dtype": x.dtype} if of_empty else {}
        return np.asarray(function(x, axis=node.attrs["axes"], keepdims=True, **keywords))

    return reduce


def _slice(node: Node, arrays: list[Array]) -> Array | None:
    (x,) = arrays
    starts, steps, sizes = (node.attrs[name] for name in ("starts", "steps", "sizes"))
    if not (is_static(starts) and is_static(steps)):
        return None
    for axis, (start, step, size) in enumerate(zip(starts, steps, sizes, strict=True)):
        x = x.take([start + i * step for i in range(size)], axis)
    return x


def _gather(node: Node, arrays: list[Array]) -> Array:
    x, index = arrays
    axis = node.attrs["axis"]
    return x.take(_wrapped(node, index, x.shape[axis]), axis)


def _check_index(node: Node, arrays: list[Array]) -> Array | None:
    limit = node.attrs["limit"]
    return _wrapped(node, arrays[0], limit) if isinstance(limit, int) else None


def _wrapped(node: Node, index: Array, extent: int) -> Array:
    if index.size and not (-extent <= index.min() and index.max() < extent):
        origin = ", ".join(node.origin) or node.name
        raise ShapeError(f"{node.op} of {origin}: an index is outside an axis of extent {extent}")
    return np.where(index < 0, index + extent, index)


_WITH_ATTRS: dict[str, Callable[[Node, list[Array]], Array | None]] = {
    "reduce_sum": _reduction(np.sum, of_empty=True),
    "reduce_prod": _reduction(np.prod, of_empty=True),
    "reduce_max": _reduction(np.max, of_empty=False),
    "reduce_min": _reduction(np.min, of_empty=False),
    "matmul": lambda _node, arrays: np.matmul(*arrays),
    "reshape": lambda node, arrays: arrays[0].reshape(node.attrs["shape"]),
    "transpose": lambda node, arrays: arrays[0].transpose(node.attrs["perm"]),
    "broadcast_to": lambda node, arrays: np.broadcast_to(arrays[0], node.attrs["shape"]),
    "concat": lambda node, arrays: np.concatenate(arrays, node.attrs["axis"]),
    "slice": _slice,
    "gather": _gather,
    "check_index": _check_index,
}
