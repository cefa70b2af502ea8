"""Operators of the host that are no operators of ONNX, by numpy: what their results mean.

In: the operator, its arguments and words, operands as arrays. Out: its results. What reads given strings is left out: no
inputs of such are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from dvm_graph.ir import Array, Node

_Meaning: TypeAlias = Callable[[Node, Sequence[Array]], "Array | list[Array]"]


def compute_own(node: Node, operands: Sequence[Array]) -> list[Array]:
    """The results of an operator of `OWN`."""
    results = OWN[node.attrs["op"]](node, operands)
    return results if isinstance(results, list) else [results]


def _strings_at(node: Node, operands: Sequence[Array]) -> Array:
    given = [text for source in operands[1:] for text in source.reshape(-1)]
    strings = [*node.attrs.get("words", ()), *given]
    picked: Array = np.empty(operands[0].shape, object)
    picked.reshape(-1)[:] = [strings[place] for place in operands[0].reshape(-1)]
    return picked


def _string_numbers(_: Node, operands: Sequence[Array]) -> Array:
    numbers: Array = np.arange(operands[0].size).reshape(operands[0].shape)
    return numbers


def _string_places(node: Node, operands: Sequence[Array]) -> list[Array]:
    arguments, words, given = (
        list(node.attrs["arguments"]),
        list(node.attrs["words"]),
        list(operands),
    )
    results = []
    while arguments:
        own, start, columns, _, count = arguments[:5]
        numbers, (other, _) = arguments[5 : 5 + count], arguments[5 + count : 7 + count]
        known = dict(zip(words[:count], numbers, strict=True))
        texts, *sources = given[:own]
        if sources:
            texts = np.concatenate([source.reshape(-1) for source in sources])[texts]
        if columns >= 0:
            texts = texts[..., start : start + columns] if columns else texts[..., start]
        found = [known.get(text, other) for text in texts.reshape(-1)]
        results.append(np.array(found, np.int64).reshape(texts.shape))
        arguments, words, given = arguments[7 + count :], words[count:], given[own:]
    return results


def _text_ranks(_: Node, operands: Sequence[Array]) -> list[Array]:
    every = [text.encode() for text in operands[0].reshape(-1)]
    order = {text: rank for rank, text in enumerate(sorted(set(every)))}
    ranks = np.array([order[text] for text in every], np.int64).reshape(operands[0].shape)
    return [ranks, np.array([every.index(text) for text in order], np.int64)]


def _texts_equal(_: Node, operands: Sequence[Array]) -> Array:
    equal: Array = np.equal(*operands).astype(bool)
    return equal


def _maps(node: Node, operands: Sequence[Array]) -> Array:
    """As one object."""
    columns = node.attrs["arguments"][1:]
    box = np.empty((), object)
    box[()] = [
        dict(zip(node.attrs["words"], row[list(columns)].tolist(), strict=True))
        for row in np.atleast_2d(operands[0])
    ]
    return box


def _key_places(_: Node, operands: Sequence[Array]) -> Array:
    x, keys, numbers = operands
    found = np.searchsorted(keys, x).clip(max=max(keys.size - 1, 0))
    known = keys[found] == x if keys.size else np.zeros(x.shape, bool)
    places = np.where(known, found, keys.size)
    return numbers[np.where(x != x, keys.size + 1, places)]


def _coupled(node: Node, operands: Sequence[Array]) -> Array:
    """Near the minimum that is searched: another search ends elsewhere, but not far away."""
    (classes,) = node.attrs["arguments"]
    first, second = np.triu_indices(classes, 1)
    rows = []
    for pairs in operands[0].astype(np.float64):
        against = np.zeros((classes, classes))
        against[first, second], against[second, first] = pairs, 1 - pairs
        q = -against.T * against
        np.fill_diagonal(q, (against**2).sum(0))
        border = np.block([[q, np.ones((classes, 1))], [np.ones((1, classes)), np.zeros((1, 1))]])
        rows.append(np.linalg.lstsq(border, np.eye(classes + 1)[classes], rcond=None)[0][:classes])
    return np.array(rows).reshape(-1, classes)


def _tree_sums(node: Node, operands: Sequence[Array]) -> Array:
    """Rows go down a tree side by side, a step at a time; leaves follow themselves."""
    targets, fold, *_ = node.attrs["arguments"]
    x, table, trees, features, nan, *weights = operands
    record = [("limit", x.dtype), ("column", "i4"), ("first", "i4"), ("weight", x.dtype)]
    nodes = table.view(record)[:, 0]
    units = nodes.itemsize // 8
    columns, rows = np.where(np.isnan(x[:, features]), nan, x[:, features]), np.arange(len(x))
    combine, start = ((np.add, 0), (np.minimum, np.inf), (np.maximum, -np.inf))[fold]
    sums = np.full((len(x), targets), start, x.dtype)
    for root, _, farthest in trees:
        at = np.full(len(x), root // units)
        for _ in range(farthest):
            node_of = nodes[at]
            above = columns[rows, node_of["column"]] > node_of["limit"]
            at = node_of["first"] // units + above
        leaf = nodes[at]["weight"]
        if not weights:
            sums[:, 0] = combine(sums[:, 0], leaf)
            continue
        numbers = np.ascontiguousarray(leaf).view("i4").reshape(len(x), -1)[:, 0]
        if len(weights) == 1:
            sums = combine(sums, weights[0].reshape(-1, targets)[numbers])
            continue
        said, ends, targets_of = weights
        for row, number in enumerate(numbers):
            for entry in range(ends[number], ends[number + 1]):
                cell = row, targets_of[entry]
                sums[cell] = combine(sums[cell], said[entry])
    return sums


OWN: Mapping[str, _Meaning] = {
    "CoupledProbabilities": _coupled,
    "KeyPlaces": _key_places,
    "Maps": _maps,
    "StringNumbers": _string_numbers,
    "StringPlaces": _string_places,
    "StringsAt": _strings_at,
    "TextRanks": _text_ranks,
    "TextsAt": _strings_at,
    "TextsEqual": _texts_equal,
    "TreeSums": _tree_sums,
}
