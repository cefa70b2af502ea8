"""Programs of a simulated part, and what each of their flags is for: tiny models, graphs and onnx's node tests.

`python -m tests.npu.corpus` (`make audit-npu`) runs all of it and prints the counts; `test_corpus.py` a selection. Every case
runs on the host and on the part, one instruction after the other and with its queues as early or as late as flags permit;
and each wait of each program is left out once, to see that the verifier and the numbers notice.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.test_case import TestCase

import dvm_graph
from dvm_graph.backend.conformance import node_tests
from models import FAMILIES, ZOO, random_feeds, tiny_path
from tests.tolerances import assert_close, assert_within_steps

Array = np.ndarray[Any, Any]
PART = "ascend910b2"
DIMS = {
    **{"batch": 2, "seq": 9, "past_seq": 5, "features": 17, "frames": 50, "samples": 2000},
    **{"height": 32, "width": 32, "depth": 8},
}
TERMS = 4096
"""Terms that one output of a tiny model sums, and of a node test, to the order of magnitude."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    source: Any
    feeds: Callable[[], Mapping[str, Any]]
    quantised: bool = False

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Counts:
    """Of waits, as `Model.flags` has them; `cases` ran, `vendor` of them without a kernel of ours."""

    cases: int = 0
    vendor: int = 0
    waits: int = 0
    unbalanced: int = 0
    unordered: int = 0
    seen: int = 0
    mistaken: int = 0

    def add(self, other: Counts) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


def models() -> Iterator[Case]:
    """The tiny export of every family."""
    for name in (*FAMILIES, *ZOO):
        yield Case(
            name,
            tiny_path(name),
            lambda name=name: random_feeds(name, DIMS),
            name.endswith("_int8"),
        )


def node_cases(tests: Sequence[TestCase]) -> Iterator[Case]:
    """Those that the host runs; others fail there for reasons of their own (docs/conformance.md)."""
    for test in tests:
        constants = {tensor.name for tensor in test.model.graph.initializer}
        names = [info.name for info in test.model.graph.input if info.name not in constants]
        inputs = test.data_sets[0][0]
        yield Case(
            test.name,
            test.model,
            lambda names=names, inputs=inputs: dict(zip(names, inputs, strict=False)),
            "quant" in test.name,
        )


def examine(case: Case) -> Counts | None:
    """What the flags of the case's programs are for; None: the host does not run it.

    Raises an AssertionError where the part computes something else than the host, or its queues than one
    instruction after the other, or a flag is missing that nobody would notice.
    """
    feeds = case.feeds()
    try:
        expected = dvm_graph.optimize(case.source).run(feeds)
    except (dvm_graph.DvmError, onnx.checker.ValidationError):
        return None
    found = dvm_graph.optimize(case.source, device=PART).run(feeds)
    audited = dvm_graph.optimize(case.source, device=PART, queues="audited")
    for actual, like, beside in zip(found, expected, audited.run(feeds), strict=True):
        _compare(actual, like, beside, case.quantised)
    flags = audited.flags
    counts = Counts(1, int(flags.waits == 0))
    for name in ("waits", "unbalanced", "unordered", "seen", "mistaken"):
        setattr(counts, name, getattr(flags, name))
    assert counts.unbalanced == counts.waits, f"{case.name}: a wait is missing and nobody notices"
    assert counts.mistaken == 0, f"{case.name}: a flag that the verifier takes for spare is needed"
    return counts


def _compare(actual: Any, like: Any, beside: Any, quantised: bool) -> None:
    if not isinstance(like, np.ndarray) or like.dtype.kind in "OUST":
        assert str(actual) == str(like)  # strings, sequences: of the vendor library
        return
    if quantised:
        assert_within_steps(actual, like, TERMS)
    else:
        assert_close(actual, like, reduction_length=TERMS)
    assert actual.tobytes() == beside.tobytes(), "the order of queues shows in the numbers"


def main() -> int:
    """Examines everything; prints what fails, then the counts of each part of the corpus."""
    failed = 0
    parts: dict[str, Iterator[Case]] = {"models": models(), "node tests": node_cases(node_tests())}
    for part, cases in parts.items():
        total, skipped, started = Counts(), 0, time.monotonic()
        for case in cases:
            try:
                counts = examine(case)
            except (AssertionError, dvm_graph.DvmError) as error:
                failed += 1
                print(f"{case.name}: {type(error).__name__}: {error}", flush=True)
                continue
            skipped += counts is None
            total.add(counts or Counts())
        print(
            f"{part}: {total.cases} cases equal the host, and in any order of queues themselves ({total.vendor} have no flags; "
            f"the host does not run {skipped}), {time.monotonic() - started:.0f} s\n"
            f"  {total.waits} waits, {total.unbalanced} unbalanced without; {total.unordered} unordered without them and "
            f"their sets, of which {total.seen} show in the numbers; {total.mistaken} mistaken for spare",
            flush=True,
        )
    print(f"{failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
