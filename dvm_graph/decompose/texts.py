"""Operators that make strings of strings, and count, match or read them: the host's, over its own strings.

In: strings, whatever they come from. Out: `host` operators over `Texts` (`runtime/texts.h`), the strings as the host keeps
them: given ones are read once, by an operator of that name, and need no interpreter from there on. What is moved in
between is places, as everywhere (`strings`).
"""

from __future__ import annotations

import numpy as np

from dvm_graph.decompose.families import MICROSOFT
from dvm_graph.decompose.host import add_host, fresh_dim
from dvm_graph.decompose.operands import required, text
from dvm_graph.decompose.patterns import matches_nothing, pattern_numbers
from dvm_graph.decompose.registry import Operands, Results, decomposition, of_strings
from dvm_graph.decompose.strings import add_texts, are_texts, texts_of, told_by_runs, words_of
from dvm_graph.errors import DamagedError
from dvm_graph.import_ import are_strings
from dvm_graph.ir import DType, Node, shape_of
from dvm_graph.symbolic.builder import Builder
from dvm_graph.symbolic.shape_functions import broadcast_shapes

_CASES = ("NONE", "LOWER", "UPPER")
_CUTS = ("characters", "separators", "expression")
_MODES = ("TF", "IDF", "TFIDF")


@decomposition("StringNormalizer")
@of_strings
def string_normalizer(builder: Builder, node: Node, operands: Operands) -> Results:
    x, case = required(node, operands, 0), text(node, "case_change_action", "NONE")
    left_out = words_of(node, "stopwords")
    folds = not node.attrs.get("is_case_sensitive", 0)
    if not are_strings(x) or x.shape is None or x.rank not in (1, 2) or left_out is None:
        return None
    if case not in _CASES:
        return None
    words = [text(node, "locale", "en_US.UTF-8"), *left_out]
    if not are_texts(words):
        return None
    shape = shape_of(x)
    if left_out:
        shape = (*shape[:-1], fresh_dim(builder, node, 0, x.rank - 1))
    arguments = (_CASES.index(case), folds)
    return add_texts(builder, node, [texts_of(builder, node, x)], arguments, shape, words=words)


@decomposition("Tokenizer", domain=MICROSOFT)
@of_strings
def tokenizer(builder: Builder, node: Node, operands: Operands) -> Results:
    x, cut = required(node, operands, 0), _cut(node)
    least = int(node.attrs.get("mincharnum", 0))
    if not are_strings(x) or x.shape is None or x.rank not in (1, 2) or cut is None:
        return None
    kind, patterns = cut
    pad = text(node, "pad_value", "")
    if not are_texts([pad]) or least < 1 or (kind == "characters" and least > 1):
        return None
    shape = (*shape_of(x), fresh_dim(builder, node, 0, x.rank))
    marks = bool(node.attrs.get("mark", 0))
    arguments = [marks, least, _CUTS.index(kind), len(patterns), *(n for p in patterns for n in p)]
    return add_texts(builder, node, [texts_of(builder, node, x)], arguments, shape, words=[pad])


def _cut(node: Node) -> tuple[str, list[list[int]]] | None:
    """What cuts text, and by which patterns; None: onnxruntime is to say."""
    separators, expression = words_of(node, "separators"), text(node, "tokenexp", "")
    if separators is None:
        return None
    if "separators" in node.attrs:
        if separators == [""]:
            return "characters", []
        found = [pattern_numbers(each, searched=True) for each in separators]
        patterns = [each for each in found if each is not None and not matches_nothing(each)]
        return ("separators", patterns) if 0 < len(patterns) == len(found) else None
    if expression == ".":
        return "characters", []
    pattern = pattern_numbers(expression, searched=True) if expression else None
    return None if pattern is None else ("expression", [pattern])


@decomposition("TfIdfVectorizer")
@of_strings
def tf_idf_vectorizer(builder: Builder, node: Node, operands: Operands) -> Results:
    x, grams = required(node, operands, 0), _Grams(node)
    if x.shape is None or x.rank > 2 or not grams.fit():
        return None
    if not are_strings(x) and x.dtype not in (DType.INT32, DType.INT64):
        return None
    columns = max(grams.columns) + 1
    least, most = (int(node.attrs[f"{which}_gram_length"]) for which in ("min", "max"))
    about = [_MODES.index(text(node, "mode", "")), least, most, node.attrs["max_skip_count"]]
    arguments = [*about, columns, len(grams.starts), *grams.starts, len(grams.columns)]
    arguments += [*grams.columns, *([] if grams.words else grams.integers)]
    weights = [] if grams.weights is None else [builder.constant(grams.weights)]
    source = texts_of(builder, node, x) if are_strings(x) else x
    rows = told_by_runs(builder, node, shape_of(x)[:1]) if x.rank == 2 else ()
    types = [(DType.FLOAT32, (*rows, columns))]
    return add_host(builder, node, [source, *weights], arguments, types, words=grams.words)


class _Grams:
    """The n-grams that a node counts."""

    def __init__(self, node: Node) -> None:
        attrs = node.attrs
        self._node = node
        self.starts = [int(start) for start in attrs.get("ngram_counts", ())]
        self.columns = [int(column) for column in attrs.get("ngram_indexes", ())]
        self.words = words_of(node, "pool_strings") or []
        self.integers = [int(item) for item in attrs.get("pool_int64s", ())]
        self.weights = np.array(attrs["weights"], np.float32) if "weights" in attrs else None

    def fit(self) -> bool:
        """Whether they are what the operator is defined for; else onnxruntime is to say.

        Raises:
            DamagedError: n-grams lack columns: onnxruntime ends the process when it meets one.
        """
        node, items = self._node, self.words or self.integers
        if text(node, "mode", "") not in _MODES or not items or not self.columns:
            return False
        if not {"min_gram_length", "max_gram_length", "max_skip_count"} <= node.attrs.keys():
            return False
        lengths = [int(node.attrs[f"{which}_gram_length"]) for which in ("min", "max")]
        if not 1 <= lengths[0] <= lengths[1] <= len(self.starts):
            return False
        if (
            node.attrs["max_skip_count"] < 0
            or min(self.columns) < 0
            or ("pool_strings" in node.attrs) != bool(self.words)
        ):
            return False
        grams: list[tuple[str | int, ...]] = []
        for length, (start, end) in enumerate(
            zip(self.starts, [*self.starts[1:], len(items)], strict=True), 1
        ):
            if not 0 <= start <= end <= len(items) or (end - start) % length:
                return False
            grams += [tuple(items[at : at + length]) for at in range(start, end, length)]
        if len(grams) > len(self.columns):
            raise DamagedError(f"{node.op} {node.name!r} has n-grams without columns")
        if len(set(grams)) != len(grams) or len(grams) != len(self.columns):
            return False
        return self.weights is None or self.weights.size == len(self.columns)


@decomposition("StringConcat")
@of_strings
def string_concat(builder: Builder, node: Node, operands: Operands) -> Results:
    parts = [required(node, operands, at) for at in (0, 1)]
    if not all(are_strings(part) and part.shape is not None for part in parts):
        return None
    shape = broadcast_shapes(node, [shape_of(part) for part in parts], builder.facts)
    return add_texts(builder, node, [texts_of(builder, node, part) for part in parts], (), shape)


@decomposition("StringSplit")
@of_strings
def string_split(builder: Builder, node: Node, operands: Operands) -> Results:
    x, delimiter = required(node, operands, 0), text(node, "delimiter", "")
    if not are_strings(x) or x.shape is None or not are_texts([delimiter]):
        return None
    most = int(node.attrs.get("maxsplit", -1))
    counts = told_by_runs(builder, node, shape_of(x))
    shape = (*counts, fresh_dim(builder, node, 0, x.rank))
    parts = [texts_of(builder, node, x)]
    numbers = [(DType.INT64, counts)]
    return add_texts(builder, node, parts, [most], shape, words=[delimiter], others=numbers)


@decomposition("RegexFullMatch")
@of_strings
def regex_full_match(builder: Builder, node: Node, operands: Operands) -> Results:
    x, pattern = (
        required(node, operands, 0),
        pattern_numbers(text(node, "pattern", ""), searched=False),
    )
    if not are_strings(x) or x.shape is None or pattern is None:
        return None
    types = [(DType.BOOL, told_by_runs(builder, node, shape_of(x)))]
    return add_host(builder, node, [texts_of(builder, node, x)], pattern, types)
