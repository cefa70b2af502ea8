"""Loads onnxruntime: whole, or not at all.

Its import runs for a good part of a second. What a signal handler raises in the middle of it (Ctrl-C, an
alarm) would leave modules half made that Python does not make again, and every model with vendor
operators would fail from then on. Handlers run in the main thread only, so another one imports it.
"""

from __future__ import annotations

import sys
import threading


def load_onnxruntime() -> None:
    """Makes `import onnxruntime` a mere look-up; what a signal handler raises meanwhile comes later."""
    if threading.current_thread() is not threading.main_thread() or _LOADED.is_set():
        return
    failures: list[BaseException] = []

    def load() -> None:
        try:
            import onnxruntime  # noqa: F401 - loading it is all
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=load, name="dvm_graph loads onnxruntime")
    thread.start()
    interruption: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:
            interruption = error
    if failures:
        raise failures[0]
    if "onnxruntime" in sys.modules:
        _LOADED.set()
    if interruption is not None:
        raise interruption


_LOADED = threading.Event()
