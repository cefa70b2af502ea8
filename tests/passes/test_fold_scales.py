"""Constant factors behind products become part of constant weights."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import onnx
import pytest

import dvm_graph
from dvm_graph.ir import Dim, DType, Graph, Value
from dvm_graph.options import Options
from dvm_graph.passes import fold_scales
from dvm_graph.pipeline import compile_model
from tests.end_to_end.reference import assert_all_close, model_from_text, session
from tests.passes.sketch import Sketch

Array = np.ndarray[Any, Any]

_CONVOLUTIONS = {
    "1x1": ((2, 24, 5, 6), (16, 24, 1, 1), "group = 1"),
    "3x3": ((2, 24, 7, 6), (16, 24, 3, 3), "pads = [1, 1, 1, 1]"),
    "strided": ((1, 3, 9, 8), (32, 3, 3, 3), "strides = [2, 2]"),
    "depth-wise": ((2, 24, 7, 6), (24, 1, 3, 3), "group = 24, pads = [1, 1, 1, 1]"),
    "lanes": ((2, 16, 7, 6), (16, 4, 3, 3), "group = 4"),
    "groups": ((2, 40, 7, 6), (48, 20, 3, 3), "group = 2"),
    "line": ((2, 24, 19), (16, 24, 5), "pads = [2, 2]"),
    "volume": ((1, 4, 4, 5, 6), (6, 4, 3, 3, 3), "pads = [1, 1, 1, 1, 1, 1]"),
}
"""Shapes of x and of weights, attributes."""


def _normalized(
    convolution: str, body: str, seed: int = 5
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """`body` makes y of a convolution a of x, by constants s, b, m and v for each of its channels."""
    shape, weights, attrs = _CONVOLUTIONS[convolution]
    rank, channels = len(shape), weights[0]
    dims = ", ".join("n" if axis == 0 else str(extent) for axis, extent in enumerate(shape))
    constants = {
        "w": weights,
        "k": (channels, *(1,) * (rank - 2)),
        **dict.fromkeys("csbmv", (channels,)),
    }
    held = ", ".join(f"float[{', '.join(map(str, of))}] {name}" for name, of in constants.items())
    model = model_from_text(
        f"g (float[{dims}] x, {held}) => (float[{', '.join(f'r{axis}' for axis in range(rank))}] y)"
        f" {{ a = Conv <{attrs}> (x, w, c) {body} }}"
    )
    del model.graph.input[1:]
    generator = np.random.default_rng(seed)
    for name, of in constants.items():
        numbers = generator.standard_normal(of).astype(np.float32)
        if name == "v":
            numbers = np.abs(numbers) + np.float32(0.1)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    return model, {"x": generator.standard_normal(shape).astype(np.float32)}


def _graph(model: onnx.ModelProto) -> Graph:
    return compile_model(model.SerializeToString(), Options()).graph


def _count(graph: Graph, *operators: str) -> int:
    return sum(node.op in operators for node in graph.nodes)


@pytest.mark.parametrize("name", _CONVOLUTIONS)
@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ("y = BatchNormalization (a, s, b, m, v)", 1),
        ("z = BatchNormalization (a, s, b, m, v) y = Relu (z)", 1),
        ("z = Mul (k, a) y = BatchNormalization (z, s, b, m, v)", 1),
        ("z = Div (a, k) y = Add (z, k)", 1),
    ],
)
def test_one_row_is_left_to_add(name: str, body: str, rows: int) -> None:
    model, feeds = _normalized(name, body)
    graph = _graph(model)
    assert _count(graph, "mul", "div", "sub") == 0
    if name != "volume":  # whose slices are added
        assert _count(graph, "add") == rows
    expected = session(model).run(None, feeds)
    steps = int(np.prod(_CONVOLUTIONS[name][1][1:]))
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 16 * steps)


def _product(sketch: Sketch, weights: Array, dtype: DType = DType.FLOAT32) -> tuple[Value, Value]:
    """Of [n, 4] by a constant [4, 3], and the constant."""
    constant = sketch.build.constant(weights.astype(dtype.numpy))
    return sketch.build.matmul(sketch.input("n", 4, dtype=dtype), constant), constant


_ROW = np.asarray([[0.5, 2.0, -3.0]])
_WEIGHTS = np.arange(1.0, 13.0).reshape(4, 3) / 8


def _row(sketch: Sketch, row: Array, dtype: DType = DType.FLOAT32) -> Value:
    return sketch.build.constant(row.astype(dtype.numpy))


def test_the_weights_are_scaled_and_the_rows_summed(sketch: Sketch) -> None:
    build = sketch.build
    y, _ = _product(sketch, _WEIGHTS)
    y = build.add(y, _row(sketch, np.asarray([[1.0, 2.0, 3.0]])))
    y = build.sub(build.mul(_row(sketch, _ROW), y), sketch.number(4))
    sketch.graph.outputs = [y]
    assert fold_scales(sketch.graph, sketch.facts)
    assert sketch.operators() == ["matmul", "add"]
    product, add = sketch.graph.sorted_nodes()
    np.testing.assert_array_equal(product.required(1).data, _WEIGHTS * _ROW)
    np.testing.assert_array_equal(add.required(1).data, [[-3.5, 0.0, -13.0]])
    assert not fold_scales(sketch.graph, sketch.facts)


@pytest.mark.parametrize(("joined", "folds"), [(True, True), (False, False)])
def test_factors_pass_views_that_keep_results_apart(
    sketch: Sketch, joined: bool, folds: bool
) -> None:
    """Of six results, as two groups of three; factors of one group are none of the other's."""
    build = sketch.build
    rows = build.constant(np.arange(1.0, 25.0, dtype=np.float32).reshape(6, 4) / 8)
    x = sketch.input("n", 2, 2)
    y = build.matmul(build.reshape(x, (_extent(x), 4)), build.transpose(rows, (1, 0)))
    y = build.add(y, _row(sketch, np.arange(6.0)[None]))
    y = build.reshape(y, (_extent(x), 2, 3))
    if joined:
        y = build.reshape(y, (_extent(x), 6))
    factor = np.asarray([1.0, 10.0, 100.0, 2.0, 20.0, 200.0])[None, : 6 if joined else 3]
    sketch.graph.outputs = [build.mul(y, _row(sketch, factor))]
    assert fold_scales(sketch.graph, sketch.facts) == folds
    assert ("mul" in sketch.operators()) != folds


def _extent(value: Value) -> Dim:
    assert value.shape is not None
    return value.shape[0]


@pytest.mark.parametrize(
    ("factor", "dtype"),
    [
        (_ROW, DType.FLOAT16),  # whose weights would be rounded anew
        (np.asarray([[1.0, np.inf, 1.0]]), DType.FLOAT32),
        (np.asarray([[1.0, 1e38, 1.0]]), DType.FLOAT32),  # weights would be infinite
        (np.asarray([[1.0, 1e-39, 1.0]]), DType.FLOAT32),  # weights would lose bits
        (np.asarray([[1.0, 0.0, 1.0]]), DType.FLOAT32),  # zeros have the signs of the results
        (np.ones((5, 3)), DType.FLOAT32),  # for each row
        (np.ones((5, 1, 3)), DType.FLOAT32),  # of more axes
    ],
)
def test_factors_that_stay(sketch: Sketch, factor: Array, dtype: DType) -> None:
    y, _ = _product(sketch, _WEIGHTS, dtype)
    sketch.graph.outputs = [sketch.build.mul(y, _row(sketch, factor, dtype))]
    assert not fold_scales(sketch.graph, sketch.facts)


@pytest.mark.parametrize(("factor", "folds"), [(_ROW, True), (_ROW * 1e-38, False)])
def test_zeros_among_weights_lose_no_bits(sketch: Sketch, factor: Array, folds: bool) -> None:
    weights = _WEIGHTS.copy()
    weights[0, 0] = 0
    y, _ = _product(sketch, weights)
    sketch.graph.outputs = [sketch.build.mul(y, _row(sketch, factor))]
    assert fold_scales(sketch.graph, sketch.facts) is folds


def test_sums_of_whole_numbers_stay(sketch: Sketch) -> None:
    """They are exact, and what is rounded behind them may lie at a half."""
    y, _ = _product(sketch, np.rint(8 * _WEIGHTS))
    sketch.graph.outputs = [sketch.build.mul(y, _row(sketch, _ROW))]
    assert not fold_scales(sketch.graph, sketch.facts)


def test_sums_that_round_stay(sketch: Sketch) -> None:
    y, _ = _product(sketch, _WEIGHTS)
    build, much = sketch.build, sketch.number(1.5 * 2**23)
    sketch.graph.outputs = [build.mul(build.sub(build.add(y, much), much), _row(sketch, _ROW))]
    assert not fold_scales(sketch.graph, sketch.facts)


def test_extents_of_the_run_stay(sketch: Sketch) -> None:
    build = sketch.build
    x, z = sketch.input("n", 4), sketch.input(4, "k")
    weights = build.constant(np.arange(0.5, 20, dtype=np.float32))
    y = build.matmul(x, build.reshape(weights, z.shape or ()))
    sketch.graph.outputs = [build.mul(y, sketch.number(2))]
    assert not fold_scales(sketch.graph, sketch.facts)


def test_what_others_read_stays(sketch: Sketch) -> None:
    y, weights = _product(sketch, _WEIGHTS)
    scaled = sketch.build.mul(y, _row(sketch, _ROW))
    sketch.graph.outputs = [scaled, y]
    assert not fold_scales(sketch.graph, sketch.facts)
    sketch.graph.outputs = [scaled, sketch.build.matmul(sketch.input("m", 4), weights)]
    assert not fold_scales(sketch.graph, sketch.facts)
    sketch.graph.outputs = [scaled]


@pytest.mark.parametrize("scale", [0.05, 0.1, 0.3])
def test_levels_of_grouped_convolutions_of_bytes_are_exact(scale: float) -> None:
    model = model_from_text(
        "g (uint8[n, 3, 12, 12] x, int8[6, 1, 3, 3] w, float s) => (uint8[n, 6, 12, 12] y)"
        " <float one = {1}, uint8 zx = {3}, int8 zw = {0}, uint8 zy = {128}>"
        " { y = QLinearConv <group = 3, pads = [1, 1, 1, 1]> (x, s, zx, w, one, zw, one, zy) }"
    )
    generator = np.random.default_rng(1)
    constants = {
        "w": generator.integers(-9, 10, (6, 1, 3, 3)).astype(np.int8),
        "s": np.float32(scale),
    }
    del model.graph.input[1:]
    for name, numbers in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(numbers), name))
    feeds = {"x": generator.integers(0, 256, (4, 3, 12, 12)).astype(np.uint8)}
    (y,), (expected,) = dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds)
    np.testing.assert_array_equal(y, expected)


def test_long_chains_are_not_looked_through_from_each_of_their_steps(
    sketch: Sketch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That would take minutes of some thousand."""
    seen = list[str]()
    of_pass = importlib.import_module(fold_scales.__module__)
    step = of_pass._step
    monkeypatch.setattr(
        of_pass, "_step", lambda node, facts: (seen.append(node.op), step(node, facts))[1]
    )
    value = sketch.input("b", 8)
    for _ in range(100):
        value = sketch.build.op("add", value, sketch.graph.constant(np.ones(8, np.float32)))
    sketch.graph.outputs = [value]
    assert not fold_scales(sketch.graph, sketch.facts)
    assert len(seen) < 100 * 20
