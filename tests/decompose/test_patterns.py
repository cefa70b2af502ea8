"""Expressions as automata: beside Python's, and how much work they are."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from dvm_graph.decompose.patterns import pattern_numbers


def matches(numbers: list[int], text: str) -> bool:
    """As `runtime/host_ops/text_pattern.h` reads them."""
    classes, states, borders = numbers[:3]
    edges, rest = numbers[3 : 3 + borders], numbers[3 + borders :]
    of_interval, rest = rest[: borders + 1], rest[borders + 1 :]
    accepts, steps = rest[:states], rest[states:]
    state = 0
    for character in text:
        interval = int(np.searchsorted(edges, ord(character), "right"))
        state = steps[state * classes + of_interval[interval]]
        if state < 0:
            return False
    return bool(accepts[state])


CHARACTERS = [chr(0x4E00 + 2 * at) for at in range(400)]
EXPRESSIONS = {
    "alternatives": f"(?:{'|'.join(CHARACTERS)})*",
    "a class": f"[{''.join(CHARACTERS * 8)}]+",
    "overlapping classes": "".join(
        f"[{''.join(CHARACTERS[at : at + 300])}]?" for at in range(0, 80, 4)
    ),
    "ranges": "[a-fc-k]*[^b-dj]{2,3}|[\\d\\-a]+",
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_of_many_characters(name: str) -> None:
    """A class for each of these: work for each state and class that meets all places would take a minute."""
    start = time.process_time()
    numbers = pattern_numbers(EXPRESSIONS[name], searched=False)
    assert time.process_time() - start < 5
    assert numbers is not None
    compiled, rng = re.compile(EXPRESSIONS[name]), np.random.default_rng(0)
    letters = [*CHARACTERS[::40], CHARACTERS[-1], *"abcdejkl09-\n", "\u4e01", "\U0001f600"]
    texts = ["".join(rng.choice(letters[at % 11 :], rng.integers(0, 5))) for at in range(300)]
    assert [matches(numbers, text) for text in texts] == [
        compiled.fullmatch(text) is not None for text in texts
    ]


def test_more_borders_than_the_host_takes() -> None:
    alternating = "".join(chr(0x10000 + 2 * at) for at in range(40000))
    assert pattern_numbers(f"[{alternating}]", searched=False) is None
