"""Shrinking offers smaller models that are valid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.fuzz.case import case_of, nodes_of
from tests.fuzz.judge import (
    Reference,
)
from tests.fuzz.shrink import _PASSES


def test_shrinking_offers_smaller_models_that_are_valid() -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
        { a = Relu(x) b = Softmax<axis = -1>(a) y = Tanh(b) z = Neg(a) }"""
    case = case_of(text, x=np.ones((3, 4), np.float32))
    smaller = [candidate for candidates in _PASSES for candidate in candidates(case)]
    assert any(len(c.model.graph.node) == 1 for c in smaller)
    assert any(c.feeds[0]["x"].shape == (1, 4) for c in smaller if "x" in c.feeds[0])
    for candidate in smaller:
        Reference(replace(candidate).model).run(candidate.feeds[0])


def test_shrinking_takes_strings_and_regions() -> None:
    case = case_of(
        """g (string one, string[N] x, bool which) => (bool[N] y, float[N] z)
        {
            y = Equal(x, one)
            z = If (which) <
                then_branch = t () => (float[N] p) { q = Not(y) p = Cast<to = 1>(q) },
                else_branch = e () => (float[N] r) { r = Cast<to = 1>(y) unused = Not(y) }
            >
        }""",
        one=np.array("7", object),
        x=np.array(["7", "8", "7"], object),
        which=np.array(True),
    )
    smaller = [candidate for candidates in _PASSES for candidate in candidates(case)]
    assert any(c.feeds[0]["x"].shape == (1,) for c in smaller if "x" in c.feeds[0])
    assert any(len(list(nodes_of(c.model.graph))) == 5 for c in smaller)
