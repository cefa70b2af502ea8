"""The order of turns, the points held together, and the point that a visit begins with."""

from __future__ import annotations

import itertools
import random

import pytest

from benchmarks.measure import chunks, settling_point
from benchmarks.turns import CEILINGS, CONTROL, draw_turns

ENGINES = ["dvm_graph", "onnxruntime", "openvino", "torch"]


def test_every_party_has_one_turn_and_the_control_is_apart() -> None:
    generator = random.Random(0)
    followers = set()
    for _ in range(200):
        order = draw_turns(ENGINES, generator)
        assert sorted(order) == sorted([*ENGINES, CEILINGS, CONTROL])
        assert abs(order.index(CEILINGS) - order.index("dvm_graph")) == 1
        engines = [name for name in order if name != CEILINGS]
        assert abs(engines.index(CONTROL) - engines.index("onnxruntime")) > 1
        followers |= set(itertools.pairwise(engines))
    apart = {("onnxruntime", CONTROL), (CONTROL, "onnxruntime")}
    parties = [*ENGINES, CONTROL]
    assert followers == {(a, b) for a in parties for b in parties if a != b} - apart


def test_turns_repeat_with_the_seed() -> None:
    first, again, other = (
        [draw_turns(ENGINES, generator) for _ in range(9)]
        for generator in map(random.Random, (1, 1, 2))
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("engines", "control", "parties"),
    [
        (["onnxruntime"], True, {"onnxruntime", CONTROL, CEILINGS}),
        (["onnxruntime", "torch"], False, {"onnxruntime", "torch", CEILINGS}),
        (["dvm_graph", "torch"], True, {"dvm_graph", "torch", CEILINGS}),
        ([], True, {CEILINGS}),
    ],
)
def test_absent_engines_have_no_turn(engines: list[str], control: bool, parties: set[str]) -> None:
    order = draw_turns(engines, random.Random(0), control=control)
    assert set(order) == parties and len(order) == len(parties)


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [
        (1, 3, [1]),
        (2, 3, [2]),
        (3, 3, [3]),
        (5, 3, [5]),
        (11, 3, [3, 4, 4]),
        (60, 3, [3] * 20),
        (7, 7, [7]),
    ],
)
def test_points_are_held_by_at_least_the_size(count: int, size: int, expected: list[int]) -> None:
    found = list(chunks(count, size))
    assert [len(chunk) for chunk in found] == expected
    assert [index for chunk in found for index in chunk] == list(range(count))


def test_a_visit_begins_at_the_next_point_that_the_engine_is_shown() -> None:
    chunk = range(3, 6)
    assert [settling_point(index, chunk, {3, 4, 5}) for index in chunk] == [4, 5, 3]
    assert settling_point(4, chunk, {3, 4}) == 3
    assert settling_point(4, chunk, {0, 4}) is None
    assert settling_point(0, range(1), {0}) is None
