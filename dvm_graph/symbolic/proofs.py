"""Answers with reasons.

A proof is about all values of the symbols that satisfy the facts: YES, it holds for each; NO, it
holds for none; UNKNOWN, it depends or nobody can say.
"""

from __future__ import annotations

import enum
from typing import Any, NoReturn

from dvm_graph.records import record


class Answer(enum.Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@record(frozen=True, slots=True)
class Proof:
    """An answer and what it hangs on. Not a truth value: UNKNOWN is neither."""

    answer: Answer
    pattern: str
    """The reason, with a `{}` for each subject; formatted only when asked for."""
    subjects: tuple[Any, ...] = ()
    because: tuple[str, ...] = ()
    """Reasons of the facts that were used."""

    @property
    def yes(self) -> bool:
        return self.answer is Answer.YES

    @property
    def no(self) -> bool:
        return self.answer is Answer.NO

    @property
    def unknown(self) -> bool:
        return self.answer is Answer.UNKNOWN

    @property
    def reason(self) -> str:
        """Why, in words, naming the symbols."""
        text = self.pattern.format(*self.subjects)
        return f"{text}, as {'; '.join(self.because)}" if self.because else text

    def __bool__(self) -> NoReturn:
        raise TypeError("a Proof is not a truth value; ask for .yes, .no or .unknown")
