"""Small models that random graphs once broke: onnxruntime's own operators, recurrence, and sizes that follow a ratio."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest

import dvm_graph
from tests.end_to_end.reference import Array, assert_all_close, session


def _drawn(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _check(graph: str, **feeds: Array) -> None:
    text = f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g {graph}'
    model = onnx.parser.parse_model(text)
    expected = session(model).run(None, feeds)
    assert_all_close(dvm_graph.optimize(model).run(feeds), expected, 64)


@pytest.mark.parametrize("op", ["RNN", "GRU", "LSTM"])
def test_constant_lengths_of_both_directions(op: str) -> None:
    rows = {"RNN": 3, "GRU": 9, "LSTM": 12}[op]
    _check(
        f"""(float[t, 2, 4] x, float[2, {rows}, 4] w, float[2, {rows}, 3] r) => (float[?, ?, ?, ?] y)
        <int32[2] n = {{2, 1}}> {{ y = {op}<direction = "bidirectional", hidden_size = 3>(x, w, r, "", n) }}""",
        x=_drawn(3, 2, 4),
        w=_drawn(2, rows, 4),
        r=_drawn(2, rows, 3),
    )


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "float", "double"])
@pytest.mark.parametrize("ends", [(1, 5), (3, 3), (4, 1)])
def test_a_range_whose_step_is_left_out(dtype: str, ends: tuple[int, int]) -> None:
    kind = {"float": np.float32, "double": np.float64}.get(dtype) or np.dtype(dtype)
    start, limit = (np.array(end, kind) for end in ends)
    known = ", ".join(f"{dtype} {name} = {{{end}}}" for name, end in zip("ab", ends, strict=True))
    for inputs, constants, feeds in (
        (f"{dtype} a, {dtype} b", "", {"a": start, "b": limit}),
        (f"{dtype} unused", f"<{known}>", {"unused": start}),
    ):
        _check(
            f"({inputs}) => ({dtype}[?] y) {constants} {{ y = com.microsoft.Range(a, b) }}", **feeds
        )


def test_a_bias_of_queries_keys_and_values_of_any_extent() -> None:
    _check(
        """(float[b, s, 16] q, float[b, t, 16] k, float[b, t, 8] v, float[n] bias) => (float[?, ?, ?] y)
        { y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, bias) }""",
        q=_drawn(2, 3, 16),
        k=_drawn(2, 5, 16),
        v=_drawn(2, 5, 8),
        bias=_drawn(40),
    )


@pytest.mark.parametrize("positions", [2, 3, 5])
def test_values_of_as_many_positions_as_keys(positions: int) -> None:
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
    g (float[b, 3, 32] q, float[b, 3, 16] k, float[b, t, 16] v, int32[b] n) => (float[?, ?, ?] y)
    <int32 total = {3}> {
        y, p, r = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>
            (q, k, v, "", "", n, total)
    }"""
    proto = onnx.parser.parse_model(text)
    model = dvm_graph.optimize(proto)
    feeds = {"q": _drawn(2, 3, 32), "k": _drawn(2, 3, 16), "v": _drawn(2, positions, 16)}
    feeds["n"] = np.array([2, 2], np.int32)
    if positions == 3:
        assert_all_close(model.run(feeds), session(proto).run(None, feeds), 64)
        return
    with pytest.raises(dvm_graph.DvmError):
        model.run(feeds)


def test_values_for_other_batches_than_queries() -> None:
    """onnxruntime reads what is not there."""
    text = """<ir_version: 11, opset_import: ["" : 24]>
    g (float[b, 2, s, 4] q, float[c, 2, t, 4] k, float[d, 2, t, 4] v) => (float[?, ?, ?, ?] y) {
        y = Attention(q, k, v)
    }"""
    model = dvm_graph.optimize(onnx.parser.parse_model(text))
    with pytest.raises(dvm_graph.DvmError):
        model.run({"q": _drawn(2, 2, 3, 4), "k": _drawn(2, 2, 5, 4), "v": _drawn(1, 2, 5, 4)})


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
@pytest.mark.parametrize("axes", ["-3", "1", "-1, -2", "2, 3"])
def test_sizes_that_keep_a_ratio(policy: str, axes: str) -> None:
    sizes = ", ".join("86"[: axes.count(",") + 1])
    count = axes.count(",") + 1
    _check(
        f"""(float[1, 1, 1, d] x) => (float[?, ?, ?, ?] y, float[?, ?, ?, ?] z) <int64[{count}] n = {{{sizes}}}> {{
            y = Resize<axes = [{axes}], keep_aspect_ratio_policy = "{policy}">(x, "", "", n)
            z = Neg(y)
        }}""",
        x=_drawn(1, 1, 1, 4),
    )


@pytest.mark.parametrize("way", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("stride", [3, 4, 5, 7])
def test_integer_convolutions_whose_strides_leave_elements_out(way: str, stride: int) -> None:
    for extent in range(1, 13):
        x = np.random.default_rng(extent).integers(0, 9, (1, 4, extent, 9)).astype(np.uint8)
        _check(
            f"""(uint8[1, 4, h, w] x, uint8 z) => (int32[?, ?, ?, ?] y)
            <uint8[2, 4, 1, 2] k = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}}> {{
                y = ConvInteger<auto_pad = "{way}", strides = [{stride}, 5], kernel_shape = [1, 2]>(x, k, z)
            }}""",
            x=x,
            z=np.array(3, np.uint8),
        )


def test_weights_of_attention_that_is_left_to_onnxruntime() -> None:
    text = """<ir_version: 11, opset_import: ["" : 24]>
    g (float[1, 4, 4] q, float[1, t, 4] k, float[1, t, 4] v) => (float[?, ?, ?] y, float[?, ?, ?, ?] w) {
        [a] y, "", "", w = Attention<q_num_heads = 1, kv_num_heads = 1, qk_matmul_output_mode = 1>(q, k, v)
    }"""
    model = onnx.parser.parse_model(text)
    feeds = {"q": _drawn(1, 4, 4), "k": _drawn(1, 3, 4), "v": _drawn(1, 3, 4)}
    mine = dvm_graph.optimize(model, dvm_graph.Options(vendor_nodes=frozenset("a")))
    assert_all_close(mine.run(feeds), session(model).run(None, feeds), 64)


@pytest.mark.parametrize(
    "tail", ["z = Identity (w)", "z = Relu (w)", "r = com.microsoft.Gelu (w) z = Softmax (r)"]
)
def test_a_result_whose_type_no_operand_tells(tail: str) -> None:
    """The model declares it, of its own results and of those that another operator of onnxruntime's reads."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", dvm_graph.RescueWarning)
        _check(
            f"""(float[b, s, 16] q, float[b, t, 16] k) => (float[?, ?, ?] y, float[?, ?, ?, ?] z)
            <float[?, ?, ?, ?] w> {{
                y, "", "", w = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, k)
                {tail}
            }}""",
            q=_drawn(1, 4, 16),
            k=_drawn(1, 5, 16),
        )


@pytest.mark.parametrize("ceil", [0, 1])
def test_means_of_levels_count_taps_beyond_padded_images(ceil: int) -> None:
    _check(
        f"""(int8[n, 1, h, w] x) => (int8[?, ?, ?, ?] y)
        <float xs = {{1.0}}, int8 xz = {{5}}, float ys = {{0.5}}> {{
        y = com.microsoft.QLinearAveragePool<ceil_mode = {ceil}, count_include_pad = 1, kernel_shape = [3, 3],
            pads = [0, 2, 2, 1], strides = [1, 2]>(x, xs, xz, ys) }}""",
        x=np.array([[[[-1]]]], np.int8),
    )


def test_a_past_of_levels_of_any_extent() -> None:
    _check(
        """(uint8[2, s, 4] x, float[12] b, float[p, 2, 1, k, 4] past) => (float[?, ?, ?] y, float[?, ?, ?, ?, ?] z)
        <uint8[4, 12] w = {3, 5, 6, 1, 2, 0, 7, 0, 6, 0, 5, 7, 8, 2, 0, 7, 0, 1, 0, 7, 3, 6, 0, 3, 6, 4, 7, 8, 1, 3, 7, 4, 5, 8, 8, 2,
            4, 2, 0, 6, 3, 1, 1, 6, 0, 0, 6, 6}, float xs = {0.1}, float ws = {0.05}> {
        y, z = com.microsoft.QAttention<num_heads = 1>(x, w, b, xs, ws, "", "", "", past) }""",
        x=np.array([[[0, 0, 2, 1]], [[3, 4, 1, 1]]], np.uint8),
        b=_drawn(12),
        past=_drawn(2, 2, 1, 3, 4),
    )


def test_values_of_a_bias_of_any_extent() -> None:
    """With more keys than there are, which only onnxruntime knows what to do with."""
    weights = ", ".join(["0.5"] * 36)
    _check(
        f"""(float[n, s, 6] x, float[k] b, int32[n] m) => (float[?, ?, ?] y)
        <float[6, 6] w = {{{weights}}}> {{ y = com.microsoft.Attention<num_heads = 2>(x, w, b, m) }}""",
        x=_drawn(1, 1, 6),
        b=_drawn(6),
        m=np.array([2], np.int32),
    )
