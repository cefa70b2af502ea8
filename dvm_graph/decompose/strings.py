"""Strings of a known vocabulary: kernels have their places in it, and strings are where they come in and go out.

In: places, and the words at them; strings, and a number for each word; operators that move strings. Out: `host` operators
that need the interpreter, `StringPlaces`, `StringNumbers`, `StringsAt` and `Maps` (`runtime/bindings_words.h`), and `KeyPlaces`,
the same of numbers. What is moved, or looked up of strings that are picked, is places (`Picked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.arithmetic import dim_value
from dvm_graph.decompose.families import CLASSICAL
from dvm_graph.decompose.host import add_host, fresh_dim
from dvm_graph.decompose.moving import MOVERS
from dvm_graph.decompose.operands import shape_of
from dvm_graph.decompose.registry import Decomposition, Operands, Results
from dvm_graph.import_ import are_strings, string_type
from dvm_graph.ir import DType, Node, Picked, Shape, Value
from dvm_graph.symbolic import solve
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.dims import product

Words = Sequence[str]


def words_of(node: Node, name: str) -> Words | None:
    """A list of strings; None: one of them is no text."""
    given = node.attrs.get(name, ())
    words = [word.decode() if isinstance(word, bytes) else str(word) for word in given]
    return words if are_texts(words) else None


def are_texts(words: Words) -> bool:
    try:
        "".join(words).encode()
    except UnicodeEncodeError:  # bytes that were none
        return False
    return True


def labelled(builder: Builder, node: Node, places: Value, labels: Words | NDArray[Any]) -> Value:
    """The labels at places: strings, or numbers."""
    if isinstance(labels, np.ndarray):
        if np.array_equal(labels, np.arange(labels.size)):
            return places
        if labels.size == 2:
            first, second = (builder.constant(labels[at : at + 1]) for at in (0, 1))
            return builder.select(
                builder.eq(places, builder.scalar(0, places.dtype)), first, second
            )
        return builder.gather(builder.constant(labels), places, 0)
    return strings_at(builder, node, places, labels)


def class_labels(node: Node, numbers: str) -> Words | NDArray[np.int64] | None:
    """Of a classifier, whose attribute for numbers has this name; None: it has none, or both."""
    words = words_of(node, "classlabels_strings")
    integers = np.array(node.attrs.get(numbers, ()), np.int64)
    if words is None or bool(words) == bool(integers.size):
        return None
    return words or integers


def strings_at(
    builder: Builder, node: Node, places: Value, words: Words, sources: Sequence[Value] = ()
) -> Value:
    """Strings at places among words, and behind these in the sources; all places are inside."""
    types = [(DType.OPAQUE, places.shape)]
    (result,) = add_host(builder, node, [places, *sources], (), types, "StringsAt", words)
    result.opaque_type = string_type(shape_of(places))
    result.picked = Picked(places, tuple(words), tuple(sources))
    return result


def picked(builder: Builder, node: Node, strings: Value) -> Picked:
    """Strings of a known shape as places: of constants, of what they were taken from, or of themselves."""
    if strings.picked is not None:
        return strings.picked
    if strings.data is not None:
        texts = strings.data.reshape(-1).tolist()
        known = {word: place for place, word in enumerate(dict.fromkeys(texts))}
        places = np.array([known[word] for word in texts], np.int64).reshape(strings.data.shape)
        return Picked(builder.constant(places), tuple(known))
    return Picked(_numbers(builder, node, strings), (), (strings,))


def _numbers(builder: Builder, node: Node, strings: Value) -> Value:
    """The place of each string among all, which tells their extents."""
    key = ("StringNumbers", strings)
    numbers = builder.shared(key)
    if numbers is None:
        types = [(DType.INT64, _told_by_runs(builder, node, shape_of(strings)))]
        (numbers,) = add_host(builder, node, [strings], (), types, "StringNumbers")
        builder.share(key, numbers)
    return numbers


def _told_by_runs(builder: Builder, node: Node, shape: Shape) -> Shape:
    """Extents of strings, which no kernel's operand tells: dims that they do not tell either are others."""
    return tuple(
        dim if isinstance(dim, int) or solve(dim) is not None else fresh_dim(builder, node, 0, axis)
        for axis, dim in enumerate(shape)
    )


def string_places(
    builder: Builder,
    node: Node,
    strings: Value,
    words: Words,
    numbers: Sequence[int],
    other: int,
    *,
    refuses: bool = False,
) -> Value:
    """The number of each string, and `other` of those that are no word, if they are not refused."""
    operands, taken = [strings], strings.picked
    if taken is not None and not taken.words:
        operands = [taken.places, *taken.sources]
    elif taken is not None and not taken.sources and not refuses:
        known = dict(zip(words, numbers, strict=True))
        table = np.array([known.get(word, other) for word in taken.words], np.int64)
        return builder.gather(builder.constant(table), taken.places, 0)
    shape = shape_of(operands[0])
    if operands[0] is strings:
        shape = _told_by_runs(builder, node, shape)
    arguments, types = [*numbers, other, refuses], [(DType.INT64, shape)]
    return add_host(builder, node, operands, arguments, types, "StringPlaces", words)[0]


def moves_strings(node: Node, operands: Operands) -> bool:
    """Whether it only moves strings of known ranks, and no bytes that are no text."""
    given = [value for value in operands if value is not None]
    moved = given if node.op == "Concat" else given[:1]
    others = given[len(moved) :]
    return (
        ((node.op in _MOVERS and not node.domain) or _is_extractor(node))
        and bool(moved)
        and all(are_strings(value) and value.shape is not None for value in moved)
        and all(value.data is None or are_texts(value.data.reshape(-1).tolist()) for value in moved)
        and all(value.computable for value in others)
    )


_MOVERS = MOVERS | {"Concat"}


def _is_extractor(node: Node) -> bool:
    return node.op == "ArrayFeatureExtractor" and node.domain == CLASSICAL


def moved_strings(
    builder: Builder, node: Node, operands: Operands, function: Decomposition
) -> Results:
    """What moves strings moves their places; so does Identity, for what was fed is no result: it may be of any type."""
    count = len(operands) if node.op == "Concat" else 1
    strings = [value for value in operands[:count] if value is not None]
    parts = [picked(builder, node, value) for value in strings]
    places, words, sources = _in_one(builder, node, parts)
    results = function(builder, node, [*places, *operands[count:]])
    if results is None:
        return None
    return [None if y is None else strings_at(builder, node, y, words, sources) for y in results]


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
            size = dim_value(builder, product(shape_of(_numbers(builder, node, source))))
            behind = builder.add(behind, size)
    return places, words, sources


def key_places(
    builder: Builder,
    node: Node,
    x: Value,
    keys: NDArray[Any],
    numbers: NDArray[np.int64],
    other: int,
    *,
    of_nan: int | None = None,
    refuses: bool = False,
) -> Value:
    """As `string_places`, of keys that are numbers, no two of them the same."""
    order = np.argsort(keys, kind="stable")
    behind = [other, other if of_nan is None else of_nan]
    table = np.concatenate([numbers[order], np.array(behind, np.int64)])
    operands = [x, builder.constant(keys[order]), builder.constant(table)]
    types = [(DType.INT64, x.shape)]
    return add_host(builder, node, operands, [refuses], types, "KeyPlaces")[0]
