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
from tests.end_to_end.reference import Array, assert_all_close, assert_same_gaps, session

INSTRUCTION = "m_matmul_transformed_f32"


def convolution(
    channels: int,
    results: int,
    pads: tuple[int, ...] = (1, 1, 1, 1),
    group: int = 1,
    dilations: tuple[int, int] = (1, 1),
) -> onnx.ModelProto:
    """Rectified, and with what it was made of added where that has its shape."""
    generator = np.random.default_rng(channels + results)
    each = channels // group
    weights = generator.standard_normal((results, each, 3, 3)) / np.sqrt(9 * each)
    conv = helper.make_node(
        "Conv", ["x", "w", "b"], ["c"], pads=pads, group=group, dilations=dilations
    )
    nodes = [conv, helper.make_node("Relu", ["c"], ["r"])]
    if channels == results and pads == (*dilations, *dilations):
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


@pytest.fixture
def zen4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the sizes below pay for transforms; elsewhere others may."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")


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


GROUPS = [(4, 16, 16), (3, 20, 20), (2, 33, 40), (5, 24, 16), (2, 112, 112), (1, 17, 31)]
"""Their number, channels of each, and results of each."""


@pytest.mark.parametrize("machine", ["zen4", "zen2", "sapphire-rapids", "neoverse"])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 2), (3, 1), (5, 7)])
@pytest.mark.parametrize(("groups", "channels", "results"), GROUPS)
def test_groups_and_taps_apart(
    groups: int,
    channels: int,
    results: int,
    dilations: tuple[int, int],
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DVM_MACHINE", machine)
    pads = (*dilations, *dilations)
    model = convolution(groups * channels, groups * results, pads, groups, dilations)
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    for n, h, w in SHAPES:
        feeds = {"x": image(n, groups * channels, h, w)}
        expected = reference.run(None, feeds)
        assert_all_close(mine.run(feeds), expected, reduction_length=9 * channels)


@pytest.mark.parametrize(
    ("groups", "channels", "dilations", "machine"),
    [
        (8, 16, (1, 1), "zen4"),
        (8, 24, (1, 1), "zen4"),
        (8, 24, (1, 1), "zen2"),
        (4, 64, (2, 2), "zen4"),
        (1, 256, (4, 4), "zen4"),
        (1, 128, (2, 2), "generic"),
    ],
)
def test_groups_and_taps_apart_take_transforms(
    groups: int,
    channels: int,
    dilations: tuple[int, int],
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DVM_MACHINE", machine)
    all_channels = groups * channels
    model = convolution(all_channels, all_channels, (*dilations, *dilations), groups, dilations)
    feeds = {"x": image(1, all_channels, 28, 28)}
    mine = dvm_graph.optimize(model)
    assert INSTRUCTION in mine.disassemble(feeds)
    expected = session(model).run(None, feeds)
    assert_all_close(mine.run(feeds), expected, reduction_length=9 * channels)


def test_pixels_too_far_apart_are_left() -> None:
    """Of 28 rows no square of pixels 12 apart has more than three: most of what it gives would be outside of the image."""
    model = convolution(64, 64, (12,) * 4, 1, (12, 12))
    feeds = {"x": image(1, 64, 28, 28)}
    mine = dvm_graph.optimize(model)
    assert INSTRUCTION not in mine.disassemble(feeds)
    assert_all_close(mine.run(feeds), session(model).run(None, feeds), reduction_length=9 * 64)


@pytest.mark.parametrize(
    "behind",
    [
        pytest.param(["Sigmoid"], id="values"),
        pytest.param(["Shuffle", "Neg"], id="shuffled channels"),
        pytest.param(["GlobalAveragePool"], id="means"),
        pytest.param(["Softmax"], id="channels first"),
    ],
)
@pytest.mark.parametrize("cores", [1, 3])
def test_what_follows_groups(behind: list[str], cores: int) -> None:
    model = convolution(96, 96, (1, 1, 1, 1), 6)
    nodes, last = model.graph.node, "r"
    del nodes[2:]
    for index, op in enumerate(behind):
        result = "y" if index + 1 == len(behind) else f"t{index}"
        if op == "Shuffle":
            sizes = helper.make_node("Constant", [], ["s"], value_ints=[0, 6, 16, 29, 26])
            back = helper.make_node("Constant", [], ["z"], value_ints=[0, 96, 29, 26])
            nodes.extend(
                [
                    sizes,
                    back,
                    helper.make_node("Reshape", [last, "s"], ["five"]),
                    helper.make_node("Transpose", ["five"], ["turned"], perm=[0, 2, 1, 3, 4]),
                    helper.make_node("Reshape", ["turned", "z"], [result]),
                ]
            )
        else:
            nodes.append(helper.make_node(op, [last], [result]))
        last = result
    mine = dvm_graph.optimize(model, strict=True, cores=cores)
    for n in 1, 2:
        feeds = {"x": image(n, 96, 29, 26)}
        expected = session(model).run(None, feeds)
        assert_all_close(mine.run(feeds), expected, reduction_length=9 * 16)


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
@pytest.mark.usefixtures("zen4")
def test_tiles_of_one_image_may_be_uneven(cores: int) -> None:
    """Of 29 rows, whose sums local memory does not hold at once."""
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


@pytest.mark.parametrize("channels", [slice(0, 16), slice(5, 6)])
@pytest.mark.parametrize("outlier", [np.inf, -np.inf, np.nan, 3e38, -1e9, 20000.0, 1000.0])
@pytest.mark.parametrize(("groups", "apart"), [(1, 1), (4, 1), (1, 3)])
@pytest.mark.usefixtures("zen4")
def test_outliers_stay_in_their_windows(
    outlier: float, channels: slice, groups: int, apart: int
) -> None:
    """What lies beside a pixel that is huge, or no number, is as exact as without it."""
    model = convolution(64, 64, (apart,) * 4, groups, (apart, apart))
    del model.graph.node[1:]
    model.graph.output[0].name = "c"
    mine, reference = dvm_graph.optimize(model), session(model)
    x = image(2, 64, 40, 36)
    assert INSTRUCTION in mine.disassemble({"x": x})
    x[1, channels, 17, 22] = outlier
    expected = reference.run(None, {"x": x})[0]
    far = np.ones(expected.shape, bool)
    near = range(-apart, apart + 1, apart)
    far[np.ix_([1], range(64 // groups), [17 + i for i in near], [22 + i for i in near])] = False
    (found,) = mine.run({"x": x})
    assert_all_close([found[far]], [expected[far]], reduction_length=9 * 64)
    assert_same_gaps(found, expected)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.usefixtures("zen4")
def test_images_beyond_local_memory_are_transformed(cores: int) -> None:
    """Channels come first in the result, so that sums lie in local memory until they are stored."""
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
@pytest.mark.parametrize(("h", "w", "apart"), [(40, 36, 1), (21, 30, 1), (40, 36, 2)])
@pytest.mark.usefixtures("zen4")
def test_errors_are_of_a_result_s_own_window(kind: str, h: int, w: int, apart: int) -> None:
    """Relative to what its pixels and the weights may add up to: the product of their norms."""
    model = convolution(64, 40, (apart,) * 4, 1, (apart, apart))
    del model.graph.node[1:]
    model.graph.output[0].name = "c"
    weights, bias = map(numpy_helper.to_array, model.graph.initializer)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.zeros_like(bias), "b"))
    x = IMAGES[kind](image(2, 64, h, w)).astype(np.float32)
    mine = dvm_graph.optimize(model)
    assert INSTRUCTION in mine.disassemble({"x": x})
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (apart, apart), (apart, apart)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * apart + 1,) * 2, (2, 3))
    windows = windows[..., ::apart, ::apart]
    exact = np.einsum("nchwij,ocij->nohw", windows, weights.astype(np.float64), optimize=True)
    of_windows = np.sqrt(np.einsum("nchwij,nchwij->nhw", windows, windows))
    of_weights = np.sqrt((weights.astype(np.float64) ** 2).sum((1, 2, 3)))
    largest = of_windows[:, None] * of_weights[:, None, None]
    (found,) = mine.run({"x": x})
    errors = (found - exact) / np.where(largest > 0, largest, np.finfo(np.float32).tiny)
    assert_all_close([errors.astype(np.float32)], [np.zeros_like(found)], reduction_length=9)


@pytest.mark.parametrize("weight", [2.0**20, 3e38, np.inf, np.nan])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("apart", [1, 2])
@pytest.mark.usefixtures("zen4")
def test_results_of_huge_weights_come_from_taps(weight: float, groups: int, apart: int) -> None:
    model = convolution(64, 72, (0, 0, 0, 0), groups, (apart, apart))
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[40, 5, 1, 2] = weight
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    feeds = {"x": image(1, 64, 56, 56)}
    mine = dvm_graph.optimize(model)
    assert INSTRUCTION in mine.disassemble(feeds)
    (found,), (expected,) = mine.run(feeds), session(model).run(None, feeds)
    others = np.arange(72) != 40
    assert_all_close([found[:, others]], [expected[:, others]], reduction_length=9 * 64)
    assert_same_gaps(found, expected)


@pytest.mark.usefixtures("zen4")
def test_saved_models_keep_transforms(tmp_path: Path) -> None:
    model = convolution(64, 64)
    feeds = {"x": image(1, 64, 56, 56)}
    mine = dvm_graph.optimize(model)
    mine.save(tmp_path / "m.dvm")
    loaded = dvm_graph.load(tmp_path / "m.dvm")
    assert INSTRUCTION in loaded.disassemble(feeds)
    np.testing.assert_array_equal(loaded.run(feeds)[0], mine.run(feeds)[0])


@pytest.mark.parametrize(("apart", "transformed"), [(1, False), (2, True)])
@pytest.mark.usefixtures("zen4")
def test_large_weights_have_transforms_where_windows_are_dilated(
    apart: int, transformed: bool
) -> None:
    """Of images of any size: those of many channels are small, but where windows are dilated in place of strides."""
    model = convolution(480, 480, pads=(apart,) * 4, dilations=(apart, apart))
    text = dvm_graph.optimize(model).disassemble({"x": image(1, 480, 32, 32)})
    assert (INSTRUCTION in text) == transformed


def test_packed_weights_have_the_transforms_of_the_definition() -> None:
    """Behind the rows of the taps those of each point: its powers over the product of its distances to the others."""
    points = (0.0, 0.75, -0.75, 1.5, -1.5)
    rows = [
        np.power(at, range(3)) / np.prod([at - other for other in points if other != at])
        for at in points
    ]
    along = np.array([*rows, [0.0, 0.0, 1.0]])
    model = convolution(72, 123, group=3)
    weights = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float64)
    weights = weights.reshape(3, 41, 24, 3, 3)
    expected = np.einsum("pi,qj,gocij->gpqco", along, along, weights).reshape(3, 36 * 24, 41)
    taps = weights.transpose(0, 3, 4, 2, 1).reshape(3, 9 * 24, 41)
    whole = np.concatenate([taps, expected], axis=1).astype(np.float32)

    plan = compile_model(model, Options()).plan
    (index,) = (at for at, value in enumerate(plan.values) if value.panels is not None)
    program = assemble(plan, Options())
    columns = program.panel_columns(DType.FLOAT32)
    panels = program.contents(index).reshape(3, -1, whole.shape[1], columns)
    matrix = panels.transpose(0, 2, 1, 3).reshape(3, whole.shape[1], -1)[..., :41]
    np.testing.assert_array_equal(matrix[:, : taps.shape[1]], taps.astype(np.float32))
    error = np.abs(matrix - whole).max() / np.abs(weights).max()
    assert error < 4 * np.finfo(np.float32).eps
