"""What ran and why it was cut so: `with xp.trace() as t: ...`, then `print(t)`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dvm_graph.xp import buffer


@dataclass(frozen=True, slots=True)
class Kernel:
    """Operators that ran as one."""

    name: str
    kind: str
    operators: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(self.operators)}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether two groups of operators may be one kernel."""

    subject: str
    verdict: str
    reason: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.verdict}, {self.reason}"


@dataclass(frozen=True, slots=True)
class Flush:
    """What ran at once."""

    reason: str
    kernels: tuple[Kernel, ...]
    decisions: tuple[Decision, ...]
    dead: int
    """Operators that nobody had a use for any more: never computed."""

    def __str__(self) -> str:
        lines = [
            f"flush ({self.reason}): {len(self.kernels)} kernels, {self.dead} operators dropped"
        ]
        return "\n  ".join([*lines, *map(str, self.kernels), *map(str, self.decisions)])


@dataclass(frozen=True, slots=True)
class HostCall:
    """A function that numpy computed."""

    function: str
    reason: str

    def __str__(self) -> str:
        return f"numpy {self.function}: {self.reason}"


@dataclass(slots=True)
class Trace:
    """Flushes and calls of numpy, in order."""

    events: list[Flush | HostCall] = field(default_factory=list)

    @property
    def flushes(self) -> list[Flush]:
        return [event for event in self.events if isinstance(event, Flush)]

    @property
    def host_calls(self) -> list[HostCall]:
        return [event for event in self.events if isinstance(event, HostCall)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.events))


_OPEN: list[Trace] = []


@contextlib.contextmanager
def trace() -> Iterator[Trace]:
    """Notes what runs inside, in all threads; what is pending at the end runs there."""
    if not _OPEN:
        buffer.flush()
        buffer.record(True)
        buffer.ON_HOST.append(_note_host)
    note = Trace()
    _OPEN.append(note)
    try:
        yield note
        buffer.flush()
    finally:
        _note_flushes()
        _OPEN.remove(note)
        if not _OPEN:
            buffer.ON_HOST.remove(_note_host)
            buffer.record(False)


def _note_flushes() -> None:
    flushes = [_flush(entry) for entry in buffer.take_record()]
    for note in _OPEN:
        note.events += flushes


def _note_host(function: str, reason: str) -> None:
    _note_flushes()
    for note in _OPEN:
        note.events.append(HostCall(function, reason))


def _flush(entry: dict[str, Any]) -> Flush:
    kernels = (Kernel(k["name"], k["kind"], tuple(k["operators"])) for k in entry["kernels"])
    decisions = (Decision(d["subject"], d["verdict"], d["reason"]) for d in entry["decisions"])
    return Flush(entry["reason"], tuple(kernels), tuple(decisions), entry["dead"])
