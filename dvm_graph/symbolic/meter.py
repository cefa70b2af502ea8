"""What compiling a model has taken so far, held to the limits of the options.

Purpose: a compilation ends, whatever the model. Each step of it costs no more than a constant (dims are
small, `dims.MAX_WEIGHT`; searches are bounded), but a model may ask for any number of steps. They are
counted where all of them pass by: proofs (`Facts`), operators that are built (`Builder`) and stages.

What it does not do: interrupt a call of a library.
"""

from __future__ import annotations

import os
import time

from dvm_graph import _core
from dvm_graph.errors import LimitError, OutOfMemoryError
from dvm_graph.options import DEFAULTS, Options

_STEPS = 256
"""Between two looks at the clock."""
_SECONDS = 0.01
"""Between two looks at memory, which take as long as a good many steps."""


class Meter:
    """Time and memory of one compilation, from when it is made."""

    def __init__(self, options: Options | None = None) -> None:
        options = options or DEFAULTS
        self._seconds = options.max_compile_seconds
        self._bytes = options.max_compile_bytes
        self._available: int | None = None
        """What there was; None: nobody asked yet."""
        self._began = time.monotonic()
        self._held = _private_bytes()
        self._steps = 0
        self._looked = 0.0

    def step(self) -> None:
        """Counts a step of the compiler.

        Raises:
            LimitError: the compilation takes longer, or more memory, than the options allow.
            OutOfMemoryError: it takes all the memory that there was.
        """
        self._steps += 1
        if self._steps % _STEPS == 0:
            self.look()

    def look(self) -> None:
        """Holds time and memory to their limits; raises as `step` does."""
        seconds = time.monotonic() - self._began
        if seconds > self._seconds:
            raise LimitError(
                f"compiling takes longer than max_compile_seconds={self._seconds:g}; "
                "raise the option to go on"
            )
        if seconds < self._looked + _SECONDS:
            return
        self._looked = seconds
        taken = _private_bytes() - self._held
        if self._bytes is not None and taken > self._bytes:
            raise LimitError(
                f"compiling takes more memory than max_compile_bytes={self._bytes}; "
                "raise the option to go on"
            )
        if self._available is None:
            self._available = _core.available_memory() + taken
        if taken > self._available:
            raise OutOfMemoryError(f"compiling took all memory that there was, {taken >> 20} MiB")


class Unmetered(Meter):
    """Of what takes no time to speak of: to set up a meter takes longer than to build an operator."""

    def __init__(self) -> None:
        """Reads neither clock nor memory."""

    def step(self) -> None:
        """Counts nothing."""

    def look(self) -> None:
        """Holds nothing to a limit."""


def _private_bytes() -> int:
    """Memory of this process without mapped files; 0 where the system does not say."""
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # asked after each stage
        try:
            _total, resident, shared, *_rest = os.read(file, 256).split()
        finally:
            os.close(file)
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
