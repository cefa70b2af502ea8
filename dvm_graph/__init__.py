"""dvm_graph: a real-time compiler for ONNX models whose shapes are known only when they run."""

from dvm_graph.compare import Comparison, compare
from dvm_graph.errors import (
    CompileError,
    DvmError,
    ExecutionError,
    ExternalDataError,
    InputError,
    ModelError,
    OutOfMemoryError,
    ShapeError,
    StrictError,
    UnsupportedError,
)
from dvm_graph.model import Model, TensorInfo, optimize
from dvm_graph.options import FusionLimits, Options

__version__ = "0.1.0"

__all__ = [
    "Comparison",
    "CompileError",
    "DvmError",
    "ExecutionError",
    "ExternalDataError",
    "FusionLimits",
    "InputError",
    "Model",
    "ModelError",
    "Options",
    "OutOfMemoryError",
    "ShapeError",
    "StrictError",
    "TensorInfo",
    "UnsupportedError",
    "compare",
    "optimize",
]
