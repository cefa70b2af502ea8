"""Matrix products of torch, and reading by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dvm_graph.errors import UnsupportedError
from dvm_graph.ir import DType, Value
from dvm_graph.torch_backend.elementwise import scaled
from dvm_graph.torch_backend.translation import Translation, entry

aten, prims = torch.ops.aten, torch.ops.prims


@entry(aten.mm.default, aten.bmm.default)
def _matmul(t: Translation, a: Value, b: Value) -> Value:
    return t.builder.matmul(a, b)


@entry(aten.addmm.default)
def _addmm(
    t: Translation, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    return t.builder.add(scaled(t, t.builder.matmul(a, b), alpha), scaled(t, bias, beta))


# -- reading by index


@entry(aten.embedding.default)
def _embedding(t: Translation, weight: Value, index: Value, *_: Any) -> Value:
    return t.onnx("Gather", weight, index, axis=0)


@entry(aten.index_select.default)
def _index_select(t: Translation, x: Value, axis: int, index: Value) -> Value:
    return t.onnx("Gather", x, index, axis=axis)


@entry(aten.gather.default)
def _gather(t: Translation, x: Value, axis: int, index: Value, **_: Any) -> Value:
    assert x.shape is not None and index.shape is not None
    if x.shape[:axis] + x.shape[axis + 1 :] != index.shape[:axis] + index.shape[axis + 1 :]:
        raise UnsupportedError("indices of a part of the rows")
    return t.onnx("GatherElements", x, index, axis=axis)


@entry(aten.index.Tensor)
def _index(t: Translation, x: Value, indices: Sequence[Value | None]) -> Value:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype is DType.BOOL:
        raise UnsupportedError("several indices, or a mask")
    ((axis, index),) = given
    return t.onnx("Gather", x, index, axis=axis)


@entry(aten.cumsum.default)
def _cumsum(t: Translation, x: Value, axis: int, **_: Any) -> Value:
    return t.onnx("CumSum", t.value(x, t.dtype), t.builder.scalar(axis, DType.INT64))
