"""Every checked-in export is valid, small, free of local paths, dynamic where it says so, and runs in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

import models
from tests.models import zoo_dims
from tests.models.family_dims import GRIDS

EXPECTED_OPERATORS = {
    "bert": {"Softmax", "LayerNormalization", "Gelu", "Shape", "Gather"},
    "gpt2": {"Softmax", "LayerNormalization", "Tanh"},
    "vit": {"Conv", "Softmax", "LayerNormalization"},
    "llama": {"Softmax", "ReduceMean", "Sigmoid", "Cos"},
    "llama_decode": {"Concat", "Softmax"},
    "qwen3": {"Softmax", "ReduceMean", "Sigmoid", "Cos"},
    "qwen3_decode": {"Concat", "Softmax"},
    "mmoe": {"Softmax", "Gemm"},
    "resnet": {"Conv", "MaxPool"},
    "mobilenet": {"Conv", "Clip"},
    "convnext": {"Conv", "LayerNormalization", "Gelu"},
    "unet": {"ConvTranspose", "Resize", "Concat"},
    "if_else_add": {"If"},
    "nonzero": {"NonZero"},
}


EVERY = tuple(models.MODELS)


def test_every_family_is_tested() -> None:
    assert set(GRIDS) == set(models.FAMILIES) == set(EXPECTED_OPERATORS)


def test_files_are_small_together() -> None:
    assert sum(models.tiny_path(name).stat().st_size for name in EVERY) < 11 << 20


@pytest.mark.parametrize("name", EVERY)
def test_file_is_a_valid_single_file_without_local_paths(name: str) -> None:
    path = models.tiny_path(name)
    model = onnx.load(path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert b"site-packages" not in path.read_bytes()


@pytest.mark.parametrize("name", GRIDS)
def test_inputs_have_exactly_the_dynamic_dims(name: str) -> None:
    graph = onnx.load(models.tiny_path(name)).graph
    dims = {dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim}
    assert {dim for dim in dims if dim.isidentifier()} == set(GRIDS[name][0])


@pytest.mark.parametrize("name", models.ZOO)
def test_every_input_of_the_zoo_has_a_dynamic_batch(name: str) -> None:
    graph = onnx.load(models.tiny_path(name)).graph
    for value in graph.input:
        assert "batch" in {dim.dim_param for dim in value.type.tensor_type.shape.dim}
    assert set(zoo_dims.names(name)) <= set(zoo_dims.EXTENTS)


@pytest.mark.parametrize("name", GRIDS)
def test_file_has_the_operators_it_is_there_for(name: str) -> None:
    graph = onnx.load(models.tiny_path(name)).graph
    assert {node.op_type for node in graph.node} >= EXPECTED_OPERATORS[name]


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("padded", [False, True])
def test_onnxruntime_runs_it_over_several_dims(name: str, padded: bool) -> None:
    session = onnxruntime.InferenceSession(str(models.tiny_path(name)))
    for seed, dims in enumerate(GRIDS[name]):
        feeds = models.random_feeds(name, dims, seed, padded=padded)
        for output, value in zip(session.get_outputs(), session.run(None, feeds), strict=True):
            known = [dims.get(dim, dim) for dim in output.shape]
            assert [a for a, d in zip(value.shape, known, strict=True) if isinstance(d, int)] == [
                d for d in known if isinstance(d, int)
            ]
            assert np.isfinite(value).all()
