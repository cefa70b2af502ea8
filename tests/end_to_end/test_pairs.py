"""Some of the models of `tests.end_to_end.pairs`, each kind of operator and view among them."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.end_to_end.pairs import (
    CONSUMERS,
    OPERATORS,
    OPTIONS,
    VIEWS,
    Meeting,
    Pair,
    build,
    check,
    meetings,
    pairs,
)

CHOSEN = [pair for pair in random.Random(0).sample(list(pairs()), 400) if build(pair)]


@pytest.mark.parametrize(
    ("pair", "options"),
    list(zip(CHOSEN, itertools.cycle(OPTIONS))),
    ids=lambda of: of if isinstance(of, str) else " ".join(vars(of).values()),
)
def test_pairs_of_operators(pair: Pair, options: str) -> None:
    check(pair, OPTIONS[options])


def test_all_kinds_are_among_them() -> None:
    assert {pair.producer for pair in CHOSEN} == set(OPERATORS)
    assert {pair.view for pair in CHOSEN} == set(VIEWS)
    assert {pair.consumer for pair in CHOSEN} == set(CONSUMERS)


SQUARE = [m for m in meetings() if m.producer == "input" and m.declared == "one symbol"]
PRODUCTS = [m for m in SQUARE if m.left == m.right == "product" and build(m)]
MET = [m for m in random.Random(0).sample(list(meetings()), 1500) if build(m)]


@pytest.mark.parametrize("meeting", [*PRODUCTS, *MET], ids=lambda of: " ".join(vars(of).values()))
def test_readers_of_one_value_that_meet_behind(meeting: Meeting) -> None:
    """Products of the same rows share a kernel; of the same value through other views, they do not."""
    check(meeting, OPTIONS["as it is"])


def test_all_views_meet_all() -> None:
    met = {(m.left_view, m.right_view) for m in PRODUCTS}
    assert met >= {(view, view) for view in VIEWS}
    assert {view for pair in met for view in pair} == set(VIEWS)
    assert {m.producer for m in MET} == {"input", *OPERATORS}
