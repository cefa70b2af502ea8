"""onnx's backend node tests, each isolated from the others.

In: a filter and a number of jobs. Out: an `Outcome` per test, as they come. onnx's own runner
compares, with the data and tolerance of each test.

Tests run in worker processes that take one test at a time. A worker that dies, or is silent for too
long and is stopped, costs the test it was running, not the run; another worker takes its place. A
test is skipped when the model is valid but neither dvm_graph nor the vendor library can run it.
"""

from __future__ import annotations

import enum
import itertools
import multiprocessing
import re
import time
import unittest
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx.backend.base import Backend
from onnx.backend.test import BackendTest
from onnx.backend.test.loader import load_node_model_tests

from dvm_graph.backend import DvmBackend
from dvm_graph.errors import UnsupportedError

TIMEOUT_SECONDS = 120.0
"""How long one test may take."""
_NODE_TESTS = "OnnxBackendNodeModelTest"


class Status(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test."""

    name: str
    status: Status
    reason: str = ""
    vendor_operators: tuple[str, ...] | None = None
    """None where the model did not compile."""

    @property
    def without_vendor(self) -> bool:
        return self.status is Status.PASSED and self.vendor_operators == ()


def node_test_names(pattern: str = "") -> list[str]:
    """Names of onnx's node tests that a regular expression finds, sorted."""
    with np.errstate(all="ignore"):  # some tests compute their infinities by dividing by zero
        names = {case.name for case in load_node_model_tests()}
    return sorted(name for name in names if re.search(pattern, name))


def run_tests(
    names: Sequence[str],
    jobs: int = 1,
    backend: type[DvmBackend] = DvmBackend,
    timeout: float = TIMEOUT_SECONDS,
) -> Iterator[Outcome]:
    """Runs tests in worker processes; yields outcomes as they come.

    Args:
        names: from `node_test_names`.
        jobs: worker processes.
        backend: importable by the workers under its qualified name.
        timeout: seconds after which a test counts as crashed.
    """
    pending = deque(names)
    workers: list[_Worker] = []
    try:
        workers += [_Worker(backend) for _ in range(min(jobs, len(pending)))]
        for worker in workers:
            worker.start(pending.popleft())
        while busy := [worker for worker in workers if worker.test]:
            wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                outcome = worker.poll(timeout)
                if outcome is None:
                    continue
                yield outcome
                if outcome.status is Status.CRASHED:
                    worker.restart()
                if pending:
                    worker.start(pending.popleft())
    finally:
        for worker in workers:
            worker.stop()


class _Worker:
    """A worker process, seen from the parent."""

    def __init__(self, backend: type[DvmBackend]) -> None:
        self._backend = backend
        self.test = ""
        """The test it runs; empty: none."""
        self._launch()

    def _launch(self) -> None:
        # Not forked: the parent may have threads, of numpy's or the vendor library's.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, self._backend), daemon=True)
        self._process.start()
        theirs.close()
        self._started: float | None = None
        """When the test began; None while the process is still starting."""
        self._ready = False

    def start(self, test: str) -> None:
        self.test = test
        self._started = time.monotonic() if self._ready else None
        self.connection.send(test)

    def poll(self, timeout: float) -> Outcome | None:
        """The outcome of the running test, if there is one by now."""
        outcome: Outcome | None = None
        try:
            if self.connection.poll():
                outcome = self._receive()
            elif self._started is not None and time.monotonic() - self._started > timeout:
                outcome = Outcome(self.test, Status.CRASHED, f"no result after {timeout:g} s")
        except (EOFError, ConnectionResetError):
            self._process.join()
            outcome = Outcome(
                self.test, Status.CRASHED, f"the process ended with {self._process.exitcode}"
            )
        if outcome is not None:
            self.test = ""
        return outcome

    def _receive(self) -> Outcome | None:
        message: Outcome | None = self.connection.recv()
        if message is None:  # the process is up: its test begins now
            self._ready = True
            self._started = time.monotonic()
        return message

    def restart(self) -> None:
        self.stop()
        self._launch()

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()


# -- in the worker


def _work(connection: Connection[Outcome | None, str], backend: type[DvmBackend]) -> None:
    """Runs tests by name until the parent hangs up."""
    _Recorder.backend = backend
    with np.errstate(all="ignore"):
        cases = BackendTest(_Recorder, __name__).test_cases[_NODE_TESTS]
    connection.send(None)
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        connection.send(_run_test(cases, name))


class _Recorder(Backend):
    """Passes on to the backend under test, keeps what it prepared, and turns refusals to skips."""

    backend: ClassVar[type[Backend]] = DvmBackend
    prepared: ClassVar[Any] = None
    """The last DvmRepresentation."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
        try:
            _Recorder.prepared = cls.backend.prepare(model, device, **kwargs)
        except UnsupportedError as error:
            raise unittest.SkipTest(str(error)) from error
        return _Recorder.prepared

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return cls.backend.supports_device(device)


def _run_test(cases: type[unittest.TestCase], name: str) -> Outcome:
    _Recorder.prepared = None
    result = unittest.TestResult()
    cases(f"{name}_cpu").run(result)
    prepared = _Recorder.prepared
    vendor = prepared.vendor_operators if prepared is not None else None
    if result.skipped:
        return Outcome(name, Status.SKIPPED, result.skipped[0][1], vendor)
    problems = result.errors + result.failures
    if problems:
        return Outcome(name, Status.FAILED, _last_line(problems[0][1]), vendor)
    return Outcome(name, Status.PASSED, "", vendor)


def _last_line(traceback: str) -> str:
    """The message of the exception that a traceback ends in, on one line."""
    lines = traceback.strip().splitlines()
    frame = max((i for i, line in enumerate(lines) if line.startswith('  File "')), default=-1)
    message = itertools.dropwhile(lambda line: line.startswith(" "), lines[frame + 1 :])
    return " ".join(line.strip() for line in message if line.strip())[:500]
