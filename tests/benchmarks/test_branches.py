"""The suite of branches: its feeds fit its graphs, and torch computes what they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from benchmarks import branches


@pytest.mark.parametrize("name", branches.DATASETS)
def test_feeds_fit_the_graph_in_both_branches(name: str, tmp_path: Path) -> None:
    workload = branches.workload(name, seed=0, count=12, folder=tmp_path)
    session = onnxruntime.InferenceSession(workload.source.path)
    taken = set()
    for point in workload.points:
        feeds = point.feeds()
        taken.add(bool(feeds["c"]))
        (out,) = session.run(None, dict(feeds))
        assert out.shape == (point.dims["m"], point.dims["k"])
        assert np.isfinite(out).all()
        np.testing.assert_array_equal(point.feeds()["x"], feeds["x"])
    assert taken == {True, False}


@pytest.mark.parametrize("name", branches.DATASETS)
def test_torch_computes_the_same(name: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks import torch_operators

    workload = branches.workload(name, seed=0, count=6, folder=tmp_path)
    session = onnxruntime.InferenceSession(workload.source.path)
    for point in workload.points:
        feeds = point.feeds()
        tensors = {name: torch.from_numpy(np.asarray(array)) for name, array in feeds.items()}
        (want,) = session.run(None, dict(feeds))
        got = getattr(torch_operators, name)(**tensors)
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, atol=1e-5)
