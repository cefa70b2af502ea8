"""Clusters, fused subgraphs and stacking."""

from dvm_graph.cluster.axes import AxisSpace
from dvm_graph.cluster.clusters import cluster
from dvm_graph.cluster.split import split_clusters
from dvm_graph.cluster.stack import HostDims, Launch, Schedule, VendorCall, stack
from dvm_graph.cluster.subgraph import (
    Axes,
    Cluster,
    ClusteredGraph,
    FusedGraph,
    FusedSubgraph,
    FusionReport,
    SubgraphKind,
)

__all__ = [
    "Axes",
    "AxisSpace",
    "Cluster",
    "ClusteredGraph",
    "FusedGraph",
    "FusedSubgraph",
    "FusionReport",
    "HostDims",
    "Launch",
    "Schedule",
    "SubgraphKind",
    "VendorCall",
    "cluster",
    "split_clusters",
    "stack",
]
