"""What computes the rows of a matrix product in its kernel, over awkward extents, against onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import dvm_graph
from dvm_graph.options import FusionLimits
from tests.end_to_end.reference import session
from tests.tolerances import assert_close

Array = np.ndarray[Any, Any]

ALWAYS = FusionLimits(weigh_resident=False)
K = 37
EXTENTS = ((1, 1), (2, 1), (1, 13), (3, 14), (2, 29), (1, 127), (2, 65), (0, 5), (2, 0))
"""Batch, rows."""

ROWS = {
    "element-wise": "z = Sigmoid(x) s = Mul(x, z) a = Mul(s, y)",
    "broadcast": "a = Add(x, scale)",
    "layer_norm": "a = LayerNormalization<axis = -1, epsilon = 1e-5>(x, scale, shift)",
    "rms_norm": """
        two = Mul(x, x) mean = ReduceMean(two, axes) root = Sqrt(mean)
        normal = Div(x, root) a = Mul(normal, scale)""",
    "softmax": "a = Softmax<axis = -1>(x)",
}


def _weights(*shape: int) -> Array:
    """Small enough that the terms of a second product stay near 1, as the table of tolerances takes them to be."""
    random = np.random.default_rng(len(shape) + sum(shape))
    return (random.standard_normal(shape) / 4).astype(np.float32)


def rows_model(body: str, n: int, after: str = "c = Identity(p)") -> ModelProto:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[b, m, {K}] x, float[b, m, {K}] y) => (float[b, m, width] c)
    <int64[1] axes = {{-1}}> {{ {body} p = MatMul(a, w) {after} }}""")
    constants = {
        "w": _weights(K, n),
        "v": _weights(n, 19),
        "square": _weights(K, K),
        "scale": _weights(K),
        "shift": _weights(K),
    }
    for name, data in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    return model


def window_model(channels: int, n: int, stride: int, after: str = "c = Identity(p)") -> ModelProto:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
    g (float[b, {channels}, h, w] x) => (float[b, width, oh, ow] c)
    <float zero = {{0}}, float six = {{6}}> {{
        d = Conv<group = {channels}, kernel_shape = [3, 3], pads = [1, 1, 1, 1],
                 strides = [{stride}, {stride}]>(x, taps)
        a = Clip(d, zero, six) p = Conv<kernel_shape = [1, 1]>(a, weights) {after}
    }}""")
    constants = {
        "taps": _weights(channels, 1, 3, 3),
        "weights": _weights(n, channels, 1, 1),
        "more": _weights(48, n, 1, 1),
    }
    for name, data in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    return model


def kernels(model: ModelProto) -> dvm_graph.Model:
    return dvm_graph.optimize(model, dvm_graph.Options(limits=ALWAYS))


def feeds() -> Iterator[dict[str, Array]]:
    random = np.random.default_rng(0)
    for batch, rows in EXTENTS:
        x, y = random.standard_normal((2, batch, rows, K)).astype(np.float32)
        yield {"x": x, "y": y}


def check(
    compiled: dvm_graph.Model, model: ModelProto, inputs: dict[str, Array], terms: int
) -> None:
    expected = session(model).run(None, inputs)
    for mine, theirs in zip(compiled.run(inputs), expected, strict=True):
        assert_close(mine, theirs, reduction_length=terms)
    assert compiled.statistics.fallbacks == 0


@pytest.mark.parametrize("n", [1, 33, 200])
@pytest.mark.parametrize("rows", ROWS)
def test_rows_are_computed_in_the_kernel_of_their_product(rows: str, n: int) -> None:
    model = rows_model(ROWS[rows], n)
    compiled = kernels(model)
    assert compiled.report().kernels == 1
    for inputs in feeds():
        check(compiled, model, inputs, K)


@pytest.mark.parametrize("rows", ROWS)
def test_rows_of_the_first_of_two_products(rows: str) -> None:
    model = rows_model(ROWS[rows], 45, "q = Tanh(p) c = MatMul(q, v)")
    compiled = kernels(model)
    assert compiled.report().kernels == 1
    for inputs in feeds():
        check(compiled, model, inputs, K + 45)


@pytest.mark.parametrize(("channels", "n", "stride"), [(8, 3, 1), (33, 70, 1), (16, 5, 2)])
@pytest.mark.parametrize("second", [False, True])
def test_a_depth_wise_convolution_in_the_kernel_of_its_projection(
    channels: int, n: int, stride: int, second: bool
) -> None:
    after = "q = Relu(p) c = Conv<kernel_shape = [1, 1]>(q, more)" if second else "c = Identity(p)"
    model = window_model(channels, n, stride, after)
    compiled = kernels(model)
    random = np.random.default_rng(0)
    for batch, height, width in ((1, 1, 1), (2, 7, 5), (1, 13, 17), (3, 14, 14), (0, 3, 3)):
        x = random.standard_normal((batch, channels, height, width)).astype(np.float32)
        check(compiled, model, {"x": x}, 9 + channels + (n if second else 0))
    made = [
        {operator.op for operator in kernel.operators} for kernel in compiled.report().subgraphs
    ]
    (product,) = [operators for operators in made if "matmul" in operators]
    assert "depthwise" in product


@pytest.mark.parametrize(
    "windows",
    [
        "p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x)",
        "p = Conv<group = 8, pads = [1, 1, 1, 1]>(x, k)",
    ],
)
@pytest.mark.parametrize("turned", ["q = Identity(p)", "q = Transpose<perm = [0, 1, 3, 2]>(p)"])
def test_windows_are_computed_for_all_channels_of_a_pixel(windows: str, turned: str) -> None:
    """Not one channel at a time, for a product that contracts rows or columns of images."""
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, 8, h, h] x, float[8, 1, 3, 3] k, float[h, 16] w) => (float[n, 8, h, 16] c) {{
        {windows}
        {turned}
        c = MatMul(q, w)
    }}""")
    compiled = dvm_graph.optimize(proto, strict=True)
    for kernel in compiled.report().subgraphs:
        operators = {operator.op for operator in kernel.operators}
        assert "matmul" not in operators or not operators & {"pool_max", "depthwise"}
    random = np.random.default_rng(0)
    feeds = {"x": (2, 8, 7, 7), "k": (8, 1, 3, 3), "w": (7, 16)}
    arrays = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in feeds.items()
    }
    check(compiled, proto, arrays, 63)


def test_rows_that_others_read_are_computed_once() -> None:
    model = rows_model(ROWS["layer_norm"], 33, "q = MatMul(a, w) s = Softmax(q) c = Add(p, s)")
    model.graph.node[-3].input[1] = "u"
    model.graph.initializer.append(numpy_helper.from_array(_weights(K, 33) + 1, "u"))
    compiled = kernels(model)
    reasons = [decision.reason for decision in compiled.report().decisions]
    assert any("others use it too" in reason for reason in reasons)
    assert compiled.report().kernels > 1


@pytest.mark.parametrize("body", [ROWS["layer_norm"], "h = MatMul(x, square) a = Tanh(h)"])
def test_rows_that_the_vendor_library_reads_are_in_memory(body: str) -> None:
    model = rows_model(body, 33, "c = Identity(p) t, j = TopK(a, four)")
    model.graph.initializer.append(numpy_helper.from_array(np.array([4], np.int64), "four"))
    top = helper.make_tensor_value_info("t", TensorProto.FLOAT, ["b", "m", 4])
    model.graph.output.append(top)
    model.graph.node[-1].name = "top"
    compiled = dvm_graph.optimize(model, dvm_graph.Options(limits=ALWAYS, vendor_nodes={"top"}))
    assert compiled.report().vendor_operators
    assert compiled.report().kernels == 2
    for inputs in feeds():
        check(compiled, model, inputs, K)


def test_columns_are_no_rows() -> None:
    model = rows_model("a = Softmax<axis = 1>(x)", 33)
    compiled = kernels(model)
    reasons = [decision.reason for decision in compiled.report().decisions]
    assert any("whole rows" in reason for reason in reasons)
    assert compiled.report().kernels == 2
    for inputs in feeds():  # rows across memory may be left to a fallback
        (mine,), (theirs,) = compiled.run(inputs), session(model).run(None, inputs)
        assert_close(mine, theirs, reduction_length=K)


def test_rows_that_are_looked_up() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
    g (int64[b, m] ids) => (float[b, m, 33] c) { a = Gather(table, ids) c = MatMul(a, w) }""")
    for name, data in {"table": _weights(101, K), "w": _weights(K, 33)}.items():
        model.graph.initializer.append(numpy_helper.from_array(data, name))
    compiled = kernels(model)
    assert compiled.report().kernels == 1
    random = np.random.default_rng(0)
    for extents in EXTENTS:
        check(compiled, model, {"ids": random.integers(-101, 101, extents)}, K)


def test_windows_far_from_the_cores_are_computed_apart() -> None:
    """Where B passes through the caches for each block of rows, images would be fetched anew."""
    narrow, wide = window_model(64, 16, 1), window_model(640, 512, 1)
    target = dvm_graph.Options(cores=2, local_bytes=768 << 10)  # whatever machine this is
    for model, channels, apart in ((narrow, 64, False), (wide, 640, True)):
        compiled = dvm_graph.optimize(model, target)
        x = np.random.default_rng(0).standard_normal((1, channels, 28, 28)).astype(np.float32)
        (expected,) = session(model).run(None, {"x": x})
        (actual,) = compiled.run({"x": x})
        assert_close(actual, expected, reduction_length=9 + channels)
        assert (compiled.statistics.fallbacks > 0) == apart
