"""Colours and type of the pictures: one row for each kind of subgraph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dvm_graph.report.report import SubgraphKind

FONT = "Helvetica"
INK = "#1f2937"
MUTED = "#6b7280"
EDGE = "#7c8798"
FRAME = "#9aa5b4"
PANEL = "#ffffff"


@dataclass(frozen=True, slots=True)
class Colours:
    header: str
    body: str
    label: str
    """What the legend says."""


KINDS: Mapping[SubgraphKind, Colours] = {
    SubgraphKind.VECTOR: Colours("#1d6fb8", "#eaf3fb", "vector kernel"),
    SubgraphKind.CUBE: Colours("#b45309", "#fdf3e3", "cube kernel"),
    SubgraphKind.MIX: Colours("#6d3fc0", "#f2ecfc", "mix kernel (cube and vector)"),
    SubgraphKind.VENDOR: Colours("#b4232f", "#fdecec", "vendor operator (onnxruntime)"),
    SubgraphKind.CONTROL: Colours("#0f766e", "#e6f6f4", "control flow (compiled bodies)"),
    SubgraphKind.OPERATOR: Colours("#8a5a00", "#f9f1e0", "operator carried out by the host"),
    SubgraphKind.HOST: Colours("#4b5563", "#f1f3f5", "dims written by the host"),
}
