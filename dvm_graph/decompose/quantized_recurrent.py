"""onnxruntime's `DynamicQuantizeLSTM`: an LSTM by constant bytes, whose rows and states are rounded to 256 levels in the run.

In: the operator and its operands. Out: as of `recurrent`, with products of bytes: of all steps with W, by the range of
all of them, and of a step's states with R, by the range of each sequence's own. Nothing where weights, scales or zero points
are computed, or where sequences have lengths.

onnxruntime rounds states by the range of as many sequences as a thread of its works at: of each by itself where it has
no fewer threads than sequences, of all with one thread. What is done here hangs on neither.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dvm_graph.decompose.casts import dynamically_quantized
from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.integer_products import Weights, known, sums, weights_of
from dvm_graph.decompose.operands import operand, required
from dvm_graph.decompose.recurrent import turns_of
from dvm_graph.decompose.registry import Operands, Results, decomposition
from dvm_graph.ir import Array, DType, Node, Value
from dvm_graph.symbolic.builder import Builder

_FLOATS = 8
"""The operands that an LSTM has, too; then come scales and zero points of W and of R."""


@dataclass(frozen=True, slots=True)
class _Levels:
    """The weights of one direction."""

    weights: Weights
    """[k, columns]"""
    scale: Array
    """Of one element, or [columns]."""

    def of_all(self, builder: Builder, x: Value, first: int, columns: int) -> Value:
        """Products of rows that have a range together."""
        return self._times(builder, x, first, columns, rows=False)

    def of_each(self, builder: Builder, x: Value, first: int, columns: int) -> Value:
        """Products of rows with ranges of their own."""
        return self._times(builder, x, first, columns, rows=True)

    def _times(self, builder: Builder, x: Value, first: int, columns: int, *, rows: bool) -> Value:
        """[..., columns] of rows [..., k], in float32."""
        span = slice(first, first + columns)
        rounded, scale, point = dynamically_quantized(builder, x, rows=rows)
        zeros = self.weights.zeros
        part = Weights(
            np.ascontiguousarray(self.weights.bytes[:, span]),
            None if zeros is None else _of_columns(zeros, span),
        )
        y = builder.cast(sums(builder, rounded, point, part), DType.FLOAT32)
        factor = builder.mul(scale, builder.constant(_of_columns(self.scale, span)))
        return builder.mul(y, factor)


def _of_columns(parameter: Array, span: slice) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1)[span]


@decomposition("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamically_quantized_lstm(builder: Builder, node: Node, operands: Operands) -> Results:
    if operand(operands, 4) is not None:
        return None
    of_rows, of_states = (
        _levels(builder, node, operands, *places) for places in ((1, 8, 9), (2, 10, 11))
    )
    if of_rows is None or of_states is None or len(of_rows) != len(of_states):
        return None
    pairs = zip(of_rows, of_states, strict=True)
    times = [(w.of_all, r.of_each) for w, r in pairs]
    call = [operand(operands, at) for at in range(_FLOATS)]
    for at in (1, 2):  # bytes where an LSTM has floats, as that lays them out
        laid_out = np.swapaxes(np.asarray(required(node, operands, at).data), 1, 2)
        call[at] = builder.constant(np.ascontiguousarray(laid_out))
    lstm = replace(node, op="LSTM", domain="")
    return turns_of(builder, lstm, call, times)


def _levels(
    builder: Builder, node: Node, operands: Operands, at: int, scale: int, zero: int
) -> list[_Levels] | None:
    """The weights of each direction; None: they are not known, or malformed."""
    data, scales = (known(required(node, operands, place)) for place in (at, scale))
    point = operand(operands, zero)
    zeros = None if point is None else known(point)
    if data is None or data.ndim != 3 or not data.size or scales is None:
        return None
    if point is not None and zeros is None:
        return None
    directions, _, columns = data.shape
    for given in (scales, zeros):
        if given is not None and given.shape not in ((directions,), (directions, columns)):
            return None
    levels = []
    for number in range(directions):
        own = None if zeros is None else builder.constant(np.asarray(zeros[number]))
        weights = weights_of(builder.constant(data[number]), own)
        if weights is None:
            return None
        levels.append(_Levels(weights, np.asarray(scales[number])))
    return levels
