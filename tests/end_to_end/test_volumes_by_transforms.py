"""Convolutions of volumes by way of transforms equal onnxruntime's, which has none: slices that a window reaches, with or without pads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph._core import simd_levels
from tests.end_to_end.reference import Array, assert_all_close, session

INSTRUCTION, PACKING = "m_matmul_transformed_f32", "d_pack_b_transformed_f32"


def convolution(
    channels: int = 32,
    results: int = 32,
    deep: int = 3,
    group: int = 1,
    constant: bool = True,
    weights: Array | None = None,
    **attributes: object,
) -> onnx.ModelProto:
    if weights is None:
        weights = numbers(results, channels // group, deep, 3, 3) / np.float32(
            np.sqrt(9 * channels)
        )
    attributes.setdefault("pads", [deep // 2, 1, 1] * 2)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], group=group, **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    held = [numpy_helper.from_array(numbers(results), "b")]
    inputs = [helper.make_tensor_value_info("x", 1, ["n", channels, "d", "h", "w_"])]
    if constant:
        held.append(numpy_helper.from_array(weights, "w"))
    else:
        inputs.append(helper.make_tensor_value_info("w", 1, weights.shape))
    outputs = [helper.make_tensor_value_info("y", 1, ["n", results, "s", "p", "q"])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


SHAPES = [(1, 8, 24, 24), (2, 3, 17, 21), (3, 1, 9, 8), (1, 5, 4, 30), (2, 2, 3, 3)]


@pytest.mark.parametrize("machine", ["zen4", "zen2", "sapphire-rapids"])
@pytest.mark.parametrize(
    ("channels", "results", "deep", "attributes"),
    [
        (16, 16, 3, {}),
        (20, 33, 3, {"pads": [1, 0, 2, 1, 2, 0]}),
        (32, 48, 1, {}),
        (17, 40, 5, {"pads": [4, 1, 1, 2, 1, 1]}),
        (24, 24, 3, {"strides": [2, 1, 1]}),
        (24, 24, 3, {"dilations": [2, 1, 1], "pads": [3, 1, 1] * 2}),
        (32, 32, 2, {"dilations": [1, 2, 3], "pads": [1, 2, 3] * 2}),
        (32, 32, 3, {"dilations": [2**29, 1, 1], "pads": [2**29, 1, 1] * 2}),
        (48, 64, 3, {"group": 2}),
    ],
)
def test_any_volume(
    channels: int,
    results: int,
    deep: int,
    attributes: dict[str, object],
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DVM_MACHINE", machine)
    model = convolution(channels, results, deep, **attributes)  # type: ignore[arg-type]
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for shape in SHAPES:
        feeds = {"x": numbers(shape[0], channels, *shape[1:])}
        expected = reference.run(None, feeds)
        assert_all_close(mine.run(feeds), expected, reduction_length=9 * deep * channels)


@pytest.mark.parametrize("deep", [1, 3])
@pytest.mark.parametrize("constant", [True, False])
def test_large_volumes_take_transforms(deep: int, constant: bool) -> None:
    model = convolution(64, 64, deep, constant=constant)
    feeds = {"x": numbers(1, 64, 6, 28, 28)}
    if not constant:
        feeds["w"] = numbers(64, 64, deep, 3, 3)
    mine = dvm_graph.optimize(model)
    listing = mine.disassemble(feeds)
    assert INSTRUCTION in listing
    assert (PACKING in listing) == (not constant)
    assert INSTRUCTION not in dvm_graph.optimize(model, winograd=False).disassemble(feeds)
    expected = session(model).run(None, feeds)
    assert_all_close(mine.run(feeds), expected, reduction_length=9 * deep * 64)


@pytest.mark.parametrize("outlier", [np.inf, np.nan, 3e38, 20000.0])
def test_outliers_stay_in_their_windows(outlier: float) -> None:
    model = convolution(32, 32)
    mine, reference = dvm_graph.optimize(model), session(model)
    clean = numbers(1, 32, 6, 24, 24)
    spoilt = clean.copy()
    spoilt[0, 3, 2, 11, 7] = outlier
    assert INSTRUCTION in mine.disassemble({"x": clean})
    reached = np.zeros((6, 24, 24), bool)
    reached[1:4, 10:13, 6:9] = True
    before, (after,) = reference.run(None, {"x": clean}), mine.run({"x": spoilt})
    assert_all_close([after[0][:, ~reached]], [before[0][0][:, ~reached]], reduction_length=27 * 32)
    (expected,) = reference.run(None, {"x": spoilt})
    found, expected = after[0][:, reached], expected[0][:, reached]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@pytest.mark.parametrize("weight", [2.0**20, np.inf, np.nan])
def test_results_of_huge_weights_come_from_taps(weight: float) -> None:
    weights = numbers(40, 32, 3, 3, 3)
    weights[35, 4, 1, 1, 1] = weight  # a tap that no pad meets
    model = convolution(32, 40, weights=weights)
    feeds = {"x": numbers(1, 32, 4, 24, 24)}
    found, expected = dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds)
    others = np.arange(40) != 35
    assert_all_close([found[0][:, others]], [expected[0][:, others]], reduction_length=27 * 32)
    np.testing.assert_array_equal(np.isnan(found[0]), np.isnan(expected[0]))
    np.testing.assert_array_equal(np.isinf(found[0]), np.isinf(expected[0]))


@pytest.mark.parametrize("level", simd_levels())
def test_saved_models_are_packed_for_other_levels(level: str, tmp_path: Path) -> None:
    model = convolution(32, 48)
    feeds = {"x": numbers(1, 32, 4, 24, 24)}
    dvm_graph.optimize(model).save(tmp_path / "m.dvm")
    loaded = dvm_graph.load(tmp_path / "m.dvm", simd=level)
    assert INSTRUCTION in loaded.disassemble(feeds)
    expected = session(model).run(None, feeds)
    assert_all_close(loaded.run(feeds), expected, reduction_length=27 * 32)
