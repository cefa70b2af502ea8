"""Verdicts: what a rule may answer, with its reason.

A verdict is a value. It names the symbols it hung on, so that a report can say for which dims the
answer would have been another.
"""

from __future__ import annotations

import enum

from dvm_graph.records import record


class Verdict(enum.Enum):
    """What happens to two neighbours, or to kernels that could share a stage or a launch."""

    PATTERN = "pattern"
    """One meta-kernel: the iteration spaces provably merge."""
    SPECULATE = "speculate"
    """One meta-kernel behind a guard, and a fallback: the proof is UNKNOWN."""
    PARALLEL = "parallel"
    """Side by side in one stage: independent."""
    SEQUENCE = "sequence"
    """One launch, a barrier in between: dependent, or independent but too many."""
    SEPARATE = "separate"
    """Launches of their own: a vendor operator or a limit stands between."""


@record(frozen=True, slots=True)
class Decision:
    """One verdict, as reports show it."""

    subject: str
    """Who was judged: `producer -> consumer`, or the names of kernels."""
    verdict: Verdict
    reason: str
    symbols: tuple[str, ...] = ()
    """Names of the symbols the answer hung on; empty: none."""
    in_fallback: bool = False
    """Between operators of one kernel, as its fallback was fused; once for all kernels that are alike."""

    def __str__(self) -> str:
        """One line: who was judged, how, and why."""
        where = "in the fallback, " if self.in_fallback else ""
        hung = f" (depends on {', '.join(self.symbols)})" if self.symbols else ""
        return f"{where}{self.subject}: {self.verdict.value}, {self.reason}{hung}"
