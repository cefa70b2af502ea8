"""Which differences from onnxruntime are excused, and which are findings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import dvm_graph
from tests.fuzz.case import Case, case_of
from tests.fuzz.check import Excused, Finding, Kind, Skipped, check, compare
from tests.fuzz.judge import (
    MARGIN,
    Excuse,
    Reference,
    difference,
    explained,
    refused_as_documented,
)

SMALL = """g (float[N] x) => (float[N] y) { e = Tanh(x) y = Mul(e, e) }"""


NAN, INF = np.nan, np.inf


def test_a_wrong_answer_is_not_explained_by_rounding() -> None:
    x = np.linspace(-2, 2, 7).astype(np.float32)
    case = case_of(SMALL, x=x)
    assert check(case) is None
    (right,) = Reference(case.model).run(case.feeds[0])
    assert not explained(case, case.feeds[0], [right * np.float32(1.001)], [right])


def test_the_reference_answers_alike_again_and_leaves_what_it_is_fed() -> None:
    """onnxruntime's norms in training write over the statistics that they are given."""
    case = case_of(
        """g (float[3, 2, 4] x, float[2] s) => (float[3, 2, 4] y, float[2] mean, float[2] variance)
        <float[2] before = {1, 2}>
        { y, moved, v = BatchNormalization <training_mode = 1> (x, s, s, before, s)
          mean = Neg(moved) variance = Neg(v) }""",
        x=np.arange(24, dtype=np.float32).reshape(3, 2, 4),
        s=np.array([3, 4], np.float32),
    )
    reference = Reference(case.model)
    first, again = (reference.run(case.feeds[0]) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(first, again, strict=True))
    assert case.feeds[0]["s"].tolist() == [3, 4]


def test_a_difference_of_large_numbers_is_explained_by_rounding() -> None:
    case = case_of(
        """g (float[N] x) => (float[N] y) <float a = {1e6}>
        { p = Add(x, a) y = Sub(p, a) }""",
        x=np.array([0.1, 0.2], np.float32),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    wrong = right + np.float32(0.06)
    assert explained(case, case.feeds[0], [wrong], [right])
    assert not explained(case, case.feeds[0], [right + np.float32(100)], [right])


@pytest.mark.parametrize(("x", "excused"), [([3.85, 8.0], True), ([8.0, 8.0], False)])
def test_the_order_of_neighbours_hangs_on_rounding_and_that_of_equals_does_not(
    x: list[float], excused: bool
) -> None:
    """The error function of 3.85 is 1 less half a unit in its last place."""
    case = case_of(
        """g (float[N] x) => (int64[1] y) <int64[1] k = {1}> { e = Erf(x) v, y = TopK(e, k) }""",
        x=np.array(x, np.float32),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    found = explained(case, case.feeds[0], [1 - right], [right])
    assert found is (Excuse.ROUNDING if excused else None)


def test_the_order_of_what_mirrored_numbers_give_hangs_on_rounding() -> None:
    """A symmetric window: of each pair either element may be the smaller one."""
    case = case_of(
        """g (int64 n) => (int64[1] y) <int64[1] k = {3}, int64[1] two = {2}, int64[1] end = {3}> {
            w = BlackmanWindow<periodic = 0>(n) v, order = TopK(w, k) y = Slice(order, two, end)
        }""",
        n=np.array(7),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    assert explained(case, case.feeds[0], [6 - right], [right])


def test_at_a_pole_any_large_number_is_as_good() -> None:
    """The tangent of what is nearly half of pi, half a unit from where others round it to."""
    case = case_of(
        "g (float[N] x, float[N] z) => (float[N] y) { p = Add(x, z) y = Tan(p) }",
        x=np.array([1.2490458, 1.0], np.float32),
        z=np.array([0.3217506, 0.5], np.float32),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    assert explained(case, case.feeds[0], [right * np.array([3000, 1], np.float32)], [right])
    wrong = right * np.array([1, -1], np.float32)
    assert explained(case, case.feeds[0], [wrong], [right]) is None


def test_sequences_are_compared_element_by_element() -> None:
    case = case_of(
        """g (float[N] x, float[M] z) => (seq(float) y) { t = Tanh(x) y = SequenceConstruct(t, z) }""",
        x=np.array([0.1, 0.2], np.float32),
        z=np.ones(3, np.float32),
    )
    assert check(case) is None
    ((first, second),) = right = Reference(case.model).run(case.feeds[0])
    assert compare(case, case.feeds[0], [[first * np.float32(1 + 1e-7), second]], right) is None
    for wrong in ([first, second + 1], [first], [second, first]):
        assert isinstance(compare(case, case.feeds[0], [wrong], right), str)


def test_what_onnxruntime_refuses_with_its_optimisations_may_be_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without them its inference does not see numbers that are no scalars; it sees them where they are folded."""
    mel = case_of(
        """g (float[1] low) => (float[?, ?] y) <int32 n = {4}, int64[1] one = {1}, float[1] high = {2}> {
            v = Reshape(n, one) y = MelWeightMatrix(v, n, v, low, high) }""",
        low=np.zeros(1, np.float32),
    )
    report = check(mel)
    assert isinstance(report, Excused)
    assert report.excuses == {Excuse.VENDOR}

    def refuse(*_: Any) -> None:
        raise dvm_graph.UnsupportedError("no reason")

    small = case_of(SMALL, x=np.ones(3, np.float32))
    monkeypatch.setattr(dvm_graph, "optimize", refuse)
    monkeypatch.setattr("tests.fuzz.check._device", lambda *_: None)
    report = check(small)
    assert isinstance(report, Finding)
    assert report.kind is Kind.REFUSED


@pytest.mark.parametrize("batch", [1, 3])
def test_what_is_documented_to_be_refused_may_be(batch: int) -> None:
    """A second operand with a larger batch, of which onnxruntime reads the first."""
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (bool c, float[b, 2, 4] x, float[d, 2, 4] s, float[4] w) => (float[e, 2, 4] y) {
            y = If(c) <
                then_branch = t () => (float[h, 2, 4] p) { p = com.microsoft.SkipLayerNormalization(x, s, w) },
                else_branch = o () => (float[k, 2, 4] q) { q = Neg(x) }
            >
        }"""
    feeds = {
        "c": np.array(True),
        "x": np.ones((1, 2, 4), np.float32),
        "s": np.ones((batch, 2, 4), np.float32),
        "w": np.ones(4, np.float32),
    }
    assert refused_as_documented(onnx.parser.parse_model(text), feeds) == (batch > 1)


def test_a_mean_along_axes_that_a_matrix_has_not_is_judged() -> None:
    text = "g (float[n, 8] x) => (float[n, 8] y) { y = MeanVarianceNormalization(x) }"
    case = case_of(text, x=np.arange(16, dtype=np.float32).reshape(2, 8))
    assert not refused_as_documented(case.model, case.feeds[0])


def test_extents_that_numpy_has_not_are_what_onnxruntime_does_not_run() -> None:
    text = f"""g (float[n] x) => (float[i, j] y) <int64[2] shape = {{{2**62}, 0}}> {{
        y = Reshape<allowzero = 1>(x, shape) }}"""
    case = case_of(text, x=np.zeros(0, np.float32))
    report = check(case)
    assert isinstance(report, Skipped)
    assert "too big" in report.reason


def test_infinity_times_what_the_order_of_a_sum_leaves_is_infinite_or_no_number() -> None:
    case = case_of(
        """g (float[N] x) => (float[N] y) <int64 axis = {0}, float w = {inf}> {
            s = CumSum(x, axis)
            y = Mul(s, w)
        }""",
        x=np.array([3, 1e-7, -3], np.float32),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    assert right[0] == INF
    assert np.isnan(right[2])
    other = np.array([*right[:2], -INF], np.float32)
    assert explained(case, case.feeds[0], [other], [right])
    assert (
        explained(case, case.feeds[0], [np.array([-INF, *right[1:]], np.float32)], [right]) is None
    )


DOCUMENTED = {
    "integers wrap": ("y = ReduceProd<keepdims = 0>(x)", np.full(3, 70000, np.int32)),
    "a power of 0": ("m = Neg(o) y = Pow(x, m)", np.array([0, 2, -1, 1], np.int32)),
    "NaN is no integer": ("q = Cast<to = 6>(x) y = Add(q, o)", np.array([NAN, 1.5, -7.5])),
    "NaN in a window": ("y = MaxPool<kernel_shape = [2]>(x)", np.array([[[1, NAN, 3, 2, 4]]])),
    "NaN and an extreme": (
        "y = ReduceMax<keepdims = 0>(x, one)",
        np.array([[1, NAN, 3], [1, 2, 3]]),
    ),
    "order of factors": (
        "y = ReduceProd<keepdims = 0>(x, one)",
        np.array([[1e-38, INF, 1e-38, 2], [1, 2, 3, 4]]),
    ),
    "equal numbers": ("y = MeanVarianceNormalization(x)", np.full((1, 1, 2, 2), 0.5)),
    "a product of zeros": (
        'n = Neg(x) e = Einsum<equation = "a,a->a">(x, n) y = Reciprocal(e)',
        np.array([0, 1.5, -2]),
    ),
    "a sum of zeros": (
        "e = ReduceSum<keepdims = 0>(x, one) y = Reciprocal(e)",
        np.array([[-0.0, -0.0], [-0.0, 2]]),
    ),
    "a mean of zeros": (
        "b, m = LayerNormalization(x, scales) y = Reciprocal(m)",
        np.array([[-0.0, -0.0], [-0.0, 2]]),
    ),
    "a division by 0": ("y = Celu<alpha = 0.0>(x)", np.array([-1.5, -0.5, 2.0])),
    "nearly 1 less 1": ("e = Selu(x) y = Reciprocal(e)", np.array([-5.9e-39, -0.0, 2.0])),
    "padding": (
        "y = Conv<pads = [1, 1]>(x, wild)",
        np.array([[[1, -2, 3, 4]]]),
    ),
    "a sliding sum": (
        "y = LRN<size = 1, alpha = 0.1>(x)",
        np.array([0.5, 353.9, 2.195, 0.5]).reshape(1, 4, 1, 1),
    ),
    "a sliding sum that overflows": (
        "s = LRN<size = 3, alpha = 0.1>(x) y = Round(s)",
        np.array([0.5, 2.0, 3e38, 353.9, -2.0, 0.5, -INF, NAN, 3.7, 6.0]).reshape(1, 10, 1, 1),
    ),
    "weight 0": (
        'y = Resize<mode = "linear">(x, none, scales)',
        np.array([[INF, 1], [2, 3], [4, 5]]),
    ),
}


@pytest.mark.parametrize("wrong", [INF, -50.0])
def test_of_one_number_less_its_mean_nothing_is_left(wrong: float) -> None:
    """onnxruntime divides 0 by 0."""
    case = case_of(
        "g (float[1, 1, 1, 1] x) => (float[1, 1, 1, 1] y) { y = MeanVarianceNormalization(x) }",
        x=np.full((1, 1, 1, 1), 0.5, np.float32),
    )
    theirs = Reference(case.model).run(case.feeds[0])
    assert np.isnan(theirs).all()
    zeros = np.zeros((1, 1, 1, 1), np.float32)
    assert explained(case, case.feeds[0], [zeros], theirs)
    assert explained(case, case.feeds[0], [zeros + np.float32(wrong)], theirs) is None


def test_the_order_of_many_neighbours_hangs_on_rounding_and_that_of_others_does_not() -> None:
    """Sums that are equal but for rounding, in every column; those of the last one are far apart."""
    rng = np.random.default_rng(3)
    x = np.repeat(rng.uniform(0.5, 1, (1, 3, 40)), 4, axis=0).astype(np.float32)
    x[:, 0, -1] = [1, 2, 3, 4]
    case = case_of(
        """g (float[4, 3, N] x) => (int64[4, N] y) <int64[1] k = {4}, int64[1] axis = {1}> {
            s = ReduceSum<keepdims = 0>(x, axis) v, y = TopK<axis = 0>(s, k)
        }""",
        x=x,
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    other = np.concatenate([right[::-1, :-1], right[:, -1:]], axis=1)
    assert explained(case, case.feeds[0], [other], [right]) is Excuse.ROUNDING
    assert explained(case, case.feeds[0], [right[::-1].copy()], [right]) is None


@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("product", ["MatMul(x, w)", "Gemm<transA = 1, transB = 1>(a, b)"])
def test_what_cancels_may_hang_on_the_order_of_a_sum(product: str, cancels: bool) -> None:
    """What the least of its terms is multiplied by: infinity, or 0 and no number."""
    case = case_of(
        f"""g (float[1, K] x, float[K, 1] w, float z) => (float[1, 1] y) {{
            a = Transpose(x) b = Transpose(w) p = {product} y = Mul(p, z)
        }}""",
        x=np.array([[-3, 3 if cancels else 2, 2**-126, 0]], np.float32),
        w=np.ones((4, 1), np.float32),
        z=np.array(INF, np.float32),
    )
    theirs = Reference(case.model).run(case.feeds[0])
    assert np.isinf(theirs).all()
    mine = [np.full((1, 1), np.nan, np.float32)]
    found = explained(case, case.feeds[0], mine, theirs)
    assert found is (Excuse.ROUNDING if cancels else None)


@pytest.mark.parametrize("batch", range(3))
def test_a_gate_of_no_number_may_be_taken_for_one(batch: int) -> None:
    """Of the batch that meets it."""
    case = case_of(
        """g (float[1, B, 2] x) => (float[1, 1, B, 1] y)
        <float[1, 1, 2] w = {1, -1}, float[1, 1, 1] r = {0.5}> { y = RNN<hidden_size = 1>(x, w, r) }""",
        x=np.array([[[INF, INF], [INF, 1], [1, 3]]], np.float32),
    )
    theirs = Reference(case.model).run(case.feeds[0])
    mine = np.nan_to_num(theirs[0])
    assert explained(case, case.feeds[0], [mine], theirs) is Excuse.DOCUMENTED
    mine[0, 0, batch] -= 0.5
    assert bool(explained(case, case.feeds[0], [mine], theirs)) is (batch == 0)


@pytest.mark.parametrize("unit", [0, 1])
def test_what_turns_of_a_recurrence_round_is_excused_next_to_a_step_and_nowhere_else(
    unit: int,
) -> None:
    """States of 1, which may be just above it, and of 0.1."""
    case = case_of(
        """g (float[N, 1, 1] x) => (float[N, 1, 1, 2] y)
        <float[1, 2, 1] w = {20, 0.1}, float[1, 2, 2] r = {0, 0, 0, 0}> {
            h = RNN<hidden_size = 2>(x, w, r) y = Ceil(h)
        }""",
        x=np.ones((6, 1, 1), np.float32),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    assert (right == 1).all()
    other = right.copy()
    other[..., unit] = 2
    found = explained(case, case.feeds[0], [other], [right])
    assert found is (None if unit else Excuse.DOCUMENTED)


@pytest.mark.parametrize(("at", "excused"), [(1, True), (0, False)])
def test_what_terms_of_a_fourier_transform_leave_is_excused_next_to_a_step(
    at: int, excused: bool
) -> None:
    """Results of -3, which may be just above it, and of -5.8."""
    case = case_of(
        """g (float[1, N, 2] x) => (float[1, N, 2] y) { f = DFT(x) y = Ceil(f) }""",
        x=np.array([[[-2.7, 3.3], [-0.7, -2.7], [-2.7, 0.3], [0.3, 0.3]]], np.float32),
    )
    (right,) = Reference(case.model).run(case.feeds[0])
    other = right.copy()
    other[0, at, 0] += 1
    found = explained(case, case.feeds[0], [other], [right])
    assert found is (Excuse.DOCUMENTED if excused else None)


@pytest.mark.parametrize("sign", [1, -1])
def test_zeros_of_either_sign_are_excused_where_all_terms_are_negative(sign: int) -> None:
    case = case_of(
        """g (float[N, 2] x) => (float[N] y) <int64[1] one = {1}> {
            s = ReduceMean<keepdims = 0>(x, one) y = Reciprocal(s) }""",
        x=np.array([[-0.0, 0.0], [-0.0, -0.0], [1.0, 1.0]], np.float32),
    )
    right = np.array([INF, sign * INF, 1], np.float32)
    theirs = Reference(case.model).run(case.feeds[0])
    assert difference(right, theirs[0], np.float32, 2) is None or explained(
        case, case.feeds[0], [right], theirs
    )
    wrong = np.array([-INF, sign * INF, 1], np.float32)
    assert explained(case, case.feeds[0], [wrong], theirs) is None


@pytest.mark.parametrize("what", DOCUMENTED)
def test_only_the_elements_that_a_documented_difference_reaches_are_excused(what: str) -> None:
    body, x = DOCUMENTED[what]
    dtype = "int32" if x.dtype == np.int32 else "float"
    x = x.astype(np.int32 if dtype == "int32" else np.float32)
    model = f"""g ({dtype}[{", ".join("abcd"[: x.ndim])}] x) => (y) <int64[1] one = {{1}},
        int32 o = {{1}}, float[2, 1, 3] wild = {{nan, 1, 1, 2, 3, 1}}, float[0] none = {{}},
        float[2] scales = {{1.5, 1}}> {{ {body} }}"""
    case = case_of(model, x=x)
    assert not isinstance(check(case), Finding)
    mine = list(dvm_graph.optimize(case.model).run({"x": x}))
    theirs = Reference(case.model).run({"x": x})
    if not np.array_equal(mine[0], theirs[0], equal_nan=True):
        assert explained(case, case.feeds[0], mine, theirs) in (Excuse.DOCUMENTED, Excuse.REFEREE)
    settled = np.argwhere(np.isfinite(theirs[0]) & (mine[0] == theirs[0]) & (mine[0] > -(2**30)))
    assert len(settled) or what in ("equal numbers", "integers wrap")
    for at in map(tuple, settled):
        wrong = mine[0].copy()
        wrong[at] += 1
        assert explained(case, case.feeds[0], [wrong], theirs) is None


def test_a_scaled_mean_is_added_to_scaled_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where onnx's evaluator does not run the rest of the model."""
    monkeypatch.setattr("tests.fuzz.judge.referees", lambda *_: ())
    x = np.array([[2, 1], [0, 1]], np.float32)
    case = case_of(
        """g (float[a, b] x) => (y) <float[2] steep = {inf, 1}, float[2] zeros = {0, 0}, float[2] ones = {1, 1}>
        { y = BatchNormalization(x, steep, zeros, ones, ones) }""",
        x=x,
    )
    theirs = Reference(case.model).run(case.feeds[0])
    right = np.array([[INF, 0], [-INF, 0]], np.float32)
    assert explained(case, case.feeds[0], [right], theirs) is Excuse.DOCUMENTED
    assert explained(case, case.feeds[0], [right + x], theirs) is None


def test_of_operands_without_axes_differences_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What numpy makes of them is no array, and onnxruntime takes nothing else."""
    monkeypatch.setattr("tests.fuzz.judge.referees", lambda *_: ())
    case = case_of(
        """g (float[a, b] x, float c) => (y) <float[1, 1] w = {-0.5}, int64[1] two = {2}>
        { p = Gemm<transA = 1>(x, w, c) u = Unsqueeze(p, two) y = GlobalMaxPool(u) }""",
        x=np.array([[2, INF, NAN]], np.float32),
        c=np.array(INF, np.float32),
    )
    theirs = Reference(case.model).run(case.feeds[0])
    right = np.array([INF, NAN, NAN], np.float32).reshape(3, 1, 1)
    assert explained(case, case.feeds[0], [right], theirs) is Excuse.DOCUMENTED
    assert explained(case, case.feeds[0], [right[::-1].copy()], theirs) is None


def test_far_above_0_a_softplus_is_the_number_itself() -> None:
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float16[n] x) => (float16[n] y) { y = Softplus(x) }"""
    case = Case(onnx.parser.parse_model(text), ({"x": np.array([5, 91, 91], np.float16)},))
    theirs = Reference(case.model).run(case.feeds[0])
    right = [theirs[0][0], 91, 91]
    assert explained(case, case.feeds[0], [np.array(right, np.float16)], theirs)
    assert explained(case, case.feeds[0], [np.array([*right[:2], 60], np.float16)], theirs) is None
    assert explained(case, case.feeds[0], [np.array([6, 91, 91], np.float16)], theirs) is None


def test_a_tangent_after_many_turns_hangs_on_how_its_operand_is_rounded() -> None:
    """Of two such numbers each may be near a pole, and the other not."""
    text = "g (float[n] x) => (float[n] y) { e = Exp(x) y = Tan(e) }"
    case = case_of(text, x=np.array([42.44, 1.0], np.float32))
    theirs = Reference(case.model).run(case.feeds[0])
    mine = np.array([1e5, theirs[0][1]], np.float32)
    assert explained(case, case.feeds[0], [mine], theirs) is Excuse.DOCUMENTED
    assert explained(case, case.feeds[0], [mine + np.float32(0.5)], theirs) is None


def test_the_greatest_of_a_region_next_to_what_is_not_finite() -> None:
    """Two regions: the one reads NaN and infinity, the other neither."""
    text = """<ir_version: 8, opset_import: ["" : 16]>
    g (float[1, c, h, w] x, float[r, 4] regions, int64[r] batch) => (float[r, c, 1, 2] y)
    { y = RoiAlign<mode = "max", output_width = 2, sampling_ratio = 2>(x, regions, batch) }"""
    x = np.arange(36, dtype=np.float32).reshape(1, 1, 6, 6)
    x[0, 0, 1, :3] = 1, NAN, INF
    feeds = {
        "x": x,
        "regions": np.array([[0.5, 0.5, 2.5, 2.5], [3.5, 3.5, 5.5, 5.5]], np.float32),
        "batch": np.zeros(2, np.int64),
    }
    case = Case(onnx.parser.parse_model(text), (feeds,))
    theirs = Reference(case.model).run(feeds)
    (mine,) = dvm_graph.optimize(case.model).run(feeds)
    assert np.isnan(mine[0]).any()
    assert np.isfinite(theirs[0][0]).any()
    assert explained(case, feeds, [mine], theirs) is Excuse.DOCUMENTED
    mine[1, 0, 0, 0] += 1
    assert explained(case, feeds, [mine], theirs) is None


@pytest.mark.parametrize("width", [1, 2])
def test_a_window_of_pads_has_its_place_anywhere(width: int) -> None:
    """And one of elements where the greatest is."""
    case = case_of(
        """g (uint8[1, 1, W] x) => (uint8[1, 1, V] y, int64[1, 1, V] i) {
            y, i = MaxPool<kernel_shape = [2], dilations = [2], pads = [1, 1]>(x)
        }""",
        x=np.full((1, 1, width), 3, np.uint8),
    )
    theirs = Reference(case.model).run(case.feeds[0])
    excuse = explained(case, case.feeds[0], [theirs[0], theirs[1] + 7], theirs)
    assert excuse is (Excuse.DOCUMENTED if width == 1 else None)


SUMS = (
    "MatMul(x, w)",
    'Einsum<equation = "abc,acd->abd">(x, w)',
    "Conv(x, v)",
    "ReduceSum(p, last)",
    "ReduceMean(p, last)",
    "AveragePool<kernel_shape = [3]>(p)",
    "GlobalAveragePool(p)",
)
"""Of the products of x [1, 1, 3] and w [1, 3, 1]."""


@pytest.mark.parametrize(("weight", "excused"), [(-0.1, False), (-1, True)])
@pytest.mark.parametrize("node", SUMS)
def test_terms_that_overflow_beside_an_infinite_one_are_infinite_or_no_number(
    node: str, weight: float, excused: bool
) -> None:
    """Only where they are of the other sign."""
    case = case_of(
        f"""g (float[1, 1, K] x, float[1, K, 1] w) => (float[1, 1, 1] y)
        <int64[3] row = {{1, 1, -1}}, int64[1] last = {{2}}> {{
            v = Reshape(w, row) p = Mul(x, v) y = {node}
        }}""",
        x=np.array([[[INF, 3e38, 3e38]]], np.float32),
        w=np.array([[[1], [weight], [weight]]], np.float32),
    )
    mine, theirs = (np.full((1, 1, 1), number, np.float32) for number in (NAN, INF))
    assert bool(explained(case, case.feeds[0], [mine], [theirs])) is excused


@pytest.mark.parametrize(
    ("node", "left"),
    [("InstanceNormalization(t, s, b)", 6e-5), ("MeanVarianceNormalization(t)", 1.0)],
)
def test_of_nearly_equal_numbers_a_mean_leaves_rounding(node: str, left: float) -> None:
    """And no more than that; of others, what it should."""
    text = f"""g (float[1, 1, N, 1] x) => (float[1, 1, N, 1] y)
        <float[1] s = {{1}}, float[1] b = {{0}}> {{ t = Tanh(x) y = {node} }}"""

    def excuse(x: float | list[float], off: float) -> Excuse | None:
        case = case_of(text, x=np.broadcast_to(np.float32(x), 4).reshape(1, 1, 4, 1).copy())
        theirs = Reference(case.model).run(case.feeds[0])
        return explained(case, case.feeds[0], [np.nan_to_num(theirs[0]) + np.float32(off)], theirs)

    assert excuse(0.95, left)
    assert excuse(0.95, 3 * MARGIN) is None
    assert excuse([0.1, 0.9, -0.3, 0.4], 1e-3) is None
    assert excuse([0.1, 0.1, 0.1001, 0.1], 0.1) is None


def test_of_two_values_that_overflow_each_engine_may_keep_one_wider() -> None:
    """Infinite less finite, finite less infinite, or no number; what is infinite in wider types, too, is that."""
    case = case_of(
        "g (float16[1] x) => (float16[3] y)"
        "<float16[3] a = {16896, 16896, 15360}, float16[3] b = {16384, 15360, 15360}>"
        "{ p = Mul(x, a) q = Mul(x, b) s = Softplus(p) y = Sub(s, q) }",
        x=np.array([33056], np.float16),
    )
    right = np.array([np.inf, np.inf, 0], np.float16)
    for wide in (np.inf, -np.inf, np.nan, 33056):
        mine = np.array([wide, np.inf, 0], np.float16)
        assert explained(case, case.feeds[0], [mine], [right])
    for wrong in ([np.inf, np.inf, np.inf], [-np.inf, np.inf, 33056]):
        mine = np.array(wrong, np.float16)
        assert explained(case, case.feeds[0], [mine], [right]) is None


def test_what_onnxruntime_makes_of_a_model_with_its_optimisations_is_right() -> None:
    """It moves a transpose behind a Hardmax of several axes, whose first of equal elements is another one then."""
    x = np.zeros((3, 2, 1, 2, 3, 1), np.float32)
    x[0, 0, 0, 1, 2, 0] = x[0, 1, 0, 0, 0, 0] = 3
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 8]>
        g (float[a, b, c, d, e, f] x) => (float[k, l, m, n] y) {
            s = Squeeze(x) t = Transpose<perm = [0, 2, 1, 3]>(s) y = Hardmax(t)
        }"""
    )
    case = Case(model, ({"x": x},))
    theirs, mine = (
        Reference(case.model, optimise).run(case.feeds[0]) for optimise in (False, True)
    )
    assert not np.array_equal(theirs[0], mine[0])
    assert explained(case, case.feeds[0], mine, theirs) is Excuse.REFEREE
    assert explained(case, case.feeds[0], [1 - mine[0]], theirs) is None


def test_weights_that_become_constants_may_be_packed() -> None:
    """Of experts in 8 bits, which onnxruntime's kernel then multiplies by otherwise."""
    random = np.random.default_rng(0)
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[n, 32] x, float[n, 4] p) => (float[n, 32] y) {
            s = Transpose<perm = [0, 2, 1]>(t)
            y = com.microsoft.QMoE<expert_weight_bits = 8, block_size = 16>(x, p, a, s, "", b, s)
        }"""
    model = onnx.parser.parse_model(text)
    words = random.integers(0, 256, (2, 4, 32, 32), np.uint8)
    scales = random.uniform(0.5, 1, (4, 2, 32)).astype(np.float32)
    constants = {"a": words[0], "b": words[1], "t": scales}
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in constants.items())
    x = random.standard_normal((5, 32)).astype(np.float32)
    case = Case(model, ({"x": x, "p": x[:, :4].copy()},))
    theirs, mine = (Reference(model, optimise).run(case.feeds[0]) for optimise in (False, True))
    assert not np.allclose(theirs[0], mine[0], 1e-5, 1e-3)
    assert explained(case, case.feeds[0], mine, theirs) is Excuse.REFEREE
    assert explained(case, case.feeds[0], [mine[0] * 1.1], theirs) is None
