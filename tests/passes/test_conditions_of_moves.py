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
