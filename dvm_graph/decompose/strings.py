"""Strings of a known vocabulary: kernels have their places in it, and strings are where they come in and go out.

In: places, and the words at them; or strings, and a number for each word. Out: `host` operators that need the
interpreter, `StringPlaces`, `StringsAt` and `Maps` (`runtime/bindings_words.h`), and `KeyPlaces`, the same of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.host import add_host
from dvm_graph.decompose.operands import shape_of
from dvm_graph.import_ import string_type
from dvm_graph.ir import DType, Node, Value
from dvm_graph.symbolic.builder import Builder

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


def strings_at(builder: Builder, node: Node, places: Value, words: Words) -> Value:
    """Strings, of places that are inside."""
    types = [(DType.OPAQUE, places.shape)]
    (result,) = add_host(builder, node, [places], (), types, "StringsAt", words)
    result.opaque_type = string_type(shape_of(places))
    return result


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
    arguments, types = [*numbers, other, refuses], [(DType.INT64, strings.shape)]
    return add_host(builder, node, [strings], arguments, types, "StringPlaces", words)[0]


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
