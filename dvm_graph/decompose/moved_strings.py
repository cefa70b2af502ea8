"""Operators of tensors of any type, of strings: what moves, compares, orders, reads and writes them.

In: an operator, and strings among its operands or results. Out: what the operator's own decomposition makes of places, where
it only moves strings or asks for their extents; else places among known words, or the host's (`strings`, `texts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dvm_graph.decompose.arithmetic import dim_value
from dvm_graph.decompose.families import CLASSICAL
from dvm_graph.decompose.host import add_host, fresh_dim
from dvm_graph.decompose.moving import MOVERS
from dvm_graph.decompose.operands import present, required, text
from dvm_graph.decompose.registry import Decomposition, Operands, Results
from dvm_graph.decompose.strings import (
    Words,
    add_texts,
    are_texts,
    numbers_of,
    picked,
    string_places,
    strings_at,
    texts_of,
    told_by_runs,
)
from dvm_graph.import_ import are_strings, casts_to_strings
from dvm_graph.ir import DType, Node, Picked, Value, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product
from dvm_graph.symbolic.shape_functions import broadcast_shapes

_CASTS = frozenset({"Cast", "CastLike"})
_ASKS = frozenset({"Shape", "Size"})
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_FIRST = ("Compress", "GatherElements", "GatherND", "ReverseSequence", "Unique")
_AMONG: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys((*MOVERS, *_ASKS, *_FIRST), (0,)),
    **dict.fromkeys(_SCATTERS, (0, 2)),
    "Equal": (0, 1),
    "OneHot": (2,),
    "Where": (1, 2),
}
"""Which operands are strings; of Concat all are."""
_READ = (
    *(DType.FLOAT32, DType.FLOAT64, DType.INT8, DType.INT16, DType.INT32, DType.INT64),
    *(DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64, DType.BOOL),
)
"""Types of numbers that strings are read as, and written from, in the order in which `TextNumbers` counts them."""
_HALVES = (DType.FLOAT16, DType.BFLOAT16)
"""These are by way of float32."""


def is_over_strings(node: Node, operands: Operands) -> bool:
    """Whether it is one of these, over strings of known ranks, and over no bytes that are no text."""
    given = present(operands)
    if len(given) != len(operands) or not given:
        return False
    if node.op in _CASTS and not node.domain:
        return _casts_strings(node, given)
    at = _strings_among(node, len(operands))
    strings = [given[index] for index in at if index < len(given)]
    others = [value for index, value in enumerate(given) if index not in at]
    return (
        0 < len(strings) == len(at)
        and all(map(_are_texts_of_known_rank, strings))
        and all(value.computable for value in others)
    )


def over_strings(
    builder: Builder, node: Node, operands: Operands, function: Decomposition
) -> Results:
    """The results; `function` is the decomposition of its operator, of numbers."""
    if node.op in _OWN and not node.domain:
        return _OWN[node.op](builder, node, operands)
    return (_unique if node.op == "Unique" else _moved)(builder, node, operands, function)


def _strings_among(node: Node, count: int) -> Sequence[int]:
    """Which operands have to be strings; none: it is no such operator."""
    if node.op == "ArrayFeatureExtractor" and node.domain == CLASSICAL:
        return (0,)
    if node.domain or (node.op in _SCATTERS and text(node, "reduction", "none") != "none"):
        return ()
    return range(count) if node.op == "Concat" else _AMONG.get(node.op, ())


def _are_texts_of_known_rank(value: Value) -> bool:
    known = are_strings(value) and value.shape is not None
    return known and (value.data is None or are_texts(value.data.reshape(-1).tolist()))


def _casts_strings(node: Node, given: Sequence[Value]) -> bool:
    x, writes = given[0], _makes_strings(node, given)
    if are_strings(x):
        target = node.outputs[0].dtype if node.op == "Cast" else given[1].dtype
        return _are_texts_of_known_rank(x) and (writes or target in (*_READ, *_HALVES))
    return writes and x.computable and x.dtype in (*_READ, *_HALVES)


def _makes_strings(node: Node, operands: Operands) -> bool:
    if node.op == "Cast":
        return casts_to_strings(node)
    return are_strings(required(node, operands, 1))


def _moved(builder: Builder, node: Node, operands: Operands, function: Decomposition) -> Results:
    """What moves strings moves their places; so does Identity, for what was fed is no result: it may be of any type."""
    at = _strings_among(node, len(operands))
    parts = [picked(builder, node, required(node, operands, index)) for index in at]
    places, words, sources = _in_one(builder, node, parts)
    given = list(operands)
    for index, place in zip(at, places, strict=True):
        given[index] = place
    results = function(builder, node, given)
    if results is None or node.op in _ASKS:
        return results
    return [None if y is None else strings_at(builder, node, y, words, sources) for y in results]


def _equal(builder: Builder, node: Node, operands: Operands) -> Results:
    """Of places among the words of one, where these are known; else of the strings."""
    pair = [required(node, operands, at) for at in (0, 1)]
    for one, other in (pair, pair[::-1]):
        if other.data is None and (other.picked is None or other.picked.sources):
            continue
        among = picked(builder, node, other)
        numbers = {word: number for number, word in enumerate(dict.fromkeys(among.words))}
        table = np.array([numbers[word] for word in among.words], np.int64)
        known = builder.gather(builder.constant(table), among.places, 0)
        found = string_places(builder, node, one, list(numbers), list(numbers.values()), -1)
        return [builder.eq(found, known)]
    shape = broadcast_shapes(node, [shape_of(one) for one in pair], builder.facts)
    types = [(DType.BOOL, told_by_runs(builder, node, shape))]
    texts = [texts_of(builder, node, one) for one in pair]
    return add_host(builder, node, texts, (), types, "TextsEqual")


def _unique(builder: Builder, node: Node, operands: Operands, function: Decomposition) -> Results:
    """Of ranks in the order of bytes; where each string stands first tells what it is."""
    x = required(node, operands, 0)
    types = [
        (DType.INT64, told_by_runs(builder, node, shape_of(x))),
        (DType.INT64, (fresh_dim(builder, node, 0, 0),)),
    ]
    texts = [texts_of(builder, node, x)]
    ranks, firsts = add_host(builder, node, texts, (), types, "TextRanks")
    results = function(builder, node, [ranks])
    if results is None or results[0] is None:
        return None
    among = picked(builder, node, x)
    flat = builder.reshape(among.places, (product(shape_of(among.places)),))
    places = builder.gather(flat, builder.gather(firsts, results[0], 0), 0)
    return [strings_at(builder, node, places, among.words, among.sources), *results[1:]]


def _cast(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if are_strings(x) and _makes_strings(node, operands):
        among = picked(builder, node, x)
        return [strings_at(builder, node, among.places, among.words, among.sources)]
    if not are_strings(x):
        x = builder.cast(x, DType.FLOAT32) if x.dtype in _HALVES else x
        return add_texts(builder, node, [x], (), shape_of(x), "NumberTexts")[:1]
    target = node.outputs[0].dtype if node.op == "Cast" else required(node, operands, 1).dtype
    read = DType.FLOAT32 if target in _HALVES else target
    types = [(read, told_by_runs(builder, node, shape_of(x)))]
    texts = [texts_of(builder, node, x)]
    (numbers,) = add_host(builder, node, texts, [_READ.index(read)], types, "TextNumbers")
    return [builder.cast(numbers, target)]


_OWN: Mapping[str, Callable[[Builder, Node, Operands], Results]] = {
    "Cast": _cast,
    "CastLike": _cast,
    "Equal": _equal,
}


def _in_one(
    builder: Builder, node: Node, parts: Sequence[Picked]
) -> tuple[list[Value], Words, Sequence[Value]]:
    """Places among the words and sources of all."""
    first = parts[0]
    if all((part.words, part.sources) == (first.words, first.sources) for part in parts):
        return [part.places for part in parts], first.words, first.sources
    words = [word for part in parts for word in part.words]
    sources = [source for part in parts for source in part.sources]
    places, before, behind = [], 0, dim_value(builder, len(words), DType.INT64)
    for part in parts:
        own = len(part.words)
        among_words = builder.add(part.places, builder.scalar(before, DType.INT64))
        in_sources = builder.add(part.places, builder.sub(behind, builder.scalar(own, DType.INT64)))
        if own and part.sources:
            is_word = builder.lt(part.places, builder.scalar(own, DType.INT64))
            places.append(builder.select(is_word, among_words, in_sources))
        else:
            places.append(among_words if own else in_sources)
        before += own
        for source in part.sources:
            size = dim_value(builder, product(shape_of(numbers_of(builder, node, source))))
            behind = builder.add(behind, size)
    return places, words, sources
