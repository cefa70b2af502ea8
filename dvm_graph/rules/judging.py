"""The judgement of the rules: may two groups of operators share a kernel?

The patterns and their predicates are `table.def`, which the static and the streaming fuser share; the
core asks a `space.Meeting` what it needs to know. Rules are pure: nothing that the meeting knows is
another afterwards.
"""

from __future__ import annotations

from dvm_graph import _core
from dvm_graph.records import record
from dvm_graph.rules.space import Meeting
from dvm_graph.rules.verdicts import Verdict

SIBLINGS = "siblings"
"""The pattern of two groups that read a tensor at the same points, and do not depend on each other: no path leads
from one to the other, edges included. A meeting of siblings merges at no edges, so none may be there."""

_VERDICTS = {verdict.value: verdict for verdict in Verdict}


@record(frozen=True, slots=True)
class Ruling:
    """The answer of a rule, without its subject."""

    verdict: Verdict
    reason: str
    symbols: tuple[str, ...] = ()


def judge(meeting: Meeting, pattern: str = "") -> Ruling:
    """PATTERN, SPECULATE, or SEQUENCE with the reason why not; by the pattern of the kinds unless one is named."""
    verdict, reason, symbols = _core.judge(meeting, pattern)
    return Ruling(_VERDICTS[verdict], reason, symbols)
