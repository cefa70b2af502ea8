"""What the machine by itself adds to a short piece of work: a fixed sum over bytes in the caches, timed again and again.

A kernel is compiled in some microseconds, so that an interrupt, or the host of a virtual machine at other work, may take
longer than the kernel. The same happens to this sum, and to nothing else in it: it waits for no memory and no thread.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

import numpy as np

CONTROL_US = 12.0
"""How long one sum takes, about: as the longest compile of a kernel in a run of an encoder."""
_PROBE = 1 << 12
_PROBES = 200


class Control:
    """`clock`: nanoseconds."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._bytes = bytes(_PROBE)
        least = max(min(self._sum() for _ in range(_PROBES)), 0.1)
        contents = np.arange(round(_PROBE * CONTROL_US / least), dtype=np.uint8)
        self._bytes = contents.tobytes()

    def longest(self, total_us: float) -> float:
        """Microseconds of the longest of so many sums that together they take `total_us` undisturbed; 0 for none."""
        self._sum()  # brings the bytes to the caches
        return max((self._sum() for _ in range(round(total_us / CONTROL_US))), default=0.0)

    def _sum(self) -> float:
        begin = self._clock()
        zlib.crc32(self._bytes)
        return (self._clock() - begin) / 1e3
