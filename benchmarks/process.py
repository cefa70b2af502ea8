"""Engine processes, driven turn by turn over a socket.

A worker and its children are stopped (SIGSTOP) between its turns: the threads of an idle engine may spin for a long
while after a run, and would take a core from the engine being timed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.engines import EARLIER, ENGINES
from benchmarks.messages import Ceilings, Memory, Visit, feed_file
from benchmarks.workload import Feeds, Source

_ROOT = Path(__file__).resolve().parent.parent
_SHARED_MEMORY = Path("/dev/shm")


class EngineError(Exception):
    """An engine failed or died; the message is its own."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How every engine of a run is started."""

    threads: int
    interpreters: Mapping[str, str] = field(default_factory=dict)
    """By engine: that of an environment of its own, for packages that pin another numpy, or another version."""


def missing(engine: str, setting: Setting) -> str:
    """Why an engine cannot take part; empty if it can."""
    if engine in setting.interpreters:
        return ""
    if engine == EARLIER:
        return f"give --python {EARLIER}=PATH"
    names = dict.fromkeys(name.partition(".")[0] for name in ENGINES[engine].packages)
    absent = [name for name in names if find_spec(name) is None]
    if not absent:
        return ""
    hint = "; give --python mindspore=PATH" if engine == "mindspore" else ""
    return f"not installed: {', '.join(absent)}{hint}"


class Worker:
    """The driver's side of the process of an engine, or of `CEILINGS`; a context manager."""

    def __init__(self, engine: str, setting: Setting, *, keeps_memory: bool = False) -> None:
        self.name = engine
        self._threads = setting.threads
        self._scratch = tempfile.mkdtemp(prefix="dvm-bench-")
        ours, theirs = socket.socketpair()
        python = setting.interpreters.get(engine, sys.executable)
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.worker", engine, str(theirs.fileno())],
            cwd=_ROOT,
            env={**os.environ, **self._environment(keeps_memory)},
            pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._pipe = Connection(ours.detach())

    def _environment(self, keeps_memory: bool) -> Mapping[str, str]:
        environment = {
            "OMP_NUM_THREADS": str(self._threads),
            "TORCHINDUCTOR_CACHE_DIR": self._scratch,  # every compilation is a cold one
        }
        if keeps_memory:
            environment |= {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
        return environment

    def load(self, source: Source) -> float:
        """Seconds that loading took."""
        seconds: float = self._ask("load", source, self._threads)
        return seconds

    def hold(self, key: int, folder: Path) -> None:
        self._ask("hold", key, folder)

    def drop(self) -> None:
        self._ask("drop")

    def visit(self, key: int, repeats: int, settling: int | None) -> Visit:
        visit: Visit = self._ask("visit", key, repeats, settling)
        return visit

    def stream(
        self, feeds: Sequence[Feeds], repeats: int, settling: Feeds | None = None
    ) -> list[Visit]:
        visits: list[Visit] = self._ask("stream", feeds, repeats, settling)
        return visits

    def ceilings(self) -> Ceilings:
        found: Ceilings = self._ask("ceilings", self._threads)
        return found

    def save_outputs(self, key: int, folder: Path) -> None:
        self._ask("save_outputs", key, folder)

    def error(self, key: int, folder: Path) -> float:
        error: float = self._ask("error", key, folder)
        return error

    def memory(self) -> Memory:
        memory: Memory = self._ask("memory")
        return memory

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pipe.close()
        with contextlib.suppress(ProcessLookupError):
            self._signal(signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _ask(self, verb: str, *arguments: Any) -> Any:
        try:
            self._signal(signal.SIGCONT)
            self._pipe.send((verb, arguments))
            succeeded, answer = self._pipe.recv()
            self._signal(signal.SIGSTOP)
        except (EOFError, OSError) as error:
            raise EngineError(f"the process ended in {verb!r}") from error
        if not succeeded:
            raise EngineError(answer)
        return answer

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self._process.pid, number)


@contextlib.contextmanager
def noting(failures: dict[str, str], engine: str) -> Iterator[None]:
    """An engine's failure is a result: the first message is kept under its name."""
    try:
        yield
    except EngineError as error:
        failures.setdefault(engine, " ".join(str(error).split())[:200])


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder in memory, gone afterwards."""
    parent = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="dvm-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_feeds(feeds: Feeds, folder: Path) -> None:
    for position, (name, array) in enumerate(feeds.items()):
        np.save(feed_file(folder, position, name), array)
