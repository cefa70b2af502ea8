"""Operators of `ai.onnx.ml` and networks behind them, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph
from tests.decompose.reference import session
from tests.end_to_end import categories

DTYPES = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.INT64: np.int64,
}
LEAF = {
    **{f"nodes_{name}": [0] for name in ("treeids", "nodeids", "featureids")},
    **{f"nodes_{name}": [0] for name in ("truenodeids", "falsenodeids")},
    "nodes_modes": ["LEAF"],
    "nodes_values": [0.0],
}
VECTORS = {
    "support_vectors": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
    "rho": [0.1],
    "kernel_type": "RBF",
    "kernel_params": [0.1, 0.0, 3.0],
}
OPERATORS: dict[str, tuple[dict[str, Any], int]] = {
    "Scaler": ({"offset": [1.0, 2.0, 3.0, 4.0], "scale": [2.0, 0.5, 3.0, 1.0]}, 4),
    "Normalizer": ({"norm": "L2"}, 4),
    "Imputer": ({"imputed_value_floats": [1.0], "replaced_value_float": 0.0}, 4),
    "Binarizer": ({"threshold": 0.1}, 4),
    "FeatureVectorizer": ({"inputdimensions": [4]}, 4),
    "LinearRegressor": ({"coefficients": [1.0, 2.0, 3.0, 4.0], "intercepts": [1.0]}, 1),
    "SVMRegressor": ({**VECTORS, "coefficients": [1.0, 2.0], "n_supports": 2}, 1),
    "TreeEnsembleRegressor": (
        {**LEAF, **{f"target_{n}": [0] for n in ("treeids", "nodeids", "ids")}}
        | {"target_weights": [2.0], "n_targets": 1},
        1,
    ),
    "LinearClassifier": (
        {"coefficients": [*map(float, range(8))], "intercepts": [1.0, 2.0]}
        | {"classlabels_ints": [0, 1]},
        2,
    ),
    "SVMClassifier": (
        {**VECTORS, "coefficients": [1.0, -1.0], "vectors_per_class": [1, 1]}
        | {"classlabels_ints": [0, 1]},
        2,
    ),
    "TreeEnsembleClassifier": (
        {**LEAF, **{f"class_{n}": [0] for n in ("treeids", "nodeids", "ids")}}
        | {"class_weights": [2.0], "classlabels_int64s": [0, 1]},
        2,
    ),
}
"""Attributes, of four features, and the columns of what is given last."""


def model(
    op: str, attributes: dict[str, Any], columns: int, element: int, dims: list[Any]
) -> onnx.ModelProto:
    """The operator and a product behind what it gives last, which is of float32."""
    weights = np.random.default_rng(0).standard_normal((columns, 5)).astype(np.float32)
    results = ["label", "s"] if op.endswith("Classifier") else ["s"]
    nodes = [
        helper.make_node(op, ["x"], results, domain="ai.onnx.ml", **attributes),
        helper.make_node("MatMul", ["s", "w"], ["m"]),
        helper.make_node("Tanh", ["m"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if "label" in results:
        outputs.append(helper.make_tensor_value_info("label", TensorProto.INT64, None))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", element, dims)],
        outputs,
        [numpy_helper.from_array(weights, "w")],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def outcome(run: Any, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]] | None:
    """None: it is refused."""
    try:
        return list(run({"x": x}))
    except Exception:
        return None


def assert_agrees(proto: onnx.ModelProto, *feeds: np.ndarray[Any, Any]) -> dvm_graph.Model:
    compiled, reference = dvm_graph.optimize(proto), session(proto)
    for x in feeds:
        got, wanted = outcome(compiled.run, x), outcome(lambda f: reference.run(None, f), x)
        assert (got is None) == (wanted is None), x.shape
        for one, other in zip(got or (), wanted or (), strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    return compiled


@pytest.mark.parametrize("op", OPERATORS)
def test_networks_behind_operators_are_compiled(op: str) -> None:
    attributes, columns = OPERATORS[op]
    random = np.random.default_rng(1)
    feeds = [random.standard_normal((n, 4)).astype(np.float32) for n in (3, 1, 0, 7)]
    compiled = assert_agrees(model(op, attributes, columns, TensorProto.FLOAT, ["n", 4]), *feeds)
    report = compiled.report()
    assert report.kernels >= 1
    assert all("MatMul" not in each and "Tanh" not in each for each in report.vendor_operators)


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("dims", [["n"], ["n", "f"], ["n", 4], ["n", "f", "g"], [2, "f"]])
@pytest.mark.parametrize("features", [1, 4])
def test_scaler(element: int, dims: list[Any], features: int) -> None:
    attributes = {
        "offset": [1.0, 2.0, 3.0, 4.0][:features],
        "scale": [2.0, 0.5, 3.0, 1.0][:features],
    }
    shapes = ((4,), (1,), (2, 4), (2, 1), (0, 4), (2, 3), (2, 3, 4), (2, 4, 4))
    feeds = [np.arange(np.prod(s)).reshape(s).astype(DTYPES[element]) for s in shapes]
    assert_agrees(model("Scaler", attributes, 4, element, dims), *feeds)


NUMBERS = np.array(
    [
        [1, -2, 3, 0],
        [0, -0.0, 0, 0],
        [np.nan, 1, -5, 2],
        [np.inf, 1, 2, -np.inf],
        [1e30, -1e30, 1, 0],
        [1e-30, 1e-30, -1e-30, 0],
    ],
    np.float32,
)
SHAPED = [NUMBERS, NUMBERS[0], NUMBERS[:1], NUMBERS[:0], NUMBERS[:, :3], NUMBERS.reshape(6, 2, 2)]
WEIGHTS = {"coefficients": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "targets": 2}
NATIVE: list[tuple[str, dict[str, Any]]] = [
    ("Normalizer", {"norm": "L1"}),
    ("Normalizer", {"norm": "L2"}),
    ("Normalizer", {"norm": "MAX"}),
    ("Imputer", {"imputed_value_floats": [9.0, 8.0, 7.0, 6.0], "replaced_value_float": 0.0}),
    ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": float("nan")}),
    ("Imputer", {"imputed_value_floats": [9.0, 8.0]}),
    ("Imputer", {"imputed_value_int64s": [9], "replaced_value_int64": 2}),
    ("LinearRegressor", {**WEIGHTS, "intercepts": [1.0, 2.0]}),
    ("LinearRegressor", {**WEIGHTS, "intercepts": [1.0]}),
    ("LinearRegressor", {**WEIGHTS, "intercepts": [1.0, 2.0], "post_transform": "SOFTMAX"}),
    ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0, 4.0]}),
]
"""Operators that kernels have for floats of known features, and forms of them that they have not."""


def alone(
    op: str, attributes: dict[str, Any], feeds: dict[str, np.ndarray[Any, Any]], named: bool
) -> onnx.ModelProto:
    """An operator of `ai.onnx.ml` over inputs whose last extents have names, or only those before."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(x.dtype),
            [f"{name}{i}" if named or i + 1 < x.ndim else x.shape[i] for i in range(x.ndim)],
        )
        for name, x in feeds.items()
    ]
    node = helper.make_node(op, list(feeds), ["y"], domain="ai.onnx.ml", **attributes)
    element = (
        TensorProto.FLOAT
        if op in ("Normalizer", "LinearRegressor")
        else inputs[0].type.tensor_type.elem_type
    )
    outputs = [helper.make_tensor_value_info("y", element, None)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def whole(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.nan_to_num(x, posinf=2, neginf=-2).clip(-9, 9).astype(np.int64)


def assert_answers_agree(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray[Any, Any]]
) -> dvm_graph.Model | None:
    """The model; None: both engines refuse it, or its inputs."""
    try:
        (wanted,) = session(proto).run(None, feeds)
    except Exception:  # whatever class onnxruntime has for it
        with pytest.raises(dvm_graph.DvmError):
            dvm_graph.optimize(proto).run(feeds)
        return None
    compiled = dvm_graph.optimize(proto)
    (got,) = compiled.run(feeds)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    return compiled


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("at", range(len(NATIVE)))
def test_operators_of_features(at: int, named: bool) -> None:
    """What kernels do not have is onnxruntime's, and refused alike."""
    op, attributes = NATIVE[at]
    for x in SHAPED:
        feed = whole(x) if "imputed_value_int64s" in attributes else x
        assert_answers_agree(alone(op, attributes, {"x": feed}, named), {"x": feed})


ODD = np.array([[3, -4, 0, 7], [0, 0, 0, 0], [-1, -2, -3, -4], [2**31 - 1, 1, 70000, 5]], np.int64)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
@pytest.mark.parametrize(
    "op, attributes, results",
    [
        *(("Normalizer", {"norm": norm}, 1) for norm in ("MAX", "L1", "L2")),
        ("Scaler", {"offset": [1.5, 2.0, 3.0, 4.0], "scale": [2.0, 0.3, 3.0, 1.0]}, 1),
        (
            "LinearClassifier",
            {"coefficients": WEIGHTS["coefficients"], "intercepts": [1.0, 2.0]}
            | {"classlabels_ints": [4, 2]},
            2,
        ),
    ],
)
def test_other_numbers_are_kernels_too(op: str, attributes: Any, results: int, dtype: Any) -> None:
    x = ODD.astype(dtype)
    if dtype is np.float64:
        x = np.concatenate([x / 3, NUMBERS.astype(np.float64) * (1 + 1e-12)])
    proto = categories.alone(op, attributes, x, results=results)
    proto.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 4
    for feed in (x, x[:1], x[:0]):
        categories.assert_agrees(proto, {"x": feed}, rtol=1e-5)


@pytest.mark.parametrize("threshold", [0.0, 0.5, -2.0])
def test_binarizer(threshold: float) -> None:
    """NaN is refused."""
    number = np.array([[0.5, -2, 0], [1, np.inf, -np.inf]], np.float32)
    for x in (number, number[:0], number[0], number * np.float32(np.nan), NUMBERS[3:]):
        proto = categories.alone("Binarizer", {"threshold": threshold}, x)
        categories.assert_agrees(proto, {"x": x})


@pytest.mark.parametrize("dtypes", [("f", "f"), ("d", "d"), ("l", "l"), ("i", "i")], ids=str)
@pytest.mark.parametrize("widths", [[2, 3], [1, 3], [4, 3], [2, 5], [2, 1]], ids=str)
def test_features_side_by_side(widths: list[int], dtypes: tuple[str, str]) -> None:
    """Cut, or with zeros behind them; onnxruntime ends the process where there are no rows."""
    feeds = {
        "a": np.arange(8).reshape(4, 2).astype(dtypes[0]),
        "b": np.arange(12).reshape(4, 3).astype(dtypes[1]),
    }
    node = helper.make_node(
        "FeatureVectorizer", ["a", "b"], ["y"], domain="ai.onnx.ml", inputdimensions=widths
    )
    inputs = {name: (categories.element_of(x), ["n", x.shape[1]]) for name, x in feeds.items()}
    proto = categories.model_of([node], inputs, ["y"])
    for rows in (4, 1):
        given = {name: x[:rows] for name, x in feeds.items()}
        categories.assert_agrees(proto, given)
    (nothing,) = dvm_graph.optimize(proto).run({name: x[:0] for name, x in feeds.items()})
    assert nothing.shape == (0, sum(widths)) and nothing.dtype == np.float32


def test_features_of_rows_that_nobody_counted() -> None:
    """As converters of pipelines with a column an input declare them."""
    feeds = [{"a": NUMBERS[:rows, :1], "b": NUMBERS[:more, 1:]} for rows, more in ((2, 2), (3, 1))]
    node = helper.make_node(
        "FeatureVectorizer", ["a", "b"], ["y"], domain="ai.onnx.ml", inputdimensions=[1, 3]
    )
    inputs = {"a": (TensorProto.FLOAT, [None, 1]), "b": (TensorProto.FLOAT, [None, 3])}
    categories.assert_agrees(categories.model_of([node], inputs, ["y"]), *feeds)


@pytest.mark.parametrize("version", [1, 5, 6])
def test_pipelines_of_the_oldest_opset_that_has_their_operators(version: int) -> None:
    nodes = [
        helper.make_node("Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0]),
        helper.make_node("Transpose", ["s"], ["t"]),
        helper.make_node("MatMul", ["s", "t"], ["p"]),
        helper.make_node("Softmax", ["p"], ["y"]),
    ]
    if version >= 5:
        nodes.append(helper.make_node("Reshape", ["y", "shape"], ["z"]))
    proto = categories.model_of(
        nodes, {"x": (TensorProto.FLOAT, ["n", 4])}, ["z" if version >= 5 else "y"]
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([-1, 1]), "shape"))
    proto.opset_import[0].version = version
    categories.assert_agrees(proto, {"x": NUMBERS}, {"x": NUMBERS[:1]}, rtol=1e-5)


@pytest.mark.parametrize(
    "op, attributes",
    [
        ("Binarizer", {"threshold": 0.5}),
        ("Normalizer", {"norm": "MAX"}),
        ("Normalizer", {"norm": "L1"}),
        ("Normalizer", {"norm": "L2"}),
        ("Imputer", {"imputed_value_floats": [9.0, 8.0, 7.0, 6.0]}),
        ("LinearRegressor", {**WEIGHTS, "intercepts": [1.0, 2.0]}),
        ("ArrayFeatureExtractor", {}),
    ],
)
def test_operators_of_features_are_kernels(op: str, attributes: dict[str, Any]) -> None:
    feeds = {"x": NUMBERS} | ({"i": np.array([2, 0])} if op == "ArrayFeatureExtractor" else {})
    assert dvm_graph.optimize(alone(op, attributes, feeds, False)).report().vendor_operators == ()


def classifier(
    post_transform: str, labels: list[Any], intercepts: int, rank: int
) -> onnx.ModelProto:
    kind = "strings" if isinstance(labels[0], str) else "ints"
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        coefficients=[1.0, 2.0, 3.0, 4.0, 5.0, -6.0, 7.0, 8.0, -1.0, 2.0, 0.5, 3.0][
            : 4 * intercepts
        ],
        intercepts=[0.1, 0.2, -0.3][:intercepts],
        post_transform=post_transform,
        **{f"classlabels_{kind}": labels},
    )
    element = TensorProto.STRING if kind == "strings" else TensorProto.INT64
    results = [("label", element), ("scores", TensorProto.FLOAT)]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4][2 - rank :])],
        [helper.make_tensor_value_info(name, of, None) for name, of in results],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [7, -3, 7], [1, 0], [4, 5], ["a", "b", "c"]], ids=str
)
@pytest.mark.parametrize("post_transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear_classifiers(post_transform: str, labels: list[Any], rank: int) -> None:
    """Among scores that are equal, infinite or NaN, too; one of two classes that share an intercept goes by the sign."""
    for intercepts in {len(labels), len(labels) - 1} - {2 if len(labels) == 3 else 0}:
        proto = classifier(post_transform, labels, intercepts, rank)
        compiled, reference = dvm_graph.optimize(proto), session(proto)
        assert compiled.report().vendor_operators == ()
        for x in (NUMBERS, NUMBERS[:0], -NUMBERS) if rank == 2 else NUMBERS:
            for got, wanted in zip(
                compiled.run({"x": x}), reference.run(None, {"x": x}), strict=True
            ):
                assert np.asarray(got).dtype == wanted.dtype and np.shape(got) == wanted.shape
                if wanted.dtype == np.float32:
                    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
                else:
                    np.testing.assert_array_equal(got, wanted)


POSITIONS: list[Any] = [[0, 2], [3], [[1, 2]], [[1], [2]], [], [4], [-1], [2, 2, 2, 0], [0, 1, 2]]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("element", DTYPES)
def test_features_are_extracted(element: int, constant: bool) -> None:
    """Not past the last, nor from the end, nor none."""
    for x in (NUMBERS[:2], NUMBERS[0], NUMBERS[:2].reshape(2, 2, 2)):
        feed = x.astype(DTYPES[element])
        for positions in POSITIONS:
            index = np.array(positions, np.int64)
            feeds = {"x": feed, "i": index}
            proto = alone("ArrayFeatureExtractor", {}, feeds, False)
            if constant:
                del proto.graph.input[1]
                proto.graph.initializer.append(numpy_helper.from_array(index, "i"))
                del feeds["i"]
            compiled = assert_answers_agree(proto, feeds)
            assert compiled is None or compiled.report().vendor_operators == ()
