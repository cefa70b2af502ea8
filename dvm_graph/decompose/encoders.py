"""Operators of `ai.onnx.ml` between categories and numbers: encoders, mappers, and maps of scores.

Categories are strings or numbers. Of those that are listed twice an operator takes the first or the last one, as
onnxruntime does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dvm_graph.decompose.families import CLASSICAL
from dvm_graph.decompose.host import add_host
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.registry import Operands, Results, decomposition, of_strings
from dvm_graph.decompose.strings import (
    Words,
    are_texts,
    class_labels,
    key_places,
    string_places,
    strings_at,
    words_of,
)
from dvm_graph.import_ import are_strings
from dvm_graph.ir import DType, Node, Value, shape_of
from dvm_graph.symbolic.builder import Builder

_Array = NDArray[Any]
_NUMBERS = {"int64s": np.int64, "floats": np.float32}
_SEARCHED = (DType.FLOAT32, DType.FLOAT64, DType.INT64)


@decomposition("LabelEncoder", domain=CLASSICAL)
@of_strings
def label_encoder(builder: Builder, node: Node, operands: Operands) -> Results:
    x = required(node, operands, 0)
    if x.shape is None:
        return None
    if node.version < 2:
        return _by_position(builder, node, x)
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if keys is None or values is None or not 0 < len(keys) == len(values):
        return None
    first = _first(keys, nan_is_key=node.version >= 4)
    other = _default(node, values)
    if first is None or other is None:
        return None
    return _looked_up(builder, node, x, keys, values, first, other)


def _by_position(builder: Builder, node: Node, x: Value) -> Results:
    """Strings by their places, the last ones of equal strings, and places by the strings there."""
    words = words_of(node, "classes_strings")
    if not words:
        return None
    if are_strings(x):
        known = {word: place for place, word in enumerate(words)}
        other = int(node.attrs.get("default_int64", -1))
        return [string_places(builder, node, x, list(known), list(known.values()), other)]
    if x.dtype is not DType.INT64:
        return None
    places = np.arange(len(words))
    return _looked_up(
        builder, node, x, places, words, places, text(node, "default_string", "_Unused")
    )


@decomposition("CategoryMapper", domain=CLASSICAL)
@of_strings
def category_mapper(builder: Builder, node: Node, operands: Operands) -> Results:
    """Strings to integers or back; of equal ones the last counts."""
    x, words = required(node, operands, 0), words_of(node, "cats_strings")
    integers = np.array(node.attrs.get("cats_int64s", ()), np.int64)
    if x.shape is None or not words or len(words) != integers.size:
        return None
    of_text = are_strings(x)
    keys, values = (words, integers) if of_text else (integers, words)
    last = np.array(list({key: at for at, key in enumerate(keys)}.values()))
    default = node.attrs.get("default_int64", -1) if of_text else text(node, "default_string", "")
    return _looked_up(builder, node, x, keys, values, last, default)


def _looked_up(
    builder: Builder,
    node: Node,
    x: Value,
    keys: Words | _Array,
    values: Words | _Array,
    used: NDArray[np.int64],
    other: Any,
) -> Results:
    """The values of keys, of which `used` says the places, no two of the same; `other` of anything else."""
    if isinstance(values, np.ndarray) and values.dtype == np.int64:
        numbers = _found(builder, node, x, keys, used, values[used], int(other))
        return None if numbers is None else [numbers]
    places = _found(builder, node, x, keys, used, np.arange(used.size), used.size)
    if places is None:
        return None
    if not isinstance(values, np.ndarray):
        return [strings_at(builder, node, places, [*(values[at] for at in used), str(other)])]
    table = np.append(values[used], np.array(other, values.dtype))
    return [builder.gather(builder.constant(table), places, 0)]


def _found(
    builder: Builder,
    node: Node,
    x: Value,
    keys: Words | _Array,
    used: NDArray[np.int64],
    numbers: NDArray[np.int64],
    other: int,
) -> Value | None:
    """The numbers of keys; None: what is looked up is of another type."""
    if not isinstance(keys, np.ndarray):
        words = [keys[at] for at in used]
        return (
            string_places(builder, node, x, words, numbers.tolist(), other)
            if are_strings(x)
            else None
        )
    if x.dtype not in _SEARCHED or x.dtype.numpy != keys.dtype:
        return None
    found = keys[used]
    is_nan = found != found
    of_nan = int(numbers[is_nan][0]) if is_nan.any() else None
    return key_places(builder, node, x, found[~is_nan], numbers[~is_nan], other, of_nan=of_nan)


def _listed(node: Node, what: str) -> Words | _Array | None:
    """The keys or values, which have one of several names; None: they have none or several, or are of none of these types."""
    names = [n for n in node.attrs if n.startswith(f"{what}_") and np.size(node.attrs[n])]
    if len(names) != 1:
        return None
    kind, given = names[0].removeprefix(f"{what}_"), node.attrs[names[0]]
    if kind == "strings":
        return words_of(node, names[0])
    if kind in _NUMBERS:
        return np.array(given, _NUMBERS[kind])
    array = np.asarray(given)
    if array.ndim != 1:
        return None
    if array.dtype == object:
        words = [str(word) for word in array]
        return words if are_texts(words) else None
    known = (np.float32, np.float64, np.int64, np.int16)
    return array if array.dtype in known else None


def _first(keys: Words | _Array, *, nan_is_key: bool) -> NDArray[np.int64] | None:
    """The places of keys without those that stand before them already."""
    if not isinstance(keys, np.ndarray):
        firsts: dict[str, int] = {}
        for at, key in enumerate(keys):
            firsts.setdefault(key, at)
        return np.array(list(firsts.values()))
    _, first = np.unique(keys, return_index=True)
    nan = np.flatnonzero(keys != keys)
    first = np.sort(first[keys[first] == keys[first]])
    return np.append(first, nan[:1]) if nan_is_key else first


def _default(node: Node, values: Words | _Array) -> Any | None:
    """What stands for all other keys; None: it is of another type."""
    given = node.attrs.get("default_tensor")
    if given is not None:
        one = np.asarray(given)
        if one.size != 1:
            return None
        if not isinstance(values, np.ndarray):
            return str(one.item()) if one.dtype == object else None
        return one.item() if one.dtype == values.dtype else None
    if not isinstance(values, np.ndarray):
        return text(node, "default_string", "_Unused")
    if values.dtype == np.int64:
        return node.attrs.get("default_int64", -1)
    return node.attrs.get("default_float", -0.0) if values.dtype.kind == "f" else None


@decomposition("OneHotEncoder", domain=CLASSICAL)
@of_strings
def one_hot_encoder(builder: Builder, node: Node, operands: Operands) -> Results:
    """A row of zeros and a one for each element, which stands where its category is listed last."""
    x, words = required(node, operands, 0), words_of(node, "cats_strings")
    integers = np.array(node.attrs.get("cats_int64s", ()), np.int64)
    if x.shape is None or words is None or bool(words) == bool(integers.size):
        return None
    refuses = not node.attrs.get("zeros", 1)
    keys: Sequence[Any] = words or integers.tolist()
    known = {key: place for place, key in enumerate(keys)}
    if are_strings(x):
        if not words:
            return None
        numbers = list(known.values())
        places = string_places(builder, node, x, list(known), numbers, len(keys), refuses=refuses)
    else:
        if words or x.dtype not in _SEARCHED:
            return None
        x = builder.cast(x, DType.INT64)
        found, at = np.array(list(known)), np.array(list(known.values()))
        places = key_places(builder, node, x, found, at, len(keys), refuses=refuses)
    each = builder.reshape(places, (*shape_of(places), 1))
    ones = builder.eq(each, builder.constant(np.arange(len(keys))))
    return [builder.cast(ones, DType.FLOAT32)]


@decomposition("ZipMap", domain=CLASSICAL)
def zip_map(builder: Builder, node: Node, operands: Operands) -> Results:
    """A map from labels to the numbers of each row, in the order of labels; of equal ones the last counts."""
    x, labels = required(node, operands, 0), class_labels(node, "classlabels_int64s")
    if x.dtype is not DType.FLOAT32 or x.rank not in (1, 2) or labels is None:
        return None
    keys = labels.tolist() if isinstance(labels, np.ndarray) else labels
    columns = {key: column for column, key in enumerate(keys)}
    ordered = sorted(columns)
    arguments = [len(keys), *(columns[key] for key in ordered)]
    types = [(DType.OPAQUE, None)]
    (maps,) = add_host(builder, node, [x], arguments, types, "Maps", ordered)
    maps.opaque_type = node.outputs[0].opaque_type
    return [maps]
