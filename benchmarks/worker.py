"""The engine's side of a benchmark: `python -m benchmarks.worker ENGINE SOCKET`, started by `benchmarks.process`.

Requests and answers are pickled tuples over an inherited socket. Feeds come and reference outputs go through files in
shared memory; the engine works on private copies of them. A worker named `ceilings` measures the machine instead.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.control import Control
from benchmarks.engines import ENGINES, CompileCost
from benchmarks.messages import Ceilings, Memory, Visit
from benchmarks.turns import CEILINGS
from benchmarks.workload import Feeds, Source

_PR_SET_PDEATHSIG = 1


class Server:
    """Answers requests by name; the prepared feeds of the points held live here."""

    def __init__(self, engine: str) -> None:
        self._engine = ENGINES[engine]()
        self._held: dict[int, Any] = {}
        self._result: Any = None

    def load(self, source: Source, threads: int) -> float:
        """Seconds; imports are not part of loading a model."""
        for package in self._engine.packages:
            import_module(package)
        begin = time.perf_counter()
        self._engine.load(source, threads)
        return time.perf_counter() - begin

    def hold(self, key: int, folder: Path) -> None:
        feeds = {path.stem: np.load(path) for path in sorted(folder.iterdir(), key=_position)}
        self._held[key] = self._engine.prepare({_name(stem): feeds[stem] for stem in feeds})

    def drop(self) -> None:
        self._held.clear()
        self._result = None

    def visit(self, key: int, repeats: int, settling: int | None) -> Visit:
        """`settling` is the point to begin with, so that the caches hold the engine's code again."""
        settled = CompileCost()
        if settling is not None:
            self._timed(self._held[settling])
            settled = self._engine.compile_cost()
        prepared = self._held[key]
        first = self._timed(prepared)
        cost = self._engine.compile_cost()
        return Visit(first, tuple(self._timed(prepared) for _ in range(repeats)), cost, settled)

    def stream(
        self, feeds: Sequence[Feeds], repeats: int, settling: Feeds | None = None
    ) -> list[Visit]:
        """Every shape in turn, none prepared before its own; the first visit begins with `settling`."""
        control = Control()
        visits: list[Visit] = []
        if settling is not None:
            self._held[-2] = self._engine.prepare(settling)
        for one in feeds:
            self._held[-1] = self._engine.prepare(one)
            first = settling is not None and not visits
            visit = self.visit(-1, repeats, -2 if first else None)
            visits.append(replace(visit, control_us=control.longest(visit.cost.total_us)))
        self.drop()
        return visits

    def save_outputs(self, key: int, folder: Path) -> None:
        for index, array in enumerate(self._outputs(key)):
            np.save(folder / f"{index}.npy", array)

    def error(self, key: int, folder: Path) -> float:
        """Largest absolute error over the largest magnitude of the output it is in; inf for a wrong form."""
        outputs = self._outputs(key)
        expected = [np.load(folder / f"{i}.npy", mmap_mode="r") for i in range(_count(folder))]
        if len(outputs) != len(expected):
            return float("inf")
        return max((max_error(a, e) for a, e in zip(outputs, expected, strict=True)), default=0.0)

    def memory(self) -> Memory:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        kilobytes = {name: int(status[name].split()[0]) for name in ("VmRSS", "VmHWM")}
        return Memory(kilobytes["VmRSS"] * 1024, kilobytes["VmHWM"] * 1024)

    def _timed(self, prepared: Any) -> float:
        self._result = None  # given back outside the timed region
        begin = time.perf_counter()
        self._result = self._engine.run(prepared)
        return time.perf_counter() - begin

    def _outputs(self, key: int) -> list[NDArray[Any]]:
        return self._engine.arrays(self._engine.run(self._held[key]))


class CeilingServer:
    """Measures the machine; needs no model."""

    def __init__(self) -> None:
        self._meter: Any = None

    def ceilings(self, threads: int) -> Ceilings:
        """About fifty milliseconds, but for the first call, which takes hold of memory."""
        if self._meter is None:
            from dvm_graph import _core

            self._meter = _core.CeilingMeter(threads, _core.simd_levels()[0])
        return Ceilings(*(rate / 1e9 for rate in self._meter.measure()))


def max_error(actual: NDArray[Any], expected: NDArray[Any], chunk: int = 1 << 20) -> float:
    """Largest absolute difference over the largest magnitude expected; inf for other shapes or NaN."""
    if actual.shape != expected.shape:
        return float("inf")
    a, e = np.asarray(actual).reshape(-1), np.asarray(expected).reshape(-1)
    difference = magnitude = 0.0
    for start in range(0, a.size, chunk):
        part = e[start : start + chunk].astype(np.float64)
        gap = np.abs(a[start : start + chunk].astype(np.float64) - part).max()
        if np.isnan(gap):
            return float("inf")
        difference = max(difference, float(gap))
        magnitude = max(magnitude, float(np.abs(part).max()))
    if difference == 0.0:
        return 0.0
    return difference / magnitude if magnitude else float("inf")


def _position(path: Path) -> int:
    return int(path.name.partition("-")[0])


def _name(stem: str) -> str:
    return stem.partition("-")[2]


def _count(folder: Path) -> int:
    return len(list(folder.iterdir()))


def _end_with_parent() -> None:
    """A stopped worker would never notice that a killed driver is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    _end_with_parent()
    server = CeilingServer() if sys.argv[1] == CEILINGS else Server(sys.argv[1])
    pipe = Connection(int(sys.argv[2]))
    while True:
        try:
            verb, arguments = pipe.recv()
        except EOFError:
            return
        try:
            answer = (True, getattr(server, verb)(*arguments))
        except Exception as error:  # whatever an engine raises is its result here
            answer = (False, f"{type(error).__name__}: {error}")
        pipe.send(answer)


if __name__ == "__main__":
    main()
