"""Models that tell apart what conditions of `fill_branches` hold apart, against onnxruntime, in either branch.

A line is what stands before an `If`, what its branches compute as u and as v, and what stands behind.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.end_to_end.reference import Feeds, assert_agrees


def integers(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


_X: Feeds = {"x": (4, 3)}
_MANY = " ".join(f"o{i} = Sin (o{i - 1 if i else ''})" for i in range(20)) + " v = Neg (o19)"
"""Operators: a branch of few is computed anyway, whichever is chosen."""
_CONTENTS = np.array([[1, 0, -2], [0, 0, 3]], np.float32)

AROUND: dict[str, tuple[str, str, str, str, list[Feeds]]] = {
    "an operator that fits one branch": (
        "float[2, 3] x;",
        "u = Relu (x)",
        "v = Concat <axis = 0> (x, x)",
        "a = Add (r, square) y = Relu (a)",
        [{"x": (2, 3)}],
    ),
    "what follows an operator that fits one branch, and the branches": (
        "float[2, 3] x;",
        "u = Relu (x)",
        "v = Concat <axis = 0> (x, x)",
        "a = Add (r, square) b = Exp (r) y = Mul (a, b)",
        [{"x": (2, 3)}],
    ),
    "a reshape that fits one branch": (
        "float[2, 3] x;",
        "u = Relu (x)",
        "v = Concat <axis = 0> (x, x)",
        "a = Exp (r) b = Reshape (a, turned) y = Neg (b)",
        [{"x": (2, 3)}],
    ),
    "an operator before that fits one branch": (
        "float[m, n] x; c = Cast <to = 1> (turned) h = Add (x, c)",
        "u = Relu (x)",
        "a = MatMul (x, w) v = Concat <axis = 1> (a, h)",
        "y = Exp (r)",
        [{"x": (4, 2)}, {"x": (4, 1)}],
    ),
    "two products behind": (
        "float[n, 3] x;",
        "u = Relu (x)",
        "v = Neg (x)",
        "a = MatMul (r, w) b = Relu (a) c = MatMul (b, w) y = Exp (c)",
        [_X, {"x": (0, 3)}],
    ),
    "two products before": (
        "float[n, 3] x, float[3, 3] k; g = Relu (x) p = MatMul (g, k) h = Exp (p)",
        "u = MatMul (h, k)",
        "v = Neg (g)",
        "y = Exp (r)",
        [{**_X, "k": (3, 3)}],
    ),
    "a product before, and one behind": (
        "float[n, 3] x, float[3, 3] k; g = Relu (x) p = MatMul (g, k) h = Exp (p)",
        "u = Sin (h)",
        "v = Neg (g)",
        "y = MatMul (r, k)",
        [{**_X, "k": (3, 3)}],
    ),
    "results that no kernel computes": (
        "float[n, 3] x;",
        "a = NonZero (x) b = Cast <to = 1> (a) u = Transpose (b)",
        "v, i = TopK <axis = 0> (x, two)",
        "a = Mul (r, r) y = Neg (a)",
        [{"x": _CONTENTS}],
    ),
    "an operator of the host before": (
        "float[n, 3] x; h, i = TopK <axis = 0> (x, two)",
        "u = Relu (h)",
        "v = Neg (x)",
        "y = Exp (r)",
        [_X],
    ),
    "branches of other shapes": (
        "float[n, m] x; h = Exp (x)",
        "u = Transpose (h)",
        "v = Relu (h)",
        "y = Neg (r)",
        [_X, {"x": (0, 3)}, {"x": (1, 3)}, {"x": (3, 3)}],
    ),
    "a row to add to either shape": (
        "float[n, m] x, float[m] k;",
        "u = Relu (x)",
        "v = ReduceSum <keepdims = 1> (x)",
        "y = Add (r, k)",
        [{**_X, "k": (3,)}, {"x": (4, 1), "k": (1,)}],
    ),
    "a shape that something else rests on": (
        "float[n, m] x;",
        "u = Relu (x)",
        "v = Concat <axis = 0> (x, x)",
        "a = Neg (r) s = Shape (a) b = ConstantOfShape (s) y = Add (b, one)",
        [_X, {"x": (0, 3)}],
    ),
    "a gather behind": (
        "float[n, 3] x, int64[k] i;",
        "u = Relu (x)",
        "v = Concat <axis = 0> (x, x)",
        "y = Gather (r, i)",
        [{**_X, "i": integers(0, -1, 3)}],
    ),
    "a gather before that both read": (
        "float[n, 3] x, int64[k] i; h = Gather (x, i)",
        "u = Relu (h)",
        "v = Sin (h)",
        "y = Cos (r)",
        [{**_X, "i": integers(0, -1, 3)}],
    ),
    "a value that is read twice": (
        "float[n, m] x; h = Exp (x)",
        "u = Add (h, h)",
        "v = Identity (h)",
        "y = Mul (r, h)",
        [_X],
    ),
    "a result that is a view, read twice": (
        "float[n, m] x; h = Exp (x)",
        "u = Relu (h)",
        "v = Neg (h)",
        "a = Transpose (r) b = Exp (a) c = MatMul (r, a) d = MatMul (c, c) e = ReduceSum <keepdims = 1> (b) y = Add (d, e)",
        [_X],
    ),
    "names of the outside inside": (
        "float[n, m] x; h = Exp (x)",
        "b = Neg (h) u = Relu (b)",
        "b = Sin (h) v = Add (b, h)",
        "b = Cos (r) y = Sub (b, r)",
        [_X],
    ),
    "what only counts": (
        "float[n, m] x; s = Shape (x) k = Gather (s, first) i = Range (zero, k, step) h = Cast <to = 1> (i)",
        "a = ReduceSum <keepdims = 0> (h) u = Add (x, a)",
        "v = Neg (x)",
        "y = Exp (r)",
        [_X, {"x": (0, 3)}],
    ),
    "what counts as far as is found": (
        "float[n, m] x, float[l] z; f = NonZero (z) s = Shape (f) k = Gather (s, second) i = Range (zero, k, step)"
        " h = Cast <to = 1> (i)",
        "a = ReduceSum <keepdims = 0> (h) u = Add (x, a)",
        "v = Neg (x)",
        "y = Exp (r)",
        [{**_X, "z": _CONTENTS[0]}, {**_X, "z": _CONTENTS[:, 1]}],
    ),
    "a condition that branches read": (
        "float[n, m] x, float k; t = ReduceSum <keepdims = 0> (x) d = Less (t, k)",
        "a = Cast <to = 1> (d) u = Add (x, a)",
        "a = Cast <to = 1> (d) v = Sub (x, a)",
        "y = Cos (r)",
        [{**_X, "k": np.array(k, np.float32)} for k in (100, -100)],
    ),
    "what is spread from constants": (
        "float[n, 600] x; h = Expand (half, large)",
        "u = MatMul (x, h)",
        "v = Relu (x)",
        "y = Neg (r)",
        [{"x": (3, 600)}],
    ),
    "sums that the condition rests on": (
        "float[n, m] x, float k; h = Exp (x) t = ReduceSum <keepdims = 0> (h) q = Mul (t, k) d = Less (t, q)",
        "u = Mul (h, t)",
        "v = Sin (h)",
        "y = Cos (r)",
        [{**_X, "k": np.array(k, np.float32)} for k in (2, 0.5)],
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_moves_into_branches_is_what_it_was(name: str) -> None:
    head, taken, other, behind, runs = AROUND[name]
    inputs, before = head.split(";")
    computed = "d = Less" in before
    longer = re.sub(r"\bv\b", "o", other) + " " + _MANY
    condition = "d" if computed else "chosen"
    given = "" if computed else ", bool chosen"
    text = f"""g ({inputs}{given}) => (float[p, q] y)
        <float[2, 3] square = {{1, 2, 3, 4, 5, 6}}, float[3, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, int64[2] turned = {{3, 2}},
         int64[1] two = {{2}}, float one = {{1}}, int64 first = {{0}}, int64 zero = {{0}}, int64 step = {{1}}, int64 second = {{1}}, float half = {{0.5}},
         int64[2] large = {{600, 600}}> {{
            {before}
            r = If ({condition}) <
                then_branch = p () => (float[n1, m1] u) {{ {taken} }},
                else_branch = q () => (float[n2, m2] v) {{ {longer} }}
            >
            {behind}
        }}"""
    choices = [True] if "fits one branch" in name else [True, False]  # where nothing fits, it fails
    fed = [
        run if computed else {**run, "chosen": np.array(choice)}
        for run in runs
        for choice in choices
    ]
    assert_agrees(text, *fed)
