"""Keeps what fontconfig has to say about fonts off stderr while pictures are drawn.

graphviz comes with a copy of fontconfig of its own. That one complains, straight to the file descriptor, of a
home and caches that it cannot write, and of whatever in the system's configuration is newer than it is,
wherever its configuration lies: none of that is of use to who draws a picture, which turns out all the same.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

_STDERR = 2
_NOISE = b"Fontconfig "
_lock = threading.Lock()
"""One drawing at a time: a descriptor belongs to the process, and graphviz keeps state of its own."""


@contextlib.contextmanager
def quiet_fonts() -> Iterator[None]:
    """While this lasts, what is written to stderr is kept back; at the end it is written, fontconfig's
    lines apart.
    """
    with _lock:
        try:
            stderr = os.dup(_STDERR)
        except OSError:  # there is none
            yield
            return
        kept = os.memfd_create("stderr")
        os.dup2(kept, _STDERR)
        try:
            yield
        finally:
            os.dup2(stderr, _STDERR)
            os.close(stderr)
            with os.fdopen(kept, "rb") as file:
                file.seek(0)
                lines = [line for line in file if not line.startswith(_NOISE)]
            if lines:
                os.write(_STDERR, b"".join(lines))
