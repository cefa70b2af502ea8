"""Engines, each in a process of its own, driven turn by turn over a pipe.

A worker is stopped (SIGSTOP) between its turns: the threads of an idle engine may spin for a long
while after a run, and would take a core from the engine being timed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class CompileCost:
    """What compiling at run time cost in one run; kernels is 0 for engines that do not."""

    kernels: int = 0
    mean_us: float = 0.0
    max_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One timed run."""

    seconds: float
    compile_cost: CompileCost


class Engine(ABC):
    """Lives in the worker process."""

    package: ClassVar[str]

    @abstractmethod
    def load(self, path: Path, threads: int) -> None: ...

    @abstractmethod
    def run(self, feeds: Feeds) -> list[NDArray[Any]]: ...

    def compile_cost(self) -> CompileCost:
        return CompileCost()


class DvmGraph(Engine):
    package = "dvm_graph"

    def load(self, path: Path, threads: int) -> None:
        import dvm_graph

        self._model = dvm_graph.optimize(path, cores=threads)

    def run(self, feeds: Feeds) -> list[NDArray[Any]]:
        return self._model.run(feeds)

    def compile_cost(self) -> CompileCost:
        statistics = self._model.statistics
        return CompileCost(
            statistics.kernels_compiled,
            statistics.mean_compile_ns / 1e3,
            statistics.max_compile_ns / 1e3,
        )


class OnnxRuntime(Engine):
    package = "onnxruntime"

    def load(self, path: Path, threads: int) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, feeds: Feeds) -> list[NDArray[Any]]:
        return list(self._session.run(None, dict(feeds)))


ENGINES: Mapping[str, type[Engine]] = {"dvm_graph": DvmGraph, "onnxruntime": OnnxRuntime}


class Worker:
    """The driver's side of an engine process."""

    def __init__(self, engine: str, path: Path, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, engine), daemon=True)
        self._process.start()
        self.name = engine
        self.load_seconds: float = self._ask("load", (path, threads))

    def turn(self, feeds: Feeds) -> Turn:
        """One timed run."""
        turn: Turn = self._ask("turn", feeds)
        return turn

    def outputs(self, feeds: Feeds) -> list[NDArray[Any]]:
        outputs: list[NDArray[Any]] = self._ask("outputs", feeds)
        return outputs

    def resident_bytes(self) -> int:
        resident: int = self._ask("resident", None)
        return resident

    def close(self) -> None:
        self._signal(signal.SIGCONT)
        self._pipe.send(("stop", None))
        self._process.join()

    def _ask(self, verb: str, argument: Any) -> Any:
        self._signal(signal.SIGCONT)
        self._pipe.send((verb, argument))
        answer = self._pipe.recv()
        self._signal(signal.SIGSTOP)
        return answer

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def _serve(pipe: Connection, name: str) -> None:
    engine = ENGINES[name]()
    while True:
        verb, argument = pipe.recv()
        if verb == "stop":
            return
        pipe.send(_answer(engine, verb, argument))


def _answer(engine: Engine, verb: str, argument: Any) -> Any:
    if verb == "load":
        import_module(engine.package)  # imports are not part of loading a model
        begin = time.perf_counter()
        engine.load(*argument)
        return time.perf_counter() - begin
    if verb == "turn":
        begin = time.perf_counter()
        engine.run(argument)
        return Turn(time.perf_counter() - begin, engine.compile_cost())
    if verb == "outputs":
        return [np.asarray(output) for output in engine.run(argument)]
    return _resident_bytes()


def _resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmRSS line")
