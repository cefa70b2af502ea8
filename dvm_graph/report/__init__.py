"""What a user looks at: the report of a compiled model, as text, JSON and pictures."""

from dvm_graph.report.collect import make_report
from dvm_graph.report.draw import FORMATS, draw, draw_report, picture_path
from dvm_graph.report.report import Operator, Report, Subgraph, SubgraphKind, Tensor, describe

__all__ = [
    "FORMATS",
    "Operator",
    "Report",
    "Subgraph",
    "SubgraphKind",
    "Tensor",
    "describe",
    "draw",
    "draw_report",
    "make_report",
    "picture_path",
]
