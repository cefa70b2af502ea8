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
import contextlib
import functools
import mmap
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from google.protobuf.message import DecodeError

import dvm_graph
from tests.fuzz.case import Case, generate
from tests.fuzz.check import Finding, Kind, Phase, Report, Skipped, check, compare
from tests.fuzz.damage import damaged_bytes, damaged_feeds, damaged_options, damaged_structure
from tests.fuzz.judge import Reference
from tests.fuzz.workers import run

Work = Callable[[int, Callable[[Phase], None]], Report]
_ORIGINALS = 500
"""Random graphs that mutants of files are made of."""
_PREPARED = 100
"""Random graphs that odd options and feeds are given to: what they are compared with is made once."""

_BEGUN = mmap.mmap(-1, _PREPARED)
"""Which of them ended a child while it made them: the next one, which shares this memory, leaves them out."""


@functools.lru_cache(maxsize=_ORIGINALS)
def _original(seed: int, number: int) -> Case:
    return generate(seed, number)


def mutant(kind: str, seed: int, index: int) -> tuple[random.Random, Case]:
    """What decides the damage, and the case that is to be damaged."""
    rng = random.Random(f"{kind}:{seed}:{index}")
    return rng, _original(seed, rng.randrange(_ORIGINALS))


def check_bytes(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    rng, case = mutant("bytes", seed, index)
    data = damaged_bytes(rng, case.data, _original(seed, rng.randrange(_ORIGINALS)).data)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        return _only_errors(lambda: dvm_graph.optimize(data), phase) or Skipped("not read")
    return _check_model(replace(case, model=model), phase)


def check_structure(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    rng, case = mutant("structure", seed, index)
    return _check_model(replace(case, model=damaged_structure(rng, case.model)), phase)


_RANDOM = (
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"),
    "RandomUniformLike",
)
_EXCUSED = {
    "OutOfMemoryError": "more memory than a child has",
    "which is no text": "names that are not UTF-8, as the standard asks, are refused",
    r"ShapeError: .* (has extent \d+, (which is not|expected)| is \d+ by )": "feeds contradict declared dims",
    "has rank .* but the model wants rank": "a result of another rank than the model declares",
}
"""Signs of models that onnxruntime runs, and nobody else has to."""


def _check_model(case: Case, phase: Callable[[Phase], None]) -> Report:
    case = replace(case, feeds=tuple(_fitting(case.model, feeds) for feeds in case.feeds))
    # onnx's inliner asserts on damaged functions that onnxruntime runs: the net is there for them.
    phase(Phase.REFERENCE)
    _survives(case.model)
    random_ = any(n.op_type in _RANDOM for n in _every_node(case.model.graph))
    report = Skipped("random") if random_ else check(case, (), phase, rescue=True)
    if isinstance(report, Finding):
        for sign, reason in _EXCUSED.items():
            if re.search(sign, report.message):
                return Skipped(reason)
        nested = any(a.HasField("g") for node in case.model.graph.node for a in node.attribute)
        if nested and report.kind is Kind.SPECIAL:
            return Skipped("documented differences are not looked for inside of bodies")
    if not isinstance(report, Skipped):
        return report

    def whole() -> None:
        model = dvm_graph.optimize(case.data)
        phase(Phase.RUN)
        for feeds in case.feeds:
            model.run(feeds)

    return _only_errors(whole, phase) or report


def _every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Nodes and those of their bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _every_node(attribute.g)


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
        kind = info.type.tensor_type
        with np.errstate(all="ignore"):
            array = np.ones(2, dtype) if array is None else array.astype(dtype)
        if kind.HasField("shape") and not kind.shape.dim and array.size:
            # onnxruntime takes arrays of any rank for scalars
            array = array.reshape(-1)[:1].reshape(())
        result[info.name] = array
    return result


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What odd options and feeds are held against."""

    case: Case
    reference: Reference
    expected: list[Any]
    """What onnxruntime gives for the first feeds."""


def _survives(model: onnx.ModelProto) -> None:
    """Ends the process, in the phase of the reference, where onnxruntime's optimiser does."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    with contextlib.suppress(Exception):
        ort.InferenceSession(model.SerializeToString(), options)


@functools.lru_cache(maxsize=_PREPARED)
def _prepared(seed: int, number: int) -> _Prepared | None:
    """None: onnxruntime does not run it."""
    if _BEGUN[number]:
        return None
    _BEGUN[number] = 1
    case = generate(seed, number)
    try:
        reference = Reference(case.model)
        return _Prepared(case, reference, reference.run(case.feeds[0]))
    except Exception:
        return None
    finally:
        _BEGUN[number] = 0


@functools.lru_cache(maxsize=_PREPARED)
def _used(seed: int, number: int) -> tuple[dvm_graph.Model, list[Any], list[bool]]:
    """A model that goes on being used, what it gives, and which results are the same bits again."""
    case = generate(seed, number)
    model = dvm_graph.optimize(case.data)
    good, again = model.run(case.feeds[0]), model.run(case.feeds[0])
    # What onnxruntime sums over nothing is not the same again.
    return model, good, [_bits(a) == _bits(b) for a, b in zip(good, again, strict=True)]


def _bits(result: Any) -> Any:
    return result.tobytes() if isinstance(result, np.ndarray) else repr(result)


def check_options(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    phase(Phase.REFERENCE)
    prepared = _prepared(seed, index % _PREPARED)
    if prepared is None:
        return Skipped("onnxruntime refuses it")
    case = prepared.case
    options, limits = damaged_options(random.Random(f"options:{seed}:{index}"), case.model)
    results: list[Any] = []

    def whole() -> None:
        given = {**options, "limits": dvm_graph.FusionLimits(**limits)} if limits else options
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = dvm_graph.optimize(case.data, **given)
        phase(Phase.RUN)
        results.extend(model.run(case.feeds[0]))

    found = _only_errors(whole, phase)
    if found is None and not results:
        return Skipped("refused")
    if found is None and options.get("precision") != "bf16":
        wrong = compare(case, case.feeds[0], results, prepared.expected)
        if isinstance(wrong, str) and not case.special:
            found = Finding(Kind.MISMATCH, wrong, case.operators)
    return found and replace(found, message=f"{options} {limits}: {found.message}")


def check_feeds(seed: int, index: int, phase: Callable[[Phase], None]) -> Report:
    phase(Phase.REFERENCE)
    prepared = _prepared(seed, index % _PREPARED)
    if prepared is None:
        return Skipped("onnxruntime refuses the model")
    case = prepared.case
    feeds = damaged_feeds(random.Random(f"feeds:{seed}:{index}"), case.feeds[0])
    expected: list[Any] | None
    try:
        expected = None if _swapped(feeds) else prepared.reference.run(feeds)
    except Exception:  # whatever onnxruntime has against them
        expected = None
    results: list[Any] = []

    def whole() -> None:
        model, good, repeats = _used(seed, index % _PREPARED)
        phase(Phase.RUN)
        try:
            results.extend(model.run(feeds))
        finally:
            again = model.run(case.feeds[0])
            for one, other, same in zip(good, again, repeats, strict=True):
                assert not same or _bits(one) == _bits(other), "other results afterwards"

    found = _only_errors(whole, phase)
    if found is not None or expected is None:
        return found or Skipped("onnxruntime refuses them")
    if not results:
        return Skipped("refused")
    with np.errstate(all="ignore"):
        given = {n: np.asarray(feeds[n]).astype(x.dtype) for n, x in case.feeds[0].items()}
    wrong = None if case.special else compare(case, given, results, expected)
    return Finding(Kind.MISMATCH, wrong, case.operators) if isinstance(wrong, str) else None


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
        known = report.signature in found
        found.add(report.signature)
        what = "as above" if known else f"{' '.join(report.operators)}: {report.message[:300]}"
        print(f"{kind} {index} {report.kind.value} {what}", flush=True)
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
