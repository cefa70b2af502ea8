"""The control of compile times, over a clock of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from benchmarks.control import CONTROL_US, Control


class Clock:
    """Every look at it that ends a sum is `lasts` microseconds after the one before."""

    def __init__(self) -> None:
        self.lasts: Iterator[float] = itertools.repeat(CONTROL_US)
        self.sums = 0
        self._now = 0
        self._running = False

    def __call__(self) -> int:
        if self._running:
            self._now += round(next(self.lasts) * 1000)
            self.sums += 1
        self._running = not self._running
        return self._now


def test_the_longest_sum_is_told_of_as_many_as_the_time_holds() -> None:
    clock = Clock()
    control = Control(clock)
    clock.sums = 0
    clock.lasts = iter([99.0, 12.0, 70.0, 13.0, 80.0])
    assert (
        control.longest(3 * CONTROL_US) == 70.0
    )  # the first one fills the caches, the last is not run
    assert clock.sums == 4
    clock.lasts = itertools.repeat(CONTROL_US)
    assert control.longest(0.0) == 0.0
