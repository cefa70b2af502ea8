"""Linear algebra functions: products of floats are the cube unit's; those of integers are numpy's."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dvm_graph.errors import InputError, ShapeError
from dvm_graph.xp.array import Array
from dvm_graph.xp.axes import axes_of, axis_of
from dvm_graph.xp.buffer import OnHost, append, lazy
from dvm_graph.xp.elementwise import conj, multiply
from dvm_graph.xp.manipulation import moveaxis, permute_dims, reshape
from dvm_graph.xp.promotion import as_array, as_arrays
from dvm_graph.xp.statistical import reduced


@lazy
def matmul(x1: Array, x2: Array, /) -> Array:
    """Vectors are matrices of one row on the left, of one column on the right."""
    a, b = as_arrays(as_array(x1), as_array(x2))
    if not a.ndim or not b.ndim:
        raise InputError("matmul: of arrays of rank 0")
    left = a if a.ndim > 1 else reshape(a, (1, a.size))
    right = b if b.ndim > 1 else reshape(b, (b.size, 1))
    y = append("matmul", (left, right))
    rows = y.shape[-2:-1] if a.ndim > 1 else ()
    columns = y.shape[-1:] if b.ndim > 1 else ()
    return reshape(y, (*y.shape[:-2], *rows, *columns)) if a.ndim == 1 or b.ndim == 1 else y


@lazy
def matrix_transpose(x: Array, /) -> Array:
    if x.ndim < 2:
        raise InputError(f"matrices, not an array of shape {x.shape}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@lazy
def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    a, b = as_arrays(as_array(x1), as_array(x2))
    if isinstance(axes, int):
        if not 0 <= axes <= min(a.ndim, b.ndim):
            raise InputError(f"tensordot: {axes} axes of arrays of rank {a.ndim} and {b.ndim}")
        inner = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        inner = axes_of(tuple(axes[0]), a.ndim), axes_of(tuple(axes[1]), b.ndim)
    folded = [a.shape[axis] for axis in inner[0]]
    if folded != [b.shape[axis] for axis in inner[1]]:
        raise ShapeError(f"tensordot: axes {axes} of shapes {a.shape} and {b.shape}")
    if a.dtype.kind not in "f":
        raise OnHost(f"kernels compute no matmul of {a.dtype}")
    rows = [axis for axis in range(a.ndim) if axis not in inner[0]]
    columns = [axis for axis in range(b.ndim) if axis not in inner[1]]
    shape = (*(a.shape[axis] for axis in rows), *(b.shape[axis] for axis in columns))
    count, k = math.prod(a.shape[axis] for axis in rows), math.prod(folded)
    left = reshape(permute_dims(a, (*rows, *inner[0])), (count, k))
    right = permute_dims(b, (*inner[1], *columns))
    return reshape(matmul(left, reshape(right, (k, math.prod(right.shape[len(folded) :])))), shape)


@lazy
def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    a, b = as_arrays(as_array(x1), as_array(x2))
    a = moveaxis(a, axis_of(axis, a.ndim), -1)
    b = moveaxis(b, axis_of(axis, b.ndim), -1)
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"vecdot: vectors of {a.shape[-1]} and of {b.shape[-1]} elements")
    if a.dtype.kind == "b":
        raise OnHost("kernels count truths, which numpy does not here")
    products = multiply(conj(a), b)
    return reduced("reduce_sum", products, (products.ndim - 1,), False)
