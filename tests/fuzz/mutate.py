"""`python -m tests.fuzz.mutate`: models, options and feeds that somebody or something has damaged.

Purpose: whatever reaches the public functions, a `DvmError` or an answer comes out: no crash, no hang, no
other exception, and no `CompileError` that blames the compiler. What onnxruntime still loads and runs has
to run here too, with equal results.

A mutant is a pure function of (kind, seed, index):

    bytes      the file: bits, ranges, lengths, parts of another file
    structure  the message: types, nodes, operands, attributes, names, dims, constants, regions, functions
    options    fields of `Options` and `FusionLimits`: other types, ends of ranges, unknown names
    feeds      other types, dtypes, layouts, shapes, containers

Mutants are checked in child processes with limits (`workers`).
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

import dvm_graph
from tests.fuzz.case import Case, generate
from tests.fuzz.check import Finding, Kind, Phase, Report, Skipped, check
from tests.fuzz.damage import damaged_bytes, damaged_feeds, damaged_options, damaged_structure
from tests.fuzz.judge import Reference, difference
from tests.fuzz.workers import run

Work = Callable[[int, Callable[[Phase], None]], Report]
_ORIGINALS = 500
"""Random graphs that mutants are made of."""


def mutant(kind: str, seed: int, index: int) -> tuple[random.Random, Case]:
    """What decides the damage, and the case that is to be damaged."""
    rng = random.Random(f"{kind}:{seed}:{index}")
    return rng, generate(seed, rng.randrange(_ORIGINALS))


def check_bytes(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    rng, case = mutant("bytes", seed, index)
    data = damaged_bytes(rng, case.data, generate(seed, rng.randrange(_ORIGINALS)).data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return _only_errors(lambda: dvm_graph.optimize(data), phase) or Skipped("not read")
    return _check_model(replace(case, model=model), phase)


def check_structure(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    rng, case = mutant("structure", seed, index)
    return _check_model(replace(case, model=damaged_structure(rng, case.model)), phase)


def _check_model(case: Case, phase: Callable[[Phase], None]) -> Report:
    case = replace(case, feeds=tuple(_fitting(case.model, feeds) for feeds in case.feeds))
    # onnx's inliner asserts on damaged functions that onnxruntime runs: the net is there for them.
    report = check(case, (), phase, net=BytesWarning)
    if isinstance(report, Finding) and "which is no text" in report.message:
        return Skipped("names that are not UTF-8, as the standard asks, are refused")
    if not isinstance(report, Skipped):
        return report

    def whole() -> None:
        model = dvm_graph.optimize(case.data)
        phase(Phase.RUN)
        for feeds in case.feeds:
            model.run(feeds)

    return _only_errors(whole, phase) or report


def _fitting(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    """Feeds for the inputs that the mutant has, of the types it declares."""
    constants = {tensor.name for tensor in model.graph.initializer}
    result = {}
    for info in model.graph.input:
        array = feeds.get(info.name)
        if info.name in constants and array is None:
            continue
        try:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        except KeyError:
            continue
        with np.errstate(all="ignore"):
            result[info.name] = np.ones(2, dtype) if array is None else array.astype(dtype)
    return result


def check_options(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    _rng, case = mutant("options", seed, index % 40)
    damage = damaged_options(random.Random(f"options:{seed}:{index}"))
    feeds = case.feeds[0]
    results: list[Any] = []

    def whole() -> None:
        options, limits = damage
        if limits:
            options = {**options, "limits": dvm_graph.FusionLimits(**limits)}
        results.extend(dvm_graph.optimize(case.data, **options).run(feeds))

    found = _only_errors(whole, phase)
    if found is not None:
        return replace(found, message=f"{damage}: {found.message}")
    if not results:
        return Skipped("refused")
    return check(case, (), phase, net=BytesWarning)


def check_feeds(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    rng, case = mutant("feeds", seed, index)
    feeds = damaged_feeds(rng, case.feeds[0])
    phase(Phase.REFERENCE)
    expected: list[Any] | None
    reference = Reference(case.model)
    reference.run(case.feeds[0])  # some models end the process in onnxruntime
    try:
        expected = None if _swapped(feeds) else reference.run(feeds)
    except Exception:  # whatever onnxruntime has against them
        expected = None
    results: list[Any] = []

    def whole() -> None:
        model = dvm_graph.optimize(case.data)
        phase(Phase.RUN)
        good, second = model.run(case.feeds[0]), model.run(case.feeds[0])
        try:
            results.extend(model.run(feeds))
        finally:
            again = model.run(case.feeds[0])
            for one, two, other in zip(good, second, again, strict=True):
                repeats = one.tobytes() == two.tobytes()  # not what onnxruntime sums over nothing
                assert not repeats or two.tobytes() == other.tobytes(), "other results afterwards"

    found = _only_errors(whole, phase)
    if found is not None or expected is None:
        return found or Skipped("onnxruntime refuses them")
    if not results:
        return Skipped("refused")
    for mine, theirs in zip(results, expected, strict=True):
        wrong = difference(mine, theirs, np.dtype(np.float32), 1000)
        if wrong is not None and not case.special:
            return Finding(Kind.MISMATCH, wrong, case.operators)
    return None


def _swapped(feeds: Any) -> bool:
    """Whether the bytes of an array are not in the machine's order, which onnxruntime does not see."""
    arrays = feeds.values() if isinstance(feeds, dict) else ()
    return any(isinstance(a, np.ndarray) and not a.dtype.isnative for a in arrays)


def _only_errors(whole: Callable[[], object], phase: Callable[[Phase], None]) -> Finding | None:
    """A finding where something else than a `DvmError` that is nobody's defect comes out."""
    phase(Phase.OPTIMIZE)
    try:
        whole()
    except dvm_graph.CompileError as error:
        return Finding(Kind.FOREIGN, f"{type(error).__name__}: {error}", ())
    except dvm_graph.DvmError:
        return None
    except Exception as error:
        return Finding(Kind.FOREIGN, f"{type(error).__name__}: {error}", ())
    return None


CHECKS = {
    "bytes": check_bytes,
    "structure": check_structure,
    "options": check_options,
    "feeds": check_feeds,
}


def _mutate(kind: str, arguments: argparse.Namespace) -> int:
    def work(index: int, phase: Callable[[Phase], None]) -> Report:
        return CHECKS[kind](arguments.seed, index, phase)

    began = time.monotonic()
    until = began + 60 * arguments.minutes if arguments.minutes else None
    end = arguments.start + arguments.count
    shares = [range(arguments.start + job, end, arguments.jobs) for job in range(arguments.jobs)]
    outcomes: collections.Counter[str] = collections.Counter()
    found: set[str] = set()
    for index, report in run(shares, work, until):
        if not isinstance(report, Finding):
            outcomes["skipped" if isinstance(report, Skipped) else "equal"] += 1
            continue
        outcomes[report.kind.value] += 1
        if report.signature not in found:
            found.add(report.signature)
            operators = " ".join(report.operators)
            print(
                f"{kind} {index} {report.kind.value} {operators}: {report.message[:300]}",
                flush=True,
            )
    seconds = time.monotonic() - began
    counts = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items()))
    print(f"{kind}: {sum(outcomes.values())} mutants in {seconds:.0f} s: {counts}", flush=True)
    return sum(count for name, count in outcomes.items() if name not in ("skipped", "equal"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutate", description=__doc__)
    add = parser.add_argument
    add("kinds", nargs="*", choices=[*CHECKS, []], help="default: all")
    add("--count", type=int, default=1000, help="mutants of each kind")
    add("--seed", type=int, default=0)
    add("--start", type=int, default=0, help="index of the first mutant")
    add("--jobs", type=int, default=1, help="processes")
    add("--minutes", type=float, default=0, help="stop each kind after these")
    arguments = parser.parse_args()
    return 1 if sum(_mutate(kind, arguments) for kind in arguments.kinds or CHECKS) else 0


if __name__ == "__main__":
    sys.exit(main())
