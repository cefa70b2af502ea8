"""What may fuse or stack: verdicts, and the table of patterns with its predicates."""

from dvm_graph.rules.space import Meeting, Merge, MergeProof, Part, PartKind
from dvm_graph.rules.table import PATTERNS, SIBLINGS, Pattern, Ruling, judge
from dvm_graph.rules.verdicts import Decision, Verdict

__all__ = [
    "PATTERNS",
    "SIBLINGS",
    "Decision",
    "Meeting",
    "Merge",
    "MergeProof",
    "Part",
    "PartKind",
    "Pattern",
    "Ruling",
    "Verdict",
    "judge",
]
