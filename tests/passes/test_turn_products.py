"""Convolutions of one channel multiply weights by patches where their results are read channels-first."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import dvm_graph
from dvm_graph.ir import Graph
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from tests.end_to_end.reference import assert_all_close, model_from_text, session

_LINES = {
    "stride": ((3, 1, 41), (8, 1, 5), "strides = [3]"),
    "pads": ((2, 1, 23), (8, 1, 7), "pads = [3, 3], strides = [2]"),
    "front": ((1, 1, 10), (5, 1, 4), "pads = [3, 0]"),
    "dilation": ((2, 1, 30), (9, 1, 5), "dilations = [4], pads = [8, 8]"),
    "same": ((2, 1, 16), (6, 1, 4), 'auto_pad = "SAME_UPPER", strides = [3]'),
    "behind the first": ((2, 1, 17), (6, 1, 3), 'auto_pad = "SAME_LOWER", strides = [9]'),
    "columns behind the first": (
        (2, 1, 1, 31),
        (6, 1, 1, 2),
        'auto_pad = "SAME_UPPER", strides = [1, 8]',
    ),
    "left over": ((2, 1, 20), (6, 1, 3), "strides = [6]"),
    "short": ((2, 1, 2), (6, 1, 3), "pads = [1, 1], strides = [2]"),
    "nothing": ((0, 1, 9), (4, 1, 3), "strides = [2]"),
    "column": ((2, 1, 9, 6), (8, 1, 3, 1), "pads = [1, 0, 2, 0], dilations = [2, 1]"),
    "row": ((2, 1, 1, 19), (8, 1, 1, 3), "strides = [1, 2], pads = [0, 1, 0, 1]"),
    "one column": ((2, 1, 19, 1), (8, 1, 3, 1), "strides = [2, 1], pads = [1, 0, 1, 0]"),
}
"""Shapes of x and of weights, attributes."""


def _model(
    shape: tuple[int, ...], weights: tuple[int, ...], attrs: str, body: str, dtype: str = "float"
) -> onnx.ModelProto:
    """`body` makes y of a, what the convolution gives, and may read other weights v; extents but 1 are dynamic."""
    dims = ", ".join("1" if extent == 1 else f"d{axis}" for axis, extent in enumerate(shape))
    held = (
        f"{dtype}[{', '.join(map(str, weights))}] w, {dtype}[{weights[0]}] c, "
        f"{dtype}[3, {weights[0]}, 1] v"
    )
    rank = ", ".join(f"r{axis}" for axis in range(len(shape)))
    return model_from_text(
        f"g ({dtype}[{dims}] x, {held}) => ({dtype}[{rank}] y)"
        f" {{ a = Conv <{attrs}> (x, w, c) {body} }}"
    )


def _feeds(
    shape: tuple[int, ...], weights: tuple[int, ...], dtype: Any = np.float32
) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(3)
    shapes = {"x": shape, "w": weights, "c": weights[:1], "v": (3, weights[0], 1)}
    return {name: generator.standard_normal(of).astype(dtype) for name, of in shapes.items()}


def _graph(model: onnx.ModelProto) -> Graph:
    return compile_model(model.SerializeToString(), Options()).graph


def _has_patches(model: onnx.ModelProto) -> bool:
    return any(node.op == "patches" for node in _graph(model).nodes)


@pytest.mark.parametrize("name", _LINES)
@pytest.mark.parametrize("body", ["y = Identity (a)", "y = Relu (a)"])
def test_patches_are_turned_over_instead_of_results(name: str, body: str) -> None:
    shape, weights, attrs = _LINES[name]
    model, feeds = _model(shape, weights, attrs, body), _feeds(shape, weights)
    assert not _has_patches(model)
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, int(np.prod(weights[1:])))


@pytest.mark.parametrize(("samples", "turned"), [(None, True), (36, True), (35, False)])
def test_few_places_stay_as_they_are(samples: int | None, turned: bool) -> None:
    """With columns of four places each; where nothing is known of their number they may be many."""
    model = _model((2, 1, 30, 4), (8, 1, 5, 1), "strides = [1, 1]", "y = Identity (a)")
    if samples is not None:
        x = model.graph.input[0].type.tensor_type.shape.dim
        x[2].dim_value, x[3].dim_value = samples, 4
    assert _has_patches(model) != turned
    feeds = _feeds((2, 1, samples or 30, 4), (8, 1, 5, 1))
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds), 5)


def test_norms_between_are_turned_over_too() -> None:
    shape, weights, attrs = _LINES["stride"]
    body = "m = InstanceNormalization (a, c, c) y = Sigmoid (m)"
    model, feeds = _model(shape, weights, attrs, body), _feeds(shape, weights)
    assert not _has_patches(model)
    orders = {node.attrs["perm"] for node in _graph(model).nodes if node.op == "transpose"}
    assert not orders & {(0, 2, 3, 1), (0, 3, 1, 2)}
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 64)


def test_half_precision_is_turned_over_too() -> None:
    shape, weights, attrs = _LINES["pads"]
    model = _model(shape, weights, attrs, "y = Identity (a)", "float16")
    assert not _has_patches(model)
    feeds = _feeds(shape, weights, np.float16)
    wide = {name: array.astype(np.float32) for name, array in feeds.items()}
    (expected,) = session(_model(shape, weights, attrs, "y = Identity (a)")).run(None, wide)
    (y,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_allclose(y, expected.astype(np.float16), rtol=2e-3, atol=2e-3)


def test_infinities_stay_in_their_windows() -> None:
    """As in the definition; pads meet finite weights, and are nothing."""
    shape, weights, attrs = _LINES["pads"]
    feeds = _feeds(shape, weights)
    feeds["x"][0, 0, 5] = np.inf
    feeds["x"][1, 0, 22] = np.nan
    model = _model(shape, weights, attrs, "y = Identity (a)")
    (y,) = dvm_graph.optimize(model).run(feeds)
    x = np.pad(feeds["x"][:, 0], ((0, 0), (3, 3)))
    for at in range(y.shape[2]):
        with np.errstate(invalid="ignore"):
            window = x[:, 2 * at : 2 * at + 7] @ feeds["w"][:, 0].T + feeds["c"]
        np.testing.assert_array_equal(np.isfinite(y[:, :, at]), np.isfinite(window))


@pytest.mark.parametrize(
    ("case", "body"),
    [
        # Another convolution, and a transpose of the model's, read channels-last.
        ("stride", "b = Relu (a) y = Conv (b, v)"),
        ("stride", "y = Transpose <perm = [0, 2, 1]> (a)"),
        ("few results", "y = Identity (a)"),
        ("two channels", "y = Identity (a)"),
        ("plane", "y = Identity (a)"),
        ("stride of columns", "y = Identity (a)"),
    ],
)
def test_others_stay_as_they_are(case: str, body: str) -> None:
    shape, weights, attrs = {
        **_LINES,
        "few results": ((2, 1, 20), (2, 1, 3), "group = 1"),
        "two channels": ((2, 2, 20), (8, 2, 3), "group = 1"),
        "plane": ((2, 1, 9, 8), (12, 1, 3, 3), "group = 1"),
        "stride of columns": ((2, 1, 9, 8), (8, 1, 3, 1), "strides = [2, 1]"),
    }[case]
    model, feeds = _model(shape, weights, attrs, body), _feeds(shape, weights)
    assert _has_patches(model)
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 64)


@pytest.mark.parametrize(
    "body",
    [
        "e = Identity (b) y = Transpose <perm = [0, 3, 1, 2]> (e)",
        "e = Concat <axis = 3> (b, b) y = Transpose <perm = [0, 3, 1, 2]> (e)",
        "k = Constant <value_ints = [-1]> () e = ReduceMax (b, k) y = Transpose <perm = [0, 3, 1, 2]> (e)",
    ],
)
def test_what_is_computed_channels_last_stays(body: str) -> None:
    shape, weights, attrs = _LINES["one column"]
    model = _model(shape, weights, attrs, f"b = Transpose <perm = [0, 2, 3, 1]> (a) {body}")
    feeds = _feeds(shape, weights)
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 3)


def test_images_that_no_convolution_made_are_turned_as_they_are() -> None:
    model = model_from_text(
        "g (float[n, h, w, c] x) => (float[p, q, r, s] y) { y = Transpose <perm = [0, 3, 1, 2]> (x) }"
    )
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    np.testing.assert_array_equal(
        dvm_graph.optimize(model).run({"x": x})[0], x.transpose(0, 3, 1, 2)
    )


def test_sums_of_bytes_are_none_of_weights_by_patches() -> None:
    model = model_from_text(
        """g (uint8[n, 1, h, 1] x, uint8 zero) => (int32[p, q, r, s] y)
            <uint8[4, 1, 3, 1] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
                y = ConvInteger <pads = [1, 0, 1, 0]> (x, w, zero)
        }"""
    )
    x = np.arange(400).astype(np.uint8).reshape(2, 1, 200, 1)
    feeds = {"x": x, "zero": np.array(3, np.uint8)}
    expected = session(model).run(None, feeds)
    np.testing.assert_array_equal(dvm_graph.optimize(model).run(feeds)[0], expected[0])


_BLOCKS = {
    "square": ((2, 3, 5, 7), (3, 4, 2, 2), "strides = [2, 2]"),
    "one channel": ((1, 1, 9, 4), (1, 1, 2, 2), "strides = [2, 2]"),
    "rows": ((3, 5, 4, 6), (5, 3, 3, 1), "strides = [3, 1]"),
    "columns": ((2, 4, 3, 17), (4, 2, 1, 4), "strides = [1, 4]"),
    "wide": ((1, 2, 3, 5), (2, 1, 3, 5), "strides = [3, 5]"),
    "signal": ((2, 3, 13), (3, 4, 4), "strides = [4]"),
    "same": ((2, 3, 5, 7), (3, 4, 2, 2), 'strides = [2, 2], auto_pad = "SAME_UPPER"'),
    "nothing": ((0, 3, 5, 7), (3, 4, 2, 2), "strides = [2, 2]"),
}
"""Shapes of x and of weights, attributes."""


def _blocks(name: str, body: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray[Any, Any]]]:
    """`body` makes y of what the transposed convolution makes of b."""
    shape, weights, attrs = _BLOCKS[name]
    generator = np.random.default_rng(5)
    feeds = {"x": generator.standard_normal(shape).astype(np.float32)}
    w = generator.standard_normal(weights).astype(np.float32)
    dims = ", ".join(
        "n" if axis == 0 else str(extent) if axis == 1 else f"d{axis}"
        for axis, extent in enumerate(shape)
    )
    rank = ", ".join(f"r{axis}" for axis in range(len(shape)))
    text = f"g (float[{dims}] x) => (float[{rank}] y) {{ {body.replace('ConvTranspose', f'ConvTranspose <{attrs}>')} }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 20]> {text}')
    held = {"w": w, "c": generator.standard_normal(weights[1]).astype(np.float32)}
    held["k"] = generator.standard_normal((shape[1], shape[1], *(1,) * (len(shape) - 2))).astype(
        np.float32
    )
    held["v"] = generator.standard_normal((2, weights[1], *(1,) * (len(shape) - 2))).astype(
        np.float32
    )
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in held.items()
    )
    return model, feeds


def _perms(model: onnx.ModelProto) -> set[tuple[int, ...]]:
    return {tuple(node.attrs["perm"]) for node in _graph(model).nodes if node.op == "transpose"}


@pytest.mark.parametrize("name", _BLOCKS)
@pytest.mark.parametrize(
    "body", ["y = ConvTranspose (x, w)", "a = ConvTranspose (x, w, c) y = Relu (a)"]
)
def test_few_results_of_pixels_are_planes(name: str, body: str) -> None:
    model, feeds = _blocks(name, body)
    assert _perms(model) == {(0, 3, 4, 1, 5, 2)}
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, _BLOCKS[name][1][0])


@pytest.mark.parametrize("name", ["square", "one channel", "wide"])
@pytest.mark.parametrize(
    "body",
    [
        "a = Conv (x, k) b = Relu (a) y = ConvTranspose (b, w, c)",
        "a = ConvTranspose (x, w, c) b = Relu (a) y = Conv (b, v)",
    ],
)
def test_images_of_convolutions_stay_channels_last(name: str, body: str) -> None:
    model, feeds = _blocks(name, body)
    assert not any(perm == (0, 3, 4, 1, 5, 2) for perm in _perms(model))
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 16)
