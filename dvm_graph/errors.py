"""One hierarchy of errors: everything dvm_graph raises on purpose derives from `DvmError`.

Every message says what failed, where (ONNX node name), and what to try; nothing else is lost: the
model stays usable after an error at run time.
"""

from __future__ import annotations


class DvmError(Exception):
    """Base of all errors of dvm_graph."""

    nodes: tuple[str, ...] = ()
    """Names of the ONNX nodes that could not be compiled, where that is known."""


class ModelError(DvmError):
    """The model file is not a valid ONNX model: truncated, cyclic, inconsistent."""


class ExternalDataError(ModelError):
    """External data is missing, too short, or outside the model's folder."""


class UnsupportedError(DvmError):
    """The model is valid, but holds something that neither the compiler nor the vendor can run."""


class StrictError(UnsupportedError):
    """`strict=True`, and some operators would need the vendor library."""


class ShapeError(DvmError):
    """Shapes contradict each other, in the model or in the inputs of a run."""


class InputError(DvmError, ValueError):
    """An input of a run is missing, unknown, or of a wrong dtype or rank."""


class OutOfMemoryError(DvmError, MemoryError):
    """A run needs more memory than the machine has."""


class ExecutionError(DvmError, RuntimeError):
    """A kernel or vendor operator failed while running (an index out of range, say)."""


class CompileError(DvmError):
    """The compiler broke one of its own invariants: a defect to be reported."""


class MiscompileError(CompileError):
    """`check=True`, and a pass or a kernel does not compute what the model's operators mean."""


class RescueWarning(UserWarning):
    """Part of a model, or all of it, could not be compiled and runs on onnxruntime instead. Turned into
    an error (`warnings.simplefilter`, `-W error`), it lets the compiler's own error out.
    """
