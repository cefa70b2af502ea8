"""`python -m tests.fuzz`: random models until a count or a time is reached; prints what was found."""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from tests.fuzz.case import KINDS, OPSETS, Case, Favour, generate
from tests.fuzz.check import (
    Excused,
    Finding,
    Phase,
    Report,
    Skipped,
    Variant,
    all_vendor,
    check,
    variants,
)
from tests.fuzz.coverage import WHOLE, left_out, opsets_of, versions
from tests.fuzz.shrink import shrink
from tests.fuzz.workers import OTHER, run

PROGRESS = 1000
SHRINK_SECONDS = 60


def main() -> int:
    arguments = _arguments()
    return _one(arguments) if arguments.index is not None else _many(arguments)


def _many(arguments: argparse.Namespace) -> int:
    seed, started = arguments.seed, time.monotonic()

    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        case = generate(seed, index, _favour(arguments, index))
        return check(case, _used(arguments, index, case), phase)

    until = started + 60 * arguments.minutes if arguments.minutes else None
    skipped: collections.Counter[str] = collections.Counter()
    kinds: collections.Counter[str] = collections.Counter()
    excused: collections.Counter[str] = collections.Counter()
    found: set[str] = set()
    count = 0
    for index, report in run(_shares(arguments), work, until):
        count += 1
        if isinstance(report, Skipped):
            skipped[report.reason[:100]] += 1
        elif isinstance(report, Excused):
            excused.update(excuse.value for excuse in report.excuses)
        elif isinstance(report, Finding):
            kinds[report.kind.value] += 1
            if not report.operators:
                case = generate(seed, index, _favour(arguments, index))
                report = _named(report, case, arguments, index)
            _tell(arguments, index, report, found)
        if count % PROGRESS == 0:
            each = 1e3 * (time.monotonic() - started) / count
            print(
                f"-- {count} graphs, {sum(skipped.values())} skipped, {dict(kinds)}, {each:.1f} ms each",
                flush=True,
            )
    seconds = time.monotonic() - started
    print(
        f"{count} graphs in {seconds:.0f} s ({1e3 * seconds / max(1, count):.1f} ms each), of which "
        f"onnxruntime does not run {sum(skipped.values())}; {len(found)} different findings"
    )
    for kind, times in kinds.most_common():
        print(f"{times} {kind}")
    for excuse, times in excused.most_common():
        print(f"{times} {excuse}")
    if arguments.skipped:
        for reason, times in skipped.most_common(40):
            print(f"  {times} {reason}")
    return 1 if kinds else 0


def _used(arguments: argparse.Namespace, index: int, case: Case) -> tuple[Variant, ...]:
    return all_vendor(case) if arguments.vendor else variants(index)


def _named(finding: Finding, case: Case, arguments: argparse.Namespace, index: int) -> Finding:
    """What ended a child, with what that child cannot say."""
    variant = finding.variant
    if variant == OTHER:
        ((variant, _),) = _used(arguments, index, case)
    return replace(finding, operators=case.operators, variant=variant)


def _favour(arguments: argparse.Namespace, index: int) -> Favour:
    if not arguments.each:
        return Favour(arguments.favour, arguments.opset, arguments.operator)
    found = _versions()
    name, version = found[index % len(found)]
    opsets = opsets_of(name, version)
    return Favour(None, opsets[index // len(found) % len(opsets)], name)


@functools.cache
def _versions() -> list[tuple[str, int]]:
    return [which for which in versions() if WHOLE not in left_out(*which)]


def _shares(arguments: argparse.Namespace) -> list[Iterator[int]]:
    """The indices of each job."""
    jobs, end = arguments.jobs, arguments.start + arguments.count
    return [iter(range(arguments.start + job, end, jobs)) for job in range(jobs)]


def _tell(arguments: argparse.Namespace, index: int, finding: Finding, found: set[str]) -> None:
    """Prints a finding of a kind not yet met; made small first where that is asked for."""
    if finding.signature in found:
        return
    found.add(finding.signature)
    where = f"{arguments.seed}:{index}"
    if not arguments.shrink:
        print(f"{where} {_line(finding)}", flush=True)
        return
    case = generate(arguments.seed, index, _favour(arguments, index))
    case, small = shrink(case, finding, _used(arguments, index, case), SHRINK_SECONDS)
    if small.signature != finding.signature and small.signature in found:
        return
    found.add(small.signature)
    print(f"{where} {_line(small)}\n{_text(case)}", flush=True)


def _line(finding: Finding) -> str:
    operators = " ".join(finding.operators)
    return f"{finding.kind.value} [{finding.variant}] {operators}: {finding.message[:400]}"


def _text(case: Case) -> str:
    """The model, as `onnx.parser` reads it, and what it was run on."""
    lines = [case.text]
    for name, array in case.feeds[0].items():
        shown = np.array2string(array.ravel()[:40], threshold=40, separator=",")
        lines.append(f"{name} = {array.dtype}{list(array.shape)} {shown}")
    return "\n".join(lines)


def _one(arguments: argparse.Namespace) -> int:
    case = generate(arguments.seed, arguments.index, _favour(arguments, arguments.index))
    print(case.text)
    for index, feeds in enumerate(case.feeds):
        shapes = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in feeds.items())
        print(f"environment {index}: {shapes}")
    used = _used(arguments, arguments.index, case)
    ((_, report),) = run([[case]], lambda item, phase: check(item, used, phase))
    print(report)
    if not isinstance(report, Finding):
        return 0
    report = _named(report, case, arguments, arguments.index)
    if arguments.shrink:
        case, report = shrink(case, report, used)
        print(f"\n{_text(case)}\n{_line(report)}")
    if arguments.save:
        onnx.save(case.model, arguments.save)
    ways = " --each" if arguments.each else ""
    ways += "".join(
        f" --{way} {value}"
        for way in ("favour", "opset", "operator")
        if (value := getattr(arguments, way))
    )
    print(
        f"reproduce with: python -m tests.fuzz --seed {arguments.seed} --index {arguments.index}{ways} --shrink"
    )
    return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    add = parser.add_argument
    add("--count", type=int, default=1000, help="graphs (default: 1000)")
    add("--seed", type=int, default=0, help="with its index all that decides what a graph is")
    add("--start", type=int, default=0, help="index of the first graph")
    add("--jobs", type=int, default=1, help="processes")
    add("--minutes", type=float, default=0, help="stop after these")
    add("--shrink", action="store_true", help="make what fails small")
    add("--index", type=int, help="only this graph, with its text")
    add("--save", type=Path, help="with --index: write a model that fails to this file")
    add("--favour", choices=KINDS, help="half of the nodes are of this kind")
    add("--operator", help="half of the nodes are of this one")
    add("--each", action="store_true", help="each version of each operator in turn")
    add("--opset", type=int, choices=OPSETS, metavar="N", help="all graphs are of this one")
    add(
        "--vendor", action="store_true", help="the other way to compile: all is left to onnxruntime"
    )
    add("--skipped", action="store_true", help="say why onnxruntime did not run graphs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
