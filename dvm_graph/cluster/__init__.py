"""Clusters, fused subgraphs and stacking."""

from dvm_graph.cluster.clusters import cluster
from dvm_graph.cluster.split import split_clusters
from dvm_graph.cluster.stack import (
    ControlCall,
    HostCall,
    HostDims,
    Launch,
    Schedule,
    Step,
    VendorCall,
    stack,
)
from dvm_graph.cluster.subgraph import (
    FusedSubgraph,
    FusionReport,
    SubgraphKind,
)

__all__ = [
    "ControlCall",
    "FusedSubgraph",
    "FusionReport",
    "HostCall",
    "HostDims",
    "Launch",
    "Schedule",
    "SubgraphKind",
    "Step",
    "VendorCall",
    "cluster",
    "split_clusters",
    "stack",
]
