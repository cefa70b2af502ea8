"""Shapes of datasets and streams: seeded, inside the ranges, and what the feeds and work counts say about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import branches, memory_bound, models, operators, stream
from benchmarks.flops import count_work
from benchmarks.graphs import GRAPHS, write_graph
from benchmarks.workload import narrowed, spread
from models import FAMILIES, ZOO, tiny_path


@pytest.mark.parametrize("name", operators.DATASETS)
def test_samples_repeat_and_extend(name: str) -> None:
    first = operators.sample(name, seed=3)
    assert len(first) == 60
    assert operators.sample(name, seed=3, count=7) == first[:7]
    assert operators.sample(name, seed=4) != first


def test_samples_lie_in_the_scaled_ranges() -> None:
    for name in ("matmul", "addmm"):
        for dims in operators.sample(name, seed=0, count=300):
            assert 1 <= dims["m"] <= 1024
            assert (8 * dims["n"], 8 * dims["k"]) in {
                (4096, 4096), (11008, 4096), (4096, 11008), (5120, 5120), (13696, 5120),
                (5120, 13696), (8192, 8192), (28672, 8192), (8192, 28672),
            }  # fmt: skip
    norms = operators.sample("layer_norm", seed=0, count=300)
    assert {dims["h"] for dims in norms} == {128, 256, 384, 512}
    assert {dims["s"] for dims in norms} == {1024}
    assert all(1 <= dims["b"] <= 60 for dims in norms)
    branches = operators.sample("if_else_add", seed=0, count=300)
    assert {dims["taken"] for dims in branches} == {0, 1}
    assert all(
        1 <= dims["b"] <= 64 and 1 <= dims["s"] <= 256 and 1 <= dims["f"] <= 3072
        for dims in branches
    )


def test_the_ends_of_a_range_are_drawn() -> None:
    shapes = stream.sample(seed=1, count=400, batch=3, seq=(3, 6))
    assert {(dims["batch"], dims["seq"]) for dims in shapes} == {
        (batch, seq) for batch in (1, 2, 3) for seq in (3, 4, 5, 6)
    }
    assert stream.sample(seed=1, count=9, batch=3, seq=(3, 6)) == shapes[:9]


@pytest.mark.parametrize(
    ("count", "of", "expected"), [(0, 5, set()), (2, 5, {0, 2}), (9, 3, {0, 1, 2})]
)
def test_spread(count: int, of: int, expected: set[int]) -> None:
    assert spread(count, of) == expected


def test_a_narrowed_workload_keeps_some_others(tmp_path: Path) -> None:
    workload = operators.workload("matmul", seed=0, count=9, folder=tmp_path)
    labels = [point.label for point in workload.points]
    found = narrowed(workload, [labels[7], labels[4]])
    assert [point.label for point in found.points] == [labels[0], labels[4], labels[7]]
    assert narrowed(workload, labels).points == workload.points
    with pytest.raises(KeyError, match="m=0"):
        narrowed(workload, ["m=0"])


@pytest.mark.parametrize("name", [*operators.DATASETS, *memory_bound.OPERATORS])
def test_feeds_fit_the_graph_and_bytes_are_those_of_its_tensors(name: str, tmp_path: Path) -> None:
    if name in operators.DATASETS:
        workload = operators.workload(name, seed=0, count=12, folder=tmp_path)
        point = min(workload.points, key=lambda point: point.bytes)
    else:
        workload = memory_bound.workload(name, seed=0, quick=True, folder=tmp_path)
        point = workload.points[0]
    session = onnxruntime.InferenceSession(workload.source.path)
    feeds = point.feeds()
    outputs = session.run(None, dict(feeds))
    assert [value.name for value in session.get_inputs()] == list(feeds)
    arrays = [*feeds.values(), *outputs]
    # Vectors along the normalised axis are not counted.
    large = sum(
        array.nbytes for array in arrays if array.ndim > 1 or name in ("semiprime", "outer_sum")
    )
    assert abs(large - point.bytes) <= 8 * 4100
    for again, feed in zip(point.feeds().values(), feeds.values(), strict=True):
        np.testing.assert_array_equal(again, feed)


def test_every_graph_is_in_a_dataset(tmp_path: Path) -> None:
    datasets = {*operators.DATASETS, *memory_bound.OPERATORS, *branches.DATASETS}
    assert set(GRAPHS) == {*datasets, "matmul_constant"}
    workload = operators.constant_weight_workload(0, tmp_path)
    session = onnxruntime.InferenceSession(workload.source.path)
    (out,) = session.run(None, dict(workload.points[0].feeds()))
    assert out.shape == (1, 640)


def test_grids_name_models_that_have_a_base_export() -> None:
    assert set(models.GRIDS) <= set(FAMILIES)
    assert set(models.ZOO) == set(ZOO)


def test_flops_of_a_matmul_and_of_a_gemm(tmp_path: Path) -> None:
    for name in ("matmul", "addmm"):
        dims = {"m": 7, "k": 11, "n": 13}
        work = count_work(write_graph(name, tmp_path), dims)
        assert (work.flops, work.weight_bytes) == (2 * 7 * 11 * 13, 0)


def test_flops_of_a_transposed_gemm_and_of_convolutions(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = """<ir_version: 8, opset_import: ["" : 20]>
    g (float[k, m] a, float[n, k] b, float[batch, 6, 9, 8] x, float[4, 3, 3, 2] w, float[6, 5, 4, 2] u)
        => (float[m, n] y, float[batch, 4, h, v] z, float[batch, 5, r, s] t) {
        y = Gemm<transA = 1, transB = 1>(a, b)
        z = Conv<group = 2, strides = [2, 1]>(x, w)
        t = ConvTranspose<strides = [2, 2]>(x, u)
    }"""
    onnx.save(onnx.parser.parse_model(text), path)
    work = count_work(path, {"k": 5, "m": 2, "n": 3, "batch": 7, "h": 4, "v": 7})
    forward = 2 * 2 * 3 * 5 + 2 * (7 * 4 * 4 * 7) * (3 * 3 * 2)
    assert work.flops == forward + 2 * (7 * 6 * 9 * 8) * (5 * 4 * 2)


def test_work_of_a_model_is_a_polynomial_of_its_dims() -> None:
    path = tiny_path("bert")
    work = stream.work_of_encoder(path)
    for dims in ({"batch": 1, "seq": 1}, {"batch": 3, "seq": 77}, {"batch": 4, "seq": 256}):
        assert work(dims) == count_work(path, dims)


def test_a_decoder_reads_its_tied_or_own_head() -> None:
    parameters = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128) + 64 * 512
    work = count_work(tiny_path("llama_decode"), {"batch": 1, "past_seq": 9})
    assert work.weight_bytes == 4 * parameters
