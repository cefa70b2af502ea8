"""What may fuse or stack: verdicts, and the judgement by the table of patterns."""

from dvm_graph.rules.judging import SIBLINGS, Ruling, judge
from dvm_graph.rules.space import Merge, MergeProof, PartKind
from dvm_graph.rules.verdicts import Decision, Verdict

__all__ = [
    "SIBLINGS",
    "Decision",
    "Merge",
    "MergeProof",
    "PartKind",
    "Ruling",
    "Verdict",
    "judge",
]
