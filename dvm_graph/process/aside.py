"""A call in another thread, for which the main one waits while it goes on running signal handlers.

Handlers run in the main thread only, and raise there (Ctrl-C does). So what runs aside is never cut in
two, and what takes long in a library keeps no handler waiting.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def in_main_thread() -> bool:
    """Whether handlers run in this thread, so that what takes long has to run aside."""
    return threading.current_thread() is threading.main_thread()


def call_aside(work: Callable[[], _T], interrupted: Callable[[], None]) -> _T:
    """Returns or raises what the work does, or raises what a handler raised meanwhile: at the end of
    the work, which `interrupted` is to hasten.

    A finalizer may ask when the interpreter is about to end, where threads do not start and no handler
    runs: the work is done right here. No garbage is collected meanwhile: a finalizer in the other thread
    might wait for what the main thread holds.
    """
    if sys.is_finalizing():
        return work()
    results: list[_T] = []
    failures: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            ended.set()

    interruption: BaseException | None = None
    collects = gc.isenabled()
    gc.disable()
    try:
        threading.Thread(target=run, name="dvm_graph.call_aside").start()
        while not ended.is_set():
            try:
                ended.wait()  # Thread.join takes a thread for ended whose wait was interrupted
            except BaseException as error:
                interruption = error
                interrupted()
    finally:
        if collects:
            gc.enable()
    if interruption is not None:
        raise interruption
    if failures:
        raise failures[0]
    return results[0]
