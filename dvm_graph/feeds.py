"""Random inputs that a model can make sense of, from its names, dtypes and vocabularies.

In: a model, extents of its dims, a seed. Out: an array for each input. Floats are standard normal.
Integers that pick rows of a constant table are drawn from its rows; masks are ones with a tail of zeros
in some rows, positions count up, a sampling rate is 16,000, bytes are any byte, and other integers 0 or
1. Invariant: the same arguments give the same arrays.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dvm_graph.errors import InputError, OutOfMemoryError
from dvm_graph.ir import Array, Dim, DType, Graph, Value

if TYPE_CHECKING:
    from dvm_graph.description import TensorInfo
    from dvm_graph.model import Model
    from dvm_graph.symbolic import Facts


DEFAULT_EXTENT = 2
"""Of dims that are not given."""

_MASK = re.compile(r"mask", re.IGNORECASE)
_POSITIONS = re.compile(r"position", re.IGNORECASE)
_RATE = re.compile(r"^(sr|sampl\w*_?rate)$", re.IGNORECASE)
_SAMPLING_RATE = 16000
_ON_THE_WAY = frozenset(("cast", "reshape", "broadcast_to", "transpose", "slice", "view", "select"))
"""Operators behind which an index is still one: those that handle negative ones among them."""


def random_feeds(model: Model, dims: Mapping[str, int], seed: int) -> dict[str, Array]:
    """Inputs at given extents, and at `Model.default_dims` of those that are not named.

    Raises:
        InputError: a negative seed or extent, a dim that no input has, or a dtype of which there
            are no random values.
        OutOfMemoryError: the inputs do not fit memory.
    """
    if seed < 0:
        raise InputError(f"the seed is {seed}, but has to be 0 or more")
    inputs = model.get_inputs()
    known = dim_names(inputs)
    for name in dims:
        if name not in known:
            raise InputError(f"no input has a dim {name!r}; dims are {', '.join(known) or 'fixed'}")
    dims = model.default_dims(dims)
    generator = np.random.default_rng(seed)
    rows = model.table_rows()
    feeds: dict[str, Array] = {}
    for info in inputs:
        shape = tuple(_extent(dim, dims) for dim in info.shape)
        if min(shape, default=0) < 0:
            raise InputError(f"input {info.name!r} cannot have shape {list(shape)}")
        dtype = _numpy_dtype(info)
        try:
            feeds[info.name] = _draw(generator, info.name, shape, dtype, rows.get(info.name))
        except (MemoryError, ValueError) as error:  # numpy refuses the largest with the latter
            raise OutOfMemoryError(
                f"no memory for input {info.name!r} of shape {list(shape)}"
            ) from error
    return feeds


def dim_names(inputs: Sequence[TensorInfo]) -> list[str]:
    """Names of the dims that inputs have, each once."""
    texts = [dim for info in inputs for dim in info.shape if isinstance(dim, str)]
    if all(text.isidentifier() for text in texts):
        return list(dict.fromkeys(texts))
    from dvm_graph.symbolic import Symbols, parse_dim

    symbols = Symbols()
    for text in texts:
        parse_dim(text, symbols)
    return [symbol.name for symbol in symbols.order]


def default_dims(
    inputs: Sequence[TensorInfo], demands: Mapping[str, int | str], given: Mapping[str, int]
) -> dict[str, int]:
    """See `Model.default_dims`."""
    names = dim_names(inputs)
    try:
        found = {name: operator.index(extent) for name, extent in given.items()}
    except TypeError:
        raise InputError(f"extents are whole numbers, not {dict(given)}") from None
    for name, dim in reversed(list(demands.items())):
        if name in found and isinstance(dim, str) and dim in names:
            found.setdefault(dim, found[name])  # two names of one dim
    for name, dim in demands.items():
        found.setdefault(name, _extent(dim, found))
    return {name: found.get(name, DEFAULT_EXTENT) for name in names}


def demands_on_dims(graph: Graph, facts: Facts) -> dict[str, int | str]:
    """What dims of inputs have to be for operators, by name: numbers, expressions of dims that are not among them or stand
    before, and the least of those that may not be as small as `DEFAULT_EXTENT`.
    """
    from dvm_graph.symbolic import Relation, symbols_of

    shapes = [value.shape or () for value in graph.inputs]
    symbols = {symbol: None for shape in shapes for dim in shape for symbol in symbols_of(dim)}
    found: dict[str, int | str] = {}
    read: set[object] = set()

    def demand(symbol: object, dim: Dim) -> None:
        named = symbol in symbols and str(symbol) not in found and symbol not in read
        if named and symbol not in symbols_of(dim):
            found[str(symbol)] = dim if isinstance(dim, int) else str(dim)
            read.update(symbols_of(dim))

    for symbol in symbols:
        demand(symbol, facts.canonical(symbol))
    equal = [check for check in facts.checks if check.relation is not Relation.LESS_EQUAL]
    sides = [[facts.canonical(side) for side in (check.left, check.right)] for check in equal]
    pairs = [pair for left, right in sides for pair in ((left, right), (right, left))]
    for symbol, dim in sorted(pairs, key=lambda pair: not isinstance(pair[1], int)):
        demand(symbol, dim)
    for symbol in symbols:
        least, _ = facts.bounds(symbol)
        if least > DEFAULT_EXTENT:
            demand(symbol, int(least))
    return found


def table_rows(graph: Graph) -> dict[str, int]:
    """How many rows the smallest constant table has that an input picks rows of, by the input's name."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        sizes = list(_sizes_of_tables(graph, value)) if value.dtype.is_integer else []
        if sizes:
            found[value.name] = min(sizes)
    return found


def _sizes_of_tables(graph: Graph, value: Value) -> Iterator[int]:
    seen, pending = {value}, [value]
    while pending:
        current = pending.pop()
        for node in graph.users(current):
            if node.op == "gather" and current is node.inputs[1]:
                table, axis = node.inputs[0], node.attrs.get("axis", 0)
                if table is not None and table.is_constant and table.shape is not None:
                    yield int(table.shape[axis])
            elif node.op in _ON_THE_WAY and node.output not in seen:
                seen.add(node.output)
                pending.append(node.output)


def _draw(
    generator: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    rows: int | None,
) -> Array:
    if dtype.kind not in "iub":
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    if _MASK.search(name):
        return _mask(generator, shape).astype(dtype)
    if _POSITIONS.search(name) and shape:
        count = np.arange(shape[-1]) % (rows or max(shape[-1], 1))
        return np.broadcast_to(count, shape).astype(dtype)
    if rows is not None:
        return generator.integers(0, max(rows, 1), shape).astype(dtype)
    if _RATE.match(name):
        return np.full(shape, _SAMPLING_RATE).astype(dtype)
    return generator.integers(0, 256 if dtype == np.uint8 else 2, shape).astype(dtype)


def _mask(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Ones, and zeros at the end of some rows, but never a row of zeros alone."""
    if not shape or shape[-1] == 0:
        return np.ones(shape)
    kept = generator.integers(1, 2 * shape[-1] + 1, (*shape[:-1], 1))
    return np.asarray(np.arange(shape[-1]) < kept)


def _extent(dim: int | str, dims: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if dim.isidentifier():
        return dims.get(dim, DEFAULT_EXTENT)
    from dvm_graph.symbolic import evaluate_dim_text

    return evaluate_dim_text(dim, dims, DEFAULT_EXTENT)


def _numpy_dtype(info: TensorInfo) -> np.dtype[Any]:
    name = info.type.removeprefix("tensor(").removesuffix(")")
    name = {"float": "float32", "double": "float64"}.get(name, name)
    if name == "bfloat16":
        return DType.BFLOAT16.numpy
    try:
        return np.dtype(name)
    except TypeError as error:
        raise InputError(f"input {info.name!r} has type {info.type}; pass feeds for it") from error
