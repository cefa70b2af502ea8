"""A call in another thread, for which the main one waits while it goes on running signal handlers.

Handlers run in the main thread only, and raise there (Ctrl-C does). So what runs aside is never cut in
two, and what takes long in a library keeps no handler waiting.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")


class _Helper:
    """A thread that waits for work: to start one for each call takes longer than most calls do."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._serve, name="dvm_graph.call_aside", daemon=True).start()

    def give(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _serve(self) -> None:
        while True:
            self._work.get()()


_idle: list[_Helper] = []
"""Of this process, or of the one that it was forked from, whose threads are not here. The main thread's."""


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
    outcome: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put((work(), None))
        except BaseException as error:
            outcome.put((None, error))

    interruption: BaseException | None = None
    collects = gc.isenabled()
    gc.disable()
    try:
        helper = _take_helper()
        helper.give(run)
        while True:
            try:
                result, failure = outcome.get()
                break
            except BaseException as error:
                interruption = error
                interrupted()
        _idle.append(helper)
    finally:
        if collects:
            gc.enable()
    if interruption is not None:
        raise interruption
    if failure is not None:
        raise failure
    return result  # type: ignore[no-any-return]


def _take_helper() -> _Helper:
    while _idle:
        helper = _idle.pop()
        if helper.process == os.getpid():
            return helper
    return _Helper()
