"""A profile as a Chrome trace (the JSON trace event format), which Perfetto opens too.

The first run and the typical run are two processes of the trace, each from time 0. A core is a thread;
so is the host, which binds dims, places memory, has stages of kernels carried out and calls the vendor
library (it also is core 0), and so is the compiler, which a core that waits or the host itself runs.
Times are microseconds.

Threads have numbers as Linux gives them: unique over processes, and none of them 0 or that of a process.
Perfetto takes threads that break this for one another, and puts what they did into one lane.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from dvm_graph.errors import writing
from dvm_graph.profile.profile import Kernel, Profile, Span, Timeline

Event = dict[str, Any]

_THREADS = 100_000
"""More than a run has."""


def write_trace(profile: Profile, path: str | PathLike[str]) -> None:
    """Writes the trace of a profile to a file.

    Raises:
        InputError: it cannot be written.
    """
    facts = {
        "cores": str(profile.cores),
        "simd": profile.simd,
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
        "peak GFLOP/s": f"{profile.peak_flops / 1e9:.1f}",
        "copy GB/s": f"{profile.copy_bytes / 1e9:.1f}",
        "kernels": str(len(profile.kernels)),
    }
    write_events(path, trace_events(profile), facts)


def write_events(
    path: str | PathLike[str], events: Iterable[Event], facts: Mapping[str, str]
) -> None:
    """Writes a trace of these events; viewers show the facts beside it.

    Raises:
        InputError: it cannot be written.
    """
    document = {
        "traceEvents": list(events),
        "displayTimeUnit": "ns",
        "otherData": dict(facts),
    }
    with writing(path):
        Path(path).write_text(json.dumps(document), encoding="utf-8")


def trace_events(profile: Profile) -> Iterator[Event]:
    """The events: names of processes and threads, then complete events lane by lane."""
    kernels = {kernel.name: kernel for kernel in profile.kernels}
    yield from _run(1, "typical run", profile.typical, kernels)
    yield from _run(2, "first run at this shape", profile.first, kernels)


def _run(pid: int, name: str, run: Timeline, kernels: dict[str, Kernel]) -> Iterator[Event]:
    yield name_event("process_name", pid, pid * _THREADS, name)
    cores = ((f"core {i}", spans) for i, spans in enumerate(run.cores))
    lanes = [("host", run.host), ("compiler", run.compiler), *cores]
    for index, (lane, spans) in enumerate(lanes):
        tid = pid * _THREADS + index
        yield from lane_events(pid, tid, lane, index)
        for span in spans:
            yield _complete(pid, tid, span, kernels.get(span.name))


def lane_events(pid: int, tid: int, name: str, order: int) -> Iterator[Event]:
    """A lane's name, and its place among the others."""
    yield name_event("thread_name", pid, tid, name)
    yield {**name_event("thread_sort_index", pid, tid, ""), "args": {"sort_index": order}}


def name_event(what: str, pid: int, tid: int, name: str) -> Event:
    """What a process or thread is called."""
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(pid: int, tid: int, span: Span, kernel: Kernel | None) -> Event:
    arguments: dict[str, Any] = {}
    if kernel is not None and span.category not in (
        "compile",
        "vendor",
        "control",
        "host",
        "stage",
        "bind",
        "memory",
    ):
        arguments = {
            "tiles": span.tiles,
            "of tiles": kernel.tiles,
            "onnx": ", ".join(kernel.origin),
            "flops": kernel.flops,
            "bytes": kernel.read_bytes + kernel.written_bytes,
        }
    return complete_event(pid, tid, span.name, span.category, span.start, span.seconds, arguments)


def complete_event(
    pid: int,
    tid: int,
    name: str,
    category: str,
    start: float,
    seconds: float,
    arguments: Mapping[str, object] | None = None,
) -> Event:
    """Something that a lane did."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": pid,
        "tid": tid,
        "ts": start * 1e6,
        "dur": seconds * 1e6,
        "args": dict(arguments or {}),
    }
