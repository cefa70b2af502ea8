"""dvm_graph: a real-time compiler for ONNX models whose shapes are known only when they run."""

from typing import TYPE_CHECKING, Any

from dvm_graph import editable as editable  # first, before the compiled module is looked for
from dvm_graph.compare import Comparison, compare
from dvm_graph.errors import (
    CancelledError,
    CompileError,
    DamagedError,
    DvmError,
    ExecutionError,
    ExternalDataError,
    InputError,
    LimitError,
    MiscompileError,
    ModelError,
    OutOfMemoryError,
    RescueWarning,
    ShapeError,
    StrictError,
    UnsupportedError,
)
from dvm_graph.ir import ModelMetadata
from dvm_graph.model import Model, TensorInfo, optimize
from dvm_graph.options import FusionLimits, Options
from dvm_graph.runtime import RunOptions

if TYPE_CHECKING:
    from dvm_graph.session import InferenceSession, IOBinding

__version__ = "0.1.0"

__all__ = [
    "CancelledError",
    "Comparison",
    "CompileError",
    "DamagedError",
    "DvmError",
    "ExecutionError",
    "ExternalDataError",
    "FusionLimits",
    "IOBinding",
    "InferenceSession",
    "InputError",
    "LimitError",
    "MiscompileError",
    "Model",
    "ModelError",
    "ModelMetadata",
    "Options",
    "OutOfMemoryError",
    "RescueWarning",
    "RunOptions",
    "ShapeError",
    "StrictError",
    "TensorInfo",
    "UnsupportedError",
    "compare",
    "optimize",
]


def __getattr__(name: str) -> Any:
    """The session is loaded when asked for: onnxruntime, whose tensors it takes, loads for a while."""
    if name in ("InferenceSession", "IOBinding"):
        from dvm_graph import session

        return getattr(session, name)
    raise AttributeError(f"module 'dvm_graph' has no attribute {name!r}")
