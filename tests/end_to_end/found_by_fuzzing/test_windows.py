"""Small models that random graphs once broke: pads of pools and convolutions, windows beyond the image, taps that are not finite."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.end_to_end.reference import (
    assert_all_close,
    assert_same_bits,
    model_from_text,
    session,
)


@pytest.mark.parametrize(
    "window", ["kernel_shape = [1], strides = [3]", "kernel_shape = [3], dilations = [2]"]
)
@pytest.mark.parametrize("pads", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("op", ["AveragePool", "LpPool"])
def test_pads_of_pools_that_are_not_those_of_the_standard(op: str, pads: str, window: str) -> None:
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 22]>
        pool (float[n, c, w] x) => (float[n, c, v] y)
        {{ y = {op}<auto_pad = "{pads}", {window}>(x) }}"""
    )
    optimized = dvm_graph.optimize(model)
    for width in (5, 6, 7, 9):
        x = np.arange(2 * width, dtype=np.float32).reshape(1, 2, width) - 3
        assert_all_close(optimized.run({"x": x}), session(model).run(None, {"x": x}))


@pytest.mark.parametrize("opset", [7, 11, 18, 19, 22])
@pytest.mark.parametrize(("extent", "kernel", "stride"), [(1, 2, 2), (2, 4, 3), (9, 4, 3)])
def test_a_mean_over_a_window_that_is_larger_than_the_padded_image(
    opset: int, extent: int, kernel: int, stride: int
) -> None:
    """Taps beyond the padded image did not count, which before opset 19 they do."""
    model = model_from_text(
        "mean (float[a, b, c, d] x) => (float[?, ?, ?, ?] y) { y = AveragePool<count_include_pad = 1,"
        f" kernel_shape = [{kernel}, 2], strides = [{stride}, 1], pads = [0, 1, 0, 1]>(x) }}",
        opset=opset,
    )
    x = np.random.default_rng(0).standard_normal((2, 3, extent, 5)).astype(np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    (expected,) = session(model).run(None, {"x": x})
    assert_all_close([y], [expected])


@pytest.mark.parametrize("opset", [10, 18, 22])
@pytest.mark.parametrize("dims", ["?, ?, ?, ?", "2, 3, 4, 1"])
def test_indices_of_a_pool_that_rounds_up(opset: int, dims: str) -> None:
    """onnx's inference counts a window behind the image, and the run's shape contradicted it."""
    model = model_from_text(
        f"""rounded (float[{dims}] x) => (float[?, ?, ?, ?] y, int64[?, ?, ?, ?] at) {{
            y, at = MaxPool<ceil_mode = 1, kernel_shape = [3, 2], pads = [2, 1, 0, 1], strides = [3, 2]>(x)
        }}""",
        opset=opset,
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 1)).astype(np.float32)
    assert_same_bits(dvm_graph.optimize(model).run({"x": x}), session(model).run(None, {"x": x}))


def test_weights_that_are_not_finite_reach_only_their_own_outputs() -> None:
    """The zeros around a transposed convolution's image made NaN of them in its neighbours."""
    model = model_from_text(
        "up (float[n, 1, h, 1] x) => (float[n, 2, ?, 1] y)"
        " <float[1, 2, 2, 1] w = {-0.5, 0.25, -2, nan}> { y = ConvTranspose(x, w) }"
    )
    x = np.array([-3, -2], np.float32).reshape(1, 1, 2, 1)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y.ravel(), [1.5, 0.25, -0.5, 6, np.nan, np.nan])


@pytest.mark.parametrize("op", ["AveragePool", "LpPool", "MaxPool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("rows", [0, 3])
def test_pads_that_keep_the_extent_of_nothing(op: str, auto_pad: str, rows: int) -> None:
    """The inference says that one window is left of it where strides are longer than windows."""
    model = model_from_text(
        f"""g (float[0, 1, {rows}, 2] x) => (float[?, ?, ?, ?] y) {{
            y = {op}<auto_pad = "{auto_pad}", kernel_shape = [1, 2], strides = [2, 1]>(x)
        }}"""
    )
    feeds = {"x": np.zeros((0, 1, rows, 2), np.float32)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))
