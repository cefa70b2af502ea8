"""Random, valid input values for an ONNX model.

Input: a path (or the name of a tiny export), the extents of its named dims, a seed. Output: one numpy array per graph
input. Which values are valid is read from the model's `metadata_props`, written by `models.exporting`; models from
elsewhere are judged by dtype and name. Invariant: the same arguments give the same arrays. Does not import torch.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from models.case import METADATA_PREFIX, InputKind
from models.registry import MODELS

_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def random_feeds(
    model: str | Path, dims: Mapping[str, int], seed: int = 0, *, padded: bool = False
) -> dict[str, np.ndarray[Any, Any]]:
    """Feeds for `model` (a name from the table or a path) at the extents `dims`.

    `padded` lets attention masks end in zeros, at least one 1 left per row; otherwise they are all ones.
    A dim that the model names and `dims` lacks is a `ValueError`.
    """
    path = Path(__file__).parent / "tiny" / f"{model}.onnx" if model in MODELS else Path(model)
    proto = onnx.load(path, load_external_data=False)
    metadata = {entry.key: entry.value for entry in proto.metadata_props}
    initializers = {tensor.name for tensor in proto.graph.initializer}
    generator = np.random.default_rng(seed)
    feeds = {}
    for value in proto.graph.input:
        if value.name in initializers:
            continue
        tensor = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = tuple(extent(dim, dims, value.name) for dim in tensor.shape.dim)
        kind, argument = _kind(metadata.get(METADATA_PREFIX + value.name), value.name, dtype)
        feeds[value.name] = _draw(generator, kind, argument, shape, dims, padded).astype(dtype)
    return feeds


def extent(dim: onnx.TensorShapeProto.Dimension, dims: Mapping[str, int], name: str) -> int:
    """Extent of a dim of input `name`: a number, a name in `dims`, or an expression over such names."""
    if not dim.dim_param:
        return int(dim.dim_value)
    if dim.dim_param in dims:
        return dims[dim.dim_param]
    return _evaluate(ast.parse(dim.dim_param, mode="eval").body, dims, name)


def _evaluate(node: ast.expr, dims: Mapping[str, int], name: str) -> int:
    """Value of a dim expression such as `past_seq + 1`."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=symbol):
            if symbol not in dims:
                raise ValueError(f"input {name!r} needs an extent for dim {symbol!r}")
            return dims[symbol]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate(left, dims, name), _evaluate(right, dims, name))
    raise ValueError(f"input {name!r}: cannot evaluate dim {ast.unparse(node)!r}")


def _kind(stored: str | None, name: str, dtype: np.dtype[Any]) -> tuple[InputKind, str]:
    if stored is not None:
        kind, _, argument = stored.partition(":")
        return InputKind(kind), argument
    if dtype == np.bool_:
        return InputKind.FLAG, ""
    if dtype.kind not in "iu":
        return InputKind.NORMAL, ""
    if "mask" in name:
        return InputKind.MASK, ""
    if "position" in name:
        return InputKind.POSITION, ""
    # Nothing says how many rows an unknown table has; two is what nearly every one has.
    return InputKind.TOKEN, "2"


def _draw(
    generator: np.random.Generator,
    kind: InputKind,
    argument: str,
    shape: tuple[int, ...],
    dims: Mapping[str, int],
    padded: bool,
) -> np.ndarray[Any, Any]:
    match kind:
        case InputKind.NORMAL:
            return generator.standard_normal(shape)
        case InputKind.TOKEN:
            return generator.integers(0, int(argument), shape)
        case InputKind.CHOICE:
            return generator.choice([int(number) for number in argument.split(",")], shape)
        case InputKind.FLAG:
            return generator.integers(0, 2, shape).astype(np.bool_)
        case InputKind.POSITION:
            start = dims[argument] if argument else 0
            return np.broadcast_to(np.arange(start, start + shape[-1]), shape)
        case InputKind.MASK:
            return _mask(generator, shape, padded)


def _mask(
    generator: np.random.Generator, shape: tuple[int, ...], padded: bool
) -> np.ndarray[Any, Any]:
    if not padded or shape[-1] == 0:
        return np.ones(shape, np.int64)
    lengths = generator.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    return (np.arange(shape[-1]) < lengths).astype(np.int64)
