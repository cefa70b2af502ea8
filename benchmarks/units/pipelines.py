"""Pipelines as scikit-learn is exported: rows of numbers or strings in, labels, scores and maps out.

The cases of `python -m benchmarks.units.alone --only pipeline`: what is asked row by row, and in batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.helper import make_tensor_value_info as port

_RANDOM = np.random.default_rng(2)
_FEATURES = 20
_ROWS = (1, 64, 1024)
_WORDS = ("red", "green", "blue", "other")
_LABELS = ("setosa", "versicolor", "virginica")


def _numbers(*shape: int) -> list[float]:
    return [float(number) for number in _RANDOM.standard_normal(shape).reshape(-1)]


_ONNX = (
    *("Concat", "Gather", "Reshape", "Cast", "Mul", "Flatten"),
    *("StringNormalizer", "TfIdfVectorizer"),
)


def _node(op: str, operands: str, results: str, **attributes: Any) -> onnx.NodeProto:
    domain = "" if op in _ONNX else "com.microsoft" if op == "Tokenizer" else "ai.onnx.ml"
    return helper.make_node(op, operands.split(), results.split(), domain=domain, **attributes)


def _pipeline(
    nodes: Sequence[onnx.NodeProto],
    element: int,
    columns: int,
    results: str,
    constants: Sequence[onnx.TensorProto] = (),
    others: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "pipeline",
        [port("x", element, ["n", columns]), *others],
        [onnx.ValueInfoProto(name=name) for name in results.split()],
        list(constants),
    )
    domains = {"": 18, "ai.onnx.ml": 3, "com.microsoft": 1}
    imports = [helper.make_opsetid(*about) for about in domains.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def _linear(operand: str, features: int) -> onnx.NodeProto:
    return _node(
        "LinearClassifier",
        operand,
        "label scores",
        coefficients=_numbers(3, features),
        intercepts=_numbers(3),
        classlabels_strings=_LABELS,
        post_transform="SOFTMAX",
    )


def _machine(vectors: int, **attributes: Any) -> onnx.NodeProto:
    return _node(
        "SVMClassifier",
        "scaled",
        "label scores",
        support_vectors=_numbers(vectors, _FEATURES),
        coefficients=_numbers(2, vectors),
        vectors_per_class=[vectors // 3] * 3,
        rho=_numbers(3),
        kernel_type="RBF",
        kernel_params=[0.05, 0.0, 3.0],
        classlabels_strings=_LABELS,
        **attributes,
    )


def _of_numbers() -> Iterator[tuple[str, onnx.ModelProto]]:
    scaler = _node("Scaler", "x", "scaled", offset=_numbers(_FEATURES), scale=_numbers(_FEATURES))
    maps = _node("ZipMap", "scores", "maps", classlabels_strings=_LABELS)
    linear = [scaler, _linear("scaled", _FEATURES)]
    yield "labels", _pipeline(linear, TensorProto.FLOAT, _FEATURES, "scores label")
    yield "maps", _pipeline([*linear, maps], TensorProto.FLOAT, _FEATURES, "scores label maps")
    shares = {"prob_a": _numbers(3), "prob_b": _numbers(3)}
    for name, more in (("support vectors", {}), ("support vectors, probabilities", shares)):
        nodes = [scaler, _machine(150, **more)]
        yield name, _pipeline(nodes, TensorProto.FLOAT, _FEATURES, "scores label")


def _of_strings(columns: int) -> Iterator[tuple[str, onnx.ModelProto]]:
    places = [helper.make_tensor(f"at{at}", TensorProto.INT64, [1], [at]) for at in range(columns)]
    taken = [_node("Gather", f"x at{at}", f"c{at}", axis=1) for at in range(columns)]
    spread = [
        _node("OneHotEncoder", f"c{at}", f"h{at}", cats_strings=_WORDS[:3]) for at in range(columns)
    ]
    codes = [
        _node("LabelEncoder", f"c{at}", f"h{at}", keys_strings=_WORDS, values_int64s=[*range(4)])
        for at in range(columns)
    ]
    joined = _node("Concat", " ".join(f"h{at}" for at in range(columns)), "joined", axis=1)
    flat = helper.make_tensor("flat", TensorProto.INT64, [2], [-1, 3 * columns])
    nodes = [*taken, *spread, joined, _node("Reshape", "joined flat", "rows")]
    nodes.append(_linear("rows", 3 * columns))
    results = "scores label"
    yield "one-hot strings", _pipeline(nodes, TensorProto.STRING, columns, results, [*places, flat])
    nodes = [*taken, *codes, joined, _node("Cast", "joined", "rows", to=TensorProto.FLOAT)]
    nodes.append(_linear("rows", columns))
    yield "numbered strings", _pipeline(nodes, TensorProto.STRING, columns, results, places)


def _words(count: int) -> list[str]:
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    return ["".join(_RANDOM.choice(letters, _RANDOM.integers(2, 9))) for _ in range(count)]


_VOCABULARY = sorted(set(_words(2000)))


def _counted(column: str, grams: int, *, of_characters: bool = False) -> list[onnx.NodeProto]:
    """Counts of the words or characters of a column of text, of one and of several in a row, as rows of length 1."""
    items = sorted({c for word in _VOCABULARY for c in word}) if of_characters else _VOCABULARY
    pool, starts = list(items), [0]
    for length in range(2, grams + 1):
        starts.append(len(pool))
        drawn = {tuple(_RANDOM.choice(items, length)) for _ in range(1000)}
        pool += [item for gram in sorted(drawn) for item in gram]
    count = sum(
        (b - a) // (at + 1)
        for at, (a, b) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True))
    )
    cut = "." if of_characters else "[a-zA-Z0-9_]+"
    lengths: dict[str, Any] = {"min_gram_length": 1, "max_gram_length": grams, "max_skip_count": 0}
    lengths |= {"ngram_counts": starts, "ngram_indexes": [*range(count)], "pool_strings": pool}
    weights, marks = [1.0 + number % 1 for number in _numbers(count)], {"mark": 0, "mincharnum": 1}
    about: dict[str, Any] = {**marks, "pad_value": "#", "tokenexp": cut}
    c, case = column, {"case_change_action": "LOWER", "locale": "C.UTF-8"}
    return [
        _node("Reshape", f"{c} flat", f"{c}_r"),
        _node("StringNormalizer", f"{c}_r", f"{c}_n", **case),
        _node("Tokenizer", f"{c}_n", f"{c}_t", **about),
        _node("Flatten", f"{c}_t", f"{c}_f"),
        _node("TfIdfVectorizer", f"{c}_f", f"{c}_c", mode="TFIDF", weights=weights, **lengths),
        _node("Normalizer", f"{c}_c", f"{c}_v", norm="L2"),
    ]


def _width(nodes: Sequence[onnx.NodeProto]) -> int:
    return next(len(a.ints) for n in nodes for a in n.attribute if a.name == "ngram_indexes")


def _of_text() -> Iterator[tuple[str, onnx.ModelProto]]:
    flat = helper.make_tensor("flat", TensorProto.INT64, [1], [-1])
    kinds = (("words", 1, False), ("pairs of words", 2, False), ("three characters", 3, True))
    for name, grams, of_characters in kinds:
        nodes = _counted("x", grams, of_characters=of_characters)
        nodes.append(_linear("x_v", _width(nodes)))
        yield name, _pipeline(nodes, TensorProto.STRING, 1, "scores label", [flat])
    title, body = _counted("title", 1), _counted("x", 1)
    spread = _node("OneHotEncoder", "kind", "h", cats_strings=_WORDS[:3])
    flat_rows = helper.make_tensor("rows", TensorProto.INT64, [2], [-1, 3])
    nodes = [*title, *body, spread, _node("Reshape", "h rows", "s")]
    nodes.append(_node("Scaler", "number", "m", offset=_numbers(4), scale=_numbers(4)))
    nodes.append(_node("Concat", "x_v title_v s m", "joined", axis=1))
    nodes.append(_linear("joined", _width(title) + _width(body) + 7))
    others = [port(name, TensorProto.STRING, ["n", 1]) for name in ("title", "kind")]
    others.append(port("number", TensorProto.FLOAT, ["n", 4]))
    constants = [flat, flat_rows]
    yield (
        "text, categories and numbers",
        _pipeline(nodes, TensorProto.STRING, 1, "scores label", constants, others),
    )


def _texts(rows: int, most: int) -> np.ndarray[Any, Any]:
    counts = _RANDOM.integers(1, most, rows)
    return np.array([[" ".join(_RANDOM.choice(_VOCABULARY, n))] for n in counts], object)


def pipelines() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    columns = 6
    for name, proto in (*_of_numbers(), *_of_strings(columns)):
        of_text = proto.graph.input[0].type.tensor_type.elem_type == TensorProto.STRING
        for rows in _ROWS:
            x: Any = _RANDOM.standard_normal((rows, _FEATURES)).astype(np.float32)
            if of_text:
                x = _RANDOM.choice(np.array(_WORDS, object), (rows, columns))
            yield f"Pipeline: {name}, {rows} rows", proto, {"x": x}
    for name, proto in _of_text():
        names = [given.name for given in proto.graph.input]
        for rows in _ROWS:
            feeds = {"x": _texts(rows, 40), "title": _texts(rows, 6)}
            feeds["kind"] = _RANDOM.choice(np.array(_WORDS, object), (rows, 1))
            feeds["number"] = _RANDOM.standard_normal((rows, 4)).astype(np.float32)
            yield f"Pipeline: {name}, {rows} rows", proto, {n: feeds[n] for n in names}
