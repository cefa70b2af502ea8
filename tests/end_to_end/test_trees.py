"""Ensembles of trees beside onnxruntime: every comparison, what NaN does, folds, sums of several targets, labels and scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import dvm_graph

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
LIMITS = [-1.5, -0.0, 0.0, 0.25, 1.0, 2.0]
FEATURES = 5
DTYPES = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64}


def trees(
    rng: np.random.Generator, modes: list[str], count: int, most: int, tracks: bool
) -> list[list[dict[str, Any]]]:
    """Nodes of `count` trees with `most` branches at most, in no order but the root first."""
    forest = []
    for _ in range(count):
        nodes: list[dict[str, Any]] = [{"leaf": True}]
        for _ in range(int(rng.integers(0, most + 1))):
            at = int(rng.choice([i for i, node in enumerate(nodes) if node["leaf"]]))
            nodes[at] = {
                "leaf": False,
                "mode": str(rng.choice(modes)),
                "feature": int(rng.integers(FEATURES)),
                "limit": float(rng.choice(LIMITS)),
                "yes": len(nodes),
                "no": len(nodes) + 1,
                "tracks": int(tracks and rng.integers(2)),
            }
            nodes += [{"leaf": True}, {"leaf": True}]
        forest.append(nodes)
    return forest


def listed(forest: list[list[dict[str, Any]]], entries: str, element: int) -> dict[str, Any]:
    """Attributes of `TreeEnsembleRegressor` and `Classifier`; a leaf has its entries as (target, weight)."""
    flat = [(t, i, node) for t, nodes in enumerate(forest) for i, node in enumerate(nodes)]
    said = [(t, i, *e) for t, i, node in flat if node["leaf"] for e in node["entries"]]
    numbers = {
        "nodes_values": [node.get("limit", 0.0) for _, _, node in flat],
        f"{entries}_weights": [weight for *_, weight in said],
    }
    if element == TensorProto.DOUBLE:
        numbers = {
            f"{name}_as_tensor": numpy_helper.from_array(np.array(values, np.float64))
            for name, values in numbers.items()
        }
    return {
        "nodes_treeids": [t for t, _, _ in flat],
        "nodes_nodeids": [i for _, i, _ in flat],
        "nodes_featureids": [node.get("feature", 0) for _, _, node in flat],
        "nodes_modes": [node.get("mode", "LEAF") for _, _, node in flat],
        "nodes_truenodeids": [node.get("yes", 0) for _, _, node in flat],
        "nodes_falsenodeids": [node.get("no", 0) for _, _, node in flat],
        "nodes_missing_value_tracks_true": [node.get("tracks", 0) for _, _, node in flat],
        f"{entries}_treeids": [t for t, *_ in said],
        f"{entries}_nodeids": [i for _, i, *_ in said],
        f"{entries}_ids": [target for _, _, target, _ in said],
        **numbers,
    }


def say(
    forest: list[list[dict[str, Any]]],
    rng: np.random.Generator,
    targets: list[int],
    share: float,
    least: float,
) -> None:
    """Each leaf speaks of a share of the targets, in eighths, which any order of adding gives the same sum of."""
    for nodes in forest:
        for node in nodes:
            of = [t for t in targets if rng.random() < share]
            node["entries"] = [(t, float(rng.integers(8 * least, 17)) / 8) for t in of]


def model(op: str, attributes: dict[str, Any], element: int, version: int) -> onnx.ModelProto:
    results = [("y", TensorProto.FLOAT)]
    if op == "TreeEnsembleClassifier":
        of = TensorProto.STRING if "classlabels_strings" in attributes else TensorProto.INT64
        results.insert(0, ("label", of))
    if op == "TreeEnsemble":
        results = [("y", element)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], [n for n, _ in results], domain="ai.onnx.ml", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", element, ["n", FEATURES])],
        [helper.make_tensor_value_info(name, of, None) for name, of in results],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def inputs(rng: np.random.Generator, rows: int, element: int, nan: bool) -> np.ndarray[Any, Any]:
    x = rng.choice(
        [*LIMITS, -np.inf, np.inf, 0.3, -2, np.nextafter(np.float32(1), np.float32(0))],
        (rows, FEATURES),
    )
    if element in (TensorProto.INT64, TensorProto.INT32):
        x = np.nan_to_num(x, posinf=9, neginf=-9)
        return x.astype(np.int64 if element == TensorProto.INT64 else np.int32)
    x = x.astype(DTYPES[element])
    x[rng.random(x.shape) < 0.2 * nan] = np.nan
    return x


def same(
    proto: onnx.ModelProto, element: int, rng: np.random.Generator, native: bool = True
) -> None:
    compiled = dvm_graph.optimize(proto)
    if native:
        assert compiled.report().vendor_operators == ()
    options = ort.SessionOptions()
    options.log_severity_level = 3
    reference = ort.InferenceSession(proto.SerializeToString(), options)
    for rows in (0, 1, 3, 16, 37, 300):
        for nan in (False, True):
            x = inputs(rng, rows, element, nan)
            wanted = reference.run(None, {"x": x})
            for got, want in zip(compiled.run({"x": x}), wanted, strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                if want.dtype == object:
                    np.testing.assert_array_equal(got, want)
                else:
                    np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("mode", [*MODES, "all"])
@pytest.mark.parametrize("tracks", [False, True])
def test_every_comparison(mode: str, tracks: bool, element: int) -> None:
    rng = np.random.default_rng(len(mode))
    forest = trees(rng, MODES if mode == "all" else [mode], 20, 12, tracks)
    say(forest, rng, [0], 1, -2)
    attributes = listed(forest, "target", element)
    same(model("TreeEnsembleRegressor", {**attributes, "n_targets": 1}, element, 3), element, rng)


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("said", ["target", "class"])
def test_rows_of_float64_and_numbers_of_float32(said: str, version: int) -> None:
    """As converters write trees that learned from float64, which the first two versions have no lists of."""
    rng = np.random.default_rng(version)
    forest = trees(rng, MODES[:1], 9, 12, False)
    for node in (node for nodes in forest for node in nodes if not node["leaf"]):
        node["limit"] = float(rng.choice([0.3, -2.0, 1.0, np.float32(0.3)]))
    say(forest, rng, [0, 1, 2], 1, 0.125)
    attributes = listed(forest, said, TensorProto.FLOAT) | {"base_values": [0.3, 0.1, -0.7]}
    attributes |= {"n_targets": 3} if said == "target" else {"classlabels_int64s": [4, 2, 3]}
    op = "TreeEnsembleRegressor" if said == "target" else "TreeEnsembleClassifier"
    same(model(op, attributes, TensorProto.DOUBLE, version), TensorProto.DOUBLE, rng)


TRANSFORMS = ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]


def regressor(
    rng: np.random.Generator, targets: int, share: float, fold: str, element: int
) -> dict[str, Any]:
    forest = trees(rng, MODES[:1], 9, 12, False)
    say(forest, rng, [*range(targets)], share, -2)
    attributes = listed(forest, "target", element)
    return {**attributes, "n_targets": targets, "aggregate_function": fold}


def based(rng: np.random.Generator, count: int, element: int) -> dict[str, Any]:
    values = rng.integers(-8, 9, count) / 4
    if element == TensorProto.DOUBLE:
        return {"base_values_as_tensor": numpy_helper.from_array(values)} if count else {}
    return {"base_values": values.tolist()} if count else {}


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("fold", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(
    ("targets", "share", "base"),
    [(1, 1, 0), (1, 1, 1), (3, 1, 3), (3, 0.6, 0), (40, 0.1, 0), (40, 0.1, 40)],
)
def test_regressors(targets: int, share: float, base: int, fold: str, element: int) -> None:
    rng = np.random.default_rng(targets)
    attributes = regressor(rng, targets, share, fold, element) | based(rng, base, element)
    for transform in [*TRANSFORMS, "PROBIT"]:
        native = transform != "PROBIT" and (share == 1 or (not base and fold in ("SUM", "AVERAGE")))
        attributes["post_transform"] = transform
        same(model("TreeEnsembleRegressor", attributes, element, 3), element, rng, native)


@pytest.mark.parametrize(
    "labels",
    [[0, 1], [4, 5], [0, 1, 2], [7, -3, 9, 7], ["no", "yes"], ["c", "a", "b"]],
    ids=str,
)
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("only", [None, 0, 1])
@pytest.mark.parametrize("least", [0, -2])
def test_classifiers(least: float, only: int | None, base: bool, labels: list[Any]) -> None:
    """Leaves that speak of all classes, or of one, always or not; weights that may be negative."""
    rng = np.random.default_rng(len(labels))
    elements = [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32]
    some = 0.6 if base or len(labels) == 2 else 1  # onnxruntime fails where no class has a score
    for share, transform, element in zip([1, 1, some, 1], TRANSFORMS, elements, strict=True):
        forest = trees(rng, MODES[:1], 9, 12, False)
        say(forest, rng, [*range(len(labels))] if only is None else [only], share, least)
        count = 1 if only == 0 and len(labels) == 2 else len(labels)
        attributes = listed(forest, "class", element) | based(rng, count * base, element)
        kind = "strings" if isinstance(labels[0], str) else "int64s"
        attributes |= {f"classlabels_{kind}": labels, "post_transform": transform}
        of_both = only is None and not base and labels != [4, 5]  # as CatBoost writes them
        native = share == 1 and (only == 0 or of_both if len(labels) == 2 else base or only is None)
        same(model("TreeEnsembleClassifier", attributes, element, 3), element, rng, native)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("least", [-1, 0, 0.125])
@pytest.mark.parametrize("silent", [False, True])
def test_leaves_that_speak_of_one_class_each(silent: bool, least: float, transform: str) -> None:
    """As scikit-learn's trees tell in which leaf a row ends: a class that nobody speaks of has no score, which matters
    only where those that have one may be below 0, or none has."""
    rng = np.random.default_rng(1)
    forest = trees(rng, MODES[:1], 4, 12, False)
    for nodes in forest:
        for at, node in enumerate(nodes):
            node["entries"] = [(at % 7, float(rng.integers(8 * least, 17)) / 8)] * node["leaf"]
    if silent:
        last = forest[-1] = trees(rng, MODES[:1], 30, 3, False)[-1]
        say([last], rng, [], 1, 0)
    attributes = listed(forest, "class", TensorProto.FLOAT)
    attributes |= {"classlabels_int64s": [*range(9)], "post_transform": transform}
    proto = model("TreeEnsembleClassifier", attributes, TensorProto.FLOAT, 3)
    same(proto, TensorProto.FLOAT, rng, native=least > 0)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_leaves_that_say_nothing_of_two_classes(transform: str) -> None:
    rng = np.random.default_rng(0)
    forest = trees(rng, MODES[:1], 9, 12, False)
    say(forest, rng, [], 1, 0)
    attributes = {k: v for k, v in listed(forest, "class", TensorProto.FLOAT).items() if v}
    attributes |= {"classlabels_int64s": [4, 5], "post_transform": transform}
    proto = model("TreeEnsembleClassifier", attributes, TensorProto.FLOAT, 3)
    same(proto, TensorProto.FLOAT, rng, native=False)


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("member", [False, True])
def test_trees_by_places(member: bool, targets: int, element: int) -> None:
    """`TreeEnsemble`, whose branches may ask for membership in a set."""
    rng = np.random.default_rng(targets)
    kind = DTYPES[element]
    forest = [t for t in trees(rng, [*MODES, *["MEMBER"] * 4 * member], 20, 12, True) if len(t) > 1]
    branches = [
        (t, i) for t, nodes in enumerate(forest) for i, n in enumerate(nodes) if not n["leaf"]
    ]
    leaves = [(t, i) for t, nodes in enumerate(forest) for i, n in enumerate(nodes) if n["leaf"]]
    nodes = [forest[t][i] for t, i in branches]

    def places(way: str) -> tuple[list[int], list[int]]:
        follows = [(t, forest[t][i][way]) for t, i in branches]
        return (
            [leaves.index(f) if f in leaves else branches.index(f) for f in follows],
            [int(f in leaves) for f in follows],
        )

    (yes, yes_leaf), (no, no_leaf) = places("yes"), places("no")
    sets = [
        [*rng.choice([1, 2, 3, 9], 3, replace=False), np.nan]
        for node in nodes
        if node["mode"] == "MEMBER"
    ]
    attributes = {
        "aggregate_function": 1,
        "n_targets": targets,
        "tree_roots": [branches.index((t, 0)) for t in range(len(forest))],
        "nodes_modes": numpy_helper.from_array(
            np.array([[*MODES, "MEMBER"].index(node["mode"]) for node in nodes], np.uint8)
        ),
        "nodes_splits": numpy_helper.from_array(np.array([n["limit"] for n in nodes], kind)),
        "nodes_featureids": [node["feature"] for node in nodes],
        "nodes_missing_value_tracks_true": [node["tracks"] for node in nodes],
        "nodes_truenodeids": yes,
        "nodes_trueleafs": yes_leaf,
        "nodes_falsenodeids": no,
        "nodes_falseleafs": no_leaf,
        "leaf_targetids": rng.integers(0, targets, len(leaves)).tolist(),
        "leaf_weights": numpy_helper.from_array(
            (rng.integers(-16, 17, len(leaves)) / 8).astype(kind)
        ),
    }
    if member:
        attributes["membership_values"] = numpy_helper.from_array(np.concatenate(sets).astype(kind))
    same(model("TreeEnsemble", attributes, element, 5), element, rng)


def test_wide_rows_and_many_trees() -> None:
    """Blocks of rows, pieces of them, and what is left over, on more cores than one."""
    rng = np.random.default_rng(0)
    forest = trees(rng, MODES, 150, 60, True)
    for node in (node for nodes in forest for node in nodes if not node["leaf"]):
        node["feature"] = int(rng.integers(3000))
    say(forest, rng, [0, 1], 1, -2)
    attributes = listed(forest, "target", TensorProto.FLOAT) | {"n_targets": 2}
    proto = model("TreeEnsembleRegressor", attributes, TensorProto.FLOAT, 3)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3000
    compiled, reference = dvm_graph.optimize(proto), ort.InferenceSession(proto.SerializeToString())
    for rows in (1, 15, 16, 129, 1000):
        x = rng.choice([*LIMITS, np.nan, 0.1], (rows, 3000)).astype(np.float32)
        np.testing.assert_array_equal(compiled.run({"x": x})[0], reference.run(None, {"x": x})[0])


def test_rows_of_too_few_features() -> None:
    rng = np.random.default_rng(0)
    forest = trees(rng, MODES, 20, 12, False)
    say(forest, rng, [0], 1, -2)
    attributes = listed(forest, "target", TensorProto.FLOAT) | {"n_targets": 1}
    proto = model("TreeEnsembleRegressor", attributes, TensorProto.FLOAT, 3)
    proto.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    compiled = dvm_graph.optimize(proto)
    with pytest.raises(dvm_graph.ShapeError, match="5 features"):
        compiled.run({"x": np.zeros((3, 4), np.float32)})


@pytest.mark.parametrize("element", [TensorProto.FLOAT, TensorProto.DOUBLE])
@pytest.mark.parametrize("fold", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("base", [0, 1])
def test_leaves_of_one_target(base: int, fold: str, element: int) -> None:
    """The first of several weights of a leaf counts; where there is none, the value of the node."""
    rng = np.random.default_rng(4)
    forest = trees(rng, MODES[:1], 9, 12, False)
    for node in (node for nodes in forest for node in nodes if node["leaf"]):
        weights = rng.integers(-16, 17, rng.integers(0, 4)) / 8
        node |= {"limit": float(rng.integers(-16, 17)) / 8, "entries": [(0, w) for w in weights]}
    attributes = listed(forest, "target", element) | based(rng, base, element)
    attributes |= {"n_targets": 1, "aggregate_function": fold}
    same(model("TreeEnsembleRegressor", attributes, element, 3), element, rng)


SHARED = {
    "nodes_treeids": [0] * 8,
    "nodes_nodeids": [*range(8)],
    "nodes_featureids": [0] * 8,
    "nodes_modes": ["BRANCH_LEQ"] * 3 + ["LEAF"] * 5,
    "nodes_truenodeids": [1, 3, 3] + [0] * 5,
    "nodes_falsenodeids": [2, 4, 5] + [0] * 5,
    "nodes_values": [0.25, -1.0, 1.0] + [0.0] * 5,
    "target_treeids": [0] * 6,
    "target_nodeids": [3, 3, 4, 4, 5, 5],
    "target_ids": [0, 1] * 3,
    "target_weights": [1.0, 2, 3, 4, 5, 6],
    "n_targets": 2,
}
"""A leaf that two nodes lead to, and two that none does."""


def test_a_node_that_follows_two_others() -> None:
    proto = model("TreeEnsembleRegressor", SHARED, TensorProto.FLOAT, 3)
    same(proto, TensorProto.FLOAT, np.random.default_rng(0), native=False)


@pytest.mark.parametrize(
    ("yes", "no"), [([1, 3, 3], [2, 0, 5]), ([1, 1, 3], [2, 4, 5]), ([1, 3, 1], [2, 2, 5])]
)
def test_nodes_that_follow_themselves(yes: list[int], no: list[int]) -> None:
    """Of some of those rows would go round for ever in onnxruntime."""
    follows = {"nodes_truenodeids": yes + [0] * 5, "nodes_falsenodeids": no + [0] * 5}
    with pytest.raises(dvm_graph.DvmError, match="follows itself"):
        dvm_graph.optimize(model("TreeEnsembleRegressor", SHARED | follows, TensorProto.FLOAT, 3))


def test_nodes_that_follow_themselves_where_nobody_comes() -> None:
    modes = [*SHARED["nodes_modes"][:6], "BRANCH_LEQ", "BRANCH_LEQ"]
    follows = {"nodes_truenodeids": [1, 3, 3, 0, 0, 0, 7, 6], "nodes_modes": modes}
    proto = model("TreeEnsembleRegressor", SHARED | follows, TensorProto.FLOAT, 3)
    same(proto, TensorProto.FLOAT, np.random.default_rng(0), native=False)


@pytest.mark.parametrize(
    "change",
    [
        {"nodes_modes": ["BRANCH_WHERE"] * 3 + ["LEAF"] * 5},
        {"nodes_featureids": [2**63 - 1] * 8},
        {"nodes_featureids": [-1] * 8},
        {"nodes_truenodeids": [9, 3, 3] + [0] * 5},
        {"nodes_falsenodeids": [2, 4, 5]},
        {"target_ids": [0, 2] * 3},
        {"target_ids": [0, -1] * 3},
        {"n_targets": 0},
        {"n_targets": 1, "target_ids": [0] * 6, "post_transform": "ELSE"},
        {"aggregate_function": "ELSE"},
    ],
    ids=str,
)
def test_what_onnxruntime_refuses(change: dict[str, Any]) -> None:
    proto = model("TreeEnsembleRegressor", SHARED | change, TensorProto.FLOAT, 3)
    with pytest.raises(dvm_graph.DvmError, match="onnxruntime"):
        dvm_graph.optimize(proto)


def test_more_targets_than_memory_has_bytes() -> None:
    proto = model("TreeEnsembleRegressor", SHARED | {"n_targets": 2**62}, TensorProto.FLOAT, 3)
    compiled = dvm_graph.optimize(proto)
    with pytest.raises(dvm_graph.DvmError):
        compiled.run({"x": np.zeros((2, FEATURES), np.float32)})
