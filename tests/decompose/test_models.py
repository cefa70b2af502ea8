"""The tiny exports of real models, decomposed and evaluated, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from dvm_graph.ir import DType, Graph
from models import random_feeds, tiny_path
from tests.decompose.evaluate import evaluate
from tests.decompose.reference import decomposed, session, vendor_operators

TEXT = [{"batch": b, "seq": s} for b, s in ((1, 1), (2, 7), (3, 16))]
IMAGES = [{"batch": b, "height": 32, "width": 48} for b in (1, 3)]
DIMS: dict[str, list[dict[str, int]]] = {
    "bert": TEXT,
    "gpt2": TEXT,
    "llama": TEXT,
    "qwen3": TEXT,
    "mmoe": [{"batch": b} for b in (0, 1, 5)],
    "vit": [{"batch": b} for b in (1, 3)],
    "mobilenet": IMAGES,
    "convnext": IMAGES,
    "unet": IMAGES,
    "resnet": IMAGES,
    "nonzero": TEXT,
    "if_else_add": [{"batch": 2, "seq": 3, "features": 4}],
}


@pytest.fixture(scope="module", params=sorted(DIMS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def graph(name: str) -> Graph:
    return decomposed(str(tiny_path(name)))


def test_equals_onnxruntime(name: str, graph: Graph) -> None:
    reference = session(onnx.load(tiny_path(name)))
    for seed, dims in enumerate(DIMS[name]):
        feeds = random_feeds(name, dims, seed, padded=True)
        for result, expected in zip(
            evaluate(graph, feeds), reference.run(None, feeds), strict=True
        ):
            np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_nothing_is_left_to_the_vendor(graph: Graph) -> None:
    assert vendor_operators(graph) == []


@pytest.mark.parametrize("name", ["bert"], scope="module")
def test_bert_leaves_no_shape_arithmetic(graph: Graph) -> None:
    """int64 is left where token types are read and positions are counted out, nowhere else."""
    nodes = [node for node in graph.needed_nodes() if node.outputs[0].dtype is DType.INT64]
    assert {node.op for node in nodes} <= {"iota", "slice", "reshape", "broadcast_to"}


@pytest.mark.parametrize("name", ["bert"], scope="module")
def test_bert_gathers_from_its_embedding_tables_only(graph: Graph) -> None:
    """The gathers of the padding mask, of position ids and of the first token are views."""
    nodes = [node for node in graph.needed_nodes() if node.op == "gather"]
    assert [node.inputs[0].name for node in nodes if node.inputs[0].is_constant] == [
        "embeddings.word_embeddings.weight",
        "embeddings.token_type_embeddings.weight",
    ]
    assert len(nodes) == 2


def node_names(graph: onnx.GraphProto) -> set[str]:
    """Names of all nodes, those of branches included."""
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return {node.name for node in graph.node}.union(*map(node_names, inner))


def test_every_node_knows_the_onnx_nodes_it_came_from(name: str, graph: Graph) -> None:
    names = node_names(onnx.load(tiny_path(name)).graph)
    for node in graph.needed_nodes():
        assert node.origin and set(node.origin) <= names, node


def test_decomposition_is_deterministic(name: str, graph: Graph) -> None:
    again = decomposed(str(tiny_path(name)))
    assert [(n.name, n.op) for n in graph.nodes] == [(n.name, n.op) for n in again.nodes]
