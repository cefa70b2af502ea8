"""Ctrl-C: a command ends within a second, whatever it is at.

Python raises KeyboardInterrupt as soon as it gets to run in the main thread again. A library may keep it
from that for long (a session that is being made, one operator of a reference run), so a thread listens for
the signal, too, and ends the process where the command has not ended by itself soon after.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STATUS = 130
"""The exit status of a command that Ctrl-C ended: 128 and the number of the signal, as shells have it."""

_PATIENCE = 0.6
"""Seconds in which a command may end by itself."""


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """While this lasts, the process ends soon after SIGINT."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ended = threading.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        signal.set_wakeup_fd(previous)
        os.close(writer)


def _watch(reader: int, ended: threading.Event) -> None:
    while numbers := os.read(reader, 64):
        if signal.SIGINT in numbers and not ended.wait(_PATIENCE):
            show_cursor = b"\x1b[?25h" if sys.stderr.isatty() else b""
            os.write(2, show_cursor + b"Error: interrupted\n")
            os._exit(STATUS)
    os.close(reader)
