"""The standard's extension for linear algebra: products fuse (`linear_algebra`), decompositions are numpy's."""

from __future__ import annotations

import numpy as np

from dvm_graph.errors import InputError
from dvm_graph.xp.array import Array
from dvm_graph.xp.buffer import of_numpy
from dvm_graph.xp.elementwise import multiply
from dvm_graph.xp.linear_algebra import matmul, matrix_transpose, tensordot, vecdot
from dvm_graph.xp.manipulation import expand_dims

cholesky = of_numpy(np.linalg.cholesky)
cross = of_numpy(np.linalg.cross)
det = of_numpy(np.linalg.det)
diagonal = of_numpy(np.linalg.diagonal)
eigh = of_numpy(np.linalg.eigh)
eigvalsh = of_numpy(np.linalg.eigvalsh)
inv = of_numpy(np.linalg.inv)
matrix_norm = of_numpy(np.linalg.matrix_norm)
matrix_power = of_numpy(np.linalg.matrix_power)
matrix_rank = of_numpy(np.linalg.matrix_rank)
pinv = of_numpy(np.linalg.pinv)
qr = of_numpy(np.linalg.qr)
slogdet = of_numpy(np.linalg.slogdet)
solve = of_numpy(np.linalg.solve)
svd = of_numpy(np.linalg.svd)
svdvals = of_numpy(np.linalg.svdvals)
trace = of_numpy(np.linalg.trace)
vector_norm = of_numpy(np.linalg.vector_norm)


def outer(x1: Array, x2: Array, /) -> Array:
    """The products of each element of one vector with each of another."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise InputError(f"outer: of vectors, not of shapes {x1.shape} and {x2.shape}")
    return multiply(expand_dims(x1, -1), expand_dims(x2, 0))


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
