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
from typing import Any, TypeAlias, TypeVar, cast

_T = TypeVar("_T")
Outcome: TypeAlias = "tuple[Any, BaseException | None]"


class _Helper:
    """A thread that waits for work: to start one for each call takes longer than most calls do.

    Invariant: an interruption at any point leaves it as it was, or at work.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._serves = False
        self._outcomes: list[Outcome] | None = None

    @property
    def waits(self) -> bool:
        """It is of this process, and its last call is over."""
        return self.process == os.getpid() and self._outcomes != []

    def give(self, call: Callable[[], None], outcomes: list[Outcome]) -> None:
        """A call that puts down its outcome."""
        self._outcomes = outcomes
        if not self._serves:
            threading.Thread(target=self._serve, name="dvm_graph.call_aside", daemon=True).start()
        self._calls.put(call)

    def _serve(self) -> None:
        self._serves = True
        while True:
            self._calls.get()()


_helpers: list[_Helper] = []
"""The main thread's: one, and more where handlers call while it is at work."""


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
    begun = threading.Lock()  # by one of those that it was given to
    outcomes: list[Outcome] = []
    bell: SimpleQueue[None] = SimpleQueue()  # an interruption within an Event leaves its lock taken

    def run() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            outcomes.append((work(), None))
        except BaseException as error:
            outcomes.append((None, error))
        finally:
            bell.put(None)

    interruption: BaseException | None = None
    given = False
    collects = gc.isenabled()
    gc.disable()
    try:
        while not outcomes:
            try:  # an interruption may come behind anything that is done here
                if not given:
                    _waiting_helper().give(run, outcomes)
                    given = True
                bell.get()
            except BaseException as error:
                interruption = error
                interrupted()
    finally:
        if collects:
            gc.enable()
    if interruption is not None:
        raise interruption
    result, failure = outcomes[0]
    if failure is not None:
        raise failure
    return cast("_T", result)


def _waiting_helper() -> _Helper:
    for helper in _helpers:
        if helper.waits:
            return helper
    _helpers.append(_Helper())
    return _helpers[-1]
