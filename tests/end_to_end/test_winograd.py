"""Convolutions by way of transforms equal onnxruntime's, which has none: whatever the image, what follows, and the CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph import _core
from dvm_graph.ir import DType
from dvm_graph.options import Options
from dvm_graph.pipeline import compile_model
from dvm_graph.runtime.assemble import assemble
from tests.end_to_end.reference import Array, assert_all_close, session

INSTRUCTION = "m_matmul_transformed_f32"


def convolution(
    channels: int, results: int, pads: tuple[int, ...] = (1, 1, 1, 1)
) -> onnx.ModelProto:
    """Rectified, and with what it was made of added where that has its shape."""
    generator = np.random.default_rng(channels + results)
    weights = generator.standard_normal((results, channels, 3, 3)) / np.sqrt(9 * channels)
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads),
        helper.make_node("Relu", ["c"], ["r"]),
    ]
    if channels == results and pads == (1, 1, 1, 1):
        nodes.append(helper.make_node("Add", ["r", "x"], ["y"]))
    else:
        nodes.append(helper.make_node("Mul", ["r", "r"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", 1, ["n", channels, "h", "w"])],
        [helper.make_tensor_value_info("y", 1, ["n", results, "p", "q"])],
        [
            numpy_helper.from_array(weights.astype(np.float32), "w"),
            numpy_helper.from_array(generator.standard_normal(results, np.float32), "b"),
        ],
    )
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def image(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


SHAPES = [(1, 56, 56), (3, 30, 21), (2, 14, 14), (1, 37, 5), (2, 4, 4), (1, 3, 130), (1, 2, 2)]


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 1, 3)])
@pytest.mark.parametrize(
    ("channels", "results"), [(32, 32), (64, 48), (48, 100), (112, 33), (256, 64), (640, 32)]
)
def test_any_image(channels: int, results: int, pads: tuple[int, ...]) -> None:
    model = convolution(channels, results, pads)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for n, h, w in SHAPES:
        feeds = {"x": image(n, channels, h, max(w, 3 - pads[1] - pads[3]))}
        if h + pads[0] + pads[2] < 3:
            continue
        expected = reference.run(None, feeds)
        assert_all_close(mine.run(feeds), expected, reduction_length=9 * channels)


@pytest.mark.parametrize(
    ("channels", "machine"), [(64, "zen4"), (256, "zen4"), (32, "zen2"), (32, "generic")]
)
def test_large_images_take_transforms(
    channels: int, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVM_MACHINE", machine)
    model = convolution(channels, channels)
    feeds = {"x": image(1, channels, 56, 56)}
    assert INSTRUCTION in dvm_graph.optimize(model).disassemble(feeds)
    direct = dvm_graph.optimize(model, winograd=False)
    assert INSTRUCTION not in direct.disassemble(feeds)
    assert_all_close(
        direct.run(feeds), session(model).run(None, feeds), reduction_length=9 * channels
    )


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_tiles_of_one_image_may_be_uneven(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 29 rows, whose sums local memory does not hold at once."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")
    model = convolution(64, 128)
    model.graph.node[-1].CopyFrom(helper.make_node("Softmax", ["r"], ["y"], axis=1))
    mine, reference = dvm_graph.optimize(model, cores=cores), session(model)
    assert INSTRUCTION in mine.disassemble({"x": image(1, 64, 29, 29)})
    for n in 1, 2:
        feeds = {"x": image(n, 64, 29, 29)}
        assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=9 * 64)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("cores", [1, 16])
def test_every_level(level: str, cores: int) -> None:
    if level not in _core.simd_levels():
        pytest.skip(f"this machine, or build, has no {level}")
    model = convolution(64, 72)
    mine = dvm_graph.optimize(model, simd=level, cores=cores)
    reference = session(model)
    for n, h, w in SHAPES[:4]:
        feeds = {"x": image(n, 64, h, w)}
        assert_all_close(mine.run(feeds), reference.run(None, feeds), reduction_length=9 * 64)


@pytest.mark.parametrize("channels", [slice(None), slice(5, 6)])
@pytest.mark.parametrize("outlier", [np.inf, -np.inf, np.nan, 3e38, -1e9, 20000.0, 1000.0])
def test_outliers_stay_in_their_windows(outlier: float, channels: slice) -> None:
    """What lies beside a pixel that is huge, or no number, is as exact as without it."""
    model = convolution(64, 40)
    mine, reference = dvm_graph.optimize(model), session(model)
    x = image(2, 64, 40, 36)
    assert INSTRUCTION in mine.disassemble({"x": x})
    x[1, channels, 17, 22] = outlier
    expected = reference.run(None, {"x": x})[0]
    far = np.ones(expected.shape, bool)
    far[1, :, 16:19, 21:24] = False
    (found,) = mine.run({"x": x})
    assert_all_close([found[far]], [expected[far]], reduction_length=9 * 64)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@pytest.mark.parametrize("cores", [1, 2])
def test_images_beyond_local_memory_are_transformed(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Channels come first in the result, so that sums lie in local memory until they are stored."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")
    model = convolution(64, 72)
    feeds = {"x": image(1, 64, 112, 100)}
    mine = dvm_graph.optimize(model, cores=cores)
    assert INSTRUCTION in mine.disassemble(feeds)
    assert_all_close(mine.run(feeds), session(model).run(None, feeds), reduction_length=9 * 64)


def peaks(x: Array) -> Array:
    """Rectified, with some channels of some pixels far above the others."""
    generator = np.random.default_rng(7)
    x = np.maximum(x, 0)
    for size in (30, 100, 300, 1000, 3000, 1e4, 1e5, 1e8):
        x[tuple(generator.integers(x.shape))] = size
    return x


def masked(x: Array, value: float = -1e4) -> Array:
    """A part of an image, and all of the next one's border, in all channels."""
    x[0, :, 9:, 17:] = value
    x[1, :, [0, -1]] = x[1, :, :, [0, -1]] = value
    return x


IMAGES: dict[str, Callable[[Array], Array]] = {
    "even": lambda x: x,
    "peaks": peaks,
    "one channel's peaks": lambda x: np.where(np.arange(64)[:, None, None] == 5, peaks(x), x),
    "masked": masked,
    "largest float16": lambda x: masked(x, 65504),
    "dark": lambda x: masked(x, 0),
    "dim": lambda x: peaks(x) * np.float32(1e-12),
}


@pytest.mark.parametrize("kind", IMAGES)
@pytest.mark.parametrize(("h", "w"), [(40, 36), (21, 30)])
def test_errors_are_of_a_result_s_own_window(kind: str, h: int, w: int) -> None:
    """Relative to what its pixels and the weights may add up to: the product of their norms."""
    model = convolution(64, 40)
    del model.graph.node[1:]
    model.graph.output[0].name = "c"
    weights, bias = map(numpy_helper.to_array, model.graph.initializer)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros_like(bias), "b"))
    x = IMAGES[kind](image(2, 64, h, w)).astype(np.float32)
    mine = dvm_graph.optimize(model)
    assert INSTRUCTION in mine.disassemble({"x": x})
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", windows, weights.astype(np.float64), optimize=True)
    of_windows = np.sqrt(np.einsum("nchwij,nchwij->nhw", windows, windows))
    of_weights = np.sqrt((weights.astype(np.float64) ** 2).sum((1, 2, 3)))
    largest = of_windows[:, None] * of_weights[:, None, None]
    (found,) = mine.run({"x": x})
    errors = (found - exact) / np.where(largest > 0, largest, np.finfo(np.float32).tiny)
    assert_all_close([errors.astype(np.float32)], [np.zeros_like(found)], reduction_length=9)


@pytest.mark.parametrize("weight", [2.0**20, 3e38, np.inf, np.nan])
def test_results_of_huge_weights_come_from_taps(weight: float) -> None:
    model = convolution(64, 72, pads=(0, 0, 0, 0))
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[40, 5, 1, 2] = weight
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    feeds = {"x": image(1, 64, 56, 56)}
    mine = dvm_graph.optimize(model)
    assert INSTRUCTION in mine.disassemble(feeds)
    (found,), (expected,) = mine.run(feeds), session(model).run(None, feeds)
    others = np.arange(72) != 40
    assert_all_close([found[:, others]], [expected[:, others]], reduction_length=9 * 64)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


def test_saved_models_keep_transforms(tmp_path: Path) -> None:
    model = convolution(64, 64)
    feeds = {"x": image(1, 64, 56, 56)}
    mine = dvm_graph.optimize(model)
    mine.save(tmp_path / "m.dvm")
    loaded = dvm_graph.load(tmp_path / "m.dvm")
    assert INSTRUCTION in loaded.disassemble(feeds)
    np.testing.assert_array_equal(loaded.run(feeds)[0], mine.run(feeds)[0])


def test_packed_weights_have_the_transforms_of_the_definition() -> None:
    """Behind the rows of the taps those of each point: its powers over the product of its distances to the others."""
    points = (0.0, 0.75, -0.75, 1.5, -1.5)
    rows = [
        np.power(at, range(3)) / np.prod([at - other for other in points if other != at])
        for at in points
    ]
    along = np.array([*rows, [0.0, 0.0, 1.0]])
    model = convolution(48, 41)
    weights = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    expected = np.einsum("pi,qj,ocij->pqco", along, along, weights).reshape(36 * 48, 41)
    taps = weights.transpose(2, 3, 1, 0).reshape(9 * 48, 41)
    whole = np.concatenate([taps, expected]).astype(np.float32)

    plan = compile_model(model, Options()).plan
    (index,) = (at for at, value in enumerate(plan.values) if value.panels is not None)
    program = assemble(plan, Options())
    columns = program.panel_columns(DType.FLOAT32)
    panels = program.contents(index).reshape(-1, len(whole), columns)
    matrix = panels.transpose(1, 0, 2).reshape(len(whole), -1)[:, :41]
    np.testing.assert_array_equal(matrix[: len(taps)], whole[: len(taps)])
    error = np.abs(matrix - whole).max() / np.abs(weights).max()
    assert error < 4 * np.finfo(np.float32).eps
