"""Short names for long dims: what a table, a picture or a page says in place of an expression.

In: the dims of a model, as they are met. Out: texts of at most `LONGEST` characters, and a legend that
says what each short name stands for, in terms of those before it; so no line of the legend is long
either, however a model nests its dims.

Invariants: one name for each dim, the same dim at each place, and none that the model has for its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping

from dvm_graph.symbolic.expressions import Expression, Symbol
from dvm_graph.symbolic.polynomial import Dim

LONGEST = 20
"""Characters of a dim that is shown as it is."""


class Aliases:
    """Texts of the dims of one model."""

    def __init__(self, taken: Container[str]) -> None:
        self._taken = taken
        self._shown: dict[Dim, Dim] = {}
        self._meanings: dict[str, str] = {}

    @property
    def meanings(self) -> Mapping[str, str]:
        """What each short name stands for, those it builds on before it."""
        return self._meanings

    def extent(self, dim: Dim) -> int | str:
        """A dim as a report shows it: a number, or a text."""
        return dim if isinstance(dim, int) else _text(self._show(dim))

    def _show(self, dim: Dim) -> Dim:
        """The dim over short operands, or the name for it."""
        shown = self._shown.get(dim)
        if shown is None:
            shown = dim
            if len(_text(dim)) > LONGEST:
                shown = (
                    dim.over(map(self._show, dim.args))
                    if isinstance(dim, Expression) and dim.args
                    else dim
                )
                text = _text(shown)
                shown = self._name(text) if len(text) > LONGEST else shown
            self._shown[dim] = shown
        return shown

    def _name(self, text: str) -> Symbol:
        names = (f"d{number}" for number in itertools.count())
        name = next(n for n in names if n not in self._taken and n not in self._meanings)
        self._meanings[name] = text
        return Symbol(name)


def _text(dim: Dim) -> str:
    """Without the brackets that a quotient has for where it is an operand."""
    text = str(dim)
    return text[1:-1] if text[0] == "(" and _closes(text) == len(text) - 1 else text


def _closes(text: str) -> int:
    """Where the bracket closes that the text begins with."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return index
    return -1
