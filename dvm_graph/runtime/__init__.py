"""The executor: plans of models become programs that run at the shapes of their inputs."""

from dvm_graph.runtime.assemble import assemble
from dvm_graph.runtime.program import (
    CompileTime,
    KernelListing,
    LaunchProfile,
    Program,
    RunStatistics,
)

__all__ = ["CompileTime", "KernelListing", "LaunchProfile", "Program", "RunStatistics", "assemble"]
