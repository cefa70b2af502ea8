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

from dvm_graph.decompose.host import HOST, add_host, fresh_dim
from dvm_graph.decompose.registry import Operands
from dvm_graph.import_ import string_type
from dvm_graph.ir import DType, Node, Picked, Shape, Value, shape_of
from dvm_graph.symbolic import solve
from dvm_graph.symbolic.builder import Builder

Words = Sequence[str]
ALL_COLUMNS = (0, -1, -1)
"""Of a lookup: see `runtime/bindings_words.h`."""


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
    return Picked(numbers_of(builder, node, strings), (), (strings,))


def numbers_of(builder: Builder, node: Node, strings: Value) -> Value:
    """The place of each string among all, which tells their extents."""
    key = ("StringNumbers", strings)
    numbers = builder.shared(key)
    if numbers is None:
        types = [(DType.INT64, told_by_runs(builder, node, shape_of(strings)))]
        (numbers,) = add_host(builder, node, [strings], (), types, "StringNumbers")
        builder.share(key, numbers)
    return numbers


def texts_of(builder: Builder, node: Node, strings: Value) -> Value:
    """Strings of a known shape as the host keeps them."""
    if strings.picked is None and strings.data is None:
        return strings if _are_kept(strings) else _read(builder, node, strings)
    among = picked(builder, node, strings)
    if not among.words and among.sources == (_all_of(among.places),):
        return texts_of(builder, node, among.sources[0])
    key = ("TextsAt", among.places, among.words, among.sources)
    texts = builder.shared(key)
    if texts is None:
        sources = [texts_of(builder, node, source) for source in among.sources]
        parts, shape = [among.places, *sources], shape_of(among.places)
        (texts, *_) = add_texts(builder, node, parts, (), shape, "TextsAt", among.words)
        builder.share(key, texts)
    return texts


def _are_kept(strings: Value) -> bool:
    made = strings.made_by(HOST)
    return made is not None and made.attrs["op"] not in ("StringsAt", "Maps")


def _read(builder: Builder, node: Node, strings: Value) -> Value:
    key = ("Texts", strings)
    texts = builder.shared(key)
    if texts is None:
        (texts, *_) = add_texts(builder, node, [strings], (), shape_of(strings), "Texts")
        builder.share(key, texts)
    return texts


def _all_of(places: Value) -> Value | None:
    """The strings of which these are the places, each and in their order."""
    made = places.made_by(HOST)
    return made.inputs[0] if made is not None and made.attrs["op"] == "StringNumbers" else None


def add_texts(
    builder: Builder,
    node: Node,
    operands: Operands,
    arguments: Sequence[int],
    shape: Shape,
    op: str | None = None,
    words: Words = (),
    others: Sequence[tuple[DType, Shape]] = (),
) -> list[Value]:
    """The results of a `host` operator, the first of which are strings that the host keeps."""
    types = [(DType.OPAQUE, shape), *others]
    results = add_host(builder, node, operands, arguments, types, op, words)
    results[0].opaque_type = string_type(shape)
    return results


def told_by_runs(builder: Builder, node: Node, shape: Shape) -> Shape:
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
        shape = told_by_runs(builder, node, shape)
    arguments = [len(operands), *ALL_COLUMNS, len(words), *numbers, other, refuses]
    types = [(DType.INT64, shape)]
    return add_host(builder, node, operands, arguments, types, "StringPlaces", words)[0]


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
