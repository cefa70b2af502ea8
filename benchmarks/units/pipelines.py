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


def _node(op: str, operands: str, results: str, **attributes: Any) -> onnx.NodeProto:
    domain = "" if op in ("Concat", "Gather", "Reshape", "Cast") else "ai.onnx.ml"
    return helper.make_node(op, operands.split(), results.split(), domain=domain, **attributes)


def _pipeline(
    nodes: Sequence[onnx.NodeProto],
    element: int,
    columns: int,
    results: str,
    constants: Sequence[onnx.TensorProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "pipeline",
        [port("x", element, ["n", columns])],
        [onnx.ValueInfoProto(name=name) for name in results.split()],
        list(constants),
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
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


def pipelines() -> Iterator[tuple[str, onnx.ModelProto, dict[str, Any]]]:
    columns = 6
    for name, proto in (*_of_numbers(), *_of_strings(columns)):
        of_text = proto.graph.input[0].type.tensor_type.elem_type == TensorProto.STRING
        for rows in _ROWS:
            x: Any = _RANDOM.standard_normal((rows, _FEATURES)).astype(np.float32)
            if of_text:
                x = _RANDOM.choice(np.array(_WORDS, object), (rows, columns))
            yield f"Pipeline: {name}, {rows} rows", proto, {"x": x}
