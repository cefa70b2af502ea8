"""What the host's own operators mean: models of them are checked, and a wrong meaning is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from dvm_graph.check import own_operators, validate
from dvm_graph.decompose import decompose
from dvm_graph.import_ import import_onnx
from dvm_graph.ir import Node
from dvm_graph.options import Options
from dvm_graph.symbolic import Facts, Symbols
from tests.decompose.reference import session
from tests.end_to_end import test_trees
from tests.end_to_end.categories import alone
from tests.end_to_end.test_support_vectors import KERNELS, fixed, labels, numbers, rows, vectors

SCORES = np.zeros((2, 3), np.float32)


def models() -> dict[str, onnx.ModelProto]:
    keys = {"keys_floats": [1.0, 2.0, 0.0, -1.0], "values_int64s": [4, 3, 2, 1]}
    machine: dict[str, Any] = {**KERNELS["RBF"], **vectors([3, 4, 2]), **labels("strings", 3)}
    shares = {"prob_a": numbers(3, seed=5), "prob_b": numbers(3, seed=6)}
    return {
        "KeyPlaces": alone("LabelEncoder", keys, SCORES, 2),
        "Maps": alone("ZipMap", {"classlabels_int64s": [2, 1, 5]}, SCORES),
        "StringsAt": fixed("SVMClassifier", machine, rows(), 2),
        "CoupledProbabilities": fixed("SVMClassifier", {**machine, **shares}, rows(), 2),
        "TreeSums": forest(1, 1, "SUM"),
        **dict.fromkeys(
            ("StringNumbers", "StringPlaces", "TextRanks", "TextsAt", "TextsEqual"), of_text()
        ),
    }


def of_text() -> onnx.ModelProto:
    """Integers as strings that are moved, looked up, compared, ordered and read again."""
    parsed: onnx.ModelProto = onnx.parser.parse_model(
        """
        <ir_version: 9, opset_import: ["" : 20, "ai.onnx.ml" : 2]>
        g (int64[n, k] x, int64[n, k] z)
          => (int64[n, k] y, bool[a, b] e, int64[c] f, int64[d] q, string[r] u, string[m, n] t)
        {
          s = Cast<to = 8>(x)
          o = Cast<to = 8>(z)
          t = Transpose(s)
          y = ai.onnx.ml.LabelEncoder<keys_strings = ["1", "-2"], values_int64s = [7, 8]>(s)
          j = Concat<axis = 0>(t, t)
          p = Concat<axis = 0>(o, o)
          v = Transpose(p)
          e = Equal(s, o)
          u, f, i, w = Unique(v)
          q = Cast<to = 7>(u)
        }
        """
    )
    return parsed


def forest(targets: int, share: float, fold: str) -> onnx.ModelProto:
    """Leaves speak of a share of the targets."""
    rng = np.random.default_rng(0)
    said = test_trees.regressor(rng, targets, share, fold, onnx.TensorProto.FLOAT)
    return test_trees.model("TreeEnsembleRegressor", said, onnx.TensorProto.FLOAT, 3)


def test_every_own_operator_has_a_model() -> None:
    assert models().keys() == own_operators.OWN.keys()


@pytest.mark.parametrize("op", sorted(own_operators.OWN))
def test_models_are_checked(op: str) -> None:
    is_checked(models()[op])


@pytest.mark.parametrize(
    ("targets", "share", "fold"),
    [
        *((3, 1, fold) for fold in ("SUM", "AVERAGE", "MIN", "MAX")),
        *((40, 0.1, fold) for fold in ("SUM", "AVERAGE")),  # others are onnxruntime's
    ],
)
def test_trees_whose_leaves_speak_of_several_targets(targets: int, share: float, fold: str) -> None:
    is_checked(forest(targets, share, fold))


def is_checked(model: onnx.ModelProto) -> None:
    report = validate(model)
    assert report.findings == []
    ran = {subject.name: subject.runs for subject in report.subjects}
    assert ran["decompose"] > 0 and ran["whole run"] > 0


def host(op: str, arguments: tuple[int, ...], words: tuple[str, ...] = ()) -> Node:
    return Node("n", "host", (), (), {"op": op, "arguments": arguments, "words": words})


def test_keys_and_words_by_hand() -> None:
    x, keys = np.array([[2.0, np.nan], [7.0, -1.0]]), np.array([-1.0, 2.0])
    numbers_of = np.array([10, 20, 30, 40])
    (places,) = own_operators.compute_own(host("KeyPlaces", (0,)), [x, keys, numbers_of])
    np.testing.assert_array_equal(places, [[20, 40], [30, 10]])
    (strings,) = own_operators.compute_own(host("StringsAt", (), ("a", "b")), [np.array([1, 0, 1])])
    assert strings.tolist() == ["b", "a", "b"]
    (maps,) = own_operators.compute_own(
        host("Maps", (3, 2, 0), ("a", "b")), [np.array([[1, 2, 3]])]
    )
    assert maps.item() == [{"a": 3, "b": 1}]


def test_probabilities_are_those_of_onnxruntime() -> None:
    """But for where its search ends."""
    proto = models()["CoupledProbabilities"]
    x = rows(nan=False)
    _, wanted = session(proto).run(None, {"x": x})
    graph = decompose(import_onnx(proto, Options(), Symbols()), Facts(Symbols()), Options())
    (node,) = (node for node in graph.nodes if node.attrs.get("op") == "CoupledProbabilities")
    machine = {**KERNELS["RBF"], **vectors([3, 4, 2]), **labels("strings", 3)}
    _, scores = session(fixed("SVMClassifier", machine, x, 2)).run(None, {"x": x})
    a, b = (np.array(numbers(3, seed=seed), np.float32) for seed in (5, 6))
    pairs = (1 / (1 + np.exp(scores * a + b))).clip(1e-7, 1 - 1e-7)
    (got,) = own_operators.compute_own(node, [pairs])
    np.testing.assert_allclose(got, wanted, atol=5e-3)
