"""Loads onnxruntime: whole, or not at all.

Its import runs for a good part of a second. What a signal handler raises in the middle of it (Ctrl-C, an
alarm) would leave modules half made that Python does not make again, and every model with vendor
operators would fail from then on.
"""

from __future__ import annotations

import importlib
import threading

from dvm_graph.import_.aside import call_aside, in_main_thread

_LOADED = threading.Event()


def load_onnxruntime() -> None:
    """Makes `import onnxruntime` a mere look-up."""
    if _LOADED.is_set() or not in_main_thread():
        return
    call_aside(lambda: importlib.import_module("onnxruntime"), lambda: None)
    _LOADED.set()
