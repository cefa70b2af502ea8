"""Some of the pairs of `tests.end_to_end.pairs`, each kind of operator and view among them."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.end_to_end.pairs import CONSUMERS, OPERATORS, OPTIONS, VIEWS, Pair, build, check, pairs

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
