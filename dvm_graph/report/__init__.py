"""What a user looks at: the report of a compiled model, as text, JSON and pictures."""

from dvm_graph.report.collect import make_report
from dvm_graph.report.draw import FORMATS, draw_report, picture_path
from dvm_graph.report.report import Operator, Report, Subgraph, SubgraphKind, Tensor
from dvm_graph.report.times import Times

__all__ = [
    "FORMATS",
    "Operator",
    "Report",
    "Subgraph",
    "SubgraphKind",
    "Tensor",
    "Times",
    "draw_report",
    "make_report",
    "picture_path",
]
