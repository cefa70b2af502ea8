"""Models that tell apart what conditions of passes over factors and divisions hold apart, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.end_to_end.reference import Feeds, assert_agrees

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
    "by a tenth of its sums": "p = Mul (powers, tenth) t = ReduceSum (p, last) g = Div (powers, t) y = MatMul (g, v)",
    "by sums of columns": "t = ReduceSum (powers, first) g = Div (powers, t) y = MatMul (g, v)",
    "of powers that may all be small": "l = Sub (x, ten) p = Exp (l) t = ReduceSum (p, last) g = Div (p, t) y = MatMul (g, v)",
    "with a number of more axes": (
        "t = IsNaN (s) g = Where (t, deep, s) a = MatMul (g, v) y = ReduceSum <keepdims = 0> (a, last)"
    ),
    "by a number for each row that is no sum": "y = MatMul (q, v)",
    "along other rows": "a = Transpose (s) b = MatMul (a, s) y = MatMul (b, v)",
}


@pytest.mark.parametrize("name", GUARDED)
def test_guards_of_a_softmax_are_known(name: str) -> None:
    body = GUARDED[name]
    x = np.random.default_rng(0).standard_normal((3, 9), np.float32)
    x[1] = -np.inf
    u = np.where(np.arange(9) % 2, np.float32(np.nan), x)
    assert_agrees(
        f"""g (float[3, 9] x, float[3, 9] u, float[1, 9] row, float[3, 1] total, float[9, 2] v) => (float[p, q] y)
        <float one = {{1.0}}, float none = {{0.0}}, float[3, 9] zeros = {{{", ".join(["0.0"] * 27)}}}, int64[1] last = {{1}}, int64[1] first = {{0}},
         float tenth = {{0.1}}, float ten = {{10.0}}, float[1, 1, 1] deep = {{0.0}}> {{
            s = Softmax (x)
            greatest = ReduceMax (x, last)
            below = Sub (x, greatest)
            powers = Exp (below)
            q = Div (powers, total)
            {body}
        }}""",
        {"x": x, "u": u, "row": (1, 9), "total": (3, 1), "v": (9, 2)},
    )
