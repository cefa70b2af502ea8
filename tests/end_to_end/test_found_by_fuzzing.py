"""Small models that random graphs once broke, kept so that they stay right."""

from __future__ import annotations

import warnings

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
from tests.end_to_end.test_special_values import node_model


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_vendor_operator_of_which_only_the_size_is_used(count: int) -> None:
    model = model_from_text(
        """g (float[n] x) => (float[m] y) {
            found = NonZero(x)
            size = Shape(found)
            axis = Constant<value_int = 1>()
            length = Gather(size, axis)
            zero = Constant<value_int = 0>()
            numbers = Range(zero, length, axis)
            y = Cast<to = 1>(numbers)
        }"""
    )
    x = np.array([1.0] * count + [0.0, 0.0], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, np.arange(count, dtype=np.float32))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("rows", [1000, 1 << 18, (1 << 20) + 1])
def test_a_copy_to_scattered_places_fits_local_memory(dtype: str, rows: int) -> None:
    """The tiles of a kernel that only loads and stores were taken to need no local memory."""
    text = f"pairs ({dtype}[n, 1] x) => ({dtype}[n, 2] y) {{ y = Concat<axis = 1>(x, x) }}"
    x = (np.arange(rows) % 100).reshape(rows, 1).astype(dtype)
    (y,) = dvm_graph.optimize(model_from_text(text)).run({"x": x})
    assert_same_bits([y], [np.concatenate([x, x], axis=1)])


FLAT = """flat (float[n, 6] x) => (float[4] y)
<int64[1] all = {-1}, int64[1] start = {1}, int64[1] stop = {5}, int64[1] axis = {0}> {
    columns = Transpose<perm = [1, 0]>(x)
    flat = Reshape(columns, all)
    part = Slice(flat, start, stop, axis)
    y = Tanh(part)
}"""


@pytest.mark.parametrize("disabled", [(), ("absorb_views",)])
def test_a_slice_of_a_view_that_strides_cannot_say(disabled: tuple[str, ...]) -> None:
    """The slice was fused with the reshape, and read a buffer that nobody had written."""
    model = dvm_graph.optimize(model_from_text(FLAT), disable_passes=frozenset(disabled))
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    (y,) = model.run({"x": x})
    np.testing.assert_allclose(y, np.tanh(x.T.reshape(-1)[1:5]), rtol=1e-6)


def test_zeros_of_both_signs_are_not_one_number() -> None:
    """A constant of 0 and -0 was taken for 0 throughout, and 1 over it for plus infinity."""
    model = model_from_text(
        "signs (float[n, 2] x) => (float[n, 2] y) <float[2] zeros = {0, -0.0}> { y = Div(x, zeros) }"
    )
    x = np.ones((3, 2), np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, np.broadcast_to([np.inf, -np.inf], (3, 2)))


@pytest.mark.parametrize(("k", "n"), [(0, 3), (3, 0), (0, 0)])
def test_a_constant_matrix_without_elements(k: int, n: int) -> None:
    """Its panels had no address, and were taken for missing."""
    model = model_from_text(
        f"empty (float[m, {k}] x) => (float[m, {n}] y) <float[{k}, {n}] w = {{}}> {{ y = MatMul(x, w) }}"
    )
    (y,) = dvm_graph.optimize(model).run({"x": np.ones((2, k), np.float32)})
    np.testing.assert_array_equal(y, np.zeros((2, n)))


@pytest.mark.parametrize("perm", [(0, 2, 1, 3), (0, 3, 1, 2), (2, 3, 1, 0)])
@pytest.mark.parametrize("shape", [(2, 3, 12, 8), (1, 3, 2, 64), (4, 3, 17, 70)])
def test_a_reduction_over_a_transposed_image(perm: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """An operation that was unrolled took its own parts for a reader to repeat itself for, without end."""
    model = model_from_text(
        f"""image (float[n, 3, h, w] x) => (float[a, b, c, d] y) <int64[3] axes = {{1, 2, 3}}> {{
            t = Transpose<perm = [{", ".join(map(str, perm))}]>(x)
            y = ReduceLogSumExp(t, axes)
        }}"""
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert_all_close([y], session(model).run(None, {"x": x}), x.size)


@pytest.mark.parametrize("alpha", [0.0, -0.0, -1.0])
def test_a_slope_that_nothing_can_be_divided_by(alpha: float) -> None:
    """`1 / alpha` was computed in Python, which raises where floating-point arithmetic goes on."""
    model = model_from_text(
        f"slope (float[n] x) => (float[n] y) {{ y = Celu<alpha = {alpha}>(x) }}"
    )
    x = np.array([-2, -1, 0, 1, 2, np.inf, np.nan], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert_all_close([y], session(model).run(None, {"x": x}))


@pytest.mark.parametrize("elements", [[], [0, 0], [-1, 2.5, 3], [4, 5], [-4, -5], [1e-30, 0]])
def test_quantisation_by_a_range_of_nothing(elements: list[float]) -> None:
    """The function of the standard divides by the range, which is 0."""
    model = model_from_text(
        """quantise (float[n] x) => (uint8[n] y, float scale, uint8 zero)
        { y, scale, zero = DynamicQuantizeLinear(x) }"""
    )
    x = np.array(elements, np.float32)
    assert_all_close(dvm_graph.optimize(model).run({"x": x}), session(model).run(None, {"x": x}))


def test_the_mask_of_an_old_dropout_has_the_type_of_its_operand() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 9]>
        drop (float16[n] x) => (float16[n] y, float16[n] mask) { y, mask = Dropout(x) }"""
    )
    x = np.ones(3, np.float16)
    y, mask = dvm_graph.optimize(model).run({"x": x})
    assert_same_bits([y], [x])
    assert mask.dtype == np.float16


def test_a_vendor_operator_whose_results_nobody_reads() -> None:
    """onnxruntime runs nothing of which no result is asked for."""
    model = model_from_text(
        "unread (float[n, n] x) => (int64 y) { d = Det(x) y = Size(d) }",
    )
    disabled = frozenset(("eliminate_dead",))
    (y,) = dvm_graph.optimize(model, disable_passes=disabled).run({"x": np.eye(3, dtype="f4")})
    assert y == 1


@pytest.mark.parametrize("text", ["a*b", "a+b", "-a", "a//2", "a*a", "a - a//2", "2*a + 1"])
def test_dims_of_inputs_from_which_nothing_can_be_solved(text: str) -> None:
    """Their symbols had no value, and every run failed; to onnxruntime such a text is a name."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        names (float["{text}", n] x, float["{text}", n] z) => (float["{text}", m] y)
        {{ s = Add(x, z) t = Transpose<perm = [1, 0]>(s) y = MatMul(s, t) }}"""
    )
    optimized = dvm_graph.optimize(model)
    for rows in (5, 1, 3):
        feeds = {name: np.ones((rows, 2), np.float32) for name in ("x", "z")}
        assert_all_close(optimized.run(feeds), session(model).run(None, feeds))


def test_a_dim_that_other_inputs_determine_is_no_name() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        names (float["a//2"] x, float[a] z) => (float[m] y) { y = Concat<axis = 0>(x, z) }"""
    )
    optimized = dvm_graph.optimize(model)
    ones = np.ones(9, np.float32)
    assert optimized.run({"x": ones[:4], "z": ones})[0].shape == (13,)
    assert optimized.run({"x": ones[:3], "z": ones})[0].shape == (12,)  # which contradicts the name


def test_the_contents_of_a_sum_of_nothing() -> None:
    """How long its rows are was left to numpy, which cannot tell where there are none."""
    model = model_from_text(
        """empty () => (int64[a, b, c] y)
        <int64 two = {-2}, int64 one = {1}, int64[2] axes = {1, 2}>
        { r = Range(two, two, one) u = Unsqueeze(r, axes) y = MatMul(u, u) }"""
    )
    assert_same_bits(dvm_graph.optimize(model).run({}), session(model).run(None, {}))


@pytest.mark.parametrize("dtype", ["uint16", "int64", "float"])
def test_shrinking_by_numbers_that_the_type_does_not_hold(dtype: str) -> None:
    """The negative bound wrapped around in unsigned types, and half of a bias was cut away."""
    model = model_from_text(
        f"less ({dtype}[n] x) => ({dtype}[n] y) {{ y = Shrink<lambd = 1.0, bias = 0.5>(x) }}"
    )
    x = np.array([3, 0, 1, 2, 5]).astype("f4" if dtype == "float" else dtype)
    assert_same_bits(dvm_graph.optimize(model).run({"x": x}), session(model).run(None, {"x": x}))


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


@pytest.mark.parametrize("dims", ["a, b, c", "?, ?, ?", None])
@pytest.mark.parametrize(("shape", "axis"), [((0, 0, 7), 0), ((0, 0, 7), 1), ((0, 3, 0), 2)])
def test_the_place_of_the_least_along_an_axis_of_0_has_extent_1(
    dims: str | None, shape: tuple[int, ...], axis: int
) -> None:
    """The axis took the extent of the slice that says whether its first element is NaN: 0."""
    dims = dims or ", ".join(map(str, shape))
    x = np.zeros(shape, np.float32)
    model = model_from_text(
        f"least (float[{dims}] x) => (int64[?, ?, ?] y) {{ y = ArgMin<axis = {axis}>(x) }}"
    )
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert y.shape == tuple(1 if at == axis else extent for at, extent in enumerate(shape))


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


@pytest.mark.parametrize("fallbacks", ["if_needed", "always"])
@pytest.mark.parametrize("dims", ["a, b", "3, 0"])
def test_hardmax_over_nothing(dims: str, fallbacks: str) -> None:
    model = model_from_text(f"hard (float[{dims}] x) => (float[{dims}] y) {{ y = Hardmax(x) }}")
    compiled = dvm_graph.optimize(model, fallbacks=fallbacks)
    (y,) = compiled.run({"x": np.zeros((3, 0), np.float32)})
    assert y.shape == (3, 0)


def test_weights_that_are_not_finite_reach_only_their_own_outputs() -> None:
    """The zeros around a transposed convolution's image made NaN of them in its neighbours."""
    model = model_from_text(
        "up (float[n, 1, h, 1] x) => (float[n, 2, ?, 1] y)"
        " <float[1, 2, 2, 1] w = {-0.5, 0.25, -2, nan}> { y = ConvTranspose(x, w) }"
    )
    x = np.array([-3, -2], np.float32).reshape(1, 1, 2, 1)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y.ravel(), [1.5, 0.25, -0.5, 6, np.nan, np.nan])


def test_the_mean_loss_over_nothing_is_0() -> None:
    model = model_from_text(
        "loss (float[n, 4] x, int64[n] t) => (float y) { y = NegativeLogLikelihoodLoss(x, t) }"
    )
    (y,) = dvm_graph.optimize(model).run(
        {"x": np.zeros((0, 4), np.float32), "t": np.zeros(0, np.int64)}
    )
    assert y == 0


DISPUTED = {
    "same": (
        'y = ConvTranspose<auto_pad = "SAME_UPPER", output_padding = [1, 1], strides = [2, 3]>(x, w)',
        21,
    ),
    "dilated": (
        'y, at = MaxPool<auto_pad = "SAME_UPPER", dilations = [2, 2], kernel_shape = [1, 2]>(x)',
        21,
    ),
    "named": ("s = Cast<to = 8>(x) p = Slice(s, one, six, two, one) y = Cast<to = 1>(p)", 10),
}


@pytest.mark.parametrize("case", DISPUTED)
def test_extents_of_which_onnx_says_otherwise_than_onnxruntime(case: str) -> None:
    """Every run failed: what onnx infers was held to be true of vendor operators."""
    body, opset = DISPUTED[case]
    model = model_from_text(
        f"""g (float[a, 1, c, d] x) => (float[e, f, g, h] y)
        <float[1, 1, 1, 3] w = {{1, -2, 3}}, int64[1] one = {{1}}, int64[1] two = {{2}},
        int64[1] six = {{6}}> {{ {body} }}""",
        opset=opset,
    )
    compiled = dvm_graph.optimize(model)
    for shape in ((2, 1, 5, 4), (1, 1, 1, 1), (1, 1, 7, 2)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert_same_bits(compiled.run({"x": x}), session(model).run(None, {"x": x}))


def test_equal_numbers_have_no_variance() -> None:
    """Of them the standard's function makes 0, which it divides by a little; onnxruntime's kernel by 0."""
    model = model_from_text(
        "g (float[a, b, c, d] x) => (float[a, b, c, d] y) { y = MeanVarianceNormalization<axes = [0, 2, 3]>(x) }"
    )
    x = np.full((2, 3, 1, 4), 0.5, np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    assert_same_bits([y], [np.zeros_like(x)])


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
@pytest.mark.parametrize("rows", [2, 0])
def test_a_weighted_mean_loss_over_nothing_is_none(op: str, rows: int) -> None:
    """0 divided by the sum of weights, unlike the mean without weights, as in onnxruntime."""
    model = model_from_text(
        f"g (float[n, 3] x, int64[n] t) => (float y) <float[3] w = {{0, 0, 1}}> {{ y = {op}(x, t, w) }}"
    )
    feeds = {"x": np.ones((rows, 3), np.float32), "t": np.arange(rows)}
    (y,) = dvm_graph.optimize(model).run(feeds)
    assert np.isnan(y)
    if rows or op == "NegativeLogLikelihoodLoss":  # onnxruntime cannot reshape the empty scores
        assert np.isnan(session(model).run(None, feeds)[0])


@pytest.mark.parametrize("shape", [(2, 1, 3), (5, 7, 40), (64, 33, 129)])
@pytest.mark.parametrize("fuse", [True, False])
def test_what_a_store_computes_anew_is_not_written_over(shape: tuple[int, ...], fuse: bool) -> None:
    """The first result was written over the operand, and the sum computed from it again for the second."""
    model = model_from_text(
        """g (float16[a, b, c] x) => (float16[a, c, b] turned, float16[a, b, c] log)
        <float16[1] one = {15360}> {
            size = Abs(x)
            sum = Add(size, one)
            log = Log(sum)
            turned = Transpose<perm = [0, 2, 1]>(sum)
        }"""
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    turned, log = dvm_graph.optimize(model, fuse=fuse).run({"x": x})
    assert_same_bits([turned], [(abs(x) + np.float16(1)).transpose(0, 2, 1)])
    assert_all_close([log], [np.log(abs(x) + np.float16(1))])


def test_operands_given_as_none_behind_the_last() -> None:
    """onnxruntime's rewrites read the type of a LayerNormalization's bias that is none, and the process died."""
    model = model_from_text(
        """g (float[a, b, c] x, float[d] s) => (float[e, f] y) {
            u = Squeeze(x)
            y = LayerNormalization<epsilon = 0.0>(u, s, "")
        }"""
    )
    x, s = np.array([[[-3, -2], [4, 0]]], np.float32), np.array([2, -1], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x, "s": s})
    assert_all_close([y], [np.array([[-2, -1], [2, 1]], np.float32)], 2)


@pytest.mark.parametrize("turns", [0, 2])
def test_what_a_loop_collects_has_the_rank_of_its_rows_and_one_over_no_turns_too(
    turns: int,
) -> None:
    """onnxruntime makes up one axis for rows of which it does not know the rank."""
    model = model_from_text(
        """g (int64 n, float[k] x) => (float[a, b] y) {
            last, y = Loop(n, "", x) <body = turn (int64 i, bool go, float[] state)
                => (bool on, float[] next, float[] item) {
                on = Identity(go)
                next = Neg(state)
                item = Abs(state)
            }>
        }"""
    )
    feeds = {"n": np.array(turns), "x": np.array([-1, 2], np.float32)}
    (got,), (want,) = dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds)
    if turns:
        assert_same_bits([got], [want])
    assert got.ndim == 2 and got.size == want.size


@pytest.mark.parametrize("choice", [True, False])
def test_branches_of_which_one_declares_what_the_other_leaves_open(choice: bool) -> None:
    """onnx takes the declared extent for that of both branches."""
    model = model_from_text(
        """g (bool which, float[2] x, float[n] z) => (float[a, b] y) <int64[1] zero = {0}> {
            y = If (which) <
                then_branch = g1 () => (float[1, 2] p) { u = Unsqueeze(x, zero) p = Selu(u) },
                else_branch = g2 () => (float[1, k] q) { q = Unsqueeze(z, zero) }
            >
        }"""
    )
    compiled = dvm_graph.optimize(model)
    for n in (2, 3, 0):
        feeds = {
            "which": np.array(choice),
            "x": np.ones(2, np.float32),
            "z": np.ones(n, np.float32),
        }
        assert_same_bits(compiled.run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("dtype", ["float", "double", "float16"])
def test_statistics_of_a_normalisation_are_stashed_in_float32(dtype: str) -> None:
    """Where the model does not declare them, they had the type that they are computed in."""
    model = model_from_text(
        f"""g ({dtype}[n, 3] x, {dtype}[3] s) => ({dtype}[n, 3] y, float[n, 1] d) {{
            y, average, inverse = LayerNormalization(x, s)
            d = Add(average, inverse)
        }}"""
    )
    kind = {"float": np.float32, "double": np.float64, "float16": np.float16}[dtype]
    feeds = {"x": np.arange(6).reshape(2, 3).astype(kind), "s": np.ones(3, kind)}
    mine, theirs = dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds)
    assert [a.dtype for a in mine] == [a.dtype for a in theirs]
    assert_all_close(mine, theirs, 3)


def test_what_only_strings_tell_of_dims_is_not_counted_on() -> None:
    """Every run failed: nobody sees the shape of strings, so nothing tells what M*M is."""
    model = model_from_text(
        """g (float[n, "M*M"] x, string[M] names) => (float[n, a] y, float[M] z) {
            y = Relu(x)
            z = Cast<to = 1>(names)
        }"""
    )
    compiled = dvm_graph.optimize(model)
    for m in (0, 1, 3):
        feeds = {"x": np.ones((2, m * m), np.float32), "names": np.array(["1"] * m, object)}
        assert_same_bits(compiled.run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("op", ["DequantizeLinear", "QuantizeLinear"])
@pytest.mark.parametrize(("rank", "length"), [(1, 1), (2, 1), (2, 3)])
def test_scales_of_unknown_length_are_for_the_tensor_or_for_an_axis(
    op: str, rank: int, length: int
) -> None:
    """One in a vector was taken for that of an axis, which there need not be."""
    kind, result = ("int8", "float") if op == "DequantizeLinear" else ("float", "uint8")
    dims = ", ".join("nm"[:rank])
    model = model_from_text(
        f"g ({kind}[{dims}] x, float[k] s) => ({result}[{dims}] y) {{ y = {op}(x, s) }}"
    )
    x = np.arange(6).reshape((2, 3)[-rank:] if rank == 2 else (6,))
    feeds = {
        "x": x.astype(np.int8 if op == "DequantizeLinear" else np.float32),
        "s": np.array([0.5, 0.25, 2.0], np.float32)[:length],
    }
    expected = session(model).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(model).run(feeds), expected)


def test_a_loss_is_spread_into_a_product() -> None:
    """The product's operand was asked for its last axis, and a scalar has none."""
    model = model_from_text(
        """g (float[n, c, d] x, int64[n, d] t) => (float y) <int64[1] three = {3}> {
            loss = NegativeLogLikelihoodLoss<reduction = "sum">(x, t)
            row = Expand(loss, three)
            y = MatMul(row, row)
        }"""
    )
    feeds = {
        "x": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        "t": np.array([[0, 2], [1, 1]], np.int64),
    }
    expected = session(model).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(model).run(feeds), expected)


def test_a_constant_that_the_compiler_finds_is_seen_through_a_view() -> None:
    """Nothing is infinite for a test that looks for neither infinity; the view had axes the kernel lacks."""
    model = model_from_text(
        """g (float[n, m] x) => (bool[2, k, m] y) <int64[3] two = {2, 1, 1}, int64[6] pads = {0, 1, 0, 0, 0, 0}> {
            i = IsInf<detect_negative = 0, detect_positive = 0>(x)
            e = Expand(i, two)
            y = Pad<mode = "edge">(e, pads)
        }"""
    )
    x = np.array([[np.inf, 1.0, 2.0]], np.float32)
    (y,) = dvm_graph.optimize(model).run({"x": x})
    np.testing.assert_array_equal(y, np.zeros((2, 2, 3), bool))


@pytest.mark.parametrize("turns", [0, 2])
def test_what_a_loop_collects_over_no_turns_has_a_shape_of_its_own(turns: int) -> None:
    """Its dims were named after those of the input that the body reads."""
    model = model_from_text(
        """g (float[n, m] x, int64 k) => (float[a, b, c] z) {
            s = Shape(x)
            t, y = Loop(k, "", s) <body = g1 (int64 i, bool c, int64[2] u) => (bool d, int64[2] v, float[e, f] w) {
                w = Abs(x)
                d = Identity(c)
                v = Neg(u)
            }>
            z = Abs(y)
        }""",
        opset=17,
    )
    feeds = {"x": np.array([[-3.0, 2.0]], np.float32), "k": np.array(turns, np.int64)}
    expected = session(model).run(None, feeds)
    assert_same_bits(dvm_graph.optimize(model).run(feeds), expected)


@pytest.mark.parametrize("turns", [0, 2])
def test_a_body_that_reads_what_only_inference_knows_the_rank_of(turns: int) -> None:
    """onnxruntime does not know the rank of a sequence's tensor, and so made another one up."""
    model = model_from_text(
        """g (int32 x, int64 n) => (int32[a, b, c] z) <int64 first = {0}, int64[2] axes = {0, 1}> {
            s = SequenceConstruct(x, x)
            t = SequenceAt(s, first)
            u, y = Loop(n, "", t) <body = turn (int64 i, bool c, int32 v) => (bool d, int32 w, int32[] e) {
                e = Unsqueeze(t, axes)
                d = Identity(c)
                w = Neg(v)
            }>
            z = Abs(y)
        }""",
        opset=17,
    )
    feeds = {"x": np.array(-3, np.int32), "n": np.array(turns)}
    (z,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_array_equal(z, np.full((turns, 1, 1), 3, np.int32))


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(0, 0, 0, 3), (1, 1, 4, 3)])
def test_a_quantised_operand_spread_over_nothing_behind_a_vendor_operator(
    op: str, shape: tuple[int, ...]
) -> None:
    """onnxruntime ends the process there."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]> g (uint8[a, b, c, d] x, uint8[e, f, 1, 1] y) => (uint8[a, b, c, d] z)
        <float s = {{0.5}}, uint8 o = {{2}}> {{
            p, at = MaxPool<kernel_shape = [1, 1]>(x)
            z = com.microsoft.{op}(p, s, o, y, s, o, s, o)
        }}"""
    )
    x, y = np.full(shape, 9, np.uint8), np.full((*shape[:2], 1, 1), 5, np.uint8)
    (z,) = dvm_graph.optimize(model).run({"x": x, "y": y})
    number = {"QLinearAdd": 3.5 + 1.5, "QLinearMul": 3.5 * 1.5}[op]
    np.testing.assert_array_equal(z, np.full(shape, round(number / 0.5) + 2, np.uint8))


def test_one_scale_in_a_vector_has_no_axis() -> None:
    model = model_from_text(
        """g (float[1] s, int8[n] x) => (float[n] y) { y = DequantizeLinear(x, s) }""", opset=13
    )
    feeds = {"s": np.array([-3], np.float32), "x": np.array([2, -5], np.int8)}
    (y,) = dvm_graph.optimize(model).run(feeds)
    np.testing.assert_array_equal(y, np.array([-6, 15], np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("read_back", [False, True])
def test_what_no_integer_stands_for_is_quantised_to_an_end_of_the_type(
    dtype: str, read_back: bool
) -> None:
    """A NaN became an integer that the type does not hold, which a dequantisation in the same kernel read."""
    point = int(np.iinfo(dtype).max) - 3
    model = model_from_text(
        f"""g (float[n] x) => ({"float" if read_back else dtype}[n] y) <float s = {{2.25}}, {dtype} o = {{{point}}}> {{
            q = QuantizeLinear(x, s, o)
            y = {"DequantizeLinear(q, s, o)" if read_back else "Identity(q)"}
        }}""",
        opset=21,
    )
    numbers = [np.nan, np.inf, -np.inf, 1e38, -1e38, 3e9, -3e9, 5e9, -5e9, 1e-40, -0.0, 2.0]
    feeds = {"x": np.array(numbers, np.float32)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("weights", [1, 2, 5])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_weights_of_more_classes_than_there_are(op: str, weights: int) -> None:
    """They were summed over all classes where there is one score, which broadcast."""
    model = model_from_text(
        f"""g (float[n, c] x, int64[n] t, float[w] s) => (float[n] y) {{
            y = {op}<reduction = "none">(x, t, s)
        }}""",
        opset=15,
    )
    generator = np.random.default_rng(0)
    for classes in range(1, weights + 1):
        feeds = {
            "x": generator.standard_normal((4, classes)).astype(np.float32),
            "t": generator.integers(0, classes, 4),
            "s": generator.random(weights).astype(np.float32) + 1,
        }
        assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_batches_of_indices_that_are_not_those_of_the_data() -> None:
    """What lay at the coordinates was read, or what lay behind the data."""
    model = model_from_text(
        """g (float[b, n] x, int64[c, m, 1] at) => (float[c, m] y) {
            y = GatherND<batch_dims = 1>(x, at)
        }"""
    )
    mine, x = dvm_graph.optimize(model), np.arange(6, dtype=np.float32).reshape(2, 3)
    at = np.array([[[2], [0]], [[1], [1]]])
    np.testing.assert_array_equal(mine.run({"x": x, "at": at})[0], [[2, 0], [4, 4]])
    for batches in (1, 3):
        with pytest.raises(dvm_graph.ShapeError, match="batches"):
            mine.run({"x": x, "at": np.zeros((batches, 2, 1), np.int64)})
    np.testing.assert_array_equal(mine.run({"x": x, "at": at})[0], [[2, 0], [4, 4]])


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


@pytest.mark.parametrize("op", ["BatchNormalization", "InstanceNormalization"])
def test_parameters_of_channels_do_not_broadcast(op: str) -> None:
    """Names of extents that differ made the result's extent one that might be either, and kernels two."""
    names = "scale, shift, mean, variance" if op == "BatchNormalization" else "scale, shift"
    ports = ", ".join(f"float[c{i}] {name}" for i, name in enumerate(names.split(", ")))
    model = dvm_graph.optimize(
        model_from_text(
            f"g (float[n, c, w] x, {ports}) => (float[n, c, w] y) {{ y = {op}(x, {names}) }}"
        )
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    feeds = {"x": x} | {name: np.ones(3, np.float32) for name in names.split(", ")}
    centred = x - (0 if op == "BatchNormalization" else x.mean(2, keepdims=True))
    variance = 1 if op == "BatchNormalization" else x.var(2, keepdims=True)
    moved = centred - 1 if op == "BatchNormalization" else centred
    np.testing.assert_allclose(
        model.run(feeds)[0], moved / np.sqrt(variance + 1e-5) + 1, 1e-5, 1e-5
    )
    with pytest.raises(dvm_graph.ShapeError, match="channel"):
        model.run(feeds | {"shift": np.ones(1, np.float32)})


def test_a_body_rests_on_what_the_graph_around_it_assumes() -> None:
    """The numbers that a body's plan was tried with broke it: a product's extents, which are one outside."""
    model = model_from_text(
        """g (float[n, m] a, float[k, 1] x, float[l] start) => (float[n, 1] p, float[j] y)
        <int64[2] twice = {1, 2}> {
            wide = Tile(a, twice)
            p = MatMul(wide, x)
            y, rows = Scan <num_scan_inputs = 1, scan_input_axes = [1],
                body = add (float[i] state, float[k] row) => (float[i] next, float[i] out) {
                    next = Add(state, row)
                    out = Identity(next)
                }>(start, x)
        }"""
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        mine = dvm_graph.optimize(model)
    generator = np.random.default_rng(0)
    for m in (3, 1):
        feeds = {
            "a": generator.random((2, m), np.float32),
            "x": generator.random((2 * m, 1), np.float32),
            "start": generator.random(2 * m, np.float32),
        }
        assert_all_close(mine.run(feeds), session(model).run(None, feeds), 8)


@pytest.mark.parametrize("tail", ["y = Add(m, h)", "s = Relu(m) y = Sub(h, s)"])
def test_the_one_column_of_a_product_behind_the_next(tail: str) -> None:
    """Read at an extent of 1, it did not seem to vary along what the second product contracts."""
    model = model_from_text(
        f"""g (float[?, ?] x, float[k, 1] v, float[1, n] w) => (float[?, ?] y) {{
            p = MatMul(x, v)
            h = HardSigmoid(p)
            m = MatMul(p, w)
            {tail}
        }}"""
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        mine = dvm_graph.optimize(model, check=True)
    generator = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (3, 4, 5), (17, 2, 1), (40, 33, 70)):
        feeds = {
            name: generator.standard_normal(shape, np.float32)
            for name, shape in (("x", (m, k)), ("v", (k, 1)), ("w", (1, n)))
        }
        assert_all_close(mine.run(feeds), session(model).run(None, feeds), 8)


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


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceL2", "ReduceMean"])
@pytest.mark.parametrize("repeats", ["3, 3, 1, 3", "7, 1, 1, 1", "5, 2, 3, 1"])
def test_pieces_of_a_reduction_that_read_the_same(repeats: str, op: str, cores: int) -> None:
    """Each piece has a result to store, though what repeats along the axis was computed once for all of a core."""
    model = model_from_text(
        f"""g (float[1, a, n, 4] x) => (float[?, ?, ?, ?] y)
        <int64[4] repeats = {{{repeats}}}> {{ z = Tile(x, repeats) y = {op}(z) }}"""
    )
    mine, generator = dvm_graph.optimize(model, cores=cores), np.random.default_rng(0)
    count = np.prod([int(repeat) for repeat in repeats.split(",")])
    for n in (1, 1000, 2500, 4093, 30000):
        x = generator.random((1, 1, n, 4), np.float32)
        wide = x.astype(np.float64)
        expected = {
            "ReduceSum": count * wide.sum(),
            "ReduceMax": wide.max(),
            "ReduceL2": np.sqrt(count * np.square(wide).sum()),
            "ReduceMean": wide.mean(),
        }[op]
        np.testing.assert_allclose(mine.run({"x": x})[0].item(), expected, 1e-4)


def test_a_branch_that_is_not_taken_need_not_fit() -> None:
    """Of a rank that is known, extents that onnxruntime had not inferred were told it: it refused the branch."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 15]>
        g (float[s, m, ?, 1, 6] x, float[4, ?] z, bool which) => (float[?, ?, ?, ?, 4] y) {
            p = AveragePool<ceil_mode = 1, kernel_shape = [3, 2, 1], strides = [2, 2, 2]>(x)
            q = Identity(p)
            y = If (which) <
                then_branch = t () => (float[?, ?, ?, 2, 4] u) { u = MatMul(q, z) },
                else_branch = e () => (float[?, ?, ?, 2, 4] v) { v = Add(p, p) }
            >
        }"""
    )
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 1, 6)).astype(np.float32)
    feeds = {"x": x, "z": np.ones((4, 4), np.float32), "which": np.array(False)}
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


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


def test_extents_below_zero_of_what_a_reshape_stands_for() -> None:
    """Two of them multiplied gave a result elements that nothing wrote: the plan was refused over dims that no run has."""
    model = model_from_text(
        """g (int64[3] s, bool[e, f] u, float[a, b, c, d] x) => (bool[p, q, r] v, float[g, h] y) {
            v = Expand(u, s)
            z = AveragePool<kernel_shape = [3, 3]>(x)
            y = Flatten(z)
        }"""
    )
    mine, reference = dvm_graph.optimize(model, strict=True), session(model)
    generator = np.random.default_rng(3)
    for shape in ((1, 2, 2, 2), (2, 3, 5, 4), (3, 1, 3, 3)):
        feeds = {
            "s": np.array([2, 3, 1]),
            "u": generator.random((3, 4)) < 0.5,
            "x": generator.standard_normal(shape, np.float32),
        }
        assert_all_close(mine.run(feeds), reference.run(None, feeds))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [-1, 0, 0.5, 1, 1.5, 2, 3])
def test_powers_of_what_is_infinite_or_a_negative_zero(dtype: str, exponent: float) -> None:
    """A root gives -0 of -0, and no number of -infinity."""
    x = np.array([-np.inf, np.inf, -0.0, 0, -1, np.nan, 4, -4, 1], dtype)
    model = node_model("Pow", {"x": x}, {}, {"e": np.array(exponent, dtype)})
    (mine,) = dvm_graph.optimize(model).run({"x": x})
    (theirs,) = session(model).run(None, {"x": x})
    np.testing.assert_array_equal(mine, theirs)
    known = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.signbit(mine[known]), np.signbit(theirs[known]))


@pytest.mark.parametrize("before", range(1, 10))
def test_steps_of_a_recurrence_whose_operands_are_constants(before: int) -> None:
    """What the step computed of constants had names that those around it took again, by the count of nodes before."""
    chain = " ".join(f"n{at + 1} = Selu(n{at})" for at in range(before))
    generator = np.random.default_rng(0)
    shapes = {"x": (1, 2, 1), "w": (2, 9, 1), "r": (2, 9, 3), "b": (2, 18)}
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 14]>
        g (float[2] n0) => (float[1, 2, 2, 3] y, float[2] n{before}) {{
            {chain}
            y = GRU<direction = "bidirectional", hidden_size = 3, linear_before_reset = 1>(x, w, r, b)
        }}"""
    )
    for name, shape in shapes.items():
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    feeds = {"n0": np.ones(2, np.float32)}
    mine = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_all_close(mine, session(model).run(None, feeds))


@pytest.mark.parametrize("node", ["Pad<pads = [0, 0, 1, 1]>(e)", "Clip<max = 0.5>(f)"])
def test_numbers_for_a_tensor_whose_type_inference_does_not_tell(node: str) -> None:
    """They were of float32, and met float64."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 10]>
        g (double[n, m] x) => (y) {{ e = EyeLike(x) f = EyeLike<dtype = 1>(x) y = {node} }}"""
    )
    feeds = {"x": np.ones((2, 3))}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(("end", "other"), [(-(2**63), -4), (2**63 - 1, -4), (-(2**63), 2**63 - 1)])
def test_extents_chosen_among_the_ends_of_integers(end: int, other: int, rows: int) -> None:
    """Of which the difference is none."""
    model = model_from_text(
        f"""g (float[n, 1] x) => (int64[1] v, float[m, 1] y)
        <int64 first = {{0}}, int64 five = {{5}}, int64[1] a = {{{end}}}, int64[1] b = {{{other}}},
         int64[1] zero = {{0}}> {{
            s = Shape(x) n = Gather(s, first) few = Less(n, five)
            v = Where(few, a, b)
            y = Slice(x, zero, v, zero)
        }}"""
    )
    feeds = {"x": np.arange(rows, dtype=np.float32).reshape(rows, 1)}
    assert_same_bits(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


@pytest.mark.parametrize("number", [2.0, -0.0, float("nan")])
def test_products_of_one_number_share_its_rows(number: float) -> None:
    """Each read a node of its own, and the plan was refused."""
    model = model_from_text(
        f"""g (float[m] x, float[5, 7] u, float[5, 7] w) => (float[m, 7] y)
        <int64[1] five = {{5}}, float c = {{{number}}}> {{
            n = Shape(x) s = Concat<axis = 0>(n, five)
            a = Expand(c, s)
            p = MatMul(a, u) q = MatMul(a, w) y = Mul(p, q)
        }}"""
    )
    generator = np.random.default_rng(0)
    u, w = (generator.standard_normal((5, 7), np.float32) for _ in "uw")
    compiled = dvm_graph.optimize(model, strict=True)
    for rows in (1, 3, 0, 70):
        feeds = {"x": np.zeros(rows, np.float32), "u": u, "w": w}
        assert_all_close(compiled.run(feeds), session(model).run(None, feeds))


def test_an_extent_that_is_given_is_not_told_by_later_ones() -> None:
    """A Reshape behind made the product of its extents what stood for the one of its operand."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 8]>
        g (float[t, b, 1] x, float[2, 12, 1] w, float[2, 12, 4] r, float[n, 2, 1, 4] z, bool c, int64[4] s, float[k] v)
            => (float[i, j, k, l] y, float[] o, float[m] a) <int64[4] more = {0, -1, 1, 1}, float[1] three = {3}> {
            o = If (c) <
                else_branch = other () => (float[] p) { p = Add(z, z) },
                then_branch = one () => (float[e, 2, 1, 4] q) {
                    q = GRU<direction = "bidirectional", hidden_size = 4, linear_before_reset = 1>(x, w, r)
                }
            >
            e = Add(more, s) y = Reshape(v, e)
            a = Add(v, three)
        }"""
    )
    generator = np.random.default_rng(0)
    shapes = {"x": (1, 1, 1), "w": (2, 12, 1), "r": (2, 12, 4), "z": (1, 2, 1, 4), "v": (6,)}
    feeds = {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    feeds |= {"c": np.array(True), "s": np.array([2, 0, 0, 0])}
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))


def test_a_buffer_that_is_written_before_its_extents_are_known() -> None:
    """A concat's first part was stored in a result whose shape the host told behind it."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (float[k, 1, c] x, int64[1] r, int64[3] s) => (int64[1, 7, 2] y)
        <int64[1] less = {-1}, int64[1] n = {13}, int64[1] zero = {0}, int64[3] more = {0, -1, 2}> {
            a = Add(less, r) flat = Reshape(x, a) v, i = TopK(flat, n)
            p = Concat<axis = -1>(r, i) q = Unsqueeze(p, zero)
            t = Add(more, s) y = Reshape(q, t)
        }"""
    )
    x = np.random.default_rng(0).standard_normal((5, 1, 3), np.float32)
    feeds = {"x": x, "r": np.array([0]), "s": np.array([0, 0, 0])}
    mine = dvm_graph.optimize(model, strict=True).run(feeds)
    assert_same_bits(mine, session(model).run(None, feeds))


@pytest.mark.parametrize("extent", ["3", "n"])
def test_views_of_a_square_that_end_in_one_loop(extent: str) -> None:
    """The fuser bound an axis to itself by way of another, and followed it for ever."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[{extent}, {extent}, {extent}, {extent}] x, float[{extent}] w) => (float[{extent}, {extent}, 1, 1] y)
        <int64[4] rows = {{0, 0, 1, -1}}, int64[1] axis = {{2}}> {{
            p = Mul(x, w)
            a = Reshape(p, rows) l = ReduceMax(a, axis)
            t = Transpose<perm = [0, 1, 3, 2]>(p) b = Reshape(t, rows) r = ReduceMax(b, axis)
            y = Mul(l, r)
        }}"""
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    generator = np.random.default_rng(0)
    feeds = {
        "x": generator.standard_normal((3, 3, 3, 3), np.float32),
        "w": generator.standard_normal(3, np.float32),
    }
    assert_all_close(dvm_graph.optimize(model).run(feeds), session(model).run(None, feeds))
