"""Operators fused while they are asked for: the streaming fuser.

    stream = open_stream()
    x = stream.constant(array)
    y = stream.append("add", [x, 1.0])
    y.numpy()

Operators wait in a buffer; a value that somebody needs (`numpy`), a full buffer or `flush` runs it. What waits is fused by
the rules of the static fuser, on the shapes at hand. Nothing about a flush is kept for the next one.
"""

from __future__ import annotations

import functools

from dvm_graph import _core
from dvm_graph.errors import OutOfMemoryError
from dvm_graph.ir import OPERATORS
from dvm_graph.npu.machine import this_machine
from dvm_graph.options import DEFAULTS, Options

__all__ = ["open_stream"]

Stream = _core.Stream
StreamValue = _core.StreamValue


def open_stream(options: Options | None = None) -> Stream:
    """A buffer of its own, on the device that the options name.

    Raises:
        InputError: there is no such instruction-set level.
    """
    _declare_operators()
    options = options or DEFAULTS
    try:
        return Stream(
            options.cores or 0,
            options.simd or "",
            options.local_bytes or 0,
            this_machine().core,
            options.spin,
            options.limits,
        )
    except MemoryError as error:
        raise OutOfMemoryError("no memory for the cores of a stream") from error


@functools.cache
def _declare_operators() -> None:
    """Tells the core the table of basic operators, which is said once."""
    rows = [
        (row.name, row.kind.value, row.arity, row.result.name, [dtype.value for dtype in row.takes])
        for row in OPERATORS.values()
    ]
    _core.declare_operators(rows)
