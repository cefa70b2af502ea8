"""Loads modules that take long when they are needed: whole, or not at all.

The compiler, and onnx, which it stands on, load for a good part of a second, and so does
onnxruntime. What a signal handler raises in the middle of it (Ctrl-C, an alarm) would leave modules half
made that Python does not make again, and everything that needs them would fail from then on.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator

from dvm_graph.errors import OutOfMemoryError
from dvm_graph.process.aside import call_aside, in_main_thread

_LOADED: set[str] = set()


def load_onnxruntime() -> None:
    """Makes `import onnxruntime` a mere look-up."""
    load_module("onnxruntime")


def load_compiler() -> None:
    """Makes imports of the compiler's rooms mere look-ups."""
    load_module("dvm_graph.rescue")


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
        with _made_for_good():
            if in_main_thread():
                call_aside(lambda: importlib.import_module(module), lambda: None)
            else:
                importlib.import_module(module)
    except MemoryError as error:
        raise OutOfMemoryError(f"no memory left to load {module}") from error
    _LOADED.add(module)


@contextlib.contextmanager
def _made_for_good() -> Iterator[None]:
    """What is made meanwhile counts as old right away: modules live as long as the process, and the first search for garbage
    among all that they are made of would take a tenth of the time that they take to load. Not while a model is compiled:
    what that has made so far would count as old, too, and weights that it is done with would stay.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects and not gc.get_freeze_count():  # else `unfreeze` would undo what somebody froze
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()
