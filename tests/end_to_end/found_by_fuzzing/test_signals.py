"""Small models that random graphs once broke: Fourier transforms of frames of signals."""

from __future__ import annotations

import numpy as np
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    model_from_text,
    session,
)


def test_transforms_of_no_signals_have_no_need_of_a_window() -> None:
    model = model_from_text(
        "g (float[b, n, 1] x, int64 step, float[w] window) => (float[b, f, k, 2] y)"
        "{ y = STFT(x, step, window) }"
    )
    mine, step = dvm_graph.optimize(model), np.array(2)
    (y,) = mine.run(
        {"x": np.zeros((0, 8, 1), np.float32), "step": step, "window": np.ones(4, np.float32)}
    )
    assert y.shape[0] == 0 and y.size == 0
    with pytest.raises(dvm_graph.ShapeError, match="ends the process"):
        mine.run(
            {"x": np.ones((1, 8, 1), np.float32), "step": step, "window": np.ones(0, np.float32)}
        )


@pytest.mark.parametrize("signals", ["float[n, 8]", "float[?, ?]"])
def test_any_length_of_frames_of_no_signals(signals: str) -> None:
    model = model_from_text(
        f"g ({signals} x, int64 step) => (float[?, ?, ?, ?] y) <int64[1, 1] length = {{-1}}>"
        '{ y = STFT(x, step, "", length) }'
    )
    (y,) = dvm_graph.optimize(model).run({"x": np.zeros((0, 8), np.float32), "step": np.array(2)})
    assert y.shape[0] == 0


def test_frames_of_signals_of_no_known_rank() -> None:
    model = model_from_text(
        """g (float[n, 8, 1] x, int64[?] to, float[w] window) => (float[?, ?, ?, ?] y)
        <int64 step = {2}> { z = Reshape(x, to) y = STFT(z, step, window) }"""
    )
    feeds = {
        "x": np.random.default_rng(0).random((2, 8, 1), np.float32),
        "to": np.array([2, 8, 1]),
        "window": np.ones(4, np.float32),
    }
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds), 8)
