"""onnx's backend node tests, each isolated from the others.

In: tests and a number of jobs. Out: an `Outcome` per test, as they come. onnx's own runner compares,
with the data and tolerance of each test.

Computing the data of all tests takes onnx many seconds: this process does it once. Tests run in
worker processes that are handed one test at a time. A worker that dies, or is silent for too
long and is stopped, costs the test it was running, not the run; another worker takes its place. A
test is skipped when the model is valid but neither dvm_graph nor the vendor library can run it.
"""

from __future__ import annotations

import enum
import functools
import itertools
import multiprocessing
import re
import time
import unittest
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import BackendTest
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_node_model_tests

from dvm_graph.backend import DvmBackend
from dvm_graph.errors import UnsupportedError

TIMEOUT_SECONDS = 120.0
"""How long one test may take."""


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


def node_tests(pattern: str = "") -> list[TestCase]:
    """The node tests of onnx whose names a regular expression finds, sorted by name."""
    tests = _all_node_tests()
    return [tests[name] for name in sorted(tests) if re.search(pattern, name)]


@functools.cache
def _all_node_tests() -> dict[str, TestCase]:
    with np.errstate(all="ignore"):  # some tests compute their infinities by dividing by zero
        return {test.name: test for test in load_node_model_tests()}


def run_tests(
    tests: Sequence[TestCase],
    jobs: int = 1,
    backend: type[DvmBackend] = DvmBackend,
    timeout: float = TIMEOUT_SECONDS,
) -> Iterator[Outcome]:
    """Runs tests in worker processes; yields outcomes as they come.

    Args:
        tests: from `node_tests`.
        jobs: worker processes.
        backend: importable by the workers under its qualified name.
        timeout: seconds after which a test counts as crashed.
    """
    pending = deque(tests)
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
        self.test: TestCase | None = None
        """The test it runs, if any."""
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

    def start(self, test: TestCase) -> None:
        self.test = test
        if self._ready:
            self._send(test)

    def poll(self, timeout: float) -> Outcome | None:
        """The outcome of the running test, if there is one by now."""
        if self.test is None:
            return None
        name = self.test.name
        outcome: Outcome | None = None
        try:
            if self.connection.poll():
                outcome = self._receive()
            elif self._started is not None and time.monotonic() - self._started > timeout:
                outcome = Outcome(name, Status.CRASHED, f"no result after {timeout:g} s")
        except (EOFError, ConnectionError):
            self._process.join()
            outcome = Outcome(
                name, Status.CRASHED, f"the process ended with {self._process.exitcode}"
            )
        if outcome is not None:
            self.test = None
        return outcome

    def _receive(self) -> Outcome | None:
        message: Outcome | None = self.connection.recv()
        if message is None:  # the process is up: its test begins now
            self._ready = True
            if self.test is not None:
                self._send(self.test)
        return message

    def _send(self, test: TestCase) -> None:
        self._started = time.monotonic()
        self.connection.send(test)

    def restart(self) -> None:
        self.stop()
        self._launch()

    def stop(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()


# -- in the worker


def _work(connection: Connection[Outcome | None, TestCase], backend: type[DvmBackend]) -> None:
    """Runs tests until the parent hangs up."""
    connection.send(None)
    while True:
        try:
            test = connection.recv()
        except EOFError:
            return
        connection.send(_run_test(test, backend))


def _run_test(test: TestCase, backend: type[DvmBackend]) -> Outcome:
    vendor: tuple[str, ...] | None = None

    def run() -> None:
        nonlocal vendor
        assert test.model is not None  # node tests carry theirs
        try:
            prepared = backend.prepare(test.model)
        except UnsupportedError as error:
            raise unittest.SkipTest(str(error)) from error
        vendor = prepared.vendor_operators
        for inputs, expected in test.data_sets or ():
            outputs = prepared.run(_arrays(inputs))
            BackendTest.assert_similar_outputs(
                _arrays(expected), outputs, rtol=test.rtol, atol=test.atol
            )

    result = unittest.TestResult()
    unittest.FunctionTestCase(run).run(result)
    if result.skipped:
        return Outcome(test.name, Status.SKIPPED, result.skipped[0][1], vendor)
    problems = result.errors + result.failures
    if problems:
        return Outcome(test.name, Status.FAILED, _last_line(problems[0][1]), vendor)
    return Outcome(test.name, Status.PASSED, "", vendor)


def _arrays(tensors: Sequence[Any]) -> list[Any]:
    return [numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in tensors]


def _last_line(traceback: str) -> str:
    """The message of the exception that a traceback ends in, on one line."""
    lines = traceback.strip().splitlines()
    frame = max((i for i, line in enumerate(lines) if line.startswith('  File "')), default=-1)
    message = itertools.dropwhile(lambda line: line.startswith(" "), lines[frame + 1 :])
    return " ".join(line.strip() for line in message if line.strip())[:500]
