"""Discrete Fourier transforms of known lengths, as products with constant matrices: DFT, STFT.

Complex numbers are pairs along the last axis, so a row of signals is one of real numbers, and so is one of a spectrum.
Matrices grow with the square of the length: where they are large, the vendor library's fast transforms are faster, sooner
those of powers of two (`python -m benchmarks.units.alone --only ft`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.arithmetic import widened
from dvm_graph.decompose.operands import (
    constant_scalar,
    elements,
    integers,
    normalize_axis,
    operand,
    required,
)
from dvm_graph.decompose.registry import Operands, Results, decomposition, unless
from dvm_graph.decompose.slicing import part
from dvm_graph.ir import Dim, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import add, floordiv, mul, sub
from dvm_graph.symbolic.facts import Relation

_FAST_FROM = 1 << 21
"""Elements of the matrix from which on a transform of a power of two is faster."""
_CHIRP_FROM = 1 << 22
"""Of another length, which is done by several transforms."""
_MOST = 1 << 24


def _is_large(node: Node, operands: Operands) -> bool:
    length = _length(node, operands)
    if length is None:
        return False
    onesided = bool(node.attrs.get("onesided", node.op == "STFT"))
    parts = operands[0].shape[-1] if operands[0] is not None and operands[0].shape else 1
    rows = length * (2 if parts == 2 else 1)
    columns = length + 2 if onesided else 2 * length
    power = length & (length - 1) == 0
    return rows * columns >= (_FAST_FROM if power else _CHIRP_FROM)


def _length(node: Node, operands: Operands) -> int | None:
    """The number of elements of a signal that are transformed together; None: only the run tells."""
    given = 3 if node.op == "STFT" else 1
    if operand(operands, given) is not None:
        return _number(operands, given)
    if node.op == "STFT":
        window = operand(operands, 2)
        extent: Dim = 0 if window is None else shape_of(window)[0]
    else:
        x = required(node, operands, 0)
        axis = _axis(node, operands, x)
        extent = 0 if axis is None else shape_of(x)[axis]
        if node.attrs.get("inverse", 0) and node.attrs.get("onesided", 0):
            extent = mul(sub(extent, 1), 2)
    return extent if isinstance(extent, int) and extent > 0 else None


def _number(operands: Operands, index: int) -> int | None:
    numbers = integers(elements(operands, index))
    return numbers[0] if numbers is not None and len(numbers) == 1 and numbers[0] > 0 else None


def _axis(node: Node, operands: Operands, x: Value) -> int | None:
    """That of signals; None: only the run tells, or it is that of the parts of numbers."""
    if node.version < 20:
        axis = node.attrs.get("axis", 1)
    else:
        given = operand(operands, 2)
        axis = -2 if given is None else constant_scalar(given)
    if axis is None:
        return None
    axis = normalize_axis(node, int(axis), x.rank)
    return axis if axis < x.rank - 1 else None


@decomposition("DFT")
@unless(_is_large)
def dft(builder: Builder, node: Node, operands: Operands) -> Results:
    """Of signals that may be longer, and are cut off, or shorter, as if zeros followed; but halves of spectra of real
    signals have to be whole.
    """
    x = required(node, operands, 0)
    axis, length = _axis(node, operands, x), _length(node, operands)
    extent = None if axis is None else shape_of(x)[axis]
    parts = shape_of(x)[-1]
    if axis is None or length is None or x.rank < 3 or not isinstance(extent, int):
        return None
    inverse, onesided = bool(node.attrs.get("inverse", 0)), bool(node.attrs.get("onesided", 0))
    if parts not in (1, 2) or (onesided and parts != (2 if inverse else 1)):
        return None
    half = length // 2 + 1
    if inverse and onesided and extent != half:
        return None
    read = min(extent, length)
    if read < extent:
        x = part(builder, x, axis, 0, read)
    if inverse and onesided:
        matrix = _real_from_half(half, length)
    else:
        matrix = _complex(read, half if onesided else length, length, parts, inverse)
    if matrix.size > _MOST:
        return None
    last = (*(at for at in range(x.rank - 1) if at != axis), axis, x.rank - 1)
    turned = builder.transpose(widened(builder, x), last)
    y = _product(builder, turned, matrix, 1 if inverse and onesided else 2)
    back = sorted(range(x.rank), key=last.__getitem__)
    return [builder.cast(builder.transpose(y, back), x.dtype)]


@decomposition("STFT")
@unless(_is_large)
def stft(builder: Builder, node: Node, operands: Operands) -> Results:
    """Frames are a view of signals; a constant window is a factor of the rows of the matrix."""
    x, window = required(node, operands, 0), operand(operands, 2)
    step, length = _number(operands, 1), _length(node, operands)
    batch, extent, *rest = shape_of(x)
    parts = rest[0] if rest else 1
    onesided = bool(node.attrs.get("onesided", 1))
    if step is None or length is None or parts not in (1, 2) or (onesided and parts == 2):
        return None
    assert isinstance(parts, int)
    reason = f"the signals of {node.op} {node.name!r} are shorter than its frames"
    if not builder.facts.prove_less_equal(length, extent).yes:
        builder.facts.expect(length, Relation.LESS_EQUAL, extent, lambda: reason)
    matrix = _complex(length, length // 2 + 1 if onesided else length, length, parts, False)
    if matrix.size > _MOST:
        return None
    count = add(floordiv(sub(extent, length), step), 1)
    frames = builder.op(
        "view",
        widened(builder, x),
        shape=(batch, count, length, parts),
        strides=(mul(extent, parts), step * parts, parts, 1),
        offset=0,
    )
    if window is not None and window.data is not None:
        matrix *= np.repeat(np.asarray(window.data, np.float64), parts)[:, None]
    elif window is not None:
        factors = builder.reshape(builder.cast(window, frames.dtype), (length, 1))
        frames = builder.mul(frames, factors)
    return [builder.cast(_product(builder, frames, matrix, 2), x.dtype)]


def _product(builder: Builder, x: Value, matrix: NDArray[Any], parts: int) -> Value:
    """[..., elements, parts] by a matrix, to as many elements as it has columns of `parts`."""
    *lead, count, own = shape_of(x)
    table = builder.constant(matrix.astype(x.dtype.numpy))
    y = builder.matmul(builder.reshape(x, (*lead, mul(count, own))), table)
    return builder.reshape(y, (*lead, matrix.shape[1] // parts, parts))


def _waves(rows: int, columns: int, length: int, inverse: bool) -> NDArray[np.complex128]:
    """exp(-2 pi i row column / length), or its conjugate; whole turns are left out while they are integers."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    waves: NDArray[np.complex128] = np.exp((2j if inverse else -2j) * math.pi * turns / length)
    return waves


def _complex(count: int, bins: int, length: int, parts: int, inverse: bool) -> NDArray[np.float64]:
    """From elements of one or two parts each to bins of two."""
    waves = _waves(count, bins, length, inverse) / (length if inverse else 1)
    rows = (waves, 1j * waves)[:parts]
    pairs = [np.stack((row.real, row.imag), axis=-1) for row in rows]
    return np.stack(pairs, axis=1).reshape(count * parts, bins * 2)


def _real_from_half(bins: int, length: int) -> NDArray[np.float64]:
    """From the first bins of a spectrum, whose others are their conjugates, to elements of one part."""
    waves = _waves(bins, length, length, inverse=True) / length
    mirrored = (np.arange(bins) % length != 0) & (2 * np.arange(bins) != length)
    waves[mirrored] *= 2
    return np.stack((waves.real, -waves.imag), axis=1).reshape(bins * 2, length)
