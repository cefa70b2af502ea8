"""`python -m tests.fuzz`: random models until a count or a time is reached; prints what was found."""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.fuzz.case import generate
from tests.fuzz.check import Finding, Phase, Report, Skipped, check, variants
from tests.fuzz.shrink import shrink
from tests.fuzz.workers import run


def main() -> int:
    arguments = _arguments()
    if arguments.index is not None:
        return _one(arguments)
    first = arguments.start
    shares = [
        itertools.islice(itertools.count(first + job, arguments.jobs), _share(arguments.count, arguments.jobs, job))
        for job in range(arguments.jobs)
    ]
    seed = arguments.seed

    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        return check(generate(seed, index), variants(index), phase)

    started = time.monotonic()
    until = started + 60 * arguments.minutes if arguments.minutes else None
    skipped: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    found: dict[str, tuple[int, Finding]] = {}
    again: collections.Counter[str] = collections.Counter()
    count = 0
    for index, report in run(shares, work, until):
        count += 1
        if isinstance(report, Skipped):
            skipped[report.reason[:60]] += 1
        elif isinstance(report, Finding):
            kinds[report.kind.value] += 1
            again[report.signature] += 1
            if report.signature not in found:
                found[report.signature] = (index, report)
                print(f"{seed}:{index} {report.kind.value} [{report.variant}, {report.environment}] "
                      f"{' '.join(report.operators)}: {report.message[:300]}", flush=True)
        if count % 1000 == 0:
            print(f"-- {count} graphs, {sum(skipped.values())} skipped, {dict(kinds)}, "
                  f"{1e3 * (time.monotonic() - started) / count:.1f} ms each", file=sys.stderr, flush=True)
    seconds = time.monotonic() - started
    print(f"{count} graphs in {seconds:.0f} s ({1e3 * seconds / max(1, count):.1f} ms each), "
          f"{sum(skipped.values())} of them onnxruntime does not run")
    if arguments.skipped:
        for reason, times in skipped.most_common(40):
            print(f"  {times} {reason}")
    for kind, times in kinds.most_common():
        print(f"{times} {kind}")
    return 1 if kinds else 0


def _share(count: int, jobs: int, job: int) -> int:
    return (count - job + jobs - 1) // jobs


def _one(arguments: argparse.Namespace) -> int:
    case = generate(arguments.seed, arguments.index)
    print(case.text)
    for index, feeds in enumerate(case.feeds):
        print(f"environment {index}: " + ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in feeds.items()))
    if arguments.save:
        Path(arguments.save).write_bytes(case.data)
    ((_, report),) = run([[case]], lambda item, phase: check(item, variants(arguments.index), phase))
    print(report)
    if not isinstance(report, Finding):
        return 0
    if arguments.shrink:
        case, report = shrink(case, report, variants(arguments.index))
        print(f"\n{case.text}")
        for name, array in case.feeds[0].items():
            print(f"{name} = {array.dtype}{list(array.shape)} {np.array2string(array.ravel()[:40], threshold=40)}")
        print(f"{report.kind.value} [{report.variant}]: {report.message}")
    print(f"reproduce with: python -m tests.fuzz --seed {arguments.seed} --index {arguments.index} --shrink")
    return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="graphs (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="with the index of a graph all that decides what it is")
    parser.add_argument("--start", type=int, default=0, help="index of the first graph")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=0, help="stop after these")
    parser.add_argument("--index", type=int, help="only this graph, in this process, with its text")
    parser.add_argument("--shrink", action="store_true", help="with --index: make what fails small")
    parser.add_argument("--save", help="with --index: write the model to this file")
    parser.add_argument("--skipped", action="store_true", help="say why onnxruntime did not run graphs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
