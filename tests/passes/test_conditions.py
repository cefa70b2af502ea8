"""Models that tell apart what conditions of passes hold apart, against onnxruntime: without the condition some result is another.

Each is as small as it gets, so that a line of a table says what a condition is for.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.end_to_end.reference import Array, Feeds, assert_agrees


def integers(*numbers: int) -> Array:
    return np.array(numbers, np.int64)


# -- transposes behind convolutions

IMAGES: dict[str, tuple[str, int, tuple[int, ...]]] = {
    "as many channels, another batch": ("b = Reshape (a, batches) y = Exp (b)", 4, ()),
    "channels and places in one": ("b = Reshape (a, joined) y = Exp (b)", 4, ()),
    "places in another order": ("b = Reshape (a, places) y = Exp (b)", 4, ()),
    "groups of channels": ("b = Reshape (a, groups) c = Sin (b) y = Exp (c)", 5, ()),
    "groups shuffled": (
        "b = Reshape (a, groups) c = Sin (b) y = Transpose <perm = [0, 2, 1, 3, 4]> (c)",
        5,
        (),
    ),
    "groups and batch shuffled": (
        "b = Reshape (a, groups) c = Sin (b) y = Transpose <perm = [1, 0, 2, 3, 4]> (c)",
        5,
        (),
    ),
    "groups and places shuffled": (
        "b = Reshape (a, groups) c = Sin (b) y = Transpose <perm = [0, 2, 1, 4, 3]> (c)",
        5,
        (),
    ),
    "groups, one reduced": (
        "b = Reshape (a, groups) c = ReduceMax (b, second) y = Exp (c)",
        5,
        (),
    ),
    "sums over channels": ("b = ReduceSum (a, first) y = Exp (b)", 4, ()),
    "sums over a place": ("b = ReduceSum (a, second) y = Exp (b)", 4, ()),
    "gathered channels": ("b = Gather <axis = 1> (a, index) y = Exp (b)", 4, ()),
    "gathered places": ("b = Gather <axis = 3> (a, index) y = Exp (b)", 4, ()),
    "gathered by a table": ("b = Gather <axis = 1> (a, table) y = Exp (b)", 5, ()),
    "beside one that is turned otherwise": (
        "t = Transpose <perm = [0, 3, 2, 1]> (z) b = Concat <axis = 1> (a, t) y = Exp (b)",
        4,
        (2, 5, 6, 2),
    ),
    "beside one with less of channels": (
        "b = Reshape (a, groups) t = Transpose <perm = [0, 4, 1, 2, 3]> (z) c = Concat <axis = 1> (b, t) y = Exp (c)",
        5,
        (2, 2, 6, 5, 2),
    ),
    "plus one with less of channels": (
        "b = Reshape (a, groups) t = Transpose <perm = [0, 4, 1, 2, 3]> (z) c = Add (b, t) y = Exp (c)",
        5,
        (2, 2, 6, 5, 2),
    ),
    "times one of places": ("b = Mul (a, z) y = Exp (b)", 4, (6, 5)),
    "times one of a row": ("b = Mul (a, z) y = Exp (b)", 4, (5,)),
    "times one of a column": ("b = Mul (a, z) y = Exp (b)", 4, (6, 1)),
    "times one of channels": ("b = Mul (a, z) y = Exp (b)", 4, (4, 1, 1)),
    "times one of the whole": ("b = Mul (a, z) y = Exp (b)", 4, (2, 4, 6, 5)),
    "times one of more axes": ("b = Mul (a, z) y = Exp (b)", 5, (3, 1, 4, 1, 1)),
    "times one of ones": ("b = Mul (a, z) y = Exp (b)", 5, (1, 1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", IMAGES)
def test_transposes_move_on_where_they_may(name: str) -> None:
    body, rank, beside = IMAGES[name]
    extents = ", ".join("pqrst"[:rank])
    other = "".join(f", {extent}" for extent in beside)[2:]
    declared = f", float[{other}] z" if beside else ""
    text = f"""g (float[n, 3, 6, 5] x, float[4, 3, 3, 3] k{declared}) => (float[{extents}] y)
        <int64[4] batches = {{-1, 4, 3, 5}}, int64[4] joined = {{0, 2, 12, 5}}, int64[4] places = {{0, 4, 5, 6}},
         int64[5] groups = {{0, 2, 2, 6, 5}}, int64[1] first = {{1}}, int64[1] second = {{2}},
         int64[3] index = {{3, -4, 1}}, int64[2, 2] table = {{3, 0, 1, 2}}> {{
            conv = Conv <pads = [1, 1, 1, 1]> (x, k)
            a = Relu (conv)
            {body}
        }}"""
    feeds: dict[str, tuple[int, ...]] = {"x": (2, 3, 6, 5), "k": (4, 3, 3, 3)}
    assert_agrees(text, {**feeds, "z": beside} if beside else feeds)


# -- views

STRIDED: dict[str, tuple[str, Feeds]] = {
    "patches of what is read with steps": (
        """g (float[n, 1, l] x, float[6, 1, 5] w) => (float[n, 6, m] y)
        <int64[1] start = {0}, int64[1] end = {9999}, int64[1] axis = {2}, int64[1] step = {2}> {
            a = Slice (x, start, end, axis, step)
            c = Conv (a, w)
            y = Relu (c)
        }""",
        {"x": (2, 1, 601), "w": (6, 1, 5)},
    ),
    "patches of what is read backwards": (
        """g (float[n, 1, l] x, float[6, 1, 5] w) => (float[n, 6, m] y)
        <int64[1] start = {-1}, int64[1] end = {-9999}, int64[1] axis = {2}, int64[1] step = {-1}> {
            a = Slice (x, start, end, axis, step)
            c = Conv <strides = [2]> (a, w)
            y = Relu (c)
        }""",
        {"x": (2, 1, 601), "w": (6, 1, 5)},
    ),
    "patches of what begins later": (
        """g (float[n, 1, l] x, float[6, 1, 5] w) => (float[n, 6, m] y)
        <int64[1] start = {3}, int64[1] end = {9999}, int64[1] axis = {2}> {
            a = Slice (x, start, end, axis)
            c = Conv (a, w)
            y = Relu (c)
        }""",
        {"x": (1, 1, 601), "w": (6, 1, 5)},
    ),
    "patches of what is turned": (
        """g (float[l, 1, n] x, float[6, 1, 5] w) => (float[n, 6, m] y) {
            a = Transpose <perm = [2, 1, 0]> (x)
            c = Conv <dilations = [2]> (a, w)
            y = Relu (c)
        }""",
        {"x": (300, 1, 2), "w": (6, 1, 5)},
    ),
}


@pytest.mark.parametrize("name", STRIDED)
def test_views_of_views_read_what_they_say(name: str) -> None:
    assert_agrees(*STRIDED[name])


@pytest.mark.parametrize("y", ["Exp", "Transpose <perm = [0, 3, 2, 1]>"])
def test_transposes_that_are_results_stay(y: str) -> None:
    assert_agrees(
        f"""g (float[n, 3, 6, 5] x, float[4, 3, 3, 3] k) => (float[p, q, r, s] y, float[p2, q2, r2, s2] c) {{
            c = Conv (x, k)
            y = {y} (c)
        }}""",
        {"x": (2, 3, 6, 5), "k": (4, 3, 3, 3)},
    )


# -- concats before what is done element by element

JOINED: dict[str, tuple[str, list[Feeds]]] = {
    "beside what varies along the parts": (
        "float[n] x, float[k] z, float[l] b, float[q] m; c = Concat <axis = 0> (x, z) d = Mul (c, b) y = Add (d, m)",
        [
            {"x": (4,), "z": (2,), "b": (1,), "m": (6,)},
            {"x": (1,), "z": (0,), "b": (3,), "m": (1,)},
            {"x": (0,), "z": (1,), "b": (3,), "m": (3,)},
        ],
    ),
    "beside another of other parts": (
        "float[4] x, float[2] z; c = Concat <axis = 0> (x, z) d = Concat <axis = 0> (z, x) y = Mul (c, d)",
        [{"x": (4,), "z": (2,)}],
    ),
    "beside another along another axis": (
        "float[3, 6] x, float[6, 3] z; c = Concat <axis = 0> (x, x) d = Concat <axis = 1> (z, z) y = Mul (c, d)",
        [{"x": (3, 6), "z": (6, 3)}],
    ),
    "beside another of more parts": (
        "float[4] x, float[2] z; c = Concat <axis = 0> (x, x) d = Concat <axis = 0> (z, x, z) y = Mul (c, d)",
        [{"x": (4,), "z": (2,)}],
    ),
    "beside another that is as long": (
        "float[2, 2] x, float[4] z; c = Concat <axis = 0> (x, x) d = Concat <axis = 0> (z, z)"
        " e = Reshape (d, columns) y = Mul (c, e)",
        [{"x": (2, 2), "z": (4,)}],
    ),
    "beside one that is given": (
        "float[a, 4] x, float[b, 4] z, float[c, 4] w; c = Concat <axis = 0> (x, z) y = Mul (c, w)",
        [{"x": (2, 4), "z": (3, 4), "w": (5, 4)}, {"x": (0, 4), "z": (3, 4), "w": (1, 4)}],
    ),
    "beside one for each row": (
        "float[a, 4] x, float[b, 4] z, float[4] w; c = Concat <axis = 0> (x, z) y = Mul (c, w)",
        [{"x": (2, 4), "z": (3, 4), "w": (4,)}],
    ),
    "spread by what it meets": (
        "float[1] x, float[z] z, float[4] w; c = Concat <axis = 0> (x, z) y = Mul (c, w)",
        [{"x": (1,), "z": (0,), "w": (4,)}, {"x": (1,), "z": (3,), "w": (4,)}],
    ),
    "spread, or as long as what it meets": (
        "float[a] x, float[2] z, float[b] w; c = Concat <axis = 0> (x, z) y = Mul (c, w)",
        [{"x": (3,), "z": (2,), "w": (1,)}, {"x": (3,), "z": (2,), "w": (5,)}],
    ),
    "multiplied as a matrix": (
        "float[2, 5] x, float[3, 5] z, float[5, 5] w; c = Concat <axis = 0> (x, z) y = MatMul (c, w)",
        [{"x": (2, 5), "z": (3, 5), "w": (5, 5)}],
    ),
    "gathered": (
        "float[2, 5] x, float[3, 5] z, int64[2] i; c = Concat <axis = 0> (x, z) y = Gather (c, i)",
        [{"x": (2, 5), "z": (3, 5), "i": integers(-1, 2)}],
    ),
    "read by itself, too": (
        "float[a] x, float[b] z; c = Concat <axis = 0> (x, z) e = Exp (c) f = Mul (c, c) y = Sub (f, e)",
        [{"x": (2,), "z": (3,)}],
    ),
    "split along the parts": (
        "float[b, n, 3] x, float[b, k, 3] z; c = Concat <axis = 1> (x, z) r = Reshape (c, flat) y = Exp (r)",
        [{"x": (2, 4, 3), "z": (2, 2, 3)}, {"x": (1, 0, 3), "z": (1, 1, 3)}],
    ),
    "regrouped beside the parts": (
        "float[n, 2, 3] x, float[k, 2, 3] z; c = Concat <axis = 0> (x, z) r = Reshape (c, rows) y = Exp (r)",
        [{"x": (4, 2, 3), "z": (2, 2, 3)}, {"x": (0, 2, 3), "z": (1, 2, 3)}],
    ),
    "regrouped across the parts": (
        "float[2, 6] x, float[4, 6] z; c = Concat <axis = 0> (x, z) r = Reshape (c, sixes) y = Exp (r)",
        [{"x": (2, 6), "z": (4, 6)}],
    ),
    "an axis as long as another": (
        "float[2, 3, 6] x, float[2, 3, 6] z; c = Concat <axis = 1> (x, z) r = Reshape (c, swapped) y = Exp (r)",
        [{"x": (2, 3, 6), "z": (2, 3, 6)}],
    ),
    "turned": (
        "float[n, 2, 3] x, float[n, k, 3] z; c = Concat <axis = 1> (x, z) t = Transpose <perm = [2, 0, 1]> (c) y = Exp (t)",
        [{"x": (4, 2, 3), "z": (4, 1, 3)}],
    ),
    "reduced": (
        "float[n, 2] x, float[n, k] z; c = Concat <axis = 1> (x, z) e = Exp (c) y = ReduceMax <keepdims = 1> (e)",
        [{"x": (4, 2), "z": (4, 3)}],
    ),
    "of one value twice": (
        "float[n] x; r = Relu (x) c = Concat <axis = 0> (r, r) y = Mul (c, c)",
        [{"x": (4,)}, {"x": (0,)}],
    ),
}


RANKS = {
    "split along the parts": 2,
    "regrouped beside the parts": 2,
    "regrouped across the parts": 3,
}
"""Of the results that have another one than the first input."""


@pytest.mark.parametrize("name", JOINED)
def test_concats_are_what_their_parts_are(name: str) -> None:
    body, runs = JOINED[name]
    inputs, nodes = body.split(";")
    extents = ", ".join("pqrs"[: RANKS.get(name, inputs.split("]")[0].count(",") + 1)])
    assert_agrees(
        f"""g ({inputs}) => (float[{extents}] y)
        <int64[2] flat = {{0, -1}}, int64[2] rows = {{-1, 6}}, int64[3] sixes = {{6, 2, 3}},
         int64[3] swapped = {{12, 6, 1}}, int64[2] columns = {{4, 2}}> {{ {nodes} }}""",
        *runs,
    )


# -- constants behind products, and factors before them

_W = "float[3, 4] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2, 1.3}"
_TURNED = _W.replace("3, 4", "4, 3")
_SQUARE = _W.replace("3, 4", "4, 4").replace("1.3", "1.3, 1.4, 1.5, 1.7, 1.9")
_ONE_BATCH = _W.replace("3, 4", "1, 3, 4")
_BATCHES = f"float[2, 3, 4] w = {{{', '.join(str(0.1 + number / 8) for number in range(24))}}}"
_LARGE, _WHOLE = (
    _W.replace("0.1", "1e37"),
    f"float[3, 4] w = {{{', '.join(f'{number}.0' for number in range(1, 13))}}}",
)
_SMALL = "float[3, 2] w = {1.2345e-38, 1.3579e-38, 1.2468e-38, 1.9753e-38, 1.8642e-38, 1.5432e-38}"
_S = "float[4] s = {2.0, -3.0, 0.5, 0.1}"

SCALED: dict[str, tuple[str, str, tuple[int, ...], int]] = {
    "a row": (f"{_W}, {_S}", "a = MatMul (x, w) b = Sub (a, one) y = Mul (b, s)", (5, 3), 2),
    "a row of few rows": (f"{_W}, {_S}", "a = MatMul (x, w) y = Mul (a, s)", (0, 3), 2),
    "divided": (f"{_W}, {_S}", "a = MatMul (x, w) b = Add (a, one) y = Div (b, s)", (5, 3), 2),
    "divided by 0": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) b = Mul (a, s) y = Div (b, none)",
        (5, 3),
        2,
    ),
    "what divides": (f"{_W}, {_S}", "a = MatMul (x, w) b = Div (one, a) y = Mul (b, s)", (5, 3), 2),
    "what is subtracted from": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) b = Sub (one, a) y = Mul (b, s)",
        (5, 3),
        2,
    ),
    "zeros": (
        f"{_W}, float[4] s = {{-0.0, 0.0, 1.0, 2.0}}",
        "a = MatMul (x, w) b = Mul (a, s) y = Div (one, b)",
        (5, 3),
        2,
    ),
    "a column": (
        f"{_W}, float[5, 1] s = {{1.0, 2.0, 3.0, 4.0, 5.0}}",
        "a = MatMul (x, w) y = Mul (a, s)",
        (5, 3),
        2,
    ),
    "as many numbers as columns, in a column": (
        f"{_W}, float[4, 1] s = {{1.0, 2.0, 3.0, 4.0}}",
        "a = MatMul (x, w) y = Mul (a, s)",
        (4, 3),
        2,
    ),
    "more axes": (
        f"{_W}, float[2, 1, 4] s = {{2.0, -3.0, 0.5, 0.1, 1.0, 2.0, 3.0, 4.0}}",
        "a = MatMul (x, w) y = Mul (a, s)",
        (5, 3),
        3,
    ),
    "spread columns": (
        f"float[3, 1] w = {{0.1, 0.2, 0.3}}, {_S}",
        "a = MatMul (x, w) y = Mul (a, s)",
        (5, 3),
        2,
    ),
    "weights of batches": (f"{_BATCHES}, {_S}", "a = MatMul (x, w) y = Mul (a, s)", (5, 3), 3),
    "rows of batches": (
        f"{_BATCHES}, float[2, 1, 4] s = {{2.0, -3.0, 0.5, 0.1, 1.0, 2.0, 3.0, 4.0}}",
        "a = MatMul (x, w) y = Mul (a, s)",
        (2, 5, 3),
        3,
    ),
    "rows of batches of the same weights": (
        f"{_ONE_BATCH}, float[8] s = {{2.0, -3.0, 0.5, 0.1, 1.0, 2.0, 3.0, 4.0}}",
        "a = MatMul (x, w) r = Reshape (a, eights) y = Mul (r, s)",
        (2, 1, 3),
        2,
    ),
    "turned weights": (
        f"{_TURNED}, {_S}",
        "v = Transpose (w) a = MatMul (x, v) y = Mul (a, s)",
        (5, 3),
        2,
    ),
    "turned results": (
        f"{_W}, float[5] s = {{2.0, -3.0, 0.5, 0.1, 7.0}}",
        "a = MatMul (x, w) t = Transpose (a) y = Mul (t, s)",
        (5, 3),
        2,
    ),
    "turned square results": (
        f"{_SQUARE}, {_S}",
        "a = MatMul (x, w) t = Transpose (a) y = Mul (t, s)",
        (4, 4),
        2,
    ),
    "turned behind a reshape": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) r = Reshape (a, apart) t = Transpose <perm = [0, 1, 3, 2]> (r) y = Mul (t, s)",
        (2, 4, 3),
        4,
    ),
    "turned batches": (
        f"{_W}, float[2] s = {{2.0, -3.0}}",
        "a = MatMul (x, w) t = Transpose <perm = [1, 2, 0]> (a) y = Mul (t, s)",
        (2, 5, 3),
        3,
    ),
    "turned batches of the same weights": (
        f"{_ONE_BATCH}, float[2] s = {{2.0, -3.0}}",
        "a = MatMul (x, w) t = Transpose <perm = [1, 2, 0]> (a) y = Mul (t, s)",
        (2, 5, 3),
        3,
    ),
    "turned batches of weights": (
        f"{_BATCHES}, float[2] s = {{2.0, -3.0}}",
        "a = MatMul (x, w) t = Transpose <perm = [1, 2, 0]> (a) y = Mul (t, s)",
        (2, 5, 3),
        3,
    ),
    "a row with axes of 1": (
        f"{_W}, float[1, 1, 4] s = {{2.0, -3.0, 0.5, 0.1}}",
        "a = MatMul (x, w) y = Mul (a, s)",
        (5, 3),
        3,
    ),
    "large turned weights": (
        _S,
        "v = Transpose (large) a = MatMul (x, v) b = Mul (a, row) y = Add (b, row)",
        (5, 33),
        2,
    ),
    "large regrouped weights": (
        _S,
        "v = Reshape (large, regrouped) a = MatMul (x, v) b = Mul (a, row) y = Add (b, row)",
        (5, 33),
        2,
    ),
    "large weights regrouped and turned": (
        _S,
        "u = Reshape (large, regrouped) v = Transpose (u) a = MatMul (x, v) b = Mul (a, column) y = Add (b, column)",
        (5, 40),
        2,
    ),
    "weights that are given": (f"{_W}, {_S}", "a = MatMul (x, x) y = Mul (a, s)", (4, 4), 2),
    "sums of bytes": (
        "int8[3, 4] w = {1, -2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, int32[4] s = {2, -3, 100, 7}",
        "i = Cast <to = 2> (x) a = MatMulInteger (i, w) b = Mul (a, s) y = Cast <to = 1> (b)",
        (0, 3),
        2,
    ),
    "split columns": (
        f"{_W}, float[2] s = {{2.0, -3.0}}",
        "a = MatMul (x, w) r = Reshape (a, pairs) y = Mul (r, s)",
        (5, 3),
        3,
    ),
    "split columns, and whole again": (
        f"{_W}, float[2] t = {{2.0, -3.0}}, {_S}",
        "a = MatMul (x, w) r = Reshape (a, pairs) b = Mul (r, t) c = Reshape (b, fours) y = Mul (c, s)",
        (5, 3),
        2,
    ),
    "rows in one": (
        f"{_W}, float[8] s = {{2.0, -3.0, 0.5, 0.1, 1.0, 2.0, 3.0, 4.0}}",
        "a = MatMul (x, w) r = Reshape (a, eights) y = Mul (r, s)",
        (6, 3),
        2,
    ),
    "rows regrouped": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) r = Reshape (a, columns) y = Mul (r, s)",
        (4, 3),
        2,
    ),
    "weights that others read": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) b = Mul (a, s) c = MatMul (x, w) y = Add (b, c)",
        (5, 3),
        2,
    ),
    "turned weights that others read": (
        f"{_TURNED}, {_S}",
        "v = Transpose (w) a = MatMul (x, v) b = Mul (a, s) c = Add (x, one) d = MatMul (c, v) y = Add (b, d)",
        (5, 3),
        2,
    ),
    "results that others read": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) b = Mul (a, s) y = Add (b, a)",
        (5, 3),
        2,
    ),
    "weights that lose bits": (
        _SMALL,
        "a = MatMul (h, w) b = Mul (a, least) c = Abs (b) y = Mul (c, most)",
        (5, 3),
        2,
    ),
    "weights that overflow": (f"{_LARGE}, {_S}", "a = MatMul (l, w) y = Mul (a, most)", (5, 3), 2),
    "large addends": (
        f"{_W}, {_S}",
        "a = MatMul (x, w) b = Add (a, huge) c = Sub (b, huge) y = Mul (c, s)",
        (5, 3),
        2,
    ),
    "NaN": (f"{_W}, {_S}", "a = MatMul (x, w) b = Add (a, nothing) y = Mul (b, s)", (5, 3), 2),
    "sums of whole numbers": (
        f"{_WHOLE}, {_S}",
        "i = Round (x) a = MatMul (i, w) b = Mul (a, tenths) y = Floor (b)",
        (200, 3),
        2,
    ),
}


@pytest.mark.parametrize("name", SCALED)
def test_factors_become_part_of_weights_where_they_may(name: str) -> None:
    numbers, body, shape, rank = SCALED[name]
    extents = ", ".join([str(shape[0]) if shape[0] in (2, 4) else "m", *map(str, shape[1:])])
    known = ", ".join("rstu"[:rank])
    text = f"""g (float[{extents}] x) => (float[{known}] y)
        <{numbers}, float one = {{1.0}}, float none = {{0.0}}, float tenths = {{0.7}}, float least = {{0.0001}},
         float most = {{10000.0}}, float huge = {{100000000.0}}, float tiny = {{1e-20}}, float enormous = {{1e37}},
         int64[4] apart = {{0, 1, 4, 4}}, int64[2] regrouped = {{33, 40}}, int64[3] pairs = {{0, 2, 2}}, int64[2] fours = {{0, 4}}, int64[2] eights = {{-1, 8}}, int64[2] columns = {{4, -1}}> {{
            nothing = Div (none, none)
            h = Mul (x, enormous)
            l = Mul (x, tiny)
            {body}
        }}"""
    random = np.random.default_rng(1)
    large = random.standard_normal((40, 33), np.float32)
    constants = {"large": large, "row": large[:, 0].copy(), "column": large[0].copy()}
    assert_agrees(text, {"x": shape}, constants=constants)


COLLECTED: dict[str, tuple[str, list[Feeds]]] = {
    "factors that are moderate together only": (
        "float[n, k] x, float[m, k] z; a = Mul (x, huge) b = Mul (z, tiny) t = Transpose (b) y = MatMul (a, t)",
        [{"x": (4, 3), "z": (5, 3)}, {"x": np.full((4, 3), 1e33, np.float32), "z": (5, 3)}],
    ),
    "factors that are moderate alone only": (
        "float[n, k] x, float[k, m] z; a = Mul (x, small) b = Mul (z, small) y = MatMul (a, b)",
        [{"x": np.full((4, 3), 1e20, np.float32), "z": np.full((3, 5), 1e20, np.float32)}],
    ),
    "one of two operands": (
        "float[n, k] x, float[m, k] z; b = Mul (z, some) t = Transpose (b) y = MatMul (x, t)",
        [{"x": (4, 3), "z": (5, 3)}, {"x": (4, 0), "z": (5, 0)}],
    ),
    "both the same": (
        "float[n, n] x; b = Mul (x, some) y = MatMul (b, b)",
        [{"x": (4, 4)}],
    ),
    "both of the same, one turned": (
        "float[n, n] x; e = Exp (x) b = Mul (e, some) t = Transpose (b) y = MatMul (b, t)",
        [{"x": (4, 4)}],
    ),
    "one that others read": (
        "float[n, k] x, float[k, k] z; b = Mul (z, some) c = MatMul (x, b) y = MatMul (c, b)",
        [{"x": (4, 3), "z": (3, 3)}],
    ),
    "one that is spread by its factor": (
        "float[n, 1] x, float[k] z; b = Mul (z, single) y = MatMul (x, b)",
        [{"x": (4, 1), "z": (3,)}],
    ),
    "a matrix": (
        "float[n, 3] x, float[3, 3] z; b = Mul (z, square) y = MatMul (x, b)",
        [{"x": (4, 3), "z": (3, 3)}],
    ),
    "zero": (
        "float[n, k] x, float[k, m] z; b = Mul (z, none) y = MatMul (x, b)",
        [{"x": (4, 3), "z": np.full((3, 5), np.inf, np.float32)}],
    ),
    "computed behind views": (
        "float[n, k] x, float[k, m] z; e = Exp (x) t = Transpose (e) u = Sin (t) v = Transpose (u) b = Mul (v, some)"
        " c = Mul (z, large) y = MatMul (b, c)",
        [{"x": (4, 3), "z": (3, 5)}],
    ),
}


@pytest.mark.parametrize("name", COLLECTED)
def test_factors_of_operands_go_where_they_may(name: str) -> None:
    inputs, nodes = COLLECTED[name][0].split(";")
    assert_agrees(
        f"""g ({inputs}) => (float[p, q] y)
        <float some = {{0.3}}, float none = {{0.0}}, float huge = {{1000000.0}}, float tiny = {{0.000001}},
         float large = {{10000.0}}, float small = {{0.0001}}, float[1, 1] single = {{0.3}},
         float[3, 3] square = {{0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.2}}> {{ {nodes} }}""",
        *COLLECTED[name][1],
    )


# -- divisions by the sums of a softmax

GUARDED: dict[str, str] = {
    "by what it guards": "t = IsNaN (s) g = Where (t, none, s) y = MatMul (g, v)",
    "by something else": "t = IsNaN (u) g = Where (t, none, s) y = MatMul (g, v)",
    "with one": "t = IsNaN (s) g = Where (t, one, s) y = MatMul (g, v)",
    "with zeros for more rows": (
        "m = Softmax (row) t = IsNaN (m) g = Where (t, zeros, m) y = MatMul (g, v)"
    ),
    "where it is a number": "t = IsNaN (s) g = Where (t, s, none) y = MatMul (g, v)",
    "and read by others": (
        "t = IsNaN (s) g = Where (t, none, s) a = MatMul (g, v) b = MatMul (g, v) c = Cast <to = 1> (t)"
        " d = MatMul (c, v) e = Add (a, b) y = Add (e, d)"
    ),
    "not at all": "y = MatMul (s, v)",
    "not at all, and squared": "a = Transpose (s) b = MatMul (s, a) c = MatMul (b, s) y = MatMul (c, v)",
    "along other rows": "a = Transpose (s) b = MatMul (a, s) y = MatMul (b, v)",
}


@pytest.mark.parametrize("name", GUARDED)
def test_guards_of_a_softmax_are_known(name: str) -> None:
    body = GUARDED[name]
    x = np.random.default_rng(0).standard_normal((3, 9), np.float32)
    x[1] = -np.inf
    u = np.where(np.arange(9) % 2, np.float32(np.nan), x)
    assert_agrees(
        f"""g (float[3, 9] x, float[3, 9] u, float[1, 9] row, float[9, 2] v) => (float[p, q] y)
        <float one = {{1.0}}, float none = {{0.0}}, float[3, 9] zeros = {{{", ".join(["0.0"] * 27)}}}> {{
            s = Softmax (x)
            {body}
        }}""",
        {"x": x, "u": u, "row": (1, 9), "v": (9, 2)},
    )
