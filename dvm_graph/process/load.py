"""Loads modules that take long when they are needed: whole, or not at all.

The compiler, and onnx, which it stands on, load for a good part of a second, and so does
onnxruntime. What a signal handler raises in the middle of it (Ctrl-C, an alarm) would leave modules half
made that Python does not make again, and everything that needs them would fail from then on.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dvm_graph.errors import OutOfMemoryError
from dvm_graph.process.aside import call_aside, in_main_thread
from dvm_graph.process.collector import made_for_good

if TYPE_CHECKING:
    import onnxruntime

_LOADED: set[str] = set()


def load_onnxruntime() -> None:
    """Makes `import onnxruntime` a mere look-up."""
    load_module("onnxruntime")


def load_compiler() -> None:
    """Makes imports of the compiler's rooms mere look-ups."""
    load_module("dvm_graph.rescue")


def vendor_session() -> type[onnxruntime.InferenceSession]:
    """The class of onnxruntime's own sessions, also where a program put another one in its place, ours perhaps."""
    load_onnxruntime()
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession

    own: type[onnxruntime.InferenceSession] = InferenceSession
    return own


def vendor_failures() -> tuple[type[Exception], ...]:
    """What onnxruntime raises on models and inputs that it refuses."""
    load_onnxruntime()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    refusals = (
        raised
        for raised in vars(state).values()
        if isinstance(raised, type) and issubclass(raised, Exception)
    )
    return (*refusals, RuntimeError, ValueError)


def load_module(module: str) -> None:
    """Makes its import a mere look-up.

    Raises:
        OutOfMemoryError: there is not enough left.
    """
    if module in _LOADED:
        return
    try:
        with made_for_good():
            if in_main_thread():
                call_aside(lambda: importlib.import_module(module), lambda: None)
            else:
                importlib.import_module(module)
    except MemoryError as error:
        raise OutOfMemoryError(f"no memory left to load {module}") from error
    _LOADED.add(module)
