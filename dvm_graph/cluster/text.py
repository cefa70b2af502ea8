"""The text forms of clusters, fused subgraphs and schedules: deterministic, for dumps and golden tests.

    cluster 0, phase 0
      mix relu.0 if Equal(n, k)
        %h:f32[n, 4] = matmul(%x, %w)  // origin: a
        %y:f32[n, 4] = maximum(%h, %zero)  // origin: b
        stores %y
        else
          cube matmul.0
            ...
    a -> b: pattern, element-wise after a matrix product

Operators are written as in `ir.printer`. Nothing reads these texts back.
"""

from __future__ import annotations

from collections.abc import Iterator

from dvm_graph.cluster.stack import ControlCall, HostCall, HostDims, Launch, Schedule, VendorCall
from dvm_graph.cluster.subgraph import ClusteredGraph, FusedGraph, FusedSubgraph
from dvm_graph.ir.printer import print_node

_INDENT = "  "


def print_clusters(clustered: ClusteredGraph) -> str:
    lines: list[str] = []
    for part in clustered.clusters:
        library = ", vendor library" if part.vendor else ""
        lines.append(f"cluster {part.index}, phase {part.phase}{library}")
        lines += [_INDENT + print_node(node) for node in part.nodes]
    return _text([*lines, *map(str, clustered.report.decisions)])


def print_subgraphs(fused: FusedGraph) -> str:
    lines: list[str] = []
    for part in fused.clusters:
        if part.vendor:
            continue
        lines.append(f"cluster {part.index}, phase {part.phase}")
        for subgraph in fused.subgraphs[part]:
            lines += _subgraph(subgraph, _INDENT)
    return _text([*lines, *map(str, fused.report.decisions)])


def print_schedule(schedule: Schedule) -> str:
    lines: list[str] = []
    for step in schedule.steps:
        match step:
            case Launch():
                for number, stage in enumerate(step.stages):
                    lines.append(f"launch, stage {number}" if number == 0 else f"stage {number}")
                    for subgraph in stage:
                        lines += _subgraph(subgraph, _INDENT)
            case VendorCall():
                lines.append("vendor library")
                lines += [_INDENT + print_node(node) for node in step.nodes]
            case ControlCall():
                lines.append("control flow")
                lines.append(_INDENT + print_node(step.node))
            case HostCall():
                lines.append("host operator")
                lines.append(_INDENT + print_node(step.node))
            case HostDims():
                lines.append("dims, written by the host")
                lines.append(_INDENT + print_node(step.node))
    return _text([*lines, *map(str, schedule.report.decisions)])


def _subgraph(subgraph: FusedSubgraph, indent: str) -> Iterator[str]:
    guard = f" if {' and '.join(map(str, subgraph.guards))}" if subgraph.guards else ""
    weighed = " where faster" if subgraph.weighed else ""
    yield f"{indent}{subgraph.kind.value} {subgraph.name}{guard}{weighed}"
    inner = indent + _INDENT
    for node in subgraph.nodes:
        yield inner + print_node(node)
    yield f"{inner}stores {', '.join('%' + value.name for value in subgraph.outputs)}"
    if subgraph.fallback:
        yield f"{inner}else"
        for other in subgraph.fallback:
            yield from _subgraph(other, inner + _INDENT)


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
