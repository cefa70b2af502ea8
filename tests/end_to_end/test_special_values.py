"""Values and extents at the ends of what there is, against float64 and onnxruntime: magnitudes that
multiply small errors, infinities, NaN, integers at the ends of their type, extents of 0 and 1."""

from __future__ import annotations

import contextlib
import itertools
import math
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import dvm_graph
from dvm_graph import _core
from dvm_graph.errors import DvmError
from dvm_graph.runtime.vendor import FAILURES
from tests.end_to_end.reference import Array, assert_all_close, session
from tests.tolerances import assert_close

NAN, INF = math.nan, math.inf
LEVELS = _core.simd_levels()
MAGNITUDES = [
    *(1e-45, 1e-40, 1.2e-38, 1e-30, 1e-10, 1e-7, 1e-4, 0.01, 0.3, 0.5, 1, 1.5, 2.5, 3, 3.5, 3.8, 3.9),
    *(4, 5, 6, 8, 8.9, 9.1, 10, 17, 20, 50, 87, 88, 89, 90, 103, 104, 105, 110, 300, 1e4, 1e6, 1e8),
    *(1e12, 1e20, 1e30, 3.4028235e38, INF, 0.0),
]  # fmt: skip
FAR = np.array([*MAGNITUDES, *(-m for m in MAGNITUDES), NAN], np.float32)


def node_model(
    op: str,
    feeds: Mapping[str, Array],
    attrs: Mapping[str, Any] | None = None,
    constants: Mapping[str, Array] | None = None,
    outputs: int = 1,
    opset: int = 22,
) -> onnx.ModelProto:
    """A model of one node whose inputs have dims of their own; constants follow them."""
    constants = constants or {}
    results = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op, [*feeds, *constants], results, name="node", **(attrs or {}))
    graph = helper.make_graph(
        [node],
        "special",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim
            )
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", opset)])


def assert_as_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Array], terms: int = 1) -> None:
    """The same results; what onnxruntime refuses may run here, or be an error of ours."""
    try:
        expected = session(model).run(None, feeds)
    except FAILURES:
        with contextlib.suppress(DvmError):
            dvm_graph.optimize(model).run(feeds)
        return
    for fuse in (True, False):
        actual = dvm_graph.optimize(model, fuse=fuse).run(feeds)
        assert_all_close(actual, expected, reduction_length=terms)


# -- activations far from 0

Function = Callable[[Array], Array]


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def tail(x: Array, alpha: float = 1.0) -> Array:
    return np.where(x < 0, alpha * np.expm1(x), x)


erf, erfc = np.vectorize(math.erf), np.vectorize(math.erfc)
ROOT = math.sqrt(0.5)
ACTIVATIONS: list[tuple[str, dict[str, Any], Function]] = [
    ("Erf", {}, erf),
    ("Tanh", {}, np.tanh),
    ("Sigmoid", {}, sigmoid),
    ("Gelu", {}, lambda x: x * (0.5 * erfc(-x * ROOT))),
    ("Gelu", {"approximate": "tanh"},
     lambda x: x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ("Swish", {}, lambda x: x * sigmoid(x)),
    ("Swish", {"alpha": 1.75}, lambda x: x * sigmoid(1.75 * x)),
    ("Mish", {}, lambda x: x * np.tanh(softplus(x))),
    ("Softplus", {}, softplus),
    ("Softsign", {}, lambda x: x / (1 + np.abs(x))),
    ("Elu", {}, tail),
    ("Celu", {}, tail),
    ("Celu", {"alpha": 0.5}, lambda x: np.where(x < 0, 0.5 * np.expm1(x / 0.5), x)),
    ("Selu", {"alpha": 1.5, "gamma": 1.25}, lambda x: 1.25 * tail(x, 1.5)),
    ("HardSwish", {}, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    ("HardSigmoid", {"alpha": 0.25}, lambda x: np.clip(0.25 * x + 0.5, 0, 1)),
    ("LeakyRelu", {"alpha": 0.25}, lambda x: np.where(x < 0, 0.25 * x, x)),
    ("LeakyRelu", {"alpha": 1.5}, lambda x: np.where(x < 0, 1.5 * x, x)),
    ("LeakyRelu", {"alpha": -0.5}, lambda x: np.where(x < 0, -0.5 * x, x)),
    ("LeakyRelu", {"alpha": 0.0}, lambda x: np.where(x < 0, 0.0 * x, x)),
    ("ThresholdedRelu", {}, lambda x: np.where(x > 1, x, 0)),
    ("Shrink", {"lambd": 2.0, "bias": 1.0},
     lambda x: np.where(x < -2, x + 1, np.where(x > 2, x - 1, 0))),
    ("Relu", {}, lambda x: np.maximum(x, 0)),
    ("Round", {}, np.rint),
    ("Tan", {}, np.tan),
    ("Asin", {}, np.arcsin),
    ("Acos", {}, np.arccos),
    ("Atan", {}, np.arctan),
    ("Sinh", {}, np.sinh),
    ("Cosh", {}, np.cosh),
    ("Asinh", {}, np.arcsinh),
    ("Acosh", {}, np.arccosh),
    ("Atanh", {}, np.arctanh),
]  # fmt: skip


@pytest.mark.parametrize(
    "op, attrs, exact", ACTIVATIONS, ids=lambda value: "" if callable(value) else str(value)
)
def test_activations_far_from_zero(op: str, attrs: dict[str, Any], exact: Function) -> None:
    model = node_model(op, {"x": FAR}, attrs, opset=24 if op == "Swish" else 22)
    with np.errstate(all="ignore"):
        wanted = exact(FAR.astype(np.float64)).astype(np.float32)
    for simd in LEVELS:
        compiled = dvm_graph.optimize(model, simd=simd)
        (y,) = compiled.run({"x": FAR})
        assert_close(y, wanted)
        # Alone, one beside another, and as rows: the same in every group of instructions.
        for x in (FAR[:1], np.repeat(FAR, 7)):
            assert_close(
                compiled.run({"x": x})[0], wanted.repeat(len(x) // len(FAR) or 1)[: len(x)]
            )


@pytest.mark.parametrize("simd", LEVELS)
def test_bounded_functions_reach_their_bounds_and_stay_inside(simd: str) -> None:
    """Around the limits every float: what multiplies the difference to 1 may be large."""
    text = """<ir_version: 9, opset_import: ["" : 20]> g (float[n] x)
        => (float[n] e, float[n] t) { e = Erf(x) t = Tanh(x) }"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text), simd=simd)
    for low, high, index in ((3.75, 4.1, 0), (8.75, 10.1, 1)):
        first, last = (int(np.float32(end).view(np.int32)) for end in (low, high))
        x = np.arange(first, last, dtype=np.int32).view(np.float32)
        for sign in (1, -1):
            y = model.run({"x": sign * x})[index]
            assert np.abs(y).max() == 1
            assert (y[x >= math.floor(high)] == sign).all()


# -- reductions and normalisations

ROWS = np.array(
    [
        [1, 2, 3, 4], [-INF, 1, 2, 3], [-INF] * 4, [INF, 1, 2, 3], [INF, INF, 0, 1], [NAN, 1, 2, 3],
        [INF, -INF, 0, 1], [3e38, 3e38, -3e38, 0], [-3e38] * 4, [0, 0, -0.0, 0], [1e-40, 2e-40, 0, 0],
        [1e4, -1e4, 88, 104], [NAN, NAN, -INF, INF],
    ], np.float32,
)  # fmt: skip


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_of_rows_that_are_not_finite(op: str) -> None:
    assert_as_onnxruntime(node_model(op, {"x": ROWS}, {"axis": 1}), {"x": ROWS})


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_nan_is_not_the_hardmax(dtype: str, axis: int) -> None:
    """It is no winner, but keeps others from it where it comes first."""
    rows = [[1, NAN, 3, 2], [NAN, 3, 1, 3], [-INF, NAN, -INF, NAN], [NAN] * 4, [0, 2, 2, NAN]]
    x = np.array(rows, dtype)
    expected = np.zeros((5, 4), dtype)
    expected[(0, 2, 4), (2, 0, 1)] = 1
    x, expected = (x.T, expected.T) if axis == 0 else (x, expected)
    x = np.ascontiguousarray(x)
    for level in LEVELS:
        model = dvm_graph.optimize(node_model("Hardmax", {"x": x}, {"axis": axis}), simd=level)
        np.testing.assert_array_equal(model.run({"x": x})[0], expected)


@pytest.mark.parametrize(
    "op", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "SumSquare", "LogSumExp"]
)
def test_reductions_of_rows_that_are_not_finite(op: str) -> None:
    rows = ROWS
    if op in ("Sum", "Mean") and platform.machine() not in ("x86_64", "AMD64"):
        # Whether that of 3e38 overflows hangs on the order of terms, which is another one in onnxruntime there.
        rows = ROWS[~(ROWS == 3e38).any(axis=1)]
    model = node_model(f"Reduce{op}", {"x": rows}, constants={"axes": np.array([1])})
    assert_as_onnxruntime(model, {"x": rows}, terms=4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Prod", "L2", "LogSum", "LogSumExp"])
def test_reductions_of_nothing(op: str, dtype: str) -> None:
    for shape, axis in itertools.product(((0, 3), (3, 0), (0, 0)), (0, 1)):
        x = np.zeros(shape, dtype)
        model = node_model(f"Reduce{op}", {"x": x}, constants={"axes": np.array([axis])})
        assert_as_onnxruntime(model, {"x": x})


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_means_of_integers_whose_sum_does_not_fit(dtype: str) -> None:
    most = np.iinfo(dtype).max // 2
    x = np.array([[most, most, most, most], [-most, -most, -most, -most], [7, 0, 0, 0]], dtype)
    model = node_model("ReduceMean", {"x": x}, constants={"axes": np.array([1])})
    assert_as_onnxruntime(model, {"x": x})


def test_products_of_integers_wrap() -> None:
    """As numpy's do. onnxruntime multiplies in floating point and stops at the type's end."""
    x = np.full((2, 40), 7, np.int32)
    model = node_model("ReduceProd", {"x": x}, {"keepdims": 0}, {"axes": np.array([1])})
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, x.prod(1, dtype=np.int32))


@pytest.mark.parametrize("op", ["LayerNormalization", "InstanceNormalization"])
def test_normalisations_of_large_means(op: str) -> None:
    """Against float64: the mean is taken off before squares are added."""
    x = (np.random.default_rng(0).standard_normal((3, 4, 64)) + 1e4).astype(np.float32)
    size = x.shape[1] if op == "InstanceNormalization" else x.shape[-1]
    constants = {"g": np.ones(size, np.float32), "b": np.zeros(size, np.float32)}
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    (y,) = dvm_graph.optimize(node_model(op, {"x": x}, constants=constants)).run({"x": x})
    # The error of the mean, half a unit in its last place, over a deviation of 1.
    assert np.abs(y - wanted).max() < 2 * np.spacing(np.float32(1e4))


def test_the_mean_of_a_half_layer_norm_is_float32() -> None:
    x = (np.arange(12) % 7 - 3).astype(np.float16).reshape(3, 4)
    model = node_model(
        "LayerNormalization", {"x": x}, constants={"g": np.ones(4, np.float16)}, outputs=2
    )
    assert_as_onnxruntime(model, {"x": x}, terms=4)
    assert [y.dtype for y in dvm_graph.optimize(model).run({"x": x})] == [np.float16, np.float32]


# -- positions of extremes


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions_of_extremes_among_nan(op: str, last: int, axis: int) -> None:
    draw = np.random.default_rng(5)
    attrs = {"axis": axis, "select_last_index": last}
    model = dvm_graph.optimize(node_model(op, {"x": ROWS}, attrs))
    reference = session(node_model(op, {"x": ROWS}, attrs))
    for n, often in itertools.product((1, 3, 17, 40), (0.1, 0.6, 1)):
        x = draw.choice([-2, 0, 1, 3, INF, -INF], (6, n)).astype(np.float32)
        x[draw.random(x.shape) < often] = NAN
        (y,) = model.run({"x": x})
        np.testing.assert_array_equal(y, reference.run(None, {"x": x})[0])
        assert y.min() >= 0 and y.max() < x.shape[axis]


@pytest.mark.parametrize("simd", LEVELS)
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_positions_along_axes_of_known_extents(op: str, last: int, axis: int, simd: str) -> None:
    """Such are 32 bits wide until one is chosen."""
    draw = np.random.default_rng(6)
    for shape in ((37, 9), (8, 300), (3, 70_000)):
        x = draw.integers(-9, 9, shape).astype(np.float32)
        x[draw.random(shape) < 0.1] = NAN
        x[:, 0] = x[0] = 0
        proto = node_model(op, {"x": x}, {"axis": axis, "select_last_index": last})
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = shape[axis]
        (y,) = dvm_graph.optimize(proto, simd=simd).run({"x": x})
        numbers = np.where(np.isnan(x), -INF if op == "ArgMax" else INF, x)
        numbers = np.flip(numbers, axis) if last else numbers
        chosen = numbers.argmax(axis) if op == "ArgMax" else numbers.argmin(axis)
        expected = shape[axis] - 1 - chosen if last else chosen
        np.testing.assert_array_equal(y.squeeze(axis), expected)
        assert y.dtype == np.int64


def test_positions_of_extremes_of_nothing() -> None:
    model = dvm_graph.optimize(node_model("ArgMax", {"x": ROWS}, {"axis": 0, "keepdims": 0}))
    with pytest.raises(DvmError, match="elements to choose from"):
        model.run({"x": np.zeros((0, 3), np.float32)})
    assert model.run({"x": np.zeros((0, 0), np.float32)})[0].shape == (0,)
    assert model.run({"x": ROWS})[0].shape == (4,)


# -- extents of 0 and 1, and bounds far outside


def test_zeros_of_a_target_that_are_dims_copy() -> None:
    """0 in a target copies, though it is known to be 0 only in the run."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "order"], ["target"]),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "copies",
        [helper.make_tensor_value_info("x", 1, ["s", "a", "b", "c"])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.array([0, 3, 1, 2]), "order")],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    compiled, reference = dvm_graph.optimize(model), session(model)
    for shape in itertools.product((0, 2), (0, 3), (0, 1), (0, 4)):
        x = np.zeros(shape, np.float32)
        try:
            expected = reference.run(None, {"x": x})[0]
        except FAILURES:
            with pytest.raises(DvmError):
                compiled.run({"x": x})
            continue
        assert compiled.run({"x": x})[0].shape == expected.shape


def test_merged_dims_of_which_two_are_empty_are_refused_and_not_wrong() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]> g (float[b, h, w] x) => (float[b, m] y) {
        b = Shape<start = 0, end = 1>(x) hw = Shape<start = 1>(x) m = ReduceProd(hw)
        target = Concat<axis = 0>(b, m) y = Reshape(x, target) }"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text))
    for shape, wanted in (((2, 3, 4), (2, 12)), ((0, 3, 4), (0, 12)), ((2, 0, 0), (2, 0))):
        assert model.run({"x": np.zeros(shape, np.float32)})[0].shape == wanted
    with pytest.raises(DvmError, match="two dims are empty"):
        model.run({"x": np.zeros((0, 3, 0), np.float32)})  # the standard copies: (0, 3)


@pytest.mark.parametrize(
    ("target", "shapes"),
    [
        ("less", [(9, 14), (1, 3), (1, 4), (1, 0), (9, 5), (1, 1)]),
        ("less, two", [(8, 4), (8, 1), (8, 6), (3, 4), (1, 1)]),
        ("two, less", [(8, 4), (1, 6), (7, 6)]),
    ],
)
def test_dims_of_a_target_that_come_out_as_minus_one_take_the_rest(
    target: str, shapes: Sequence[tuple[int, int]]
) -> None:
    text = f"""<ir_version: 9, opset_import: ["" : 20]> g (float[a, b] x) => (y)
        <int64[2] far = {{7, 2}}, int64[1] two = {{2}}> {{
            s = Shape(x) less = Sub(s, far) given = Concat<axis = 0>({target}) y = Reshape(x, given) }}"""
    model = onnx.parser.parse_model(text)
    compiled, reference = dvm_graph.optimize(model), session(model)
    for shape in shapes:
        x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        try:
            expected = reference.run(None, {"x": x})[0]
        except FAILURES:
            with pytest.raises(DvmError):
                compiled.run({"x": x})
            continue
        np.testing.assert_array_equal(compiled.run({"x": x})[0], expected)


@pytest.mark.parametrize("attrs, opset", [({}, 11), ({}, 17), ({}, 18), ({"num_outputs": 4}, 18)])
def test_parts_are_equal_or_the_last_is_smaller(attrs: dict[str, Any], opset: int) -> None:
    nodes = [helper.make_node("Split", ["x"], ["a", "b", "c", "d"], **attrs)]
    known = range(10) if attrs or opset < 18 else ()  # else onnxruntime refuses to infer shapes
    for extents in ["n", *known]:
        inputs = [helper.make_tensor_value_info("x", 1, [extents])]
        outputs = [helper.make_tensor_value_info(name, 1, None) for name in "abcd"]
        graph = helper.make_graph(nodes, "parts", inputs, outputs)
        opsets = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, ir_version=6, opset_imports=opsets)
        for n in range(10) if extents == "n" else [extents]:
            x = {"x": np.arange(n, dtype=np.float32)}
            try:
                expected = session(model).run(None, x)
            except FAILURES:
                with pytest.raises(DvmError):
                    dvm_graph.optimize(model).run(x)
                continue
            for mine, theirs in zip(dvm_graph.optimize(model).run(x), expected, strict=True):
                np.testing.assert_array_equal(mine, theirs)


FAR_OUT = (-(2**63), -(2**31), -5, -1, 0, 1, 3, 2**31, 2**63 - 1)


@pytest.mark.parametrize("step", [1, -1, 2, -2, 2**62, -(2**63)])
def test_slices_to_the_ends_of_int64(step: int) -> None:
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    for start, end in itertools.product(FAR_OUT, FAR_OUT):
        bounds = {
            name: np.array([v]) for name, v in zip("seat", (start, end, 1, step), strict=True)
        }
        model = node_model("Slice", {"x": x}, constants=bounds, opset=18)
        expected = session(model).run(None, {"x": x})
        assert_all_close(dvm_graph.optimize(model, fuse=False).run({"x": x}), expected)


def test_slice_backwards_to_a_negated_dim() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "i"], ["g"]),
        helper.make_node("Neg", ["g"], ["e"]),
        helper.make_node("Slice", ["x", "b", "e", "a", "t"], ["y"]),
    ]
    constants = {"i": [0, 0], "b": [-(2**63), -(2**31)], "a": [-2, -1], "t": [1, -1]}
    graph = helper.make_graph(
        nodes,
        "negated",
        [helper.make_tensor_value_info("x", 1, [4, "n"])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.array(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    for n in (0, 1, 2, 4, 5, 9):
        assert_as_onnxruntime(model, {"x": np.ones((4, n), np.float32)})


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_of_extents_0_and_1(mode: str) -> None:
    amounts = (
        [1, 0, 0, 1],
        [0, 0, 0, 2],
        [-1, 0, 0, 0],
        [0, -1, 1, 0],
        [-1, 1, 1, -1],
        [0, -2, 0, 1],
    )
    for shape, pads in itertools.product(((0, 3), (3, 0), (1, 1), (3, 4)), amounts):
        x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        constants = {"pads": np.array(pads)}
        assert_as_onnxruntime(node_model("Pad", {"x": x}, {"mode": mode}, constants), {"x": x})


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_pads_that_repeat_what_is_not_there_are_refused(mode: str) -> None:
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
    g (float[n, m] x) => (float[n, p] y) <int64[2] pads = {{1, 0}}, int64[1] axes = {{1}}> {{
        y = Pad<mode = "{mode}">(x, pads, "", axes) }}"""
    model = onnx.parser.parse_model(text)
    compiled = dvm_graph.optimize(model, dvm_graph.Options(check=True))
    for shape in ((2, 3), (1, 2)):
        x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(
            compiled.run({"x": x})[0], session(model).run(None, {"x": x})[0]
        )
    nothing = {"x": np.ones((2, 0), np.float32)}
    with pytest.raises(FAILURES, match="Pad"):
        session(model).run(None, nothing)
    with pytest.raises(dvm_graph.ShapeError, match="pads repeat elements that are there"):
        compiled.run(nothing)


@pytest.mark.parametrize("reverse, exclusive", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cumulative_sums(reverse: int, exclusive: int) -> None:
    attrs = {"reverse": reverse, "exclusive": exclusive}
    most = np.iinfo(np.int32).max
    arrays: Sequence[Array] = [
        *(np.ones(shape, np.float32) for shape in ((0, 3), (3, 0), (1, 1), (3, 1))),
        np.array([[1, NAN, 3, INF, -INF]], np.float32),
        np.array([[most, most, -2, -most - 1, -1]], np.int32),
    ]
    for x, axis in itertools.product(arrays, (0, 1)):
        model = node_model("CumSum", {"x": x}, attrs, {"axis": np.array(axis)})
        assert_as_onnxruntime(model, {"x": x}, terms=5)


@pytest.mark.parametrize("op, outputs", [("NonZero", 1), ("TopK", 2), ("Unique", 4)])
def test_operators_whose_results_are_counted(op: str, outputs: int) -> None:
    for shape in ((), (0,), (5,), (0, 3), (1, 1), (3, 4)):
        if op == "TopK" and not shape:
            continue
        x = (np.arange(math.prod(shape)) % 3).astype(np.float32).reshape(shape)
        constants = {"k": np.array([shape[-1] // 2])} if op == "TopK" else {}
        model = node_model(op, {"x": x}, constants=constants, outputs=outputs)
        assert_as_onnxruntime(model, {"x": x})


# -- pools


@pytest.mark.parametrize("part", range(6))
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_drawn_pools_over_images_of_any_size(op: str, part: int) -> None:
    """Windows larger than the image, ceil_mode, dilations and pads.

    SAME_* is drawn without dilations and with strides within the kernel: the others are vendor
    operators.
    """
    draw = random.Random(part)
    for _ in range(12):
        rank = draw.choice((1, 2))
        kernel = [draw.choice((1, 2, 3, 4, 5, 7)) for _ in range(rank)]
        attrs: dict[str, Any] = {"kernel_shape": kernel, "ceil_mode": draw.choice((0, 0, 1))}
        attrs["strides"] = [draw.choice((1, 1, 2, 3, 4)) for _ in kernel]
        same = draw.random() < 0.2
        if same:
            attrs["auto_pad"] = draw.choice(("SAME_UPPER", "SAME_LOWER"))
            attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], kernel, strict=True)]
        else:
            attrs["dilations"] = [draw.choice((1, 1, 2, 3)) for _ in kernel]
            if draw.random() < 0.7:
                attrs["pads"] = [draw.randint(0, k - 1) for k in kernel * 2]
            else:
                attrs["auto_pad"] = "VALID"
        if op == "AveragePool":
            attrs["count_include_pad"] = draw.choice((0, 1))
        if op == "LpPool":
            attrs["p"] = draw.choice((1, 2, 3))
        shape = (draw.choice((1, 2)), 2, *(draw.choice((1, 1, 2, 3, 5, 8)) for _ in kernel))
        x = (np.random.default_rng(part).integers(1, 9, shape) / 4).astype(np.float32)
        model = node_model(op, {"x": x}, attrs)
        try:
            expected = session(model).run(None, {"x": x})[0]
        except FAILURES:
            continue
        # onnxruntime has the least number for the maximum of nothing.
        expected = np.where(expected == np.finfo(np.float32).min, -np.float32(INF), expected)
        (actual,) = dvm_graph.optimize(model, strict=True).run({"x": x})
        assert_close(actual, expected, reduction_length=math.prod(kernel))


def test_the_mean_over_a_pool_larger_than_the_image() -> None:
    text = """<ir_version: 9, opset_import: ["" : 20]> g (float[b, 2, h, w] x) => (float[b, 2, i, j] y) {
        p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(x) y = GlobalAveragePool(p) }"""
    model = onnx.parser.parse_model(text)
    for size in ((1, 1), (1, 5), (2, 1), (3, 3)):
        x = np.arange(2 * math.prod(size), dtype=np.float32).reshape(1, 2, *size) - 3
        assert_as_onnxruntime(model, {"x": x})
