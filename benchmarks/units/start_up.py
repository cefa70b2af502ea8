"""What a start costs: `python -m benchmarks.units.start_up [MODEL ...] [--dim name=extent ...] [--rounds N]`.

Each start is a process of its own, which finds byte code of Python cached: one imports the package and compiles the model, one
finds it in a cache of compiled models, one loads it from a file that it was saved to, and one makes a session of onnxruntime.
Turn by turn, medians of seconds: processor time, which other work on the machine hardly changes, and real time. Behind it the
first run, at the dims that were given, and the same made once more, when everything that it needs is loaded.

Of several models (all that are exported, where none is named) a table says how long making each takes the first time and
once more, beside onnxruntime's session. onnxruntime loads itself when it is imported, the compiler when it is needed: what both
take, import and making, is compared as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

import dvm_graph
from dvm_graph.cli.arrays import save_arrays
from dvm_graph.feeds import random_feeds
from models import FAMILIES, base_path

WAYS = ("optimize", "cached", "load", "onnxruntime")
STEPS = ("import", "make", "first run", "make again")
_CHILD = """
import functools, json, sys, time
way, path, feeds, folder = sys.argv[1:]
laps, last = [], (0.0, time.perf_counter())
def lap():
    global last
    now = time.process_time(), time.perf_counter()
    laps.append((now[0] - last[0], now[1] - last[1]))
    last = now
import numpy
if way == "onnxruntime":
    import onnxruntime
    make = lambda path: onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
else:
    import dvm_graph
    make = getattr(dvm_graph, "load" if way == "load" else "optimize")
    if way == "cached":
        make = functools.partial(make, cache=folder + "/models")
lap()
model = make(path)
lap()
if feeds:
    arrays = dict(numpy.load(feeds))
    last = time.process_time(), time.perf_counter()
    model.run(None, arrays) if way == "onnxruntime" else model.run(arrays)
    lap()
another = make(path)
lap()
print(json.dumps(laps))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", type=Path, nargs="*")
    parser.add_argument("--dim", action="append", default=[], help="name=extent of the first run")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if len(arguments.models) == 1:
            dims = {name: int(extent) for name, extent in (d.split("=") for d in arguments.dim)}
            in_steps(arguments.models[0], dims, arguments.rounds, Path(folder))
        else:
            exported = [path for path in map(base_path, FAMILIES) if path.exists()]
            table(arguments.models or exported, arguments.rounds, Path(folder))


def table(models: Sequence[Path], rounds: int, folder: Path) -> None:
    """Making each model, and once more, and finding it in a cache, beside onnxruntime's session."""
    result = Table(
        title=f"seconds of real time, medians of {rounds}; ratios to onnxruntime's, real (processor) time"
    )
    columns = (
        *("model", "optimize", "again", "cached", "onnxruntime", "again"),
        *("first ratio", "with import", "ratio again", "cached, first"),
    )
    for column in columns:
        result.add_column(column, justify="left" if column == "model" else "right")
    ways, again = ("optimize", "cached", "onnxruntime"), STEPS.index("make again") - 1
    for model in models:
        starts = _starts(dict.fromkeys(ways, model), rounds, folder)
        shown = (("optimize", 1), ("optimize", again), ("cached", 1), ("onnxruntime", 1))
        seconds = [
            f"{statistics.median(start[way][step][1] for start in starts):.3f}"
            for way, step in (*shown, ("onnxruntime", again))
        ]
        ratios = []
        for way, steps in (
            ("optimize", (1,)),
            ("optimize", (0, 1)),
            ("optimize", (again,)),
            ("cached", (1,)),
        ):
            cpu, real = (
                statistics.median(
                    _total(s[way], steps, which) / _total(s["onnxruntime"], steps, which)
                    for s in starts
                )
                for which in (0, 1)
            )
            ratios.append(f"{real:.2f} ({cpu:.2f})")
        result.add_row(model.stem, *seconds, *ratios)
    Console(width=130).print(result)


def in_steps(path: Path, dims: dict[str, int], rounds: int, folder: Path) -> None:
    """One model: import, making, first run and making once more, each way."""
    feeds, saved = folder / "feeds.npz", folder / "model.dvm"
    model = dvm_graph.optimize(path)
    begin = time.process_time()
    model.save(saved)
    print(f"{path.name}: saved in {time.process_time() - begin:.2f} s", end=", ")
    print(f"{saved.stat().st_size / 2**20:.1f} MiB")
    save_arrays(feeds, random_feeds(model, dims, 0))
    del model
    paths = {way: saved if way == "load" else path for way in WAYS}
    starts = _starts(paths, rounds, folder, feeds)
    for way in WAYS:
        cells = []
        for number, step in enumerate(STEPS):
            cpu, real = (
                statistics.median(start[way][number][which] for start in starts) for which in (0, 1)
            )
            cells.append(f"{step} {cpu:.3f} ({real:.3f})")
        print(f"  {way:12} {', '.join(cells)}")
    for way in ("cached", "load"):
        for what, steps in ((way, (1,)), (f"{way} and first run", (1, 2))):
            ratio = statistics.median(
                sum(start[way][step][0] for step in steps) / start["optimize"][1][0]
                for start in starts
            )
            print(f"  {what}: {ratio:.1%} of optimize")
    again = statistics.median(s["optimize"][3][1] / s["onnxruntime"][3][1] for s in starts)
    print(f"  optimize again: {again:.2f} times onnxruntime's session again, in real time")


_Laps: TypeAlias = "list[list[float]]"
"""Processor and real time of each step, the first run only where there are feeds for it."""


def _total(laps: _Laps, steps: Sequence[int], which: int) -> float:
    return sum(laps[step][which] for step in steps)


def _starts(
    paths: Mapping[str, Path], rounds: int, folder: Path, feeds: Path | None = None
) -> list[dict[str, _Laps]]:
    """Rounds of each way. What is cached, byte code and compiled models, one start before has put there."""
    if "cached" in paths:
        _start("cached", paths["cached"], folder, feeds)
    return [
        {way: _start(way, path, folder, feeds) for way, path in paths.items()}
        for _ in range(rounds)
    ]


def _start(way: str, path: Path, folder: Path, feeds: Path | None) -> _Laps:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "byte_code")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    feed_path = "" if feeds is None else str(feeds)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, way, str(path), feed_path, str(folder)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    laps: _Laps = json.loads(done.stdout)
    return laps


if __name__ == "__main__":
    main()
