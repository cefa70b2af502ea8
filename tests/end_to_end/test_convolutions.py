"""Convolutions as kernels: drawn configurations and awkward ones against onnxruntime."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import dvm_graph
from tests.end_to_end.reference import assert_all_close, session
from tests.end_to_end.windows import (
    attributes,
    check,
    drawn_axis,
    one_node,
    weights_of,
    with_weights,
)


@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions(seed: int) -> None:
    draw, generator = random.Random(seed), np.random.default_rng(seed)
    rank = draw.choice((3, 4, 4, 4, 5))
    extents = (1, 3, 7) if rank == 5 else (1, 3, 7, 16, 33)
    sizes = [tuple(draw.choice(extents) for _ in range(rank - 2)) for _ in range(2)]
    axes = [drawn_axis(draw, along) for along in zip(*sizes, strict=True)]
    groups = draw.choice((1, 1, 2, 3, 17))
    depthwise = draw.random() < 0.4
    inputs = 1 if depthwise else draw.choice((1, 2, 3, 4, 8))
    outputs = 1 if depthwise else draw.choice((1, 2, 4, 5, 8, 33))
    kernel = [axis["kernel"] for axis in axes]
    weights = [weights_of(generator, groups * outputs, inputs, *kernel)]
    if draw.random() < 0.5:
        weights.append(weights_of(generator, groups * outputs))
    attrs = attributes(axes) | {"group": groups}
    model = one_node("Conv", rank, groups * inputs, attrs, weights)
    shapes = [(batch, groups * inputs, *size) for batch, size in zip((1, 3), sizes, strict=True)]
    check(model, shapes, terms=inputs * int(np.prod(kernel)))


@pytest.mark.parametrize(
    ("outputs", "kernel", "attrs", "size"),
    [
        pytest.param(16, (3, 3), {"pads": [1, 1, 1, 1]}, (24, 56), id="padded"),
        pytest.param(16, (3, 3), {"pads": [0, 2, 1, 0]}, (27, 60), id="unevenly padded"),
        pytest.param(5, (5, 3), {"strides": [2, 1]}, (61, 70), id="strided rows"),
        pytest.param(
            24, (3, 5), {"strides": [1, 2], "pads": [1, 2, 1, 2]}, (32, 113), id="columns"
        ),
        pytest.param(
            16, (3, 3), {"dilations": [2, 1], "pads": [2, 1, 2, 1]}, (24, 56), id="far rows"
        ),
        pytest.param(
            8, (2, 3), {"dilations": [1, 3], "pads": [0, 3, 1, 3]}, (24, 64), id="far taps"
        ),
        pytest.param(3, (9, 9), {"pads": [4, 4, 4, 4]}, (20, 64), id="dot products"),
        pytest.param(16, (1, 7), {"pads": [0, 3, 0, 3]}, (1, 300), id="one row"),
        pytest.param(
            24, (3, 3), {"dilations": [18, 18], "pads": [18] * 4}, (28, 26), id="few taps inside"
        ),
        pytest.param(12, (3, 3), {"group": 2, "pads": [1, 1, 1, 1]}, (16, 30), id="groups"),
        pytest.param(16, (3, 3, 3), {"pads": [1] * 6}, (4, 12, 30), id="volumes"),
        pytest.param(
            16,
            (3, 2, 3),
            {"strides": [2, 1, 1], "dilations": [1, 1, 2], "pads": [0, 1, 2, 1, 0, 2]},
            (5, 9, 28),
            id="strided slices",
        ),
        pytest.param(2, (2, 3, 3), {"pads": [1] * 6}, (3, 8, 20), id="dot products of volumes"),
    ],
)
def test_windows_are_read_where_they_lie(
    outputs: int,
    kernel: tuple[int, ...],
    attrs: dict[str, Any],
    size: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tiles of whole output rows, without patches."""
    generator = np.random.default_rng(outputs)
    inputs = 72  # taps that are no neighbours are runs of k of their own: long enough
    each = inputs // attrs.get("group", 1)
    weights = [weights_of(generator, outputs, each, *kernel), weights_of(generator, outputs)]
    model = one_node("Conv", 2 + len(size), inputs, attrs, weights)
    shapes, terms = [(2, inputs, *size), (1, inputs, *size)], each * int(np.prod(kernel))
    check(model, shapes, terms)
    check(model, shapes, terms, winograd=False)
    dims = {"batch": 2, **dict(zip(("depth", "height", "width")[-len(size) :], size, strict=True))}
    monkeypatch.setenv("DVM_MACHINE", "zen4")  # others may pack patches
    listings = "".join(map(str, dvm_graph.optimize(model, winograd=False).listings(dims)))
    assert "m_matmul_windows_f32" in listings


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("inputs", "outputs", "kernel", "attrs"),
    [
        pytest.param(1, 2, (65, 1), {"pads": [32, 0, 32, 0]}, id="tall, few results"),
        pytest.param(1, 24, (33, 1), {"pads": [40, 2, 3, 0]}, id="tall, beyond the image"),
        pytest.param(1, 9, (5, 1), {"strides": [3, 1]}, id="strided rows"),
        pytest.param(1, 16, (3, 5), {"dilations": [2, 4], "pads": [2, 8, 2, 8]}, id="far taps"),
        pytest.param(1, 16, (7, 3), {"strides": [1, 2], "pads": [9, 1, 0, 5]}, id="columns"),
        pytest.param(2, 16, (33, 1), {"pads": [16, 1, 16, 0]}, id="tall, two channels"),
        pytest.param(2, 8, (1, 20), {"dilations": [1, 2], "pads": [0, 19, 0, 3]}, id="two apart"),
    ],
)
def test_short_pieces_of_patches(
    dtype: type, inputs: int, outputs: int, kernel: tuple[int, int], attrs: dict[str, Any]
) -> None:
    generator = np.random.default_rng(inputs)
    weights = weights_of(generator, outputs, inputs, *kernel).astype(dtype)
    model = one_node("Conv", 4, inputs, attrs, [weights], dtype)
    check(model, [(2, inputs, 40, 53), (1, inputs, 67, 41)], inputs * int(np.prod(kernel)))


def test_dot_products_of_short_runs_are_packed() -> None:
    """Each run of a window that is read where it lies would take a vector."""
    weights = weights_of(np.random.default_rng(0), 2, 1, 65, 1)
    model = dvm_graph.optimize(one_node("Conv", 4, 1, {"pads": [32, 0, 32, 0]}, [weights]))
    listings = model.listings({"batch": 1, "height": 40, "width": 53})
    assert "d_pack_patches" in "".join(map(str, listings))


def test_patches_of_values_that_are_not_finite() -> None:
    """Taps outside the image are left alone by what is no number inside it."""
    weights = weights_of(np.random.default_rng(0), 12, 1, 9, 1)
    proto = one_node("Conv", 4, 1, {"pads": [4, 0, 4, 0]}, [weights])
    x = np.random.default_rng(1).uniform(-1, 1, (1, 1, 30, 37)).astype(np.float32)
    x[0, 0, 3, 5], x[0, 0, 29, 36], x[0, 0, 0, 0] = np.nan, np.inf, -np.inf
    (got,) = dvm_graph.optimize(proto, strict=True).run({"x": x})
    assert_all_close([got], ReferenceEvaluator(proto).run(None, {"x": x}), reduction_length=9)


@pytest.mark.parametrize("pads", [[0, 0, 1, 2], [1, 0, 0, 0], [0, 2, 0, 0]])
def test_pads_around_single_taps(pads: list[int]) -> None:
    weights = weights_of(np.random.default_rng(0), 5, 3, 1, 1)
    check(one_node("Conv", 4, 3, {"pads": pads}, [weights]), [(2, 3, 5, 4)], terms=3)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(
    "attrs",
    [
        {"strides": [0, 0]},
        {"strides": [2]},
        {"dilations": [0, 1]},
        {"pads": [1, 1]},
        {"group": 0},
        {"group": -1},
        {"group": 4},
    ],
    ids=str,
)
def test_malformed_attributes(op: str, attrs: dict[str, Any]) -> None:
    weights = weights_of(np.random.default_rng(0), 3, 3, 2, 2)
    with pytest.raises(dvm_graph.DvmError):
        model = dvm_graph.optimize(one_node(op, 4, 3, attrs, [weights]))
        model.run({"x": np.ones((1, 3, 5, 5), np.float32)})


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 2), (2, 3)])
def test_automatic_pads(automatic: str, kernel: int, stride: int) -> None:
    attrs = {
        "auto_pad": automatic,
        "kernel_shape": [kernel, kernel],
        "strides": [stride, stride],
    }
    weights = weights_of(np.random.default_rng(0), 7, 3, kernel, kernel)
    shapes = [(1, 3, size, size + 1) for size in (5, 6, 7, 8, 12, 13)]
    check(one_node("Conv", 4, 3, attrs, [weights]), shapes, terms=75)
    if stride <= kernel:  # onnxruntime refuses others
        check(one_node("MaxPool", 4, 3, attrs), shapes)


@pytest.mark.parametrize("automatic", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("rank", "groups"), [(3, 1), (3, 4), (4, 1), (4, 4), (5, 1), (5, 4)])
def test_automatic_pads_of_strides_that_leave_out_more_than_one(
    automatic: str, rank: int, groups: int
) -> None:
    """onnxruntime shares out what lies behind the last window as it shares out pads."""
    for kernel, stride in itertools.product((1, 2, 3), (4, 5, 6, 9)):
        spatial = rank - 2
        kernels = [kernel, *[1, 2][: spatial - 1]]
        attrs = {
            "auto_pad": automatic,
            "kernel_shape": kernels,
            "strides": [stride, *[5, 1][: spatial - 1]],
            "group": groups,
        }
        weights = weights_of(np.random.default_rng(0), 8, 4 // groups, *kernels)
        model = one_node("Conv", rank, 4, attrs, [weights])
        shapes = [(1, 4, size, *[7, 3][: spatial - 1]) for size in range(1, 15)]
        check(model, shapes, terms=24)


def test_half_floats() -> None:
    dtype = np.float16
    generator = np.random.default_rng(0)
    weights = [
        weights_of(generator, 6, 2, 3, 3).astype(dtype),
        weights_of(generator, 6).astype(dtype),
    ]
    attrs = {"group": 2, "pads": [1, 1, 1, 1]}
    check(one_node("Conv", 4, 4, attrs, weights, dtype), [(2, 4, 9, 5)], terms=18)
    check(one_node("MaxPool", 4, 4, {"kernel_shape": [2, 2]}, (), dtype), [(2, 4, 9, 5)])


def test_double_floats() -> None:
    """Which onnxruntime has no convolution for."""
    generator = np.random.default_rng(0)
    weights = generator.uniform(-1, 1, (6, 2, 3, 3))
    attrs = {"group": 2, "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    model = one_node("Conv", 4, 4, attrs, [weights], np.float64)
    feeds = {"x": generator.uniform(-1, 1, (2, 4, 9, 5))}
    actual = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(actual, ReferenceEvaluator(model).run(None, feeds), reduction_length=18)


def test_empty_batches() -> None:
    weights = weights_of(np.random.default_rng(0), 4, 3, 3, 3)
    for model in (
        one_node("Conv", 4, 3, {"pads": [1, 1, 1, 1]}, [weights]),
        one_node("MaxPool", 4, 3, {"kernel_shape": [2, 2]}),
    ):
        (y,) = dvm_graph.optimize(model, strict=True).run({"x": np.zeros((0, 3, 8, 8), np.float32)})
        assert y.shape[:1] == (0,) and y.size == 0


def test_weights_that_are_not_constant() -> None:
    """Also through a view of the weights."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 4, h, w] x, float[6, 2, 3, 3] k, float[4, 1, 3, 3] d) => (float[n, c, i, j] y) {
        p = Conv<group = 4, pads = [1, 1, 1, 1]>(x, d)
        q = Relu(p)
        y = Conv<group = 2, strides = [2, 1]>(q, k)
    }"""
    proto = onnx.parser.parse_model(text)
    generator = np.random.default_rng(0)
    feeds = {
        "x": weights_of(generator, 2, 4, 11, 9),
        "k": weights_of(generator, 6, 2, 3, 3),
        "d": weights_of(generator, 4, 1, 3, 3),
    }
    model = dvm_graph.optimize(proto, strict=True)
    assert_all_close(model.run(feeds), session(proto).run(None, feeds), reduction_length=64)


BLOCK = """<ir_version: 10, opset_import: ["" : 21]>
g (float[n, 8, h, w] x, float[8, 8, 3, 3] k, float[8] b, float[8] deviation, float[24, 8, 1, 1] up,
   float[24, 1, 3, 3] d, float[2, 24, 1, 1] s, float[24, 2, 1, 1] t, float[8, 24, 1, 1] down)
=> (float[n, c, i, j] y) <float six = {6.0}, float none = {0.0}> {
    a0 = Conv<pads = [1, 1, 1, 1]>(x, k, b)
    a1 = BatchNormalization(a0, b, b, b, deviation)
    a2 = Relu(a1)
    b0 = Conv(a2, up)
    b1 = HardSwish(b0)
    b2 = Conv<group = 24, pads = [1, 1, 1, 1]>(b1, d)
    b3 = Clip(b2, none, six)
    s0 = GlobalAveragePool(b3)
    s1 = Conv(s0, s)
    s2 = Relu(s1)
    s3 = Conv(s2, t)
    s4 = HardSigmoid(s3)
    b4 = Mul(b3, s4)
    b5 = Conv(b4, down)
    c0 = Add(b5, a2)
    c1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(c0)
    c2 = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(c0)
    y = Concat<axis = 1>(c1, c2)
}"""


@pytest.mark.parametrize("fuse", [True, False])
def test_a_block_stays_channels_last(fuse: bool) -> None:
    """Batch normalisation, activations, squeeze and excite, residual, pools and concat between."""
    proto = with_weights(BLOCK)
    model = dvm_graph.optimize(proto, strict=True, fuse=fuse)
    reference = session(proto)
    generator = np.random.default_rng(3)
    for shape in ((1, 8, 12, 12), (3, 8, 7, 21), (2, 8, 2, 2)):
        feeds = {"x": weights_of(generator, *shape)}
        assert_all_close(model.run(feeds), reference.run(None, feeds), reduction_length=512)
    computing = ("v_", "m_matmul", "d_pool", "d_depthwise")
    listed = model.listings({"n": 1, "h": 12, "w": 12})
    copies = [kernel for kernel in listed if not any(word in kernel.text for word in computing)]
    if fuse:
        assert len(copies) == 1, "only the input is transposed, by a kernel of its own"


def test_one_core_equals_two() -> None:
    proto = with_weights(BLOCK)
    feeds = {"x": weights_of(np.random.default_rng(5), 2, 8, 31, 17)}
    one, two = (dvm_graph.optimize(proto, cores=cores).run(feeds) for cores in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "window",
    [
        "Conv<group = 5, pads = [1, 1, 1, 1]>(x, k)",
        "MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
    ],
)
def test_a_long_reduction_of_windows(window: str) -> None:
    """Done in pieces, for there are fewer channels than points that would keep the cores busy."""
    proto = with_weights(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 5, h, w] x, float[5, 1, 3, 3] k) => (float[n, 5, h, w] r, float[n, 5, 1, 1] s) {{
        y = {window}
        r = Tanh(y)
        s = GlobalAveragePool(r)
    }}""")
    model = dvm_graph.optimize(proto, strict=True)
    feeds = {"x": weights_of(np.random.default_rng(7), 1, 5, 131, 127)}
    listed = model.listings({"n": 1, "h": 131, "w": 127})
    windows = [kernel.text for kernel in listed if re.search("d_pool|d_depthwise", kernel.text)]
    assert any("workspace" in text for text in windows)
    assert_all_close(model.run(feeds), session(proto).run(None, feeds), reduction_length=131 * 127)


def test_norms_over_images_pass_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a channel lie across a channels-last image: separate kernels pass over it instead of one that gathers."""
    monkeypatch.setenv("DVM_MACHINE", "zen4")  # elsewhere another size may be the one from which on
    generator = np.random.default_rng(3)
    first, last = weights_of(generator, 24, 3, 1, 1), weights_of(generator, 24, 24, 1, 1)
    scale, shift = weights_of(generator, 24), weights_of(generator, 24)
    constants = {"w": first, "scale": scale, "shift": shift, "v": last}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"]),
            helper.make_node("InstanceNormalization", ["a", "scale", "shift"], ["b"], name="norm"),
            helper.make_node("Relu", ["b"], ["c"]),
            helper.make_node("Conv", ["c", "v"], ["y"]),
        ],
        "g",
        [
            helper.make_tensor_value_info(
                "x", onnx.TensorProto.FLOAT, ["batch", 3, "height", "width"]
            )
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 22)])
    check(model, [(2, 3, 90, 110), (1, 3, 130, 90), (3, 3, 4, 5)], 90 * 110)
    compiled = dvm_graph.optimize(model)
    large, small = (
        "".join(map(str, compiled.listings({"batch": 1, "height": extent, "width": extent})))
        for extent in (100, 4)
    )
    assert "in place of" in large and "in place of" not in small
