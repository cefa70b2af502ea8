"""Child processes that check cases within limits of time and memory, so that a hang or a crash is a finding.

A child is a fork of a process that has imported everything and run nothing. It says in shared memory
which case it is at and in which phase, and sends reports through a pipe. The time limit is of processor
time, so that a busy machine makes no findings; one of real time, far larger, is for locks.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import mmap
import multiprocessing
import os
import resource
import signal
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

from tests.fuzz.check import Finding, Kind, Phase, Report, Skipped

CPU_SECONDS = 20
REAL_SECONDS = 180
BYTES = 6 << 30
OTHER = "other"
"""The variant of what ends a child: it cannot say which it was."""
_STATE = struct.Struct("qqd")

Item = Any
Work = Callable[[Item, Callable[[Phase], None]], Report]


class Worker:
    """One child at a time, over a share of the items; a new one goes on where one died."""

    def __init__(self, items: Iterable[Item], work: Work) -> None:
        self._items = iter(items)
        self._work = work
        self._left: list[Item] = []
        self.process: Any = None
        self.results: Connection
        self._state = mmap.mmap(-1, _STATE.size)
        self.done = False
        self._start()

    def _start(self) -> None:
        batch = self._left or list(itertools.islice(self._items, 2000))
        self._left = batch
        if not batch:
            self.done = True
            return
        self.results, sender = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        self._state[:] = _STATE.pack(0, Phase.GENERATE, time.monotonic())
        self.process = context.Process(target=_serve, args=(batch, self._work, sender, self._state))
        gc.freeze()  # a child that collects a session of the parent waits for threads it has not
        self.process.start()
        gc.unfreeze()
        sender.close()

    def collect(self) -> Iterator[tuple[Item, Report]]:
        """Reports there are; where the child has ended, starts the next."""
        try:
            while self.results.poll():
                place, report = self.results.recv()
                yield self._left[place], report
            self._watch()
            return
        except EOFError:
            pass
        self.process.join()
        place, phase, _ = _STATE.unpack(self._state[:])
        if place < len(self._left):
            yield self._left[place], _cause(self.process.exitcode, Phase(phase))
        self._left = self._left[place + 1 :]
        self.results.close()
        self._start()

    def _watch(self) -> None:
        _, _, since = _STATE.unpack(self._state[:])
        if time.monotonic() - since > REAL_SECONDS:
            self.process.kill()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()


def _cause(code: int, phase: Phase) -> Report:
    if phase < Phase.OPTIMIZE:
        return Skipped(f"the reference ends with {code}")
    name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    kind = Kind.HANG if name in ("SIGXCPU", "SIGKILL") else Kind.CRASH
    variant = OTHER if phase is Phase.OTHERWISE else "default"
    return Finding(kind, f"{name} in {phase.name.lower()}", (), variant)


def _serve(batch: list[Item], work: Work, results: Connection, state: mmap.mmap) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for place, item in enumerate(batch):
        used = sum(os.times()[:2])
        resource.setrlimit(
            resource.RLIMIT_CPU, (int(used) + CPU_SECONDS + 1, resource.RLIM_INFINITY)
        )

        def phase(now: Phase, place: int = place) -> None:
            state[:] = _STATE.pack(place, now, time.monotonic())

        phase(Phase.GENERATE)
        results.send((place, work(item, phase)))
    state[:] = _STATE.pack(len(batch), Phase.GENERATE, time.monotonic())
    os._exit(0)


def run(
    shares: list[Iterable[Item]], work: Work, until: float | None = None
) -> Iterator[tuple[Item, Report]]:
    """Reports of all items, as they come, a child for each share."""
    workers = [Worker(share, work) for share in shares]
    try:
        while not all(worker.done for worker in workers):
            active = [worker for worker in workers if not worker.done]
            wait([worker.results for worker in active], timeout=5)
            for worker in active:
                yield from worker.collect()
            if until is not None and time.monotonic() > until:
                return
    finally:
        for worker in workers:
            worker.stop()
