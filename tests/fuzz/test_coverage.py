"""What the fuzzer does not draw is written down, with the reason; the list may only get shorter."""

from __future__ import annotations

import pytest

from tests.fuzz.coverage import meant, undrawn, versions, wanted
from tests.fuzz.left_out import LEFT_OUT

CHUNKS = 4
ALL = sorted(versions())


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_all_parts_of_operators_are_drawn_or_left_out_by_name(chunk: int) -> None:
    """Every attribute, operand, result and element type of every version of every operator."""
    found = {which: undrawn(*which) for which in ALL[chunk::CHUNKS]}
    left = {which: sorted(parts) for which, (parts, _) in found.items() if parts}
    assert not left, f"no recipe draws {left}"
    stale = {which: sorted(parts) for which, (_, parts) in found.items() if parts}
    assert not stale, f"are drawn, and no longer to be listed: {stale}"


def test_what_is_left_out_is_there() -> None:
    for listed in LEFT_OUT.values():
        for key, parts in listed.items():
            versions_of = [(n, v) for n, v in ALL if key in (n, f"{n} {v}")]
            there = {part for which in versions_of for part in wanted(*which)}
            assert all(meant(part, there) for part in parts.split("; ")), key
