"""One hierarchy of errors: everything dvm_graph raises on purpose derives from `DvmError`.

Every message says what failed, where (ONNX node name), and what to try; nothing else is lost: the
model stays usable after an error at run time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


class DvmError(Exception):
    """Base of all errors of dvm_graph."""

    nodes: tuple[str, ...] = ()
    """Names of the ONNX nodes that could not be compiled, where that is known."""


class ModelError(DvmError):
    """The model file is not a valid ONNX model: truncated, cyclic, inconsistent."""


class DamagedError(ModelError):
    """The file is no message of ONNX, holds bytes where text has to be, or leaves out one of any number of operands: nobody
    else is to read it either (onnxruntime has ended the process over such files).
    """


class ExternalDataError(ModelError):
    """External data is missing, too short, or outside the model's folder."""


class UnsupportedError(DvmError):
    """The model is valid, but holds something that neither the compiler nor the vendor can run."""


class StrictError(UnsupportedError):
    """`strict=True`, and some operators would need the vendor library."""


class ShapeError(DvmError):
    """Shapes contradict each other, in the model or in the inputs of a run."""


class ContradictionError(ShapeError):
    """Inputs of a run differ in dims that the model gives one name, and operators need them equal; or a result, or an
    input that is declared a scalar, has another rank than the model declares.
    """


class InputError(DvmError, ValueError):
    """An input of a run is missing, unknown, or of a wrong dtype or rank."""


class OutOfMemoryError(DvmError, MemoryError):
    """A run needs more memory than the machine has."""


class ExecutionError(DvmError, RuntimeError):
    """A kernel or vendor operator failed while running (an index out of range, say)."""


class CancelledError(DvmError):
    """A run was ended before it was done, by its `RunOptions`."""


class CompileError(DvmError):
    """The compiler broke one of its own invariants: a defect to be reported."""


class MiscompileError(CompileError):
    """`check=True`, and a pass or a kernel does not compute what the model's operators mean."""


class RescueWarning(UserWarning):
    """Part of a model, or all of it, could not be compiled and runs on onnxruntime instead. Turned into
    an error (`warnings.simplefilter`, `-W error`), it lets the compiler's own error out.
    """


class CacheWarning(UserWarning):
    """A compiled model could not be kept for the next start (`Options.cache`)."""


class LimitError(DvmError):
    """Compiling went beyond a limit of the options (`max_compile_seconds`, say)."""


@contextlib.contextmanager
def border(what: str) -> Iterator[None]:
    """Lets nothing but a `DvmError` out of what users call.

    Whatever else arises is a defect: every error that a model, an option or a feed can cause is raised
    where it is noticed, by its own class. Users still get the one hierarchy that they catch, and the
    original error as its cause. Interrupts pass.
    """
    try:
        yield
    except DvmError:
        raise
    except MemoryError as error:
        raise OutOfMemoryError(f"no memory left to {what}") from error
    except RecursionError as error:
        raise CompileError(f"too deeply nested to {what}: a defect, please report it") from error
    except Exception as error:  # whatever else is raised in here is a defect
        raise CompileError(
            f"cannot {what}: {type(error).__name__}: {error} (a defect, please report it)"
        ) from error


def checked_path(path: object) -> Path:
    """What a user gave as a path.

    Raises:
        InputError: it is none that a system could have.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise InputError(f"a path is a str or an os.PathLike of one, not {type(path).__name__}")
    if "\0" in text:
        raise InputError(f"a path has no null characters: {text!r}")
    return Path(text)


def output_path(path: str | os.PathLike[str]) -> Path:
    """Where something is to be written: looked at before the work whose result goes there.

    Raises:
        InputError: it is no path or a folder, its own folder is missing, or one of them may not be written.
    """
    target = checked_path(path)
    if target.is_dir():
        raise InputError(f"cannot write {str(target)!r}: it is a folder")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {str(target)!r}: there is no folder {str(target.parent)!r}")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise InputError(f"cannot write {str(target)!r}: no permission, or a read-only file system")
    return target


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """What the system has against writing a file, as an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {str(path)!r}: {error.strerror}") from error
