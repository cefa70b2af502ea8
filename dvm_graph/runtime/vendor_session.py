"""A session of onnxruntime whose runs can be ended, and that outlives a fork.

In: how to make the session, and what to do with it. Runs end by their `RunOptions`, at exit, and, where
they may last, by what a signal handler raises in the main thread (Ctrl-C): they then run in another one, and
the main one stays free to run handlers. So does a session's first run, which tells how long they are. In a forked child the session serves on, unless a thread of the
parent was inside of it: that one cannot leave it here, so the child makes its own.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from typing import TypeVar

import onnxruntime

from dvm_graph import _core
from dvm_graph.process import call_aside, in_main_thread
from dvm_graph.runtime.program import SECONDS_AT_EXIT
from dvm_graph.runtime.run_options import RunOptions

_T = TypeVar("_T")
Work = Callable[[onnxruntime.InferenceSession, onnxruntime.RunOptions], _T]

_LONG = 0.05
"""Seconds of a run from which on the next ones are taken for long."""
_UNTIL_EXIT = onnxruntime.RunOptions()
"""Of runs that brought no options."""


@atexit.register
def _end_calls() -> None:
    """Ends the runs of daemon threads: see runtime/bindings_calls.h."""
    _UNTIL_EXIT.terminate = True
    _core.end_calls(SECONDS_AT_EXIT)
    _UNTIL_EXIT.terminate = False


class VendorSession:
    """Calls of one session; `loops` says that a run may go on for ever."""

    def __init__(
        self,
        make: Callable[[], onnxruntime.InferenceSession],
        session: onnxruntime.InferenceSession | None = None,
        *,
        loops: bool,
    ) -> None:
        self._make = make
        self._session = make() if session is None else session
        self._process = os.getpid()
        self._inside: list[None] = []  # an entry for each call at hand; atomic in Python
        self._lasts, self._known = loops, loops

    @property
    def ports(self) -> tuple[list[onnxruntime.NodeArg], list[onnxruntime.NodeArg]]:
        """Inputs and outputs."""
        return self._session.get_inputs(), self._session.get_outputs()

    def call(self, work: Work[_T], options: RunOptions | None) -> _T:
        """Does the work with the session; it may ask its options whether it was ended."""
        if self._process != os.getpid():
            self._enter_child()
        self._inside.append(None)
        try:
            begin = time.perf_counter()
            if (self._lasts or not self._known) and in_main_thread():
                result = self._call_aside(work, options)
            else:
                result = work(
                    self._session, _UNTIL_EXIT if options is None else options.of_vendor()
                )
            self._known = True
            self._lasts = self._lasts or time.perf_counter() - begin > _LONG
            return result
        finally:
            self._inside.pop()

    def renew(self) -> onnxruntime.InferenceSession:
        """Makes the session anew; calls at hand go on with the one that they have."""
        self._session = self._make()
        return self._session

    def _enter_child(self) -> None:
        if self._inside:
            self._session = self._make()
            self._inside = []
        self._process = os.getpid()

    def _call_aside(self, work: Work[_T], options: RunOptions | None) -> _T:
        vendor = onnxruntime.RunOptions() if options is None else options.of_vendor()

        def end() -> None:
            vendor.terminate = True

        try:
            return call_aside(lambda: work(self._session, vendor), end)
        finally:
            vendor.terminate = options is not None and options.terminate
