"""Regular expressions as automata, for the host that searches text with them (`runtime/host_ops/text_pattern.h`).

In: an expression in the syntax of RE2, as onnxruntime takes it. Out: numbers; or None for what is beyond: look-around,
flags, classes of Unicode, lazy repeats, bytes that are no text, what does not parse, and expressions of very many states.

Characters fall into classes that no set of the expression tells apart, and states are sets of places in the
expression: the usual construction, so a search reads each character once per place where a match may begin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_Set: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges of characters, both ends in it, ascending and apart."""
_LAST = 0x10FFFF
_MAX_REPEATS = 100
_MAX_PLACES = 2000
_MAX_STATES = 500
_MAX_BORDERS = 50000
_PERL: dict[str, _Set] = {
    "d": ((48, 57),),
    "s": ((9, 10), (12, 13), (32, 32)),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
}
_ESCAPES = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7}


class _BeyondError(Exception):
    """The expression is none of those that are known here."""


@dataclass(slots=True)
class _Places:
    """An automaton that may be in several places: by place, where nothing leads, and where a character of a set does."""

    free: list[list[int]] = field(default_factory=list)
    by_set: list[tuple[_Set, int] | None] = field(default_factory=list)

    def add(self) -> int:
        if len(self.free) == _MAX_PLACES:
            raise _BeyondError
        self.free.append([])
        self.by_set.append(None)
        return len(self.free) - 1

    def closure(self, places: Sequence[int]) -> frozenset[int]:
        found, pending = set(places), list(places)
        while pending:
            for place in self.free[pending.pop()]:
                if place not in found:
                    found.add(place)
                    pending.append(place)
        return frozenset(found)


def pattern_numbers(expression: str, *, searched: bool) -> list[int] | None:
    """The automaton as `TextPattern` takes it; None: the expression is beyond it.

    `searched`: for matches within text, also of very long text: none of those that make a search go over it again and again.
    """
    try:
        return _numbers(expression, searched=searched)
    except (_BeyondError, RecursionError, UnicodeEncodeError):
        return None


def matches_nothing(numbers: Sequence[int]) -> bool:
    """Whether an automaton matches the empty string."""
    return bool(numbers[3 + 2 * numbers[2] + 1])


def _numbers(expression: str, *, searched: bool) -> list[int]:
    expression.encode()
    if not searched:  # as a whole: ends are where they are
        expression = expression.removeprefix("^")
        if expression.endswith("$") and not expression.endswith("\\$"):
            expression = expression[:-1]
            if "|" in expression:
                raise _BeyondError
    places = _Places()
    start, end = _Parser(expression, places).parse()
    sets = dict.fromkeys(step[0] for step in places.by_set if step)
    borders = sorted({edge for s in sets for a, b in s for edge in (a, b + 1)} - {0, _LAST + 1})
    if len(borders) > _MAX_BORDERS:
        raise _BeyondError
    classes, of_interval = _classes(list(sets), borders)
    leads = [step and (classes[step[0]], step[1]) for step in places.by_set]
    count = max(of_interval) + 1
    closures: dict[tuple[int, ...], frozenset[int]] = {}
    states = {places.closure([start]): 0}
    steps: list[list[int]] = []
    pending = list(states)
    for state in pending:
        moved: list[list[int]] = [[] for _ in range(count)]
        for lead in filter(None, map(leads.__getitem__, sorted(state))):
            for number in lead[0]:
                moved[number].append(lead[1])
        row = []
        for places_behind in map(tuple, moved):
            behind = closures.get(places_behind)
            if behind is None:
                behind = closures[places_behind] = places.closure(places_behind)
            if behind and behind not in states:
                if len(states) == _MAX_STATES:
                    raise _BeyondError
                states[behind] = len(states)
                pending.append(behind)
            row.append(states[behind] if behind else -1)
        steps.append(row)
    accepts = [int(end in state) for state in states]
    if searched and _wanders(steps, accepts):
        raise _BeyondError
    flat = [state for row in steps for state in row]
    return [count, len(states), len(borders), *borders, *of_interval, *accepts, *flat]


def _classes(
    sets: Sequence[_Set], borders: Sequence[int]
) -> tuple[dict[_Set, set[int]], list[int]]:
    """Characters by the sets that they are in: the classes of each set, and the class of each interval between borders."""
    inside: list[list[int]] = [[] for _ in range(len(borders) + 1)]
    for at, characters in enumerate(sets):
        for first, last in characters:
            for interval in range(bisect_right(borders, first), bisect_right(borders, last) + 1):
                inside[interval].append(at)
    numbers: dict[tuple[int, ...], int] = {}
    of_interval = [numbers.setdefault(tuple(within), len(numbers)) for within in inside]
    classes: dict[_Set, set[int]] = {characters: set() for characters in sets}
    for within, number in numbers.items():
        for at in within:
            classes[sets[at]].add(number)
    return classes, of_interval


def _wanders(steps: Sequence[Sequence[int]], accepts: Sequence[int]) -> bool:
    """Whether a search may read any number of characters and find no longer match by it."""
    inner = {s: {n for n in row if n >= 0 and not accepts[n]} for s, row in enumerate(steps)}
    inner = {s: behind for s, behind in inner.items() if not accepts[s]}
    while True:  # takes away what leads nowhere: cycles stay
        ends = [s for s, behind in inner.items() if not behind & inner.keys()]
        if not ends:
            return bool(inner)
        for s in ends:
            del inner[s]


class _Parser:
    """Reads an expression, and builds its places from where it is read."""

    def __init__(self, text: str, places: _Places) -> None:
        self._text = text
        self._at = 0
        self._places = places

    def parse(self) -> tuple[int, int]:
        ends = self._alternatives()
        if self._at != len(self._text):
            raise _BeyondError
        return ends

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _alternatives(self) -> tuple[int, int]:
        start, end = self._places.add(), self._places.add()
        while True:
            first, last = self._sequence()
            self._places.free[start].append(first)
            self._places.free[last].append(end)
            if not self._take("|"):
                return start, end

    def _sequence(self) -> tuple[int, int]:
        start = end = self._places.add()
        while self._next() not in ("", "|", ")"):
            first, last = self._repeated()
            self._places.free[end].append(first)
            end = last
        return start, end

    def _repeated(self) -> tuple[int, int]:
        begin = self._at
        part = self._atom()
        behind = self._at
        least, most = self._count()
        if (least, most) == (1, 1):
            return part
        stop = self._at
        if self._next() in ("*", "+", "?", "{"):
            raise _BeyondError
        start = end = self._places.add()
        copies = least if most is None else most
        for copy in range(max(copies, 1)):
            if copy:
                part = self._again(begin, behind)
            first, last = part
            self._places.free[end].append(first)
            if copy >= least:
                self._places.free[end].append(skipped := self._places.add())
                self._places.free[last].append(skipped)
                last = skipped
            if most is None and copy == max(copies, 1) - 1:
                self._places.free[last].append(first)
            end = last
        self._at = stop
        if most == 0:
            start = end = self._places.add()
        return start, end

    def _again(self, begin: int, behind: int) -> tuple[int, int]:
        self._at = begin
        part = self._atom()
        assert self._at == behind
        return part

    def _count(self) -> tuple[int, int | None]:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return counts
        if not self._take("{"):
            return 1, 1
        inside, closed, _ = self._text[self._at :].partition("}")
        least, comma, most = inside.partition(",")
        numbers = [n for n in (least, most) if n]
        if not closed or not least or not all(n.isascii() and n.isdigit() for n in numbers):
            raise _BeyondError
        self._at += len(inside) + 1
        low, high = int(least), int(most) if most else None if comma else int(least)
        if max(low, high or 0) > _MAX_REPEATS or (high is not None and high < low):
            raise _BeyondError
        return low, high

    def _atom(self) -> tuple[int, int]:
        character = self._next()
        self._at += 1
        if character == "(":
            if not self._take("?:") and self._next() == "?":
                raise _BeyondError
            ends = self._alternatives()
            if not self._take(")"):
                raise _BeyondError
            return ends
        if character in "*+?{^$":
            raise _BeyondError
        if character == ".":
            return self._one(((0, 9), (11, _LAST)))
        if character == "[":
            return self._one(self._class())
        if character == "\\":
            return self._one(self._escape())
        return self._one(((ord(character), ord(character)),))

    def _one(self, characters: _Set) -> tuple[int, int]:
        start, end = self._places.add(), self._places.add()
        self._places.by_set[start] = (characters, end)
        return start, end

    def _escape(self) -> _Set:
        character = self._next()
        self._at += 1
        if character.lower() in _PERL and character:
            ranges = _PERL[character.lower()]
            return ranges if character.islower() else _others(ranges)
        if character in _ESCAPES and character:
            return ((_ESCAPES[character], _ESCAPES[character]),)
        if not character or not character.isascii() or character.isalnum() or character == "_":
            raise _BeyondError
        return ((ord(character), ord(character)),)

    def _class(self) -> _Set:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self._take("]"):
            if self._next() in ("", "[") or (
                self._next() == "-" and not first and not self._ends()
            ):
                raise _BeyondError
            first = False
            low = self._member()
            if self._next() == "-" and not self._ends():
                self._at += 1
                high = self._member()
                if (
                    len(low) != 1
                    or len(high) != 1
                    or low[0][0] != low[0][1]
                    or high[0][0] < low[0][0]
                ):
                    raise _BeyondError
                low = ((low[0][0], high[0][1]),)
                if high[0][0] != high[0][1]:
                    raise _BeyondError
            ranges += low
        joined = _joined(ranges)
        return _others(joined) if negated else joined

    def _ends(self) -> bool:
        """Whether the class ends behind the next character."""
        return self._text.startswith("]", self._at + 1)

    def _member(self) -> _Set:
        character = self._next()
        if character in ("", "["):
            raise _BeyondError
        self._at += 1
        return self._escape() if character == "\\" else ((ord(character), ord(character)),)


def _joined(ranges: Sequence[tuple[int, int]]) -> _Set:
    result: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


def _others(ranges: _Set) -> _Set:
    result, behind = [], 0
    for low, high in ranges:
        if low > behind:
            result.append((behind, low - 1))
        behind = high + 1
    if behind <= _LAST:
        result.append((behind, _LAST))
    return tuple(result)
