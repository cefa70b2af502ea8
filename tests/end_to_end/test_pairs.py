"""Some of the models of `tests.end_to_end.pairs`, each kind of operator and view among them."""

from __future__ import annotations

import itertools
import random

import pytest

import dvm_graph
from dvm_graph._core import simd_levels
from tests.end_to_end.pairs import (
    BESIDE,
    OPTIONS,
    Meeting,
    Pair,
    build,
    check,
    meetings,
    pairs,
)
from tests.end_to_end.steps import CONSUMERS, OPERATORS, VIEWS

LEVELS = simd_levels()
NO_FLOATS = {"compared"}
"""Operators that are not among pairs of floats."""


def _name(case: Pair) -> str:
    return " ".join(vars(case).values())


CHOSEN = [pair for pair in random.Random(0).sample(pairs(), 400) if build(pair)]


@pytest.mark.parametrize(
    ("pair", "options"),
    list(zip(CHOSEN, itertools.cycle(OPTIONS))),
    ids=lambda of: of if isinstance(of, str) else _name(of),
)
def test_pairs_of_operators(pair: Pair, options: str) -> None:
    check(pair, OPTIONS[options])


NARROW = [
    (pair, simd)
    for dtype, count in (("float16", 160), ("bfloat16", 160), ("float64", 80))
    for pair, simd in zip(
        random.Random(dtype).sample(pairs(dtype), count), itertools.cycle((None, *LEVELS))
    )
    if build(pair)
]


@pytest.mark.parametrize(
    ("pair", "simd"), NARROW, ids=lambda of: str(of) if not isinstance(of, Pair) else _name(of)
)
def test_pairs_of_operators_in_other_types(pair: Pair, simd: str | None) -> None:
    """On all levels of the units that this CPU has."""
    check(pair, dvm_graph.Options(simd=simd))


OTHERS = [
    (pair, options)
    for dtype in ("int64", "int32", "uint8", "bool")
    for pair, options in zip(
        random.Random(dtype).sample(pairs(dtype), 80), itertools.cycle(OPTIONS)
    )
    if build(pair)
]


@pytest.mark.parametrize(
    ("pair", "options"), OTHERS, ids=lambda of: of if isinstance(of, str) else _name(of)
)
def test_pairs_of_operators_on_what_are_no_floats(pair: Pair, options: str) -> None:
    check(pair, OPTIONS[options])


def test_all_kinds_are_among_those_of_half_types() -> None:
    halves = [pair for pair, _ in NARROW if pair.dtype != "float64"]
    assert {pair.producer for pair in halves} == set(OPERATORS) - NO_FLOATS
    assert {pair.consumer for pair in halves} == set(CONSUMERS) - NO_FLOATS
    assert {pair.view for pair in halves} == set(VIEWS)


def test_all_kinds_are_among_them() -> None:
    assert {pair.producer for pair in CHOSEN} == set(OPERATORS) - NO_FLOATS
    assert {pair.view for pair in CHOSEN} == set(VIEWS)
    assert {pair.consumer for pair in CHOSEN} == set(CONSUMERS) - NO_FLOATS
    assert {pair.beside for pair in CHOSEN} == set(BESIDE)
    assert {pair.view for pair, _ in OTHERS} == set(VIEWS)
    assert {pair.beside for pair, _ in OTHERS} == set(BESIDE) - {"consumer"}


SQUARE = meetings(producers=["input"], declared=["one symbol"], readers=["product"])
PRODUCTS = [m for m in SQUARE if build(m)]
MET = [m for m in random.Random(0).sample(meetings(), 1500) if build(m)]


@pytest.mark.parametrize("meeting", [*PRODUCTS, *MET], ids=lambda of: " ".join(vars(of).values()))
def test_readers_of_one_value_that_meet_behind(meeting: Meeting) -> None:
    """Products of the same rows share a kernel; of the same value through other views, they do not."""
    check(meeting, OPTIONS["as it is"])


def test_all_views_meet_all() -> None:
    met = {(m.left_view, m.right_view) for m in PRODUCTS}
    assert met >= {(view, view) for view in VIEWS}
    assert {view for pair in met for view in pair} == set(VIEWS)
    assert {m.producer for m in MET} == {"input", *OPERATORS} - NO_FLOATS
