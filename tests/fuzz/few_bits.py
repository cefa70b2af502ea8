"""MatMulNBits as onnxruntime documents it, in numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def product_of_few_bits(
    a: Array,
    words: Array,
    scales: Array,
    points: Array | None = None,
    groups: Array | None = None,
    bias: Array | None = None,
    **sizes: Any,
) -> Array:
    """In the precision of A."""
    k, n, block = (int(sizes[name]) for name in ("K", "N", "block_size"))
    bits = int(sizes.get("bits") or 4)

    def levels(words: Array, count: int) -> Array:
        few = np.unpackbits(words.reshape(n, -1), axis=1, bitorder="little")
        weights = 1 << np.arange(bits)
        return np.asarray((few.reshape(n, -1, bits) * weights).sum(2)[:, :count])

    blocks = -(-k // block)
    of = np.arange(k) // block if groups is None else groups.reshape(-1)[:k]
    if points is None:
        zero = np.full((n, blocks), 1 << bits - 1)
    else:
        whole = points.dtype == np.uint8
        zero = levels(points, blocks) if whole else points.reshape(n, blocks)
    centred = levels(words, k) - zero[:, of]
    matrix = centred.astype(a.dtype) * scales.reshape(n, blocks)[:, of]
    y = a @ matrix.T.astype(a.dtype)
    return np.asarray(y if bias is None else y + bias, a.dtype)
