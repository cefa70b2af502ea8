"""Basic operators over constants: what `ir.numeric` gives for them.

Purpose: fold operators whose operands are constants. Arithmetic is that of the element type, except
that half types compute in float32 and are rounded once, as kernels do.

What it does not do: sources and vendor operators; windows; what is packed, which is so to take less memory; results above the asked size; what differs
from machine to machine; what a half type has no range for, since kernels hold it in more.
"""

from __future__ import annotations

import math

import numpy as np

from dvm_graph.errors import ShapeError
from dvm_graph.ir import OPERATORS, Array, DType, Kind, Node
from dvm_graph.ir.numeric import apply
from dvm_graph.symbolic.dims import is_static, product

_HALVES = {DType.FLOAT16: 2.0**-14, DType.BFLOAT16: 2.0**-126}
"""Half types, and the least number that each holds all bits of."""
_UNFOLDED = (Kind.SOURCE, Kind.CALL, Kind.WINDOW, Kind.UNPACK)


def evaluate_constant(
    node: Node, max_elements: float = math.inf, *, with_iota: bool = False
) -> Array | None:
    """The result of a basic node over constants; None where it is not one to fold. An iota, which kernels make as they go, is one
    only `with_iota`.

    Raises:
        ShapeError: an index is out of range.
    """
    result = node.output
    counts = with_iota and node.op == "iota"
    if node.op == "view" or (OPERATORS[node.op].kind in _UNFOLDED and not counts):
        return None
    if result.shape is None or not is_static(result.shape):
        return None
    if product(result.shape) > max_elements or not _has_numbers(node):
        return None
    operands = [value.data for value in node.inputs if value is not None]
    if any(data is None or data.size > max_elements for data in operands):
        return None
    arrays: list[Array] = [data for data in operands if data is not None]
    if node.op == "cast" and not _portable(arrays[0], result.dtype):
        return None
    if node.op in ("reduce_max", "reduce_min") and not arrays[0].size:
        return None
    narrow = bool(node.inputs) and node.inputs[-1] is not None and node.inputs[-1].dtype in _HALVES
    if narrow and node.op != "cast":
        arrays = [_widened(array) for array in arrays]
    try:
        data = apply(node.op, node.attrs, arrays)
    except IndexError as error:
        raise ShapeError(f"{node.op} of {node.where}: {error}") from error
    with np.errstate(all="ignore"):
        rounded = data.astype(result.dtype.numpy, copy=False)
        if node.op != "cast" and result.dtype in _HALVES:
            small = np.abs(data) < _HALVES[result.dtype]
            if np.any((rounded != data) & (np.isinf(rounded) | small)):
                return None
        return np.ascontiguousarray(rounded).reshape(result.shape)


def strided_view(node: Node, operand: Array) -> Array | None:
    """What a view gives, in the memory of its operand; None: no strides say that, or the run tells its extents."""
    shape = node.output.shape
    if shape is None or not is_static(shape) or not _has_numbers(node):
        return None
    view: Array
    match node.op:
        case "transpose":
            view = operand.transpose(node.attrs["perm"])
        case "broadcast_to":
            view = np.broadcast_to(operand, shape)
        case "slice":
            bounds = zip(node.attrs["starts"], shape, node.attrs["steps"], strict=True)
            view = operand[tuple(_counted(*bound) for bound in bounds)]
        case "reshape":
            try:
                view = np.reshape(operand, shape, copy=False)
            except ValueError:
                return None
        case _:
            return None
    return view if view.shape == shape else None


def _counted(start: int, size: int, step: int) -> slice:
    end = start + size * step
    return slice(start, None if end < 0 else end, step)


def _has_numbers(node: Node) -> bool:
    """Attributes that may be dims are ints."""
    starts = (*node.attrs.get("starts", ()), *node.attrs.get("steps", ()))
    single = (node.attrs.get(name, 0) for name in ("limit", "start", "step"))
    return is_static(starts) and all(isinstance(number, int) for number in single)


def _widened(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.name in ("float16", "bfloat16") else array


def _portable(array: Array, dtype: DType) -> bool:
    """What the conversion gives is the same on every machine."""
    if dtype is DType.OPAQUE or array.dtype == object:
        return False
    if array.dtype.kind in "iub" or not dtype.is_integer:
        return True
    wide = array.astype(np.float64)
    limits = np.iinfo(dtype.value)
    with np.errstate(all="ignore"):
        inside = (wide > limits.min - 1) & (wide < limits.max + 1.0)
        return bool((np.isfinite(wide) & inside).all())
