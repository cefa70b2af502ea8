"""The paper's evaluation: its ranges of shapes, and tables that hold what was simulated."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.paper import DATASETS, MODELS, Point, ablations, points, shapes, summarise, table

LIMITS = {
    "matmul": {"m": 8192, "n": 28672, "k": 28672},
    "addmm": {"m": 8192, "n": 28672, "k": 28672},
    "LayerNorm": {"b": 60, "s": 8192, "h": 4096},
    "if-else-add": {"b": 256, "s": 512, "f": 8192},
}
BYTES = {"LayerNorm": 2 * 4, "if-else-add": 3 * 4}


@pytest.mark.parametrize("name", DATASETS)
def test_shapes_are_those_of_the_paper(name: str) -> None:
    drawn = shapes(name, 0, 400)
    assert drawn == shapes(name, 0, 400) != shapes(name, 1, 400)
    for dim, most in LIMITS[name].items():
        extents = [dims[dim] for dims in drawn]
        assert min(extents) >= 1 and 0.9 * most <= max(extents) <= most


def test_the_papers_totals_imply_the_dtypes() -> None:
    """f32 gives about 1 TB/s of the 1.6 that there are; f16 would give half of that."""
    for name, size in BYTES.items():
        moved = (
            np.mean([np.prod(list(map(float, d.values()))) for d in shapes(name, 0, 4000)]) * size
        )
        rate = 60 * moved / (DATASETS[name].paper.running * 1e-3)
        assert 0.9e12 < rate < 1.3e12


def test_points_become_a_table() -> None:
    found = points("if-else-add", 0, 2)
    for point in found:
        assert point.memory_bytes == np.prod(list(point.dims.values())) * 12
        assert 0 < point.device < point.running and point.compiling > 0 and point.eager > 0
    text = table([summarise("if-else-add", [found])])
    assert "97.79" in text and f"{sum(p.running for p in found) * 1e3:.2f}" in text


def test_ablations_take_each_part_away() -> None:
    lines = ablations(1).splitlines()
    cost = {line.split("|")[1].strip(): line.count("(1.00)") for line in lines[2:]}
    assert cost["as it is"] == len(DATASETS) > cost["double buffering off"]
    assert (
        cost["fusion off"] < len(DATASETS) and "tiles of one size instead of Algorithm 1's" in cost
    )


def test_shapes_of_models_are_those_of_the_paper() -> None:
    assert [dims["batch"] for dims in MODELS["mmoe"]] == [2048, 4096, 8192, 16384]
    assert {dims["seq"] for dims in MODELS["bert-base"]} == {128}


def test_totals_are_means_over_seeds() -> None:
    def point(running: float) -> Point:
        return Point({}, running, 0.0, 1e-5, 2 * running, 0.0, 1e6)

    summary = summarise("LayerNorm", [[point(1e-3), point(2e-3)], [point(5e-3)]])
    assert summary.running == pytest.approx(4.0)
    assert (summary.least, summary.most) == pytest.approx((3.0, 5.0))
    assert summary.speedup == pytest.approx(2.0)
