"""The executor: plans of models become programs that run at the shapes of their inputs."""

from dvm_graph._core import KernelProfile, RunProfile
from dvm_graph.runtime.program import (
    CompileTime,
    FlagCounts,
    KernelListing,
    Program,
    RunStatistics,
)
from dvm_graph.runtime.run_options import RunOptions

__all__ = [
    "CompileTime",
    "FlagCounts",
    "KernelListing",
    "KernelProfile",
    "Program",
    "RunOptions",
    "RunProfile",
    "RunStatistics",
]
