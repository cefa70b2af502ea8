"""Reductions that tell apart what conditions of their decompositions hold apart, against onnxruntime."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.end_to_end.reference import Array, assert_agrees

NAN, INF = np.nan, np.inf
PLACES: dict[str, list[list[float]]] = {
    "ties": [[1, 3, 3, 2], [2, 2, 1, 1]],
    "nothing but nan": [[NAN, NAN, NAN, NAN], [1, 2, 3, 4]],
    "nan in front": [[NAN, 3, 3, 2], [2, 2, 1, 1]],
    "nan behind": [[1, 3, 3, NAN], [2, NAN, 1, 1]],
    "infinities": [[-INF, -INF, -INF, -INF], [INF, INF, INF, INF]],
    "zeros": [[-0.0, 0.0, -0.0, 0.0], [0.0, -0.0, 0.0, -0.0]],
}


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("name", PLACES)
def test_places_of_extremes(name: str, op: str, keep: int) -> None:
    text = f"""g (float[n, m] x, int32[n, m] z) => (int64[{"a, b" if keep else "a"}] y, int64[{"c, d" if keep else "c"}] w,
                                             int64[{"e, f" if keep else "e"}] v) {{
        y = {op} <axis = 1, keepdims = {keep}> (x)
        w = {op} <axis = -1, keepdims = {keep}, select_last_index = 1> (x)
        v = {op} <axis = 0, keepdims = {keep}, select_last_index = 1> (z)
    }}"""
    x = np.array(PLACES[name], np.float32)
    z = np.nan_to_num(x, posinf=7, neginf=-7).astype(np.int32)
    assert_agrees(text, {"x": x, "z": z}, strict=True)


@pytest.mark.parametrize("name", PLACES)
def test_hardmax_is_one_at_the_first(name: str) -> None:
    text = "g (float[n, m] x) => (float[n, m] y) { y = Hardmax (x) }"
    assert_agrees(text, {"x": np.array(PLACES[name], np.float32)}, strict=True)


@pytest.mark.parametrize(("exclusive", "reverse"), [*itertools.product((0, 1), repeat=2)])
@pytest.mark.parametrize("extent", ["5", "40", "m"])
def test_running_sums(extent: str, exclusive: int, reverse: int) -> None:
    """Of few elements, of many, and of a number that the run tells."""
    text = f"""g (float[n, {extent}] x, int64[{extent}, n] z) => (float[n, {extent}] y, int64[{extent}, n] w)
    <int64 last = {{-1}}, int64 first = {{0}}> {{
        y = CumSum <exclusive = {exclusive}, reverse = {reverse}> (x, last)
        w = CumSum <exclusive = {exclusive}, reverse = {reverse}> (z, first)
    }}"""
    runs = [
        {"x": (3, count), "z": np.arange(3 * count).reshape(count, 3) - 2**62}
        for count in ((1, 7, 40) if extent == "m" else (int(extent),))
    ]
    assert_agrees(text, *runs, strict=True)


LARGE = np.array([[2**60 + 1, -(2**60) - 3], [5, -7]])
FOLDED: dict[str, tuple[str, Array]] = {
    "no axes, of large integers": (
        "y = ReduceMean <noop_with_empty_axes = 1> (x)",
        LARGE,
    ),
    "no axes, squared": ("y = ReduceSumSquare <noop_with_empty_axes = 1> (x)", LARGE % 100),
    "no axes, absolute": ("y = ReduceL1 <noop_with_empty_axes = 1> (x)", LARGE % 100 - 50),
    "all axes": ("y = ReduceMax (x)", LARGE),
    "the last axis, counted from behind": ("y = ReduceMin (x, last)", LARGE),
    "both axes": ("y = ReduceSum (x, both)", LARGE % 1000),
    "means that are cut towards zero": ("y = ReduceMean (x, last)", LARGE % 16 - 9),
    "norms of integers": ("y = ReduceL2 (x, last)", LARGE % 100),
    "products": ("y = ReduceProd (x, last)", LARGE % 1000),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded_integers(name: str) -> None:
    body, x = FOLDED[name]
    dtype = "int32" if "norms" in name else "int64"
    text = f"""g ({dtype}[n, m] x) => ({dtype}[a, b] y) <int64[1] last = {{-1}}, int64[2] both = {{-1, 0}}> {{ {body} }}"""
    assert_agrees(text, {"x": x.astype(dtype)}, strict=True)


@pytest.mark.parametrize("op", ["GlobalMaxPool", "GlobalAveragePool"])
def test_whole_images(op: str) -> None:
    text = f"g (float[n, c, h, w] x) => (float[n, c, a, b] y) {{ y = {op} (x) }}"
    assert_agrees(text, {"x": (2, 3, 4, 5)}, {"x": (1, 1, 1, 1)}, strict=True)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_axes_that_a_run_tells(op: str) -> None:
    text = f"g (float[n, m] x, int64[k] axes) => (float[a, b] y) {{ y = {op} (x, axes) }}"
    assert_agrees(
        text,
        *({"x": (3, 4), "axes": np.array(axes, np.int64)} for axes in ([0], [-1], [0, 1], [])),
    )


def test_hardmax_of_old_is_of_all_behind_its_axis() -> None:
    text = "g (float[n, m, l] x) => (float[a, b, c] y) { y = Hardmax <axis = 1> (x) }"
    assert_agrees(text, {"x": (2, 3, 4)}, opset=12)
